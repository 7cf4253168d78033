//! Threads with reservations among others.

use std::sync::{Arc, Mutex as HostMutex};

use machine::hosted::advance;
use machine::time::now_ns;

use super::{boot, eventually, spawn};
use crate::{
    Completion, NoTimeLeft, Policy, Reservation, RunState, current, timer, wait_for_period, yield_now,
};

const MS: u64 = 1_000_000;

fn terms(runtime: u64, deadline: u64, period: u64) -> Reservation {
    Reservation::new(runtime, deadline, period).expect("terms in range")
}

#[test]
fn earliest_deadline_comes_first_and_before_all_priorities() {
    let order = Arc::new(HostMutex::new(Vec::new()));
    let (start, done) = (Arc::new(Completion::new()), Arc::new(Completion::new()));
    let threads: Vec<_> = [("late", Some(90)), ("early", Some(20)), ("urgent", None), ("middle", Some(50))]
        .into_iter()
        .map(|(name, deadline)| {
            let (order, start, done) = (order.clone(), start.clone(), done.clone());
            let thread = spawn(name, move || {
                start.wait();
                order.lock().unwrap().push(name);
                if order.lock().unwrap().len() == 4 {
                    done.complete();
                }
            });
            match deadline {
                Some(deadline) => thread.reserve(terms(MS, deadline * MS, 100 * MS)).unwrap(),
                None => thread.set_policy(Policy::Fifo(99)),
            }
            thread
        })
        .collect();
    eventually(|| threads.iter().all(|thread| thread.state() != RunState::Running));
    {
        let _preemption = machine::preempt::disable();
        start.complete();
    }
    done.wait();
    assert_eq!(*order.lock().unwrap(), ["early", "middle", "late", "urgent"]);
    threads.iter().for_each(|thread| thread.set_policy(Policy::Normal));
}

#[test]
fn who_has_used_up_its_time_waits_for_its_next_period_and_another_one_runs() {
    let seen = Arc::new(HostMutex::new(Vec::new()));
    let done = Arc::new(Completion::new());
    {
        let (seen, done) = (seen.clone(), done.clone());
        spawn("hog", move || {
            let thread = current();
            thread.reserve(terms(2 * MS, 10 * MS, 10 * MS)).unwrap();
            let begin = now_ns();
            for _ in 0..4 {
                advance(2 * MS);
                assert!(thread.must_look(), "it is told to look");
                thread.set_attention(false);
                assert!(wait_for_period());
                seen.lock().unwrap().push((now_ns() - begin) / MS);
            }
            thread.set_policy(Policy::Normal);
            done.complete();
        });
    }
    done.wait();
    assert_eq!(*seen.lock().unwrap(), [10, 20, 30, 40]);
}

#[test]
fn yielding_ends_the_period_for_who_has_a_reservation() {
    let done = Arc::new(Completion::new());
    {
        let done = done.clone();
        spawn("cyclic", move || {
            let thread = current();
            thread.reserve(terms(5 * MS, 10 * MS, 10 * MS)).unwrap();
            let begin = now_ns();
            for round in 1..=3 {
                advance(MS);
                yield_now();
                assert!(thread.must_look());
                thread.set_attention(false);
                assert!(wait_for_period());
                assert_eq!(now_ns() - begin, round * 10 * MS);
            }
            thread.set_policy(Policy::Normal);
            assert!(wait_for_period(), "who has none does not wait");
            done.complete();
        });
    }
    done.wait();
}

#[test]
fn who_sleeps_between_its_activations_is_never_held_back() {
    let done = Arc::new(Completion::new());
    {
        let done = done.clone();
        spawn("cyclic", move || {
            let thread = current();
            let begin = now_ns();
            thread.reserve(terms(3 * MS, 5 * MS, 10 * MS)).unwrap();
            for round in 1..20 {
                advance(2 * MS);
                assert!(!thread.must_look());
                timer::sleep_until(begin + round * 10 * MS).unwrap();
                assert_eq!(now_ns() - begin, round * 10 * MS);
            }
            thread.set_policy(Policy::Normal);
            done.complete();
        });
    }
    done.wait();
}

#[test]
fn no_more_is_reserved_than_there_is() {
    let machine = boot(2);
    let release = Arc::new(Completion::new());
    let threads: Vec<_> = (0..5)
        .map(|_| {
            let release = release.clone();
            spawn("reserving", move || release.wait())
        })
        .collect();
    let half = terms(5 * MS, 10 * MS, 10 * MS);
    for thread in &threads[..3] {
        assert_eq!(thread.reserve(half), Ok(()));
    }
    assert_eq!(threads[3].reserve(half), Err(NoTimeLeft), "of two processors 190 % are given away");
    assert_eq!(threads[3].reservation(), None);
    assert_eq!(threads[3].reserve(terms(3 * MS, 10 * MS, 10 * MS)), Ok(()));
    assert_eq!(threads[0].reserve(terms(9 * MS, 10 * MS, 10 * MS)), Err(NoTimeLeft));
    assert_eq!(threads[0].reservation(), Some(half), "it keeps what it had");
    assert_eq!(threads[0].reserve(terms(4 * MS, 10 * MS, 10 * MS)), Ok(()));
    assert_eq!(threads[4].reserve(terms(MS, 10 * MS, 10 * MS)), Ok(()));
    threads.iter().for_each(|thread| thread.set_policy(Policy::Fifo(1)));
    for thread in &threads[..3] {
        assert_eq!(thread.reserve(half), Ok(()), "what was given back can be had again");
    }
    threads.iter().for_each(|thread| thread.set_policy(Policy::Normal));
    release.complete();
    eventually(|| threads.iter().all(|thread| thread.state() == RunState::Dead));
    drop(machine);
}
