//! Sleeping and waking.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use machine::cpu::{self, CpuSet};

use super::{boot, eventually, spawn};
use crate::{Builder, Completion, Interrupted, RunState, WaitError, WaitQueue, WakeBatch, current, timer};

#[derive(Default)]
struct Gate {
    open: AtomicBool,
    queue: WaitQueue,
}

#[test]
fn attention_ends_interruptible_waits_only() {
    let gate = Arc::new(Gate::default());
    let outcome = Arc::new(std::sync::Mutex::new(None));
    let sleeper = {
        let (gate, outcome) = (gate.clone(), outcome.clone());
        spawn("sleeper", move || {
            let result = gate.queue.wait_interruptible(|| gate.open.load(Ordering::Relaxed));
            *outcome.lock().unwrap() = Some(result);
            gate.queue.wait_until(|| gate.open.load(Ordering::Relaxed));
        })
    };
    eventually(|| sleeper.state() == RunState::Sleeping);
    sleeper.set_attention(true);
    eventually(|| sleeper.state() == RunState::Uninterruptible);
    assert_eq!(*outcome.lock().unwrap(), Some(Err(Interrupted)));
    sleeper.set_attention(true);
    assert_eq!(sleeper.state(), RunState::Uninterruptible);
    gate.open.store(true, Ordering::Relaxed);
    gate.queue.wake_all();
    eventually(|| sleeper.state() == RunState::Dead);
    assert!(gate.queue.is_empty());
}

#[test]
fn wake_one_wakes_one_exclusive_waiter_in_order() {
    let queue = Arc::new(WaitQueue::new());
    let tokens = Arc::new(AtomicU32::new(0));
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sleepers: Vec<_> = (0..3)
        .map(|number| {
            let (queue, tokens, order) = (queue.clone(), tokens.clone(), order.clone());
            let thread = spawn("exclusive", move || {
                queue.wait_until_exclusive(|| {
                    tokens
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1))
                        .is_ok()
                });
                order.lock().unwrap().push(number);
            });
            eventually(|| thread.state() == RunState::Uninterruptible);
            thread
        })
        .collect();
    for number in 0..3 {
        tokens.fetch_add(1, Ordering::Relaxed);
        queue.wake_one();
        eventually(|| order.lock().unwrap().len() == number + 1);
        let asleep = sleepers.iter().filter(|thread| thread.state() == RunState::Uninterruptible).count();
        assert_eq!(asleep, 2 - number);
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
}

#[test]
fn interrupted_exclusive_waiter_passes_its_wake_up_on() {
    let queue = Arc::new(WaitQueue::new());
    let open = Arc::new(AtomicBool::new(false));
    let first = {
        let (queue, open) = (queue.clone(), open.clone());
        spawn("first", move || {
            let outcome = queue.wait_interruptible_exclusive(|| {
                if current().attention() {
                    // The event comes right after this check of the condition, and chooses this thread.
                    open.store(true, Ordering::Relaxed);
                    queue.wake_one();
                }
                false
            });
            assert_eq!(outcome, Err(Interrupted));
        })
    };
    eventually(|| first.state() == RunState::Sleeping);
    let second = {
        let (queue, open) = (queue.clone(), open.clone());
        spawn("second", move || queue.wait_until_exclusive(|| open.load(Ordering::Relaxed)))
    };
    eventually(|| second.state() == RunState::Uninterruptible);
    first.set_attention(true);
    eventually(|| second.state() == RunState::Dead);
}

#[test]
fn deadline_ends_a_wait() {
    let queue = WaitQueue::new();
    let start = machine::time::now_ns();
    let outcome = queue.wait_interruptible_deadline(|| false, Some(start + 5_000_000));
    assert_eq!(outcome, Err(WaitError::TimedOut));
    assert!(machine::time::now_ns() >= start + 5_000_000);
    assert!(queue.is_empty());
    assert!(queue.wait_until_deadline(|| true, start));
}

#[test]
fn pending_attention_prevents_sleep() {
    let thread = current();
    thread.set_attention(true);
    assert_eq!(timer::sleep_until(u64::MAX), Err(Interrupted));
    thread.set_attention(false);
}

#[test]
fn pollers_are_called_until_they_leave() {
    struct Count(AtomicU32);
    impl crate::Waker for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let queue = WaitQueue::new();
    let count = Arc::new(Count(AtomicU32::new(0)));
    let registrations: Vec<_> = (0..10).map(|_| queue.register(count.clone())).collect();
    queue.wake_one();
    assert_eq!(count.0.load(Ordering::Relaxed), 10);
    drop(registrations);
    queue.wake_all();
    assert_eq!(count.0.load(Ordering::Relaxed), 10);
    assert!(queue.is_empty());
}

#[test]
fn no_wake_up_is_lost_between_cpus() {
    let _machine = boot(2);
    let ping = Arc::new((AtomicU32::new(0), WaitQueue::new()));
    let done = Arc::new(Completion::new());
    const ROUNDS: u32 = 3_000;
    for side in 0..2 {
        let (ping, done) = (ping.clone(), done.clone());
        spawn("pingpong", move || {
            for round in 0..ROUNDS {
                let turn = round * 2 + side;
                ping.1.wait_until(|| ping.0.load(Ordering::SeqCst) == turn);
                // A delay swept against the other side's path shifts the races (specs/fiasco-mp.md §N46).
                for _ in 0..round % 64 {
                    std::hint::spin_loop();
                }
                ping.0.store(turn + 1, Ordering::SeqCst);
                ping.1.wake_all();
            }
            if side == 1 {
                done.complete();
            }
        });
    }
    done.wait();
    assert_eq!(ping.0.load(Ordering::SeqCst), 2 * ROUNDS);
}

#[test]
fn many_wakers_and_sleepers_agree() {
    let _machine = boot(4);
    let tokens = Arc::new(AtomicU32::new(0));
    let queue = Arc::new(WaitQueue::new());
    let taken = Arc::new(AtomicU32::new(0));
    for _ in 0..4 {
        let (tokens, queue, taken) = (tokens.clone(), queue.clone(), taken.clone());
        spawn("taker", move || {
            for _ in 0..500 {
                queue.wait_until_exclusive(|| {
                    tokens
                        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1))
                        .is_ok()
                });
                taken.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    for _ in 0..2 {
        let (tokens, queue) = (tokens.clone(), queue.clone());
        spawn("giver", move || {
            for _ in 0..1_000 {
                tokens.fetch_add(1, Ordering::SeqCst);
                queue.wake_one();
            }
        });
    }
    eventually(|| taken.load(Ordering::SeqCst) == 2_000);
    assert_eq!(tokens.load(Ordering::SeqCst), 0);
}

#[test]
fn batched_wake_ups_reach_other_cpus_at_the_end_of_the_outermost_batch() {
    let machine = boot(2);
    let other = machine.cpus().iter().find(|&cpu| cpu != cpu::current()).expect("two CPUs");
    let wanted = Arc::new((AtomicU32::new(0), WaitQueue::new()));
    let seen = Arc::new(AtomicU32::new(0));
    let sleeper = {
        let (wanted, seen) = (wanted.clone(), seen.clone());
        let body = move || {
            wanted.1.wait_until(|| wanted.0.load(Ordering::Acquire) == 1);
            seen.store(1, Ordering::Release);
        };
        let builder = Builder { affinity: CpuSet::only(other), ..Builder::new("sleeper") };
        crate::spawn(builder, Box::new(body)).expect("memory for a test's thread")
    };
    eventually(|| sleeper.state() != RunState::Running && crate::cpu::IDLE.contains(other, Ordering::SeqCst));
    {
        let _outer = WakeBatch::begin();
        wanted.0.store(1, Ordering::Release);
        wanted.1.wake_all();
        assert_eq!(
            crate::cpu::Cpu::this().deferred_cpus(),
            CpuSet::only(other),
            "an inner batch sends nothing"
        );
    }
    assert!(crate::cpu::Cpu::of(cpu::current()).deferred_cpus().is_empty());
    eventually(|| seen.load(Ordering::Acquire) == 1);
}
