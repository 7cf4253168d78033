//! Record locks: ranges of bytes.
//!
//! # Invariants
//! Ranges of one owner do not overlap; those of the same kind do not touch (they are merged). Locks of different owners
//! overlap only when both are for reading. The list is sorted by owner, then by start: also by end, as ranges of one owner do not
//! overlap.
//!
//! # Costs
//! An owner's locks at some range are found by a search; setting, clearing and closing take steps in proportion to the locks that
//! change. Looking for a conflict asks each other owner in turn while there are few locks; of many an [`Index`] is kept.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::account::{Charge, LockAccount};
use super::chunks::{Chunks, INSERT_MAX, Place};
use super::index::{Index, Obstacle};
use crate::Result;

/// What a lock is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
}

/// Who holds a lock.
#[derive(Clone, Copy, Debug)]
pub enum LockOwner {
    /// A process, known by its descriptor table; `pid` is what `F_GETLK` shows.
    Process {
        /// The descriptor table's id.
        id: u64,
        /// The process that locked.
        pid: i32,
    },
    /// An open file (`F_OFD_SETLK`).
    File {
        /// The open file's id.
        id: u64,
    },
}

/// Orders owners: open files behind processes.
type OwnerKey = (bool, u64);

impl LockOwner {
    fn key(&self) -> OwnerKey {
        match *self {
            Self::Process { id, .. } => (false, id),
            Self::File { id } => (true, id),
        }
    }
}

impl PartialEq for LockOwner {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

/// A lock to be set, tested, or (kind `None`) cleared.
#[derive(Clone, Copy, Debug)]
pub struct RecordRequest {
    /// Whose.
    pub owner: LockOwner,
    /// What for.
    pub kind: Option<LockKind>,
    /// First byte.
    pub start: u64,
    /// Last byte; `i64::MAX` for the end of the file.
    pub end: u64,
}

/// A lock as others see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordDescription {
    /// Whose.
    pub owner: LockOwner,
    /// What for.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
}

pub(super) struct Record {
    pub(super) owner: LockOwner,
    kind: LockKind,
    start: u64,
    end: u64,
    charge: Option<Charge>,
}

impl Record {
    pub(super) fn describe(&self) -> RecordDescription {
        RecordDescription { owner: self.owner, kind: self.kind, start: self.start, end: self.end }
    }

    fn key(&self) -> OwnerKey {
        self.owner.key()
    }
}

/// What a request does to the records of its owner: some that lie side by side go, up to three take their place.
struct Change {
    place: Place,
    count: usize,
    fresh: [Option<RecordDescription>; INSERT_MAX],
}

/// Locks of a file from which on they are indexed, and below which they no longer are.
const INDEXED_FROM: usize = 128;
const INDEXED_TO: usize = 32;

/// The record locks of a file.
pub(super) struct Records {
    list: Chunks<Record>,
    index: Option<Box<Index>>,
    /// How many locks there must be before an index is made; more after there was no memory for one.
    indexed_from: usize,
}

impl Default for Records {
    fn default() -> Self {
        Self::new()
    }
}

impl Records {
    pub(super) const fn new() -> Self {
        Self { list: Chunks::new(), index: None, indexed_from: INDEXED_FROM }
    }

    /// The first record behind a given one, or the first of all.
    pub(super) fn after(&self, previous: Option<&RecordDescription>) -> Option<&Record> {
        let place = match previous {
            None => Chunks::<Record>::FIRST,
            Some(previous) => {
                let wanted = (previous.owner.key(), previous.start);
                self.list.seek(|record| (record.key(), record.start) <= wanted)
            }
        };
        self.list.get(place)
    }

    /// A lock of somebody else that excludes the request.
    pub(super) fn conflict(&self, request: &RecordRequest) -> Option<RecordDescription> {
        let kind = request.kind?;
        let Some(index) = &self.index else { return self.conflict_by_owner(kind, request) };
        let (at, hint) = match index.obstacle(request.owner, kind, request.start, request.end)? {
            Obstacle::Writer(lock) => return Some(lock),
            Obstacle::Readers { at, hint } => (at, hint),
        };
        let key = (hint & 1 == 1, hint >> 1);
        let place = self.list.seek(|record| (record.key(), record.end) < (key, at));
        let found = self.list.get(place).filter(|record| record.key() == key && record.start <= at);
        match found.filter(|record| record.owner != request.owner) {
            Some(record) => Some(record.describe()),
            None => self.conflict_by_owner(kind, request),
        }
    }

    /// The first one of some owner.
    fn conflict_by_owner(&self, kind: LockKind, request: &RecordRequest) -> Option<RecordDescription> {
        let own = request.owner.key();
        let mut place = Chunks::<Record>::FIRST;
        loop {
            let key = self.list.get(place)?.key();
            if key != own
                && let Some(found) = self.conflict_with(key, place, kind, request)
            {
                return Some(found.describe());
            }
            place = self.next_owner(place, key);
        }
    }

    /// A lock of one owner, whose first one is at a place, that excludes a request.
    fn conflict_with(
        &self,
        key: OwnerKey,
        first: Place,
        kind: LockKind,
        request: &RecordRequest,
    ) -> Option<&Record> {
        let mut place = first;
        if self.list.get(place)?.end < request.start {
            place = self.list.seek(|record| (record.key(), record.end) < (key, request.start));
        }
        while let Some(record) = self.list.get(place)
            && record.key() == key
            && record.start <= request.end
        {
            if record.kind == LockKind::Write || kind == LockKind::Write {
                return Some(record);
            }
            place = self.list.next(place);
        }
        None
    }

    fn next_owner(&self, place: Place, key: OwnerKey) -> Place {
        let next = self.list.next(place);
        match self.list.get(next) {
            // Most owners have one lock.
            Some(record) if record.key() == key => self.list.seek(|record| record.key() <= key),
            _ => next,
        }
    }

    /// Makes the request's range the owner's with the given kind (or nobody's), on somebody's account. Fails only before any
    /// change.
    pub(super) fn apply(
        &mut self,
        request: &RecordRequest,
        account: Option<&Arc<LockAccount>>,
    ) -> Result<()> {
        let change = self.change(request);
        let added = change.fresh.iter().flatten().count();
        if added == 0 {
            self.index_change(&change);
            self.list.replace(change.place, change.count, core::iter::empty());
            return Ok(());
        }
        let mut charges = [const { None }; INSERT_MAX];
        for charge in charges.iter_mut().take(added).skip(change.count) {
            *charge = account.map(Charge::claim).transpose()?;
        }
        let place = self.list.make_room(change.place)?;
        // The charges of those that go pass to those that come.
        let mut old = place;
        for charge in charges.iter_mut().take(added.min(change.count)) {
            // Behind the last of a chunk, as a place where there is room may be, is the first of the next.
            if self.list.get(old).is_none() {
                old = self.list.next(old);
            }
            *charge = self.list.get_mut(old).and_then(|record| record.charge.take());
            old = self.list.next(old);
        }
        let fresh = change.fresh.into_iter().flatten().zip(charges).map(|(range, charge)| Record {
            owner: range.owner,
            kind: range.kind,
            start: range.start,
            end: range.end,
            charge,
        });
        self.index_change(&Change { place, ..change });
        self.list.replace(place, change.count, fresh);
        if self.index.is_none() && self.list.len() >= self.indexed_from {
            self.index = self.new_index();
            self.note_index();
        }
        Ok(())
    }

    /// Brings the index up to date with what is about to change.
    fn index_change(&mut self, change: &Change) {
        let Some(index) = &mut self.index else { return };
        if self.list.len() < INDEXED_TO || !Self::index_all(index, &self.list, change) {
            self.index = None;
            self.note_index();
        }
    }

    fn note_index(&mut self) {
        let missing = self.index.is_none();
        self.indexed_from = if missing { INDEXED_FROM.max(2 * self.list.len()) } else { INDEXED_FROM };
    }

    fn index_all(index: &mut Index, list: &Chunks<Record>, change: &Change) -> bool {
        let mut place = change.place;
        for _ in 0..change.count {
            // Behind the last of a chunk, as a place where there is room may be, is the first of the next.
            if list.get(place).is_none() {
                place = list.next(place);
            }
            let Some(record) = list.get(place) else { return false };
            if index.remove(&record.describe()).is_err() {
                return false;
            }
            place = list.next(place);
        }
        change.fresh.iter().flatten().all(|lock| index.add(lock).is_ok())
    }

    /// An index of all there is, if there is memory for one.
    fn new_index(&self) -> Option<Box<Index>> {
        let mut index = crate::allocation::boxed(Index::default()).ok()?;
        let mut place = Chunks::<Record>::FIRST;
        while let Some(record) = self.list.get(place) {
            index.add(&record.describe()).ok()?;
            place = self.list.next(place);
        }
        Some(index)
    }

    /// Finds what a request changes. What touches the range on either side counts if it is of the same kind: it is merged.
    fn change(&self, request: &RecordRequest) -> Change {
        let (key, start, end) = (request.owner.key(), request.start, request.end);
        let (mut merged_start, mut merged_end) = (start, end);
        let (mut before, mut behind) = (None, None);
        let mut place = self.list.seek(|record| (record.key(), record.end.saturating_add(1)) < (key, start));
        let mut count = 0;
        let mut current = place;
        while let Some(record) = self.list.get(current)
            && record.key() == key
            && record.start <= end.saturating_add(1)
        {
            let next = self.list.next(current);
            if Some(record.kind) == request.kind {
                merged_start = merged_start.min(record.start);
                merged_end = merged_end.max(record.end);
            } else if record.end < start {
                place = next;
                current = next;
                continue;
            } else if record.start > end {
                break;
            } else {
                if record.start < start {
                    before = Some(RecordDescription { end: start - 1, ..record.describe() });
                }
                if record.end > end {
                    behind = Some(RecordDescription { start: end + 1, ..record.describe() });
                }
            }
            count += 1;
            current = next;
        }
        let owner = request.owner;
        let new =
            request.kind.map(|kind| RecordDescription { owner, kind, start: merged_start, end: merged_end });
        Change { place, count, fresh: [before, new, behind] }
    }

    /// Takes out some of an owner's locks, no more than a chunk; returns whether there were any.
    pub(super) fn remove_some_of(&mut self, owner: LockOwner) -> bool {
        let key = owner.key();
        let place = self.list.seek(|record| record.key() < key);
        let count = self.list.run(place, |record| record.key() == key);
        if count > 0 {
            self.index_change(&Change { place, count, fresh: [None; INSERT_MAX] });
            self.list.replace(place, count, core::iter::empty());
        }
        count > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: u64) -> LockOwner {
        LockOwner::Process { id, pid: id as i32 }
    }

    fn request(owner: u64, kind: Option<LockKind>, start: u64, end: u64) -> RecordRequest {
        RecordRequest { owner: process(owner), kind, start, end }
    }

    fn ranges(records: &Records) -> Vec<(u64, u64, LockKind)> {
        let mut list = Vec::new();
        let mut last = None;
        while let Some(record) = records.after(last.as_ref()) {
            list.push((record.start, record.end, record.kind));
            last = Some(record.describe());
        }
        list.sort_by_key(|range| range.0);
        list
    }

    fn set(records: &mut Records, owner: u64, kind: Option<LockKind>, start: u64, end: u64) {
        records.apply(&request(owner, kind, start, end), None).unwrap();
    }

    #[test]
    fn unlocking_the_middle_splits_a_lock() {
        let mut records = Records::new();
        set(&mut records, 1, Some(LockKind::Write), 0, 99);
        set(&mut records, 1, None, 40, 59);
        assert_eq!(ranges(&records), [(0, 39, LockKind::Write), (60, 99, LockKind::Write)]);
    }

    #[test]
    fn touching_locks_of_one_kind_merge() {
        let mut records = Records::new();
        set(&mut records, 1, Some(LockKind::Read), 0, 9);
        set(&mut records, 1, Some(LockKind::Read), 20, 29);
        set(&mut records, 1, Some(LockKind::Read), 10, 19);
        assert_eq!(ranges(&records), [(0, 29, LockKind::Read)]);
    }

    #[test]
    fn another_kind_replaces_the_overlap() {
        let mut records = Records::new();
        set(&mut records, 1, Some(LockKind::Read), 0, 99);
        set(&mut records, 1, Some(LockKind::Write), 10, 19);
        let expected = [(0, 9, LockKind::Read), (10, 19, LockKind::Write), (20, 99, LockKind::Read)];
        assert_eq!(ranges(&records), expected);
    }

    #[test]
    fn readers_share_and_writers_exclude() {
        let mut records = Records::new();
        set(&mut records, 1, Some(LockKind::Read), 0, 9);
        assert!(records.conflict(&request(2, Some(LockKind::Read), 0, 9)).is_none());
        assert!(records.conflict(&request(2, Some(LockKind::Write), 9, 20)).is_some());
        assert!(records.conflict(&request(2, Some(LockKind::Write), 10, 20)).is_none());
        assert!(records.conflict(&request(1, Some(LockKind::Write), 0, 9)).is_none());
    }

    #[test]
    fn locks_to_the_end_of_the_file_do_not_overflow() {
        let mut records = Records::new();
        set(&mut records, 1, Some(LockKind::Write), 5, u64::MAX);
        set(&mut records, 1, Some(LockKind::Write), 0, 4);
        assert_eq!(ranges(&records), [(0, u64::MAX, LockKind::Write)]);
    }
    #[test]
    fn locks_of_others_stay_when_one_owner_closes() {
        let mut records = Records::new();
        for index in 0..500 {
            set(&mut records, 1 + index % 2, Some(LockKind::Read), index * 2, index * 2);
        }
        while records.remove_some_of(process(1)) {}
        assert_eq!(ranges(&records).len(), 250);
        let everything = request(1, Some(LockKind::Write), 0, 2000);
        assert_eq!(
            records.conflict(&everything).map(|record| (record.owner, record.start)),
            Some((process(2), 2))
        );
        assert!(records.conflict(&request(1, Some(LockKind::Write), 4, 5)).is_none());
    }

    /// What takes a number of steps in proportion to the square of this does not end while somebody waits for it.
    const MANY: u64 = 100_000;

    #[test]
    fn many_locks_come_and_go_in_any_order() {
        let orders: [fn(u64) -> u64; 3] =
            [|index| index, |index| MANY - 1 - index, |index| index * 7919 % MANY];
        for order in orders {
            let mut records = Records::new();
            for index in (0..MANY).map(order) {
                set(&mut records, 1, Some(LockKind::Write), index * 2, index * 2);
            }
            assert_eq!(records.list.len() as u64, MANY);
            let conflict = records.conflict(&request(2, Some(LockKind::Read), MANY * 2 - 3, MANY * 3));
            assert_eq!(conflict.map(|record| record.start), Some(MANY * 2 - 2));
            for index in (0..MANY / 2).map(order) {
                set(&mut records, 1, None, index * 2, index * 2);
            }
            assert_eq!(records.list.len() as u64, MANY - MANY / 2);
            while records.remove_some_of(process(1)) {}
            assert_eq!(records.list.len(), 0);
        }
    }

    #[test]
    fn many_owners_are_not_asked_in_turn() {
        for kind in [LockKind::Read, LockKind::Write] {
            let mut records = Records::new();
            for index in 0..MANY {
                let owner = index * 7919 % MANY;
                let own = request(owner, Some(LockKind::Write), owner * 2, owner * 2);
                assert!(records.conflict(&own).is_none());
                set(&mut records, owner, Some(kind), owner * 2, owner * 2);
            }
            let wanted = request(MANY, Some(LockKind::Write), 1001, 1002);
            assert_eq!(records.conflict(&wanted).map(|lock| lock.owner), Some(process(501)));
            assert!(records.conflict(&request(MANY, Some(LockKind::Write), 1001, 1001)).is_none());
            for owner in 0..MANY {
                while records.remove_some_of(process(owner)) {}
            }
            assert!(records.index.is_none() && records.list.len() == 0);
        }
    }

    #[test]
    fn without_memory_for_an_index_the_owners_are_asked() {
        let mut records = Records::new();
        for owner in 0..1000 {
            set(&mut records, owner, Some(LockKind::Read), owner, owner + 5);
        }
        let wanted = request(1000, Some(LockKind::Write), 500, 500);
        assert!(records.index.is_some() && records.conflict(&wanted).is_some());
        memory::fallible::inject(0);
        while records.index.is_some() {
            let owner = records.list.len() as u64;
            // An allocation that fails before any change is repeated.
            let _ = records.apply(&request(owner, Some(LockKind::Read), owner * 3, owner * 3 + 7), None);
            memory::fallible::inject(1);
        }
        memory::fallible::disarm();
        assert!(records.conflict(&wanted).is_some());
        for owner in 0..2000 {
            set(&mut records, owner, Some(LockKind::Write), 100_000 + owner, 100_000 + owner);
        }
        assert!(records.index.is_some(), "it is made again");
        assert_eq!(records.conflict(&request(5, None, 0, 0)), None);
    }

    #[test]
    fn a_model_of_single_bytes_agrees() {
        const BYTES: usize = 400;
        const OWNERS: usize = 5;
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let account = Arc::new(LockAccount::new(1000));
        let mut records = Records::new();
        let mut model = [[None; BYTES]; OWNERS];
        let mut indexed = 0;
        for _ in 0..20_000 {
            let owner = random(OWNERS as u64) as usize;
            let start = random(BYTES as u64) as usize;
            let end = (start + random(8) as usize).min(BYTES - 1);
            let kind = [None, Some(LockKind::Read), Some(LockKind::Write)][random(3) as usize];
            let wanted = request(owner as u64, kind, start as u64, end as u64);
            let others = model.iter().enumerate().filter(|&(other, _)| other != owner);
            let excluded = others
                .flat_map(|(_, bytes)| bytes[start..=end].iter().flatten())
                .any(|&held| kind.is_some() && (held == LockKind::Write || kind == Some(LockKind::Write)));
            indexed += u32::from(records.index.is_some());
            assert_eq!(records.conflict(&wanted).is_some(), excluded);
            if !excluded {
                records.apply(&wanted, Some(&account)).unwrap();
                model[owner][start..=end].fill(kind);
            }
            assert_eq!(account.held(), records.list.len() as u64);
        }
        let runs =
            |bytes: &[Option<LockKind>]| bytes.chunk_by(|a, b| a == b).filter(|run| run[0].is_some()).count();
        assert_eq!(records.list.len(), model.iter().map(|bytes| runs(bytes)).sum());
        assert!(indexed > 5_000, "mostly without the index: {indexed}");
    }

    #[test]
    fn a_user_has_no_more_locks_than_the_limit() {
        let account = Arc::new(LockAccount::new(3));
        let mut records = Records::new();
        let mut set = |kind, start, end| records.apply(&request(1, kind, start, end), Some(&account));
        set(Some(LockKind::Write), 0, 9).unwrap();
        set(Some(LockKind::Write), 20, 29).unwrap();
        // Splitting one makes a third; a fourth is refused, changing what is there is not.
        set(None, 4, 5).unwrap();
        assert_eq!(set(None, 24, 25), Err(crate::Error::NoLocks));
        assert_eq!(set(Some(LockKind::Read), 50, 59), Err(crate::Error::NoLocks));
        set(Some(LockKind::Read), 20, 29).unwrap();
        set(Some(LockKind::Write), 0, 29).unwrap();
        assert_eq!(account.held(), 1);
        while records.remove_some_of(process(1)) {}
        assert_eq!(account.held(), 0);
    }
}
