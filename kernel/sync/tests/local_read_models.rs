//! The lock with local readers under loom: `RUSTFLAGS="--cfg loom" cargo test --release -p sync --test local_read_models`.
//!
//! `local_read` and the locks that it stands on are the crate's own source, compiled against loom's atomics and stand-ins for
//! processors. The value that is guarded complains about every access that the lock does not order.
#![cfg(loom)]

// The sources say `machine::cpu`; here that is the stand-in below.
extern crate self as machine;

#[path = "../src/local_read.rs"]
#[allow(dead_code, unreachable_pub, reason = "the models use a part of it")]
mod local_read;
#[path = "../src/queue_lock.rs"]
pub mod queue_lock;
#[path = "../src/rw_spin.rs"]
#[allow(dead_code, unreachable_pub, reason = "the models use a part of it")]
mod rw_spin;

use std::marker::PhantomData;
use std::ops::Deref;

use loom::sync::atomic::AtomicPtr;
pub use queue_lock::QueueLock;
use rw_spin::{RwSpinLock, RwSpinReadGuard, RwSpinWriteGuard};

/// What the locks need of crate `machine`.
pub mod cpu {
    use std::cell::Cell;

    use loom::sync::atomic::{AtomicU32, Ordering};

    /// Processors of the models.
    pub const MAX_CPUS: usize = 3;

    loom::thread_local! {
        static THIS: Cell<usize> = Cell::new(0);
    }

    /// A processor's number.
    #[derive(Clone, Copy)]
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

    /// Processors, a bit for each.
    #[derive(Clone, Copy)]
    pub struct CpuSet(u32);

    impl CpuSet {
        /// None.
        pub const EMPTY: Self = Self(0);

        /// The members.
        pub fn iter(self) -> impl Iterator<Item = CpuId> {
            (0..MAX_CPUS).filter(move |cpu| self.0 & 1 << cpu != 0).map(CpuId)
        }
    }

    /// A set that many change.
    #[derive(Debug)]
    pub struct AtomicCpuSet(AtomicU32);

    impl AtomicCpuSet {
        /// A set with these members.
        pub fn new(set: CpuSet) -> Self {
            Self(AtomicU32::new(set.0))
        }

        /// The members now.
        pub fn load(&self, ordering: Ordering) -> CpuSet {
            CpuSet(self.0.load(ordering))
        }

        /// Adds a processor.
        pub fn insert(&self, cpu: CpuId, ordering: Ordering) {
            self.0.fetch_or(1 << cpu.0, ordering);
        }

        /// Whether the processor is a member.
        pub fn contains(&self, cpu: CpuId, ordering: Ordering) -> bool {
            self.0.load(ordering) & 1 << cpu.0 != 0
        }
    }
}

/// Each thread has its processor for itself.
pub mod preempt {
    /// Nothing to give back.
    pub struct PreemptGuard;

    /// Nothing to do.
    pub fn disable() -> PreemptGuard {
        PreemptGuard
    }
}

/// Nobody counts locks here.
mod classes {
    #[derive(Default)]
    pub(crate) struct Class;

    impl Class {
        pub(crate) fn natural() -> Self {
            Self
        }
    }

    pub(crate) enum Kind {
        RwSpin,
    }

    pub(crate) struct Attempt;
    pub(crate) struct Held;

    impl Attempt {
        pub(crate) fn to_wait<T: ?Sized>(_: &Class, _: Kind, _: *const (), _: u8) -> Self {
            Self
        }

        pub(crate) fn for_reading(self) -> Self {
            self
        }

        pub(crate) fn contended(&mut self) {}

        pub(crate) fn taken(self, _: &Class) -> Held {
            Held
        }
    }
}

loom::lazy_static! {
    static ref SLOTS: [AtomicPtr<()>; cpu::MAX_CPUS] =
        std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut()));
}

/// The slots of the processors; loom makes them anew for every run.
struct PerCpu<T>(PhantomData<fn() -> T>);

impl PerCpu<AtomicPtr<()>> {
    fn of(&self, cpu: cpu::CpuId) -> &'static AtomicPtr<()> {
        &SLOTS[cpu.index()]
    }
}

macro_rules! per_cpu {
    ($value:expr) => {
        crate::PerCpu(std::marker::PhantomData)
    };
}
use per_cpu;

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

mod models {
    use loom::cell::Cell;

    use super::cpu;
    use super::local_read::{LocalReadGuard, LocalReadLock};

    struct Value(Cell<u32>);

    // SAFETY: loom checks that nobody looks at it while it is changed.
    unsafe impl Sync for Value {}

    type Lock = LocalReadLock<Value>;

    /// What each processor does, in a thread of its own.
    fn check(preemptions: usize, processors: &'static [fn(&Lock)], sum: u32) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.max_branches = 20_000;
        model.check(move || {
            let lock = loom::sync::Arc::new(Lock::new(Value(Cell::new(0))));
            let start = |(index, act): (usize, &'static fn(&Lock))| {
                let lock = lock.clone();
                loom::thread::spawn(move || {
                    cpu::play(index);
                    act(&lock);
                })
            };
            let others: Vec<_> = processors.iter().enumerate().skip(1).map(start).collect();
            processors[0](&lock);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(lock.read().0.get(), sum);
        });
    }

    fn read(lock: &Lock) {
        let _seen = lock.read_locally().0.get();
    }

    fn write(lock: &Lock) {
        let value = lock.write();
        value.0.set(value.0.get() + 1);
    }

    #[test]
    fn first_local_reader_of_a_processor_and_a_writer_exclude_each_other() {
        check(4, &[write, read], 1);
    }

    #[test]
    fn processor_that_reads_again_is_still_waited_for() {
        check(
            3,
            &[write, |lock| {
                read(lock);
                read(lock);
            }],
            1,
        );
    }

    #[test]
    fn readers_of_two_processors_are_waited_for() {
        check(1, &[write, read, read], 1);
    }

    #[test]
    fn writers_exclude_each_other_beside_a_local_reader() {
        check(1, &[write, write, read], 2);
    }

    /// The slot is in use: the second lock is read by its word.
    #[test]
    fn reader_of_a_second_lock_and_its_writer_exclude_each_other() {
        check(
            3,
            &[write, |lock| {
                let other = Lock::new(Value(Cell::new(7)));
                let outer = other.read_locally();
                assert!(matches!(outer, LocalReadGuard::Local(_)));
                read(lock);
                assert_eq!(outer.0.get(), 7);
            }],
            1,
        );
    }
}
