//! How many interests a user may have: of who made the instance, in all his instances together (`/proc/sys/fs/epoll/max_user_watches`).
//!
//! An interest counts until its memory is free. That is when it ends, unless it ends with its file and is in a list that somebody else keeps: then when that is next
//! looked at.

use core::sync::atomic::{AtomicI64, Ordering};

use machine::address::PAGE_SIZE;
use memory::per_cpu::Counter;

use super::instance::INTEREST_BYTES;
use crate::{Error, Result};

/// The part of the memory that the interests of one user may take, in hundredths, as on Linux.
const MEMORY_PERCENT: u64 = 4;

/// Everything while the machine starts.
static INTERESTS_MAX: AtomicI64 = AtomicI64::new(i64::MAX);

/// How many interests a user may have.
pub fn max_user_watches() -> u64 {
    // Relaxed: a word of its own.
    INTERESTS_MAX.load(Ordering::Relaxed).unsigned_abs()
}

/// Changes that; what is there stays.
pub fn set_max_user_watches(maximum: u64) {
    INTERESTS_MAX.store(i64::try_from(maximum).unwrap_or(i64::MAX), Ordering::Relaxed);
}

/// The limit that follows from the size of the memory.
pub(crate) fn limit_for(frames: u64) -> u64 {
    frames * PAGE_SIZE as u64 / 100 * MEMORY_PERCENT / INTEREST_BYTES as u64
}

/// The interests of one user.
#[derive(Debug)]
pub struct Account(Counter);

impl Account {
    /// None yet.
    pub fn new() -> Self {
        Self(Counter::new(Counter::BATCH))
    }

    /// Counts an interest that is about to be made.
    ///
    /// # Errors
    /// `ENOSPC` at the limit.
    pub(super) fn claim(&self) -> Result<Charge<'_>> {
        let limit = INTERESTS_MAX.load(Ordering::Relaxed);
        if self.0.try_add(1, limit) { Ok(Charge(self)) } else { Err(Error::NoSpace) }
    }

    /// An interest is gone.
    pub(super) fn release(&self) {
        self.0.decrement();
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn interests(&self) -> i64 {
        self.0.exact()
    }
}

impl Default for Account {
    fn default() -> Self {
        Self::new()
    }
}

/// What counts for an interest before there is one; given back when dropped.
pub(super) struct Charge<'a>(&'a Account);

impl Charge<'_> {
    /// There is the interest: it is counted until it is gone.
    pub(super) fn pass_on(self) {
        core::mem::forget(self);
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use super::super::{Epoll, EpollEvent, EpollEvents, create_epoll};
    use super::*;
    use crate::flags::OpenFlags;
    use crate::poll::PollEvents;
    use crate::{OpenFile, eventfd};

    const EVENT: EpollEvent =
        EpollEvent { events: EpollEvents::from_bits_retain(PollEvents::READABLE.bits()), data: 0 };

    fn counter() -> Arc<OpenFile> {
        eventfd::create(0, false, OpenFlags::empty()).unwrap()
    }

    #[test]
    fn a_user_has_so_many_interests_until_they_are_gone() {
        sched::current();
        let account = Arc::new(Account::new());
        let (first, second) = (create_epoll(&account).unwrap(), create_epoll(&account).unwrap());
        let (first, other) = (Epoll::of(&first).unwrap(), Epoll::of(&second).unwrap());
        let files = [counter(), counter(), counter()];
        let before = max_user_watches();
        set_max_user_watches(2);
        first.add(1, &files[0], EVENT).unwrap();
        other.add(1, &files[0], EVENT).unwrap();
        assert_eq!(first.add(2, &files[1], EVENT), Err(Error::NoSpace));
        assert_eq!(first.add(1, &files[0], EVENT), Err(Error::Exists));
        assert_eq!(other.modify(1, &files[0], EVENT), Ok(()));
        // Another user is not concerned.
        let strangers = create_epoll(&Arc::default()).unwrap();
        assert_eq!(Epoll::of(&strangers).unwrap().add(1, &files[0], EVENT), Ok(()));
        // What was removed is not in the quiet file's list any more.
        first.remove(1, &files[0]).unwrap();
        assert_eq!(first.add(2, &files[1], EVENT), Ok(()));
        assert_eq!(first.add(3, &files[2], EVENT), Err(Error::NoSpace));
        // Nor is what went with its instance, whatever it had ready.
        drop(second);
        assert_eq!(first.add(3, &files[2], EVENT), Ok(()));
        set_max_user_watches(before);
        drop(files);
        assert_eq!(account.interests(), 0);
    }

    #[test]
    fn what_is_not_added_is_not_counted() {
        sched::current();
        let account = Arc::new(Account::new());
        let set = create_epoll(&account).unwrap();
        let file = counter();
        for number in 0.. {
            memory::fallible::inject(number);
            let added = Epoll::of(&set).unwrap().add(1, &file, EVENT);
            if memory::fallible::stop_injection().is_none() {
                assert_eq!(added, Ok(()));
                break;
            }
            assert_eq!((added, account.interests()), (Err(Error::OutOfMemory), 0));
        }
        assert_eq!(account.interests(), 1);
    }

    #[test]
    fn the_limit_follows_from_the_memory() {
        let gibibyte = limit_for((1 << 30) / PAGE_SIZE as u64);
        assert!((50_000..250_000).contains(&gibibyte), "{gibibyte}");
    }
}
