//! A regular file's contents: blocks one behind the other, of which some are holes, and an end that may be a part of a fragment.
//!
//! Where a block begins only the sizes of all before it tell. [`FileMap`] remembers that for every [`STRIDE`]th, as far as it was asked.

use alloc::vec::Vec;

use memory::fallible;

use crate::cursor::Cursor;
use crate::file_system::FileSystem;
use crate::inode::{Inode, Place};
use crate::store::{Bytes, Store};
use crate::{Error, Result, tables};

/// Blocks between two that are remembered.
const STRIDE: u64 = 1024;

/// Where a block is, and its size is said.
#[derive(Clone, Copy)]
struct Mark {
    list: Cursor,
    place: u64,
}

/// See the theory of this file.
pub struct FileMap {
    /// The first is block 0's.
    marks: sched::Mutex<Vec<Mark>>,
}

impl Default for FileMap {
    fn default() -> Self {
        Self { marks: sched::Mutex::named("blocks of a file of squashfs", Vec::new()) }
    }
}

impl FileMap {
    /// A block's place and size; a size of 0 is a hole.
    fn find(&self, system: &FileSystem, first: Mark, block: u64) -> Result<(u64, u32)> {
        let mut marks = self.marks.lock();
        if marks.is_empty() {
            fallible::try_push(&mut marks, first)?;
        }
        let known = ((block / STRIDE) as usize).min(marks.len() - 1);
        let mut mark = marks[known];
        let mut at = known as u64 * STRIDE;
        loop {
            let size = mark.list.u32(system)?;
            if at == block {
                return Ok((mark.place, size));
            }
            mark.place = mark
                .place
                .checked_add(Store::data_length(size))
                .ok_or(Error::Corrupted("the place of a block", at))?;
            at += 1;
            if at.is_multiple_of(STRIDE) && at / STRIDE == marks.len() as u64 {
                fallible::try_push(&mut marks, mark)?;
            }
        }
    }
}

/// What is in a block of a file.
pub(crate) enum Piece {
    /// Nothing but zeros.
    Hole,
    /// These bytes, from an offset on.
    Bytes(Bytes, usize),
}

/// A block of a file, which begins inside it. Its bytes may end before the block does: what follows are zeros.
pub(crate) fn piece(system: &FileSystem, inode: &Inode, map: &FileMap, block: u64) -> Result<Piece> {
    let Place::Blocks { start, fragment, list } = inode.place else { return Err(Error::WrongKind) };
    let block_bytes = u64::from(system.superblock.block_bytes);
    if let Some((index, offset)) = fragment
        && block == inode.size / block_bytes
    {
        let (place, size) = tables::fragment(system, index)?;
        let bytes = system.store.data(place, size)?;
        let end = u64::from(offset) + inode.size % block_bytes;
        if end > bytes.len() as u64 {
            return Err(Error::Corrupted("the place of a fragment", inode.reference));
        }
        return Ok(Piece::Bytes(bytes, offset as usize));
    }
    let (place, size) = map.find(system, Mark { list, place: start }, block)?;
    if size == 0 { Ok(Piece::Hole) } else { Ok(Piece::Bytes(system.store.data(place, size)?, 0)) }
}

/// Reads a file; returns how much there was.
pub(crate) fn read(
    system: &FileSystem,
    inode: &Inode,
    map: &FileMap,
    offset: u64,
    out: &mut [u8],
) -> Result<usize> {
    let block_bytes = u64::from(system.superblock.block_bytes);
    let length = inode.size.saturating_sub(offset).min(out.len() as u64) as usize;
    let mut done = 0;
    while done < length {
        let position = offset + done as u64;
        let inside = (position % block_bytes) as usize;
        let count = (length - done).min(block_bytes as usize - inside);
        let target = &mut out[done..done + count];
        match piece(system, inode, map, position / block_bytes)? {
            Piece::Hole => target.fill(0),
            Piece::Bytes(bytes, first) => {
                let source = bytes.get(first + inside..).unwrap_or_default();
                let there = source.len().min(count);
                target[..there].copy_from_slice(&source[..there]);
                target[there..].fill(0);
            }
        }
        done += count;
    }
    Ok(length)
}
