//! Open files of a mount that keeps nothing: every read and every write is the server's.
//!
//! Only mappings have pages. What programs stored there is written before a call reads or writes the file, and pages that a write has made untrue are given up.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use memory::buffer::{Sink, Source};
use memory::file_cache::FileCache;
use vfs::attributes::{SET_GROUP_ID, SET_USER_ID};
use vfs::file::{FileFeatures, FileMappingKind, FileOperations, NoOperations, OpenFile, SeekFrom};
use vfs::flags::OpenFlags;
use vfs::inode::Inode;
use vfs::{Capabilities, Error, Result, allocation};

use super::file::OpenFid;
use super::node::{Node, node_of};
use crate::client::{copy_of, frames_for};
use crate::wire::Request;
use machine::address::{PAGE_SHIFT, PAGE_SIZE};

/// The flags of an open file that concern the server.
const TOLD: u32 = OpenFlags::ACCESS_MODE | OpenFlags::DATA_SYNC.bits() | OpenFlags::FILE_SYNC.bits();

/// See the theory of this file.
pub(super) struct DirectFile {
    way: Arc<OpenFid>,
}

fn cache_of(node: &Node) -> Result<&Arc<FileCache>> {
    node.cache.as_ref().ok_or(Error::Invalid)
}

impl DirectFile {
    /// Opens a regular file.
    pub(super) fn open(node: &Node, flags: OpenFlags) -> Result<Arc<dyn FileOperations>> {
        let way = match node.file.open(flags.bits() & TOLD) {
            // Who made a file may have it open for what its mode forbids.
            Err(Error::AccessDenied) => node.file.writer(),
            outcome => outcome,
        }?;
        let cache = cache_of(node)?;
        if !cache.is_mapped() {
            node.write_pages()?;
            cache.drop_clean(0, u64::MAX, usize::MAX);
        }
        let open: Arc<dyn FileOperations> = allocation::arc(Self { way })?;
        node.file.openers.fetch_add(1, Relaxed);
        Ok(open)
    }

    /// Reads once; returns how many bytes the server gave, and how many of them arrived.
    fn read_once(&self, node: &Node, at: u64, asked: usize, sink: &mut Sink<'_>) -> Result<(usize, usize)> {
        let pieces = frames_for(asked)?;
        let frames = copy_of(&pieces)?;
        let read = node.instance.client.read_frames(self.way.fid.number(), at, pieces)?;
        let mut arrived = 0;
        for piece in &frames {
            let bytes = piece.bytes.min(read - arrived);
            let moved = sink.write_frame(&piece.frame, 0, bytes)?;
            arrived += moved;
            if moved < bytes || arrived == read {
                break;
            }
        }
        Ok((read, arrived))
    }

    /// Writes once; returns how many bytes.
    fn write_once(&self, node: &Node, at: u64, source: &mut Source<'_>) -> Result<usize> {
        let mut pieces = frames_for(source.remaining().min(self.way.transfer_bytes))?;
        let mut given = 0;
        for piece in &mut pieces {
            let moved = match source.read_frame(&piece.frame, 0, piece.bytes) {
                Err(_) if given > 0 => 0,
                outcome => outcome?,
            };
            given += moved;
            if moved < piece.bytes {
                piece.bytes = moved;
                break;
            }
        }
        let pages = given.div_ceil(PAGE_SIZE);
        pieces.truncate(pages);
        let written = node.instance.client.write_frames(self.way.fid.number(), at, pieces)?;
        node.file.wrote_up_to(at + written as u64);
        Ok(written)
    }

    fn write_all(&self, node: &Node, position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let mut done = 0;
        while !source.is_empty() {
            let left = source.remaining();
            match self.write_once(node, *position, source) {
                Ok(0) => break,
                Ok(written) => {
                    *position += written as u64;
                    done += written;
                    if written < left.min(self.way.transfer_bytes) {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

/// What a write has come to is shown; the inode's lock is held.
fn show_written(node: &Node, inode: &Inode, start: u64, end: u64) -> Result<()> {
    let cache = cache_of(node)?;
    if end > inode.size() {
        inode.set_size(end);
    }
    if end > cache.size() {
        cache.adopt_size(end);
    }
    cache.drop_clean(start >> PAGE_SHIFT, end.div_ceil(PAGE_SIZE as u64), usize::MAX);
    inode.touch_modified();
    let mode = inode.mode();
    if mode & (SET_USER_ID | SET_GROUP_ID) != 0 && !vfs::credentials::caller_has(Capabilities::FSETID) {
        let group = if mode & 0o010 != 0 { SET_GROUP_ID } else { 0 };
        inode.set_mode(mode & !(SET_USER_ID | group));
        node.store_mode(inode)?;
    }
    Ok(())
}

impl FileOperations for DirectFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE | FileFeatures::REGULAR
    }

    fn read(&self, file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let inode = file.inode();
        let node = node_of(inode)?;
        node.write_pages()?;
        let mut done = 0;
        loop {
            let mut asked = sink.remaining().min(self.way.transfer_bytes);
            if node.file.is_nameless() {
                let left = inode.size().saturating_sub(*position);
                asked = asked.min(usize::try_from(left).unwrap_or(usize::MAX));
            }
            if asked == 0 {
                return Ok(done);
            }
            match self.read_once(node, *position, asked, sink) {
                Ok((read, arrived)) => {
                    *position += arrived as u64;
                    done += arrived;
                    if read < asked || arrived < read {
                        return Ok(done);
                    }
                }
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
    }

    fn write(&self, file: &OpenFile, position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        if source.is_empty() {
            return Ok(0);
        }
        let inode = file.inode();
        let node = node_of(inode)?;
        let _exclusive = inode.lock().write();
        node.write_pages()?;
        if file.flags().contains(OpenFlags::APPEND) {
            node.fetch(inode)?;
            *position = inode.size();
        }
        if *position >= memory::file_cache::MAX_FILE_BYTES {
            return Err(Error::FileTooLarge);
        }
        let start = *position;
        let done = self.write_all(node, position, source)?;
        if done > 0 {
            show_written(node, inode, start, *position)?;
        }
        Ok(done)
    }

    fn seek(&self, file: &OpenFile, current: u64, target: SeekFrom) -> Result<u64> {
        let inode = file.inode();
        if !matches!(target, SeekFrom::Start(_) | SeekFrom::Current(_)) {
            node_of(inode)?.fetch(inode)?;
        }
        NoOperations.seek(file, current, target)
    }

    fn mapping(&self, file: &OpenFile) -> Result<FileMappingKind> {
        let inode = file.inode();
        let node = node_of(inode)?;
        node.fetch(inode)?;
        // Now, as long as the file has a name.
        if file.flags().writable() { node.file.writer() } else { node.file.reader() }?;
        Ok(FileMappingKind::Pages(cache_of(node)?.clone()))
    }

    fn sync(&self, file: &OpenFile, data_only: bool) -> Result<()> {
        let node = node_of(file.inode())?;
        node.write_pages()?;
        node.instance.client.call(&Request::Sync { fid: self.way.fid.number(), data_only })
    }

    fn flush(&self, file: &OpenFile) -> Result<()> {
        node_of(file.inode())?.write_pages()
    }

    fn release(&self, file: &OpenFile) {
        if let Ok(node) = node_of(file.inode()) {
            node.closed();
        }
    }
}
