//! The table of counted references under loom: `RUSTFLAGS="--cfg loom" cargo test --release -p sync --test table_models`.
//!
//! `arc_table` is the crate's own source, compiled against loom's atomics and stand-ins for what it stands on. References
//! are counted by atomics of loom's, and what they refer to is never given back here but marked: who touches it after its end, or in
//! no order with its end, is found out. A grace period is the wait until every thread has ended the read section that it is in.
#![cfg(loom)]

extern crate alloc;
// The table's source says `machine::cpu`; here that is the stand-in below.
extern crate self as machine;

#[path = "../src/arc_table.rs"]
#[allow(dead_code, unreachable_pub, reason = "the models use a part of it")]
mod arc_table;

use loom::sync::{Mutex, MutexGuard};

/// What the table needs of crate `machine`.
pub mod cpu {
    use std::cell::Cell;

    /// Threads of the models, each on a processor of its own.
    pub const CPUS: usize = 3;

    loom::thread_local! {
        static THIS: Cell<usize> = Cell::new(0);
    }

    /// The processor that this thread plays.
    pub fn this() -> usize {
        THIS.with(Cell::get)
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

/// Memory that is there until it is given back: who touches it must be before that, by the program's order and not by chance.
struct Memory {
    given_back: loom::cell::Cell<bool>,
}

impl Memory {
    fn new() -> Self {
        Self { given_back: loom::cell::Cell::new(false) }
    }

    fn touch(&self) {
        assert!(!self.given_back.get(), "memory is touched that was given back");
    }

    fn give_back(&self) {
        self.touch();
        self.given_back.set(true);
    }
}

/// References that are counted, as the library's are.
pub mod counted {
    use std::mem::ManuallyDrop;
    use std::ops::Deref;
    use std::ptr::NonNull;

    use loom::sync::atomic::{AtomicUsize, Ordering, fence};

    use super::Memory;

    /// The object first, so that its address is the whole's.
    #[repr(C)]
    struct Counts<T> {
        object: ManuallyDrop<T>,
        strong: AtomicUsize,
        weak: AtomicUsize,
        /// Of the object itself, and of all this.
        alive: Memory,
        memory: Memory,
    }

    pub struct Arc<T>(NonNull<Counts<T>>);
    pub struct Weak<T>(NonNull<Counts<T>>);

    // SAFETY: loom checks every access to what they refer to.
    unsafe impl<T: Send + Sync> Send for Arc<T> {}
    // SAFETY: as above.
    unsafe impl<T: Send + Sync> Sync for Arc<T> {}
    // SAFETY: as above.
    unsafe impl<T: Send + Sync> Send for Weak<T> {}

    fn counts<T>(counts: &NonNull<Counts<T>>) -> &Counts<T> {
        // SAFETY: it is never given back.
        let counts = unsafe { counts.as_ref() };
        counts.memory.touch();
        counts
    }

    impl<T> Arc<T> {
        pub(crate) fn new(object: T) -> Self {
            Self(NonNull::from(Box::leak(Box::new(Counts {
                object: ManuallyDrop::new(object),
                strong: AtomicUsize::new(1),
                weak: AtomicUsize::new(1),
                alive: Memory::new(),
                memory: Memory::new(),
            }))))
        }

        pub(crate) fn into_raw(this: Self) -> *const T {
            ManuallyDrop::new(this).0.as_ptr().cast()
        }

        /// # Safety
        /// The pointer is one of `into_raw`'s, and hands its reference over.
        pub(crate) unsafe fn from_raw(object: *const T) -> Self {
            Self(NonNull::new(object.cast_mut().cast()).unwrap())
        }

        /// # Safety
        /// The pointer is one of `into_raw`'s, whose reference is still there.
        pub(crate) unsafe fn increment_strong_count(object: *const T) {
            // SAFETY: as the caller says; the reference is not this one's own.
            let this = ManuallyDrop::new(unsafe { Self::from_raw(object) });
            std::mem::forget((*this).clone());
        }

        pub(crate) fn downgrade(this: &Self) -> Weak<T> {
            counts(&this.0).weak.fetch_add(1, Ordering::Relaxed);
            Weak(this.0)
        }
    }

    impl<T> Clone for Arc<T> {
        fn clone(&self) -> Self {
            let before = counts(&self.0).strong.fetch_add(1, Ordering::Relaxed);
            assert!(before > 0, "a reference to what has ended");
            Self(self.0)
        }
    }

    impl<T> Deref for Arc<T> {
        type Target = T;
        fn deref(&self) -> &T {
            counts(&self.0).alive.touch();
            // SAFETY: it is never given back.
            unsafe { &self.0.as_ref().object }
        }
    }

    impl<T> Drop for Arc<T> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                return;
            }
            let counts = counts(&self.0);
            if counts.strong.fetch_sub(1, Ordering::Release) == 1 {
                fence(Ordering::Acquire);
                counts.alive.give_back();
                drop(Weak(self.0));
            }
        }
    }

    impl<T> Weak<T> {
        /// # Safety
        /// The pointer is one of `into_raw`'s, and hands its reference over.
        pub(crate) unsafe fn from_raw(object: *const T) -> Self {
            Self(NonNull::new(object.cast_mut().cast()).unwrap())
        }

        pub(crate) fn upgrade(&self) -> Option<Arc<T>> {
            let one_more = |strong: usize| (strong > 0).then_some(strong + 1);
            let strong = &counts(&self.0).strong;
            strong.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more).ok().map(|_| Arc(self.0))
        }
    }

    impl<T> Drop for Weak<T> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                return;
            }
            let counts = counts(&self.0);
            if counts.weak.fetch_sub(1, Ordering::Release) == 1 {
                fence(Ordering::Acquire);
                counts.memory.give_back();
            }
        }
    }
}

/// Read sections, and what waits for their end.
mod rcu {
    use std::cell::{Cell, RefCell};
    use std::ops::Deref;
    use std::ptr;

    use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};

    use super::Memory;
    use super::cpu::{self, CPUS};

    loom::lazy_static! {
        static ref READING: [AtomicBool; CPUS] = std::array::from_fn(|_| AtomicBool::new(false));
        static ref SECTIONS: [AtomicU64; CPUS] = std::array::from_fn(|_| AtomicU64::new(0));
    }

    loom::thread_local! {
        static DEPTH: Cell<u32> = Cell::new(0);
        /// What this thread does after the next grace period.
        static LATER: RefCell<Vec<Box<dyn FnOnce()>>> = RefCell::new(Vec::new());
    }

    pub(crate) struct Guard;

    pub(crate) fn read() -> Guard {
        DEPTH.with(|depth| {
            if depth.replace(depth.get() + 1) == 0 {
                READING[cpu::this()].store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
            }
        });
        Guard
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            DEPTH.with(|depth| {
                depth.set(depth.get() - 1);
                if depth.get() == 0 {
                    SECTIONS[cpu::this()].fetch_add(1, Ordering::Release);
                    READING[cpu::this()].store(false, Ordering::Release);
                }
            });
        }
    }

    fn later(act: impl FnOnce() + 'static) {
        LATER.with(|later| later.borrow_mut().push(Box::new(act)));
    }

    pub(crate) fn drop_later<D: 'static>(value: D) {
        later(move || drop(value));
    }

    /// Waits for a grace period, and does what this thread has put off.
    pub(crate) fn wait() {
        fence(Ordering::SeqCst);
        for cpu in (0..CPUS).filter(|&cpu| cpu != cpu::this()) {
            let before = SECTIONS[cpu].load(Ordering::Acquire);
            while READING[cpu].load(Ordering::Acquire) && SECTIONS[cpu].load(Ordering::Acquire) == before {
                cpu::relax();
            }
        }
        LATER.with(RefCell::take).into_iter().for_each(|act| act());
    }

    /// A value with its memory.
    pub(crate) struct RcuBox<T> {
        value: T,
        memory: Memory,
    }

    impl<T> RcuBox<T> {
        pub(crate) fn try_new(value: T) -> Option<Self> {
            Some(Self { value, memory: Memory::new() })
        }
    }

    impl<T> Deref for RcuBox<T> {
        type Target = T;
        fn deref(&self) -> &T {
            &self.value
        }
    }

    /// What is replaced is marked after a grace period.
    pub(crate) struct Pointer<T: 'static> {
        current: AtomicPtr<RcuBox<T>>,
    }

    impl<T: 'static> Pointer<T> {
        pub(crate) fn null() -> Self {
            Self { current: AtomicPtr::new(ptr::null_mut()) }
        }

        pub(crate) fn read<'guard>(&self, _: &'guard Guard) -> Option<&'guard T> {
            // SAFETY: it is never given back.
            let current = unsafe { self.current.load(Ordering::Acquire).as_ref() }?;
            current.memory.touch();
            Some(&current.value)
        }

        /// # Safety
        /// As for the real one.
        pub(crate) unsafe fn read_unguarded(&self) -> Option<&T> {
            // SAFETY: it is never given back.
            let current = unsafe { self.current.load(Ordering::Acquire).as_ref() }?;
            current.memory.touch();
            Some(&current.value)
        }

        pub(crate) fn replace(&self, new: Option<RcuBox<T>>) {
            let new = new.map_or(ptr::null_mut(), |new| Box::into_raw(Box::new(new)));
            let old = self.current.swap(new, Ordering::AcqRel);
            // SAFETY: it is never given back.
            if let Some(old) = unsafe { old.as_ref() } {
                later(|| old.memory.give_back());
            }
        }
    }
}

/// Where tables get their numbers from.
struct Identifiers;

impl Identifiers {
    const fn new() -> Self {
        Self
    }

    /// There is one table in each model.
    fn take(&self) -> u64 {
        1
    }
}

type SpinLockGuard<'a, T> = MutexGuard<'a, T>;

struct SpinLock<T>(Mutex<T>);

impl<T> SpinLock<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    fn lock(&self) -> SpinLockGuard<'_, T> {
        self.0.lock().unwrap()
    }

    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap()
    }
}

mod models {
    use loom::cell::Cell;

    use super::arc_table::{ArcTable, Owner, Reference, Room};
    use super::counted::Arc;
    use super::{cpu, rcu};

    /// What is in a table: loom complains about a look that is in no order with its making.
    struct Object(Cell<u32>);

    // SAFETY: loom checks that nobody looks at it while it is made.
    unsafe impl Sync for Object {}

    fn object(number: u32) -> Arc<Object> {
        let object = Object(Cell::new(0));
        object.0.set(number);
        Arc::new(object)
    }

    type Table = ArcTable<Object, ()>;

    /// Puts something else into a slot, and lets go of what was there.
    fn replace(table: &Table, owner: &Owner, index: usize, new: Option<Arc<Object>>) {
        let taken = table.write().replace(owner, index, new);
        drop(taken.map(|taken| taken.finish(table)));
    }

    fn number(found: Option<Reference<'_, Object>>) -> Option<u32> {
        found.map(|found| found.0.get())
    }

    /// Two owners of a table with 1 in its first slot and 2 in its second, each in a thread of its own.
    fn check(preemptions: usize, first: fn(&Table, &mut Owner), second: fn(&Table, &mut Owner)) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let table = loom::sync::Arc::new(ArcTable::new(()));
            table.write().grow(Room::try_new(2).unwrap());
            let mut owner = table.first_owner().unwrap();
            let mut other = table.share(&owner);
            for slot in [0, 1] {
                assert!(table.write().fill(slot, object(slot as u32 + 1)).is_ok());
            }
            let thread = {
                let table = table.clone();
                loom::thread::spawn(move || {
                    cpu::play(1);
                    second(&table, &mut other);
                    rcu::wait();
                })
            };
            first(&table, &mut owner);
            rcu::wait();
            thread.join().unwrap();
        });
    }

    #[test]
    fn what_is_found_stays_while_it_is_taken_out() {
        check(
            3,
            |table, owner| assert!(matches!(number(table.look_up(owner, 0)), None | Some(1))),
            |table, owner| replace(table, owner, 0, None),
        );
    }

    #[test]
    fn what_is_found_is_the_old_or_the_new_one() {
        check(
            3,
            |table, owner| assert!(matches!(number(table.look_up(owner, 0)), Some(1 | 3))),
            |table, owner| replace(table, owner, 0, Some(object(3))),
        );
    }

    #[test]
    fn what_is_put_into_an_empty_slot_is_seen_complete() {
        check(
            3,
            |table, owner| {
                replace(table, owner, 0, None);
                assert!(matches!(number(table.look_up(owner, 0)), None | Some(4)));
            },
            |table, _| drop(table.write().fill(0, object(4))),
        );
    }

    #[test]
    fn last_owner_borrows_nothing_that_another_one_took_out() {
        check(
            3,
            |table, owner| {
                assert!(matches!(number(table.look_up(owner, 0)), Some(1 | 3)));
                assert!(matches!(table.get(owner, 0).map(|object| object.0.get()), Some(1 | 3)));
            },
            |table, owner| {
                replace(table, owner, 0, Some(object(3)));
                assert!(!table.release(owner));
            },
        );
    }

    #[test]
    fn slot_that_nobody_changes_is_never_missed_while_the_table_grows() {
        check(
            3,
            |table, owner| assert_eq!(number(table.look_up(owner, 1)), Some(2)),
            |table, _| table.write().grow(Room::try_new(3).unwrap()),
        );
    }

    /// The borrow began while there was one owner, and goes on when there are two.
    #[test]
    fn what_is_lent_outlives_its_removal_by_a_later_owner() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(4);
        model.check(|| {
            let table = loom::sync::Arc::new(ArcTable::new(()));
            table.write().grow(Room::try_new(2).unwrap());
            let owner = table.first_owner().unwrap();
            for slot in [0, 1] {
                assert!(table.write().fill(slot, object(slot as u32 + 1)).is_ok());
            }
            let lent = table.look_up(&owner, 0).unwrap();
            assert!(matches!(lent, Reference::Lent(_)));
            let other = table.share(&owner);
            let thread = {
                let table = table.clone();
                loom::thread::spawn(move || {
                    cpu::play(1);
                    replace(&table, &other, 0, None);
                    // The second removal lets go of what was parked, if nothing is lent by then.
                    replace(&table, &other, 1, None);
                    rcu::wait();
                })
            };
            assert_eq!(lent.0.get(), 1);
            drop(lent);
            thread.join().unwrap();
        });
    }
}
