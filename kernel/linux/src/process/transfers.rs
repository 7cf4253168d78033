//! How much a thread has read and written (`/proc/PID/io`, proc(5)).
//!
//! Counted are the calls of the read and write families and the bytes that they moved, whatever they moved them to or from.
//! Each thread counts for itself with plain loads and stores; a reader adds the threads up, and what is known of those that have
//! ended and of children that were waited for.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::errno::{Errno, SysResult};

/// A thread's counters; or the sums of several threads, which are changed under a lock.
// Relaxed everywhere: there is one writer at a time, and the counters order nothing.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
}

/// Values of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Transferred {
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
}

impl core::ops::AddAssign for Transferred {
    fn add_assign(&mut self, other: Self) {
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.reads += other.reads;
        self.writes += other.writes;
    }
}

#[inline(always)]
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}

/// Counts a call, unless the file was not open for it or has no positions: that is refused before anything is tried.
#[inline(always)]
fn count(bytes: &AtomicU64, calls: &AtomicU64, result: &SysResult) {
    match result {
        Ok(moved) => add(bytes, *moved as u64),
        Err(Errno::EBADF | Errno::ESPIPE) => return,
        Err(_) => {}
    }
    add(calls, 1);
}

impl Transfers {
    /// Counts a call that has read, and what it read.
    #[inline(always)]
    pub(crate) fn count_read(&self, result: &SysResult) {
        count(&self.read_bytes, &self.reads, result);
    }

    /// Counts a call that has written, and what it wrote.
    #[inline(always)]
    pub(crate) fn count_written(&self, result: &SysResult) {
        count(&self.written_bytes, &self.writes, result);
    }

    /// As [`Self::count_read`] for readv and its kin, which count even without a file to read.
    pub(crate) fn count_read_of_vectors(&self, result: &SysResult) {
        count(&self.read_bytes, &self.reads, &Ok(result.unwrap_or(0)));
    }

    /// As [`Self::count_written`] for writev and its kin, which count even without a file to write.
    pub(crate) fn count_written_of_vectors(&self, result: &SysResult) {
        count(&self.written_bytes, &self.writes, &Ok(result.unwrap_or(0)));
    }

    /// Counts a call that has moved bytes from a file to another.
    pub(crate) fn count_copied(&self, result: &SysResult) {
        self.count_read(result);
        self.count_written(result);
    }

    /// The values now.
    pub(crate) fn values(&self) -> Transferred {
        Transferred {
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
        }
    }

    /// Adds another's values to a sum.
    pub(crate) fn add(&self, values: Transferred) {
        add(&self.read_bytes, values.read_bytes);
        add(&self.written_bytes, values.written_bytes);
        add(&self.reads, values.reads);
        add(&self.writes, values.writes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_calls_count_unless_the_file_was_not_open_for_them() {
        let counters = Transfers::default();
        counters.count_read(&Ok(7));
        counters.count_read(&Err(Errno::EAGAIN));
        counters.count_read(&Err(Errno::EBADF));
        counters.count_read_of_vectors(&Err(Errno::EBADF));
        counters.count_written(&Ok(0));
        counters.count_copied(&Ok(5));
        let expected = Transferred { read_bytes: 12, written_bytes: 5, reads: 4, writes: 2 };
        assert_eq!(counters.values(), expected);
        let sum = Transfers::default();
        sum.add(counters.values());
        sum.add(counters.values());
        let mut twice = expected;
        twice += expected;
        assert_eq!(sum.values(), twice);
    }
}
