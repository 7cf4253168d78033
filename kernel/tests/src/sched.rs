//! Tests of crate `sched` on real processors: threads run where they may, sleep long enough, and share fairly.

use super::kit::{join, on, spawn};
use super::{HANG_NS, Outcome, Test, check, fail};
use ::sched::{Mutex, Thread, timer};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use machine::cpu::{self, CpuSet};
use machine::{preempt, time};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "sched::thread_runs_on_each_processor", run: thread_runs_on_each_processor },
    Test { name: "sched::timers_fire_on_each_processor", run: timers_fire_on_each_processor },
    Test { name: "sched::set_affinity_moves_a_running_thread", run: set_affinity_moves_a_running_thread },
    Test { name: "sched::sleep_is_never_short", run: sleep_is_never_short },
    Test { name: "sched::spinning_threads_are_preempted", run: spinning_threads_are_preempted },
    Test { name: "sched::runnable_threads_use_all_processors", run: runnable_threads_use_all_processors },
    Test { name: "sched::mutex_excludes", run: mutex_excludes },
    Test { name: "sched::thousand_threads_come_and_go", run: thousand_threads_come_and_go },
    Test { name: "sched::timer_fires_and_can_be_cancelled", run: timer_fires_and_can_be_cancelled },
];

/// Increments of each thread in the mutex test.
const INCREMENTS: u64 = 2_000;

fn thread_runs_on_each_processor() -> Outcome {
    for target in cpu::online().iter() {
        let seen = Arc::new(AtomicU64::new(u64::MAX));
        let report = seen.clone();
        let (_thread, done) = spawn(on(CpuSet::only(target)), move || {
            report.store(cpu::current().index() as u64, Ordering::Relaxed);
        })?;
        join(&done)?;
        let seen = seen.load(Ordering::Relaxed);
        check!(seen == target.index() as u64, "bound to {target}, ran on {seen}");
    }
    Ok(())
}

/// Also on those that were in the scheduler before the boot processor: see `run_early`.
fn timers_fire_on_each_processor() -> Outcome {
    for target in cpu::online().iter() {
        let (_thread, done) = spawn(on(CpuSet::only(target)), || {
            timer::sleep_until_uninterruptible(time::now_ns() + 1_000_000);
        })?;
        check!(join(&done).is_ok(), "processor {target} hears no timer");
    }
    Ok(())
}

fn set_affinity_moves_a_running_thread() -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    let (place, end) = (Arc::new(AtomicU64::new(0)), stop.clone());
    let report = place.clone();
    let (thread, done) = spawn(on(cpu::online()), move || {
        while !end.load(Ordering::Relaxed) {
            // It must not be moved between the look and the report of what it saw.
            let section = preempt::disable();
            report.store(cpu::current().index() as u64, Ordering::Relaxed);
            drop(section);
            cpu::relax();
        }
    })?;
    let mut outcome = Ok(());
    for target in cpu::online().iter() {
        Thread::set_affinity(&thread, CpuSet::only(target));
        // From here on it runs on the target only, whenever that has time for it.
        place.store(u64::MAX, Ordering::Relaxed);
        let limit = time::now_ns() + HANG_NS;
        while place.load(Ordering::Relaxed) == u64::MAX && time::now_ns() < limit {
            let _ = timer::sleep_until(time::now_ns() + 100_000);
        }
        let seen = place.load(Ordering::Relaxed);
        if seen != target.index() as u64 {
            outcome = Err(super::Failure::new(format_args!("on {seen} after the move to {target}")));
        }
    }
    stop.store(true, Ordering::Relaxed);
    join(&done)?;
    outcome
}

fn sleep_is_never_short() -> Outcome {
    for wait_ns in [0, 1_000, 100_000, 1_000_000, 5_000_000] {
        let deadline = time::now_ns() + wait_ns;
        check!(timer::sleep_until(deadline).is_ok(), "interrupted by nobody");
        let now = time::now_ns();
        check!(now >= deadline, "{} ns short of {wait_ns}", deadline - now);
        log::info!("slept {wait_ns} ns, {} ns late", now - deadline);
    }
    Ok(())
}

fn spinning_threads_are_preempted() -> Outcome {
    let target = CpuSet::only(cpu::current());
    let turns = Arc::new([const { AtomicU64::new(0) }; 3]);
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for index in 0..3 {
        let (turns, stop) = (turns.clone(), stop.clone());
        threads.push(spawn(on(target), move || {
            while !stop.load(Ordering::Relaxed) {
                turns[index].fetch_add(1, Ordering::Relaxed);
                cpu::relax();
            }
        })?);
    }
    let limit = time::now_ns() + HANG_NS;
    let all_ran = || turns.iter().all(|turns| turns.load(Ordering::Relaxed) > 0);
    while !all_ran() && time::now_ns() < limit {
        let _ = timer::sleep_until(time::now_ns() + 1_000_000);
    }
    let ran = all_ran();
    stop.store(true, Ordering::Relaxed);
    for (_, done) in &threads {
        join(done)?;
    }
    check!(ran, "a thread never got the processor");
    Ok(())
}

fn runnable_threads_use_all_processors() -> Outcome {
    let count = cpu::online().count();
    let seen = Arc::new(machine::cpu::AtomicCpuSet::new(CpuSet::EMPTY));
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for _ in 0..count {
        let (seen, stop) = (seen.clone(), stop.clone());
        threads.push(spawn(on(cpu::online()), move || {
            while !stop.load(Ordering::Relaxed) {
                seen.insert(cpu::current(), Ordering::Relaxed);
                cpu::relax();
            }
        })?);
    }
    let limit = time::now_ns() + HANG_NS;
    while seen.load(Ordering::Relaxed).count() < count && time::now_ns() < limit {
        let _ = timer::sleep_until(time::now_ns() + 1_000_000);
    }
    let seen = seen.load(Ordering::Relaxed);
    stop.store(true, Ordering::Relaxed);
    for (_, done) in &threads {
        join(done)?;
    }
    check!(seen.count() == count, "{count} threads used only {seen:?}");
    Ok(())
}

fn mutex_excludes() -> Outcome {
    let total = Arc::new(Mutex::new(0_u64));
    let mut threads = Vec::new();
    for _ in 0..4 {
        let total = total.clone();
        threads.push(spawn(on(cpu::online()), move || {
            for _ in 0..INCREMENTS {
                let mut value = total.lock();
                let before = *value;
                cpu::relax();
                *value = before + 1;
            }
        })?);
    }
    for (_, done) in &threads {
        join(done)?;
    }
    let total = *total.lock();
    check!(total == 4 * INCREMENTS, "{total} increments of {}", 4 * INCREMENTS);
    Ok(())
}

fn thousand_threads_come_and_go() -> Outcome {
    let count = Arc::new(AtomicU64::new(0));
    for _ in 0..20 {
        let mut threads = Vec::new();
        for _ in 0..50 {
            let count = count.clone();
            threads.push(spawn(on(cpu::online()), move || {
                count.fetch_add(1, Ordering::Relaxed);
            })?);
        }
        for (_, done) in &threads {
            join(done)?;
        }
    }
    let count = count.load(Ordering::Relaxed);
    check!(count == 1000, "{count} of 1000 ran");
    Ok(())
}

fn timer_fires_and_can_be_cancelled() -> Outcome {
    let fired = Arc::new(AtomicU64::new(0));
    let counter = fired.clone();
    let Ok(timer) = timer::Timer::new(Box::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    })) else {
        fail!("no memory for a timer");
    };
    timer.arm(time::now_ns() + 200_000);
    let limit = time::now_ns() + HANG_NS;
    while fired.load(Ordering::Relaxed) == 0 && time::now_ns() < limit {
        let _ = timer::sleep_until(time::now_ns() + 1_000_000);
    }
    check!(fired.load(Ordering::Relaxed) == 1, "fired {} times", fired.load(Ordering::Relaxed));
    // Whether a cancellation comes in time is up to the host; that a cancelled timer is silent is not.
    const ATTEMPTS: u64 = 100;
    for _ in 0..ATTEMPTS {
        let before = fired.load(Ordering::Relaxed);
        let expiry = time::now_ns() + 5_000_000;
        timer.arm(expiry);
        let cancelled = timer.cancel();
        let _ = timer::sleep_until(expiry + 1_000_000);
        if cancelled {
            check!(fired.load(Ordering::Relaxed) == before, "fired although cancelled");
            return Ok(());
        }
    }
    fail!("the timer was never armed still right after it was armed");
}
