//! Open regular files: what stands behind them is an open file of the layer.
//!
//! A file that was opened for reading while it was lower goes over to the copy when it is next used after the copy was made.

use alloc::sync::Arc;

use machine::address::UserAddr;
use memory::buffer::{Sink, Source};
use sync::Once;
use vfs::Result;
use vfs::disk::Advice;
use vfs::file::{FileFeatures, FileMappingKind, FileOperations, OpenFile, RangeSteps, SeekFrom};
use vfs::flags::OpenFlags;
use vfs::inode::Inode;
use vfs::pipe::Pipe;
use vfs::tree::open_place;

use crate::copy_up::{copy_up, copy_up_empty};
use crate::node::{self, Node};

/// See the theory of this file.
pub(crate) struct OpenRegular {
    first: Arc<OpenFile>,
    /// The first is the upper layer's.
    is_upper: bool,
    copy: Once<Arc<OpenFile>>,
}

/// Flags that have had their effect on the overlay's file.
const DONE: OpenFlags = OpenFlags::CREATION;

impl OpenRegular {
    pub(crate) fn open(node: &Node, inode: &Arc<Inode>, flags: OpenFlags) -> Result<Self> {
        if flags.writable() {
            if flags.contains(OpenFlags::TRUNCATE) {
                // Nobody may write while a program runs from the file: it must not lose its contents before that is found out.
                inode.begin_write_access()?;
                let copied = copy_up_empty(inode).map(|_| ());
                inode.end_write_access();
                copied?;
            } else {
                copy_up(inode)?;
            }
        }
        let is_upper = node.upper().is_some();
        let first = open_place(node.real_place()?, flags.difference(DONE))?;
        Ok(Self { first, is_upper, copy: Once::new() })
    }

    /// The file of the layer that counts now.
    fn real(&self, file: &OpenFile) -> Result<&Arc<OpenFile>> {
        if self.is_upper {
            return Ok(&self.first);
        }
        if let Some(copy) = self.copy.get() {
            return Ok(copy);
        }
        let node = node::of(file.inode())?;
        if node.upper().is_none() {
            return Ok(&self.first);
        }
        let copy = open_place(node.real_place()?, file.flags().difference(DONE))?;
        Ok(self.copy.call_once(|| copy))
    }
}

impl FileOperations for OpenRegular {
    fn features(&self) -> FileFeatures {
        self.first.features()
    }

    fn read(&self, file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let real = self.real(file)?;
        real.operations().read(real, position, sink)
    }

    fn write(&self, file: &OpenFile, position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let real = self.real(file)?;
        let written = real.operations().write(real, position, source);
        node::refresh(file.inode());
        written
    }

    fn seek(&self, file: &OpenFile, current: u64, target: SeekFrom) -> Result<u64> {
        let real = self.real(file)?;
        real.operations().seek(real, current, target)
    }

    fn ioctl(&self, file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        let real = self.real(file)?;
        real.operations().ioctl(real, command, argument)
    }

    fn mapping(&self, file: &OpenFile) -> Result<FileMappingKind> {
        let real = self.real(file)?;
        real.operations().mapping(real)
    }

    fn sync(&self, file: &OpenFile, data_only: bool) -> Result<()> {
        self.sync_range(file, 0, u64::MAX, data_only)
    }

    fn sync_range(&self, file: &OpenFile, start: u64, end: u64, data_only: bool) -> Result<()> {
        let overlay = &node::of(file.inode())?.overlay;
        let lasts = overlay.upper.as_ref().is_some_and(|upper| !upper.volatile);
        let real = self.real(file)?;
        // What is below does not change.
        if lasts && (self.is_upper || self.copy.get().is_some()) {
            real.operations().sync_range(real, start, end, data_only)
        } else {
            Ok(())
        }
    }

    fn write_range(&self, file: &OpenFile, start: u64, end: u64, steps: RangeSteps) -> Result<()> {
        let real = self.real(file)?;
        real.operations().write_range(real, start, end, steps)
    }

    fn advise(&self, file: &OpenFile, offset: u64, length: u64, advice: Advice) {
        if let Ok(real) = self.real(file) {
            real.operations().advise(real, offset, length, advice);
        }
    }

    fn flush(&self, file: &OpenFile) -> Result<()> {
        let real = self.real(file)?;
        real.operations().flush(real)
    }

    fn set_flags(&self, file: &OpenFile, flags: OpenFlags) -> Result<()> {
        self.real(file)?.set_flags(flags)
    }

    fn splice_to(
        &self,
        file: &OpenFile,
        position: &mut u64,
        pipe: &Pipe,
        length: usize,
    ) -> Option<Result<usize>> {
        match self.real(file) {
            Ok(real) => real.operations().splice_to(real, position, pipe, length),
            Err(error) => Some(Err(error)),
        }
    }
}
