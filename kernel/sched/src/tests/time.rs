//! Timers, softirqs, work.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex as HostMutex};

use machine::hosted::advance;
use machine::time::now_ns;

use super::{eventually, spawn};
use crate::Completion;
use crate::softirq::{self, Softirq};
use crate::timer::{self, Timer};
use crate::work::Work;

#[test]
fn sleep_takes_as_long_as_asked() {
    for nanoseconds in [1, 100_000, 3_000_000_000] {
        let start = now_ns();
        timer::sleep_until(start + nanoseconds).unwrap();
        assert_eq!(now_ns() - start, nanoseconds, "virtual time jumps to the deadline");
    }
}

#[test]
fn sleepers_wake_in_order_of_their_deadlines() {
    let order = Arc::new(HostMutex::new(Vec::new()));
    let start = now_ns();
    for delay in [30, 10, 20, 10] {
        let order = order.clone();
        spawn("sleeper", move || {
            timer::sleep_until(start + delay * 1_000_000).unwrap();
            order.lock().unwrap().push(delay);
        });
    }
    eventually(|| {
        timer::sleep_until(now_ns() + 1_000_000).unwrap();
        order.lock().unwrap().len() == 4
    });
    assert_eq!(*order.lock().unwrap(), [10, 10, 20, 30]);
}

#[test]
fn timer_calls_once_and_can_be_cancelled_or_moved() {
    crate::current();
    let calls = Arc::new(AtomicU32::new(0));
    let timer = {
        let calls = calls.clone();
        Timer::new(Box::new(move || {
            calls.fetch_add(1, Ordering::Relaxed);
        }))
        .unwrap()
    };
    timer.arm(now_ns() + 1_000);
    timer.arm(now_ns() + 5_000);
    advance(2_000);
    assert_eq!(calls.load(Ordering::Relaxed), 0, "it was moved");
    advance(4_000);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(timer.expiry_ns(), None);
    timer.arm(now_ns() + 1_000);
    assert!(timer.cancel());
    assert!(!timer.cancel());
    advance(2_000);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(Arc::strong_count(&timer), 1);
}

#[test]
fn softirq_waits_for_the_end_of_the_atomic_section() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    crate::current();
    softirq::register(Softirq::Tasklet, || {
        assert!(machine::preempt::count() > 0 && machine::interrupt::are_enabled());
        RUNS.fetch_add(1, Ordering::Relaxed);
    });
    let section = machine::preempt::disable();
    softirq::raise(Softirq::Tasklet);
    assert_eq!(RUNS.load(Ordering::Relaxed), 0);
    drop(section);
    assert_eq!(RUNS.load(Ordering::Relaxed), 1);
    softirq::raise(Softirq::Tasklet);
    assert_eq!(RUNS.load(Ordering::Relaxed), 2, "outside of a section it runs at once");
}

#[test]
fn endless_softirq_leaves_the_cpu_to_threads() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    static STOP: AtomicU32 = AtomicU32::new(0);
    crate::current();
    softirq::register(Softirq::NetworkReceive, || {
        advance(10_000);
        RUNS.fetch_add(1, Ordering::Relaxed);
        if STOP.load(Ordering::Relaxed) == 0 {
            softirq::raise(Softirq::NetworkReceive);
        }
    });
    softirq::raise(Softirq::NetworkReceive);
    // We are here: the flood went to its thread.
    let before = RUNS.load(Ordering::Relaxed);
    assert!(before <= 500);
    eventually(|| RUNS.load(Ordering::Relaxed) > before + 20);
    STOP.store(1, Ordering::Relaxed);
    eventually(softirq::is_quiet);
}

fn do_soon(action: Box<dyn FnOnce() + Send>) {
    Work::prepare(|action: Box<dyn FnOnce() + Send>| action()).expect("memory").queue(action);
}

#[test]
fn work_that_sleeps_does_not_hold_up_other_work() {
    crate::current();
    let gate = Arc::new(Completion::new());
    let done = Arc::new(AtomicU32::new(0));
    {
        let (gate, done) = (gate.clone(), done.clone());
        do_soon(Box::new(move || {
            gate.wait();
            done.fetch_add(1, Ordering::Relaxed);
        }));
    }
    for _ in 0..3 {
        let (gate, done) = (gate.clone(), done.clone());
        do_soon(Box::new(move || {
            if done.fetch_add(1, Ordering::Relaxed) == 2 {
                gate.complete();
            }
        }));
    }
    eventually(|| done.load(Ordering::Relaxed) == 4);
}

#[test]
fn work_that_sleeps_does_not_hold_up_what_comes_later() {
    crate::current();
    let gate = Arc::new(Completion::new());
    let (begun, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    {
        let (gate, begun, done) = (gate.clone(), begun.clone(), done.clone());
        do_soon(Box::new(move || {
            begun.store(1, Ordering::Relaxed);
            gate.wait();
            done.fetch_add(1, Ordering::Relaxed);
        }));
    }
    eventually(|| begun.load(Ordering::Relaxed) == 1);
    do_soon(Box::new(move || gate.complete()));
    eventually(|| done.load(Ordering::Relaxed) == 1);
}

#[test]
fn rcu_callbacks_run_and_synchronize_returns() {
    crate::current();
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    sync::rcu::call(Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    sync::rcu::synchronize();
    eventually(|| {
        timer::sleep_until(now_ns() + 3_000_000).unwrap();
        runs.load(Ordering::Relaxed) == 1
    });
}
