//! Record locks: ranges of bytes.
//!
//! # Invariants
//! Ranges of one owner do not overlap; those of the same kind do not touch (they are merged). Locks of different owners
//! overlap only when both are for reading. The list is sorted by start.

use alloc::vec::Vec;

use crate::{Result, allocation};

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

impl PartialEq for LockOwner {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Process { id, .. }, Self::Process { id: other, .. }) => id == other,
            (Self::File { id }, Self::File { id: other }) => id == other,
            _ => false,
        }
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

#[derive(Clone, Copy)]
pub(super) struct Record {
    pub(super) owner: LockOwner,
    kind: LockKind,
    start: u64,
    end: u64,
}

impl Record {
    pub(super) fn describe(&self) -> RecordDescription {
        RecordDescription { owner: self.owner, kind: self.kind, start: self.start, end: self.end }
    }
}

/// The record locks of a file.
#[derive(Default)]
pub(super) struct Records(Vec<Record>);

impl Records {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Record> {
        self.0.get(index)
    }

    /// The first lock of somebody else that excludes the request.
    pub(super) fn conflict(&self, request: &RecordRequest) -> Option<&Record> {
        let kind = request.kind?;
        self.0.iter().find(|record| {
            record.owner != request.owner
                && record.start <= request.end
                && request.start <= record.end
                && (record.kind == LockKind::Write || kind == LockKind::Write)
        })
    }

    /// Makes the request's range the owner's with the given kind (or nobody's). Fails only before any change.
    pub(super) fn apply(&mut self, request: &RecordRequest) -> Result<()> {
        // One range may be split in two, and the new one added.
        allocation::reserve(&mut self.0, 2)?;
        let (mut start, mut end) = (request.start, request.end);
        let mut index = 0;
        while index < self.0.len() {
            let record = self.0[index];
            if record.owner != request.owner {
                index += 1;
                continue;
            }
            let same_kind = Some(record.kind) == request.kind;
            let touches = record.start <= end.saturating_add(1) && start <= record.end.saturating_add(1);
            let overlaps = record.start <= end && start <= record.end;
            if same_kind && touches {
                start = start.min(record.start);
                end = end.max(record.end);
                self.0.remove(index);
            } else if !same_kind && overlaps {
                self.0.remove(index);
                if record.start < start {
                    self.0.insert(index, Record { end: start - 1, ..record });
                    index += 1;
                }
                if record.end > end {
                    self.0.insert(index, Record { start: end + 1, ..record });
                    index += 1;
                }
            } else {
                index += 1;
            }
        }
        if let Some(kind) = request.kind {
            let at = self.0.partition_point(|record| record.start < start);
            self.0.insert(at, Record { owner: request.owner, kind, start, end });
        }
        Ok(())
    }

    pub(super) fn remove_owner(&mut self, owner: LockOwner) {
        self.0.retain(|record| record.owner != owner);
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
        let mut list: Vec<_> =
            records.0.iter().map(|record| (record.start, record.end, record.kind)).collect();
        list.sort_by_key(|range| range.0);
        list
    }

    #[test]
    fn unlocking_the_middle_splits_a_lock() {
        let mut records = Records::new();
        records.apply(&request(1, Some(LockKind::Write), 0, 99)).unwrap();
        records.apply(&request(1, None, 40, 59)).unwrap();
        assert_eq!(ranges(&records), [(0, 39, LockKind::Write), (60, 99, LockKind::Write)]);
    }

    #[test]
    fn touching_locks_of_one_kind_merge() {
        let mut records = Records::new();
        records.apply(&request(1, Some(LockKind::Read), 0, 9)).unwrap();
        records.apply(&request(1, Some(LockKind::Read), 20, 29)).unwrap();
        records.apply(&request(1, Some(LockKind::Read), 10, 19)).unwrap();
        assert_eq!(ranges(&records), [(0, 29, LockKind::Read)]);
    }

    #[test]
    fn another_kind_replaces_the_overlap() {
        let mut records = Records::new();
        records.apply(&request(1, Some(LockKind::Read), 0, 99)).unwrap();
        records.apply(&request(1, Some(LockKind::Write), 10, 19)).unwrap();
        let expected = [(0, 9, LockKind::Read), (10, 19, LockKind::Write), (20, 99, LockKind::Read)];
        assert_eq!(ranges(&records), expected);
    }

    #[test]
    fn readers_share_and_writers_exclude() {
        let mut records = Records::new();
        records.apply(&request(1, Some(LockKind::Read), 0, 9)).unwrap();
        assert!(records.conflict(&request(2, Some(LockKind::Read), 0, 9)).is_none());
        assert!(records.conflict(&request(2, Some(LockKind::Write), 9, 20)).is_some());
        assert!(records.conflict(&request(2, Some(LockKind::Write), 10, 20)).is_none());
        assert!(records.conflict(&request(1, Some(LockKind::Write), 0, 9)).is_none());
    }

    #[test]
    fn locks_to_the_end_of_the_file_do_not_overflow() {
        let mut records = Records::new();
        records.apply(&request(1, Some(LockKind::Write), 5, u64::MAX)).unwrap();
        records.apply(&request(1, Some(LockKind::Write), 0, 4)).unwrap();
        assert_eq!(ranges(&records), [(0, u64::MAX, LockKind::Write)]);
    }
}
