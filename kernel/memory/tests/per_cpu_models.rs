//! Every interleaving, and every reordering that the memory model allows, of what CPUs count each in a cell of their own:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p memory --test per_cpu_models`.
//!
//! The counter with a limit, the reference count and the quota are the crate's own source, compiled against loom's atomics and small
//! stand-ins for the crates below it: CPUs are loom's threads, an addition to the own cell is a load and a store, and a grace period
//! is the wait until every CPU has ended the read section that it is in.
#![cfg(loom)]

// The sources say `machine::cpu` and `sync::rcu`; here those are the stand-ins below.
extern crate self as machine;
extern crate self as sync;

use std::ops::Deref;
use std::sync::OnceLock;

use loom::sync::{Mutex, MutexGuard};

/// The sources, beside a stand-in for the memory that they stand on.
#[path = "../src/per_cpu"]
#[allow(dead_code, unreachable_pub, reason = "the models use a part of it")]
mod per_cpu {
    pub(crate) mod counter;
    pub(crate) mod quota;
    pub(crate) mod reference;

    /// A value for each CPU, one behind the other.
    pub(crate) mod boxed {
        use std::ptr::NonNull;

        use super::geometry::{Cpus, existing_cpus};
        use crate::cpu::{self, CPUS};

        pub(crate) struct PerCpuBox<T>(Box<[T; CPUS]>);

        impl<T> PerCpuBox<T> {
            pub(crate) fn try_zeroed() -> Result<Self, crate::OutOfMemory>
            where
                T: Default,
            {
                Ok(Self(Box::new(std::array::from_fn(|_| T::default()))))
            }

            pub(crate) fn this(&self) -> &T {
                &self.0[cpu::this()]
            }

            pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
                self.0.iter()
            }

            pub(crate) fn cpus(&self) -> Cpus {
                existing_cpus()
            }

            pub(crate) fn as_ptr(&self) -> *mut T {
                self.0.as_ptr().cast_mut()
            }

            /// # Safety
            /// As for the real one.
            pub(crate) unsafe fn own_copy<'life>(first: NonNull<T>) -> &'life T {
                // SAFETY: it is the first of as many as there are CPUs, and the caller vouches for their life.
                unsafe { first.add(cpu::this()).as_ref() }
            }
        }
    }

    pub(crate) mod geometry {
        pub(crate) struct Cpus;

        impl Cpus {
            pub(crate) fn count(&self) -> usize {
                crate::cpu::CPUS
            }
        }

        pub(crate) fn existing_cpus() -> Cpus {
            Cpus
        }
    }
}

/// What the sources need of crate `machine`.
pub mod cpu {
    use std::cell::Cell;

    use loom::sync::atomic::{AtomicI64, Ordering::Relaxed};

    /// CPUs of the models.
    pub const CPUS: usize = 3;

    loom::thread_local! {
        static THIS: Cell<usize> = Cell::new(0);
    }

    /// The CPU that this thread plays.
    pub fn this() -> usize {
        THIS.with(Cell::get)
    }

    /// From now on this thread plays that CPU.
    pub fn play(index: usize) {
        THIS.with(|this| this.set(index));
    }

    /// One instruction of this CPU, and two accesses for the others.
    pub fn add_to_own(cell: &AtomicI64, amount: i64) {
        cell.store(cell.load(Relaxed) + amount, Relaxed);
    }
}

/// Each thread has its CPU for itself.
pub mod preempt {
    /// Nothing to do.
    pub fn disable() {}
}

/// Read sections and grace periods.
pub mod rcu {
    use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

    use super::cpu::{self, CPUS};

    loom::lazy_static! {
        static ref READING: [AtomicBool; CPUS] = std::array::from_fn(|_| AtomicBool::new(false));
        static ref SECTIONS: [AtomicU64; CPUS] = std::array::from_fn(|_| AtomicU64::new(0));
    }

    /// A read section.
    pub struct Guard;

    /// Begins one.
    pub fn read() -> Guard {
        READING[cpu::this()].store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Guard
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            SECTIONS[cpu::this()].fetch_add(1, Ordering::Release);
            READING[cpu::this()].store(false, Ordering::Release);
        }
    }

    /// Waits until all read sections that run now have ended.
    pub fn synchronize_expedited() {
        fence(Ordering::SeqCst);
        for cpu in (0..CPUS).filter(|&cpu| cpu != cpu::this()) {
            let before = SECTIONS[cpu].load(Ordering::Acquire);
            while READING[cpu].load(Ordering::Acquire) && SECTIONS[cpu].load(Ordering::Acquire) == before {
                loom::thread::yield_now();
            }
        }
    }
}

/// The switch of clustered objects.
pub mod clustered {
    /// On.
    pub fn enabled() -> bool {
        true
    }
}

/// Crate `memory`'s frames.
mod frame {
    pub(crate) mod allocate {
        pub(crate) fn may_wait() -> bool {
            true
        }
    }
}

/// There is always memory.
#[derive(Debug)]
pub struct OutOfMemory;

/// A value that is made once.
pub struct Once<T>(OnceLock<T>);

impl<T> Once<T> {
    fn new() -> Self {
        Self(OnceLock::new())
    }

    fn get(&self) -> Option<&T> {
        self.0.get()
    }

    fn call_once(&self, make: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(make)
    }
}

/// A lock, with nobody to interrupt its holder.
pub struct IrqSpinLock<T>(Mutex<T>);

impl<T> IrqSpinLock<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// A value on cache lines of its own; here it is only the value.
pub struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// What the CPUs do, each in a thread of its own, and what holds when all have done it.
fn check<T: Send + Sync + 'static>(
    preemptions: usize,
    make: fn() -> T,
    cpus: &'static [fn(&T) -> i64],
    after: fn(&T, i64),
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let shared = loom::sync::Arc::new(make());
        let start = |(index, act): (usize, &'static fn(&T) -> i64)| {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                cpu::play(index);
                act(&shared)
            })
        };
        let others: Vec<_> = cpus.iter().enumerate().skip(1).map(start).collect();
        let own = cpus[0](&shared);
        let sum = own + others.into_iter().map(|other| other.join().unwrap()).sum::<i64>();
        after(&shared, sum);
    });
}

mod counter {
    use super::check;
    use super::per_cpu::counter::Counter;

    /// With three CPUs and batches of one the first two additions go the cheap way; then everybody looks at all cells.
    const LIMIT: i64 = 6;

    fn add_some(counter: &Counter, times: usize) -> i64 {
        (0..times).filter(|_| counter.try_add(1, LIMIT)).count() as i64
    }

    /// With batches of two as many go the cheap way below this limit.
    const HIGHER_LIMIT: i64 = 8;

    fn add_more(counter: &Counter, times: usize) -> i64 {
        (0..times).filter(|_| counter.try_add(1, HIGHER_LIMIT)).count() as i64
    }

    #[test]
    fn limit_holds_however_long_who_has_looked_waits_before_it_adds() {
        check(
            4,
            || Counter::new(1),
            &[|counter| add_some(counter, 6), |counter| add_some(counter, 1)],
            |counter, added| assert_eq!((added, counter.exact()), (LIMIT, LIMIT)),
        );
    }

    #[test]
    fn limit_holds_while_cells_are_moved() {
        check(
            3,
            || {
                let counter = Counter::new(2);
                counter.add(1);
                counter
            },
            &[|counter| 1 + add_more(counter, 7), |counter| add_more(counter, 2)],
            |counter, added| {
                assert!(added <= HIGHER_LIMIT, "{added} were added, with a limit of {HIGHER_LIMIT}");
                assert_eq!(counter.exact(), added);
            },
        );
    }

    /// The large one looks at all cells while the small one may not be in its cell yet, and the other way round.
    #[test]
    fn large_amount_and_a_small_one_beyond_the_limit_are_not_both_added() {
        check(
            4,
            || Counter::new(2),
            &[
                |counter: &Counter| {
                    if counter.try_add(HIGHER_LIMIT, HIGHER_LIMIT) { HIGHER_LIMIT } else { 0 }
                },
                |counter| add_more(counter, 1),
            ],
            |counter, added| {
                assert!(added <= HIGHER_LIMIT, "{added} were added, with a limit of {HIGHER_LIMIT}");
                assert_eq!(counter.exact(), added);
            },
        );
    }

    #[test]
    fn nothing_is_lost_between_cells_and_the_global_part() {
        check(
            4,
            || Counter::new(2),
            &[
                |counter: &Counter| {
                    (0..3).for_each(|_| counter.increment());
                    3
                },
                |counter| {
                    counter.add(2);
                    counter.decrement();
                    1
                },
            ],
            |counter, added| {
                assert_eq!(counter.exact(), added);
                assert!((counter.approximate() - added).abs() < counter.error_max());
            },
        );
    }
}

mod reference {
    use super::check;
    use super::per_cpu::reference::{PerCpuRef, Put};

    fn gathered(references: i64) -> PerCpuRef {
        let count = PerCpuRef::new();
        (1..references).for_each(|_| count.get());
        count
    }

    fn spread(references: i64) -> PerCpuRef {
        let count = gathered(references);
        count.spread();
        count
    }

    fn told(put: Put) -> i64 {
        i64::from(put == Put::Last)
    }

    /// The owner gathers and gives its reference back.
    fn disown(count: &PerCpuRef) -> i64 {
        told(count.disown())
    }

    /// Who has one reference takes another one, and gives back both.
    fn use_and_put(count: &PerCpuRef) -> i64 {
        count.get();
        assert_eq!(count.put(), Put::Others, "there is another reference");
        told(count.put())
    }

    fn last_was_told_once(count: &PerCpuRef, told: i64) {
        assert_eq!((told, count.value()), (1, 0));
    }

    #[test]
    fn last_is_told_once_while_the_count_is_gathered() {
        check(4, || spread(2), &[disown, use_and_put], last_was_told_once);
    }

    #[test]
    fn last_of_three_processors_is_told_once() {
        check(2, || spread(3), &[disown, use_and_put, |count| told(count.put())], last_was_told_once);
    }

    #[test]
    fn last_is_told_once_while_the_count_is_spread_and_gathered() {
        check(
            3,
            || gathered(2),
            &[
                |count: &PerCpuRef| {
                    count.spread();
                    disown(count)
                },
                use_and_put,
            ],
            last_was_told_once,
        );
    }

    #[test]
    fn a_second_gathering_counts_only_what_came_after_the_first() {
        check(
            2,
            || spread(2),
            &[
                |count: &PerCpuRef| {
                    assert!(count.gather());
                    count.spread();
                    disown(count)
                },
                use_and_put,
            ],
            last_was_told_once,
        );
    }
}

mod quota {
    use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use super::check;
    use super::per_cpu::quota::Quota;

    /// Three CPUs with batches of one take ahead while 3 are left.
    const LIMIT: u64 = 5;

    struct Taken {
        quota: Quota,
        held: AtomicU64,
    }

    fn unused() -> Taken {
        Taken { quota: Quota::try_new(LIMIT).unwrap(), held: AtomicU64::new(0) }
    }

    impl Taken {
        fn take(&self, amount: u64) -> bool {
            let taken = self.quota.take(amount);
            if taken {
                let held = self.held.fetch_add(amount, SeqCst) + amount;
                assert!(held <= LIMIT, "{held} of {LIMIT} are taken");
            }
            taken
        }

        fn give_back(&self, amount: u64) {
            self.held.fetch_sub(amount, SeqCst);
            self.quota.give_back(amount);
        }
    }

    fn nothing_was_lost(taken: &Taken, _: i64) {
        let held = taken.held.load(SeqCst);
        assert_eq!(taken.quota.used(), held);
        assert!(
            taken.quota.take(LIMIT - held) && !taken.quota.take(1),
            "all of the rest can be taken, and no more"
        );
    }

    #[test]
    fn limit_holds_while_others_take_ahead() {
        check(
            3,
            unused,
            &[
                |taken| {
                    taken.take(1);
                    taken.take(3);
                    0
                },
                |taken| {
                    taken.take(1);
                    taken.take(2);
                    0
                },
            ],
            nothing_was_lost,
        );
    }

    #[test]
    fn nothing_is_lost_when_spares_are_returned_and_collected() {
        check(
            3,
            unused,
            &[
                |taken| {
                    if taken.take(3) {
                        taken.give_back(3);
                    }
                    0
                },
                |taken| {
                    if taken.take(4) {
                        taken.give_back(4);
                    }
                    0
                },
            ],
            nothing_was_lost,
        );
    }
}
