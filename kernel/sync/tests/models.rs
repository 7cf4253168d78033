//! Every interleaving, and every reordering that the memory model allows, of the lock-free parts of this crate:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p sync --test models`.
//!
//! The queued lock is the crate's own source, compiled against loom's atomics and a small stand-in for crate `machine`. RCU's
//! grace periods are a model of the protocol: one CPU that reads or idles, and one that replaces and waits.
#![cfg(loom)]

// The lock's source says `machine::cpu`; here that is the stand-in below.
extern crate self as machine;

#[path = "../src/queue_lock.rs"]
pub mod queue_lock;

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

    fn processors_increment(processors: usize, preemptions: Option<usize>) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = preemptions;
        model.check(move || {
            let shared = Arc::new(Shared { lock: QueueLock::new(), value: Cell::new(0) });
            let increment = |shared: &Shared, processor: usize| {
                cpu::play(processor);
                shared.lock.lock();
                shared.value.set(shared.value.get() + 1);
                shared.lock.unlock();
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
            assert_eq!(shared.value.get(), processors as u32);
        });
    }

    #[test]
    fn two_processors_exclude_each_other() {
        processors_increment(2, Some(4));
    }

    #[test]
    fn three_processors_queue_and_none_is_forgotten() {
        processors_increment(3, Some(2));
    }
}

mod grace_period {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

    use super::cpu;

    /// What the two CPUs share; the fields are those of `rcu::grace_period`, for one other CPU.
    struct State {
        /// The bit of the reading CPU.
        need: AtomicU64,
        completed: AtomicU64,
        idle: AtomicBool,
        /// What readers follow: 0 the old object, 1 the new one.
        pointer: AtomicU32,
        /// The old object's memory was given back.
        freed: AtomicBool,
    }

    impl State {
        fn report(&self) {
            if self.need.load(Ordering::Relaxed) != 0 {
                fence(Ordering::SeqCst);
                if self.need.swap(0, Ordering::SeqCst) != 0 {
                    self.completed.store(1, Ordering::SeqCst);
                }
            }
        }

        /// A read section, and the quiescent state after it.
        fn read(&self) {
            if self.pointer.load(Ordering::Acquire) == 0 {
                assert!(!self.freed.load(Ordering::Relaxed), "the reader sees the old object after its end");
            }
            self.report();
        }

        fn leave_idle(&self) {
            self.idle.store(false, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }

        fn enter_idle(&self) {
            self.idle.store(true, Ordering::Release);
            self.report();
        }

        fn is_idle(&self) -> bool {
            self.idle.load(Ordering::SeqCst)
        }

        /// Replaces the object and waits for the readers of the old one, hurrying the grace period.
        fn replace(&self) {
            self.pointer.store(1, Ordering::Release);
            fence(Ordering::SeqCst);
            if self.is_idle() {
                self.completed.store(1, Ordering::SeqCst);
            } else {
                self.need.store(1, Ordering::SeqCst);
            }
            while self.completed.load(Ordering::Acquire) == 0 {
                fence(Ordering::SeqCst);
                if self.need.load(Ordering::SeqCst) != 0 && self.is_idle() {
                    self.report();
                }
                cpu::relax();
            }
            self.freed.store(true, Ordering::Relaxed);
        }
    }

    fn check(idle: bool, reader: fn(&State)) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let state = Arc::new(State {
                need: AtomicU64::new(0),
                completed: AtomicU64::new(0),
                idle: AtomicBool::new(idle),
                pointer: AtomicU32::new(0),
                freed: AtomicBool::new(false),
            });
            let other = state.clone();
            let other = loom::thread::spawn(move || reader(&other));
            state.replace();
            other.join().unwrap();
        });
    }

    #[test]
    fn waits_for_a_reader_that_goes_idle() {
        check(false, |state| {
            state.read();
            state.enter_idle();
        });
    }

    #[test]
    fn a_processor_that_leaves_idle_sees_the_new_object() {
        check(true, |state| {
            state.leave_idle();
            state.read();
            state.enter_idle();
        });
    }
}
