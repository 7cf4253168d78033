//! What a tracer can ask about a stop.

use zerocopy::IntoBytes;

use super::options::Event;
use super::stop;
use super::tracee::{Reason, State, Tracee};
use crate::abi::{PeekSignals, SequenceConfiguration, SignalInfoWords, SystemCallInformation};
use crate::errno::{Errno, SysResult};
use crate::signal::information::SignalInformation;
use crate::user_pointer::{UserPointer, write_bytes};

/// `AUDIT_ARCH_X86_64`
const ARCHITECTURE: u32 = 0xc000_003e;

/// Bytes before what depends on the kind of stop.
const HEAD_BYTES: usize = 24;
const ENTRY_BYTES: usize = 80;
const EXIT_BYTES: usize = 33;
const FILTER_BYTES: usize = 84;

/// `PTRACE_GET_SYSCALL_INFO`: what there is, and how many bytes of it count.
fn of_call(state: &State) -> (SystemCallInformation, usize) {
    const ENTRY: u8 = 1;
    const EXIT: u8 = 2;
    const FILTER: u8 = 3;
    let registers = &state.snapshot.registers;
    let mut found = SystemCallInformation {
        architecture: ARCHITECTURE,
        instruction: registers.rip,
        stack: registers.rsp,
        ..Default::default()
    };
    let Some(stop) = &state.stop else { return (found, HEAD_BYTES) };
    let is_marked = stop.code & 0x80 != 0;
    match stop.reason {
        Reason::Exit if is_marked => {
            let is_error = (registers.rax as i64) < 0 && (registers.rax as i64) >= -4095;
            found.operation = EXIT;
            found.words[0] = registers.rax;
            found.words[1] = is_error.into();
            (found, EXIT_BYTES)
        }
        reason @ (Reason::Entry | Reason::Event(Event::Seccomp)) if is_marked || reason != Reason::Entry => {
            let r = registers;
            found.words[0] = state.snapshot.call;
            found.words[1..7].copy_from_slice(&[r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]);
            if reason == Reason::Entry {
                found.operation = ENTRY;
                return (found, ENTRY_BYTES);
            }
            found.operation = FILTER;
            found.words[7] = stop.message;
            (found, FILTER_BYTES)
        }
        _ => (found, HEAD_BYTES),
    }
}

/// Writes as much of it as there is room for; returns how much there is.
pub(super) fn write_call(
    state: impl FnOnce() -> Result<(SystemCallInformation, usize), Errno>,
    room: u64,
    to: u64,
) -> SysResult {
    let (found, bytes) = state()?;
    let written = usize::try_from(room).unwrap_or(usize::MAX).min(bytes);
    write_bytes(to, &found.as_bytes()[..written])?;
    Ok(bytes)
}

/// See [`write_call`].
pub(super) fn call_of(state: &mut State) -> Result<(SystemCallInformation, usize), Errno> {
    Ok(of_call(state))
}

/// `PTRACE_GET_RSEQ_CONFIGURATION`
pub(super) fn sequence_of(state: &State) -> SequenceConfiguration {
    let sequence = state.snapshot.sequence;
    SequenceConfiguration {
        address: sequence.address,
        bytes: sequence.bytes,
        signature: sequence.signature,
        ..Default::default()
    }
}

/// `PTRACE_PEEKSIGINFO`
pub(super) fn peek(tracee: &Tracee, arguments: u64, to: u64) -> SysResult {
    const SHARED: u32 = 1;
    /// Taken at a time.
    const PIECE: usize = 8;
    let PeekSignals { offset, flags, count } = UserPointer::<PeekSignals>::new(arguments).read()?;
    if flags & !SHARED != 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    let mut done = 0;
    while done < wanted {
        let mut piece: [Option<SignalInformation>; PIECE] = [None; PIECE];
        let mut found = 0;
        let from = offset.saturating_add(done as u64);
        stop::pending(tracee, flags & SHARED != 0, from, PIECE.min(wanted - done), |information| {
            piece[found] = Some(information);
            found += 1;
        });
        for information in piece.iter().flatten() {
            let place = to.wrapping_add((done * size_of::<SignalInfoWords>()) as u64);
            match UserPointer::<SignalInfoWords>::new(place).write(&information.to_words()) {
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => return Ok(done),
                Ok(()) => done += 1,
            }
        }
        if found == 0 {
            break;
        }
    }
    Ok(done)
}
