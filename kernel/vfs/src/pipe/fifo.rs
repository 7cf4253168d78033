//! Opening named pipes.
//!
//! The pipe hangs on the inode from the first opening on. Opening for reading waits for a writer and the other way
//! round; with `O_NONBLOCK` a reader does not wait and a writer fails with `ENXIO`. Opening for both never waits.

use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicU32, Ordering};

use super::end::Pipe;
use crate::file::FileOperations;
use crate::flags::OpenFlags;
use crate::inode::Inode;
use crate::{Error, Result, wait};
use sched::WaitQueue;

/// The pipe of a FIFO.
fn pipe_of(inode: &Inode) -> Result<Arc<Pipe>> {
    let object: Arc<dyn Any + Send + Sync> = match inode.attached() {
        Some(object) => object.clone(),
        None => inode.attach(Pipe::new()?),
    };
    object.downcast().map_err(|_| Error::Io)
}

fn wait_for_other(queue: &WaitQueue, openings: &AtomicU32, present: impl Fn() -> bool) -> Result<()> {
    let before = openings.load(Ordering::Acquire);
    if present() {
        return Ok(());
    }
    wait::interruptible(queue, || openings.load(Ordering::Acquire) != before || present())
}

/// Opens a FIFO.
pub(crate) fn open_fifo(inode: &Inode, flags: OpenFlags) -> Result<Arc<dyn FileOperations>> {
    let pipe = pipe_of(inode)?;
    let non_block = flags.contains(OpenFlags::NON_BLOCK);
    if flags.writable() && !flags.readable() && non_block && !pipe.has_readers() {
        return Err(Error::NoDeviceAddress);
    }
    pipe.opened(flags);
    // Who opens the other end may be waiting for this one, on the queue of its own direction.
    if flags.readable() {
        pipe.write_queue.wake_all();
    }
    if flags.writable() {
        pipe.read_queue.wake_all();
    }
    let waited = match (flags.readable(), flags.writable()) {
        (true, false) if !non_block => {
            wait_for_other(&pipe.read_queue, &pipe.writer_openings, || pipe.has_writers())
        }
        (false, true) if !non_block => {
            wait_for_other(&pipe.write_queue, &pipe.reader_openings, || pipe.has_readers())
        }
        _ => Ok(()),
    };
    match waited {
        Ok(()) => Ok(pipe),
        Err(error) => {
            pipe.closed(flags);
            Err(error)
        }
    }
}
