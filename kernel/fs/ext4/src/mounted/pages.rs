//! Pages of a file: which blocks they are, and their way to and from the device.
//!
//! # Delayed allocation
//! A page that becomes dirty where the file has a hole gets a promise of space, no blocks: those are chosen when it is written back, many at
//! a time. Promises are counted for the file system and for each file; a page that is written or given up returns its own.
//!
//! # Locking
//! [`File::changing`] is held while transfers of the file's pages begin; truncation, allocation and holes hold it and wait until those have ended
//! ([`File::alone`]). It comes after the inode's lock and before all of the file system's own.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use block::{BioFlags, Operation, SECTOR_BYTES};
use machine::address::PAGE_SIZE;
use memory::fallible;
use memory::file_cache::{CacheError, FileRepresentative, MAX_FILE_BYTES, PageRun};
use vfs::Timestamp;
use vfs::attributes::AtomicTimestamp;
use vfs::disk::transfer::{error_of as error_of_device, pages_max, submit};
use vfs::inode::Inode;

use super::instance::{Instance, time_of};
use super::transfers::Part;
use crate::contents::times_with;
use crate::layout::FLAG_IMMUTABLE;
use crate::map_change::size_max;
use crate::{Error, Time, Writer};

/// A regular file, as its node and its pages know it.
pub(super) struct File {
    pub(super) number: u32,
    pub(super) changing: sched::Mutex<()>,
    /// Blocks promised to its dirty pages.
    promised: AtomicU64,
    /// Nobody can reach it any more: what is still dirty is not written, its inode may be another file's soon. Set before it waits to be
    /// deleted, looked at with `changing` held.
    pub(super) gone: AtomicBool,
    /// Transfers of its pages to the disk.
    pub(super) under_way: AtomicU64,
    /// When a program wrote to it last, [`NEVER`] if its times were set since. Its inode may leave memory before its pages are written.
    written: AtomicTimestamp,
}

impl File {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            changing: sched::Mutex::named("blocks of a file of ext4", ()),
            promised: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            under_way: AtomicU64::new(0),
            written: AtomicTimestamp::new(NEVER),
        }
    }
}

/// Not written to. No clock says it.
const NEVER: Timestamp = Timestamp::MINIMUM;

impl File {
    /// Blocks promised to its dirty pages.
    pub(super) fn promised(&self) -> u64 {
        self.promised.load(Relaxed)
    }

    /// A program writes to it now, or may through a mapping. Returns the time.
    pub(super) fn note_written(&self) -> Timestamp {
        let now = Timestamp::coarse();
        self.written.set(now);
        now
    }

    /// Its times are being set: what was written before says nothing any more. Called with the change lock held.
    pub(super) fn forget_written(&self) {
        self.written.set(NEVER);
    }

    /// When a program wrote to it last, if its times were not set since.
    pub(super) fn written(&self) -> Option<Time> {
        let written = self.written.get();
        (written != NEVER).then(|| time_of(written))
    }

    /// Shows that in its inode, if programs wrote through a mapping or the inode was out of memory.
    pub(super) fn show_written(&self, inode: &Inode) {
        let written = self.written.get();
        if written == NEVER {
            return;
        }
        let before = (inode.modified().get(), inode.changed().get());
        let times = times_with(before.0, before.1, written);
        // Who sets other ones meanwhile comes after it.
        if times.0 != before.0 {
            inode.modified().replace(before.0, times.0);
        }
        if times.1 != before.1 {
            inode.changed().replace(before.1, times.1);
        }
    }
}

/// The pages of a file.
pub(super) struct Pages {
    pub(super) instance: Arc<Instance>,
    pub(super) file: Arc<File>,
}

pub(super) fn error_of(error: &Error) -> CacheError {
    match error {
        Error::Device(error) => error_of_device(*error),
        Error::OutOfMemory => CacheError::OutOfMemory,
        Error::NoSpace => CacheError::NoSpace,
        Error::TooLarge => CacheError::TooBig,
        Error::ReadOnly => CacheError::ReadOnly,
        Error::Immutable => CacheError::NotPermitted,
        other => {
            log::error!("ext4: {other}");
            CacheError::InputOutput
        }
    }
}

impl Pages {
    /// Begins to fill the first pages of a run, as far as their blocks are neighbours. What is left is left in the run.
    fn fill_first(&self, run: &mut PageRun) -> Result<(), Error> {
        let system = self.instance.system();
        let inode = system.inode(self.file.number)?;
        let block_bytes = system.block_bytes() as u64;
        let offset = run.first() * PAGE_SIZE as u64;
        let inside = offset % block_bytes;
        let wanted = (inside + (run.pages() * PAGE_SIZE) as u64).div_ceil(block_bytes);
        let found = system.map(&inode, offset / block_bytes, wanted)?;
        let bytes = (found.count.min(wanted) * block_bytes).saturating_sub(inside);
        let whole = (bytes / PAGE_SIZE as u64).min(run.pages() as u64) as usize;
        // Behind the end on the disk is what was never zeroed: the page that has it is put together.
        let inner = whole.min((inode.size.saturating_sub(offset) / PAGE_SIZE as u64) as usize);
        match found.place {
            None if whole > 0 => {
                let pages = run.split(whole);
                pages.frames().iter().for_each(memory::frame::Frame::zero);
                pages.complete(Ok(()));
            }
            Some(place) if inner > 0 => {
                let sector = (place * block_bytes + inside) / SECTOR_BYTES as u64;
                let pages = run.split(inner);
                let volume = self.instance.device.volume();
                submit(volume, Operation::Read, sector, inner * PAGE_SIZE, pages, BioFlags::empty());
            }
            _ => self.fill_from_pieces(offset, run)?,
        }
        Ok(())
    }

    /// A page whose blocks are not neighbours, or that the file ends in.
    #[inline(never)]
    fn fill_from_pieces(&self, offset: u64, run: &mut PageRun) -> Result<(), Error> {
        let system = self.instance.system();
        let mut bytes = fallible::try_vec_of(0, PAGE_SIZE)?;
        system.read(&system.inode(self.file.number)?, offset, &mut bytes)?;
        let page = run.split(1);
        page.frames()[0].write(0, &bytes);
        page.complete(Ok(()));
        Ok(())
    }

    fn blocks_per_page(&self) -> u64 {
        (PAGE_SIZE / self.instance.system().block_bytes()).max(1) as u64
    }

    /// Begins to write the pages of a run, from their frames. What is left of the run on an error was not begun.
    fn begin_write(&self, run: &mut PageRun) -> Result<(), Error> {
        let writer = self.instance.writer().map_err(|_| Error::ReadOnly)?;
        let unit = self.instance.system().block_bytes();
        let _changing = self.file.changing.lock();
        if self.file.gone.load(Relaxed) {
            return Ok(());
        }
        while run.pages() > 0 {
            let size = run.cache().size();
            let start = run.first() * PAGE_SIZE as u64;
            if start >= size {
                return Ok(());
            }
            if unit > PAGE_SIZE || !self.begin_part(writer, run, size)? {
                self.write_page(writer, run, size)?;
            }
        }
        Ok(())
    }

    /// Begins to write the first pages of a run, as far as their blocks are neighbours. False: not even those of one page are.
    fn begin_part(&self, writer: &Writer, run: &mut PageRun, size: u64) -> Result<bool, Error> {
        let number = self.file.number;
        let unit = self.instance.system().block_bytes();
        let blocks_per_page = PAGE_SIZE / unit;
        let start = run.first() * PAGE_SIZE as u64;
        if writer.has_old_end(number, start)? {
            self.file.await_transfers(&self.instance);
            writer.clear_old_end(number, start)?;
        }
        let pages = run.pages().min(pages_max(self.instance.device.volume()));
        let bytes = ((pages * PAGE_SIZE) as u64).min(size - start) as usize;
        let wanted = bytes.div_ceil(unit);
        let mut destination = writer.destination(number, start / unit as u64, wanted as u32, true)?;
        let found = destination.blocks() as usize;
        let whole = if found == wanted { bytes.div_ceil(PAGE_SIZE) } else { found / blocks_per_page };
        let blocks = wanted.min(whole * blocks_per_page);
        if blocks == 0 || writer.shorten(&mut destination, blocks as u32).is_err() {
            writer.give_up(&destination);
            return Ok(false);
        }
        let part = Part {
            run: run.split(whole),
            destination,
            bytes: blocks * unit,
            end: size.min(start + (blocks * unit) as u64),
        };
        // Its blocks are chosen: they count by themselves.
        self.return_promise(whole as u64);
        self.instance.begin_transfer(&self.file, part);
        Ok(true)
    }

    /// Writes the first page of a run through a copy, and waits for it: its blocks are not neighbours, or larger than pages.
    #[inline(never)]
    fn write_page(&self, writer: &Writer, run: &mut PageRun, size: u64) -> Result<(), Error> {
        self.file.await_transfers(&self.instance);
        let start = run.first() * PAGE_SIZE as u64;
        let mut bytes = fallible::try_vec_of(0, (size - start).min(PAGE_SIZE as u64) as usize)?;
        run.frames()[0].read(0, &mut bytes);
        writer.write_written(self.file.number, start, &bytes, true, &|| self.file.written())?;
        self.return_promise(1);
        run.split(1).complete(Ok(()));
        Ok(())
    }

    fn return_promise(&self, pages: u64) {
        let blocks = pages * self.blocks_per_page();
        let mut returned = 0;
        let _ = self.file.promised.fetch_update(Relaxed, Relaxed, |promised| {
            returned = promised.min(blocks);
            Some(promised - returned)
        });
        if let Ok(writer) = self.instance.writer() {
            writer.return_promise(returned);
        }
    }

    /// Promises a page what it will need, and says whether it needs anything. What was removed is space only when it has been deleted, so that
    /// is done before there is none.
    fn promise(&self, page: u64) -> Result<bool, Error> {
        self.instance.retry_for_space(|| self.promise_now(page))
    }

    fn promise_now(&self, page: u64) -> Result<bool, Error> {
        let writer = self.instance.writer().map_err(|_| Error::ReadOnly)?;
        if writer.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let system = writer.system();
        let inode = system.inode(self.file.number)?;
        if inode.flags & FLAG_IMMUTABLE != 0 {
            return Err(Error::Immutable);
        }
        let count = self.blocks_per_page();
        let first = page * PAGE_SIZE as u64 / system.block_bytes() as u64;
        let run = system.map(&inode, first, count)?;
        if run.count >= count && (run.place.is_some() || run.unwritten.is_some()) {
            return Ok(false);
        }
        // The sum first: who returns a promise of the file takes it from the sum.
        writer.promise(count, self.instance.is_privileged())?;
        self.file.promised.fetch_add(count, Relaxed);
        Ok(true)
    }
}

impl FileRepresentative for Pages {
    fn fill(&self, mut pages: PageRun) {
        while pages.pages() > 0 {
            if let Err(error) = self.fill_first(&mut pages) {
                return pages.complete(Err(error_of(&error)));
            }
        }
    }

    fn write_back(&self, mut pages: PageRun) {
        let begun = self.begin_write(&mut pages);
        // Without memory the pages stay dirty, and keep theirs.
        if !matches!(begun, Err(Error::OutOfMemory)) {
            self.return_promise(pages.pages() as u64);
        }
        pages.complete(begun.map_err(|error| error_of(&error)));
    }

    fn prepare_write(&self, page: u64) -> Result<bool, CacheError> {
        let promised = self.promise(page).map_err(|error| error_of(&error))?;
        // Who writes may be long about it, and the page be written back meanwhile.
        self.file.note_written();
        Ok(promised)
    }

    fn bytes_max(&self) -> u64 {
        let system = self.instance.system();
        system.inode(self.file.number).map_or(MAX_FILE_BYTES, |inode| size_max(system, &inode))
    }

    fn note_stores(&self) {
        self.file.note_written();
    }

    fn forget_write(&self, _page: u64) {
        self.return_promise(1);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Ok(writer) = self.instance.writer() {
            writer.return_promise(self.file.promised.swap(0, Relaxed));
        }
    }
}
