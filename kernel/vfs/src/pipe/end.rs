//! Pipes: reading and writing.
//!
//! # State
//! The ring under a sleeping lock (bytes are copied from and to user memory while it is held). `used` and `capacity`
//! mirror the ring's length for who waits or polls without the lock; both are written under it. Readers and writers
//! are the open files of each direction.
//!
//! # Waking
//! A write wakes one reader only when it found the ring empty, a read wakes one writer only when it found it full; who
//! was woken passes the wake-up on if there is more for others, also when it comes away with nothing (a fault). Pollers are told at the same occasions, and, since
//! edge-triggered ones want to know of every write, at each write if there are any.
//!
//! # Cost
//! A write or read of a small piece: the lock (two atomics), one copy, one fence and load for pollers; a wake-up only
//! if the other side may sleep. No allocation: the last emptied frame is kept.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use machine::address::UserAddr;
use memory::buffer::{Sink, Source};
use sched::WaitQueue;

use super::ring::{BUFFER_BYTES, CAPACITY_DEFAULT, CAPACITY_MAX, PIPE_BUF, Ring};
use crate::attributes::FileKind;
use crate::credentials::Credentials;
use crate::file::{FileFeatures, FileOperations, OpenFile};
use crate::flags::OpenFlags;
use crate::poll::{PollEvents, PollList, PollTable};
use crate::{Error, Result, allocation, anonymous, wait};

/// `FIONREAD`
const BYTES_TO_READ: u32 = 0x541b;

/// A pipe, shared by its ends.
pub struct Pipe {
    ring: sched::Mutex<Ring>,
    used: AtomicUsize,
    capacity: AtomicUsize,
    pub(super) readers: AtomicU32,
    pub(super) writers: AtomicU32,
    /// Openings so far, for FIFOs: who waits for the other end waits for this to change.
    pub(super) reader_openings: AtomicU32,
    pub(super) writer_openings: AtomicU32,
    pub(super) read_queue: WaitQueue,
    pub(super) write_queue: WaitQueue,
    pub(super) pollers: PollList,
    /// Somebody writes the front elsewhere. Written with the ring locked.
    lent: AtomicBool,
    /// Woken when nobody does any more.
    returned: WaitQueue,
    /// It is a FIFO's: who opens one end waits for the other one.
    is_named: bool,
}

impl Pipe {
    /// A pipe without ends.
    pub(super) fn new() -> Result<Arc<Self>> {
        Self::make(false)
    }

    /// That of a FIFO.
    pub(super) fn named() -> Result<Arc<Self>> {
        Self::make(true)
    }

    /// Whether it is a FIFO's.
    pub(super) const fn is_named(&self) -> bool {
        self.is_named
    }

    fn make(is_named: bool) -> Result<Arc<Self>> {
        allocation::arc(Self {
            ring: sched::Mutex::new(Ring::new()),
            used: AtomicUsize::new(0),
            capacity: AtomicUsize::new(CAPACITY_DEFAULT),
            readers: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            reader_openings: AtomicU32::new(0),
            writer_openings: AtomicU32::new(0),
            read_queue: WaitQueue::new(),
            write_queue: WaitQueue::new(),
            pollers: PollList::new(),
            lent: AtomicBool::new(false),
            returned: WaitQueue::new(),
            is_named,
        })
    }

    /// Counts an open file.
    pub(super) fn opened(&self, flags: OpenFlags) {
        if flags.readable() {
            self.readers.fetch_add(1, Ordering::AcqRel);
            self.reader_openings.fetch_add(1, Ordering::AcqRel);
        }
        if flags.writable() {
            self.writers.fetch_add(1, Ordering::AcqRel);
            self.writer_openings.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Counts the end of an open file; without any, what is in the pipe is gone.
    pub(super) fn closed(&self, flags: OpenFlags) {
        let last_reader = flags.readable() && self.readers.fetch_sub(1, Ordering::AcqRel) == 1;
        let last_writer = flags.writable() && self.writers.fetch_sub(1, Ordering::AcqRel) == 1;
        if last_writer {
            self.read_queue.wake_all();
        }
        if last_reader {
            self.write_queue.wake_all();
        }
        if last_reader || last_writer {
            let unused = || !self.has_readers() && !self.has_writers();
            if unused() {
                // Asked again with the ring locked: who has opened a FIFO meanwhile may have written already.
                self.with_ring(|ring| unused().then(|| ring.clear()));
            }
            self.pollers
                .notify(PollEvents::HANG_UP | PollEvents::ERROR | PollEvents::INPUT | PollEvents::OUTPUT);
        }
    }

    /// Takes something out of the ring, when nobody has the front that is to be written elsewhere first.
    ///
    /// # Errors
    /// `EINTR` if a signal ends the wait for that.
    pub(super) fn with_ring_to_take<R>(&self, take: impl FnOnce(&mut Ring) -> R) -> Result<R> {
        loop {
            let ring = self.ring.lock();
            if !self.is_lent() {
                return Ok(self.with_locked(ring, take));
            }
            drop(ring);
            self.wait_for_return()?;
        }
    }

    /// Whether somebody has the front.
    pub(super) fn is_lent(&self) -> bool {
        // Acquire: pairs with the Release in `give_back`.
        self.lent.load(Ordering::Acquire)
    }

    /// Sleeps while somebody has the front.
    #[cold]
    pub(super) fn wait_for_return(&self) -> Result<()> {
        self.returned.wait_interruptible(|| !self.is_lent()).map_err(|_| Error::Interrupted)
    }

    /// Copies bytes of the front, which stay in the pipe and are nobody else's until they are [given back](Self::give_back). Returns how many; 0, and nothing is
    /// lent, when there are none.
    ///
    /// # Errors
    /// `EINTR`.
    pub(super) fn lend(&self, bytes: &mut [u8]) -> Result<usize> {
        self.with_ring_to_take(|ring| {
            let Some(front) = ring.buffers.front() else { return 0 };
            let count = front.length.min(bytes.len());
            front.frame.read(front.offset, &mut bytes[..count]);
            self.lent.store(count > 0, Ordering::Relaxed);
            count
        })
    }

    /// What was lent is taken out as far as it was used.
    pub(super) fn give_back(&self, used: usize) {
        let was_full = self.with_ring(|ring| {
            let was_full = ring.is_full();
            ring.consume(used);
            // Release: pairs with the Acquire in `is_lent`.
            self.lent.store(false, Ordering::Release);
            was_full
        });
        self.returned.wake_all();
        self.taken(was_full);
    }

    /// Changes the ring and publishes its length.
    pub(super) fn with_ring<R>(&self, change: impl FnOnce(&mut Ring) -> R) -> R {
        self.with_locked(self.ring.lock(), change)
    }

    /// The same while the ring of another pipe, at a lower address, is being changed.
    pub(super) fn with_second_ring<R>(&self, change: impl FnOnce(&mut Ring) -> R) -> R {
        self.with_locked(self.ring.lock_nested(1), change)
    }

    fn with_locked<R>(
        &self,
        mut ring: sched::MutexGuard<'_, Ring>,
        change: impl FnOnce(&mut Ring) -> R,
    ) -> R {
        let result = change(&mut ring);
        // Release: pairs with the Acquire in the conditions of waiters.
        self.used.store(ring.buffers.len(), Ordering::Release);
        result
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used.load(Ordering::Acquire) == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.used.load(Ordering::Acquire) >= self.capacity.load(Ordering::Acquire)
    }

    pub(super) fn has_readers(&self) -> bool {
        self.readers.load(Ordering::Acquire) > 0
    }

    pub(super) fn has_writers(&self) -> bool {
        self.writers.load(Ordering::Acquire) > 0
    }

    /// Waits until there is something to read or nobody will write. True: there is something.
    pub(super) fn wait_readable(&self, non_block: bool) -> Result<bool> {
        if self.is_empty() {
            if !self.has_writers() {
                // A writer may have written and closed since the first look.
                return Ok(!self.is_empty());
            }
            if non_block {
                return Err(Error::WouldBlock);
            }
            wait::interruptible_exclusive(&self.read_queue, || !self.is_empty() || !self.has_writers())?;
        }
        Ok(true)
    }

    /// Waits until there is room. `EPIPE` when nobody will read.
    pub(super) fn wait_writable(&self, non_block: bool) -> Result<()> {
        if !self.has_readers() {
            return Err(Error::BrokenPipe);
        }
        if self.is_full() {
            if non_block {
                return Err(Error::WouldBlock);
            }
            wait::interruptible_exclusive(&self.write_queue, || !self.is_full() || !self.has_readers())?;
            if !self.has_readers() {
                return Err(Error::BrokenPipe);
            }
        }
        Ok(())
    }

    /// After bytes were put in: `was_empty` says whether readers may be asleep.
    pub(super) fn written(&self, was_empty: bool) {
        if was_empty {
            self.read_queue.wake_one();
        }
        self.pollers.notify(PollEvents::INPUT);
        // A reader that emptied a full pipe woke one writer only.
        if !self.is_full() && !self.write_queue.is_empty() {
            self.write_queue.wake_one();
        }
    }

    /// After bytes were taken out: `was_full` says whether writers may be asleep.
    pub(super) fn taken(&self, was_full: bool) {
        if was_full {
            self.write_queue.wake_one();
            self.pollers.notify(PollEvents::OUTPUT);
        }
        if !self.is_empty() && !self.read_queue.is_empty() {
            self.read_queue.wake_one();
        }
    }

    /// After a wait that came to nothing: what it was woken for is for others of its kind.
    #[cold]
    pub(super) fn pass_on(&self) {
        if !self.is_empty() {
            self.read_queue.wake_one();
        }
        if !self.is_full() {
            self.write_queue.wake_one();
        }
    }

    /// Bytes of capacity (`F_GETPIPE_SZ`).
    pub fn capacity_bytes(&self) -> usize {
        self.capacity.load(Ordering::Acquire) * BUFFER_BYTES
    }

    /// Changes the capacity (`F_SETPIPE_SZ`); returns the new one in bytes. `EBUSY` when more is in the pipe, `EPERM`
    /// beyond what an unprivileged process may have.
    pub fn set_capacity(&self, bytes: usize, privileged: bool) -> Result<usize> {
        if bytes == 0 || bytes > 1 << 31 {
            return Err(Error::Invalid);
        }
        let buffers = bytes.div_ceil(BUFFER_BYTES).next_power_of_two();
        if buffers > CAPACITY_MAX && !privileged {
            return Err(Error::NotPermitted);
        }
        let grew = self.with_ring(|ring| {
            if buffers < ring.buffers.len() {
                return Err(Error::Busy);
            }
            if buffers > ring.capacity {
                let additional = buffers - ring.buffers.len();
                ring.buffers.try_reserve(additional).map_err(|_| Error::OutOfMemory)?;
            }
            let grew = buffers > ring.capacity;
            ring.capacity = buffers;
            self.capacity.store(buffers, Ordering::Release);
            Ok(grew)
        })?;
        if grew {
            self.write_queue.wake_all();
            self.pollers.notify(PollEvents::OUTPUT);
        }
        Ok(buffers * BUFFER_BYTES)
    }

    pub(super) fn write_some(&self, source: &mut Source<'_>, non_block: bool) -> Result<usize> {
        loop {
            self.wait_writable(non_block)?;
            let (was_empty, written) = self.with_ring(|ring| {
                let was_empty = ring.buffers.is_empty();
                // Small writes are all or nothing: one free buffer holds them.
                if source.remaining() <= PIPE_BUF && ring.is_full() {
                    return (was_empty, Ok(0));
                }
                (was_empty, ring.fill(source, usize::MAX))
            });
            let written = written.inspect_err(|_| self.pass_on())?;
            if written > 0 {
                self.written(was_empty);
                return Ok(written);
            }
        }
    }
}

impl FileOperations for Pipe {
    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        if sink.is_full() {
            return Ok(0);
        }
        loop {
            if !self.wait_readable(file.non_block())? {
                return Ok(0);
            }
            let (was_full, moved) = self.with_ring_to_take(|ring| (ring.is_full(), ring.drain(sink)))?;
            let moved = moved.inspect_err(|_| self.pass_on())?;
            if moved > 0 {
                self.taken(was_full);
                return Ok(moved);
            }
            if !self.has_writers() && self.is_empty() {
                return Ok(0);
            }
        }
    }

    fn write(&self, file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        if source.is_empty() {
            return Ok(0);
        }
        let mut done = 0;
        while !source.is_empty() {
            match self.write_some(source, file.non_block()) {
                Ok(written) => done += written,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn poll(&self, file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.pollers);
        }
        let flags = file.flags();
        let mut ready = PollEvents::empty();
        if flags.readable() {
            if !self.is_empty() {
                ready |= PollEvents::INPUT;
            }
            if !self.has_writers() && self.writer_openings.load(Ordering::Acquire) > 0 {
                ready |= PollEvents::HANG_UP;
            }
        }
        if flags.writable() {
            if !self.is_full() {
                ready |= PollEvents::OUTPUT;
            }
            if !self.has_readers() {
                ready |= PollEvents::ERROR;
            }
        }
        ready
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        if command != BYTES_TO_READ {
            return Err(Error::NotTerminal);
        }
        let bytes = self.with_ring(|ring| ring.bytes()) as u32;
        machine::user_memory::store_u32(argument, bytes)?;
        Ok(0)
    }

    fn release(&self, file: &OpenFile) {
        self.closed(file.flags());
    }

    fn pipe(&self) -> Option<&Pipe> {
        Some(self)
    }

    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE
    }

    fn describe(&self, file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        write!(out, "pipe:[{}]", file.inode().number)
    }
}

/// A pipe whose writing end is closed: who reads to its end may take a while to close the other one.
pub struct WrittenPipe(Arc<Pipe>);

impl WrittenPipe {
    /// Closes a writing end that nobody else has.
    ///
    /// # Errors
    /// `EINVAL` if it is no end of a pipe.
    pub fn close(writer: Arc<OpenFile>) -> Result<WrittenPipe> {
        let attached = writer.inode().attached().ok_or(Error::Invalid)?.clone();
        attached.downcast().map(WrittenPipe).map_err(|_| Error::Invalid)
    }

    /// Waits until nobody will read from it.
    ///
    /// # Errors
    /// `EINTR`.
    pub fn wait_for_readers(&self) -> Result<()> {
        wait::interruptible_exclusive(&self.0.write_queue, || !self.0.has_readers())
    }
}

/// `pipe2`: the reading and the writing end.
pub fn create_pipe(flags: OpenFlags, credentials: &Credentials) -> Result<(Arc<OpenFile>, Arc<OpenFile>)> {
    let pipe = Pipe::new()?;
    let inode = anonymous::new_inode(FileKind::Fifo, 0o600, credentials.user, credentials.group)?;
    let kept = flags & (OpenFlags::NON_BLOCK | OpenFlags::DIRECT);
    // Who opens `/proc/self/fd/N` of an end opens this pipe once more.
    inode.attach(pipe.clone());
    let make = |flags: OpenFlags| {
        pipe.opened(flags);
        OpenFile::anonymous(inode.clone(), pipe.clone(), flags)
    };
    let reader = make(kept)?;
    let writer = make(kept | OpenFlags::WRITE_ONLY)?;
    Ok((reader, writer))
}
