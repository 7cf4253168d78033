//! One transfer between memory and a range of sectors.
//!
//! A bio owns its memory while it is under way and gives it back to its completion, so nobody can touch what a device
//! is reading or writing. Writers who want to keep the bytes share them ([`Memory::Shared`], [`Memory::Frame`]).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bitflags::bitflags;
use memory::charge::{self, Account, AccountNumber};
use memory::fallible;
use memory::frame::Frame;
use sched::IoPriority;

use crate::queue::Queue;
use crate::{Error, Result};

/// The unit of addresses on all devices, whatever their blocks.
pub const SECTOR_BYTES: usize = 512;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// From the device to memory.
    Read,
    /// From memory to the device.
    Write,
    /// Makes all completed writes durable.
    Flush,
    /// The contents of the sectors are not needed any more.
    Discard,
    /// The sectors shall read as zeros.
    WriteZeroes,
}

impl Operation {
    /// Whether it changes what is on the device.
    pub const fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Discard | Self::WriteZeroes)
    }

    /// Whether bytes are moved.
    pub const fn has_data(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

bitflags! {
    /// How it is to be done.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct BioFlags: u32 {
        /// Completed writes are to be durable before this one begins.
        const PREFLUSH = 1;
        /// The write is durable when it completes.
        const FORCE_UNIT_ACCESS = 2;
        /// Somebody waits for it.
        const SYNCHRONOUS = 4;
        /// A file system's own structures.
        const METADATA = 8;
        /// Nobody waits for it; it may be dropped.
        const READ_AHEAD = 16;
        /// Not to be merged with others.
        const NO_MERGE = 32;
    }
}

/// Where bytes of a transfer are.
#[derive(Debug)]
pub enum Memory {
    /// A page frame: of the page cache, usually.
    Frame(Frame),
    /// Bytes of its own.
    Owned(Vec<u8>),
    /// Bytes that others read meanwhile: only to write from.
    Shared(Arc<Vec<u8>>),
}

impl Memory {
    fn length(&self) -> usize {
        match self {
            Self::Frame(_) => machine::address::PAGE_SIZE,
            Self::Owned(bytes) => bytes.len(),
            Self::Shared(bytes) => bytes.len(),
        }
    }
}

/// A part of some memory.
#[derive(Debug)]
pub struct Segment {
    memory: Memory,
    offset: usize,
    length: usize,
}

impl Segment {
    /// The bytes from `offset` on. Fails when they reach beyond the memory or are not whole sectors.
    pub fn new(memory: Memory, offset: usize, length: usize) -> Result<Self> {
        let end = offset.checked_add(length).ok_or(Error::Invalid)?;
        if end > memory.length() || length == 0 || !length.is_multiple_of(SECTOR_BYTES) {
            return Err(Error::Invalid);
        }
        Ok(Self { memory, offset, length })
    }

    /// All of it.
    pub fn whole(memory: Memory) -> Result<Self> {
        let length = memory.length();
        Self::new(memory, 0, length)
    }

    /// Bytes.
    #[expect(clippy::len_without_is_empty, reason = "a segment is never empty")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// The memory, for drivers that give its address to the device, with offset and length.
    pub fn parts(&self) -> (&Memory, usize, usize) {
        (&self.memory, self.offset, self.length)
    }

    /// The memory back.
    pub fn into_memory(self) -> Memory {
        self.memory
    }

    /// Copies out of it, from `at` on.
    ///
    /// # Panics
    /// When the bytes reach beyond the segment: the request's own arithmetic is wrong.
    pub fn copy_out(&self, at: usize, into: &mut [u8]) {
        assert!(at + into.len() <= self.length, "a driver copies within the segment");
        let start = self.offset + at;
        match &self.memory {
            Memory::Frame(frame) => frame.read(start, into),
            Memory::Owned(bytes) => into.copy_from_slice(&bytes[start..start + into.len()]),
            Memory::Shared(bytes) => into.copy_from_slice(&bytes[start..start + into.len()]),
        }
    }

    /// Copies into it, from `at` on.
    ///
    /// # Panics
    /// As [`copy_out`](Self::copy_out); and for shared bytes, which [`Bio::new`] admits for writes only.
    pub fn copy_in(&mut self, at: usize, from: &[u8]) {
        assert!(at + from.len() <= self.length, "a driver copies within the segment");
        let start = self.offset + at;
        match &mut self.memory {
            Memory::Frame(frame) => frame.write(start, from),
            Memory::Owned(bytes) => bytes[start..start + from.len()].copy_from_slice(from),
            Memory::Shared(_) => unreachable!("a read into shared bytes was refused at its making"),
        }
    }
}

/// What is called when a transfer has ended, with the bio (its memory, above all) and how it ended.
pub type Done = Box<dyn FnOnce(Bio, Result<()>) + Send>;

/// See the theory of this file.
pub struct Bio {
    pub(crate) operation: Operation,
    pub(crate) flags: BioFlags,
    pub(crate) sector: u64,
    pub(crate) sectors: u64,
    segments: Vec<Segment>,
    pub(crate) done: Option<Done>,
    /// When it was submitted, ns since boot.
    pub(crate) submitted_ns: u64,
    /// The number of the partition that it was submitted to; 0: to the disk.
    pub(crate) partition: u32,
    /// Whose it is; 0 until it is submitted, and of flushes that are made for many.
    pub(crate) owner: u64,
    /// How urgent; unset until it is submitted, unless its maker has chosen.
    pub(crate) priority: IoPriority,
    /// Who pays for it: see [`control`](crate::control). None until it is submitted.
    payer: Option<Account>,
    /// Where it waits for a flush when its data is written.
    pub(crate) flush_after: Option<Arc<Queue>>,
}

impl Bio {
    /// A transfer of the segments, in their order, from `sector` on.
    pub fn new(operation: Operation, sector: u64, segments: Vec<Segment>, flags: BioFlags) -> Result<Self> {
        if !operation.has_data() || segments.is_empty() {
            return Err(Error::Invalid);
        }
        let shared = |segment: &Segment| matches!(segment.memory, Memory::Shared(_));
        if operation == Operation::Read && segments.iter().any(shared) {
            return Err(Error::Invalid);
        }
        let bytes: usize = segments.iter().map(Segment::len).sum();
        let sectors = (bytes / SECTOR_BYTES) as u64;
        Ok(Self::assembled(operation, flags, sector, sectors, segments))
    }

    /// An operation without data: flush, discard, write zeroes.
    pub fn without_data(operation: Operation, sector: u64, sectors: u64, flags: BioFlags) -> Result<Self> {
        if operation.has_data() || (sectors == 0 && operation != Operation::Flush) {
            return Err(Error::Invalid);
        }
        Ok(Self::assembled(operation, flags, sector, sectors, Vec::new()))
    }

    fn assembled(
        operation: Operation,
        flags: BioFlags,
        sector: u64,
        sectors: u64,
        segments: Vec<Segment>,
    ) -> Self {
        Self {
            operation,
            flags,
            sector,
            sectors,
            segments,
            done: None,
            submitted_ns: 0,
            partition: 0,
            owner: 0,
            priority: IoPriority::UNSET,
            payer: None,
            flush_after: None,
        }
    }

    /// Who submits it is its owner, and unless its maker has said how urgent it is, it is as urgent as that one's transfers are.
    pub(crate) fn attribute(&mut self) {
        let submitter = sched::current();
        self.owner = submitter.io_owner();
        let of_memory = self.segments.first().and_then(|segment| match &segment.memory {
            Memory::Frame(frame) => Account::of_frame(frame),
            _ => None,
        });
        self.payer = of_memory.or_else(charge::of_current);
        if !self.priority.is_set() {
            self.priority = submitter.effective_io_priority();
        }
    }

    /// Has it go as this says, whoever submits it.
    pub fn with_priority(mut self, priority: IoPriority) -> Self {
        self.priority = priority;
        self
    }

    /// Whose it is: see [`sched::io_context`]. 0: it was not submitted yet, or is a flush for many.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Who pays for it.
    pub(crate) fn payer(&self) -> Option<AccountNumber> {
        self.payer.as_ref().map(Account::number)
    }

    /// How urgent it is.
    pub fn priority(&self) -> IoPriority {
        self.priority
    }

    /// One piece of memory.
    pub fn single(operation: Operation, sector: u64, memory: Memory, flags: BioFlags) -> Result<Self> {
        let mut segments = fallible::try_vec(1)?;
        segments.push(Segment::whole(memory)?);
        Self::new(operation, sector, segments, flags)
    }

    /// What is called at the end.
    pub fn on_done(mut self, done: impl FnOnce(Self, Result<()>) + Send + 'static) -> Result<Self> {
        self.done = Some(fallible::try_box(done)?);
        Ok(self)
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

    /// How many sectors.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// The memory, in order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The memory, in order, for drivers that copy.
    pub fn segments_mut(&mut self) -> &mut [Segment] {
        &mut self.segments
    }

    /// The memory back.
    pub fn into_segments(mut self) -> Vec<Segment> {
        core::mem::take(&mut self.segments)
    }

    pub(crate) fn segments_vector(&mut self) -> &mut Vec<Segment> {
        &mut self.segments
    }

    /// Ends it.
    pub(crate) fn finish(mut self, outcome: Result<()>) {
        if let Some(queue) = self.flush_after.take()
            && outcome.is_ok()
        {
            return queue.flushes.wait_for_flush(&queue, self);
        }
        if let Some(done) = self.done.take() {
            done(self, outcome);
        }
    }
}

impl Drop for Bio {
    /// A bio that gets lost on its way has failed: whoever waits for it is told.
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            let segments = core::mem::take(&mut self.segments);
            let mut lost = Self::assembled(self.operation, self.flags, self.sector, self.sectors, segments);
            (lost.submitted_ns, lost.partition) = (self.submitted_ns, self.partition);
            (lost.owner, lost.priority) = (self.owner, self.priority);
            done(lost, Err(Error::Io));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_into_shared_bytes_are_refused() {
        let shared = Memory::Shared(Arc::new(vec![0; 512]));
        assert_eq!(Bio::single(Operation::Read, 0, shared, BioFlags::empty()).err(), Some(Error::Invalid));
    }

    #[test]
    fn segments_are_whole_sectors_inside_their_memory() {
        let bytes = || Memory::Owned(vec![0; 1024]);
        assert!(Segment::new(bytes(), 512, 512).is_ok());
        assert!(Segment::new(bytes(), 512, 1024).is_err());
        assert!(Segment::new(bytes(), 0, 100).is_err());
        assert!(Segment::new(bytes(), usize::MAX, 512).is_err());
    }
}
