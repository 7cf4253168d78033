//! An open file whose pages have their home on a device.
//!
//! [`DiskFile`] is made at each open: it keeps how the file is read (`read_ahead`) and which errors of write-back were told to it. What differs between
//! file systems is behind [`Home`].
//!
//! # Writing
//! A write goes in pieces of 128 KiB; after each the writer may have to wait until the device has caught up
//! ([`flusher`]). The inode's lock is held over all of it if the file grows or the write appends.
//!
//! # `O_DIRECT`
//! Position and length must be multiples of the device's blocks, and so must the memory. The transfer goes through the pages, but leaves none behind: a write is on the device when it returns,
//! with its own error; a read brings in what it needs, and both give the pages up afterwards.

use alloc::sync::Arc;

use block::registry::BlockDevice;
use machine::address::{PAGE_SHIFT, PAGE_SIZE, UserAddr};
use memory::buffer::{Sink, Source};
use memory::file_cache::{CacheError, FileCache, SeenErrors};

use super::flusher;
use super::read_ahead::{Pattern, ReadAhead};
use crate::attributes::FileKind;
use crate::file::{
    FileFeatures, FileMappingKind, FileOperations, OpenFile, RangeSteps, SeekFrom, seek_cache,
    write_cache_piece,
};
use crate::flags::OpenFlags;
use crate::inode::Inode;
use crate::{Error, Result, allocation};

/// What is written before the writer may have to wait.
pub(crate) const PIECE_BYTES: u64 = 128 << 10;

/// Advice about how a part of a file will be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Nothing special.
    Normal,
    /// In no order.
    Random,
    /// From front to back.
    Sequential,
    /// Soon.
    WillNeed,
    /// Not soon.
    DontNeed,
    /// Once.
    NoReuse,
}

/// What the file system (or the device itself) does for its open files.
#[allow(unused_variables, reason = "default bodies do nothing")]
pub trait Home: Send + Sync {
    /// What [`write_back`](FileCache::write_back) wrote lasts when this returns, with what is needed to find it: size and places, and unless `data_only` all attributes.
    ///
    /// # Errors
    /// What the device says.
    fn commit(&self, inode: &Inode, data_only: bool) -> Result<()>;

    /// What `O_DIRECT` transfers must be multiples of.
    fn direct_bytes(&self) -> usize {
        block::SECTOR_BYTES
    }

    /// Bytes are about to be written: to be refused, or noted.
    ///
    /// # Errors
    /// The reason to refuse.
    fn before_write(&self, file: &OpenFile, position: u64, bytes: u64) -> Result<()> {
        Ok(())
    }

    /// Bytes of a regular file were written, to its pages.
    fn after_write(&self, file: &OpenFile) {}

    /// Where a seek leads to, if the file system knows data from holes.
    ///
    /// # Errors
    /// Those of `lseek`.
    fn seek(&self, file: &OpenFile, current: u64, target: SeekFrom) -> Option<Result<u64>> {
        None
    }

    /// A request of the device or file system.
    ///
    /// # Errors
    /// `ENOTTY` for what is not known.
    fn ioctl(&self, file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        Err(Error::NotTerminal)
    }

    /// A descriptor of the open file was closed.
    ///
    /// # Errors
    /// For `close`.
    fn flush(&self, file: &OpenFile) -> Result<()> {
        Ok(())
    }

    /// The open file's end.
    fn release(&self, file: &OpenFile) {}

    /// The device, if the file is one.
    fn device(&self) -> Option<&Arc<BlockDevice>> {
        None
    }
}

/// See the theory of this file.
pub struct DiskFile {
    cache: Arc<FileCache>,
    seen: SeenErrors,
    reading: ReadAhead,
    /// `None`: the inode's own ([`InodeOperations::home`](crate::inode::InodeOperations::home)).
    home: Option<Arc<dyn Home>>,
}

impl DiskFile {
    /// For [`InodeOperations::open`](crate::inode::InodeOperations::open) of regular files.
    ///
    /// # Errors
    /// No memory, or an inode without pages.
    pub fn of_inode(inode: &Inode) -> Result<Arc<dyn FileOperations>> {
        let cache = inode.operations().cache().ok_or(Error::Invalid)?;
        Self::open(cache.clone(), None)
    }

    /// An open file of these pages.
    pub(super) fn open(
        cache: Arc<FileCache>,
        home: Option<Arc<dyn Home>>,
    ) -> Result<Arc<dyn FileOperations>> {
        let seen = cache.write_errors().ok_or(Error::Invalid)?.sample();
        let file: Arc<dyn FileOperations> =
            allocation::arc(Self { cache, seen, reading: ReadAhead::new(), home })?;
        Ok(file)
    }

    /// The block device that an open file stands for.
    pub fn device_of(file: &OpenFile) -> Option<Arc<BlockDevice>> {
        let operations: &dyn core::any::Any = file.operations();
        operations.downcast_ref::<Self>()?.home.as_ref()?.device().cloned()
    }

    /// Its pages.
    pub fn cache(&self) -> &Arc<FileCache> {
        &self.cache
    }

    fn home<'a>(&'a self, file: &'a OpenFile) -> Option<&'a dyn Home> {
        match &self.home {
            Some(home) => Some(&**home),
            None => file.inode().operations().home(),
        }
    }

    /// A device that is gone is gone for all, whatever is left of it in memory.
    fn check_present(&self) -> Result<()> {
        let device = self.home.as_ref().and_then(|home| home.device());
        if device.is_some_and(|device| device.is_removed()) { Err(Error::NoDevice) } else { Ok(()) }
    }

    fn check_direct(&self, file: &OpenFile, position: u64, aligned: impl Fn(usize) -> bool) -> Result<bool> {
        if !file.flags().contains(OpenFlags::DIRECT) {
            return Ok(false);
        }
        let unit = self.home(file).map_or(block::SECTOR_BYTES, Home::direct_bytes);
        if position as usize & (unit - 1) == 0 && aligned(unit) { Ok(true) } else { Err(Error::Invalid) }
    }

    /// Gives up the pages of a part.
    fn give_up(&self, start: u64, end: u64) {
        self.cache.drop_clean(start >> PAGE_SHIFT, end.div_ceil(PAGE_SIZE as u64), usize::MAX);
    }

    /// Tells of errors of write-back since this open file last asked.
    fn tell_errors(&self) -> Result<()> {
        self.cache.write_errors().map_or(Ok(()), |errors| Ok(errors.check(&self.seen)?))
    }

    fn read_pieces(&self, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let mut done = 0;
        loop {
            let left = self.cache.size().saturating_sub(*position).min(sink.remaining() as u64);
            if left == 0 {
                return Ok(done);
            }
            let first = *position >> PAGE_SHIFT;
            let last =
                ((*position + left - 1) >> PAGE_SHIFT).min(first + self.reading.step_pages(&self.cache) - 1);
            self.reading.before_read(&self.cache, first..last + 1);
            let end = (last + 1) << PAGE_SHIFT;
            match self.cache.read_up_to(*position, end, sink) {
                Ok(number) => {
                    *position += number as u64;
                    done += number;
                    if *position < end {
                        return Ok(done);
                    }
                }
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn write_pieces(&self, file: &OpenFile, position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let mut done = 0;
        while !source.is_empty() {
            match write_cache_piece(file, &self.cache, position, PIECE_BYTES, source) {
                Ok(0) => break,
                Ok(number) => done += number,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            if let Some(device) = self.cache.device()
                && !flusher::pace(device)
            {
                break;
            }
        }
        Ok(done)
    }

    /// Writes to a device, which does not grow.
    fn write_within(&self, position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let mut done = 0;
        while !source.is_empty() {
            let room = self.cache.size().saturating_sub(*position);
            if room == 0 {
                return if done > 0 { Ok(done) } else { Err(Error::NoSpace) };
            }
            match self.cache.write_some(*position, room.min(PIECE_BYTES), source) {
                Ok(0) => break,
                Ok(number) => {
                    *position += number as u64;
                    done += number;
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error.into()),
            }
            if let Some(device) = self.cache.device()
                && !flusher::pace(device)
            {
                break;
            }
        }
        Ok(done)
    }
}

impl FileOperations for DiskFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE | FileFeatures::REGULAR
    }

    fn read(&self, file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        self.check_present()?;
        let start = *position;
        let direct = self.check_direct(file, start, |unit| sink.is_aligned(unit))?;
        let number = self.read_pieces(position, sink)?;
        if direct {
            self.give_up(start, *position);
        }
        crate::time::accessed(file);
        Ok(number)
    }

    fn write(&self, file: &OpenFile, position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        self.check_present()?;
        let direct = self.check_direct(file, *position, |unit| source.is_aligned(unit))?;
        if let Some(home) = self.home(file) {
            home.before_write(file, *position, source.remaining() as u64)?;
        }
        // Whoever writes the pages back, what goes wrong from here on is this write's error, too.
        let mark = self.cache.write_errors().filter(|_| direct).map(|errors| (errors, errors.mark()));
        let is_device = file.inode().kind == FileKind::BlockDevice;
        let number = if is_device {
            self.write_within(position, source)?
        } else {
            let number = self.write_pieces(file, position, source)?;
            if let Some(home) = self.home(file) {
                home.after_write(file);
            }
            number
        };
        if let Some((errors, mark)) = mark {
            let start = *position - number as u64;
            let written = self.cache.write_back(start >> PAGE_SHIFT, position.div_ceil(PAGE_SIZE as u64));
            self.give_up(start, *position);
            errors.since(mark).and(written)?;
        }
        Ok(number)
    }

    fn seek(&self, file: &OpenFile, current: u64, target: SeekFrom) -> Result<u64> {
        match self.home(file).and_then(|home| home.seek(file, current, target)) {
            Some(place) => place,
            None => seek_cache(&self.cache, current, target),
        }
    }

    fn ioctl(&self, file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        self.home(file).ok_or(Error::NotTerminal)?.ioctl(file, command, argument)
    }

    fn mapping(&self, _file: &OpenFile) -> Result<FileMappingKind> {
        Ok(FileMappingKind::Pages(self.cache.clone()))
    }

    fn sync(&self, file: &OpenFile, data_only: bool) -> Result<()> {
        self.sync_range(file, 0, u64::MAX, data_only)
    }

    fn sync_range(&self, file: &OpenFile, start: u64, end: u64, data_only: bool) -> Result<()> {
        let written = self.cache.write_back(start >> PAGE_SHIFT, end.div_ceil(PAGE_SIZE as u64));
        let committed = match self.home(file) {
            Some(home) => home.commit(file.inode(), data_only),
            None => Ok(()),
        };
        // What is lost with a flush was everybody's who has the file open.
        if committed == Err(Error::Io)
            && let Some(errors) = self.cache.write_errors()
        {
            errors.note(CacheError::InputOutput);
        }
        self.tell_errors()?;
        // Any other error of the transfers is among those that were told above, to whom it was new.
        if written == Err(CacheError::OutOfMemory) { Err(Error::OutOfMemory) } else { committed }
    }

    fn write_range(&self, _file: &OpenFile, start: u64, end: u64, steps: RangeSteps) -> Result<()> {
        let (first, end) = (start >> PAGE_SHIFT, end.div_ceil(PAGE_SIZE as u64));
        if steps.contains(RangeSteps::WAIT_BEFORE) {
            self.cache.wait_for_write_back(first, end);
            self.tell_errors()?;
        }
        if steps.contains(RangeSteps::WRITE | RangeSteps::WAIT_AFTER) {
            // Who waits for what begins here is not told that it went well while pages that found no memory are dirty still.
            let written = self.cache.write_back(first, end);
            self.tell_errors()?;
            return if written == Err(CacheError::OutOfMemory) { Err(Error::OutOfMemory) } else { Ok(()) };
        }
        if steps.contains(RangeSteps::WRITE) {
            self.cache.start_write_back(first, end, u64::MAX);
        }
        if steps.contains(RangeSteps::WAIT_AFTER) {
            self.cache.wait_for_write_back(first, end);
            self.tell_errors()?;
        }
        Ok(())
    }

    fn advise(&self, _file: &OpenFile, offset: u64, length: u64, advice: Advice) {
        let end = if length == 0 { u64::MAX } else { offset.saturating_add(length) };
        match advice {
            Advice::Normal => self.reading.set_pattern(Pattern::Normal),
            Advice::Random => self.reading.set_pattern(Pattern::Random),
            Advice::Sequential => self.reading.set_pattern(Pattern::Sequential),
            Advice::NoReuse => {}
            Advice::WillNeed => {
                self.cache.read_ahead(offset >> PAGE_SHIFT, end.div_ceil(PAGE_SIZE as u64));
            }
            Advice::DontNeed => {
                let (first, last) = (offset.div_ceil(PAGE_SIZE as u64), end >> PAGE_SHIFT);
                let last = if end >= self.cache.size() { u64::MAX } else { last };
                // What is on its way stays: who wants it to go writes it before, as on Linux.
                self.cache.start_write_back(first, last, u64::MAX);
                self.cache.drop_clean(first, last, usize::MAX);
            }
        }
    }

    fn flush(&self, file: &OpenFile) -> Result<()> {
        self.home(file).map_or(Ok(()), |home| home.flush(file))
    }

    fn release(&self, file: &OpenFile) {
        if let Some(home) = self.home(file) {
            home.release(file);
        }
    }
}
