//! Data on its way to the disk, for those who have the memory and the disk work on its own: where a part of a file goes is asked first, and entered when
//! it is there.
//!
//! # States of a destination
//! [`Writer::destination`] finds where blocks of a file are, or *chooses* some for a hole. Then the data is written, by whoever asked, without any lock. At the end
//! [`Writer::enter_written`] takes what was chosen and enters it, or [`Writer::give_up`] lets others have it. So ordered mode holds as for
//! [`Writer::write`]: nothing says that data is there before it is.
//!
//! # Locking
//! Whoever asks for destinations of a file keeps its blocks from being freed or allocated by others until all are entered or given up; entering itself
//! needs no lock, in any order.

use crate::allocate::{Place, RUN_MAX};
use crate::contents::Written;
use crate::inode::Inode;
use crate::map::map;
use crate::map_change::size_max;
use crate::writer::Writer;
use crate::{Error, Result};

/// What is at a destination so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    /// Data of the file.
    Data,
    /// Blocks of the file that were never written.
    Unwritten,
    /// Chosen blocks.
    Chosen,
}

/// Where neighbouring blocks of a file go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    number: u32,
    logical: u64,
    start: u64,
    count: u32,
    now: Now,
}

impl Destination {
    /// The first block on the disk.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// How many blocks.
    pub fn blocks(&self) -> u64 {
        self.count.into()
    }

    /// Joins what comes behind, in the file and on the disk, if both can be entered at once.
    fn join(&mut self, next: &Self, group_of: impl Fn(u64) -> u32) -> bool {
        let joins = self.number == next.number
            && self.now == Now::Chosen
            && next.now == Now::Chosen
            && self.logical + self.blocks() == next.logical
            && self.start + self.blocks() == next.start
            && self.count + next.count <= RUN_MAX
            && group_of(self.start) == group_of(next.start);
        if joins {
            self.count += next.count;
        }
        joins
    }

    fn place(&self) -> Place {
        Place { start: self.start, count: self.count }
    }
}

impl Writer {
    /// Where blocks of a regular file go, from `logical` on, at most `count`, at least one.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and others: nothing has happened.
    pub fn destination(
        &self,
        number: u32,
        logical: u64,
        count: u32,
        privileged: bool,
    ) -> Result<Destination> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let inode = self.regular(number)?;
        // The last block may go beyond the largest size, the file does not.
        if (logical + u64::from(count) - 1) * self.block_bytes() >= size_max(&self.system, &inode) {
            return Err(Error::TooLarge);
        }
        let run = map(&self.system, &inode, logical, count.into())?;
        let found =
            run.place.map(|start| (start, Now::Data)).or(run.unwritten.map(|start| (start, Now::Unwritten)));
        let (start, count, now) = match found {
            Some((start, now)) => (start, run.count as u32, now),
            None => {
                let place = self.choose(&inode, logical, run.count as u32, privileged)?;
                (place.start, place.count, Now::Chosen)
            }
        };
        Ok(Destination { number, logical, start, count, now })
    }

    /// Leaves only the first blocks of a destination.
    ///
    /// # Errors
    /// No memory: it is as it was.
    pub fn shorten(&self, destination: &mut Destination, count: u32) -> Result<()> {
        debug_assert!(count > 0 && count <= destination.count, "it has been longer");
        if destination.now == Now::Chosen && count < destination.count {
            let mut running = self.running.lock();
            running.chosen.add(&self.system.geometry, destination.start, count)?;
            running.chosen.remove(&self.system.geometry, destination.start, destination.count);
            running.chosen_blocks -= u64::from(destination.count - count);
        }
        destination.count = count;
        Ok(())
    }

    /// Before bytes from `offset` on are written: whether what is between the end on the disk and there must be cleared, which
    /// [`clear_old_end`](Self::clear_old_end) does.
    pub fn has_old_end(&self, number: u32, offset: u64) -> Result<bool> {
        let inode = self.regular(number)?;
        Ok(self.old_end_before(&inode, offset))
    }

    fn old_end_before(&self, inode: &Inode, offset: u64) -> bool {
        let unit = self.block_bytes();
        inode.size < offset && !inode.size.is_multiple_of(unit) && inode.size / unit != offset / unit
    }

    /// Clears it. Nothing of the file may be on its way.
    pub fn clear_old_end(&self, number: u32, offset: u64) -> Result<()> {
        let inode = self.regular(number)?;
        if self.old_end_before(&inode, offset) { self.clear_tail(&inode) } else { Ok(()) }
    }

    /// Whether entering a destination whose data is written would change nothing, apart from times, which this has done then.
    pub fn needs_no_entry(&self, destination: &Destination, end: u64, written: Written<'_>) -> Result<bool> {
        if destination.now != Now::Data {
            return Ok(false);
        }
        let inode = self.regular(destination.number)?;
        if end > inode.size {
            return Ok(false);
        }
        self.touch(&inode, end, written)?;
        Ok(true)
    }

    /// The data of these neighbours is there: has the file have it, and end at `end` at least. On an error chosen blocks are given up.
    pub fn enter_written(&self, destination: &Destination, end: u64, written: Written<'_>) -> Result<()> {
        let Destination { number, logical, count, now: before, .. } = *destination;
        let inode = match self.regular(number) {
            Ok(inode) => inode,
            Err(error) => {
                self.give_up(destination);
                return Err(error);
            }
        };
        let entered = match before {
            Now::Data => self.touch(&inode, end, written),
            Now::Unwritten => self.mark_written(&inode, logical, count, end, written),
            Now::Chosen => self.enter(&inode, logical, destination.place(), end, true, written),
        };
        if entered.is_err() {
            self.give_up(destination);
        }
        entered.map(|_| ())
    }

    /// Chosen blocks are anybody's again, unless they were entered.
    pub fn give_up(&self, destination: &Destination) {
        if destination.now == Now::Chosen {
            self.unchoose(destination.place());
        }
    }

    /// Joins a destination with what comes behind it. They were chosen one by one, and are one from now on.
    ///
    /// # Errors
    /// No memory: they are as they were.
    pub fn join(&self, first: &mut Destination, next: &Destination) -> Result<bool> {
        let geometry = &self.system.geometry;
        let mut joined = *first;
        if !joined.join(next, |block| geometry.group_of(block)) {
            return Ok(false);
        }
        let mut running = self.running.lock();
        running.chosen.add(geometry, joined.start, joined.count)?;
        running.chosen.remove(geometry, first.start, first.count);
        running.chosen.remove(geometry, next.start, next.count);
        *first = joined;
        Ok(true)
    }
}
