//! Which CPU threads run on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use machine::cpu::{self, CpuId, CpuSet};
use machine::hosted::Machine;

use super::{boot, eventually, spawn};
use crate::{Builder, Policy, RunState, ThreadRef, current, yield_now};

#[test]
fn busy_threads_spread_over_all_cpus() {
    let machine = boot(4);
    let stop = Arc::new(AtomicU32::new(0));
    let used = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (stop, used) = (stop.clone(), used.clone());
            spawn("hog", move || {
                while stop.load(Ordering::Relaxed) == 0 {
                    used.fetch_or(1 << cpu::current().index(), Ordering::Relaxed);
                    machine::hosted::advance(10_000);
                    cpu::relax();
                }
            })
        })
        .collect();
    let all = machine.cpus();
    eventually(|| CpuSet::from_bits(used.load(Ordering::Relaxed)).count() >= all.count() - 1);
    stop.store(1, Ordering::Relaxed);
    eventually(|| threads.iter().all(|thread| thread.state() == RunState::Dead));
}

#[test]
fn affinity_is_honoured_before_it_returns() {
    let machine = boot(3);
    let stop = Arc::new(AtomicU32::new(0));
    let thread = {
        let stop = stop.clone();
        spawn("mover", move || {
            while stop.load(Ordering::Relaxed) == 0 {
                machine::hosted::advance(10_000);
                cpu::relax();
            }
        })
    };
    let others: Vec<_> = machine.cpus().iter().filter(|&cpu| cpu != cpu::current()).collect();
    for round in 0..50 {
        let target = others[round % others.len()];
        thread.set_affinity(CpuSet::only(target));
        assert_eq!(thread.cpu(), target, "round {round}");
    }
    stop.store(1, Ordering::Relaxed);
    eventually(|| thread.state() == RunState::Dead);
}

#[test]
fn a_bound_thread_obeys_its_affinity_when_the_bond_ends() {
    let machine = boot(3);
    let stage = Arc::new(AtomicU32::new(0));
    let thread = {
        let stage = stage.clone();
        spawn("bound", move || {
            let bond = current().bind();
            let here = cpu::current();
            stage.store(1, Ordering::Relaxed);
            while stage.load(Ordering::Relaxed) == 1 {
                yield_now();
                assert_eq!(cpu::current(), here, "it stays where it runs");
            }
            crate::timer::sleep_until(machine::time::now_ns() + 10_000).unwrap();
            assert_eq!(cpu::current(), here, "it wakes where it slept");
            drop(bond);
            drop(machine::preempt::disable());
            assert_ne!(cpu::current(), here, "it moves as soon as it may");
            stage.store(3, Ordering::Relaxed);
        })
    };
    eventually(|| stage.load(Ordering::Relaxed) == 1);
    let home = thread.cpu();
    let elsewhere = machine.cpus().iter().find(|&cpu| cpu != home).expect("the machine has three");
    thread.set_affinity(CpuSet::only(elsewhere));
    assert_eq!(thread.cpu(), home);
    stage.store(2, Ordering::Relaxed);
    eventually(|| {
        machine::hosted::advance(10_000);
        stage.load(Ordering::Relaxed) == 3
    });
    assert_eq!(thread.cpu(), elsewhere);
}

#[test]
fn thread_can_move_itself() {
    let machine = boot(3);
    let done = Arc::new(AtomicU32::new(0));
    let cpus = machine.cpus();
    {
        let done = done.clone();
        spawn("mover", move || {
            for _ in 0..20 {
                for target in cpus.iter() {
                    current().set_affinity(CpuSet::only(target));
                    assert_eq!(cpu::current(), target);
                }
            }
            done.store(1, Ordering::Relaxed);
        });
    }
    eventually(|| done.load(Ordering::Relaxed) == 1);
}

#[test]
fn migration_under_wake_ups_loses_nobody() {
    let machine = boot(3);
    let cpus: Vec<_> = machine.cpus().iter().collect();
    let rounds = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..4_u64)
        .map(|number| {
            let rounds = rounds.clone();
            spawn("napper", move || {
                for round in 0..100 {
                    crate::timer::sleep_until(machine::time::now_ns() + 1_000 * (number + round % 7))
                        .unwrap();
                    rounds.fetch_add(1, Ordering::Relaxed);
                    yield_now();
                }
            })
        })
        .collect();
    for round in 0..200 {
        let thread = &threads[round % threads.len()];
        thread.set_affinity(CpuSet::only(cpus[(round / 3) % cpus.len()]));
        yield_now();
    }
    for thread in &threads {
        thread.set_affinity(CpuSet::ALL);
    }
    eventually(|| {
        crate::timer::sleep_until(machine::time::now_ns() + 10_000).unwrap();
        threads.iter().all(|thread| thread.state() == RunState::Dead)
    });
    assert_eq!(rounds.load(Ordering::Relaxed), 400);
}

/// A thread that runs until the flag is set, at first on the calling thread's CPU only. Virtual time passes while it runs if `ticking`.
fn hog(stop: &Arc<AtomicU32>, policy: Policy, cpu: CpuId, ticking: bool) -> ThreadRef {
    let stop = stop.clone();
    let builder = Builder { affinity: CpuSet::only(cpu), policy, ..Builder::new("hog") };
    let body = move || {
        while stop.load(Ordering::Relaxed) == 0 {
            if ticking {
                machine::hosted::advance(10_000);
                // Virtual time is not to run away from CPUs whose host threads the host lets wait.
                std::thread::sleep(Duration::from_micros(50));
            }
            cpu::relax();
        }
    };
    crate::spawn(builder, Box::new(body)).expect("memory for a test's thread")
}

/// The CPUs of the machine that are not this one.
fn others(machine: &Machine) -> Vec<CpuId> {
    machine.cpus().iter().filter(|&cpu| cpu != cpu::current()).collect()
}

fn is_idle(cpu: CpuId) -> bool {
    crate::cpu::IDLE.contains(cpu, Ordering::SeqCst)
}

/// Sleeps in short pieces, as a thread does that keeps its CPU's others from finishing a slice, until the condition holds. Returns
/// whether it came to hold within so much virtual time.
fn within(limit_ns: u64, mut condition: impl FnMut() -> bool) -> bool {
    let start_ns = machine::time::now_ns();
    while !condition() {
        let now_ns = machine::time::now_ns();
        if now_ns - start_ns >= limit_ns {
            return false;
        }
        crate::timer::sleep_until(now_ns + 200_000).unwrap();
    }
    true
}

/// Ends hogs. Time goes on for it: a real-time one that has had its part of the period runs in the next one, and a CPU that idles and did not
/// come to a thread of another one is given it when that one balances.
fn end(stop: &AtomicU32, threads: &[ThreadRef]) {
    stop.store(1, Ordering::Relaxed);
    eventually(|| {
        machine::hosted::advance(100_000);
        threads.iter().all(|thread| thread.state() == RunState::Dead)
    });
}

const SPREAD_LIMIT_NS: u64 = 10_000_000;

#[test]
fn waiting_thread_goes_to_an_idle_cpu_when_it_may() {
    let machine = boot(2);
    let (here, other) = (cpu::current(), others(&machine)[0]);
    let stop = Arc::new(AtomicU32::new(0));
    let hog = hog(&stop, Policy::Normal, here, true);
    // The other CPU has threads of its own, which may wake up just then: one undisturbed try is enough.
    let went = (0..10).any(|_| {
        hog.set_affinity(CpuSet::only(here));
        eventually(|| is_idle(other));
        hog.set_affinity(CpuSet::ALL);
        hog.cpu() == other
    });
    end(&stop, &[hog]);
    assert!(went);
}

#[test]
fn frequent_waker_does_not_keep_others_from_spreading() {
    let machine = boot(2);
    let (here, other) = (cpu::current(), others(&machine)[0]);
    let stop = Arc::new(AtomicU32::new(0));
    let mut threads = vec![hog(&stop, Policy::Normal, other, false)];
    eventually(|| !is_idle(other) && crate::cpu::Cpu::of(other).running.load(Ordering::Relaxed) == 1);
    threads.extend((0..3).map(|_| hog(&stop, Policy::Normal, here, true)));
    for thread in &threads[1..] {
        thread.set_affinity(CpuSet::ALL);
    }
    let spread = within(SPREAD_LIMIT_NS, || threads[1..].iter().any(|thread| thread.cpu() == other));
    end(&stop, &threads);
    assert!(spread);
}

#[test]
fn thread_is_pushed_where_it_may_be_though_another_cpu_has_fewer() {
    let machine = boot(3);
    let (here, cpus) = (cpu::current(), others(&machine));
    let stop = Arc::new(AtomicU32::new(0));
    let mut threads = vec![hog(&stop, Policy::Normal, cpus[1], false)];
    eventually(|| crate::cpu::Cpu::of(cpus[1]).running.load(Ordering::Relaxed) == 1);
    threads.extend((0..3).map(|_| hog(&stop, Policy::Normal, here, true)));
    threads[1].set_affinity(CpuSet::from_bits(1 << here.index() | 1 << cpus[1].index()));
    let pushed = within(SPREAD_LIMIT_NS, || threads[1].cpu() == cpus[1]);
    end(&stop, &threads);
    assert!(pushed);
}

#[test]
fn fair_threads_leave_a_real_time_hog_and_real_time_threads_each_other() {
    let machine = boot(2);
    let (here, other) = (cpu::current(), others(&machine)[0]);
    let stop = Arc::new(AtomicU32::new(0));
    let mut threads = vec![hog(&stop, Policy::Fifo(10), other, true)];
    eventually(|| crate::cpu::Cpu::of(other).rank() > 2);
    threads.push(hog(&stop, Policy::Normal, other, true));
    threads[1].set_affinity(CpuSet::ALL);
    let fair_left = within(SPREAD_LIMIT_NS, || threads[1].cpu() == here);
    // The more urgent one makes the other leave; it runs here at once, instead of the fair ones.
    threads[0].set_affinity(CpuSet::ALL);
    threads.push(hog(&stop, Policy::Fifo(20), other, true));
    let less_urgent_left = within(SPREAD_LIMIT_NS, || threads[0].cpu() == here && threads[2].cpu() == other);
    end(&stop, &threads);
    assert!(fair_left && less_urgent_left, "{fair_left} {less_urgent_left}");
}

/// Two threads wake each other in turns on the CPUs of the set; returns whether they shared one in the end. Between its wake-up of
/// the other and its sleep each lets so much virtual time pass.
fn turns_end_on_one_cpu(cpus: CpuSet, busy_ns: u64) -> bool {
    const ROUNDS: u32 = 100;
    let turn = Arc::new((AtomicU32::new(0), [crate::WaitQueue::new(), crate::WaitQueue::new()]));
    let shared = Arc::new(AtomicU32::new(0));
    let last = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..2)
        .map(|side| {
            let (turn, shared, last) = (turn.clone(), shared.clone(), last.clone());
            let body = move || {
                for round in 0..ROUNDS {
                    let (count, queues) = &*turn;
                    queues[side]
                        .wait_until_exclusive(|| count.load(Ordering::Acquire) == 2 * round + side as u32);
                    let here = cpu::current().index() as u32;
                    let before = last.swap(here, Ordering::Relaxed);
                    shared.store(u32::from(before == here), Ordering::Relaxed);
                    count.fetch_add(1, Ordering::Release);
                    queues[1 - side].wake_one();
                    machine::hosted::advance(busy_ns);
                }
            };
            let builder = Builder { affinity: cpus, ..Builder::new("turns") };
            crate::spawn(builder, Box::new(body)).expect("memory for a test's thread")
        })
        .collect();
    eventually(|| threads.iter().all(|thread| thread.state() == RunState::Dead));
    shared.load(Ordering::Relaxed) == 1
}

#[test]
fn threads_that_take_turns_come_to_share_a_cpu() {
    let machine = boot(3);
    let cpus = others(&machine).into_iter().map(CpuSet::only).fold(CpuSet::EMPTY, CpuSet::union);
    // The host may stop a CPU between a wake-up and a sleep, which makes it look busy: one undisturbed try is enough.
    assert!((0..10).any(|_| turns_end_on_one_cpu(cpus, 1_000)));
}

/// What is known of a CPU's queue: threads, their crowd and their weights.
fn books(of: CpuId) -> (u32, u32, u64) {
    let queue = crate::cpu::Cpu::of(of).queue.lock();
    (queue.count(), queue.crowd(), queue.load())
}

/// A thread sleeps on this CPU; another CPU wakes it there while this one calls `change`, which calls what it is given with what it
/// locks locked. Returns whether the thread was gone from under the locks then, and its policy and CPU (the other one) afterwards.
fn woken_elsewhere_during(change: impl FnOnce(&ThreadRef, &mut dyn FnMut())) -> (bool, Policy, bool) {
    /// Looks at a waker that has to wait, before it is believed to.
    const LOOKS: usize = 1_000;
    let machine = boot(2);
    let (here, other) = (cpu::current(), others(&machine)[0]);
    let stop = Arc::new(AtomicU32::new(0));
    let begin = Arc::new(AtomicU32::new(0));
    eventually(|| books(here).0 == 1);
    let (books_here, books_there) = (books(here), (0, 0, 0));
    let sleeper = {
        let (begin, stop) = (begin.clone(), stop.clone());
        let body = move || {
            crate::WaitQueue::new().wait_until(|| begin.load(Ordering::Acquire) == 1);
            while stop.load(Ordering::Relaxed) == 0 {
                cpu::relax();
            }
        };
        let builder = Builder { affinity: CpuSet::only(here), ..Builder::new("sleeper") };
        crate::spawn(builder, Box::new(body)).expect("memory for a test's thread")
    };
    eventually(|| sleeper.state() == RunState::Uninterruptible);
    sleeper.set_affinity(CpuSet::ALL);
    // It goes on running, and is more urgent: the sleeper stays in that CPU's queue.
    let waker = {
        let (begin, stop, sleeper) = (begin.clone(), stop.clone(), sleeper.clone());
        let body = move || {
            while begin.load(Ordering::Acquire) == 0 {
                cpu::relax();
            }
            let mode = crate::placement::WakeMode { synchronous: true, ..Default::default() };
            assert!(crate::placement::wake(&sleeper, mode));
            while stop.load(Ordering::Relaxed) == 0 {
                cpu::relax();
            }
        };
        let builder =
            Builder { affinity: CpuSet::only(other), policy: Policy::Fifo(10), ..Builder::new("waker") };
        crate::spawn(builder, Box::new(body)).expect("memory for a test's thread")
    };
    eventually(|| crate::cpu::Cpu::of(other).running.load(Ordering::Relaxed) == 1);
    let mut gone = false;
    change(&sleeper, &mut || {
        begin.store(1, Ordering::Release);
        while sleeper.state() != RunState::Running {
            cpu::relax();
        }
        gone = (0..LOOKS).any(|_| {
            std::thread::sleep(Duration::from_micros(50));
            sleeper.cpu() != here || sleeper.entity.is_queued()
        });
    });
    eventually(|| sleeper.entity.is_queued());
    let (policy, went) = (sleeper.policy(), sleeper.cpu() == other);
    let threads = [sleeper, waker];
    assert_eq!(books(other).0, 2);
    end(&stop, &threads);
    eventually(|| books(here).0 == 1 && books(other).0 == 0);
    assert_eq!((books(here), books(other)), (books_here, books_there));
    (gone, policy, went)
}

#[test]
fn thread_that_is_woken_elsewhere_has_its_policy_changed_first() {
    let outcome = woken_elsewhere_during(|thread, meanwhile| {
        crate::balance::change_entity(thread, |entity| {
            meanwhile();
            // One that is in another queue by now would be lost to it.
            if !entity.is_queued() {
                entity.set_policy(Policy::Fifo(1), entity.nice());
            }
        });
    });
    assert_eq!(outcome, (false, Policy::Fifo(1), true));
}

#[test]
fn thread_that_is_woken_elsewhere_is_not_taken_from_the_queue_that_it_was_in() {
    let mut waits = false;
    let outcome = woken_elsewhere_during(|thread, meanwhile| {
        crate::balance::with_queue_of(thread, |_, _| {
            meanwhile();
            waits = thread.entity.is_queued();
        });
    });
    assert_eq!((outcome, waits), ((false, Policy::Normal, true), false));
}
