//! Opening a FIFO: waiting for the other end.

use alloc::sync::Arc;

use core::sync::atomic::Ordering;

use super::Pipe;
use super::ends::{Ends, PipeEnd};
use crate::file::FileOperations;
use crate::flags::OpenFlags;
use crate::inode::Inode;
use crate::{Error, Result, allocation, wait};

/// What an open of a FIFO inode works on. Opening for reading waits for a writer and the other way round, unless
/// `NON_BLOCK` is given: then reading begins at once and writing fails without a reader.
///
/// # Errors
/// [`Error::NoDeviceAddress`] for a non-blocking writer without a reader, [`Error::Interrupted`], [`Error::OutOfMemory`].
pub fn open_fifo(inode: &Arc<Inode>, flags: OpenFlags) -> Result<Arc<dyn FileOperations>> {
    let pipe = pipe_of(inode)?;
    let ends = match (flags.readable(), flags.writable()) {
        (true, true) => Ends::READ | Ends::WRITE,
        (true, false) => Ends::READ,
        _ => Ends::WRITE,
    };
    let non_block = flags.contains(OpenFlags::NON_BLOCK);
    if ends == Ends::WRITE && non_block && !pipe.has_readers() {
        return Err(Error::NoDeviceAddress);
    }
    let reader_opens = pipe.reader_opens.load(Ordering::Acquire);
    let writer_opens = pipe.writer_opens.load(Ordering::Acquire);
    let end = PipeEnd::open(pipe.clone(), ends, true)?;
    if !non_block && ends == Ends::READ && !pipe.has_writers() {
        // The count of opens, not of open ends: a writer that came and went has satisfied the wait.
        wait::interruptible(&pipe.read_waiters, || pipe.writer_opens.load(Ordering::Acquire) != writer_opens)?;
    }
    if !non_block && ends == Ends::WRITE && !pipe.has_readers() {
        wait::interruptible(&pipe.write_waiters, || pipe.reader_opens.load(Ordering::Acquire) != reader_opens)?;
    }
    Ok(end)
}

fn pipe_of(inode: &Arc<Inode>) -> Result<Arc<Pipe>> {
    let object = match inode.attached() {
        Some(object) => object.clone(),
        None => inode.attach(allocation::arc(Pipe::new()?)?),
    };
    object.downcast::<Pipe>().map_err(|_| Error::NoDeviceAddress)
}
