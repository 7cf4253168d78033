//! What a driver gets: one transfer of neighbouring sectors, made of one or more bios.
//!
//! A request that is dropped without having been completed (a driver unloaded, a device gone) fails with `EIO`: whoever
//! waits for it is always woken.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::fallible;
use sched::IoPriority;

use crate::bio::{Bio, BioFlags, Operation, Segment};
use crate::driver::Limits;
use crate::queue::Queue;
use crate::{Error, Result};

/// How often a request may be begun again: a device that needs to be reset more often for one transfer won't do it.
const TRIES_AGAIN_MAX: u8 = 5;

/// See the theory of this file.
pub struct Request {
    operation: Operation,
    flags: BioFlags,
    sector: u64,
    sectors: u64,
    segments: usize,
    bios: Vec<Bio>,
    submitted_ns: u64,
    owner: u64,
    priority: IoPriority,
    partition: u32,
    /// The number of the scheduler that gave it to the driver and wants to hear of its end; 0: none does.
    pub(crate) given_by: u64,
    /// How often it was begun again.
    tries: u8,
    /// Whom to tell; set while the driver has it.
    pub(crate) queue: Option<Arc<Queue>>,
}

impl Request {
    /// A request of one bio; `bios` is an empty vector with room for it.
    pub(crate) fn new(mut bios: Vec<Bio>, bio: Bio) -> Self {
        debug_assert!(bios.is_empty() && bios.capacity() > 0, "the caller made room for the bio");
        let (operation, flags, sector, sectors) = (bio.operation, bio.flags, bio.sector, bio.sectors);
        let (segments, submitted_ns, partition) = (bio.segments().len(), bio.submitted_ns, bio.partition);
        let (owner, priority) = (bio.owner, bio.priority);
        bios.push(bio);
        Self {
            operation,
            flags,
            sector,
            sectors,
            segments,
            bios,
            submitted_ns,
            owner,
            priority,
            partition,
            tries: 0,
            given_by: 0,
            queue: None,
        }
    }

    /// What is to be done.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// How.
    pub fn flags(&self) -> BioFlags {
        self.flags
    }

    /// The first sector.
    pub fn sector(&self) -> u64 {
        self.sector
    }

    /// How many.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// The sector after the last one.
    pub fn end(&self) -> u64 {
        self.sector + self.sectors
    }

    /// Pieces of memory.
    pub fn segment_count(&self) -> usize {
        self.segments
    }

    /// The pieces of memory, in the order of the sectors.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.bios.iter().flat_map(|bio| bio.segments())
    }

    /// The pieces of memory, for drivers that copy into them.
    pub fn segments_mut(&mut self) -> impl Iterator<Item = &mut Segment> {
        self.bios.iter_mut().flat_map(|bio| bio.segments_mut())
    }

    /// When its first bio was submitted, ns since boot.
    pub fn submitted_ns(&self) -> u64 {
        self.submitted_ns
    }

    /// Whose the first of its bios to come was: what schedulers that share out a device go by. Write-back is its flusher's, read-ahead the
    /// reader's. 0: a flush for many.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// How urgent it is; so are all its bios.
    pub fn priority(&self) -> IoPriority {
        self.priority
    }

    /// Whose its bios are, and how many sectors each has. One owner may come several times.
    pub fn shares(&self) -> impl Iterator<Item = (u64, u64)> {
        self.bios.iter().map(|bio| (bio.owner, bio.sectors))
    }

    /// The number of the partition that its first bio was for; 0: the disk.
    pub(crate) fn partition(&self) -> u32 {
        self.partition
    }

    fn mergeable(&self, other: &Self, limits: &Limits) -> bool {
        const APART: BioFlags =
            BioFlags::NO_MERGE.union(BioFlags::PREFLUSH).union(BioFlags::FORCE_UNIT_ACCESS);
        self.operation == other.operation
            && self.operation.has_data()
            && self.priority == other.priority
            && !(self.flags | other.flags).intersects(APART)
            && self.sectors + other.sectors <= u64::from(limits.sectors_max)
            && self.segments + other.segments <= limits.segments_max
    }

    /// Takes `other` in if it lies directly behind or before and is as urgent, whoever its owner is: who shares out a device by owners does
    /// not offer it those of others. Gives it back otherwise, or when there is no memory for the list.
    pub(crate) fn absorb(&mut self, mut other: Self, limits: &Limits) -> core::result::Result<(), Self> {
        let behind = self.end() == other.sector;
        if !(behind || other.end() == self.sector)
            || !self.mergeable(&other, limits)
            || fallible::try_reserve(&mut self.bios, other.bios.len()).is_err()
        {
            return Err(other);
        }
        if behind {
            self.bios.append(&mut other.bios);
        } else {
            self.sector = other.sector;
            self.bios.splice(0..0, other.bios.drain(..));
        }
        self.sectors += other.sectors;
        self.segments += other.segments;
        self.flags |= other.flags;
        self.submitted_ns = self.submitted_ns.min(other.submitted_ns);
        Ok(())
    }

    /// The transfer has ended. Every request ends by this, once.
    pub fn complete(mut self, outcome: Result<()>) {
        self.end_all(outcome);
    }

    /// The device had to be reset in the midst of it: it waits to be given to the driver again, before others, or fails with `EIO` if
    /// that has happened too often. Doing any of the operations twice is like doing it once. Whoever calls has the queue run
    /// when the device can be used.
    pub fn try_again(mut self) {
        self.tries += 1;
        if self.tries > TRIES_AGAIN_MAX {
            return self.complete(Err(Error::Io));
        }
        match self.queue.take() {
            Some(queue) => queue.put_back(self),
            None => self.complete(Err(Error::Io)),
        }
    }

    fn end_all(&mut self, outcome: Result<()>) {
        if self.bios.is_empty() {
            return;
        }
        let queue = self.queue.take();
        if let Some(queue) = &queue {
            queue.account_end(self, outcome);
        }
        for bio in core::mem::take(&mut self.bios) {
            bio.finish(outcome);
        }
        if let Some(queue) = queue {
            queue.run();
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.end_all(Err(Error::Io));
    }
}
