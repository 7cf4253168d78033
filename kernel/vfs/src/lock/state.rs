//! The locks of one file.
//!
//! Everything is under one spin lock per file; waiters sleep on one queue per file and try again after each release.
//! No operation sleeps under the lock. Closing takes it once for each chunk of an owner's locks.

use alloc::sync::Arc;

use sched::WaitQueue;
use sync::SpinLock;

use super::account::LockAccount;
use super::flock::{FlockKind, Flocks};
use super::record::{LockOwner, RecordDescription, RecordRequest, Records};
use super::{deadlock, record::LockKind};
use crate::{Error, Result, wait};

/// The locks of one file, and who waits for them.
pub struct FileLocks {
    state: SpinLock<State>,
    released: WaitQueue,
}

#[derive(Default)]
struct State {
    records: Records,
    flocks: Flocks,
}

impl Default for FileLocks {
    fn default() -> Self {
        Self::new()
    }
}

impl FileLocks {
    /// No locks.
    pub const fn new() -> Self {
        Self {
            state: SpinLock::new(State { records: Records::new(), flocks: Flocks::new() }),
            released: WaitQueue::new(),
        }
    }

    /// Sets or clears a record lock. With `wait` it sleeps until the range is free: `EINTR` on a signal, `EDEADLK` when
    /// the wait would never end; without, `EAGAIN`. `ENOLCK` when the account has as many locks as it may.
    pub fn set_record_for(
        &self,
        request: &RecordRequest,
        may_wait: bool,
        account: Option<&Arc<LockAccount>>,
    ) -> Result<()> {
        loop {
            let blocker = {
                let mut state = self.state.lock();
                match state.records.conflict(request) {
                    None => {
                        state.records.apply(request, account)?;
                        None
                    }
                    Some(blocker) => Some(blocker.owner),
                }
            };
            let Some(blocker) = blocker else {
                if request.kind != Some(LockKind::Write) {
                    // A release or a downgrade: others may go on.
                    self.released.wake_all();
                }
                return Ok(());
            };
            if !may_wait {
                return Err(Error::WouldBlock);
            }
            let _edge = deadlock::begin_wait(request.owner, blocker)?;
            wait::interruptible(&self.released, || self.state.lock().records.conflict(request).is_none())?;
        }
    }

    /// [`Self::set_record_for`] on nobody's account.
    pub fn set_record(&self, request: &RecordRequest, may_wait: bool) -> Result<()> {
        self.set_record_for(request, may_wait, None)
    }

    /// The first lock that would be in the way of a request.
    pub fn test_record(&self, request: &RecordRequest) -> Option<RecordDescription> {
        self.state.lock().records.conflict(request)
    }

    /// Sets (`Some`) or clears the `flock` lock of an open file. A conversion is not atomic, as on Linux: the old lock
    /// is given up before the new one is waited for.
    pub fn set_flock(&self, file: u64, kind: Option<FlockKind>, may_wait: bool) -> Result<()> {
        let mut released = false;
        loop {
            let done = {
                let mut state = self.state.lock();
                let existing = state.flocks.held_by(file);
                if existing == kind {
                    true
                } else {
                    released |= state.flocks.remove(file);
                    match kind {
                        None => true,
                        Some(kind) if state.flocks.conflicts(file, kind) => false,
                        Some(kind) => {
                            state.flocks.add(file, kind)?;
                            true
                        }
                    }
                }
            };
            if released {
                self.released.wake_all();
            }
            if done {
                return Ok(());
            }
            if !may_wait {
                return Err(Error::WouldBlock);
            }
            let kind = kind.unwrap_or(FlockKind::Shared);
            wait::interruptible(&self.released, || !self.state.lock().flocks.conflicts(file, kind))?;
        }
    }

    /// A descriptor table closed the file: its record locks end.
    pub fn release_owner(&self, owner: u64) {
        self.release(LockOwner::Process { id: owner, pid: 0 }, None);
    }

    /// An open file ended: its record locks and its `flock` lock end.
    pub fn release_file(&self, file: u64) {
        self.release(LockOwner::File { id: file }, Some(file));
    }

    fn release(&self, owner: LockOwner, file: Option<u64>) {
        let mut released = false;
        while self.state.lock().records.remove_some_of(owner) {
            released = true;
        }
        if let Some(file) = file {
            released |= self.state.lock().flocks.remove(file);
        }
        if released {
            self.released.wake_all();
        }
    }

    /// Whether somebody waits for a lock.
    pub fn has_waiters(&self) -> bool {
        !self.released.is_empty()
    }

    /// Calls `each` with every record lock (for `/proc/locks`), one hold of the lock for each.
    pub fn for_each_record(&self, mut each: impl FnMut(RecordDescription)) {
        let mut last = None;
        loop {
            let description = self.state.lock().records.after(last.as_ref()).map(|record| record.describe());
            let Some(description) = description else { return };
            each(description);
            last = Some(description);
        }
    }
}
