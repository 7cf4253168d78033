//! Schedulers learn whose requests are, and how much of the device each owner got.

use super::*;

use alloc::collections::VecDeque;

use crate::scheduler::Scheduler;
use sched::{Builder, IoClass, IoPriority};

/// What a scheduler has seen.
#[derive(Default)]
struct Seen {
    /// Owner and sector of each that came.
    came: Vec<(u64, u64)>,
    /// Owner and sectors of each part of what ended.
    ended: Vec<(u64, u64)>,
}

/// First come, first served, with neighbours merged; those of different owners only if that is said.
struct Sharing {
    waiting: VecDeque<Request>,
    merges_owners: bool,
    seen: Arc<sync::SpinLock<Seen>>,
}

impl Scheduler for Sharing {
    fn name(&self) -> &'static str {
        "sharing"
    }

    fn reserve(&mut self) -> Result<()> {
        self.waiting.reserve(1);
        Ok(())
    }

    fn insert(&mut self, mut request: Request, limits: &Limits) -> bool {
        self.seen.lock().came.push((request.owner(), request.sector()));
        for waiting in &mut self.waiting {
            if self.merges_owners || waiting.owner() == request.owner() {
                match waiting.absorb(request, limits) {
                    Ok(()) => return true,
                    Err(back) => request = back,
                }
            }
        }
        self.waiting.push_back(request);
        false
    }

    fn next(&mut self, _now_ns: u64) -> Option<Request> {
        self.waiting.pop_front()
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn wants_completions(&self) -> bool {
        true
    }

    fn completed(&mut self, request: &Request, _now_ns: u64) {
        self.seen.lock().ended.extend(request.shares());
    }
}

fn sharing(depth: u32, merges_owners: bool) -> (Arc<SlowDisk>, Arc<Queue>, Arc<sync::SpinLock<Seen>>) {
    let mut limits = Limits::of_size(1000);
    limits.depth = depth;
    let (slow, seen) = (SlowDisk::new(limits), Arc::new(sync::SpinLock::new(Seen::default())));
    let scheduler = Sharing { waiting: VecDeque::new(), merges_owners, seen: seen.clone() };
    let queue = Queue::with_scheduler(slow.clone(), Box::new(scheduler)).unwrap();
    (slow, queue, seen)
}

/// Submits a write of one sector as another thread; that one's number.
fn submit_as_another(queue: &Arc<Queue>, sector: u64) -> u64 {
    let (own, done) = (queue.clone(), Arc::new(sched::Completion::new()));
    let told = done.clone();
    let body = move || {
        own.submit(write(sector, BioFlags::empty(), |outcome| outcome.unwrap()));
        told.complete();
    };
    let thread = sched::spawn(Builder::new("submitter"), Box::new(body)).unwrap();
    done.wait();
    thread.id()
}

fn answer_all(slow: &SlowDisk) -> Vec<(Operation, u64, u64)> {
    core::iter::from_fn(|| Some(slow.answer(Ok(()))).filter(|answered| !answered.is_empty()))
        .flatten()
        .collect()
}

#[test]
fn each_owner_is_told_apart_and_gets_what_is_its_own() {
    let me = sched::current().io_owner();
    let (slow, queue, seen) = sharing(1, false);
    // The first is under way; what comes then waits, and meets its neighbours.
    queue.submit(write(900, BioFlags::empty(), |outcome| outcome.unwrap()));
    queue.submit(write(10, BioFlags::empty(), |outcome| outcome.unwrap()));
    let other = submit_as_another(&queue, 11);
    queue.submit(write(9, BioFlags::empty(), |outcome| outcome.unwrap()));
    assert_ne!(me, other);
    assert_eq!(seen.lock().came, [(me, 900), (me, 10), (other, 11), (me, 9)]);
    let answered = answer_all(&slow);
    assert_eq!(answered, [(Operation::Write, 900, 1), (Operation::Write, 9, 2), (Operation::Write, 11, 1)]);
    assert_eq!(seen.lock().ended, [(me, 1), (me, 1), (me, 1), (other, 1)]);
}

#[test]
fn a_request_merged_across_owners_is_accounted_to_each() {
    let me = sched::current().io_owner();
    let (slow, queue, seen) = sharing(1, true);
    queue.submit(write(900, BioFlags::empty(), |outcome| outcome.unwrap()));
    queue.submit(write(10, BioFlags::empty(), |outcome| outcome.unwrap()));
    let other = submit_as_another(&queue, 11);
    assert_eq!(answer_all(&slow), [(Operation::Write, 900, 1), (Operation::Write, 10, 2)]);
    assert_eq!(seen.lock().ended, [(me, 1), (me, 1), (other, 1)]);
}

#[test]
fn completions_are_told_once_however_requests_end() {
    let (slow, queue, seen) = sharing(1, false);
    for sector in [1, 5, 9] {
        queue.submit(write(sector, BioFlags::empty(), |outcome| assert!(outcome.is_err())));
    }
    drop(slow.answer(Err(Error::Io)));
    assert_eq!(seen.lock().ended.len(), 1);
    queue.remove();
    assert_eq!(seen.lock().ended.len(), 2, "what waited has ended, what the driver has has not");
    drop(slow.answer(Err(Error::NoDevice)));
    assert_eq!(seen.lock().ended.len(), 3);
}

#[test]
fn a_scheduler_hears_nothing_of_what_another_one_gave() {
    let (slow, queue, seen) = sharing(1, false);
    queue.submit(write(1, BioFlags::empty(), |outcome| outcome.unwrap()));
    queue.submit(write(5, BioFlags::empty(), |outcome| outcome.unwrap()));
    queue.set_scheduler("mq-deadline").unwrap();
    queue.submit(write(9, BioFlags::empty(), |outcome| outcome.unwrap()));
    // The former one still has a request, and hears of that one's end and of the first one's. The new one would not bear an end too many.
    assert_eq!(answer_all(&slow).len(), 3);
    assert_eq!(seen.lock().ended.len(), 2);
}

#[test]
fn what_a_former_scheduler_holds_back_is_not_lost() {
    let mut limits = Limits::of_size(1000);
    limits.depth = 8;
    let slow = SlowDisk::new(limits);
    let queue = Queue::with_scheduler(slow.clone(), Box::new(Deadline::default())).unwrap();
    let submit = |class, sector| {
        let bio = write(sector, BioFlags::empty(), |outcome| outcome.unwrap());
        queue.submit(bio.with_priority(IoPriority::new(class, 0)));
    };
    submit(IoClass::BestEffort, 1);
    submit(IoClass::Idle, 5);
    assert_eq!(slow.held.lock().len(), 1, "the idle one waits for the other's end");
    queue.set_scheduler("none").unwrap();
    submit(IoClass::BestEffort, 9);
    assert_eq!(slow.held.lock().len(), 1, "it goes before what came after the change");
    let order: Vec<_> = answer_all(&slow).into_iter().map(|(_, sector, _)| sector).collect();
    assert_eq!(order, [1, 5, 9]);
}

#[test]
fn what_waits_for_a_more_urgent_one_fails_at_once_when_the_device_goes() {
    let slow = SlowDisk::new(Limits::of_size(1000));
    let queue = Queue::with_scheduler(slow.clone(), Box::new(Deadline::default())).unwrap();
    let ended = Arc::new(AtomicUsize::new(0));
    for (class, sector) in [(IoClass::RealTime, 1), (IoClass::BestEffort, 5), (IoClass::Idle, 9)] {
        let told = ended.clone();
        let bio = write(sector, BioFlags::empty(), move |outcome| {
            assert_eq!(outcome, Err(Error::NoDevice));
            told.fetch_add(1, Ordering::Relaxed);
        });
        queue.submit(bio.with_priority(IoPriority::new(class, 0)));
    }
    queue.remove();
    assert_eq!(ended.load(Ordering::Relaxed), 2);
    drop(slow.answer(Err(Error::NoDevice)));
    assert_eq!(ended.load(Ordering::Relaxed), 3);
}

#[test]
fn a_flush_for_many_is_nobodys() {
    let mut limits = Limits::of_size(1000);
    limits.write_cache = true;
    let slow = SlowDisk::new(limits);
    let seen = Arc::new(sync::SpinLock::new(Seen::default()));
    let scheduler = Sharing { waiting: VecDeque::new(), merges_owners: false, seen: seen.clone() };
    let queue = Queue::with_scheduler(slow.clone(), Box::new(scheduler)).unwrap();
    queue.submit(write(3, BioFlags::PREFLUSH, |outcome| outcome.unwrap()));
    assert_eq!(answer_all(&slow).len(), 2);
    assert_eq!(seen.lock().came, [(0, 0), (sched::current().io_owner(), 3)]);
}
