//! What processes and threads other than the scenario's own do in user mode.
//!
//! Nobody executes machine code here: a script plays user mode. It knows what to do from the registers, which a child has from its
//! parent: `r15` names its [`Part`], `rbx` counts its steps, `r12` to `r14` are arguments. A process that executed the
//! program of [`executable`] is known by its instruction pointer and ends.

use machine::user::{UserEvent, UserRegisters};
use memory::fallible;

use crate::program::numbers;

/// Where the program starts.
const ENTRY: u64 = 0x40_0078;
/// Status of a child that could not do its part.
pub(crate) const FAILED: u64 = 99;

/// What a child does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Part {
    /// Ends its process with the status in r12.
    End,
    /// Ends only its thread.
    EndThread,
    /// execve(r12, r13, r14); ends with [`FAILED`] when that fails for another reason than the injected failure.
    Execute,
    /// Waits on the futex at r12 while its value is r13, then ends its thread.
    WaitOnFutex,
    /// Takes the lock with priority inheritance at r12, then ends its thread.
    TakeLock,
    /// Sleeps until a signal ends it.
    Pause,
    /// Stops itself, then ends.
    Stop,
    /// Writes r14 bytes at r13 to descriptor r12, then ends.
    Write,
    /// Opens the file whose name is at r12, once, then ends.
    Open,
    /// Makes a call that others may decide about until it has been decided twice, then ends. r12 counts, from 0.
    Ask,
}

impl Part {
    const ALL: [Part; 10] = [
        Part::End,
        Part::EndThread,
        Part::Execute,
        Part::WaitOnFutex,
        Part::TakeLock,
        Part::Pause,
        Part::Stop,
        Part::Write,
        Part::Open,
        Part::Ask,
    ];
}

/// Plays user mode from one entry into the kernel to the next.
pub(crate) fn play(registers: &mut UserRegisters) -> UserEvent {
    if registers.rip == ENTRY {
        return call(registers, numbers::EXIT_GROUP, [0; 4]);
    }
    let part = Part::ALL[registers.r15 as usize];
    let step = registers.rbx;
    registers.rbx += 1;
    let (one, two, three) = (registers.r12, registers.r13, registers.r14);
    match part {
        Part::End => call(registers, numbers::EXIT_GROUP, [one, 0, 0, 0]),
        Part::EndThread => call(registers, numbers::EXIT, [0; 4]),
        Part::Execute if step == 0 || repeats(registers) => {
            call(registers, numbers::EXECVE, [one, two, three, 0])
        }
        Part::WaitOnFutex if step == 0 || repeats(registers) => {
            call(registers, numbers::FUTEX, [one, 0, two, 0])
        }
        Part::TakeLock if step == 0 || repeats(registers) => {
            call(registers, numbers::FUTEX, [one, numbers::FUTEX_LOCK_PI, 0, 0])
        }
        Part::WaitOnFutex | Part::TakeLock => call(registers, numbers::EXIT, [0; 4]),
        Part::Pause => call(registers, numbers::PAUSE, [0; 4]),
        Part::Stop if step == 0 => call(registers, numbers::GETPID, [0; 4]),
        Part::Stop if step == 1 => call(registers, numbers::KILL, [registers.rax, numbers::SIGSTOP, 0, 0]),
        Part::Write if step == 0 || repeats(registers) => {
            call(registers, numbers::WRITE, [one, two, three, 0])
        }
        Part::Open if step == 0 => call(registers, numbers::OPEN, [one, 0, 0, 0]),
        Part::Ask => {
            registers.r12 += u64::from(step > 0 && !has_failed(registers));
            let number = if registers.r12 < 2 { numbers::ASKED } else { numbers::EXIT_GROUP };
            call(registers, number, [0; 4])
        }
        Part::Stop | Part::Write | Part::Open => call(registers, numbers::EXIT_GROUP, [0; 4]),
        Part::Execute => call(registers, numbers::EXIT_GROUP, [FAILED, 0, 0, 0]),
    }
}

/// Whether the last call failed because of the injected failure and has not been repeated yet.
fn repeats(registers: &UserRegisters) -> bool {
    registers.rbx == 2 && has_failed(registers)
}

/// Whether the last call failed because of the injected failure.
fn has_failed(registers: &UserRegisters) -> bool {
    const NO_MEMORY: i64 = -12;
    registers.rax as i64 == NO_MEMORY && fallible::failed_at().is_some()
}

fn call(registers: &mut UserRegisters, number: u64, [one, two, three, four]: [u64; 4]) -> UserEvent {
    registers.rax = number;
    (registers.rdi, registers.rsi, registers.rdx, registers.r10) = (one, two, three, four);
    UserEvent::SystemCall
}

/// An ELF file with one segment for code and one for data, whose first instruction would be at [`ENTRY`].
pub(crate) fn executable() -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let mut half = |value: u16| file.extend(value.to_le_bytes());
    half(2);
    half(62);
    file.extend(1_u32.to_le_bytes());
    for long in [ENTRY, 64, 0] {
        file.extend(long.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 2, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    let mut segment = |flags: u32, offset: u64, bytes: u64, memory: u64| {
        file.extend(1_u32.to_le_bytes());
        file.extend(flags.to_le_bytes());
        for long in [offset, BASE + offset, BASE + offset, bytes, memory, 0x1000] {
            file.extend(long.to_le_bytes());
        }
    };
    segment(5, 0, 0x1000, 0x1000);
    segment(6, 0x1000, 0x80, 0x3000);
    file.resize(0x1080, 0);
    file
}
