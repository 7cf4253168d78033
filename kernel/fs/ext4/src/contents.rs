//! Changing what is in files: writing, shortening, allocating ahead, punching holes.
//!
//! # Ordered mode
//! Data goes to the disk before anything says that it is there: blocks for a hole are *chosen* in memory, written, and then taken and entered by
//! one handle, which also sets the size. As the commit flushes the device, a crash shows a file with its data or without both. Nobody
//! ever sees what a block held before.
//!
//! # The end of a file
//! What is behind the end in its last block is anything. It is set to zeros when the file is made longer, not when it is made shorter: so a
//! shortening that a crash undoes loses nothing of the last block.
//!
//! # Locking
//! The caller keeps others from changing the same file meanwhile.

use alloc::vec::Vec;

use memory::fallible;

use crate::allocate::Place;
use crate::extent_tree;
use crate::inode::{Inode, Kind, Time};
use crate::layout::MAP_BYTES;
use crate::map::{Run, map};
use crate::map_change::{enter, goal_for, remove, size_max};
use crate::writer::Writer;
use crate::{Error, Result};

/// Blocks written at once.
const WRITE_BLOCKS_MAX: usize = 256;

/// Whether a file's map says where blocks are, and is not a link's text or a device's number.
pub(crate) fn has_blocks(inode: &Inode, block_bytes: usize) -> bool {
    let attribute_blocks = if inode.attributes == 0 { 0 } else { block_bytes as u64 / 512 };
    match inode.kind {
        Kind::Regular | Kind::Directory => true,
        Kind::Link => inode.size >= MAP_BYTES as u64 || inode.blocks > attribute_blocks,
        _ => false,
    }
}

/// When a program wrote what is being written to the disk, perhaps a while ago; `None` if the times of the file were set since. It is asked with the
/// change lock held, as times are set: so of a write and a time that is set, what came last stays.
pub type Written<'a> = &'a dyn Fn() -> Option<Time>;

/// Times of modification and change of a file that was written to at `written`, and may have been cut off or renamed since. A modification that is newer than the change
/// was set, and before the file was written to.
pub(crate) fn times_with<T: Copy + Ord>(modified: T, changed: T, written: T) -> (T, T) {
    let modified = if modified > changed { written } else { modified.max(written) };
    (modified, changed.max(written))
}

/// Times of a file of which data was written, if they are other ones than it has.
fn newer_times(inode: &Inode, written: Written<'_>) -> Option<(Time, Time)> {
    let before = (inode.modified, inode.changed);
    let times = times_with(before.0, before.1, written()?);
    (times != before).then_some(times)
}

fn note_written(inode: &mut Inode, written: Written<'_>) {
    if let Some(times) = newer_times(inode, written) {
        (inode.modified, inode.changed) = times;
    }
}

impl Writer {
    pub(crate) fn block_bytes(&self) -> u64 {
        self.system.geometry.block_bytes as u64
    }

    /// Writes to a regular file, which becomes longer if need be. Returns its new state.
    pub fn write(
        &self,
        number: u32,
        offset: u64,
        bytes: &[u8],
        privileged: bool,
        now: Time,
    ) -> Result<Inode> {
        self.write_written(number, offset, bytes, privileged, &|| Some(now))
    }

    /// The same with what was written earlier, to the file's pages.
    pub fn write_written(
        &self,
        number: u32,
        offset: u64,
        bytes: &[u8],
        privileged: bool,
        written: Written<'_>,
    ) -> Result<Inode> {
        let mut inode = self.regular(number)?;
        if bytes.is_empty() {
            return Ok(inode);
        }
        let unit = self.block_bytes();
        let end = offset.checked_add(bytes.len() as u64).ok_or(Error::TooLarge)?;
        if end > size_max(&self.system, &inode) {
            return Err(Error::TooLarge);
        }
        if inode.size < offset && inode.size / unit != offset / unit {
            self.clear_tail(&inode)?;
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let inside = (at % unit) as usize;
            let most = WRITE_BLOCKS_MAX * unit as usize - inside;
            let piece = &bytes[done..bytes.len().min(done + most)];
            let blocks = self.with_edges(&inode, at, piece)?;
            inode =
                self.write_blocks(inode, at / unit, blocks, at + piece.len() as u64, privileged, written)?;
            done += piece.len();
        }
        Ok(inode)
    }

    pub(crate) fn regular(&self, number: u32) -> Result<Inode> {
        let inode = self.system.inode(number)?;
        if inode.kind != Kind::Regular { Err(Error::WrongKind) } else { Ok(inode) }
    }

    /// Whole blocks: what is to be written, with what is there already before and behind it.
    fn with_edges(&self, inode: &Inode, at: u64, piece: &[u8]) -> Result<Vec<u8>> {
        let unit = self.block_bytes() as usize;
        let inside = (at % unit as u64) as usize;
        let length = (inside + piece.len()).next_multiple_of(unit);
        let mut blocks = fallible::try_vec_of(0, length)?;
        let first = at - inside as u64;
        if inside > 0 {
            self.system.read(inode, first, &mut blocks[..unit])?;
        }
        let last = length - unit;
        if inside + piece.len() < length && (last > 0 || inside == 0) {
            self.system.read(inode, first + last as u64, &mut blocks[last..])?;
        }
        blocks[inside..inside + piece.len()].copy_from_slice(piece);
        Ok(blocks)
    }

    /// Writes whole blocks; the file ends at `end` at least.
    fn write_blocks(
        &self,
        mut inode: Inode,
        logical: u64,
        mut bytes: Vec<u8>,
        end: u64,
        privileged: bool,
        written: Written<'_>,
    ) -> Result<Inode> {
        let unit = self.block_bytes() as usize;
        let total = bytes.len() / unit;
        let mut done = 0;
        while done < total {
            let at = logical + done as u64;
            let run = map(&self.system, &inode, at, (total - done) as u64)?;
            let covered = |count: usize| end.min((at + count as u64) * unit as u64);
            let mut cut = |count: usize| -> Result<Vec<u8>> {
                if done == 0 && count == total {
                    return Ok(core::mem::take(&mut bytes));
                }
                Ok(fallible::try_copy(&bytes[done * unit..(done + count) * unit])?)
            };
            let count = run.count as usize;
            let count = if let Some(place) = run.place {
                self.system.cache.write_run(place, cut(count)?)?;
                inode = self.touch(&inode, covered(count), written)?;
                count
            } else if let Some(place) = run.unwritten {
                self.system.cache.write_run(place, cut(count)?)?;
                inode = self.mark_written(&inode, at, count as u32, covered(count), written)?;
                count
            } else {
                let place = self.choose(&inode, at, count as u32, privileged)?;
                let count = place.count as usize;
                let done = cut(count).and_then(|data| self.system.cache.write_run(place.start, data));
                let entered =
                    done.and_then(|()| self.enter(&inode, at, place, covered(count), privileged, written));
                if entered.is_err() {
                    self.unchoose(place);
                }
                inode = entered?;
                count
            };
            done += count;
        }
        Ok(inode)
    }

    /// Chooses blocks for a part of a hole. They are nobody else's until they are entered or [`unchoose`](Self::unchoose)d.
    pub(crate) fn choose(&self, inode: &Inode, logical: u64, count: u32, privileged: bool) -> Result<Place> {
        let mut again = true;
        loop {
            let mut handle = self.begin(privileged)?;
            handle.keeps_promise = true;
            match goal_for(&handle, inode, logical).and_then(|goal| handle.choose(goal, count)) {
                Ok(place) => {
                    handle.running.chosen.add(&self.system.geometry, place.start, place.count)?;
                    handle.running.chosen_blocks += u64::from(place.count);
                    return Ok(place);
                }
                Err(Error::NoSpace) if again && self.frees_when_committed(&handle) => {
                    drop(handle);
                    self.commit()?;
                    again = false;
                }
                Err(error) => {
                    drop(handle);
                    return Err(self.judge(error));
                }
            }
        }
    }

    pub(crate) fn unchoose(&self, place: Place) {
        self.running.lock().unchoose(&self.system.geometry, place);
    }

    pub(crate) fn touch(&self, inode: &Inode, end: u64, written: Written<'_>) -> Result<Inode> {
        if end <= inode.size && newer_times(inode, written).is_none() {
            return Ok(inode.clone());
        }
        self.change(true, |handle| {
            let mut inode = handle.inode(inode.number)?;
            let grows = end > inode.size;
            inode.size = inode.size.max(end);
            note_written(&mut inode, written);
            if grows {
                handle.store(&inode)?
            } else {
                handle.store_times(&inode)?
            }
            Ok(inode)
        })
    }

    pub(crate) fn mark_written(
        &self,
        inode: &Inode,
        logical: u64,
        count: u32,
        end: u64,
        written: Written<'_>,
    ) -> Result<Inode> {
        let logical = u32::try_from(logical).map_err(|_| Error::TooLarge)?;
        self.change(true, |handle| {
            handle.keeps_promise = true;
            let mut inode = handle.inode(inode.number)?;
            extent_tree::mark_written(handle, &mut inode, logical, count)?;
            inode.size = inode.size.max(end);
            note_written(&mut inode, written);
            handle.store(&inode)?;
            Ok(inode)
        })
    }

    pub(crate) fn enter(
        &self,
        inode: &Inode,
        logical: u64,
        place: Place,
        end: u64,
        privileged: bool,
        written: Written<'_>,
    ) -> Result<Inode> {
        self.change(privileged, |handle| {
            let mut inode = handle.inode(inode.number)?;
            handle.take(place)?;
            handle.keeps_promise = true;
            handle.entering = Some(place);
            enter(handle, &mut inode, logical, place.start, place.count, false)?;
            inode.size = inode.size.max(end);
            note_written(&mut inode, written);
            handle.store(&inode)?;
            Ok(inode)
        })
    }

    /// Sets what is behind the end in the last block to zeros.
    pub(crate) fn clear_tail(&self, inode: &Inode) -> Result<()> {
        let unit = self.block_bytes();
        let inside = (inode.size % unit) as usize;
        if inside == 0 {
            return Ok(());
        }
        self.clear_part(inode, inode.size / unit, inside, unit as usize)
    }

    /// Sets a part of a block to zeros, if the file has that block.
    fn clear_part(&self, inode: &Inode, logical: u64, from: usize, to: usize) -> Result<()> {
        let Some(place) = map(&self.system, inode, logical, 1)?.place else { return Ok(()) };
        let mut bytes = self.system.cache.read_run(place, 1)?;
        if bytes[from..to].iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        bytes[from..to].fill(0);
        self.system.cache.write_run(place, bytes)
    }

    /// Sets a regular file's size.
    pub fn set_size(&self, number: u32, size: u64, now: Time) -> Result<Inode> {
        let inode = self.regular(number)?;
        if size > size_max(&self.system, &inode) {
            return Err(Error::TooLarge);
        }
        if size > inode.size {
            self.clear_tail(&inode)?;
        }
        let first = size.div_ceil(self.block_bytes());
        let shorter = size < inode.size;
        let (inode, rest) = self.change(true, |handle| {
            let mut inode = handle.inode(number)?;
            inode.size = size;
            (inode.modified, inode.changed) = (now, now);
            let mut rest = false;
            if shorter {
                rest = remove(handle, &mut inode, first, u64::MAX)?.is_some();
            }
            handle.store(&inode)?;
            if rest {
                handle.add_orphan(number)?;
            }
            Ok((inode, rest))
        })?;
        if !rest {
            return Ok(inode);
        }
        self.finish_truncation(number)?;
        self.system.inode(number)
    }

    /// Frees what is behind a file's end, and takes it out of the list of orphans.
    pub(crate) fn finish_truncation(&self, number: u32) -> Result<()> {
        let inode = self.system.inode(number)?;
        if has_blocks(&inode, self.system.geometry.block_bytes) {
            self.remove_blocks(number, inode.size.div_ceil(self.block_bytes()), u64::MAX)?;
        }
        self.change(true, |handle| handle.remove_orphan(number))
    }

    /// Allocates blocks for all holes in a range, to be read as zeros until they are written.
    pub fn allocate(
        &self,
        number: u32,
        offset: u64,
        length: u64,
        keep_size: bool,
        privileged: bool,
        now: Time,
    ) -> Result<Inode> {
        let mut inode = self.regular(number)?;
        let end = offset.checked_add(length).ok_or(Error::TooLarge)?;
        if !inode.has_extents() {
            return Err(Error::NotSupported);
        }
        if end > size_max(&self.system, &inode) {
            return Err(Error::TooLarge);
        }
        if end > inode.size && !keep_size {
            self.clear_tail(&inode)?;
        }
        let unit = self.block_bytes();
        let (mut at, last) = (offset / unit, end.div_ceil(unit));
        while at < last {
            let run = map(&self.system, &inode, at, last - at)?;
            if is_hole(&run) {
                inode = self.allocate_some(&inode, at, run.count, privileged)?;
            } else {
                at += run.count;
            }
        }
        self.change(true, |handle| {
            let mut inode = handle.inode(number)?;
            if !keep_size {
                inode.size = inode.size.max(end);
            }
            (inode.modified, inode.changed) = (now, now);
            handle.store(&inode)?;
            Ok(inode)
        })
    }

    fn allocate_some(&self, inode: &Inode, at: u64, count: u64, privileged: bool) -> Result<Inode> {
        let wanted = u32::try_from(count).unwrap_or(u32::MAX);
        self.change(privileged, |handle| {
            let mut inode = handle.inode(inode.number)?;
            let goal = goal_for(handle, &inode, at)?;
            let place = handle.allocate(goal, wanted)?;
            enter(handle, &mut inode, at, place.start, place.count, true)?;
            handle.store(&inode)?;
            Ok(inode)
        })
    }

    /// Makes a hole: whole blocks are freed, parts of blocks set to zeros.
    pub fn punch(&self, number: u32, offset: u64, length: u64, now: Time) -> Result<Inode> {
        let inode = self.regular(number)?;
        let unit = self.block_bytes();
        let end = offset.checked_add(length).ok_or(Error::TooLarge)?.min(inode.size.next_multiple_of(unit));
        if offset < end {
            let (first, last) = (offset.div_ceil(unit), end / unit);
            if first > last {
                self.clear_part(&inode, last, (offset % unit) as usize, (end % unit) as usize)?;
            } else {
                if !offset.is_multiple_of(unit) {
                    self.clear_part(&inode, offset / unit, (offset % unit) as usize, unit as usize)?;
                }
                if !end.is_multiple_of(unit) {
                    self.clear_part(&inode, last, 0, (end % unit) as usize)?;
                }
                self.remove_blocks(number, first, last)?;
            }
        }
        self.change(true, |handle| {
            let mut inode = handle.inode(number)?;
            (inode.modified, inode.changed) = (now, now);
            handle.store(&inode)?;
            Ok(inode)
        })
    }
}

const fn is_hole(run: &Run) -> bool {
    run.place.is_none() && run.unwritten.is_none()
}
