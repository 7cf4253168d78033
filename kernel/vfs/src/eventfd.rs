//! `eventfd`: a 64-bit counter that can be waited for.
//!
//! `write` adds, `read` takes everything (or one, of a semaphore). The counter never reaches
//! `u64::MAX`: a write that would make it do so waits. All state is one atomic word; a read or a
//! write without waiting is one compare-and-swap.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use memory::buffer::{Sink, Source};
use sched::WaitQueue;

use crate::file::{FileFeatures, FileOperations, OpenFile};
use crate::flags::OpenFlags;
use crate::poll::{PollEvents, PollList, PollTable};
use crate::{Error, Result, allocation, wait};

/// The largest value of the counter.
const MAXIMUM: u64 = u64::MAX - 1;
/// Bytes that reads and writes move.
const VALUE_BYTES: usize = 8;

/// An event counter.
pub struct EventCounter {
    value: AtomicU64,
    semaphore: bool,
    waiters: WaitQueue,
    watchers: PollList,
}

/// Makes an event counter with an initial value; a semaphore's reads take one at a time.
///
/// # Errors
/// [`Error::FileTableFull`], [`Error::OutOfMemory`].
pub fn create(initial: u32, semaphore: bool, flags: OpenFlags) -> Result<Arc<OpenFile>> {
    let counter = allocation::arc(EventCounter {
        value: AtomicU64::new(initial.into()),
        semaphore,
        waiters: WaitQueue::new(),
        watchers: PollList::new(),
    })?;
    let flags = (flags & OpenFlags::NON_BLOCK) | OpenFlags::READ_WRITE;
    OpenFile::anonymous(crate::anonymous::shared_inode()?, counter, flags)
}

impl EventCounter {
    fn take(&self) -> Option<u64> {
        // AcqRel: what was done before the write is seen after the read.
        let update = self.value.fetch_update(Ordering::AcqRel, Ordering::Acquire, |value| match value {
            0 => None,
            value if self.semaphore => Some(value - 1),
            _ => Some(0),
        });
        update.ok().map(|value| if self.semaphore { 1 } else { value })
    }

    fn try_add(&self, count: u64) -> bool {
        let update = self.value.fetch_update(Ordering::AcqRel, Ordering::Acquire, |value| {
            value.checked_add(count).filter(|&sum| sum <= MAXIMUM)
        });
        update.is_ok()
    }

    fn changed(&self, events: PollEvents) {
        self.waiters.wake_all();
        self.watchers.notify(events);
    }

    /// Adds to the counter from inside the kernel (completions); saturates.
    pub fn signal(&self, count: u64) {
        let add = |value: u64| Some(value.saturating_add(count).min(MAXIMUM));
        let _ = self.value.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        self.changed(PollEvents::INPUT);
    }
}

impl FileOperations for EventCounter {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE | FileFeatures::SEEK_IGNORED
    }

    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        if sink.remaining() < VALUE_BYTES {
            return Err(Error::Invalid);
        }
        let value = loop {
            if let Some(value) = self.take() {
                break value;
            }
            if file.non_block() {
                return Err(Error::WouldBlock);
            }
            wait::interruptible(&self.waiters, || self.value.load(Ordering::Acquire) != 0)?;
        };
        self.changed(PollEvents::OUTPUT);
        sink.write(&value.to_ne_bytes()).map_err(|_| Error::BadAddress)
    }

    fn write(&self, file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let mut bytes = [0; VALUE_BYTES];
        if source.remaining() < VALUE_BYTES {
            return Err(Error::Invalid);
        }
        if source.read(&mut bytes).map_err(|_| Error::BadAddress)? != VALUE_BYTES {
            return Err(Error::BadAddress);
        }
        let count = u64::from_ne_bytes(bytes);
        if count == u64::MAX {
            return Err(Error::Invalid);
        }
        while !self.try_add(count) {
            if file.non_block() {
                return Err(Error::WouldBlock);
            }
            wait::interruptible(&self.waiters, || {
                self.value.load(Ordering::Acquire).checked_add(count).is_some_and(|sum| sum <= MAXIMUM)
            })?;
        }
        self.changed(PollEvents::INPUT);
        Ok(VALUE_BYTES)
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.watchers);
        }
        let value = self.value.load(Ordering::Acquire);
        let mut ready = PollEvents::empty();
        ready.set(PollEvents::READABLE, value > 0);
        ready.set(PollEvents::WRITABLE, value < MAXIMUM);
        ready
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("anon_inode:[eventfd]")
    }

    fn information(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        writeln!(out, "eventfd-count: {:16x}", self.value.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(value: u64, semaphore: bool) -> EventCounter {
        EventCounter {
            value: AtomicU64::new(value),
            semaphore,
            waiters: WaitQueue::new(),
            watchers: PollList::new(),
        }
    }

    #[test]
    fn reading_takes_everything_or_one() {
        assert_eq!(counter(5, false).take(), Some(5));
        let semaphore = counter(2, true);
        assert_eq!([semaphore.take(), semaphore.take(), semaphore.take()], [Some(1), Some(1), None]);
    }

    #[test]
    fn the_counter_never_reaches_the_highest_value() {
        let counter = counter(MAXIMUM - 1, false);
        assert!(counter.try_add(1));
        assert!(!counter.try_add(1));
        counter.signal(7);
        assert_eq!(counter.take(), Some(MAXIMUM));
    }
}
