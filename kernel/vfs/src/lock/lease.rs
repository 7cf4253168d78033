//! Leases: who has one is told before somebody opens or truncates the file in a way that goes against it, and has time to get ready.
//!
//! # States
//! A lease is for reading (nobody has the file open for writing) or for writing (nobody else has it open at all). An opener in whose way it
//! is *breaks* it: the holder is sent a signal, and the opener waits. One for writing that a reader breaks must become one for reading in
//! time (`downgrade_by`), one that a writer breaks must end (`end_by`); the second may follow on the first. The holder gives it up, takes one for
//! reading instead, or closes the file; or time runs out, and the opener does it for him. Openers wake and look again.
//!
//! # Who sees whom
//! An opener counts in the inode first and looks for leases then; a lease is only made when the count, read with the leases locked, has nobody in it
//! whom it would exclude. `Share::seen_by_all` says why that is so without a fence in openings of files in a system without leases.
//!
//! # Locking
//! The file's leases are under the lock of its other locks. Signals are sent without it.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use super::record::LockKind;
use super::state::FileLocks;
use crate::attributes::FileKind;
use crate::file::{FileOwner, OpenFile};
use crate::flags::OpenFlags;
use crate::inode::InodeHead;
use crate::watched::Share;
use crate::{Error, Result, allocation, wait};

/// Seconds that a holder has (`/proc/sys/fs/lease-break-time`); 0 for as long as he wants.
static BREAK_SECONDS: AtomicU32 = AtomicU32::new(45);
/// Whether there may be new ones (`/proc/sys/fs/leases-enable`).
static ENABLED: AtomicBool = AtomicBool::new(true);
const NANOSECONDS: u64 = 1_000_000_000;

/// Seconds that a holder has.
pub fn break_seconds() -> u32 {
    BREAK_SECONDS.load(Ordering::Relaxed)
}

/// Changes that.
pub fn set_break_seconds(seconds: u32) {
    BREAK_SECONDS.store(seconds, Ordering::Relaxed);
}

/// Whether there may be new ones.
pub fn enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Changes that.
pub fn set_enabled(enabled: bool) {
    ENABLED.store(enabled, Ordering::Relaxed);
}

/// Until when a holder has time who is told now; `u64::MAX` for ever.
fn deadline() -> u64 {
    match break_seconds() {
        0 => u64::MAX,
        seconds => machine::time::now_ns() + u64::from(seconds) * NANOSECONDS,
    }
}

/// A lease.
pub(super) struct Lease {
    file: Weak<OpenFile>,
    id: u64,
    pub(super) pid: i32,
    descriptor: i32,
    kind: LockKind,
    downgrade_by: Option<u64>,
    end_by: Option<u64>,
    _share: Share,
}

impl Lease {
    /// What becomes of it: its kind, if nobody waits.
    pub(super) fn target(&self) -> Option<LockKind> {
        match (self.end_by, self.downgrade_by) {
            (Some(_), _) => None,
            (None, Some(_)) => Some(LockKind::Read),
            (None, None) => Some(self.kind),
        }
    }

    pub(super) fn is_breaking(&self) -> bool {
        self.end_by.is_some() || self.downgrade_by.is_some()
    }

    fn excludes(&self, writes: bool) -> bool {
        writes || self.kind == LockKind::Write
    }

    /// By when an opener is out of its way.
    fn due(&self, writes: bool) -> u64 {
        let due = if writes { self.end_by } else { self.downgrade_by.or(self.end_by) };
        due.unwrap_or(u64::MAX)
    }
}

/// The leases of a file.
#[derive(Default)]
pub(super) struct Leases(Vec<Lease>);

impl Leases {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn get(&self, index: usize) -> Option<&Lease> {
        self.0.get(index)
    }

    pub(super) fn owner_id(&self, index: usize) -> Option<u64> {
        self.0.get(index).map(|lease| lease.id)
    }

    fn of(&mut self, id: u64) -> Option<&mut Lease> {
        self.0.iter_mut().find(|lease| lease.id == id)
    }

    /// Takes an open file's lease out.
    #[must_use]
    pub(super) fn remove(&mut self, id: u64) -> Option<Lease> {
        let index = self.0.iter().position(|lease| lease.id == id)?;
        Some(self.0.remove(index))
    }

    /// Does for one holder what he had time for; returns what is to be dropped without the lock. `None` if no time has run out.
    fn expire(&mut self, now_ns: u64) -> Option<Option<Lease>> {
        let is_past = |deadline: Option<u64>| deadline.is_some_and(|deadline| deadline <= now_ns);
        if let Some(index) = self.0.iter().position(|lease| is_past(lease.end_by)) {
            return Some(Some(self.0.remove(index)));
        }
        let lease = self.0.iter_mut().find(|lease| is_past(lease.downgrade_by))?;
        lease.kind = LockKind::Read;
        lease.downgrade_by = None;
        Some(None)
    }

    /// Breaks one that an opener finds in his way and whose holder does not know of it; returns whom to tell.
    fn break_one(&mut self, writes: bool) -> Option<(Weak<OpenFile>, i32)> {
        let knows = |lease: &Lease| if writes { lease.end_by.is_some() } else { lease.is_breaking() };
        let lease = self.0.iter_mut().find(|lease| lease.excludes(writes) && !knows(lease))?;
        let due = if writes { &mut lease.end_by } else { &mut lease.downgrade_by };
        *due = Some(deadline());
        Some((lease.file.clone(), lease.descriptor))
    }

    /// By when nothing is in an opener's way any more; `None` if nothing is.
    fn obstacle(&self, writes: bool) -> Option<u64> {
        self.0.iter().filter(|lease| lease.excludes(writes)).map(|lease| lease.due(writes)).min()
    }

    /// Whether another file's lease forbids one of this kind.
    fn forbids(&self, id: u64, kind: LockKind) -> bool {
        let others = || self.0.iter().filter(|lease| lease.id != id);
        match kind {
            LockKind::Write => others().next().is_some(),
            LockKind::Read => others().any(|lease| lease.end_by.is_some()),
        }
    }
}

/// `EAGAIN` if the file is open in a way that a lease excludes.
fn check_openers(inode: &InodeHead, file: &OpenFile, kind: LockKind) -> Result<()> {
    // With the count of an opener, who looks for leases then.
    fence(Ordering::SeqCst);
    let writers = inode.writers().max(0);
    let is_free = match kind {
        LockKind::Read => writers == 0,
        LockKind::Write => inode.open_files() == 1 && writers == i32::from(file.flags().writable()),
    };
    if is_free { Ok(()) } else { Err(Error::WouldBlock) }
}

/// `F_SETLEASE` with a kind: a new lease of an open file, or its lease made another one. The holder is told by the signal of the file's owner, who is
/// `owner` if there is none yet, with the number of the descriptor.
///
/// # Errors
/// `EINVAL` for what is no regular file, or if there may be none; `EAGAIN`; `ENOMEM`.
pub fn set_lease(file: &Arc<OpenFile>, kind: LockKind, descriptor: i32, owner: FileOwner) -> Result<()> {
    let inode = file.inode();
    if inode.kind != FileKind::Regular {
        return Err(Error::Invalid);
    }
    let locks = inode.locks()?;
    if let Some(changed) = locks.change_lease(inode, file, kind) {
        return changed;
    }
    let share = Share::seen_by_all();
    if !enabled() {
        return Err(Error::Invalid);
    }
    let lease = Lease {
        file: Arc::downgrade(file),
        id: file.id(),
        pid: owner.owner,
        descriptor,
        kind,
        downgrade_by: None,
        end_by: None,
        _share: share,
    };
    locks.add_lease(inode, file, lease)?;
    file.set_owner_if_none(owner);
    Ok(())
}

/// `F_SETLEASE` with `F_UNLCK`.
///
/// # Errors
/// `EAGAIN` without a lease; `EINVAL` for what can't have any.
pub fn end_lease(file: &OpenFile) -> Result<()> {
    if file.inode().kind != FileKind::Regular {
        return Err(Error::Invalid);
    }
    let locks = file.inode().existing_locks().ok_or(Error::WouldBlock)?;
    let ended = locks.with_leases(|leases| leases.remove(file.id()));
    ended.ok_or(Error::WouldBlock)?;
    file.set_owner(FileOwner::default());
    locks.wake();
    Ok(())
}

/// `F_GETLEASE`: what an open file's lease is, or is about to become.
pub fn lease_of(file: &OpenFile) -> Option<LockKind> {
    let locks = file.inode().existing_locks()?;
    locks.expire_leases();
    locks.with_leases(|leases| leases.of(file.id()).and_then(|lease| lease.target()))
}

/// Opening a file, by who counts as an opener already. See [`break_leases`].
pub(crate) fn break_for_opener(inode: &InodeHead, flags: OpenFlags) -> Result<()> {
    if inode.kind != FileKind::Regular {
        return Ok(());
    }
    let writes = flags.bits() & OpenFlags::ACCESS_MODE != 0;
    break_leases(inode, writes, !flags.contains(OpenFlags::NON_BLOCK))
}

/// Opening or truncating a file: breaks the leases that go against it, and waits until they are out of the way.
///
/// # Errors
/// `EAGAIN` if the caller does not want to wait, `EINTR`.
#[inline(never)]
pub(crate) fn break_leases(inode: &InodeHead, writes: bool, may_wait: bool) -> Result<()> {
    // With the look at the openers in `check_openers`.
    fence(Ordering::SeqCst);
    let Some(locks) = inode.existing_locks() else { return Ok(()) };
    loop {
        locks.expire_leases();
        while let Some((file, descriptor)) = locks.with_leases(|leases| leases.break_one(writes)) {
            if let Some(file) = file.upgrade() {
                crate::caller::tell_owner(&file.owner(), descriptor);
            }
        }
        let obstacle = || locks.with_leases(|leases| leases.obstacle(writes));
        let Some(due) = obstacle() else { return Ok(()) };
        if !may_wait {
            return Err(Error::WouldBlock);
        }
        let due = (due != u64::MAX).then_some(due);
        match wait::until(locks.queue(), due, || obstacle().is_none()) {
            Ok(()) | Err(Error::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
}

impl FileLocks {
    fn expire_leases(&self) {
        let now_ns = machine::time::now_ns();
        while let Some(_ended) = self.with_leases(|leases| leases.expire(now_ns)) {
            self.wake();
        }
    }

    /// Changes the lease that an open file has; `None` if it has none.
    fn change_lease(&self, inode: &InodeHead, file: &OpenFile, kind: LockKind) -> Option<Result<()>> {
        let changed = self.with_leases(|leases| {
            leases.of(file.id())?;
            if let Err(error) = check_openers(inode, file, kind) {
                return Some(Err(error));
            }
            if leases.forbids(file.id(), kind) {
                return Some(Err(Error::WouldBlock));
            }
            let lease = leases.of(file.id())?;
            lease.kind = kind;
            if kind == LockKind::Read {
                lease.downgrade_by = None;
            }
            Some(Ok(()))
        });
        if changed == Some(Ok(())) {
            self.wake();
        }
        changed
    }

    fn add_lease(&self, inode: &InodeHead, file: &OpenFile, lease: Lease) -> Result<()> {
        let mut state = allocation::lock_with_room(|| self.state(), 1, |state| &mut state.leases.0)?;
        check_openers(inode, file, lease.kind)?;
        // Of two threads that make one for the same file, the second finds the first one's.
        if state.leases.of(lease.id).is_some() || state.leases.forbids(lease.id, lease.kind) {
            return Err(Error::WouldBlock);
        }
        state.leases.0.push(lease);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(id: u64, kind: LockKind) -> Lease {
        Lease {
            file: Weak::new(),
            id,
            pid: 1,
            descriptor: 3,
            kind,
            downgrade_by: None,
            end_by: None,
            _share: Share::new(),
        }
    }

    #[test]
    fn a_reader_has_a_lease_for_writing_downgraded_and_a_writer_has_it_ended() {
        let mut leases = Leases(Vec::from([lease(1, LockKind::Write)]));
        assert!(leases.break_one(false).is_some() && leases.break_one(false).is_none());
        assert_eq!(leases.of(1).unwrap().target(), Some(LockKind::Read));
        assert!(leases.break_one(true).is_some() && leases.break_one(true).is_none());
        assert_eq!(leases.of(1).unwrap().target(), None);
        // Who comes to read now has told enough.
        assert!(leases.break_one(false).is_none());
        assert!(leases.obstacle(false).is_some() && leases.obstacle(true).is_some());
    }

    #[test]
    fn readers_are_not_in_the_way_of_readers() {
        let mut leases = Leases(Vec::from([lease(1, LockKind::Read), lease(2, LockKind::Read)]));
        assert!(leases.break_one(false).is_none() && leases.obstacle(false).is_none());
        assert!(leases.break_one(true).is_some() && leases.break_one(true).is_some());
        assert!(leases.break_one(true).is_none());
        assert!(leases.forbids(3, LockKind::Read) && leases.forbids(1, LockKind::Write));
    }

    #[test]
    fn time_downgrades_and_then_ends_a_lease() {
        let mut leases = Leases(Vec::from([lease(1, LockKind::Write)]));
        leases.0[0].downgrade_by = Some(10);
        assert!(leases.expire(9).is_none());
        assert!(matches!(leases.expire(10), Some(None)) && leases.expire(10).is_none());
        assert_eq!(leases.obstacle(false), None);
        leases.0[0].end_by = Some(20);
        assert!(matches!(leases.expire(20), Some(Some(_))) && leases.obstacle(true).is_none());
    }
}
