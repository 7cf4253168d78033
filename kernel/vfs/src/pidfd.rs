//! `pidfd`: a handle of a process. The process is the personality's, behind [`ProcessHandle`].

use alloc::sync::Arc;
use core::any::Any;
use core::fmt;

use crate::file::{FileFeatures, FileOperations, OpenFile};
use crate::flags::OpenFlags;
use crate::poll::{PollEvents, PollList, PollTable};
use crate::{Error, Result, allocation, anonymous};

/// A process as its handle sees it.
pub trait ProcessHandle: Any + Send + Sync {
    /// Whether it has ended (it may still be waited for).
    fn has_ended(&self) -> bool;

    /// Whether it has ended and been waited for.
    fn is_reaped(&self) -> bool {
        false
    }

    /// The list that is notified when it ends.
    fn watchers(&self) -> &PollList;

    /// Its number as the calling process sees it; −1 when it is gone.
    fn number(&self) -> i32;
}

/// A handle.
pub struct ProcessFile {
    process: Arc<dyn ProcessHandle>,
}

/// `pidfd_open`.
pub fn create(process: Arc<dyn ProcessHandle>, flags: OpenFlags) -> Result<Arc<OpenFile>> {
    let file = allocation::arc(ProcessFile { process })?;
    let flags = (flags & OpenFlags::NON_BLOCK) | OpenFlags::READ_WRITE;
    OpenFile::anonymous(anonymous::shared_inode()?, file, flags)
}

impl ProcessFile {
    /// The process behind an open file. Fails with `EBADF`.
    pub fn of(file: &OpenFile) -> Result<&Arc<dyn ProcessHandle>> {
        Ok(&file.object::<Self>().ok_or(Error::BadDescriptor)?.process)
    }
}

impl FileOperations for ProcessFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(self.process.watchers());
        }
        let mut ready = PollEvents::empty();
        ready.set(PollEvents::INPUT, self.process.has_ended());
        ready.set(PollEvents::HANG_UP, self.process.is_reaped());
        ready
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("anon_inode:[pidfd]")
    }

    fn information(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        writeln!(out, "Pid:\t{0}\nNSpid:\t{0}", self.process.number())
    }
}
