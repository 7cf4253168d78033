//! A disk in memory that fails, forgets, records and keeps others waiting: what crash and error tests run on.
//!
//! It has a write cache. Every change is recorded in order with the flushes in between, so a test can build what a crash at any moment may leave:
//! what was flushed, and any part of the rest in any order.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use memory::fallible;
use sync::SpinLock;

use crate::bio::{BioFlags, Operation, SECTOR_BYTES};
use crate::driver::{Driver, Limits};
use crate::ram_disk::RamDisk;
use crate::request::Request;
use crate::{Error, Result};

/// One thing that happened to the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskEvent {
    /// Sectors were written.
    Write {
        /// The first sector.
        sector: u64,
        /// What.
        bytes: Vec<u8>,
        /// Whether it was durable at once.
        durable: bool,
    },
    /// Everything before is durable.
    Flush,
}

/// See the theory of this file.
pub struct FaultyDisk {
    disk: RamDisk,
    events: SpinLock<Vec<DiskEvent>>,
    recording: AtomicBool,
    /// Requests until one fails; 0: none will.
    fail_in: AtomicU64,
    /// From then on all fail.
    fail_all: AtomicBool,
    failure: SpinLock<Error>,
    /// Reads with this sector fail; `u64::MAX`: none do.
    unreadable: AtomicU64,
    /// Flushes that fail from now on.
    failing_flushes: AtomicU64,
    /// Changes and flushes that wait until they are let go; `None`: none has to.
    held: SpinLock<Option<Vec<Request>>>,
}

impl FaultyDisk {
    /// A disk with these contents that works.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        let mut limits = Limits::of_size(bytes.len().div_ceil(SECTOR_BYTES) as u64);
        limits.write_cache = true;
        limits.force_unit_access = true;
        let disk = RamDisk::with_limits(limits)?;
        disk.write_at(0, bytes)?;
        Ok(Self {
            disk,
            events: SpinLock::new(Vec::new()),
            recording: AtomicBool::new(false),
            fail_in: AtomicU64::new(0),
            fail_all: AtomicBool::new(false),
            failure: SpinLock::new(Error::Io),
            unreadable: AtomicU64::new(u64::MAX),
            failing_flushes: AtomicU64::new(0),
            held: SpinLock::new(None),
        })
    }

    /// Begins to record.
    pub fn record(&self) {
        self.recording.store(true, Relaxed);
    }

    /// How many events were recorded.
    pub fn event_count(&self) -> usize {
        self.events.lock().len()
    }

    /// Takes what was recorded.
    pub fn take_events(&self) -> Vec<DiskEvent> {
        core::mem::take(&mut *self.events.lock())
    }

    /// The `count`-th request from now fails, and with `for_ever` all after it.
    pub fn fail_after(&self, count: u64, error: Error, for_ever: bool) {
        *self.failure.lock() = error;
        self.fail_all.store(for_ever, Relaxed);
        self.fail_in.store(count, Relaxed);
    }

    /// Reads that touch this sector fail from now on.
    pub fn fail_reads_of(&self, sector: u64) {
        self.unreadable.store(sector, Relaxed);
    }

    /// The next `count` flushes fail.
    pub fn fail_flushes(&self, count: u64) {
        self.failing_flushes.store(count, Relaxed);
    }

    /// Changes and flushes wait from now on. Reads do not.
    pub fn hold(&self) {
        self.held.lock().get_or_insert_default();
    }

    /// What waits is done, in the order in which it came, and nothing has to wait any more.
    pub fn let_go(&self) {
        let held = self.held.lock().take();
        held.into_iter().flatten().for_each(|request| self.finish(request));
    }

    /// Keeps a request if it has to wait. Without memory for that it fails.
    fn keep(&self, request: Request) -> Option<Request> {
        let mut held = self.held.lock();
        let Some(waiting) = held.as_mut().filter(|_| request.operation() != Operation::Read) else {
            return Some(request);
        };
        if fallible::try_reserve(waiting, 1).is_ok() {
            waiting.push(request);
        } else {
            drop(held);
            request.complete(Err(Error::OutOfMemory));
        }
        None
    }

    fn finish(&self, mut request: Request) {
        if self.fails(&request) {
            let error = *self.failure.lock();
            return request.complete(Err(error));
        }
        let recorded = if self.recording.load(Relaxed) { self.note(&request) } else { Ok(()) };
        let outcome = recorded.and_then(|()| self.disk.perform(&mut request));
        request.complete(outcome);
    }

    /// The contents as a whole, everything written included.
    pub fn contents(&self) -> Result<Vec<u8>> {
        let bytes =
            usize::try_from(self.disk.limits().sectors).map_err(|_| Error::OutOfMemory)? * SECTOR_BYTES;
        let mut contents = fallible::try_vec_of(0, bytes)?;
        self.disk.read_at(0, &mut contents);
        Ok(contents)
    }

    fn fails(&self, request: &Request) -> bool {
        let sectors = request.sector()..request.sector() + request.sectors();
        let fewer = |count: u64| count.checked_sub(1);
        let is_chosen = match request.operation() {
            Operation::Read => sectors.contains(&self.unreadable.load(Relaxed)),
            Operation::Flush => self.failing_flushes.fetch_update(Relaxed, Relaxed, fewer).is_ok(),
            _ => false,
        };
        if is_chosen {
            return true;
        }
        let before = self.fail_in.load(Relaxed);
        if before == 0 {
            return false;
        }
        if before > 1 {
            self.fail_in.store(before - 1, Relaxed);
            return false;
        }
        if !self.fail_all.load(Relaxed) {
            self.fail_in.store(0, Relaxed);
        }
        true
    }

    fn note(&self, request: &Request) -> Result<()> {
        let event = match request.operation() {
            Operation::Read => return Ok(()),
            Operation::Flush => DiskEvent::Flush,
            _ => {
                let mut bytes = fallible::try_vec_of(0, request.sectors() as usize * SECTOR_BYTES)?;
                let mut at = 0;
                for segment in request.segments() {
                    segment.copy_out(0, &mut bytes[at..at + segment.len()]);
                    at += segment.len();
                }
                let durable = request.flags().contains(BioFlags::FORCE_UNIT_ACCESS);
                DiskEvent::Write { sector: request.sector(), bytes, durable }
            }
        };
        let mut events = self.events.lock();
        Ok(fallible::try_push(&mut events, event)?)
    }
}

impl Driver for FaultyDisk {
    fn limits(&self) -> Limits {
        self.disk.limits()
    }

    fn submit(&self, _cpu: usize, request: Request) -> core::result::Result<(), Request> {
        if let Some(request) = self.keep(request) {
            self.finish(request);
        }
        Ok(())
    }
}
