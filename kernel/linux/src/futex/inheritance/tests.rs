//! The graph against a plain model: threads and locks at random, every invariant after every step.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use proptest::prelude::*;
use sched::{Nice, Policy, Urgency};

use super::graph::{CHAIN_MAX, Graph, LockKey, Party, Refusal};
use super::word::{OWNER_DIED, WAITERS, Word};
use crate::errno::Errno;

/// The number of one that has ended.
const ENDED: u32 = u32::MAX;

#[derive(Clone)]
struct Fake(Rc<FakeState>);

struct FakeState {
    name: usize,
    own: Cell<Urgency>,
    lent: Cell<Urgency>,
    number: Cell<u32>,
}

impl Fake {
    fn new(name: usize, priority: u8) -> Fake {
        let (lent, number) = (Cell::new(Urgency::LEAST), Cell::new(0));
        Fake(Rc::new(FakeState { name, own: Cell::new(real_time(priority)), lent, number }))
    }

    fn urgency(&self) -> Urgency {
        self.0.own.get().max(self.0.lent.get())
    }
}

impl Party for Fake {
    fn own_urgency(&self) -> Urgency {
        self.0.own.get()
    }
    fn lend(&self, urgency: Urgency) {
        self.0.lent.set(urgency);
    }
    fn claim(&self, number: u32) -> bool {
        let free = self.0.number.get() == 0;
        if free {
            self.0.number.set(number);
        }
        free
    }
    fn release(&self) {
        self.0.number.set(0);
    }
    fn number(&self) -> u32 {
        Some(self.0.number.get()).filter(|number| *number != ENDED).unwrap_or(0)
    }
    fn begin_to_wait(&mut self, as_given: &Self) {
        assert!(Rc::ptr_eq(&self.0, &as_given.0));
    }
}

impl LockKey for usize {
    fn spread(&self) -> usize {
        // Several locks share a bucket.
        self % 3
    }
}

fn real_time(priority: u8) -> Urgency {
    Urgency::of(Policy::Fifo(priority), Nice::default())
}

fn crowd(priorities: &[u8]) -> Vec<Fake> {
    priorities.iter().enumerate().map(|(name, &priority)| Fake::new(name, priority)).collect()
}

#[test]
fn urgency_goes_along_the_chain_and_is_given_back_at_once() {
    let mut graph = Graph::new();
    let threads = crowd(&[1, 2, 3, 50]);
    for link in 0..3 {
        graph.wait(link, &threads[link], &threads[link + 1]).expect("no ring");
        graph.check();
    }
    assert!(threads.iter().all(|thread| thread.urgency() == real_time(50)));
    let lock = graph.find(&0).expect("thread 1 waits for it");
    let next = graph.pass_on(lock, false).expect("thread 1 gets it");
    graph.check();
    assert_eq!(next.0.name, 1);
    assert_eq!((threads[0].urgency(), threads[1].urgency()), (real_time(1), real_time(50)));
    assert!(graph.withdraw(&threads[3]));
    graph.check();
    assert_eq!([1, 2].map(|name: usize| threads[name].urgency()), [real_time(3), real_time(3)]);
    assert!(graph.withdraw(&threads[2]) && !graph.withdraw(&threads[2]));
    assert!(graph.is_empty());
    assert!(threads.iter().all(|thread| thread.0.lent.get() == Urgency::LEAST));
}

#[test]
fn no_ring_is_closed_whatever_its_length() {
    let mut graph = Graph::new();
    let threads = crowd(&[1, 2, 3, 4]);
    for link in 0..3 {
        graph.wait(link, &threads[link], &threads[link + 1]).expect("no ring");
    }
    assert_eq!(graph.wait(9, &threads[3], &threads[0]), Err(Refusal::Deadlock));
    assert!(graph.find(&9).is_none());
    graph.check();
}

#[test]
fn nobody_that_has_ended_becomes_an_owner() {
    let mut graph = Graph::new();
    let threads = crowd(&[1, 2]);
    threads[0].0.number.set(ENDED);
    assert_eq!(graph.wait(9, &threads[0], &threads[1]), Err(Refusal::Ended));
    graph.check();
    assert!(graph.is_empty() && graph.find(&9).is_none());
    assert_eq!(threads[1].number(), 0);
}

#[test]
fn a_chain_has_a_greatest_length() {
    let mut graph = Graph::new();
    let threads = crowd(&vec![1; CHAIN_MAX + 2]);
    for link in 0..CHAIN_MAX - 1 {
        assert_eq!(graph.wait(link, &threads[link], &threads[link + 1]), Ok(()));
    }
    let end = CHAIN_MAX - 1;
    assert_eq!(graph.wait(end, &threads[end], &threads[end + 1]), Err(Refusal::Deadlock));
}

#[test]
fn the_most_urgent_is_next_and_equals_in_the_order_in_which_they_came() {
    let mut graph = Graph::new();
    let threads = crowd(&[1, 5, 9, 5, 9]);
    for waiter in &threads[1..] {
        graph.wait(7, &threads[0], waiter).expect("memory");
    }
    threads[3].0.own.set(real_time(10));
    graph.urgency_changed(&threads[3]);
    graph.check();
    let mut order = Vec::new();
    while let Some(lock) = graph.find(&7) {
        order.extend(graph.pass_on(lock, false).map(|next| next.0.name));
        graph.check();
    }
    assert_eq!(order, [3, 2, 4, 1]);
}

#[test]
fn a_lock_left_by_a_dead_owner_stays_known_until_its_word_is_written() {
    let mut graph = Graph::new();
    let threads = crowd(&[1, 2, 3]);
    graph.wait(4, &threads[0], &threads[1]).expect("memory");
    let lock = graph.first_owned(&threads[0]).expect("it is waited for");
    graph.pass_on(lock, true);
    graph.check();
    let lock = graph.find(&4).expect("the word is not written");
    assert!(graph.is_unwritten(lock) && graph.first_waiter(lock).is_none());
    graph
        .wait(4, &threads[2], &threads[2])
        .expect("it waits behind the new owner, whatever it takes for the owner");
    graph.check();
    graph.written(&4, &threads[2]);
    assert!(graph.is_unwritten(lock), "only the owner writes");
    graph.written(&4, &threads[1]);
    assert!(!graph.is_unwritten(lock));
    graph.check();
    graph.pass_on(lock, false);
    assert!(graph.is_empty());
}

#[test]
fn words_are_as_the_manual_says() {
    assert_eq!(Word(OWNER_DIED | WAITERS).taken_by(7, false), Word(OWNER_DIED | 7));
    assert_eq!(Word(0).taken_by(7, true), Word(WAITERS | 7));
    assert_eq!(Word(7).agrees_with(8), Err(Errno::EINVAL));
    assert_eq!(Word(OWNER_DIED | WAITERS).agrees_with(8), Ok(()));
    assert_eq!(Word(OWNER_DIED | 9).agrees_with(8), Err(Errno::EINVAL));
    assert_eq!(Word(0).agrees_with(8), Err(Errno::EINVAL));
}

/// Locks by the book: an owner and a queue each.
struct Model {
    locks: Vec<RefCell<(Option<usize>, VecDeque<usize>)>>,
}

impl Model {
    fn waits(&self, thread: usize) -> bool {
        self.locks.iter().any(|lock| lock.borrow().1.contains(&thread))
    }

    /// Everybody who waits for the thread, directly or not.
    fn urgency(&self, thread: usize, own: &[Urgency]) -> Urgency {
        let mine = self.locks.iter().filter(|lock| lock.borrow().0 == Some(thread));
        mine.flat_map(|lock| lock.borrow().1.iter().copied().collect::<Vec<_>>())
            .map(|waiter| self.urgency(waiter, own))
            .fold(own[thread], Urgency::max)
    }

    fn waits_for(&self, thread: usize, other: usize) -> bool {
        thread == other
            || self.locks.iter().any(|lock| {
                let lock = lock.borrow();
                lock.1.contains(&thread) && lock.0.is_some_and(|owner| self.waits_for(owner, other))
            })
    }
}

const THREADS: usize = 8;
const LOCKS: usize = 5;

proptest! {
    #[test]
    fn any_run_keeps_the_invariants_and_lends_what_the_model_says(
        steps in prop::collection::vec((0..4_u8, 0..THREADS, 0..LOCKS, 1..99_u8), 1..200)
    ) {
        let mut graph = Graph::new();
        let threads = crowd(&[1; THREADS]);
        let model = Model { locks: (0..LOCKS).map(|_| RefCell::default()).collect() };
        for (step, thread, lock, priority) in steps {
            let waits = model.waits(thread);
            let (owner, _) = model.locks[lock].borrow().clone();
            match step {
                0 if !waits && owner.is_none() => model.locks[lock].borrow_mut().0 = Some(thread),
                0 if !waits && owner != Some(thread) => {
                    let owner = owner.expect("looked at above");
                    let ring = model.waits_for(owner, thread);
                    let outcome = graph.wait(lock, &threads[owner], &threads[thread]);
                    prop_assert_eq!(outcome, if ring { Err(Refusal::Deadlock) } else { Ok(()) });
                    if !ring {
                        model.locks[lock].borrow_mut().1.push_back(thread);
                    }
                }
                1 if !waits && owner == Some(thread) => {
                    let next = graph.find(&lock).and_then(|lock| graph.pass_on(lock, false)).map(|next| next.0.name);
                    let mut lock = model.locks[lock].borrow_mut();
                    lock.0 = next;
                    lock.1.retain(|&waiter| Some(waiter) != next);
                    prop_assert!(next.is_some() || lock.1.is_empty());
                }
                2 => {
                    prop_assert_eq!(graph.withdraw(&threads[thread]), waits);
                    model.locks.iter().for_each(|lock| lock.borrow_mut().1.retain(|&waiter| waiter != thread));
                }
                3 => {
                    threads[thread].0.own.set(real_time(priority));
                    graph.urgency_changed(&threads[thread]);
                }
                _ => {}
            }
            graph.check();
            let own: Vec<_> = threads.iter().map(|thread| thread.0.own.get()).collect();
            for (name, thread) in threads.iter().enumerate() {
                prop_assert_eq!(thread.urgency(), model.urgency(name, &own));
            }
        }
    }
}
