//! Deleting files that have no name any more and that nobody has open: their blocks, their attributes, their inodes.
//!
//! A file that is large goes in several handles, in the list of orphans meanwhile. Small ones go together, several in one handle: those that were made one
//! after the other have their inodes in the same blocks, and their bits in the same bitmap, which is then changed once.

use crate::blocks::Blocks;
use crate::contents::has_blocks;
use crate::handle::Handle;
use crate::inode::{Kind, Time};
use crate::map_change::remove;
use crate::writer::Writer;
use crate::{Error, Result};

/// Blocks that must be left in a handle to delete an inode without blocks: its own, its neighbour's in the list of orphans, bitmaps and descriptors of
/// itself and of its attributes, these themselves.
const ROOM_TO_DELETE: usize = 8;

/// Blocks that must be left in a handle that has deleted a file for another one: few files need more for their blocks than this leaves.
const ROOM_FOR_ANOTHER: usize = 40;

/// How far a handle got with a file.
enum Progress {
    Deleted,
    /// Blocks from here on are left, if any are, and the inode.
    Left(Option<u64>),
}

impl Handle<'_> {
    /// The first block of a file that is to be deleted, if it may have blocks.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if it has names.
    fn first_to_free(&self, number: u32) -> Result<Option<u64>> {
        let inode = self.inode(number)?;
        if inode.links != 0 {
            return Err(Error::NotSupported);
        }
        Ok(has_blocks(&inode, self.geometry().block_bytes).then_some(0))
    }

    /// Deletes a file as far as there is room, its blocks from `blocks` on.
    fn delete(&mut self, number: u32, blocks: Option<u64>, now: Time) -> Result<Progress> {
        let mut inode = self.inode(number)?;
        let rest = match blocks {
            Some(from) => remove(self, &mut inode, from, u64::MAX)?,
            None => None,
        };
        if rest.is_some() || self.room() < ROOM_TO_DELETE {
            self.store(&inode)?;
            return Ok(Progress::Left(rest));
        }
        self.release_attribute_block(&mut inode)?;
        self.unlist_orphan(number)?;
        self.erase_inode(&inode, now)?;
        self.free_inode(number, inode.kind == Kind::Directory)?;
        Ok(Progress::Deleted)
    }
}

impl Writer {
    /// Deletes a file that has no name any more: its blocks, its attributes, its inode. Nobody has it open.
    pub fn delete(&self, number: u32, now: Time) -> Result<()> {
        let mut blocks = self.change(true, |handle| handle.first_to_free(number))?;
        loop {
            match self.change(true, |handle| handle.delete(number, blocks, now))? {
                Progress::Deleted => return Ok(()),
                Progress::Left(rest) => blocks = rest,
            }
        }
    }

    /// Deletes such files, from the first one on as many as go in one handle. Returns how many; the one behind them is whole or has lost
    /// blocks.
    ///
    /// # Errors
    /// None was deleted: one of them is damaged, or takes a handle of its own. [`delete`](Self::delete) tells which.
    pub fn delete_some(&self, numbers: &[u32], now: Time) -> Result<usize> {
        self.change(true, |handle| {
            let mut deleted = 0;
            for number in numbers {
                if deleted > 0 && !handle.has_room(ROOM_FOR_ANOTHER) {
                    break;
                }
                let blocks = handle.first_to_free(*number)?;
                if let Progress::Left(_) = handle.delete(*number, blocks, now)? {
                    break;
                }
                deleted += 1;
            }
            Ok(deleted)
        })
    }
}
