//! Which bytes of a file are locked, whoever did it: so that a conflict is found without asking each owner.
//!
//! # Structure
//! Two ordered lists of ranges that do not overlap.
//! - Locks for writing, which exclude each other.
//! - *Parts* for reading: each is a range in which the same owners have locks, with their number and the sum of their keys. Where only one
//!   is left, the sum is its key. Parts end where some lock begins or ends; two that touch and look alike are joined.
//!
//! # Costs
//! A conflict is found by a search, and by a look at what the asker itself has in the range. Setting and clearing a lock takes steps in
//! proportion to the locks and parts that its range touches.
//!
//! # Failure
//! The index says nothing that the records do not say. When there is no memory to keep it right it is thrown away, and the records are
//! asked one owner after the other until it can be made again.

use super::chunks::{Chunks, Place};
use super::record::{LockKind, LockOwner, RecordDescription};
use crate::Result;

/// A lock for writing.
struct Written {
    start: u64,
    end: u64,
    owner: LockOwner,
}

/// A range and who reads there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    start: u64,
    end: u64,
    readers: u64,
    /// The sum of the readers' keys, modulo 2^64.
    keys: u64,
    /// The key of one that was added, and perhaps removed again.
    hint: u64,
}

impl Part {
    fn is_like(&self, other: &Part) -> bool {
        (self.readers, self.keys) == (other.readers, other.keys)
    }
}

/// Who is in the way of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Obstacle {
    /// This lock for writing.
    Writer(RecordDescription),
    /// Locks for reading at this byte; perhaps one of this owner's.
    Readers { at: u64, hint: u64 },
}

/// The index.
#[derive(Default)]
pub(super) struct Index {
    written: Chunks<Written>,
    parts: Chunks<Part>,
}

/// The number that stands for an owner.
pub(super) fn key_of(owner: LockOwner) -> u64 {
    match owner {
        LockOwner::Process { id, .. } => id << 1,
        LockOwner::File { id } => id << 1 | 1,
    }
}

impl Index {
    /// The first lock in a range that excludes one of an owner's.
    pub(super) fn obstacle(&self, own: LockOwner, kind: LockKind, start: u64, end: u64) -> Option<Obstacle> {
        let mut place = self.written.seek(|held| held.end < start);
        while let Some(held) = self.written.get(place).filter(|held| held.start <= end) {
            if held.owner != own {
                return Some(Obstacle::Writer(RecordDescription {
                    owner: held.owner,
                    kind: LockKind::Write,
                    start: held.start,
                    end: held.end,
                }));
            }
            place = self.written.next(place);
        }
        if kind == LockKind::Read {
            return None;
        }
        let own = key_of(own);
        let mut place = self.parts.seek(|part| part.end < start);
        while let Some(part) = self.parts.get(place).filter(|part| part.start <= end) {
            if part.readers > 1 || part.keys != own {
                let hint = if part.readers == 1 { part.keys } else { part.hint };
                return Some(Obstacle::Readers { at: part.start.max(start), hint });
            }
            place = self.parts.next(place);
        }
        None
    }

    /// Notes a lock.
    pub(super) fn add(&mut self, lock: &RecordDescription) -> Result<()> {
        let RecordDescription { owner, kind, start, end } = *lock;
        if kind == LockKind::Read {
            return self.add_reader(key_of(owner), start, end);
        }
        let place = self.written.make_room(self.written.seek(|held| held.end < start))?;
        self.written.replace(place, 0, core::iter::once(Written { start, end, owner }));
        Ok(())
    }

    /// Forgets a lock that was noted.
    pub(super) fn remove(&mut self, lock: &RecordDescription) -> Result<()> {
        let RecordDescription { owner, kind, start, end } = *lock;
        if kind == LockKind::Read {
            return self.remove_reader(key_of(owner), start, end);
        }
        let place = self.written.seek(|held| held.end < start);
        debug_assert!(self.written.get(place).is_some_and(|held| held.start == start && held.end == end));
        self.written.replace(place, 1, core::iter::empty());
        Ok(())
    }

    fn insert_part(&mut self, place: Place, part: Part) -> Result<()> {
        let place = self.parts.make_room(place)?;
        self.parts.replace(place, 0, core::iter::once(part));
        Ok(())
    }

    /// Where the first part is that ends at a byte or later.
    fn seek(&self, at: u64) -> Place {
        self.parts.seek(|part| part.end < at)
    }

    /// Sees to it that no part reaches over the border before a byte.
    fn split_at(&mut self, at: u64) -> Result<()> {
        let place = self.seek(at);
        let Some(part) = self.parts.get_mut(place).filter(|part| part.start < at) else { return Ok(()) };
        let left = Part { end: at - 1, ..*part };
        let whole = core::mem::replace(part, Part { start: at, ..*part });
        // Without memory the part is shorter than it should be, and the index useless.
        debug_assert!(whole.end >= at);
        self.insert_part(place, left)
    }

    fn split_around(&mut self, start: u64, end: u64) -> Result<()> {
        self.split_at(start)?;
        if end < u64::MAX { self.split_at(end + 1) } else { Ok(()) }
    }

    fn add_reader(&mut self, key: u64, start: u64, end: u64) -> Result<()> {
        self.split_around(start, end)?;
        let mut next = start;
        loop {
            let place = self.seek(next);
            let found = self.parts.get_mut(place).filter(|part| part.start <= end);
            let last = match found {
                Some(part) if part.start == next => {
                    part.readers += 1;
                    part.keys = part.keys.wrapping_add(key);
                    part.hint = key;
                    part.end
                }
                // Nobody reads up to the next part.
                found => {
                    let last = found.map_or(end, |part| part.start - 1);
                    self.insert_part(
                        place,
                        Part { start: next, end: last, readers: 1, keys: key, hint: key },
                    )?;
                    last
                }
            };
            if last >= end {
                break;
            }
            next = last + 1;
        }
        self.join_around(start, end);
        Ok(())
    }

    fn remove_reader(&mut self, key: u64, start: u64, end: u64) -> Result<()> {
        self.split_around(start, end)?;
        let mut place = self.seek(start);
        while let Some(part) = self.parts.get_mut(place).filter(|part| part.start <= end) {
            debug_assert!(part.readers > 0, "who reads was noted");
            part.readers -= 1;
            part.keys = part.keys.wrapping_sub(key);
            let last = part.end;
            if part.readers == 0 {
                self.parts.replace(place, 1, core::iter::empty());
            }
            if last >= end {
                break;
            }
            place = self.seek(last + 1);
        }
        self.join_around(start, end);
        Ok(())
    }

    fn join_around(&mut self, start: u64, end: u64) {
        self.join_at(start);
        if end < u64::MAX {
            self.join_at(end + 1);
        }
    }

    /// Joins two parts that touch before a byte and look alike.
    fn join_at(&mut self, at: u64) {
        let Some(before) = at.checked_sub(1) else { return };
        let place = self.seek(before);
        let Some(left) = self.parts.get(place).filter(|part| part.end == before).copied() else { return };
        let right = self.seek(at);
        let Some(part) = self.parts.get_mut(right).filter(|part| part.start == at && part.is_like(&left))
        else {
            return;
        };
        part.start = left.start;
        self.parts.replace(place, 1, core::iter::empty());
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.written.len() + self.parts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(id: u64, start: u64, end: u64) -> RecordDescription {
        RecordDescription { owner: LockOwner::Process { id, pid: 0 }, kind: LockKind::Read, start, end }
    }

    fn parts(index: &Index) -> alloc::vec::Vec<(u64, u64, u64)> {
        let mut place = Chunks::<Part>::FIRST;
        let mut found = alloc::vec::Vec::new();
        while let Some(part) = index.parts.get(place) {
            found.push((part.start, part.end, part.readers));
            place = index.parts.next(place);
        }
        found
    }

    #[test]
    fn parts_end_where_locks_do() {
        let mut index = Index::default();
        index.add(&reader(1, 10, 19)).unwrap();
        index.add(&reader(2, 15, 29)).unwrap();
        index.add(&reader(3, 0, u64::MAX)).unwrap();
        assert_eq!(parts(&index), [(0, 9, 1), (10, 14, 2), (15, 19, 3), (20, 29, 2), (30, u64::MAX, 1)]);
        index.remove(&reader(2, 15, 29)).unwrap();
        assert_eq!(parts(&index), [(0, 9, 1), (10, 19, 2), (20, u64::MAX, 1)]);
        index.remove(&reader(3, 0, u64::MAX)).unwrap();
        assert_eq!(parts(&index), [(10, 19, 1)]);
        index.remove(&reader(1, 10, 19)).unwrap();
        assert_eq!(index.len(), 0);
    }

    #[test]
    fn a_single_reader_is_known_by_its_key() {
        let mut index = Index::default();
        let owner = |id| LockOwner::Process { id, pid: 0 };
        index.add(&reader(1, 0, 9)).unwrap();
        index.add(&reader(2, 0, 9)).unwrap();
        index.remove(&reader(2, 0, 9)).unwrap();
        assert_eq!(index.obstacle(owner(1), LockKind::Write, 0, 20), None);
        let hint = key_of(owner(1));
        assert_eq!(index.obstacle(owner(2), LockKind::Write, 5, 20), Some(Obstacle::Readers { at: 5, hint }));
        assert_eq!(index.obstacle(owner(2), LockKind::Read, 5, 20), None);
    }
}
