//! Entering blocks into files and taking them out, in either kind of tree.

use crate::blocks::Blocks;
use crate::extent_tree::{self, Extent};
use crate::geometry::read_only_compatible;
use crate::handle::Handle;
use crate::indirect_tree;
use crate::inode::Inode;
use crate::map::map;
use crate::writer::Writer;
use crate::{Error, Result};

/// Bytes that a file may be long.
pub(crate) fn size_max(blocks: &impl Blocks, inode: &Inode) -> u64 {
    let geometry = blocks.geometry();
    let count = if inode.has_extents() {
        u64::from(u32::MAX)
    } else {
        indirect_tree::blocks_max(geometry.block_bytes)
    };
    let bytes = count * geometry.block_bytes as u64;
    let large = geometry.has_read_only_compatible(read_only_compatible::LARGE_FILE);
    if large { bytes } else { bytes.min(i32::MAX as u64) }
}

/// Enters neighbouring blocks that are taken already where the file has a hole.
pub(crate) fn enter(
    handle: &mut Handle<'_>,
    inode: &mut Inode,
    logical: u64,
    start: u64,
    count: u32,
    unwritten: bool,
) -> Result<()> {
    if inode.has_extents() {
        // An unwritten extent is one block shorter at most; half of it is enough for both.
        let longest = 1 << 14;
        let mut done = 0;
        while done < count {
            let piece = (count - done).min(longest);
            let at = logical + u64::from(done);
            let logical = u32::try_from(at).map_err(|_| Error::TooLarge)?;
            let new = Extent { logical, count: piece, start: start + u64::from(done), unwritten };
            extent_tree::insert(handle, inode, new)?;
            done += piece;
        }
    } else {
        indirect_tree::insert(handle, inode, logical, start, count)?;
    }
    inode.add_blocks(handle.geometry(), count.into());
    Ok(())
}

/// Frees blocks from `from` up to `to` as far as the handle has room. Returns where to go on, if there is more.
pub(crate) fn remove(handle: &mut Handle<'_>, inode: &mut Inode, from: u64, to: u64) -> Result<Option<u64>> {
    let mut at = from;
    loop {
        let next = if inode.has_extents() {
            extent_tree::remove_some(handle, inode, at, to)?
        } else {
            indirect_tree::remove_some(handle, inode, at, to)?
        };
        match next {
            Some(next) if handle.has_room(ROOM_FOR_STEP) && next > at => at = next,
            next => return Ok(next),
        }
    }
}

/// Blocks that must be left in a handle for another step.
const ROOM_FOR_STEP: usize = 32;

/// Where the block behind `logical`'s predecessor would be: a file that grows stays in one piece.
pub(crate) fn goal_for(handle: &Handle<'_>, inode: &Inode, logical: u64) -> Result<u64> {
    if let Some(before) = logical.checked_sub(1)
        && let Some(place) = map(handle, inode, before, 1)?.place
    {
        return Ok(place + 1);
    }
    Ok(handle.goal_of_inode(inode.number))
}

impl Writer {
    /// Frees all blocks of a file from `from` on, in as many handles as it takes. Its size is below that already, and it is in
    /// the list of orphans if a crash in between must not leave the rest.
    pub(crate) fn remove_blocks(&self, number: u32, from: u64, to: u64) -> Result<()> {
        let mut at = Some(from);
        while let Some(from) = at {
            at = self.change(true, |handle| {
                // What it may need to split an extent is less than it gives back.
                handle.keeps_promise = true;
                let mut inode = handle.inode(number)?;
                let next = remove(handle, &mut inode, from, to)?;
                handle.store(&inode)?;
                Ok(next)
            })?;
        }
        Ok(())
    }
}
