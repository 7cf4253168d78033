//! Sleeping locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{boot, eventually, spawn};
use crate::{Interrupted, Mutex, RunState, RwLock, yield_now};

#[test]
fn mutex_excludes_across_sleeps() {
    let _machine = boot(3);
    let mutex = Arc::new(Mutex::new(0_u32));
    let done = Arc::new(AtomicU32::new(0));
    for _ in 0..6 {
        let (mutex, done) = (mutex.clone(), done.clone());
        spawn("adder", move || {
            for _ in 0..300 {
                let mut value = mutex.lock();
                let seen = *value;
                if seen % 16 == 0 {
                    yield_now();
                }
                *value = seen + 1;
            }
            done.fetch_add(1, Ordering::Relaxed);
        });
    }
    eventually(|| done.load(Ordering::Relaxed) == 6);
    assert_eq!(*mutex.lock(), 1_800);
}

#[test]
fn starving_waiter_gets_the_lock_handed_over() {
    let mutex = Arc::new(Mutex::new(()));
    let guard = mutex.lock();
    let got = Arc::new(AtomicU32::new(0));
    let waiter = {
        let (mutex, got) = (mutex.clone(), got.clone());
        spawn("waiter", move || {
            let _guard = mutex.lock();
            got.store(1, Ordering::Relaxed);
        })
    };
    eventually(|| waiter.state() == RunState::Uninterruptible);
    drop(guard);
    // Re-taken before the waiter runs; it wakes in vain and asks for a hand-over.
    let guard = mutex.lock();
    yield_now();
    assert_eq!(got.load(Ordering::Relaxed), 0);
    eventually(|| waiter.state() == RunState::Uninterruptible);
    drop(guard);
    assert!(mutex.try_lock().is_none(), "the lock was handed over, not freed");
    eventually(|| got.load(Ordering::Relaxed) == 1);
    eventually(|| !mutex.is_locked());
}

#[test]
fn a_machine_that_wakes_a_thread_of_another_one_leaves_it_there() {
    let mutex = Arc::new(Mutex::new(()));
    let (tell, told) = std::sync::mpsc::channel();
    let (finish, finished) = std::sync::mpsc::channel();
    let guard = mutex.lock();
    let waiting = {
        let mutex = mutex.clone();
        std::thread::spawn(move || {
            tell.send(crate::current().to_ref()).unwrap();
            drop(mutex.lock());
            finish.send(machine::cpu::current()).unwrap();
        })
    };
    let waiter = told.recv().unwrap();
    let home = waiter.cpu();
    eventually(|| waiter.state() == RunState::Uninterruptible);
    drop(guard);
    // This host thread does nothing for the other any more.
    let ran_on =
        finished.recv_timeout(std::time::Duration::from_secs(60)).expect("the waiter runs by itself");
    assert_eq!(ran_on, home);
    waiting.join().unwrap();
}

#[test]
fn interrupted_lock_leaves_the_mutex_usable() {
    let mutex = Arc::new(Mutex::new(()));
    let guard = mutex.lock();
    let outcome = Arc::new(std::sync::Mutex::new(None));
    let waiter = {
        let (mutex, outcome) = (mutex.clone(), outcome.clone());
        spawn("waiter", move || {
            *outcome.lock().unwrap() = Some(mutex.lock_interruptible().map(drop));
        })
    };
    eventually(|| waiter.state() == RunState::Sleeping);
    waiter.set_attention(true);
    eventually(|| waiter.state() == RunState::Dead);
    assert_eq!(*outcome.lock().unwrap(), Some(Err(Interrupted)));
    drop(guard);
    assert!(mutex.try_lock().is_some());
}

#[test]
fn rw_lock_keeps_pairs_equal() {
    let _machine = boot(3);
    let lock = Arc::new(RwLock::new((0_u32, 0_u32)));
    let done = Arc::new(AtomicU32::new(0));
    for number in 0..6 {
        let (lock, done) = (lock.clone(), done.clone());
        spawn("user", move || {
            for round in 0..200 {
                if number < 2 {
                    let mut pair = lock.write();
                    pair.0 += 1;
                    if round % 8 == 0 {
                        yield_now();
                    }
                    pair.1 += 1;
                } else {
                    let pair = lock.read();
                    assert_eq!(pair.0, pair.1);
                    if round % 8 == 0 {
                        yield_now();
                    }
                    assert_eq!(pair.0, pair.1);
                }
            }
            done.fetch_add(1, Ordering::Relaxed);
        });
    }
    eventually(|| done.load(Ordering::Relaxed) == 6);
    assert_eq!(*lock.read(), (400, 400));
}
