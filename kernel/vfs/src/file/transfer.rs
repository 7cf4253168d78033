//! Reading, writing, seeking and listing through an open file: the checks that all files share.
//!
//! Cost of a read at the file's own position: two flag tests, one reference count load, and for files with a position
//! one load and one store of it; then the operations' own.

use alloc::sync::Arc;
use core::ops::Range;

use memory::buffer::{Sink, Source};

use super::open_file::{OpenFile, SeekFrom};
use super::operations::FileFeatures;
use crate::attributes::FileKind;
use crate::fanotify;
use crate::flags::OpenFlags;
use crate::inode::{DirectorySink, FIRST_POSITION};
use crate::inotify::{self, EventMask};
use crate::{Error, Result};

/// Most bytes that one call moves, as on Linux.
pub const TRANSFER_MAX: usize = 0x7fff_f000;

/// Fails with `EINVAL` when a transfer would end beyond the largest position.
#[inline]
fn check_range(position: u64, length: usize) -> Result<()> {
    match position.checked_add(length as u64) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => Err(Error::Invalid),
    }
}

impl OpenFile {
    /// `read`, `readv`.
    pub fn read(self: &Arc<Self>, sink: &mut Sink<'_>) -> Result<usize> {
        self.check_readable()?;
        if self.inode().kind == FileKind::Directory {
            return Err(Error::IsDirectory);
        }
        if inotify::active() {
            fanotify::ask_access(self)?;
        }
        let result = if self.features().contains(FileFeatures::SEEKABLE) {
            self.with_position(|position| {
                check_range(*position, sink.remaining())?;
                self.operations().read(self, position, sink)
            })
        } else {
            self.operations().read(self, &mut 0, sink)
        };
        if inotify::active() && matches!(result, Ok(number) if number > 0) {
            inotify::report_file(self, EventMask::ACCESS);
        }
        result
    }

    /// `write`, `writev`.
    pub fn write(self: &Arc<Self>, source: &mut Source<'_>) -> Result<usize> {
        self.check_writable()?;
        let mut end = 0;
        let result = if self.features().contains(FileFeatures::SEEKABLE) {
            self.with_position(|position| {
                check_range(*position, source.remaining())?;
                let result = self.operations().write(self, position, source);
                end = *position;
                result
            })
        } else {
            self.operations().write(self, &mut 0, source)
        };
        self.after_write(result, end)
    }

    /// Part of both ways to write; `end` is where it came to. What is seldom wanted is a call, so that it costs the others nothing but the question.
    #[inline(always)]
    fn after_write(&self, result: Result<usize>, end: u64) -> Result<usize> {
        let number = result?;
        if number > 0 {
            if inotify::active() {
                inotify::report_file(self, EventMask::MODIFY);
            }
            if self.flags().contains(OpenFlags::DATA_SYNC)
                || self.features().contains(FileFeatures::SYNCHRONOUS)
            {
                self.sync_after_write(number, end)?;
            }
        }
        Ok(number)
    }

    /// Part of a write with `O_DSYNC` or `O_SYNC`: the `number` bytes before `end` last.
    #[cold]
    #[inline(never)]
    fn sync_after_write(&self, number: usize, end: u64) -> Result<()> {
        let flags = self.flags();
        let data_only = !flags.contains(OpenFlags::FILE_SYNC);
        // What was appended may lie in pieces, with what others appended in between.
        let range = if flags.contains(OpenFlags::APPEND) {
            0..u64::MAX
        } else {
            end.saturating_sub(number as u64)..end
        };
        self.sync_written(range, data_only)
    }

    /// What was written within a range lasts, if the file is one of those where that has a meaning: for writes with `RWF_DSYNC` (`data_only`) or
    /// `RWF_SYNC`.
    pub fn sync_written(&self, range: Range<u64>, data_only: bool) -> Result<()> {
        if matches!(self.inode().kind, FileKind::Regular | FileKind::BlockDevice) {
            return self.operations().sync_range(self, range.start, range.end, data_only);
        }
        Ok(())
    }

    /// `pread`, `preadv`.
    pub fn read_at(self: &Arc<Self>, position: i64, sink: &mut Sink<'_>) -> Result<usize> {
        let mut position = u64::try_from(position).map_err(|_| Error::Invalid)?;
        self.check_seekable()?;
        self.check_readable()?;
        if self.inode().kind == FileKind::Directory {
            return Err(Error::IsDirectory);
        }
        check_range(position, sink.remaining())?;
        if inotify::active() {
            fanotify::ask_access(self)?;
        }
        let result = self.operations().read(self, &mut position, sink);
        if inotify::active() && matches!(result, Ok(number) if number > 0) {
            inotify::report_file(self, EventMask::ACCESS);
        }
        result
    }

    /// `pwrite`, `pwritev`. With `O_APPEND` the data goes to the end, as on Linux.
    pub fn write_at(self: &Arc<Self>, position: i64, source: &mut Source<'_>) -> Result<usize> {
        let mut position = u64::try_from(position).map_err(|_| Error::Invalid)?;
        self.check_seekable()?;
        self.check_writable()?;
        check_range(position, source.remaining())?;
        let result = self.operations().write(self, &mut position, source);
        self.after_write(result, position)
    }

    /// Fails with `ESPIPE` unless there is a position.
    pub fn check_seekable(&self) -> Result<()> {
        if self.features().contains(FileFeatures::SEEKABLE) { Ok(()) } else { Err(Error::IllegalSeek) }
    }

    /// `lseek`, whose only caller it is a part of.
    #[inline(always)]
    pub fn seek(self: &Arc<Self>, target: SeekFrom) -> Result<u64> {
        if self.flags().contains(OpenFlags::PATH) {
            return Err(Error::BadDescriptor);
        }
        if self.features().contains(FileFeatures::SEEK_IGNORED) {
            return Ok(0);
        }
        self.check_seekable()?;
        let is_plain = matches!(target, SeekFrom::Start(_) | SeekFrom::Current(_));
        if self.inode().kind == FileKind::Directory && !is_plain {
            return Err(Error::Invalid);
        }
        self.with_position(|position| {
            let new = self.operations().seek(self, *position, target)?;
            *position = new;
            Ok(new)
        })
    }

    /// `fsync`, `fdatasync`.
    pub fn sync(&self, data_only: bool) -> Result<()> {
        if self.flags().contains(OpenFlags::PATH) {
            return Err(Error::BadDescriptor);
        }
        self.operations().sync(self, data_only)
    }

    /// `syncfs`: writes the file system back, and tells once what went wrong since this file was opened, whoever wrote.
    pub fn sync_file_system(&self) -> Result<()> {
        let Some(path) = self.path() else { return Ok(()) };
        let superblock = path.mount.superblock();
        let synced = superblock.operations().sync();
        let told = superblock.write_errors().map_or(Ok(()), |errors| errors.check(&self.seen_errors));
        // Both count as told.
        synced.and(told.map_err(Error::from))
    }
}

/// The outcome of listing a part of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDirectory {
    /// Entries taken by the sink.
    pub entries: usize,
    /// The sink refused an entry: it was full.
    pub full: bool,
}

/// Counts what the sink takes.
struct Counting<'a> {
    sink: &'a mut dyn DirectorySink,
    outcome: ReadDirectory,
}

impl DirectorySink for Counting<'_> {
    fn entry(&mut self, name: &[u8], inode: u64, kind: FileKind, next: u64) -> bool {
        let taken = self.sink.entry(name, inode, kind, next);
        self.outcome.entries += usize::from(taken);
        self.outcome.full |= !taken;
        taken
    }
}

impl OpenFile {
    /// `getdents64`: lists from the position on until the sink is full. `EINVAL` when not even one entry fits is the
    /// caller's to report.
    pub fn read_directory(self: &Arc<Self>, sink: &mut dyn DirectorySink) -> Result<ReadDirectory> {
        let inode = self.inode();
        if inode.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        self.check_readable()?;
        if inotify::active() {
            fanotify::ask_access(self)?;
        }
        let mut counting = Counting { sink, outcome: ReadDirectory { entries: 0, full: false } };
        self.with_position(|position| {
            let _shared = inode.lock().read();
            if self.path().is_some_and(|path| path.is_deleted()) {
                return Err(Error::NotFound);
            }
            *position = self.list_from(*position, &mut counting)?;
            Ok(())
        })?;
        crate::time::accessed(self);
        if inotify::active() {
            inotify::report_file(self, EventMask::ACCESS);
        }
        Ok(counting.outcome)
    }

    fn list_from(&self, mut position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        if position == 0 {
            if !sink.entry(b".", self.inode().number, FileKind::Directory, 1) {
                return Ok(0);
            }
            position = 1;
        }
        if position == 1 {
            let parent = self.parent_number();
            if !sink.entry(b"..", parent, FileKind::Directory, FIRST_POSITION) {
                return Ok(1);
            }
            position = FIRST_POSITION;
        }
        self.operations().read_directory(self, position, sink)
    }

    fn parent_number(&self) -> u64 {
        let parent = self.path().and_then(|path| path.dentry.parent());
        parent.and_then(|parent| parent.inode().map(|inode| inode.number)).unwrap_or(self.inode().number)
    }
}
