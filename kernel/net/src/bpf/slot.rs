//! Where a socket keeps its filter.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use sync::SpinLock;
use vfs::{Error, Result};

use super::filter::{Filter, Packet};

/// A socket's filter, if it has one.
#[derive(Debug)]
pub struct Slot {
    /// Whether there is one, for who sends. Written with the lock held.
    is_set: AtomicBool,
    filter: SpinLock<Option<Arc<Filter>>>,
    /// It stays what it is (`SO_LOCK_FILTER`). Written with the filter's lock held.
    is_locked: AtomicBool,
}

impl Slot {
    pub(crate) const fn new() -> Self {
        Self {
            is_set: AtomicBool::new(false),
            filter: SpinLock::new(None),
            is_locked: AtomicBool::new(false),
        }
    }

    /// Whether it can't be changed any more.
    pub fn is_locked(&self) -> bool {
        self.is_locked.load(Ordering::Relaxed)
    }

    /// Locks it; it is never unlocked.
    ///
    /// # Errors
    /// `EPERM` for unlocking what is locked.
    pub fn set_locked(&self, locked: bool) -> Result<()> {
        let _filter = self.filter.lock();
        if self.is_locked() && !locked {
            return Err(Error::NotPermitted);
        }
        self.is_locked.store(locked, Ordering::Relaxed);
        Ok(())
    }

    fn replace(&self, with: Option<Arc<Filter>>) -> Result<Option<Arc<Filter>>> {
        let mut filter = self.filter.lock();
        if self.is_locked() {
            return Err(Error::NotPermitted);
        }
        // Relaxed: who sends meanwhile is before or after this.
        self.is_set.store(with.is_some(), Ordering::Relaxed);
        Ok(core::mem::replace(&mut *filter, with))
    }

    /// Attaches a filter instead of the one that there is.
    ///
    /// # Errors
    /// `EPERM` if that is locked.
    pub fn attach(&self, filter: Arc<Filter>) -> Result<()> {
        self.replace(Some(filter)).map(drop)
    }

    /// Takes the filter away.
    ///
    /// # Errors
    /// `EPERM` if it is locked, `ENOENT` if there is none.
    pub fn detach(&self) -> Result<()> {
        self.replace(None)?.map(drop).ok_or(Error::NotFound)
    }

    /// The filter.
    pub fn get(&self) -> Option<Arc<Filter>> {
        self.filter.lock().clone()
    }

    /// How many bytes of a message are kept; `None`: it is dropped.
    #[inline]
    pub(crate) fn kept(&self, packet: &(impl Packet + ?Sized)) -> Option<usize> {
        let length = packet.length();
        if !self.is_set.load(Ordering::Relaxed) {
            return Some(length);
        }
        match self.get().map(|filter| filter.run(packet)) {
            None => Some(length),
            Some(0) => None,
            Some(kept) => Some(length.min(kept as usize)),
        }
    }
}
