//! Where a file has data and holes, and moving what it has behind a place.
//!
//! # Data
//! What the disk has, and what pages have that are not on the disk yet: a page that was written to where the file has a hole is data from then on. Blocks that are allocated and
//! not written are a hole; pages of them in memory are data, as on Linux.
//!
//! The pages are looked at before the blocks: a page that leaves the one place meanwhile is in the other by then.
//!
//! # Moving
//! While blocks move, the file ends in memory before the first of them: its pages from there on are given up, whoever writes behind them waits for the inode's
//! lock, and whoever reads comes to the end. Dirty pages are written back before.

use machine::address::{PAGE_SHIFT, PAGE_SIZE};
use memory::file_cache::MAX_FILE_BYTES;
use vfs::flags::AllocateMode;
use vfs::inode::Inode;
use vfs::{Error, Result};

use super::instance::{error_of, now};
use super::node::Node;

impl Node {
    /// The first place from `offset` on that is data, or a hole; the end of the file is one.
    ///
    /// # Errors
    /// `ENXIO` behind the end, and without data up to it.
    pub(super) fn find_data(&self, offset: i64, wants_data: bool) -> Result<u64> {
        let size = self.cache.as_ref().ok_or(Error::Invalid)?.size();
        let mut at = u64::try_from(offset).map_err(|_| Error::NoDeviceAddress)?;
        if at >= size {
            return Err(Error::NoDeviceAddress);
        }
        while at < size {
            let (is_data, end) = self.piece_at(at, size)?;
            if is_data == wants_data {
                return Ok(at);
            }
            at = end;
        }
        if wants_data { Err(Error::NoDeviceAddress) } else { Ok(size) }
    }

    /// Whether what is at a place below `size` is data, and where that ends for certain.
    fn piece_at(&self, at: u64, size: u64) -> Result<(bool, u64)> {
        let cache = self.cache.as_ref().ok_or(Error::Invalid)?;
        let (page, pages) = (at >> PAGE_SHIFT, size.div_ceil(PAGE_SIZE as u64));
        let kept = cache.next_kept(page, pages, false);
        let system = self.instance.system();
        let unit = system.block_bytes() as u64;
        let block = at / unit;
        let run = system.map(&self.stored()?, block, size.div_ceil(unit) - block).map_err(error_of)?;
        let end = ((block + run.count) * unit).min(size);
        if run.place.is_some() {
            return Ok((true, end));
        }
        let kept = match run.unwritten {
            Some(_) => cache.next_kept(page, end.div_ceil(PAGE_SIZE as u64), true),
            None => kept,
        };
        Ok(match kept.map(|page| page << PAGE_SHIFT) {
            Some(start) if start <= at => (true, end.min(start + PAGE_SIZE as u64)),
            Some(start) if start < end => (false, start),
            _ => (false, end),
        })
    }

    /// `fallocate` that takes a range out of the file, or puts one in.
    pub(super) fn move_blocks(
        &self,
        inode: &Inode,
        mode: AllocateMode,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let (writer, cache) = (self.instance.writer()?, self.cache.as_ref().ok_or(Error::NoDevice)?);
        let (size, unit) = (cache.size(), self.instance.system().block_bytes() as u64);
        if !self.stored()?.has_extents() {
            return Err(Error::NotSupported);
        }
        // What is taken out must leave something behind it, what is put in something behind its place.
        let taken = if mode.contains(AllocateMode::COLLAPSE_RANGE) { length } else { 0 };
        if !(offset | length).is_multiple_of(unit) || offset.saturating_add(taken) >= size {
            return Err(Error::Invalid);
        }
        let kept = (offset & !(PAGE_SIZE as u64 - 1)).min(size);
        self.instance.delete_some_gone();
        // Who writes there from now on waits for the lock that is held here.
        inode.set_size(kept);
        let pages = kept >> PAGE_SHIFT..MAX_FILE_BYTES.div_ceil(PAGE_SIZE as u64);
        let cut = cache.write_back(pages.start, pages.end).and_then(|()| cache.truncate(kept));
        let moved = cut.map_err(Error::from).and_then(|()| {
            let _alone = self.file.alone(&self.instance);
            let (number, privileged) = (self.file.number, self.instance.is_privileged());
            let moved = match mode.contains(AllocateMode::COLLAPSE_RANGE) {
                true => writer.collapse(number, offset, length, now()),
                false => writer.put_hole(number, offset, length, privileged, now()),
            };
            moved.map(|stored| stored.size).map_err(error_of)
        });
        let size = *moved.as_ref().unwrap_or(&size);
        cache.truncate(size)?;
        inode.set_size(size);
        moved.map(|_| ())
    }
}
