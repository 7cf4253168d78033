//! Room in a list behind a spin lock, made while the lock is free: allocating may take long, and others wait for the lock meanwhile.
//!
//! Whoever adds to such a list takes the lock with [`lock_with_room`]. Where other locks are held by then, it drops all of them if there is no
//! room ([`List::has_room`]), makes it, and begins again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::alloc::Layout;

use super::fail_point;
use crate::OutOfMemory;

/// A list that can move into a larger one.
pub trait List: Sized {
    /// What it may hold without allocating.
    fn capacity(&self) -> usize;
    /// What it holds.
    fn length(&self) -> usize;
    /// An empty one for so many elements.
    ///
    /// # Errors
    /// When there is no memory.
    fn with_room_for(elements: usize) -> Result<Self, OutOfMemory>;
    /// Takes all elements of another one, for which it has the room.
    fn take_all_of(&mut self, other: &mut Self);

    /// Whether an element can be added without allocating.
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.length() < self.capacity()
    }
}

impl<T> List for Vec<T> {
    #[inline(always)]
    fn capacity(&self) -> usize {
        self.capacity()
    }

    #[inline(always)]
    fn length(&self) -> usize {
        self.len()
    }

    fn with_room_for(elements: usize) -> Result<Self, OutOfMemory> {
        super::try_vec(elements)
    }

    fn take_all_of(&mut self, other: &mut Self) {
        self.append(other);
    }
}

impl<T> List for VecDeque<T> {
    #[inline(always)]
    fn capacity(&self) -> usize {
        self.capacity()
    }

    #[inline(always)]
    fn length(&self) -> usize {
        self.len()
    }

    fn with_room_for(elements: usize) -> Result<Self, OutOfMemory> {
        fail_point()?;
        crate::heap::prepare(Layout::array::<T>(elements).map_err(|_| OutOfMemory)?)?;
        let mut list = VecDeque::new();
        list.try_reserve_exact(elements).map_err(|_| OutOfMemory)?;
        Ok(list)
    }

    fn take_all_of(&mut self, other: &mut Self) {
        self.append(other);
    }
}

/// Elements of a list that gets its first memory.
const FIRST: usize = 4;

/// Takes the lock when the list behind it has room for `additional` more elements. What that takes is allocated while the lock is free.
///
/// # Errors
/// When there is no memory; the lock is free then.
#[inline]
#[track_caller]
pub fn lock_with_room<G, L: List>(
    lock: impl Fn() -> G,
    additional: usize,
    list: impl Fn(&mut G) -> &mut L,
) -> Result<G, OutOfMemory> {
    let mut guard = lock();
    loop {
        let present = list(&mut guard);
        if present.capacity() - present.length() >= additional {
            return Ok(guard);
        }
        let wanted = present.length() + additional.max(present.length()).max(FIRST);
        drop(guard);
        let mut larger = L::with_room_for(wanted)?;
        guard = lock();
        let present = list(&mut guard);
        // Others may have lengthened it meanwhile.
        if present.capacity() < larger.capacity() {
            larger.take_all_of(present);
            core::mem::swap(present, &mut larger);
        }
    }
}

/// A copy of the list behind a lock, for which memory is allocated while the lock is free.
///
/// # Errors
/// When there is no memory; the lock is free then.
#[inline]
#[track_caller]
pub fn copy_with_room<G, T: Clone>(
    lock: impl Fn() -> G,
    list: impl Fn(&G) -> &Vec<T>,
) -> Result<Vec<T>, OutOfMemory> {
    let mut copy = Vec::new();
    loop {
        let guard = lock();
        let present = list(&guard);
        if present.len() <= copy.capacity() {
            copy.extend_from_slice(present);
            return Ok(copy);
        }
        let wanted = present.len();
        drop(guard);
        copy = super::try_vec(wanted)?;
    }
}

#[cfg(test)]
mod tests {
    use sync::SpinLock;

    use super::*;

    #[test]
    fn a_list_keeps_its_elements_and_their_order_when_it_grows() {
        let (vector, queue) = (SpinLock::new(Vec::new()), SpinLock::new((0, VecDeque::new())));
        for number in 0..100 {
            lock_with_room(|| vector.lock(), 1, |list| &mut **list)
                .expect("nothing is injected")
                .push(number);
            let mut guard =
                lock_with_room(|| queue.lock(), 1, |pair| &mut pair.1).expect("nothing is injected");
            guard.1.push_back(number);
            if number % 3 == 0 {
                guard.0 += 1;
                let first = guard.1.pop_front();
                guard.1.extend(first);
            }
        }
        assert!(vector.lock().iter().copied().eq(0..100));
        let mut numbers: Vec<i32> = queue.lock().1.iter().copied().collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..100));
    }

    #[test]
    fn without_memory_the_list_is_unchanged_and_the_lock_is_free() {
        super::super::exhaust("room in a list", || {
            let list = SpinLock::new(Vec::new());
            for number in 0..20 {
                if let Ok(mut list) = lock_with_room(|| list.lock(), 1, |list| &mut **list) {
                    list.push(number);
                }
                assert!(!list.is_locked());
            }
            assert!(list.lock().iter().is_sorted());
        });
    }
}
