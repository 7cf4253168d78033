//! What an open file does: the trait that file systems, devices, pipes and sockets implement.

use alloc::sync::Arc;
use core::any::Any;
use core::fmt;

use bitflags::bitflags;
use machine::address::UserAddr;
use memory::buffer::{Sink, Source};
use memory::file_cache::FileCache;

use super::open_file::{OpenFile, SeekFrom};
use crate::disk::Advice;
use crate::inode::DirectorySink;
use crate::pipe::Pipe;
use crate::poll::{PollEvents, PollTable};
use crate::{Error, Result};

bitflags! {
    /// Properties of an open file that never change.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct FileFeatures: u32 {
        /// There is a position: `lseek`, `pread` and `pwrite` work. Without it they fail with `ESPIPE`, and reading
        /// and writing take no lock of the file layer's.
        const SEEKABLE = 1;
        /// `poll` can be called; without it the file is always ready and `epoll` refuses it (`EPERM`).
        const POLLABLE = 2;
        /// Reading never ends short without reason: what regular files promise.
        const REGULAR = 4;
        /// `lseek` is accepted and has no effect, though there is no position.
        const SEEK_IGNORED = 8;
        /// What is written lasts when the call returns, whatever the flags say: the mount or the file wants it.
        const SYNCHRONOUS = 16;
        /// What happens through it is told to nobody: who watches has got it with an event.
        const UNWATCHED = 32;
    }
}

bitflags! {
    /// Steps of writing a part of a file back, as in `sync_file_range`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RangeSteps: u32 {
        /// Wait for pages that are on their way.
        const WAIT_BEFORE = 1;
        /// Begin to write pages that are dirty.
        const WRITE = 2;
        /// Wait for those.
        const WAIT_AFTER = 4;
    }
}

/// What an open file does. `file` is the open file the call is made on: its flags tell about `O_NONBLOCK`.
///
/// Reads and writes move `*position`; without [`FileFeatures::SEEKABLE`] they ignore it. They return what was moved;
/// an error only when nothing was.
#[allow(unused_variables, reason = "default bodies refuse without looking at their arguments")]
pub trait FileOperations: Any + Send + Sync {
    /// What kind of file it is.
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE
    }

    /// Reads into `sink`; 0 at the end.
    fn read(&self, file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        Err(Error::Invalid)
    }

    /// Writes from `source`.
    fn write(&self, file: &OpenFile, position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        Err(Error::Invalid)
    }

    /// Where a seek leads to. Only called with [`FileFeatures::SEEKABLE`].
    fn seek(&self, file: &OpenFile, current: u64, target: SeekFrom) -> Result<u64> {
        let size = file.inode().size();
        super::regular::seek_plain(current, size, target)
    }

    /// What is ready, after having registered with the lists that tell of changes.
    fn poll(&self, file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        PollEvents::INPUT | PollEvents::OUTPUT
    }

    /// A device-specific request; the argument's meaning depends on it.
    fn ioctl(&self, file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        Err(Error::NotTerminal)
    }

    /// The pages to be mapped; whether the file is open suitably is checked by the caller.
    fn mapping(&self, file: &OpenFile) -> Result<FileMappingKind> {
        Err(Error::NoDevice)
    }

    /// The same for a range of the file, and where that range begins in what is behind the mapping: for files whose parts are
    /// different things.
    fn mapping_at(&self, file: &OpenFile, offset: u64, length: u64) -> Result<(FileMappingKind, u64)> {
        Ok((self.mapping(file)?, offset))
    }

    /// Lists a directory; see [`InodeOperations::read_directory`](crate::inode::InodeOperations::read_directory).
    fn read_directory(&self, file: &OpenFile, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        file.inode().operations().read_directory(file.inode(), position, sink)
    }

    /// Writes the file's contents (and attributes, unless `data_only`) to where they last.
    fn sync(&self, file: &OpenFile, data_only: bool) -> Result<()> {
        Err(Error::Invalid)
    }

    /// The same for a part of the file, given by bytes: what a mapping's `msync` asks for.
    fn sync_range(&self, file: &OpenFile, start: u64, end: u64, data_only: bool) -> Result<()> {
        self.sync(file, data_only)
    }

    /// Writes pages of a part of the file back, in these steps. Nothing is said about their lasting.
    fn write_range(&self, file: &OpenFile, start: u64, end: u64, steps: RangeSteps) -> Result<()> {
        Ok(())
    }

    /// Advice about how a part of the file will be used; a length of 0 leads to its end.
    fn advise(&self, file: &OpenFile, offset: u64, length: u64, advice: Advice) {}

    /// A descriptor of the file was closed.
    fn flush(&self, file: &OpenFile) -> Result<()> {
        Ok(())
    }

    /// The last reference is gone.
    fn release(&self, file: &OpenFile) {}

    /// Whether status flags may be set; told before they are.
    fn set_flags(&self, file: &OpenFile, flags: crate::flags::OpenFlags) -> Result<()> {
        Ok(())
    }

    /// Moves up to `length` bytes into a pipe in a way of its own; `None`: use the file's pages, or reads.
    fn splice_to(
        &self,
        file: &OpenFile,
        position: &mut u64,
        pipe: &Pipe,
        length: usize,
    ) -> Option<Result<usize>> {
        None
    }

    /// Moves `length` bytes from a pipe that has some into the file in a way of its own; `None`: use writes.
    fn splice_from(&self, file: &OpenFile, pipe: &Pipe, length: usize) -> Option<Result<usize>> {
        None
    }

    /// The pipe it is, for `splice` and `tee`.
    fn pipe(&self) -> Option<&Pipe> {
        None
    }

    /// What `readlink /proc/self/fd/N` shows for a file without a path, e.g. `anon_inode:[eventfd]`.
    fn describe(&self, file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("anon_inode:[unknown]")
    }

    /// Lines that `/proc/self/fdinfo/N` shows beyond the common ones.
    fn information(&self, file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        Ok(())
    }
}

/// What is behind a mapping of a file.
pub enum FileMappingKind {
    /// The pages of a file.
    Pages(Arc<FileCache>),
    /// Fresh zeroes, as anonymous memory (`/dev/zero`).
    Zeroes,
}

/// Operations of files that can only be looked at: directories, `O_PATH` handles.
pub struct NoOperations;

impl FileOperations for NoOperations {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE
    }

    /// What concerns the file system as a whole can be asked of any of its directories.
    fn ioctl(&self, file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        match file.inode().operations().home() {
            Some(home) if file.flags().readable() => home.ioctl(file, command, argument),
            _ => Err(Error::NotTerminal),
        }
    }

    /// A directory on a disk: its entries last afterwards.
    fn sync(&self, file: &OpenFile, data_only: bool) -> Result<()> {
        let inode = file.inode();
        inode.operations().home().map_or(Ok(()), |home| home.commit(inode, data_only))
    }
}
