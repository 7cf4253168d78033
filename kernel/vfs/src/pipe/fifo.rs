//! Opening named pipes.
//!
//! The pipe hangs on the inode from the first opening on. Opening for reading waits for a writer and the other way
//! round; with `O_NONBLOCK` a reader does not wait and a writer fails with `ENXIO`. Opening for both never waits, nor does opening an end of a pipe without
//! a name once more, through `/proc/PID/fd`: what its writers left is read, though they are gone.
//!
//! A pipe whose other end is outside of the machine ([`FarEnd`]) has that end all the time.

use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicU32, Ordering};

use super::end::Pipe;
use crate::file::FileOperations;
use crate::flags::OpenFlags;
use crate::inode::Inode;
use crate::{Error, Result, wait};
use sched::WaitQueue;

/// Attached to the inode of a pipe whose other end is not a file: what its open files work on. So programs can open it once more, through `/dev/stdout` and
/// `/proc/PID/fd`.
pub struct FarEnd(pub Arc<dyn FileOperations>);

/// The pipe of a FIFO.
fn pipe_of(inode: &Inode) -> Result<Arc<Pipe>> {
    let object: Arc<dyn Any + Send + Sync> = match inode.attached() {
        Some(object) => object.clone(),
        None => inode.attach(Pipe::named()?),
    };
    object.downcast().map_err(|_| Error::Io)
}

/// The other end as it was before this one was opened. Who waits there may go on, transfer and be gone again as soon as
/// it sees this end: what was seen later would say that nobody has been there.
struct OtherEnd<'a> {
    queue: &'a WaitQueue,
    openings: &'a AtomicU32,
    number: &'a AtomicU32,
    openings_before: u32,
    was_open: bool,
}

impl<'a> OtherEnd<'a> {
    /// Looked at by who opens for reading only (`for_reading`) or for writing only.
    fn look(pipe: &'a Pipe, for_reading: bool) -> Self {
        let (queue, openings, number) = if for_reading {
            (&pipe.read_queue, &pipe.writer_openings, &pipe.writers)
        } else {
            (&pipe.write_queue, &pipe.reader_openings, &pipe.readers)
        };
        let openings_before = openings.load(Ordering::Acquire);
        let was_open = number.load(Ordering::Acquire) > 0;
        Self { queue, openings, number, openings_before, was_open }
    }

    /// Waits until it is open, or was for a moment.
    fn wait(&self) -> Result<()> {
        if self.was_open {
            return Ok(());
        }
        wait::interruptible(self.queue, || {
            self.openings.load(Ordering::Acquire) != self.openings_before
                || self.number.load(Ordering::Acquire) > 0
        })
    }
}

/// Opens a FIFO.
pub(crate) fn open_fifo(inode: &Inode, flags: OpenFlags) -> Result<Arc<dyn FileOperations>> {
    if let Some(far) = inode.attached().and_then(|object| object.downcast_ref::<FarEnd>()) {
        return Ok(far.0.clone());
    }
    let pipe = pipe_of(inode)?;
    let non_block = flags.contains(OpenFlags::NON_BLOCK);
    let waits = pipe.is_named() && flags.readable() != flags.writable();
    if waits && flags.writable() && non_block && !pipe.has_readers() {
        return Err(Error::NoDeviceAddress);
    }
    let other = OtherEnd::look(&pipe, flags.readable());
    pipe.opened(flags);
    // Who opens the other end may be waiting for this one, on the queue of its own direction.
    if flags.readable() {
        pipe.write_queue.wake_all();
    }
    if flags.writable() {
        pipe.read_queue.wake_all();
    }
    let waited = if waits && !non_block { other.wait() } else { Ok(()) };
    match waited {
        Ok(()) => Ok(pipe),
        Err(error) => {
            pipe.closed(flags);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_to_the_outside_is_opened_without_waiting() {
        struct Outside;
        impl FileOperations for Outside {}
        let inode = crate::anonymous::new_inode(crate::attributes::FileKind::Fifo, 0o600, 0, 0).unwrap();
        let outside: Arc<dyn FileOperations> = Arc::new(Outside);
        inode.attach(Arc::new(FarEnd(outside.clone())));
        for flags in [OpenFlags::WRITE_ONLY, OpenFlags::empty(), OpenFlags::WRITE_ONLY | OpenFlags::NON_BLOCK]
        {
            assert!(Arc::ptr_eq(&open_fifo(&inode, flags).unwrap(), &outside));
        }
    }

    #[test]
    fn a_pipe_without_a_name_is_opened_once_more_without_waiting() {
        sched::current();
        let inode = crate::anonymous::new_inode(crate::attributes::FileKind::Fifo, 0o600, 0, 0).unwrap();
        let pipe = Pipe::new().unwrap();
        inode.attach(pipe.clone());
        for flags in [OpenFlags::empty(), OpenFlags::WRITE_ONLY, OpenFlags::WRITE_ONLY | OpenFlags::NON_BLOCK]
        {
            assert!(open_fifo(&inode, flags).is_ok(), "nobody has the other end");
            pipe.closed(flags);
        }
    }

    /// The other end was waiting for this one, and is gone before this one looks again.
    #[test]
    fn a_writer_that_left_at_once_was_there() {
        sched::current();
        let pipe = Pipe::new().unwrap();
        pipe.opened(OpenFlags::WRITE_ONLY);
        let writer = OtherEnd::look(&pipe, true);
        pipe.opened(OpenFlags::empty());
        pipe.closed(OpenFlags::WRITE_ONLY);
        assert_eq!(writer.wait(), Ok(()));
    }

    #[test]
    fn a_reader_that_came_and_went_was_there() {
        sched::current();
        let pipe = Pipe::new().unwrap();
        let reader = OtherEnd::look(&pipe, false);
        pipe.opened(OpenFlags::WRITE_ONLY);
        pipe.opened(OpenFlags::empty());
        pipe.closed(OpenFlags::empty());
        assert_eq!(reader.wait(), Ok(()));
    }
}
