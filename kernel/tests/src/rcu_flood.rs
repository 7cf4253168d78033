//! A flood that grace periods cannot keep up with, on a small machine: with the defences memory lasts, without it does not.
//!
//! Readers on another processor hold up each grace period while one thread makes garbage as fast as it can. For a
//! machine with two processors or more; `rcu_flood::memory_is_exhausted_without_defences` wants `rcu.unprotected=1` on the command line.

use super::{HANG_NS, Outcome, Test, check, fail};
use ::sched::{Builder, Completion, timer};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use machine::cpu::{self, CpuSet};
use machine::time;
use memory::frame;
use sync::rcu::{self, Kind, RcuBox, parameters};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "rcu_flood::memory_lasts_with_defences", run: memory_lasts_with_defences },
    Test {
        name: "rcu_flood::memory_is_exhausted_without_defences",
        run: memory_is_exhausted_without_defences,
    },
];

/// Length of a read section. Without defences, where nothing holds up who makes garbage, also at least until so much of it was made that there
/// is no room for: the host may let one of the two work more than the other.
const SECTION_NS: u64 = 300_000_000;
const SECTION_OBJECTS: u64 = 1_000_000;
/// How long the flood lasts if memory does.
const FLOOD_NS: u64 = 8_000_000_000;
/// Size of what is thrown away.
const GARBAGE_BYTES: usize = 2048 - 64;

/// What a flood came to.
struct Flood {
    /// Objects made.
    made: u64,
    /// Whether an allocation failed.
    exhausted: bool,
    /// Least memory that was free, in frames.
    least_free: u64,
}

fn flood() -> Result<Flood, super::Failure> {
    let mut cpus = cpu::online().iter();
    let (Some(first), Some(second)) = (cpus.next(), cpus.next()) else { fail!("this takes two processors") };
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(Completion::new());
    let made = Arc::new(AtomicU64::new(0));
    let (end, signal, count) = (stop.clone(), done.clone(), made.clone());
    let reader = Builder { affinity: CpuSet::only(second), ..Builder::new("reader") };
    let reader = ::sched::spawn(
        reader,
        Box::new(move || {
            while !end.load(Ordering::Relaxed) {
                let guard = rcu::read();
                let leave_ns = time::now_ns() + SECTION_NS;
                let enough = if parameters::is_protected() {
                    0
                } else {
                    count.load(Ordering::Relaxed) + SECTION_OBJECTS
                };
                let is_over = || time::now_ns() >= leave_ns && count.load(Ordering::Relaxed) >= enough;
                while !is_over() && !end.load(Ordering::Relaxed) {
                    cpu::relax();
                }
                drop(guard);
            }
            signal.complete();
        }),
    );
    if reader.is_err() {
        fail!("no memory for a thread");
    }
    ::sched::current().set_affinity(CpuSet::only(first));
    let mut flood = Flood { made: 0, exhausted: false, least_free: u64::MAX };
    let end_ns = time::now_ns() + if parameters::is_protected() { FLOOD_NS } else { HANG_NS };
    while time::now_ns() < end_ns && !flood.exhausted {
        match RcuBox::try_new([0_u8; GARBAGE_BYTES]) {
            Some(garbage) => garbage.defer_drop(),
            None => flood.exhausted = true,
        }
        flood.made += 1;
        made.store(flood.made, Ordering::Relaxed);
        if flood.made.is_multiple_of(64) {
            let memory = memory::statistics::memory();
            flood.least_free = flood.least_free.min(memory.free_frames + memory.cached_frames);
        }
    }
    let waiting = rcu::pending_bytes(first);
    stop.store(true, Ordering::Relaxed);
    check!(done.wait_deadline(time::now_ns() + HANG_NS), "the reader did not end in time");
    rcu::barrier();
    ::sched::current().set_affinity(CpuSet::ALL);
    timer::sleep_until_uninterruptible(time::now_ns() + 1_000_000);
    log::info!(
        "flood: {} objects of {GARBAGE_BYTES} bytes made, {} KiB waiting at the end, at least {} of {} frames free; {}",
        flood.made,
        waiting / 1024,
        flood.least_free,
        frame::total_frames(),
        rcu::grace_periods(Kind::Classic),
    );
    Ok(flood)
}

fn memory_lasts_with_defences() -> Outcome {
    if !parameters::is_protected() {
        return Ok(());
    }
    let flood = flood()?;
    check!(!flood.exhausted, "out of memory after {} objects", flood.made);
    check!(flood.least_free > frame::total_frames() / 4, "only {} frames were left", flood.least_free);
    Ok(())
}

fn memory_is_exhausted_without_defences() -> Outcome {
    if parameters::is_protected() {
        return Ok(());
    }
    let flood = flood()?;
    check!(flood.exhausted, "{} objects did not exhaust memory", flood.made);
    Ok(())
}
