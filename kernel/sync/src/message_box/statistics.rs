//! What can be seen of the message boxes: counts by type and CPU, and the matrix.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use machine::cpu::{self, CpuId};

use super::request::Kind;
use super::sending::{MATRIX, in_handler, is_waiting};
use crate::{PerCpu, per_cpu};

/// What a CPU has sent and handled, by type. Written by that CPU.
struct Counts {
    sent: [AtomicU64; Kind::ALL.len()],
    handled: [AtomicU64; Kind::ALL.len()],
}

static COUNTS: PerCpu<Counts> = per_cpu!(Counts {
    sent: [const { AtomicU64::new(0) }; Kind::ALL.len()],
    handled: [const { AtomicU64::new(0) }; Kind::ALL.len()],
});

fn increment(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Counts a request. The caller cannot migrate, and has the CPU's only request.
pub(super) fn note_sent(kind: Kind) {
    increment(&COUNTS.of(cpu::current()).sent[kind.index()]);
}

/// Counts a request that this CPU handles; interrupts are off.
pub(super) fn note_handled(number: u32) {
    if let Some(kind) = Kind::from_number(number) {
        increment(&COUNTS.of(cpu::current()).handled[kind.index()]);
    }
}

/// Requests of a type that a CPU has sent, and that it has handled.
pub fn counts(of: CpuId, kind: Kind) -> (u64, u64) {
    let counts = COUNTS.of(of);
    let read = |counters: &[AtomicU64]| counters[kind.index()].load(Ordering::Relaxed);
    (read(&counts.sent), read(&counts.handled))
}

/// Requests of one CPU that another one has handled.
pub fn served(sender: CpuId, target: CpuId) -> u64 {
    MATRIX.look(sender.index(), target.index()).2
}

/// The request that waits in the box of a pair, if any.
pub fn state_of(sender: CpuId, target: CpuId) -> Option<Kind> {
    Kind::from_number(MATRIX.look(sender.index(), target.index()).0)
}

/// Message-box interrupts that a CPU has taken.
pub fn taken(of: CpuId) -> u64 {
    machine::ipi::count(of, machine::ipi::Ipi::Call)
}

/// Writes the matrix: requests handled for each pair, what waits in the boxes, and the counts by type.
///
/// # Errors
/// The writer's.
pub fn write_matrix(out: &mut dyn fmt::Write) -> fmt::Result {
    write!(out, "from\\to  ")?;
    for target in cpu::online().iter() {
        write!(out, " {:>9}", target.index())?;
    }
    writeln!(out, "  state")?;
    for sender in cpu::online().iter() {
        write!(out, "{:>8} ", sender.index())?;
        for target in cpu::online().iter() {
            write!(out, " {:>9}", served(sender, target))?;
        }
        let waits = if is_waiting(sender) { "  waits" } else { "  -" };
        write!(out, "{waits}{}", if in_handler(sender) { " handles" } else { "" })?;
        for target in cpu::online().iter() {
            if let Some(kind) = state_of(sender, target) {
                write!(out, " {}->{}", kind.name(), target.index())?;
            }
        }
        writeln!(out)?;
    }
    write_types(out)
}

fn write_types(out: &mut dyn fmt::Write) -> fmt::Result {
    writeln!(out, "\n{:>18} {:>10} {:>10}", "type", "sent", "handled")?;
    for kind in Kind::ALL {
        let sums = cpu::online().iter().map(|cpu| counts(cpu, kind));
        let (sent, handled) = sums.fold((0, 0), |(sent, handled), of| (sent + of.0, handled + of.1));
        writeln!(out, "{:>18} {sent:>10} {handled:>10}", kind.name())?;
    }
    Ok(())
}
