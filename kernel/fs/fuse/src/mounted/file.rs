//! Open regular files.
//!
//! Reads are answered from pages in memory, and bring pages in; a file that the server wants to have *direct* has each read asked. Nobody waits for a page that
//! somebody else reads: who needs it asks the server himself, so that only the server keeps him waiting, and a signal ends that. Writes go to the server as they come, and into
//! the pages that are in memory.

use alloc::sync::Arc;

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use machine::address::{PAGE_SHIFT, PAGE_SIZE};
use memory::buffer::{Sink, Source};
use vfs::file::{
    FileFeatures, FileMappingKind, FileOperations, NoOperations, OpenFile, RangeSteps, SeekFrom,
};
use vfs::flags::OpenFlags;
use vfs::inode::Inode;
use vfs::{Error, FileKind, Result, allocation};

use super::handle::Handle;
use super::node::{Node, node_of, this_thread};
use crate::connection::{Call, Room};
use crate::wire::init::Flags;
use crate::wire::{Body, Decoder, opcode, open_flag};

/// Pages that are asked for together when the one behind them was read before.
const AHEAD_BYTES: usize = 128 << 10;

/// See the theory of this file.
pub(super) struct OpenRegular {
    handle: Arc<Handle>,
    /// Where the next read would go on.
    next: AtomicU64,
    /// The position of a file that has none for programs.
    place: AtomicU64,
}

impl OpenRegular {
    pub(super) fn open(node: &Node, inode: &Arc<Inode>, flags: OpenFlags) -> Result<Arc<dyn FileOperations>> {
        let made = node.made.lock().take_if(|(thread, _)| *thread == this_thread());
        let is_new = made.is_some();
        let handle = match made {
            Some((_, handle)) => handle,
            None => Handle::open(node.connection(), node.number, flags, FileKind::Regular)?,
        };
        node.contents.add_handle(&handle)?;
        let truncates = flags.contains(OpenFlags::TRUNCATE) && !is_new;
        if truncates && node.connection().flags().contains(Flags::OPEN_TRUNCATES) {
            *node.truncated_by.lock() = Some(this_thread());
        }
        if handle.flags & open_flag::KEEP_CACHE == 0 {
            node.pages()?.drop_clean(0, u64::MAX, usize::MAX);
        }
        let _ = inode;
        let open: Arc<dyn FileOperations> =
            allocation::arc(Self { handle, next: AtomicU64::new(0), place: AtomicU64::new(0) })?;
        Ok(open)
    }

    fn is_direct(&self, file: &OpenFile) -> bool {
        self.handle.is_direct() || file.flags().contains(OpenFlags::DIRECT)
    }

    /// Reads past the pages; what programs have stored there by mappings is written first.
    fn read_direct(&self, inode: &Inode, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        node_of(inode)?.write_pages()?;
        let (_, most) = self.handle.connection.transfer_bytes();
        let mut done = 0;
        while !sink.is_full() {
            let asked = sink.remaining().min(most);
            let bytes = match self.handle.read(*position, asked) {
                Err(_) if done > 0 => break,
                outcome => outcome?,
            };
            let moved = match sink.write(&bytes) {
                Err(_) if done > 0 => break,
                outcome => outcome?,
            };
            *position += moved as u64;
            done += moved;
            if bytes.len() < asked || moved < bytes.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Reads by way of the pages.
    fn read_pages(&self, inode: &Inode, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let node = node_of(inode)?;
        let always = node.connection().flags().contains(Flags::INVALIDATE_BY_TIME);
        if always || position.saturating_add(sink.remaining() as u64) > inode.size() {
            node.update(inode)?;
        }
        let mut done = 0;
        while !sink.is_full() {
            // One size for all that is reckoned with it: the server may say another one at any time.
            let size = inode.size();
            if *position >= size {
                break;
            }
            let moved = match self.read_some(node, inode, (*position, size), sink) {
                Err(_) if done > 0 => break,
                outcome => outcome?,
            };
            if moved == 0 {
                break;
            }
            *position += moved as u64;
            done += moved;
        }
        self.next.store(*position, Relaxed);
        Ok(done)
    }

    /// Reads a page that is in memory, or asks for some that are not, from a position below the size on.
    fn read_some(
        &self,
        node: &Node,
        inode: &Inode,
        (position, size): (u64, u64),
        sink: &mut Sink<'_>,
    ) -> Result<usize> {
        debug_assert!(position < size, "something is left to be read");
        let cache = node.pages()?;
        let (page, within) = (position >> PAGE_SHIFT, position as usize % PAGE_SIZE);
        let left = usize::try_from(size - position).unwrap_or(usize::MAX).min(sink.remaining());
        if let Some(frame) = cache.cached(page) {
            return Ok(sink.write_frame(&frame, within, left.min(PAGE_SIZE - within))?);
        }
        let (_, most) = node.connection().transfer_bytes();
        let goes_on = self.next.load(Relaxed) == position && position > 0;
        let wanted = if goes_on { left.max(AHEAD_BYTES) } else { left };
        let wanted = (within + wanted).next_multiple_of(PAGE_SIZE).min(most);
        let end_of_file = size.div_ceil(PAGE_SIZE as u64) - page;
        let absent = (0..(wanted / PAGE_SIZE) as u64).take_while(|step| cache.cached(page + step).is_none());
        let pages = (absent.count() as u64).min(end_of_file).max(1) as usize;
        node.note_access();
        let moment = node.connection().moment();
        let bytes = self.handle.read(page << PAGE_SHIFT, pages * PAGE_SIZE)?;
        if bytes.len() < pages * PAGE_SIZE {
            node.cut_short(inode, (page << PAGE_SHIFT) + bytes.len() as u64, moment);
        }
        let part = bytes.get(within..).unwrap_or_default();
        let present = part.len().min(left);
        let moved = sink.write(&part[..present]);
        node.keep(page, pages, bytes, moment);
        let moved = moved?;
        if moved < present {
            return Ok(moved);
        }
        // What the file has there by its size is zeroes.
        let hole = left.min(pages * PAGE_SIZE - within).min(left_of(inode, position)).saturating_sub(moved);
        Ok(moved + sink.write_zeros(hole)?)
    }

    fn write_all(
        &self,
        node: &Node,
        inode: &Inode,
        position: &mut u64,
        source: &mut Source<'_>,
    ) -> Result<usize> {
        let (most, _) = node.connection().transfer_bytes();
        let most = if node.connection().flags().contains(Flags::BIG_WRITES) { most } else { PAGE_SIZE };
        let mut done = 0;
        while !source.is_empty() {
            let mut bytes = match allocation::filled(0, source.remaining().min(most)) {
                Err(_) if done > 0 => break,
                outcome => outcome?,
            };
            let given = match source.read(&mut bytes) {
                Err(_) if done > 0 => break,
                outcome => outcome?,
            };
            let written = match self.handle.write(*position, &bytes[..given]) {
                Err(_) if done > 0 => break,
                outcome => outcome?,
            };
            written_here(node, inode, *position, &bytes[..written]);
            *position += written as u64;
            done += written;
            if written < bytes.len() {
                break;
            }
        }
        Ok(done)
    }

    fn seek_data(&self, node: &Node, current: u64, target: SeekFrom) -> Result<Option<u64>> {
        let (offset, whence) = match target {
            SeekFrom::Data(offset) => (offset, 3),
            SeekFrom::Hole(offset) => (offset, 4),
            _ => return Ok(None),
        };
        let _ = current;
        let body = Body::new().u64s(&[self.handle.number, offset.cast_unsigned()]).u32s(&[whence, 0]);
        match node.connection().call_if_known(Call::new(opcode::SEEK, node.number, body, Room::exactly(8))) {
            Ok(answer) => {
                let found = Decoder::new(&answer).u64()?;
                if i64::try_from(found).is_ok() { Ok(Some(found)) } else { Err(Error::Io) }
            }
            Err(Error::NotImplemented) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn left_of(inode: &Inode, position: u64) -> usize {
    usize::try_from(inode.size().saturating_sub(position)).unwrap_or(usize::MAX)
}

/// These bytes were written to the server: who reads the pages that are in memory sees them.
fn written_here(node: &Node, inode: &Inode, position: u64, bytes: &[u8]) {
    let end = position + bytes.len() as u64;
    node.note_change();
    let Some(cache) = &node.cache else { return };
    if end > inode.size() {
        inode.set_size(end);
        if end > cache.size() {
            cache.adopt_size(end);
        }
    }
    let mut at = 0;
    while at < bytes.len() {
        let place = position + at as u64;
        let (page, within) = (place >> PAGE_SHIFT, place as usize % PAGE_SIZE);
        let count = (PAGE_SIZE - within).min(bytes.len() - at);
        if let Some(frame) = cache.cached(page) {
            frame.write(within, &bytes[at..at + count]);
        }
        at += count;
    }
    inode.touch_modified();
}

impl FileOperations for OpenRegular {
    fn features(&self) -> FileFeatures {
        if self.handle.is_seekable() {
            FileFeatures::SEEKABLE | FileFeatures::REGULAR
        } else {
            FileFeatures::empty()
        }
    }

    fn read(&self, file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let mut place = self.place.load(Relaxed);
        let position = if self.handle.is_seekable() { position } else { &mut place };
        let outcome = if self.is_direct(file) {
            self.read_direct(file.inode(), position, sink)
        } else {
            self.read_pages(file.inode(), position, sink)
        };
        self.place.store(*position, Relaxed);
        outcome
    }

    fn write(&self, file: &OpenFile, position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        if source.is_empty() {
            return Ok(0);
        }
        let inode = file.inode();
        let node = node_of(inode)?;
        let _exclusive = inode.lock().write();
        let mut place = self.place.load(Relaxed);
        let position = if self.handle.is_seekable() { position } else { &mut place };
        if file.flags().contains(OpenFlags::APPEND) {
            node.update(inode)?;
            *position = inode.size();
        }
        if *position >= memory::file_cache::MAX_FILE_BYTES {
            return Err(Error::FileTooLarge);
        }
        let outcome = self.write_all(node, inode, position, source);
        self.place.store(*position, Relaxed);
        outcome
    }

    fn seek(&self, file: &OpenFile, current: u64, target: SeekFrom) -> Result<u64> {
        let inode = file.inode();
        let node = node_of(inode)?;
        if let Some(found) = self.seek_data(node, current, target)? {
            return Ok(found);
        }
        if !matches!(target, SeekFrom::Start(_) | SeekFrom::Current(_)) {
            node.update(inode)?;
        }
        NoOperations.seek(file, current, target)
    }

    fn mapping(&self, file: &OpenFile) -> Result<FileMappingKind> {
        let inode = file.inode();
        let node = node_of(inode)?;
        node.update(inode)?;
        Ok(FileMappingKind::Pages(node.pages()?.clone()))
    }

    fn sync(&self, file: &OpenFile, data_only: bool) -> Result<()> {
        let node = node_of(file.inode())?;
        node.write_pages()?;
        self.handle.sync(data_only)
    }

    fn write_range(&self, file: &OpenFile, start: u64, end: u64, steps: RangeSteps) -> Result<()> {
        let node = node_of(file.inode())?;
        if steps.intersects(RangeSteps::WAIT_BEFORE | RangeSteps::WAIT_AFTER) {
            return node.write_pages();
        }
        if steps.contains(RangeSteps::WRITE) {
            node.pages()?.start_write_back(start >> PAGE_SHIFT, end.div_ceil(PAGE_SIZE as u64), u64::MAX);
        }
        Ok(())
    }

    fn flush(&self, file: &OpenFile) -> Result<()> {
        if self.handle.flags & open_flag::NO_FLUSH != 0 || file.flags().contains(OpenFlags::PATH) {
            return Ok(());
        }
        let node = node_of(file.inode())?;
        let connection = node.connection();
        // Who is about to end must not wait for a server that may be about to end, too; and least of all for itself.
        let waits = !sched::current().is_killed() && !connection.is_server_calling();
        let written = if waits { node.write_pages() } else { Ok(()) };
        if !connection.knows(opcode::FLUSH) {
            return written;
        }
        let body = Body::new().u64s(&[self.handle.number]).u32s(&[0, 0]).u64s(&[0]);
        let call = Call::new(opcode::FLUSH, node.number, body, Room::NONE);
        if !waits {
            return connection.send(call, None).and(written);
        }
        match connection.call_if_known(call) {
            Ok(_) | Err(Error::NotImplemented) => written,
            Err(error) => Err(error),
        }
    }

    fn release(&self, file: &OpenFile) {
        if let Ok(node) = node_of(file.inode()) {
            node.contents.closed(&self.handle);
        }
    }
}
