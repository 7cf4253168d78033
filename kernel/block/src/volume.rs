//! A disk or a partition of one: a range of a queue's sectors, with synchronous transfers for those who wait anyway.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use memory::fallible;
use sched::Completion;
use sync::SpinLock;

use crate::bio::{Bio, BioFlags, Memory, Operation, SECTOR_BYTES, Segment};
use crate::plug::Plug;
use crate::queue::Queue;
use crate::{Error, Result};

/// See the theory of this file.
#[derive(Clone)]
pub struct Volume {
    queue: Arc<Queue>,
    start: u64,
    /// None: all that the disk has, however much that becomes. Copies have the same.
    sectors: Option<Arc<AtomicU64>>,
    /// The partition that its transfers are counted for; 0: the disk alone.
    partition: u32,
}

/// What a waiting submitter shares with the completion.
#[derive(Default)]
struct Waiter {
    done: Completion,
    outcome: SpinLock<Option<(Vec<Segment>, Result<()>)>>,
}

/// Transfers that somebody will wait for together. They are submitted together, too, so that neighbours meet.
pub struct Batch {
    volume: Volume,
    plug: Plug,
    waiters: Vec<Arc<Waiter>>,
}

impl Waiter {
    /// A bio whose end is told to the waiter that comes with it.
    fn of(bio: Bio) -> Result<(Bio, Arc<Self>)> {
        let waiter = fallible::try_arc(Self::default())?;
        let told = waiter.clone();
        let bio = bio.on_done(move |mut bio, outcome| {
            let segments = core::mem::take(bio.segments_vector());
            *told.outcome.lock() = Some((segments, outcome));
            told.done.complete();
        })?;
        Ok((bio, waiter))
    }

    /// Sleeps until it has ended. Its memory, and how it ended.
    fn wait(&self) -> (Vec<Segment>, Result<()>) {
        self.done.wait();
        self.outcome.lock().take().unwrap_or((Vec::new(), Err(Error::Io)))
    }
}

impl Volume {
    /// The whole disk.
    pub fn whole(queue: Arc<Queue>) -> Self {
        Self { queue, start: 0, sectors: None, partition: 0 }
    }

    /// A part of it. Fails when it is not inside.
    pub fn part(&self, start: u64, sectors: u64) -> Result<Self> {
        let end = start.checked_add(sectors).ok_or(Error::Invalid)?;
        if end > self.sectors() {
            return Err(Error::Invalid);
        }
        Ok(Self {
            queue: self.queue.clone(),
            start: self.start + start,
            sectors: Some(fallible::try_arc(AtomicU64::new(sectors))?),
            partition: self.partition,
        })
    }

    /// Has its transfers counted for the partition of this number, too.
    pub(crate) fn counted_for(self, partition: u32) -> Result<Self> {
        self.queue.count_partition(partition)?;
        Ok(Self { partition, ..self })
    }

    /// The disk's sector that is its first.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Its size now, in sectors.
    pub fn sectors(&self) -> u64 {
        self.sectors.as_ref().map_or_else(|| self.queue.sectors(), |sectors| sectors.load(Ordering::Relaxed))
    }

    /// Changes the size of a part, and of its copies.
    pub(crate) fn set_sectors(&self, sectors: u64) {
        debug_assert!(self.sectors.is_some(), "the size of a disk is its queue's");
        if let Some(own) = &self.sectors {
            own.store(sectors, Ordering::Relaxed);
        }
    }

    /// The queue of the disk.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Submits a bio whose sectors count from the volume's beginning.
    pub fn submit(&self, bio: Bio) {
        if let Some(bio) = self.place(bio) {
            self.queue.submit(bio);
        }
    }

    /// The same bio with its sectors counted from the disk's beginning. It has failed if they are not the volume's.
    fn place(&self, mut bio: Bio) -> Option<Bio> {
        let inside = bio.sector.checked_add(bio.sectors).is_some_and(|end| end <= self.sectors());
        if !inside {
            bio.finish(Err(Error::Invalid));
            return None;
        }
        bio.sector += self.start;
        bio.partition = self.partition;
        Some(bio)
    }

    /// Submits a bio and sleeps until it has ended.
    pub fn transfer(&self, bio: Bio) -> Result<Vec<Segment>> {
        // Also where the device is quick enough that nobody has to.
        debug_assert!(
            machine::preempt::count() == 0,
            "a thread in an atomic section must not wait for a disk"
        );
        let (bio, waiter) = Waiter::of(bio)?;
        self.submit(bio);
        let (segments, outcome) = waiter.wait();
        outcome.map(|()| segments)
    }

    /// An empty batch.
    pub fn batch(&self) -> Batch {
        Batch { volume: self.clone(), plug: Plug::new(self.queue.clone()), waiters: Vec::new() }
    }

    /// Reads whole sectors.
    pub fn read(&self, sector: u64, bytes: usize) -> Result<Vec<u8>> {
        let most = self.bytes_max();
        let mut all = fallible::try_vec_of(0, bytes.min(most))?;
        if bytes <= most {
            return self.read_piece(sector, all);
        }
        all = Vec::new();
        fallible::try_reserve(&mut all, bytes)?;
        while all.len() < bytes {
            let piece = fallible::try_vec_of(0, most.min(bytes - all.len()))?;
            let at = sector + (all.len() / SECTOR_BYTES) as u64;
            all.extend_from_slice(&self.read_piece(at, piece)?);
        }
        Ok(all)
    }

    fn read_piece(&self, sector: u64, memory: Vec<u8>) -> Result<Vec<u8>> {
        let bio = Bio::single(Operation::Read, sector, Memory::Owned(memory), BioFlags::SYNCHRONOUS)?;
        match self.transfer(bio)?.pop().map(Segment::into_memory) {
            Some(Memory::Owned(bytes)) => Ok(bytes),
            _ => Err(Error::Io),
        }
    }

    /// Writes whole sectors.
    pub fn write(&self, sector: u64, memory: Memory, flags: BioFlags) -> Result<()> {
        let bio = Bio::single(Operation::Write, sector, memory, flags | BioFlags::SYNCHRONOUS)?;
        self.transfer(bio).map(|_| ())
    }

    /// Makes all completed writes durable.
    pub fn flush(&self) -> Result<()> {
        self.transfer(Bio::without_data(Operation::Flush, 0, 0, BioFlags::SYNCHRONOUS)?).map(|_| ())
    }

    /// What one bio may move.
    pub fn bytes_max(&self) -> usize {
        self.queue.limits().sectors_max as usize * SECTOR_BYTES
    }
}

impl Batch {
    /// Submits a bio with the others, when there are many or somebody waits for them.
    pub fn add(&mut self, bio: Bio) -> Result<()> {
        fallible::try_reserve(&mut self.waiters, 1)?;
        let (bio, waiter) = Waiter::of(bio)?;
        self.waiters.push(waiter);
        if let Some(bio) = self.volume.place(bio) {
            self.plug.submit(bio);
        }
        Ok(())
    }

    /// Sleeps until all have ended; the first failure, if any.
    pub fn wait(self) -> Result<()> {
        self.wait_each(drop)
    }

    /// The same, with the memory of each, in the order they were added in.
    pub fn wait_each(mut self, mut each: impl FnMut(Vec<Segment>)) -> Result<()> {
        self.plug.flush();
        let mut outcome = Ok(());
        for waiter in &self.waiters {
            let (segments, ended) = waiter.wait();
            each(segments);
            outcome = outcome.and(ended);
        }
        outcome
    }
}
