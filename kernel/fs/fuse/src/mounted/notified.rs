//! What the server says by itself of its files.

use alloc::sync::Arc;
use alloc::vec::Vec;

use machine::address::{PAGE_SHIFT, PAGE_SIZE};
use vfs::{Error, FileKind, Inode, Result, allocation};

use super::instance::Instance;
use super::node::{Node, node_of};
use crate::connection::Notification;
use crate::wire::Body;

/// Bytes that are told of a file's pages at a time at most.
const RETRIEVED_BYTES_MAX: usize = 128 << 10;

impl Instance {
    /// Does what a notification says.
    ///
    /// # Errors
    /// `ENOENT` if the file is not known, `ENOTDIR` if it should be a directory.
    pub(crate) fn hear(self: &Arc<Self>, told: &Notification<'_>) -> Result<()> {
        match *told {
            Notification::InvalidInode { node, offset, length } => {
                let inode = self.find(node).ok_or(Error::NotFound)?;
                node_of(&inode)?.forget_pages(offset, length);
                Ok(())
            }
            Notification::InvalidEntry { directory, .. } => {
                let inode = self.find(directory).ok_or(Error::NotFound)?;
                if inode.kind != FileKind::Directory {
                    return Err(Error::NotDirectory);
                }
                let node = node_of(&inode)?;
                node.doubt_names();
                node.doubt();
                Ok(())
            }
            Notification::Store { node, offset, bytes } => {
                let inode = self.find(node).ok_or(Error::NotFound)?;
                node_of(&inode)?.store(&inode, offset, bytes)
            }
            Notification::Retrieve { unique, node, offset, bytes } => {
                let inode = self.find(node).ok_or(Error::NotFound)?;
                self.retrieve(&inode, unique, offset, bytes as usize)
            }
            // Nobody waits for it: files that are polled are asked each time.
            Notification::Poll { .. } => Ok(()),
        }
    }

    /// Tells the server what is in memory of a file, from an offset on without a gap.
    fn retrieve(&self, inode: &Inode, unique: u64, offset: u64, bytes: usize) -> Result<()> {
        let node = node_of(inode)?;
        let cache = node.pages()?;
        let left = usize::try_from(inode.size().saturating_sub(offset)).unwrap_or(usize::MAX);
        let most = bytes.min(left).min(RETRIEVED_BYTES_MAX);
        let mut found = Vec::new();
        while found.len() < most {
            let place = offset + found.len() as u64;
            let within = place as usize % PAGE_SIZE;
            let Some(frame) = cache.cached(place >> PAGE_SHIFT) else { break };
            let count = (PAGE_SIZE - within).min(most - found.len());
            let start = found.len();
            allocation::reserve(&mut found, count)?;
            found.resize(start + count, 0);
            frame.read(within, &mut found[start..]);
        }
        let count = u32::try_from(found.len()).map_err(|_| Error::Invalid)?;
        let body = Body::new().u64s(&[0, offset]).u32s(&[count, 0]).u64s(&[0, 0]).bytes(&found);
        self.connection.tell(node.number, body, unique)
    }
}

impl Node {
    /// Pages of a part are not true any more, and no attributes.
    fn forget_pages(&self, offset: i64, length: i64) {
        self.note_change();
        let (Some(cache), Ok(start)) = (&self.cache, u64::try_from(offset)) else { return };
        let end = match u64::try_from(length) {
            Ok(length) if length > 0 => start.saturating_add(length).div_ceil(PAGE_SIZE as u64),
            _ => u64::MAX,
        };
        cache.drop_clean(start >> PAGE_SHIFT, end, usize::MAX);
    }

    /// These bytes are in the file: pages that are in memory show them, and whole pages become some.
    fn store(&self, inode: &Inode, offset: u64, bytes: &[u8]) -> Result<()> {
        let cache = self.pages()?;
        let end = offset.checked_add(bytes.len() as u64).ok_or(Error::FileTooLarge)?;
        if end > memory::file_cache::MAX_FILE_BYTES {
            return Err(Error::FileTooLarge);
        }
        if end > inode.size() {
            inode.set_size(end);
            cache.adopt_size(end);
        }
        self.note_change();
        let moment = self.connection().moment();
        let mut at = 0;
        while at < bytes.len() {
            let place = offset + at as u64;
            let (page, within) = (place >> PAGE_SHIFT, place as usize % PAGE_SIZE);
            let part = &bytes[at..bytes.len().min(at + PAGE_SIZE - within)];
            at += part.len();
            match cache.cached(page) {
                Some(frame) => frame.write(within, part),
                None => self.store_page(page, within, part, inode.size(), moment)?,
            }
        }
        Ok(())
    }

    fn store_page(&self, page: u64, within: usize, part: &[u8], size: u64, moment: u64) -> Result<()> {
        let is_whole =
            within == 0 && (part.len() == PAGE_SIZE || (page << PAGE_SHIFT) + part.len() as u64 == size);
        if is_whole {
            let mut copy = Vec::new();
            allocation::extend(&mut copy, part)?;
            self.keep(page, 1, copy, moment);
        }
        Ok(())
    }
}
