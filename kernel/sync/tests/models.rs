//! Every interleaving, and every reordering that the memory model allows, of the lock-free parts of this crate:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p sync --test models`.
//!
//! The queued lock, and RCU's tree and protocol of grace periods, are the crate's own source, compiled against loom's atomics and a small
//! stand-in for crate `machine`. Around the protocol stand models of CPUs that read or idle, and of one that replaces and waits: as
//! a forced grace period does, and as an expedited one, which asks by message box.
#![cfg(loom)]

// The lock's source says `machine::cpu`; here that is the stand-in below.
extern crate self as machine;

#[path = "../src/message_box/protocol.rs"]
#[allow(dead_code, unreachable_pub, reason = "the models use what the protocol is made of")]
mod protocol;
#[path = "../src/queue_lock.rs"]
pub mod queue_lock;

/// The parts of RCU that know no CPUs.
#[path = "../src/rcu"]
#[allow(dead_code, reason = "the models use a part of it")]
mod rcu {
    pub(crate) mod protocol;
    pub(crate) mod tree;
}

use std::ops::Deref;

/// What the lock needs of crate `machine`.
pub mod cpu {
    use std::cell::Cell;

    /// Processors of the model.
    pub const MAX_CPUS: usize = 3;

    loom::thread_local! {
        static THIS: Cell<usize> = Cell::new(0);
    }

    /// A processor's number.
    pub struct CpuId(usize);

    impl CpuId {
        /// The number.
        pub fn index(&self) -> usize {
            self.0
        }
    }

    /// The processor that this thread plays.
    pub fn current() -> CpuId {
        CpuId(THIS.with(Cell::get))
    }

    /// From now on this thread plays that processor.
    pub fn play(index: usize) {
        THIS.with(|this| this.set(index));
    }

    /// Lets another processor go on.
    pub fn relax() {
        loom::thread::yield_now();
    }
}

/// A value on cache lines of its own; here it is only the value.
struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    const fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

mod queued_lock {
    use loom::cell::Cell;
    use loom::sync::Arc;

    use super::cpu;
    use super::queue_lock::QueueLock;

    /// The cell complains about every access that the lock does not order.
    struct Shared {
        lock: QueueLock,
        value: Cell<u32>,
    }

    // SAFETY: loom checks that `value` is touched by one thread at a time only.
    unsafe impl Sync for Shared {}
    // SAFETY: nothing in it belongs to a thread.
    unsafe impl Send for Shared {}

    fn processors_increment(processors: usize, rounds: u32, preemptions: Option<usize>) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = preemptions;
        model.check(move || {
            let shared = Arc::new(Shared { lock: QueueLock::new(), value: Cell::new(0) });
            let increment = move |shared: &Shared, processor: usize| {
                cpu::play(processor);
                for _ in 0..rounds {
                    shared.lock.lock();
                    shared.value.set(shared.value.get() + 1);
                    shared.lock.unlock();
                }
            };
            let others: Vec<_> = (1..processors)
                .map(|processor| {
                    let shared = shared.clone();
                    loom::thread::spawn(move || increment(&shared, processor))
                })
                .collect();
            increment(&shared, 0);
            others.into_iter().for_each(|other| other.join().unwrap());
            shared.lock.lock();
            assert_eq!(shared.value.get(), processors as u32 * rounds);
        });
    }

    #[test]
    fn two_processors_exclude_each_other() {
        processors_increment(2, 1, Some(4));
    }

    /// The lock asserts how often; here nobody may overtake more than once, so that it takes few rounds to try.
    #[test]
    fn who_takes_the_lock_again_at_once_overtakes_the_head_of_the_queue_only_so_often() {
        processors_increment(2, 3, Some(3));
    }

    #[test]
    fn three_processors_queue_and_none_is_forgotten() {
        processors_increment(3, 1, Some(2));
    }
}

mod grace_period {
    use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
    use loom::sync::{Arc, Mutex};

    use super::cpu;
    use super::rcu::protocol::{Protocol, Start};

    /// What the CPUs share, around the protocol for a tree of so many words.
    struct State<const WORDS: usize> {
        protocol: Protocol<WORDS>,
        /// Serialises starts.
        start: Mutex<()>,
        /// Whether the reader idles.
        idle: AtomicBool,
        /// Whether the reader was asked by message box and has not answered.
        asked: AtomicBool,
        /// What readers follow: 0 the old object, 1 the new one.
        pointer: AtomicU32,
        /// The old object's memory was given back.
        freed: AtomicBool,
    }

    /// The CPU that reads.
    const READER: usize = 0;
    /// A CPU in the second leaf, if there is one; it only reports.
    const FAR: usize = 64;

    impl<const WORDS: usize> State<WORDS> {
        fn new(cpus: usize, idle: bool) -> Self {
            Self {
                protocol: Protocol::new(cpus),
                start: Mutex::new(()),
                idle: AtomicBool::new(idle),
                asked: AtomicBool::new(false),
                pointer: AtomicU32::new(0),
                freed: AtomicBool::new(false),
            }
        }

        fn report(&self, cpu: usize) {
            if self.protocol.owes(cpu) && self.protocol.report(cpu) {
                self.protocol.complete();
            }
        }

        /// A read section, and the quiescent state after it.
        fn read(&self) {
            if self.pointer.load(Ordering::Acquire) == 0 {
                assert!(!self.freed.load(Ordering::Relaxed), "the reader sees the old object after its end");
            }
            self.report(READER);
        }

        fn leave_idle(&self) {
            self.idle.store(false, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }

        fn enter_idle(&self) {
            self.idle.store(true, Ordering::Release);
            self.report(READER);
        }

        /// The handler of the message box, outside of read sections.
        fn answer(&self) {
            if self.asked.load(Ordering::Acquire) {
                self.report(READER);
                self.asked.store(false, Ordering::Release);
            }
        }

        /// The updater waits, and nobody plays the others.
        fn is_quiescent(&self, cpu: usize) -> bool {
            cpu != FAR && (cpu != READER || self.idle.load(Ordering::SeqCst))
        }

        fn begin(&self) -> u64 {
            self.pointer.store(1, Ordering::Release);
            let number = self.protocol.request();
            let _starting = self.start.lock().unwrap();
            if self.protocol.try_start(|cpu| self.is_quiescent(cpu)) == Start::Over {
                self.protocol.complete();
            }
            number
        }

        /// Reports the reader if it idles; no start can come in between.
        fn force(&self) {
            fence(Ordering::SeqCst);
            let is_over = {
                let _starts_wait = self.start.lock().unwrap();
                let seen = self.protocol.owes(READER) && self.idle.load(Ordering::SeqCst);
                seen && self.protocol.report(READER)
            };
            if is_over {
                self.protocol.complete();
            }
        }

        /// Replaces the object and waits for the readers of the old one.
        fn replace(&self, urge: fn(&Self)) {
            let number = self.begin();
            while self.protocol.completed() < number {
                urge(self);
                cpu::relax();
            }
            self.freed.store(true, Ordering::Relaxed);
        }

        fn ask(&self) {
            self.force();
            self.asked.store(true, Ordering::Release);
        }
    }

    fn check<const WORDS: usize>(
        cpus: usize,
        idle: bool,
        others: &'static [fn(&State<WORDS>)],
        urge: fn(&State<WORDS>),
    ) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(if others.len() > 1 { 2 } else { 3 });
        model.check(move || {
            let state = Arc::new(State::<WORDS>::new(cpus, idle));
            let others: Vec<_> = others
                .iter()
                .map(|other| {
                    let state = state.clone();
                    loom::thread::spawn(move || other(&state))
                })
                .collect();
            state.replace(urge);
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    }

    #[test]
    fn waits_for_a_reader_that_goes_idle() {
        check::<1>(
            2,
            false,
            &[|state| {
                state.read();
                state.enter_idle();
            }],
            State::force,
        );
    }

    #[test]
    fn a_processor_that_leaves_idle_sees_the_new_object() {
        check::<1>(
            2,
            true,
            &[|state| {
                state.leave_idle();
                state.read();
                state.enter_idle();
            }],
            State::force,
        );
    }

    #[test]
    fn expedited_waits_for_a_reader_that_answers_its_message_box() {
        check::<1>(
            2,
            false,
            &[|state| {
                state.read();
                state.answer();
                state.enter_idle();
            }],
            State::ask,
        );
    }

    #[test]
    fn two_leaves_of_the_tree_are_waited_for() {
        check::<3>(
            65,
            false,
            &[
                |state| {
                    state.read();
                    state.enter_idle();
                },
                |state| {
                    // It reports once it owes, however late it sees that.
                    while !state.protocol.owes(FAR) {
                        loom::thread::yield_now();
                    }
                    state.report(FAR);
                },
            ],
            State::force,
        );
    }
}

/// The matrix of message boxes, from the crate's own source: CPUs that send and wait with interrupts off, and serve when they are done.
mod message_boxes {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU32, Ordering};

    use super::protocol::{Departure, Matrix, Turn, WORDS};

    const REQUEST: u32 = 1;

    struct Boxes<const CPUS: usize> {
        matrix: Matrix<CPUS>,
        /// Requests that each CPU has handled.
        handled: [AtomicU32; CPUS],
        /// Answers that each CPU has come to.
        seen: [AtomicU32; CPUS],
        /// CPUs that need no answer any more.
        done: AtomicU32,
    }

    impl<const CPUS: usize> Boxes<CPUS> {
        fn new() -> Self {
            let zeros = || core::array::from_fn(|_| AtomicU32::new(0));
            Self { matrix: Matrix::new(), handled: zeros(), seen: zeros(), done: AtomicU32::new(0) }
        }

        /// A request says how many answers its sender has given to this CPU: all of them must have been seen.
        fn handle(&self, this: usize, words: [u64; WORDS]) -> [u64; WORDS] {
            let seen = self.seen[this].load(Ordering::Relaxed);
            assert!(u64::from(seen) >= words[0], "a request was handled before an earlier answer");
            self.handled[this].fetch_add(1, Ordering::Relaxed);
            words.map(|word| !word)
        }

        /// Sends to `target` and waits.
        fn send(&self, this: usize, target: usize, departure: Departure) {
            let given = if CPUS == 2 { self.handled[this].load(Ordering::Relaxed) } else { 0 };
            let words = [u64::from(given); WORDS];
            self.matrix.post(this, target, REQUEST, &words);
            let mut waiting = 1 << target;
            loop {
                let turn = self.matrix.turn(
                    this,
                    &mut waiting,
                    departure,
                    || {},
                    |_, _, words| self.handle(this, words),
                );
                match turn {
                    Turn::Answered { .. } => break,
                    Turn::Served(_) | Turn::Nothing => loom::thread::yield_now(),
                }
            }
            assert_eq!(self.matrix.answer(this, target), words.map(|word| !word));
            self.seen[this].fetch_add(1, Ordering::Relaxed);
        }

        /// Interrupts are on again: serves what is there, and what comes until all are done.
        fn serve_until_all_are_done(&self, this: usize) {
            self.done.fetch_add(1, Ordering::AcqRel);
            loop {
                let all = self.done.load(Ordering::Acquire) == CPUS as u32;
                let senders = self.matrix.arrived(this);
                self.matrix.serve(this, senders, |_, _, words| self.handle(this, words));
                if all {
                    return;
                }
                loom::thread::yield_now();
            }
        }
    }

    /// Each CPU sends so many requests to the next one.
    fn ring<const CPUS: usize>(requests: usize, preemptions: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let boxes = Arc::new(Boxes::<CPUS>::new());
            let play = move |boxes: &Boxes<CPUS>, this: usize| {
                for _ in 0..requests {
                    boxes.send(this, (this + 1) % CPUS, Departure::default());
                }
                boxes.serve_until_all_are_done(this);
            };
            let others: Vec<_> = (1..CPUS)
                .map(|this| {
                    let boxes = boxes.clone();
                    loom::thread::spawn(move || play(&boxes, this))
                })
                .collect();
            play(&boxes, 0);
            others.into_iter().for_each(|other| other.join().unwrap());
            for handled in &boxes.handled {
                assert_eq!(handled.load(Ordering::Relaxed), requests as u32, "each request is handled once");
            }
        });
    }

    #[test]
    fn two_processors_that_ask_each_other_are_both_answered_in_order() {
        ring::<2>(1, 4);
    }

    #[test]
    fn two_requests_each_are_answered_in_order() {
        ring::<2>(2, 2);
    }

    /// One CPU asks; the other serves once and then asks itself.
    fn answer_then_ask(departure: Departure) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let boxes = Arc::new(Boxes::<2>::new());
            let other = boxes.clone();
            let other = loom::thread::spawn(move || {
                while other.handled[1].load(Ordering::Relaxed) == 0 {
                    let senders = other.matrix.arrived(1);
                    // Answering and asking follow each other, with no step for the other CPU to be let go first.
                    if other.matrix.serve(1, senders, |_, _, words| other.handle(1, words)) == 0 {
                        loom::thread::yield_now();
                    }
                }
                other.send(1, 0, Departure::default());
                other.serve_until_all_are_done(1);
            });
            boxes.send(0, 1, departure);
            boxes.serve_until_all_are_done(0);
            other.join().unwrap();
        });
    }

    #[test]
    fn an_answer_counts_before_a_later_request() {
        answer_then_ask(Departure::default());
    }

    #[test]
    #[should_panic(expected = "handled before an earlier answer")]
    fn the_model_notices_looks_in_the_wrong_order() {
        answer_then_ask(Departure { order_swapped: true, ..Departure::default() });
    }
}
