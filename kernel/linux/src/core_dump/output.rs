//! Where a dump is written to: a file, in which what is not in memory stays a hole, or a pipe, which gets zeros for it.
//!
//! RLIMIT_CORE bounds what is written to a file; what would go beyond ends the dump. So does SIGKILL. Other signals wait.

use alloc::sync::Arc;

use machine::address::PAGE_SIZE;
use memory::buffer::Source;
use vfs::{Error, OpenFile};

use crate::errno::Errno;
use crate::task::Task;

static ZEROS: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// See the theory of this file.
pub(super) struct Output<'a> {
    task: &'a Task,
    file: Arc<OpenFile>,
    has_holes: bool,
    position: u64,
    /// So much may still be written.
    left: u64,
}

impl<'a> Output<'a> {
    /// To a file, from its beginning.
    pub(super) fn to_file(task: &'a Task, file: Arc<OpenFile>, limit: u64) -> Output<'a> {
        Output { task, file, has_holes: true, position: 0, left: limit }
    }

    /// To a pipe.
    pub(super) fn to_pipe(task: &'a Task, file: &Arc<OpenFile>) -> Output<'a> {
        Output { task, file: file.clone(), has_holes: false, position: 0, left: u64::MAX }
    }

    /// # Errors
    /// EFBIG beyond the limit, EINTR after SIGKILL, what the file says.
    pub(super) fn put(&mut self, mut bytes: &[u8]) -> Result<(), Errno> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or(Errno::EFBIG)?;
        while !bytes.is_empty() {
            if self.task.thread.is_killed() {
                return Err(Errno::EINTR);
            }
            let mut source = Source::kernel(bytes);
            let written = if self.has_holes {
                self.file.write_at(i64::try_from(self.position).map_err(|_| Errno::EFBIG)?, &mut source)
            } else {
                self.file.write(&mut source)
            };
            match written {
                Ok(0) => return Err(Errno::ENOSPC),
                Ok(number) => {
                    self.position += number as u64;
                    bytes = &bytes[number..];
                }
                // A signal that can't end this.
                Err(Error::Interrupted) => sched::current().set_attention(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Leaves bytes out, which read as zeros.
    ///
    /// # Errors
    /// As [`Output::put`].
    pub(super) fn skip(&mut self, mut bytes: u64) -> Result<(), Errno> {
        if self.has_holes {
            self.position += bytes;
            return Ok(());
        }
        while bytes > 0 {
            let part = bytes.min(PAGE_SIZE as u64);
            self.put(&ZEROS[..part as usize])?;
            bytes -= part;
        }
        Ok(())
    }

    /// Gives the file its length, if it ends with a hole.
    ///
    /// # Errors
    /// What the file says.
    pub(super) fn finish(self) -> Result<(), Errno> {
        if self.has_holes && self.file.inode().size() < self.position {
            self.file.truncate(i64::try_from(self.position).map_err(|_| Errno::EFBIG)?)?;
        }
        Ok(())
    }
}
