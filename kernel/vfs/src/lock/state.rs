//! The locks of one file.
//!
//! Everything is under one spin lock per file; waiters sleep on one queue per file and try again after each release.
//! No operation sleeps under the lock. Closing takes it once for each chunk of an owner's locks.

use alloc::sync::Arc;
use alloc::vec::Vec;

use sched::WaitQueue;
use sync::{SpinLock, SpinLockGuard};

use super::account::LockAccount;
use super::flock::{FlockHolder, FlockKind, Flocks};
use super::lease::Leases;
use super::record::{LockOwner, RecordDescription, RecordRequest, Records};
use super::{deadlock, record::LockKind, registry};
use crate::attributes::DeviceNumber;
use crate::{Error, Result, allocation, wait};

/// The locks of one file, and who waits for them.
pub struct FileLocks {
    /// Its number among all files with locks; 0 if it is not among them.
    number: u64,
    device: DeviceNumber,
    inode: u64,
    state: SpinLock<State>,
    released: WaitQueue,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) records: Records,
    pub(super) flocks: Flocks,
    pub(super) leases: Leases,
    /// Who waits, in the order of their coming, but for those who took the place of others that left.
    pub(super) waiting: Vec<Waiter>,
    next_waiter: u64,
}

/// A wait for a lock.
pub(super) struct Waiter {
    number: u64,
    pub(super) what: Wanted,
}

/// What is waited for.
pub(super) enum Wanted {
    Record(RecordRequest),
    Whole(FlockHolder, FlockKind),
}

impl FileLocks {
    /// No locks of a file.
    pub const fn new(device: DeviceNumber, inode: u64) -> Self {
        Self::with_number(0, device, inode)
    }

    const fn with_number(number: u64, device: DeviceNumber, inode: u64) -> Self {
        Self {
            number,
            device,
            inode,
            state: SpinLock::new(State {
                records: Records::new(),
                flocks: Flocks::new(),
                leases: Leases::new(),
                waiting: Vec::new(),
                next_waiter: 0,
            }),
            released: WaitQueue::new(),
        }
    }

    /// No locks of a file, which is known from now on to who shows all locks.
    pub(crate) fn registered(device: DeviceNumber, inode: u64) -> Result<Arc<Self>> {
        let number = registry::next_number();
        let locks = allocation::arc(Self::with_number(number, device, inode))?;
        registry::add(number, &locks)?;
        Ok(locks)
    }

    /// The file: device and inode.
    pub fn file(&self) -> (DeviceNumber, u64) {
        (self.device, self.inode)
    }

    pub(super) fn state(&self) -> SpinLockGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn with_leases<R>(&self, with: impl FnOnce(&mut Leases) -> R) -> R {
        with(&mut self.state.lock().leases)
    }

    pub(super) fn queue(&self) -> &WaitQueue {
        &self.released
    }

    pub(super) fn wake(&self) {
        self.released.wake_all();
    }

    /// Waits for a lock, seen by who shows all locks.
    fn wait_for(&self, what: Wanted, is_free: impl FnMut() -> bool) -> Result<()> {
        let number = {
            let mut state = allocation::lock_with_room(|| self.state.lock(), 1, |state| &mut state.waiting)?;
            let number = state.next_waiter;
            state.next_waiter += 1;
            state.waiting.push(Waiter { number, what });
            number
        };
        let waited = wait::interruptible(&self.released, is_free);
        let mut state = self.state.lock();
        let index = state.waiting.iter().position(|waiter| waiter.number == number);
        debug_assert!(index.is_some(), "a waiter leaves once");
        if let Some(index) = index {
            state.waiting.swap_remove(index);
        }
        waited
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
            let is_free = || self.state.lock().records.conflict(request).is_none();
            self.wait_for(Wanted::Record(*request), is_free)?;
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
    pub fn set_flock(&self, holder: FlockHolder, kind: Option<FlockKind>, may_wait: bool) -> Result<()> {
        let file = holder.file;
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
                            state.flocks.add(holder, kind)?;
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
            self.wait_for(Wanted::Whole(holder, kind), || !self.state.lock().flocks.conflicts(file, kind))?;
        }
    }

    /// A descriptor table closed the file: its record locks end.
    pub fn release_owner(&self, owner: u64) {
        self.release(LockOwner::Process { id: owner, pid: 0 }, None);
    }

    /// An open file ended: its record locks, its `flock` lock and its lease end.
    pub fn release_file(&self, file: u64) {
        self.release(LockOwner::File { id: file }, Some(file));
    }

    fn release(&self, owner: LockOwner, file: Option<u64>) {
        let mut released = false;
        while self.state.lock().records.remove_some_of(owner) {
            released = true;
        }
        if let Some(file) = file {
            let mut state = self.state.lock();
            released |= state.flocks.remove(file);
            let lease = state.leases.remove(file);
            drop(state);
            released |= lease.is_some();
        }
        if released {
            self.released.wake_all();
        }
    }

    /// Whether somebody waits for a lock.
    pub fn has_waiters(&self) -> bool {
        !self.released.is_empty()
    }
}

impl Drop for FileLocks {
    fn drop(&mut self) {
        if self.number != 0 {
            registry::remove(self.number);
        }
    }
}
