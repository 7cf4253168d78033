//! A growing table of counted references that is read without a lock: descriptors and the like.
//!
//! # Owners
//! Who may take references out of a table holds an [`Owner`] token of it; mostly there is one, a thread. Others may only look, by
//! [`ArcTable::get_foreign`], which takes the writers' lock.
//!
//! # Looking up
//! - *One owner.* Nobody else can take anything out, and the owner is inside this look-up: it borrows what the slot refers to, with
//!   neither an atomic operation nor a count ([`Reference::Lent`]). The borrow lives as long as that of the token. Should the owner take
//!   the reference out in spite of it, the object is parked until a removal finds nothing lent: `lent`, which only the owner writes,
//!   tells that. So a wrong order of calls costs memory for a while and is never unsound.
//! - *Several owners.* Under RCU: load the array, load the slot, and raise the object's count unless it is zero already, which means that the slot
//!   has just changed: look again. The memory of an object that was taken out while there were several owners stays for a grace
//!   period: a weak reference to it is dropped later, while the object itself ends with its last reference, as ever.
//!
//! Only an owner makes more owners, in its own thread, after which it borrows nothing any more; what it has borrowed before stays
//! visible as lent to the new one, which gets its token from it. A number of owners that falls back to one is seen by the last one
//! after everything the others did (Release in [`ArcTable::release`], Acquire in the look-up).
//!
//! # Growth
//! Under the lock: a larger array gets references of its own, is published, and only then is the old one emptied, so that a reader
//! who finds nothing in an array that is no longer the current one looks again. The old array's memory goes after a grace period.
//!
//! # Costs
//! One owner: four loads and two stores. Several: two loads and one compare-and-exchange, and the decrement at the end.
//!
//! `tests/table_models.rs` compiles this file against loom's atomics.

use alloc::boxed::Box;
#[cfg(not(all(loom, test)))]
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr;
#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

#[cfg(all(loom, test))]
use crate::counted::{Arc, Weak};
#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::rcu::{self, Pointer, RcuBox};
use crate::{Identifiers, SpinLock, SpinLockGuard};

static IDS: Identifiers = Identifiers::new();

/// The slots. A pointer that is not null came from `Arc::into_raw`, and the array has that reference. Who drops an array has emptied it:
/// looking through all slots again would cost more than most tables' whole lives.
struct Array<T> {
    slots: Box<[AtomicPtr<T>]>,
}

impl<T> Array<T> {
    /// Takes a reference out, and puts another one or nothing into its place.
    ///
    /// # Safety
    /// Nobody else changes slots at the same time.
    #[inline(always)]
    unsafe fn replace(&self, index: usize, new: Option<Arc<T>>) -> Option<Arc<T>> {
        let slot = self.slots.get(index)?;
        // Acquire: pairs with the Release of whoever filled the slot.
        let old = slot.load(Ordering::Acquire);
        // Release: publishes the new object's contents.
        slot.store(new.map_or(ptr::null_mut(), |new| Arc::into_raw(new).cast_mut()), Ordering::Release);
        // SAFETY: the array had a reference to it, and as nobody else changes the slot it is ours alone now.
        (!old.is_null()).then(|| unsafe { Arc::from_raw(old) })
    }
}

/// An array that is not in use yet.
pub struct Room<T: Send + Sync + 'static> {
    /// There until it is used.
    array: Option<RcuBox<Array<T>>>,
    filled: usize,
}

impl<T: Send + Sync + 'static> Room<T> {
    /// Room for so many references, unless there is no memory for it.
    pub fn try_new(length: usize) -> Option<Self> {
        let mut slots = Vec::new();
        slots.try_reserve_exact(length).ok()?;
        slots.resize_with(length, || AtomicPtr::new(ptr::null_mut()));
        let array = RcuBox::try_new(Array { slots: slots.into_boxed_slice() })?;
        Some(Self { array: Some(array), filled: 0 })
    }

    /// Puts a reference into a slot that there is; gives back what was in it.
    pub fn put(&mut self, index: usize, object: Arc<T>) -> Option<Arc<T>> {
        let array = self.array.as_ref()?;
        if index >= array.slots.len() {
            return Some(object);
        }
        // SAFETY: nobody else has the array, and `&mut` keeps others away.
        let old = unsafe { array.replace(index, Some(object)) };
        self.filled += usize::from(old.is_none());
        old
    }

    fn length(&self) -> usize {
        self.array.as_ref().map_or(0, |array| array.slots.len())
    }

    /// Drops what was put into it.
    fn empty(&mut self) {
        let Some(array) = self.array.as_ref().filter(|_| self.filled > 0) else { return };
        // SAFETY: nobody else has the array, and `&mut` keeps others away.
        (0..array.slots.len()).for_each(|index| drop(unsafe { array.replace(index, None) }));
        self.filled = 0;
    }
}

impl<T: Send + Sync + 'static> Drop for Room<T> {
    fn drop(&mut self) {
        self.empty();
    }
}

/// The proof that the thread with a table's last token has died without giving it back.
pub struct OwnerDied(());

impl OwnerDied {
    /// Such a proof.
    ///
    /// # Safety
    /// The thread never runs again, and it is used for tables only that this thread alone owned.
    pub unsafe fn new() -> Self {
        Self(())
    }
}

/// The right to take references out of one table. For one thread at a time.
pub struct Owner {
    /// No table has the number 0: the right was given up.
    table: u64,
    not_sync: PhantomData<Cell<()>>,
}

/// What only writers touch.
struct Locked<T, X> {
    extra: X,
    /// Slots with something in them.
    filled: usize,
    /// Objects that were taken out while something was lent.
    parked: Vec<Arc<T>>,
}

/// A table; `X` is what its users keep beside it, under the same lock.
pub struct ArcTable<T: Send + Sync + 'static, X> {
    id: u64,
    array: Pointer<Array<T>>,
    owners: AtomicU32,
    /// References that the only owner has borrowed. Written by it alone.
    lent: AtomicU32,
    locked: SpinLock<Locked<T, X>>,
}

/// What a look-up found.
pub enum Reference<'a, T> {
    /// Borrowed from a table with one owner.
    Lent(Lent<'a, T>),
    /// A reference of its own.
    Counted(Arc<T>),
}

/// A reference that belongs to the table.
pub struct Lent<'a, T> {
    /// The table's own reference; never dropped here.
    object: ManuallyDrop<Arc<T>>,
    lent: &'a AtomicU32,
    // The borrow may not go to another thread: the count is its owner's alone.
    not_send: PhantomData<*const ()>,
}

impl<T> Drop for Lent<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // No read-modify-write: nobody else writes it. Release: pairs with the Acquire of who takes the object out.
        self.lent.store(self.lent.load(Ordering::Relaxed) - 1, Ordering::Release);
    }
}

impl<T> Deref for Reference<'_, T> {
    type Target = Arc<T>;
    #[inline(always)]
    fn deref(&self) -> &Arc<T> {
        match self {
            Self::Lent(lent) => &lent.object,
            Self::Counted(object) => object,
        }
    }
}

impl<T> Reference<'_, T> {
    /// A reference of its own, for what outlives the borrow.
    pub fn counted(self) -> Arc<T> {
        match self {
            Self::Lent(lent) => (*lent.object).clone(),
            Self::Counted(object) => object,
        }
    }
}

impl<T: Send + Sync + 'static, X> ArcTable<T, X> {
    /// A table without slots.
    pub fn new(extra: X) -> Self {
        Self {
            id: IDS.take(),
            array: Pointer::null(),
            owners: AtomicU32::new(0),
            lent: AtomicU32::new(0),
            locked: SpinLock::new(Locked { extra, filled: 0, parked: Vec::new() }),
        }
    }

    /// A number that no other table has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The right of the first owner. None if there is one already, or was.
    pub fn first_owner(&self) -> Option<Owner> {
        let first = self.owners.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        first.is_ok().then_some(Owner { table: self.id, not_sync: PhantomData })
    }

    /// The right of an owner that died: nobody looks at what it had borrowed any more.
    pub fn inherit(&self, _: &OwnerDied) -> Owner {
        self.lent.store(0, Ordering::Relaxed);
        self.owners.store(1, Ordering::Release);
        Owner { table: self.id, not_sync: PhantomData }
    }

    /// How many owners there are.
    pub fn owners(&self) -> u32 {
        self.owners.load(Ordering::Relaxed)
    }

    /// One more owner. From now on nothing is lent.
    pub fn share(&self, owner: &Owner) -> Owner {
        self.check(owner);
        // Relaxed: the token that comes of it carries the order to whoever gets it.
        self.owners.fetch_add(1, Ordering::Relaxed);
        Owner { table: self.id, not_sync: PhantomData }
    }

    /// Gives up a right, which is worth nothing any more; returns whether it was the last one.
    pub fn release(&self, owner: &mut Owner) -> bool {
        self.check(owner);
        owner.table = 0;
        // Release: pairs with the Acquire in `is_alone`.
        self.owners.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether this owner is the only one.
    #[inline(always)]
    fn is_alone(&self, owner: &Owner) -> bool {
        self.check(owner);
        // Acquire: pairs with the Release in `release`.
        self.owners.load(Ordering::Acquire) == 1
    }

    #[inline(always)]
    fn check(&self, owner: &Owner) {
        assert!(owner.table == self.id, "an owner of another table");
    }

    /// What the only owner finds in a slot: a reference of the table's.
    ///
    /// # Safety
    /// The caller has the only owner's token.
    #[inline(always)]
    unsafe fn slot_of_only_owner(&self, index: usize) -> Option<*const T> {
        // SAFETY: arrays are replaced by owners only, and the only one is here.
        let array = unsafe { self.array.read_unguarded() }?;
        // Acquire: pairs with the Release in `Array::replace`, by which another thread may have filled the slot.
        let object = array.slots.get(index)?.load(Ordering::Acquire);
        (!object.is_null()).then_some(object.cast_const())
    }

    /// What an owner finds in a slot.
    #[inline(always)]
    pub fn look_up<'a>(&'a self, owner: &'a Owner, index: usize) -> Option<Reference<'a, T>> {
        if !self.is_alone(owner) {
            return self.get_shared(index).map(Reference::Counted);
        }
        // SAFETY: its token was just looked at.
        let object = unsafe { self.slot_of_only_owner(index) }?;
        // SAFETY: the pointer came from `Arc::into_raw`, and this reference is the table's: it is never dropped here. The
        // table's is taken out by owners only. The only one is here; should it do that while the borrow lives, which keeps
        // the token from leaving this thread, `replace` finds the count below raised and parks the object. Owners that come
        // later find it raised as well: they got their token after this.
        let object = ManuallyDrop::new(unsafe { Arc::from_raw(object) });
        // Relaxed, and no read-modify-write: nobody else writes it.
        self.lent.store(self.lent.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(Reference::Lent(Lent { object, lent: &self.lent, not_send: PhantomData }))
    }

    /// A reference of its own to what an owner finds in a slot.
    #[inline(always)]
    pub fn get(&self, owner: &Owner, index: usize) -> Option<Arc<T>> {
        if !self.is_alone(owner) {
            return self.get_shared(index);
        }
        // SAFETY: the token was just looked at. The pointer came from `Arc::into_raw`, and the table's reference, which only this
        // owner can take out, is there until the new one is counted.
        unsafe {
            let object = self.slot_of_only_owner(index)?;
            Arc::increment_strong_count(object);
            Some(Arc::from_raw(object))
        }
    }

    /// The look-up of a table with several owners.
    #[inline(never)]
    fn get_shared(&self, index: usize) -> Option<Arc<T>> {
        loop {
            let guard = rcu::read();
            let array = self.array.read(&guard)?;
            // Acquire: pairs with the Release in `Array::replace`.
            let object = array.slots.get(index)?.load(Ordering::Acquire);
            if object.is_null() {
                // An array that has been replaced is emptied afterwards: then the slot's contents are in the new one.
                if self.array.read(&guard).is_some_and(|now| ptr::eq(now, array)) {
                    return None;
                }
                continue;
            }
            // SAFETY: the pointer came from `Arc::into_raw`. Its memory is still there: while there are several owners, a weak
            // reference to what was taken out is kept for a grace period, which the guard holds up. This one is never dropped.
            let weak = ManuallyDrop::new(unsafe { Weak::from_raw(object) });
            if let Some(object) = weak.upgrade() {
                return Some(object);
            }
            // Its last reference went while we looked, so the slot has changed: once more.
            machine::cpu::relax();
        }
    }

    /// A reference of its own to what is in a slot, for those who are no owners. Takes the writers' lock.
    pub fn get_foreign(&self, index: usize) -> Option<Arc<T>> {
        self.write().get(index)
    }

    /// Keeps other writers away.
    #[inline]
    pub fn write(&self) -> Writer<'_, T, X> {
        Writer { table: self, locked: self.locked.lock() }
    }

    /// Empties a table that nobody else has.
    fn drain(&mut self) {
        let filled = self.locked.get_mut().filled;
        // SAFETY: `&mut` keeps those away who could replace it.
        let Some(array) = (unsafe { self.array.read_unguarded() }).filter(|_| filled > 0) else { return };
        for index in 0..array.slots.len() {
            // What ends with its last reference may sleep: there is no lock and no read section here.
            // SAFETY: as above.
            drop(unsafe { array.replace(index, None) });
        }
    }
}

impl<T: Send + Sync + 'static, X> Drop for ArcTable<T, X> {
    fn drop(&mut self) {
        // The array itself goes after a grace period; what it refers to need not wait.
        self.drain();
    }
}

/// The writers' lock of a table, held.
pub struct Writer<'a, T: Send + Sync + 'static, X> {
    table: &'a ArcTable<T, X>,
    locked: SpinLockGuard<'a, Locked<T, X>>,
}

impl<T: Send + Sync + 'static, X> Deref for Writer<'_, T, X> {
    type Target = X;
    fn deref(&self) -> &X {
        &self.locked.extra
    }
}

impl<T: Send + Sync + 'static, X> DerefMut for Writer<'_, T, X> {
    fn deref_mut(&mut self) -> &mut X {
        &mut self.locked.extra
    }
}

impl<T: Send + Sync + 'static, X> Writer<'_, T, X> {
    fn array(&self) -> Option<&Array<T>> {
        // SAFETY: arrays are replaced under the lock, which is held as long as the reference lives.
        unsafe { self.table.array.read_unguarded() }
    }

    /// The number of slots.
    pub fn length(&self) -> usize {
        self.array().map_or(0, |array| array.slots.len())
    }

    /// Whether there is something in a slot.
    pub fn is_filled(&self, index: usize) -> bool {
        let slot = self.array().and_then(|array| array.slots.get(index));
        slot.is_some_and(|slot| !slot.load(Ordering::Relaxed).is_null())
    }

    /// A reference of its own to what is in a slot.
    pub fn get(&self, index: usize) -> Option<Arc<T>> {
        let object = self.array()?.slots.get(index)?.load(Ordering::Acquire);
        // SAFETY: references are taken out under the lock, which is held, so the array has one; and it came from an `Arc`.
        (!object.is_null()).then(|| unsafe {
            Arc::increment_strong_count(object);
            Arc::from_raw(object)
        })
    }

    /// Fills an empty slot. Gives the reference back if there is no such slot, or something is in it.
    #[inline]
    pub fn fill(&mut self, index: usize, object: Arc<T>) -> Result<(), Arc<T>> {
        match self.array().and_then(|array| array.slots.get(index)) {
            Some(slot) if slot.load(Ordering::Relaxed).is_null() => {
                // Release: publishes the object's contents. Nobody else fills slots: the lock is held.
                slot.store(Arc::into_raw(object).cast_mut(), Ordering::Release);
            }
            _ => return Err(object),
        }
        self.locked.filled += 1;
        Ok(())
    }

    /// Puts something else, or nothing, into a slot that there is; readers see the one or the other. What was there is for
    /// [`Taken::finish`], without the lock.
    #[inline]
    pub fn replace(&mut self, owner: &Owner, index: usize, new: Option<Arc<T>>) -> Option<Taken<T>> {
        let mut rest = if self.table.is_alone(owner) { 0 } else { GRACE_PERIOD };
        let adds = usize::from(new.is_some());
        let array = self.array()?;
        if index >= array.slots.len() {
            return None;
        }
        // SAFETY: slots are changed under the lock, which is held.
        let object = unsafe { array.replace(index, new) };
        self.locked.filled = self.locked.filled + adds - usize::from(object.is_some());
        let object = object?;
        // What is lent by others was lent before this owner got its token. Acquire: pairs with the Release in `Lent::drop`.
        if self.table.lent.load(Ordering::Acquire) != 0 {
            self.park(&object);
        } else if !self.locked.parked.is_empty() {
            rest |= PARKED;
        }
        Some(Taken { object, rest })
    }

    /// Parks an object, as something is lent.
    #[cold]
    #[inline(never)]
    fn park(&mut self, object: &Arc<T>) {
        if self.locked.parked.try_reserve(1).is_ok() {
            self.locked.parked.push(object.clone());
        } else {
            // It stays for ever: better than to go while it is looked at.
            core::mem::forget(object.clone());
        }
    }

    /// Moves everything into a larger array; one that is not larger goes unused. Both are freed later.
    pub fn grow(&mut self, mut room: Room<T>) {
        let length = self.array().map(|old| old.slots.len());
        if length.is_some_and(|length| room.length() <= length) {
            return;
        }
        if length.is_some() {
            room.empty();
        }
        let Some(array) = room.array.take() else { return };
        let Some(length) = length else {
            self.locked.filled = room.filled;
            self.table.array.replace(Some(array));
            return;
        };
        for index in 0..length {
            // SAFETY: nobody else has the new array.
            drop(unsafe { array.replace(index, self.get(index)) });
        }
        // So that it is there until it has been emptied.
        let guard = rcu::read();
        let old = self.table.array.read(&guard);
        self.table.array.replace(Some(array));
        if let Some(old) = old {
            // None of these is the last reference: the new array has one.
            // SAFETY: slots are changed under the lock, which is held.
            (0..old.slots.len()).for_each(|index| drop(unsafe { old.replace(index, None) }));
        }
    }
}

/// In what is left to be done: the object's memory must outlive a grace period.
const GRACE_PERIOD: u8 = 1;
/// And: nothing is lent any more, so what was parked can go.
const PARKED: u8 = 2;

/// What was taken out of a table. Two words: it is returned in registers.
#[must_use = "its memory must outlive the readers"]
pub struct Taken<T: Send + Sync + 'static> {
    object: Arc<T>,
    /// What is left to be done without the lock.
    rest: u8,
}

impl<T: Send + Sync + 'static> Taken<T> {
    /// The reference that the table had. If it had several owners, sees to it that the object's memory outlives those who may still be
    /// looking at it. May wait where there is no memory for that.
    #[inline(always)]
    pub fn finish<X>(self, table: &ArcTable<T, X>) -> Arc<T> {
        if self.rest != 0 {
            self.do_rest(table);
        }
        self.object
    }

    #[cold]
    #[inline(never)]
    fn do_rest<X>(&self, table: &ArcTable<T, X>) {
        if self.rest & GRACE_PERIOD != 0 {
            rcu::drop_later(Arc::downgrade(&self.object));
        }
        if self.rest & PARKED != 0 {
            let mut locked = table.locked.lock();
            // Acquire: as in `Writer::replace`.
            let idle = table.lent.load(Ordering::Acquire) == 0;
            let parked = if idle { core::mem::take(&mut locked.parked) } else { Vec::new() };
            drop(locked);
            drop(parked);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn table(length: usize) -> (ArcTable<u32, ()>, Owner) {
        let table = ArcTable::new(());
        table.write().grow(Room::try_new(length).unwrap());
        let owner = table.first_owner().unwrap();
        (table, owner)
    }

    #[test]
    fn table_with_one_owner_lends() {
        let (table, owner) = table(4);
        let object = Arc::new(7);
        assert!(table.write().fill(1, object.clone()).is_ok());
        let found = table.look_up(&owner, 1).unwrap();
        assert!(matches!(found, Reference::Lent(_)));
        assert_eq!((**found, Arc::strong_count(&object)), (7, 2));
        assert!(Arc::ptr_eq(&found.counted(), &object));
        assert!(table.look_up(&owner, 0).is_none());
        assert!(table.look_up(&owner, 4).is_none());
    }

    #[test]
    fn what_is_lent_survives_its_removal() {
        let (table, owner) = table(4);
        assert!(table.write().fill(1, Arc::new(7)).is_ok());
        let found = table.look_up(&owner, 1).unwrap();
        let taken = table.write().replace(&owner, 1, None).unwrap();
        let weak = Arc::downgrade(&taken.finish(&table));
        assert_eq!(**found, 7);
        drop(found);
        assert!(weak.upgrade().is_some());
        // The next removal lets go of it.
        assert!(table.write().fill(2, Arc::new(8)).is_ok());
        let taken = table.write().replace(&owner, 2, None).unwrap();
        drop(taken.finish(&table));
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn table_with_two_owners_counts() {
        let (table, mut owner) = table(4);
        assert!(table.write().fill(1, Arc::new(7)).is_ok());
        let mut other = table.share(&owner);
        assert!(matches!(table.look_up(&owner, 1), Some(Reference::Counted(_))));
        assert!(!table.release(&mut other));
        assert!(matches!(table.look_up(&owner, 1), Some(Reference::Lent(_))));
        assert!(table.release(&mut owner));
        assert!(table.first_owner().is_some());
    }

    #[test]
    fn object_ends_with_its_last_reference_and_not_a_grace_period_later() {
        let (table, owner) = table(4);
        let other = table.share(&owner);
        let object = Arc::new(7);
        let weak = Arc::downgrade(&object);
        assert!(table.write().fill(1, object).is_ok());
        let guard = rcu::read();
        let taken = table.write().replace(&other, 1, None).unwrap();
        drop(taken.finish(&table));
        assert!(weak.upgrade().is_none());
        drop(guard);
    }

    #[test]
    fn growth_keeps_what_is_there() {
        let (table, owner) = table(2);
        assert!(table.write().fill(1, Arc::new(7)).is_ok());
        assert_eq!(table.write().fill(2, Arc::new(8)).map_err(|object| *object), Err(8));
        table.write().grow(Room::try_new(8).unwrap());
        assert_eq!(table.write().length(), 8);
        assert_eq!(table.get(&owner, 1).map(|object| *object), Some(7));
        table.write().grow(Room::try_new(4).unwrap());
        assert_eq!(table.write().length(), 8);
    }

    #[test]
    fn references_of_a_table_end_with_it_and_those_of_unused_room_too() {
        let object = Arc::new(7);
        let count = || Arc::strong_count(&object);
        let (table, owner) = table(2);
        assert!(table.write().fill(0, object.clone()).is_ok());
        assert!(table.write().fill(1, object.clone()).is_ok());
        assert_eq!(table.write().fill(2, object.clone()).map_err(|object| *object), Err(7));
        let mut room = Room::try_new(4).unwrap();
        assert!(room.put(3, object.clone()).is_none() && room.put(4, object.clone()).is_some());
        assert_eq!(count(), 4);
        table.write().grow(room);
        assert_eq!((count(), table.write().is_filled(3)), (3, false));
        drop(table.write().replace(&owner, 0, None).unwrap().finish(&table));
        assert!(table.write().replace(&owner, 0, Some(object.clone())).is_none());
        assert!(table.write().replace(&owner, 4, Some(object.clone())).is_none());
        let taken = table.write().replace(&owner, 1, Some(object.clone())).unwrap();
        drop(taken.finish(&table));
        assert_eq!(count(), 3);
        drop(table);
        assert_eq!(count(), 1);
        let mut room = Room::try_new(1).unwrap();
        room.put(0, object.clone());
        let fresh: ArcTable<u32, ()> = ArcTable::new(());
        fresh.write().grow(room);
        assert_eq!(count(), 2);
        drop(fresh);
        assert_eq!(count(), 1);
    }

    #[test]
    fn stable_slot_is_never_missed_while_others_change_and_the_table_grows() {
        let (table, owner) = table(2);
        assert!(table.write().fill(1, Arc::new(7)).is_ok());
        let other = table.share(&owner);
        let rounds: usize = if cfg!(miri) { 20 } else { 2_000 };
        std::thread::scope(|scope| {
            let table = &table;
            scope.spawn(move || {
                for round in 0..rounds {
                    let old = table.write().replace(&other, 0, Some(Arc::new(round as u32)));
                    drop(old.map(|old| old.finish(table)));
                    if round % 16 == 0 {
                        table.write().grow(Room::try_new(2 + round / 16).unwrap());
                    }
                }
            });
            for _ in 0..rounds {
                assert_eq!(table.get_shared(1).as_deref(), Some(&7));
                if let Some(object) = table.get_shared(0) {
                    assert!((*object as usize) < rounds);
                }
            }
        });
    }

    #[test]
    #[should_panic(expected = "an owner of another table")]
    fn right_that_was_given_up_is_worth_nothing() {
        let (table, mut owner) = table(1);
        table.release(&mut owner);
        let _ = table.look_up(&owner, 0);
    }

    #[test]
    #[should_panic(expected = "an owner of another table")]
    fn owner_of_another_table_is_refused() {
        let (_, owner) = table(1);
        let (other, _) = table(1);
        let _ = other.look_up(&owner, 0);
    }
}
