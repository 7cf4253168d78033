//! Ids and keys of objects.
//!
//! An id is a place in a table and a sequence number above it. Places are given out in turn, and the sequence number counts the turns, so an
//! id comes again only after many others: who still has that of a removed object gets EINVAL, not somebody else's object. The table that is in
//! turn is half as large again as the number of objects, and at least 64 places.
//!
//! **Locking.** Look-ups by id, which every operation begins with, write nothing that other processors read ([`LocalReadLock`]). Nothing is
//! allocated or freed while the table is locked. The object's own state is under the object's own locks.

use alloc::sync::Arc;
use alloc::vec::Vec;

use sync::LocalReadLock;

use crate::errno::{Errno, SysResult};

/// The key of objects that are not found by one.
pub const PRIVATE: i32 = 0;
/// In the flags of the get calls: make it if there is none.
pub const CREATE: i32 = 0o1000;
/// With CREATE: fail if there is one.
pub const EXCLUSIVE: i32 = 0o2000;

/// Most objects of a kind: places that an id has bits for.
pub const PLACES_MAX: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 15;
/// Sequence numbers begin again at 0 before this one.
const SEQUENCES: u32 = i32::MAX as u32 >> PLACE_BITS;
/// Places that are used in turn at least.
const TURN_LEAST: usize = 64;
/// Places that there is room for at first.
const ROOM_LEAST: usize = 16;

/// The sequence number in an id.
pub fn sequence_of(id: i32) -> u16 {
    (id >> PLACE_BITS) as u16
}

/// What a registry needs of its objects.
pub trait Registered {
    /// Tells the object its id, before anybody can find it.
    fn assign(&self, id: i32);
}

struct Place<T> {
    key: i32,
    id: i32,
    object: Option<Arc<T>>,
}

struct Table<T> {
    places: Vec<Place<T>>,
    used: usize,
    /// Where the search for a free place begins.
    next: usize,
    /// The place that was given out last.
    last: Option<usize>,
    sequence: u32,
}

/// The objects of one kind.
pub struct Registry<T> {
    table: LocalReadLock<Table<T>>,
}

/// Why an object was not entered.
pub enum Refused<T> {
    /// There is one with the key.
    Exists(Arc<T>),
    /// ENOSPC or ENOMEM.
    Error(Errno),
}

impl<T: Registered> Registry<T> {
    /// An empty one.
    pub const fn new() -> Self {
        let table = Table { places: Vec::new(), used: 0, next: 0, last: None, sequence: 0 };
        Registry { table: LocalReadLock::new(table) }
    }

    /// The object with an id; EINVAL when there is none.
    pub fn by_id(&self, id: i32) -> Result<Arc<T>, Errno> {
        let index = usize::try_from(id).map_err(|_| Errno::EINVAL)? % PLACES_MAX;
        let table = self.table.read_locally();
        let place = table.places.get(index).filter(|place| place.id == id).ok_or(Errno::EINVAL)?;
        place.object.clone().ok_or(Errno::EINVAL)
    }

    /// The object in a place, its key and its id; EINVAL when there is none.
    pub fn by_place(&self, index: i32) -> Result<(Arc<T>, i32, i32), Errno> {
        let index = usize::try_from(index).map_err(|_| Errno::EINVAL)? % PLACES_MAX;
        let table = self.table.read_locally();
        let place = table.places.get(index).ok_or(Errno::EINVAL)?;
        let object = place.object.clone().ok_or(Errno::EINVAL)?;
        Ok((object, place.key, place.id))
    }

    /// The object with a key.
    pub fn by_key(&self, key: i32) -> Option<Arc<T>> {
        if key == PRIVATE { None } else { self.table.read().find(key) }
    }

    /// The key of an object; [`PRIVATE`] if it is there no longer.
    pub fn key_of(&self, id: i32) -> i32 {
        let there = self.by_place(id).ok().filter(|(_, _, found)| *found == id);
        there.map_or(PRIVATE, |(_, key, _)| key)
    }

    /// Objects there are.
    pub fn count(&self) -> usize {
        self.table.read().used
    }

    /// The highest place in use.
    pub fn highest_place(&self) -> Option<usize> {
        self.table.read().places.iter().rposition(|place| place.object.is_some())
    }

    /// Calls `visit` with each object, its key and its id. No lock is held meanwhile.
    pub fn for_each(&self, mut visit: impl FnMut(&T, i32, i32)) {
        let end = self.highest_place().map_or(0, |highest| highest + 1);
        for index in 0..end as i32 {
            if let Ok((object, key, id)) = self.by_place(index) {
                visit(&object, key, id);
            }
        }
    }

    /// Enters a new object, of which there may be `limit`; returns its id.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn enter(&self, object: &Arc<T>, key: i32, limit: usize) -> Result<i32, Refused<T>> {
        let mut room = Vec::new();
        loop {
            let mut table = self.table.write();
            if let Some(existing) = table.find(key) {
                return Err(Refused::Exists(existing));
            }
            if table.used >= limit.min(PLACES_MAX) {
                return Err(Refused::Error(Errno::ENOSPC));
            }
            let index = table.free_place();
            if index < table.places.capacity() {
                return Ok(table.put(index, key, object));
            }
            if room.capacity() > table.places.capacity() {
                // What the table had before is freed after the lock.
                core::mem::swap(&mut table.places, &mut room);
                let table = &mut *table;
                table.places.append(&mut room);
                return Ok(table.put(index, key, object));
            }
            let wanted = (table.places.capacity() * 2).clamp(ROOM_LEAST, PLACES_MAX);
            drop(table);
            memory::fallible::try_reserve(&mut room, wanted).map_err(|_| Refused::Error(Errno::ENOMEM))?;
        }
    }

    /// Finds the object with a key, or makes one, as the flags of the get calls say; returns its id. `check` tells whether the caller may have one that
    /// there is, and its id.
    ///
    /// # Errors
    /// EEXIST, ENOENT, ENOSPC, ENOMEM, and what `check` and `make` fail with.
    pub fn find_or_make(
        &self,
        key: i32,
        flags: i32,
        limit: usize,
        check: impl Fn(&T) -> Result<i32, Errno>,
        make: impl FnOnce() -> Result<Arc<T>, Errno>,
    ) -> SysResult {
        let existing = |object: &T| match flags & (CREATE | EXCLUSIVE) == CREATE | EXCLUSIVE {
            true => Err(Errno::EEXIST),
            false => check(object).map(|id| id as usize),
        };
        if let Some(object) = self.by_key(key) {
            return existing(&object);
        }
        if key != PRIVATE && flags & CREATE == 0 {
            return Err(Errno::ENOENT);
        }
        match self.enter(&make()?, key, limit) {
            Ok(id) => Ok(id as usize),
            // Somebody else made one meanwhile.
            Err(Refused::Exists(other)) => existing(&other),
            Err(Refused::Error(errno)) => Err(errno),
        }
    }

    /// No key leads to the object any more.
    pub fn hide(&self, id: i32) {
        if let Some(place) = self.table.write().place_of(id) {
            place.key = PRIVATE;
        }
    }

    /// Takes an object out.
    pub fn remove(&self, id: i32) -> Option<Arc<T>> {
        let mut table = self.table.write();
        let object = table.place_of(id)?.object.take();
        table.used -= usize::from(object.is_some());
        object
    }
}

impl<T: Registered> Default for Registry<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Registered> Table<T> {
    fn find(&self, key: i32) -> Option<Arc<T>> {
        if key == PRIVATE {
            return None;
        }
        self.places.iter().filter(|place| place.key == key).find_map(|place| place.object.clone())
    }

    fn place_of(&mut self, id: i32) -> Option<&mut Place<T>> {
        let index = usize::try_from(id).ok()? % PLACES_MAX;
        self.places.get_mut(index).filter(|place| place.id == id)
    }

    /// The next free place in turn. There are fewer objects than places.
    fn free_place(&self) -> usize {
        let turn = (self.used * 3 / 2).clamp(TURN_LEAST, PLACES_MAX);
        let is_free = |index: &usize| self.places.get(*index).is_none_or(|place| place.object.is_none());
        let found = (self.next..turn).find(is_free).or_else(|| (0..turn).find(is_free));
        found.expect("there are fewer objects than places in turn")
    }

    /// Puts an object into a free place that there is room for.
    fn put(&mut self, index: usize, key: i32, object: &Arc<T>) -> i32 {
        debug_assert!(index < self.places.capacity(), "growing would allocate under the lock");
        if self.last.is_some_and(|last| index <= last) {
            self.sequence = (self.sequence + 1) % SEQUENCES;
        }
        (self.last, self.next) = (Some(index), index + 1);
        let id = (self.sequence << PLACE_BITS) as i32 + index as i32;
        object.assign(id);
        while self.places.len() <= index {
            self.places.push(Place { key: PRIVATE, id: -1, object: None });
        }
        self.places[index] = Place { key, id, object: Some(object.clone()) };
        self.used += 1;
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicI32, Ordering};

    #[derive(Default)]
    struct Object(AtomicI32);

    impl Registered for Object {
        fn assign(&self, id: i32) {
            self.0.store(id, Ordering::Relaxed);
        }
    }

    fn enter(registry: &Registry<Object>, key: i32) -> Result<i32, Option<i32>> {
        registry.enter(&Arc::new(Object::default()), key, 100).map_err(|refused| match refused {
            Refused::Exists(object) => Some(object.0.load(Ordering::Relaxed)),
            Refused::Error(_) => None,
        })
    }

    #[test]
    fn ids_come_in_turn_and_stale_ones_find_nothing() {
        let registry = Registry::new();
        for expected in 0..64 {
            assert_eq!(enter(&registry, PRIVATE), Ok(expected));
            assert!(registry.remove(expected).is_some());
        }
        assert_eq!(enter(&registry, PRIVATE), Ok(1 << PLACE_BITS));
        assert!(registry.by_id(0).is_err());
        assert!(registry.by_id(1 << PLACE_BITS).is_ok());
        assert!(registry.remove(0).is_none());
        assert_eq!(registry.by_place(0).map(|(_, key, id)| (key, id)), Ok((PRIVATE, 1 << PLACE_BITS)));
        assert!(registry.by_id(-1).is_err());
        assert_eq!((registry.count(), registry.highest_place()), (1, Some(0)));
    }

    #[test]
    fn keys_lead_to_one_object_until_it_is_hidden() {
        let registry = Registry::new();
        assert_eq!(enter(&registry, 7), Ok(0));
        assert_eq!(enter(&registry, 7), Err(Some(0)));
        assert!(registry.by_key(7).is_some());
        registry.hide(0);
        assert!(registry.by_key(7).is_none());
        assert_eq!(enter(&registry, 7), Ok(1));
    }

    #[test]
    fn the_limit_holds_and_no_object_is_lost_when_the_table_grows() {
        let registry = Registry::new();
        for expected in 0..100 {
            assert_eq!(enter(&registry, expected + 1), Ok(expected));
        }
        assert_eq!(enter(&registry, PRIVATE), Err(None));
        let mut seen = 0;
        registry.for_each(|object, key, id| {
            assert_eq!((object.0.load(Ordering::Relaxed), key), (id, id + 1));
            seen += 1;
        });
        assert_eq!(seen, 100);
    }
}
