//! Threads run, switch and end.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as HostMutex};

use machine::cpu::{CpuId, CpuSet};
use machine::hosted::Machine;

use super::{boot, eventually, spawn};
use crate::cpu::{Cpu, REQUEST_RESCHEDULE};
use crate::{Builder, Completion, Policy, RunState, current, yield_now};

#[test]
fn thread_runs_and_ends() {
    let done = Arc::new(Completion::new());
    let thread = {
        let done = done.clone();
        spawn("worker", move || done.complete())
    };
    done.wait();
    eventually(|| thread.state() == RunState::Dead);
    assert_eq!(thread.name().as_bytes(), b"worker");
}

#[test]
fn dead_thread_frees_its_references() {
    let token = Arc::new(());
    let thread = {
        let token = token.clone();
        spawn("short", move || drop(token))
    };
    eventually(|| Arc::strong_count(&thread) == 1);
    assert_eq!(Arc::strong_count(&token), 1);
}

#[test]
fn thread_that_never_starts_is_freed_though_its_body_refers_to_it() {
    let holder: Arc<HostMutex<Option<crate::ThreadRef>>> = Arc::default();
    let inside = holder.clone();
    let new = crate::Builder::new("stillborn").prepare(Box::new(move || drop(inside))).expect("memory");
    let weak = Arc::downgrade(new.thread());
    *holder.lock().unwrap() = Some(new.thread().clone());
    drop(holder);
    drop(new);
    assert!(weak.upgrade().is_none());
}

#[test]
fn thread_preempted_after_its_death_does_not_run_again() {
    let ran_on = Arc::new(AtomicU32::new(0));
    let thread = {
        let ran_on = ran_on.clone();
        spawn("dying", move || {
            current().state.die();
            crate::dispatch::reschedule();
            ran_on.fetch_add(1, Ordering::Relaxed);
        })
    };
    eventually(|| thread.state() == RunState::Dead && Arc::strong_count(&thread) == 1);
    for _ in 0..10 {
        yield_now();
    }
    assert!(!thread.entity.is_queued(), "a dead thread waits for a processor");
    assert_eq!(ran_on.load(Ordering::Relaxed), 0);
}

#[test]
fn yield_lets_equals_take_turns() {
    let order = Arc::new(HostMutex::new(Vec::new()));
    let done = Arc::new(AtomicU32::new(0));
    for name in ["a", "b"] {
        let (order, done) = (order.clone(), done.clone());
        spawn(name, move || {
            for _ in 0..3 {
                order.lock().unwrap().push(name);
                yield_now();
            }
            done.fetch_add(1, Ordering::Relaxed);
        });
    }
    eventually(|| done.load(Ordering::Relaxed) == 2);
    assert_eq!(*order.lock().unwrap(), ["a", "b", "a", "b", "a", "b"]);
}

#[test]
fn real_time_runs_first_and_in_order_of_priority() {
    let order = Arc::new(HostMutex::new(Vec::new()));
    let done = Arc::new(Completion::new());
    let start = Arc::new(Completion::new());
    let threads: Vec<_> = [(0, Policy::Normal), (1, Policy::Fifo(1)), (50, Policy::Fifo(50))]
        .into_iter()
        .map(|(rank, policy)| {
            let (order, start, done) = (order.clone(), start.clone(), done.clone());
            let thread = spawn("ranked", move || {
                start.wait();
                order.lock().unwrap().push(rank);
                if order.lock().unwrap().len() == 3 {
                    done.complete();
                }
            });
            thread.set_policy(policy);
            thread
        })
        .collect();
    eventually(|| threads.iter().all(|thread| thread.state() != RunState::Running));
    {
        let _preemption = machine::preempt::disable();
        start.complete();
    }
    done.wait();
    assert_eq!(*order.lock().unwrap(), [50, 1, 0]);
}

#[test]
fn thread_that_is_lent_urgency_competes_with_it_and_keeps_its_own() {
    use crate::{Nice, Urgency};
    let order = Arc::new(HostMutex::new(Vec::new()));
    let done = Arc::new(Completion::new());
    let start = Arc::new(Completion::new());
    let threads: Vec<_> = [(0, Policy::Normal), (1, Policy::Normal), (2, Policy::Fifo(50))]
        .into_iter()
        .map(|(name, policy)| {
            let (order, start, done) = (order.clone(), start.clone(), done.clone());
            let thread = spawn("lent to", move || {
                start.wait();
                order.lock().unwrap().push(name);
                if order.lock().unwrap().len() == 3 {
                    done.complete();
                }
            });
            thread.set_policy(policy);
            thread
        })
        .collect();
    eventually(|| threads.iter().all(|thread| thread.state() != RunState::Running));
    let urgent = Urgency::of(Policy::Fifo(60), Nice::default());
    threads[1].lend(urgent);
    threads[1].set_nice(Nice::MAX);
    assert_eq!((threads[1].policy(), threads[1].nice()), (Policy::Normal, Nice::MAX));
    assert_eq!(threads[1].effective_policy(), Policy::Fifo(60));
    threads[0].lend(urgent);
    threads[0].lend(Urgency::LEAST);
    assert_eq!(threads[0].effective_policy(), Policy::Normal);
    {
        let _preemption = machine::preempt::disable();
        start.complete();
    }
    done.wait();
    assert_eq!(*order.lock().unwrap(), [1, 2, 0]);
}

#[test]
fn real_time_since_the_last_sleep_is_what_ran_since() {
    let done = Arc::new(Completion::new());
    let seen = Arc::new(HostMutex::new(Vec::new()));
    let thread = {
        let (done, seen) = (done.clone(), seen.clone());
        spawn("real time", move || {
            let look = |seen: &HostMutex<Vec<_>>| {
                seen.lock().unwrap().push(crate::current().realtime_since_sleep_ns())
            };
            look(&seen);
            crate::current().set_policy(Policy::Fifo(3));
            for _ in 0..2 {
                machine::hosted::advance(5_000_000);
                look(&seen);
            }
            crate::timer::sleep_until(machine::time::now_ns() + 1_000_000).unwrap();
            look(&seen);
            done.complete();
        })
    };
    done.wait();
    eventually(|| thread.state() == RunState::Dead);
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen[0], None, "it is a fair thread");
    assert!(seen[1] >= Some(5_000_000) && seen[2] >= Some(10_000_000), "{seen:?}");
    assert!(seen[3] < Some(5_000_000), "{seen:?}");
}

#[test]
fn weights_divide_virtual_time() {
    use crate::Nice;
    let stop = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = [0, 5]
        .into_iter()
        .map(|nice| {
            let stop = stop.clone();
            let thread = spawn("hog", move || {
                while stop.load(Ordering::Relaxed) == 0 {
                    machine::hosted::advance(100_000);
                }
            });
            thread.set_nice(Nice::clamped(nice));
            thread
        })
        .collect();
    // This thread sleeps for two seconds of the hogs' time.
    crate::timer::sleep_until(machine::time::now_ns() + 2_000_000_000).unwrap();
    stop.store(1, Ordering::Relaxed);
    let runtimes: Vec<_> = threads.iter().map(|thread| thread.runtime().total_ns as f64).collect();
    let ratio = runtimes[0] / runtimes[1];
    assert!((2.5..3.7).contains(&ratio), "1024 to 335 is 3.06, got {ratio}");
    eventually(|| threads.iter().all(|thread| thread.state() == RunState::Dead));
}

#[test]
fn preemption_counts_stay_balanced_across_switches() {
    let _machine = boot(3);
    let rounds = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicU32::new(0));
    let switches = Arc::new(AtomicU64::new(0));
    for _ in 0..8 {
        let (rounds, done, switches) = (rounds.clone(), done.clone(), switches.clone());
        spawn("switcher", move || {
            for _ in 0..200 {
                assert_eq!(machine::preempt::count(), 0);
                assert!(machine::interrupt::are_enabled());
                rounds.fetch_add(1, Ordering::Relaxed);
                yield_now();
            }
            switches.fetch_add(current().switches(), Ordering::Relaxed);
            done.fetch_add(1, Ordering::Relaxed);
        });
    }
    eventually(|| done.load(Ordering::Relaxed) == 8);
    assert_eq!(rounds.load(Ordering::Relaxed), 1600);
    assert!(switches.load(Ordering::Relaxed) > 0);
}

#[test]
fn control_block_is_small() {
    let bytes = size_of::<crate::Thread>() - size_of::<sync::classes::ThreadLocks>();
    assert!(bytes <= 384, "a sleeping thread costs {bytes} bytes besides its stack");
}

/// A thread for the second CPU of a machine that the test has booted, as soon as that CPU may get threads.
fn spawn_on_second(machine: &Machine) -> crate::ThreadRef {
    let builder = Builder { affinity: CpuSet::only(machine.cpu(1)), ..Builder::new("early") };
    crate::spawn(builder, Box::new(|| {})).expect("memory for a test's thread")
}

#[test]
fn thread_queued_before_its_cpu_starts_is_run() {
    static STEP: AtomicU32 = AtomicU32::new(0);
    fn wait_for(step: u32) {
        while STEP.load(Ordering::SeqCst) != step {
            std::thread::yield_now();
        }
    }
    // The number was another machine's: its last thread counts as running here, and who is queued behind that one gets a turn
    // later instead of an interrupt now.
    fn enter(_cpu: CpuId) {
        current();
        STEP.store(1, Ordering::SeqCst);
        wait_for(2);
        crate::enter_application_processor()
    }
    current();
    let machine = Machine::boot(2, enter);
    wait_for(1);
    let early = spawn_on_second(&machine);
    STEP.store(2, Ordering::SeqCst);
    eventually(|| early.state() == RunState::Dead);
}

#[test]
fn cpu_that_starts_has_no_requests_whose_interrupts_were_lost() {
    fn enter(cpu: CpuId) {
        Cpu::of(cpu).requests.store(REQUEST_RESCHEDULE, Ordering::SeqCst);
        crate::enter_application_processor()
    }
    current();
    let machine = Machine::boot(2, enter);
    // It halts: only an interrupt wakes it.
    eventually(|| crate::cpu::IDLE.contains(machine.cpu(1), Ordering::SeqCst));
    let thread = spawn_on_second(&machine);
    eventually(|| thread.state() == RunState::Dead);
}
