//! The ends of a pipe as open files.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::Ordering;

use bitflags::bitflags;
use machine::address::UserAddr;
use machine::user_memory;
use memory::buffer::{Sink, Source};

use super::Pipe;
use crate::attributes::FileKind;
use crate::file::{FileFeatures, FileOperations, OpenFile};
use crate::flags::OpenFlags;
use crate::poll::{PollEvents, PollTable};
use crate::{Error, Result, allocation};

/// `FIONREAD`: bytes that can be read.
const FIONREAD: u32 = 0x541b;

bitflags! {
    /// Which ends an open file is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Ends: u8 {
        /// The end that is read.
        const READ = 1;
        /// The end that is written.
        const WRITE = 2;
    }
}

/// One end of a pipe (or both, of a FIFO opened for reading and writing).
pub struct PipeEnd {
    pipe: Arc<Pipe>,
    ends: Ends,
    is_fifo: bool,
}

impl PipeEnd {
    /// Opens ends; they count until this object is dropped.
    pub(super) fn open(pipe: Arc<Pipe>, ends: Ends, is_fifo: bool) -> Result<Arc<Self>> {
        pipe.open_ends(ends);
        let end = Self { pipe, ends, is_fifo };
        // When the allocation fails, dropping `end` closes the ends again.
        allocation::arc(end)
    }

    /// The pipe.
    pub fn shared_pipe(&self) -> &Arc<Pipe> {
        &self.pipe
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        self.pipe.close_ends(self.ends);
    }
}

impl Pipe {
    pub(super) fn open_ends(&self, ends: Ends) {
        if ends.contains(Ends::READ) {
            self.readers.fetch_add(1, Ordering::AcqRel);
            self.reader_opens.fetch_add(1, Ordering::AcqRel);
        }
        if ends.contains(Ends::WRITE) {
            self.writers.fetch_add(1, Ordering::AcqRel);
            self.writer_opens.fetch_add(1, Ordering::AcqRel);
        }
        self.read_waiters.wake_all();
        self.write_waiters.wake_all();
    }

    fn close_ends(&self, ends: Ends) {
        let mut gone = false;
        if ends.contains(Ends::READ) {
            gone |= self.readers.fetch_sub(1, Ordering::AcqRel) == 1;
        }
        if ends.contains(Ends::WRITE) {
            gone |= self.writers.fetch_sub(1, Ordering::AcqRel) == 1;
        }
        if gone {
            self.read_waiters.wake_all();
            self.write_waiters.wake_all();
            self.watchers.notify(PollEvents::INPUT | PollEvents::OUTPUT | PollEvents::ALWAYS);
        }
    }

    #[cfg(test)]
    pub(super) fn open_both(&self) {
        self.open_ends(Ends::READ | Ends::WRITE);
    }
}

/// Makes a pipe: the file to read from and the file to write to. `flags` may hold `NON_BLOCK` and `DIRECT` (packets).
///
/// # Errors
/// [`Error::FileTableFull`], [`Error::OutOfMemory`].
pub fn create(flags: OpenFlags) -> Result<(Arc<OpenFile>, Arc<OpenFile>)> {
    let status = flags & (OpenFlags::NON_BLOCK | OpenFlags::DIRECT);
    let inode = crate::anonymous::pipe_inode()?;
    debug_assert_eq!(inode.kind, FileKind::Fifo);
    let pipe = allocation::arc(Pipe::new()?)?;
    let reader = PipeEnd::open(pipe.clone(), Ends::READ, false)?;
    let writer = PipeEnd::open(pipe, Ends::WRITE, false)?;
    let reader = OpenFile::anonymous(inode.clone(), reader, status.difference(OpenFlags::DIRECT))?;
    let writer = OpenFile::anonymous(inode, writer, status | OpenFlags::WRITE_ONLY)?;
    Ok((reader, writer))
}

impl FileOperations for PipeEnd {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE
    }

    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        self.pipe.read(sink, file.non_block())
    }

    fn write(&self, file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        self.pipe.write(source, file.non_block(), file.flags().contains(OpenFlags::DIRECT))
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.pipe.watchers);
        }
        let mut ready = PollEvents::empty();
        if self.ends.contains(Ends::READ) {
            if !self.pipe.is_empty() {
                ready |= PollEvents::INPUT;
            }
            // A FIFO that never had a writer is not hung up: its reader waits for one.
            let had_writer = self.pipe.writer_opens.load(Ordering::Acquire) != 0;
            if !self.pipe.has_writers() && had_writer {
                ready |= PollEvents::HANG_UP;
            }
        }
        if self.ends.contains(Ends::WRITE) {
            if !self.pipe.is_full() {
                ready |= PollEvents::OUTPUT;
            }
            if !self.pipe.has_readers() {
                ready |= PollEvents::ERROR;
            }
        }
        ready
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        if command != FIONREAD {
            return Err(Error::NotTerminal);
        }
        let bytes = self.pipe.readable_bytes() as u32;
        user_memory::write(argument, &bytes.to_ne_bytes()).map_err(|_| Error::BadAddress)?;
        Ok(0)
    }

    fn pipe(&self) -> Option<&Pipe> {
        Some(&self.pipe)
    }

    fn describe(&self, file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        let kind = if self.is_fifo { "fifo" } else { "pipe" };
        write!(out, "{kind}:[{}]", file.inode().number)
    }
}
