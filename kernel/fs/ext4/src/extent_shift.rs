//! Moving what a file has behind a place nearer to its beginning, or further away: taking a range out of the file, and putting one in
//! (`fallocate` with `FALLOC_FL_COLLAPSE_RANGE` and `FALLOC_FL_INSERT_RANGE`).
//!
//! Extents are moved one after the other, each taken out of the tree and entered where it goes: towards the beginning the first one first, away from it the last
//! one first, so that none meets another. As many are moved in a handle as it has room for. A crash in between leaves some of them moved; so does a failure while
//! a range is taken out. While one is put in, what was moved is moved back.

use crate::extent_tree::{Extent, insert, take_first, take_last};
use crate::handle::Handle;
use crate::inode::{Inode, Time};
use crate::map_change::size_max;
use crate::writer::Writer;
use crate::{Error, Result};

/// Blocks that must be left in a handle to move one more extent: two ways to a leaf, a new node on each level of one of them with its bitmap and descriptor,
/// and nodes that become empty.
const ROOM_FOR_MOVE: usize = 32;

/// Moves extents as long as the handle has room. `step` moves one and says where to go on, if there is more.
fn move_some(
    handle: &mut Handle<'_>,
    number: u32,
    mut at: u64,
    step: impl Fn(&mut Handle<'_>, &mut Inode, u64) -> Result<Option<u64>>,
) -> Result<Option<u64>> {
    handle.keeps_promise = true;
    let mut inode = handle.inode(number)?;
    let next = loop {
        match step(handle, &mut inode, at)? {
            Some(next) if handle.has_room(ROOM_FOR_MOVE) => at = next,
            next => break next,
        }
    };
    handle.store(&inode)?;
    Ok(next)
}

impl Writer {
    /// The range in blocks, if it may be moved.
    fn range_to_move(&self, inode: &Inode, offset: u64, length: u64) -> Result<(u64, u32)> {
        let unit = self.block_bytes();
        if !inode.has_extents() {
            return Err(Error::NotSupported);
        }
        if !offset.is_multiple_of(unit) || !length.is_multiple_of(unit) {
            return Err(Error::WrongKind);
        }
        Ok((offset / unit, u32::try_from(length / unit).map_err(|_| Error::TooLarge)?))
    }

    /// Moves all extents from a block on, and what is behind them, towards the beginning, where there is room.
    fn move_down(&self, number: u32, from: u64, count: u32) -> Result<()> {
        let mut next = Some(from);
        while let Some(from) = next {
            next = self.change(true, |handle| {
                move_some(handle, number, from, |handle, inode, at| {
                    let Some(taken) = take_first(handle, inode, at)? else { return Ok(None) };
                    insert(handle, inode, Extent { logical: taken.logical - count, ..taken })?;
                    Ok(Some(taken.end()))
                })
            })?;
        }
        Ok(())
    }

    /// Moves all extents from a block on towards the end. `limit` says, also after a failure, where those begin that were not moved yet end.
    fn move_up(&self, number: u32, from: u64, count: u32, limit: &mut u64, privileged: bool) -> Result<()> {
        let mut next = Some(*limit);
        while let Some(below) = next {
            *limit = below;
            next = self.change(privileged, |handle| {
                move_some(handle, number, below, |handle, inode, at| {
                    let Some(taken) = take_last(handle, inode, from, at)? else { return Ok(None) };
                    if taken.end() + u64::from(count) > u64::from(u32::MAX) {
                        return Err(Error::TooLarge);
                    }
                    insert(handle, inode, Extent { logical: taken.logical + count, ..taken })?;
                    Ok(Some(taken.logical.into()))
                })
            })?;
        }
        Ok(())
    }

    fn change_length(&self, number: u32, size: impl Fn(u64) -> u64, now: Time) -> Result<Inode> {
        self.change(true, |handle| {
            let mut inode = handle.inode(number)?;
            inode.size = size(inode.size);
            (inode.modified, inode.changed) = (now, now);
            handle.store(&inode)?;
            Ok(inode)
        })
    }

    /// Takes a range out of a file: what is behind it follows what is before it.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for files without extents; [`Error::WrongKind`] unless the range consists of blocks and something is behind it.
    pub fn collapse(&self, number: u32, offset: u64, length: u64, now: Time) -> Result<Inode> {
        let inode = self.regular(number)?;
        let (first, count) = self.range_to_move(&inode, offset, length)?;
        if offset.saturating_add(length) >= inode.size {
            return Err(Error::WrongKind);
        }
        let behind = first + u64::from(count);
        self.remove_blocks(number, first, behind)?;
        self.move_down(number, behind, count)?;
        self.change_length(number, |size| size.saturating_sub(length), now)
    }

    /// Puts a hole into a file: what is behind its place moves away from the beginning.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for files without extents; [`Error::WrongKind`] unless the hole consists of blocks and its place is inside of the file;
    /// [`Error::TooLarge`].
    pub fn put_hole(
        &self,
        number: u32,
        offset: u64,
        length: u64,
        privileged: bool,
        now: Time,
    ) -> Result<Inode> {
        let inode = self.regular(number)?;
        let (first, count) = self.range_to_move(&inode, offset, length)?;
        if offset >= inode.size {
            return Err(Error::WrongKind);
        }
        if inode.size.saturating_add(length) > size_max(&self.system, &inode) {
            return Err(Error::TooLarge);
        }
        // The size first: a crash must not leave blocks behind the end.
        let longer = self.change_length(number, |size| size.saturating_add(length), now)?;
        let mut limit = u64::from(u32::MAX);
        let Err(error) = self.move_up(number, first, count, &mut limit, privileged) else {
            return Ok(longer);
        };
        let back = self.move_down(number, limit + u64::from(count), count);
        if let Err(error) = back.and_then(|()| self.change_length(number, |_| inode.size, now)) {
            log::error!("ext4: inode {number} keeps a part of a hole that found no room: {error}");
        }
        Err(error)
    }
}
