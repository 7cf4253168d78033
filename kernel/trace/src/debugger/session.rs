//! What each instance knows of its processor: why and with which registers it came.
//!
//! Written by the processor when it comes, read by the active instance while all stand still; words, because a processor that was left
//! behind may come at any time.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use machine::TrapFrame;
use machine::cpu::{self, CpuId};
use machine::debugger::Cause;
use machine::mmu;
use sync::{PerCpu, per_cpu};

/// Registers, in the order of [`NAMES`].
const REGISTERS: usize = 21;
/// Their names.
pub(super) const NAMES: [&str; REGISTERS] = [
    "rip", "rsp", "rflags", "cs", "ss", "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10",
    "r11", "r12", "r13", "r14", "r15", "error",
];

struct Record {
    /// 1 + the cause, 0: it is not here.
    cause: AtomicU64,
    hits: AtomicU64,
    registers: [AtomicU64; REGISTERS],
    root: AtomicU64,
    /// Where the scheduler keeps its thread.
    thread: AtomicU64,
}

static RECORDS: PerCpu<Record> = per_cpu!(Record {
    cause: AtomicU64::new(0),
    hits: AtomicU64::new(0),
    registers: [const { AtomicU64::new(0) }; REGISTERS],
    root: AtomicU64::new(0),
    thread: AtomicU64::new(0),
});

const CAUSES: [Cause; 5] = [Cause::Breakpoint, Cause::Watch, Cause::Fault, Cause::Button, Cause::Summons];

/// What is known of a processor that is here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    pub(super) cause: Cause,
    /// Hardware breakpoints that were hit.
    pub(super) hits: u64,
    pub(super) registers: [u64; REGISTERS],
    /// Its top-level page table.
    pub(super) root: u64,
    /// Where the scheduler keeps its thread.
    pub(super) thread: u64,
}

impl Visit {
    pub(super) fn instruction(&self) -> u64 {
        self.registers[0]
    }

    pub(super) fn stack_pointer(&self) -> u64 {
        self.registers[1]
    }

    pub(super) fn frame_pointer(&self) -> u64 {
        self.registers[11]
    }

    /// Whether it was in user mode.
    pub(super) fn was_in_user(&self) -> bool {
        self.registers[3] & 3 != 0
    }
}

/// Notes with what this processor comes.
pub(super) fn note(cause: Cause, hits: u64, frame: &TrapFrame) {
    let record = RECORDS.of(cpu::current());
    let words = [
        frame.rip,
        frame.rsp,
        frame.rflags,
        frame.cs,
        frame.ss,
        frame.rax,
        frame.rbx,
        frame.rcx,
        frame.rdx,
        frame.rsi,
        frame.rdi,
        frame.rbp,
        frame.r8,
        frame.r9,
        frame.r10,
        frame.r11,
        frame.r12,
        frame.r13,
        frame.r14,
        frame.r15,
        frame.error_code,
    ];
    for (place, word) in record.registers.iter().zip(words) {
        place.store(word, Relaxed);
    }
    record.hits.store(hits, Relaxed);
    record.root.store(mmu::active_root().as_u64(), Relaxed);
    record.thread.store(cpu::thread_word() as u64, Relaxed);
    let number = CAUSES.iter().position(|known| *known == cause).unwrap_or(0);
    record.cause.store(number as u64 + 1, Relaxed);
}

/// The button was pressed for this processor, which is here for another reason and on its way out.
pub(super) fn note_button() {
    const BUTTON: u64 = 4;
    const { assert!(matches!(CAUSES[BUTTON as usize - 1], Cause::Button)) };
    let cause = &RECORDS.of(cpu::current()).cause;
    if cause.load(Relaxed) != 0 {
        cause.store(BUTTON, Relaxed);
    }
}

/// This processor leaves.
pub(super) fn forget() {
    RECORDS.of(cpu::current()).cause.store(0, Relaxed);
}

/// What is known of a processor, if it is here.
pub(super) fn of(cpu: CpuId) -> Option<Visit> {
    let record = RECORDS.of(cpu);
    let number = record.cause.load(Relaxed).checked_sub(1)?;
    Some(Visit {
        cause: *CAUSES.get(number as usize)?,
        hits: record.hits.load(Relaxed),
        registers: core::array::from_fn(|index| record.registers[index].load(Relaxed)),
        root: record.root.load(Relaxed),
        thread: record.thread.load(Relaxed),
    })
}
