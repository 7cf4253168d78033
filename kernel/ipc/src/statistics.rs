//! What was done, by CPU.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use machine::cpu::{self, CpuId};
use machine::interrupt::InterruptGuard;
use sync::{PerCpu, per_cpu};

use crate::registry;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Operations begun.
    Operations,
    /// Messages handed to a receiver of the same CPU that waited for them.
    LocalDeliveries,
    /// Times the CPU was given to the partner past the run queue.
    HandOvers,
    /// Messages taken from waiting senders.
    TakenFromQueue,
    /// Requests to receivers' CPUs.
    SendRequests,
    /// Requests to senders' CPUs.
    WakeupRequests,
    /// Requests to leave a queue.
    CancelRequests,
    /// Of these, such that came too late: the message had been taken.
    LateCancellations,
    /// Blocks fetched after their thread had migrated.
    Adoptions,
}

const COUNTERS: [(Counter, &str); 9] = [
    (Counter::Operations, "operations"),
    (Counter::LocalDeliveries, "local_deliveries"),
    (Counter::HandOvers, "hand_overs"),
    (Counter::TakenFromQueue, "taken_from_queue"),
    (Counter::SendRequests, "send_requests"),
    (Counter::WakeupRequests, "wakeup_requests"),
    (Counter::CancelRequests, "cancel_requests"),
    (Counter::LateCancellations, "late_cancellations"),
    (Counter::Adoptions, "adoptions"),
];

static COUNTS: PerCpu<[AtomicU64; COUNTERS.len()]> = per_cpu!([const { AtomicU64::new(0) }; COUNTERS.len()]);

/// Counts one, on this CPU.
#[inline(always)]
pub(crate) fn count(counter: Counter, _off: &InterruptGuard) {
    let place = &COUNTS.this()[counter as usize];
    // Interrupts are off, and nobody else writes.
    place.store(place.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// The sum over all CPUs.
pub fn total(counter: Counter) -> u64 {
    COUNTS.iter().map(|counts| counts[counter as usize].load(Ordering::Relaxed)).sum()
}

/// `/proc/starling/ipc`: the ranges of numbers, then the counters of each CPU.
///
/// # Errors
/// Those of `out`.
pub fn write_report(out: &mut dyn fmt::Write) -> fmt::Result {
    let threads = registry::all().filter(|block| block.id() != crate::ThreadId::NOBODY).count();
    writeln!(out, "threads {threads}\nblock_bytes {}", registry::memory_bytes())?;
    writeln!(out, "partitioned {}", u8::from(crate::endpoint::all_are_partitioned()))?;
    write!(out, "cpu first_number numbers")?;
    for (_, name) in COUNTERS {
        write!(out, " {name}")?;
    }
    writeln!(out)?;
    for cpu in (0..cpu::count()).map(CpuId::from_index) {
        let (first, numbers) = registry::range_of(cpu);
        write!(out, "{cpu} {first} {numbers}")?;
        for (counter, _) in COUNTERS {
            write!(out, " {}", COUNTS.of(cpu)[counter as usize].load(Ordering::Relaxed))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
