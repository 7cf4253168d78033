//! The locks of a file as others see them: what `/proc/locks` and `/proc/PID/fdinfo` show.

use super::flock::{FlockHolder, FlockKind};
use super::record::{LockKind, LockOwner, RecordDescription};
use super::state::{FileLocks, Wanted};

/// What sort of lock it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockSort {
    /// A process's range.
    Process,
    /// An open file's range.
    OpenFile,
    /// A whole file.
    Whole,
    /// A lease, and whether somebody waits for its end.
    Lease(bool),
}

/// A lock, or who waits for it.
#[derive(Clone, Copy, Debug)]
pub struct LockDescription {
    /// What sort of lock it is.
    pub sort: LockSort,
    /// For what; nothing for a lease that is about to end.
    pub kind: Option<LockKind>,
    /// The process that locked, -1 for an open file's range.
    pub pid: i32,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// It is only wanted: the lock before it is in the way.
    pub is_wanted: bool,
    /// The open file whose it is, or the descriptor table.
    pub holder: u64,
}

const LAST_BYTE: u64 = i64::MAX as u64;

fn of_record(owner: LockOwner, kind: Option<LockKind>, start: u64, end: u64) -> LockDescription {
    let (sort, pid, holder) = match owner {
        LockOwner::Process { id, pid } => (LockSort::Process, pid, id),
        LockOwner::File { id } => (LockSort::OpenFile, -1, id),
    };
    LockDescription { sort, kind, pid, start, end, is_wanted: false, holder }
}

fn of_whole(holder: FlockHolder, kind: FlockKind) -> LockDescription {
    let kind = match kind {
        FlockKind::Shared => LockKind::Read,
        FlockKind::Exclusive => LockKind::Write,
    };
    LockDescription {
        sort: LockSort::Whole,
        kind: Some(kind),
        pid: holder.pid,
        start: 0,
        end: LAST_BYTE,
        is_wanted: false,
        holder: holder.file,
    }
}

impl FileLocks {
    /// Calls `each` with every lock, and behind it with those who wait for it. The file's locks are held once for each.
    pub fn for_each(&self, mut each: impl FnMut(LockDescription)) {
        let mut last: Option<RecordDescription> = None;
        loop {
            let next = self.state().records.after(last.as_ref()).map(|record| record.describe());
            let Some(record) = next else { break };
            each(of_record(record.owner, Some(record.kind), record.start, record.end));
            self.for_each_waiter(&mut each, |state, wanted| match wanted {
                Wanted::Record(request) => blocks(state.records.conflict(request), &record)
                    .then(|| of_record(request.owner, request.kind, request.start, request.end)),
                Wanted::Whole(..) => None,
            });
            last = Some(record);
        }
        let mut file = 0;
        loop {
            let next = self.state().flocks.after(file);
            let Some((holder, kind)) = next else { break };
            each(of_whole(holder, kind));
            self.for_each_waiter(&mut each, |state, wanted| match *wanted {
                // Behind the first one that it can be behind.
                Wanted::Whole(waiter, kind) => state
                    .flocks
                    .after(if state.flocks.after(0)?.0.file == waiter.file { waiter.file } else { 0 })
                    .is_some_and(|(first, _)| first == holder)
                    .then(|| of_whole(waiter, kind)),
                Wanted::Record(_) => None,
            });
            file = holder.file;
        }
        let mut index = 0;
        loop {
            let state = self.state();
            let Some(lease) = state.leases.get(index) else { return };
            let description = LockDescription {
                sort: LockSort::Lease(lease.is_breaking()),
                kind: lease.target(),
                pid: lease.pid,
                start: 0,
                end: LAST_BYTE,
                is_wanted: false,
                holder: state.leases.owner_id(index).unwrap_or(0),
            };
            drop(state);
            each(description);
            index += 1;
        }
    }

    fn for_each_waiter(
        &self,
        each: &mut impl FnMut(LockDescription),
        is_behind: impl Fn(&super::state::State, &Wanted) -> Option<LockDescription>,
    ) {
        let mut index = 0;
        loop {
            let state = self.state();
            let Some(wanted) = state.waiting.get(index) else { return };
            let found = is_behind(&state, &wanted.what);
            drop(state);
            if let Some(found) = found {
                each(LockDescription { is_wanted: true, ..found });
            }
            index += 1;
        }
    }
}

/// Whether what is in a request's way is this record.
fn blocks(found: Option<RecordDescription>, record: &RecordDescription) -> bool {
    found.is_some_and(|found| found.owner == record.owner && found.start == record.start)
}
