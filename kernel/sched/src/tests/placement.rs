//! Which CPU threads run on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use machine::cpu::{self, CpuSet};

use super::{boot, eventually, spawn};
use crate::{RunState, current, yield_now};

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
