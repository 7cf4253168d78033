//! Pipes and FIFOs.
//!
//! A [`Pipe`] is a queue of page segments between readers and writers. `write` copies user memory
//! straight into frames and `read` straight out of them; `splice` and `tee` move or share the frames
//! themselves. Up to [`ATOMIC_BYTES`] are written as one piece.
//!
//! States of each end: *never opened* → *open* → *closed*; for a pipe both ends are open from the
//! start, a FIFO's can open and close any number of times. A reader sees the end of the file when
//! the queue is empty and no writer is left; a writer sees a broken pipe when no reader is left.
//!
//! Locking: the queue is under a sleeping mutex, because user memory is touched while it is held;
//! `bytes` and `slots` mirror its fill level so that conditions of waits and `poll` take no lock.
//! Wake-ups happen only on the transitions that matter: empty → not empty, full → not full.
//! An uncontended 1-byte write and read cost one mutex each (one compare-and-swap to take, one to
//! release) and no allocation: the last frame emptied is kept for the next write.

mod ends;
mod fifo;
mod moving;
mod ring;

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use memory::buffer::{Sink, Source};
use memory::frame::{Frame, Purpose, Zeroed};
use sched::{Mutex, WaitQueue};

use crate::poll::{PollEvents, PollList};
use crate::{Error, Result, wait};

pub use ends::{create, PipeEnd};
pub use fifo::open_fifo;
pub use moving::Segment;
use ring::Ring;

/// Writes of at most this many bytes are not interleaved with others (PIPE_BUF).
pub const ATOMIC_BYTES: usize = 4096;
/// Pages of a new pipe.
pub const DEFAULT_PAGES: usize = 16;
/// Most bytes an unprivileged program may ask for (`/proc/sys/fs/pipe-max-size`).
pub const MAX_BYTES: usize = 1 << 20;
/// Most bytes anybody may ask for: what a 32-bit size of the interface can name.
const LIMIT_BYTES: usize = 1 << 31;

/// A queue of bytes between readers and writers.
pub struct Pipe {
    queue: Mutex<Ring>,
    /// Bytes in the queue; stored under the queue's lock.
    bytes: AtomicUsize,
    /// Segments in the queue; stored under the queue's lock.
    slots: AtomicU32,
    /// Segments there may be; stored under the queue's lock.
    capacity: AtomicU32,
    readers: AtomicU32,
    writers: AtomicU32,
    /// How often each end was opened: a FIFO's opener waits for the other end to be opened once more.
    reader_opens: AtomicU32,
    writer_opens: AtomicU32,
    read_waiters: WaitQueue,
    write_waiters: WaitQueue,
    watchers: PollList,
}

impl Pipe {
    /// An empty pipe with no end open.
    pub fn new() -> Result<Self> {
        Ok(Self {
            queue: Mutex::new(Ring::new(DEFAULT_PAGES)?),
            bytes: AtomicUsize::new(0),
            slots: AtomicU32::new(0),
            capacity: AtomicU32::new(DEFAULT_PAGES as u32),
            readers: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            reader_opens: AtomicU32::new(0),
            writer_opens: AtomicU32::new(0),
            read_waiters: WaitQueue::new(),
            write_waiters: WaitQueue::new(),
            watchers: PollList::new(),
        })
    }

    /// Bytes that can be read now.
    pub fn readable_bytes(&self) -> usize {
        // Acquire, here and below: pairs with the Release in `publish`.
        self.bytes.load(Ordering::Acquire)
    }

    /// Bytes the pipe holds when all segments are full pages (F_GETPIPE_SZ).
    pub fn capacity_bytes(&self) -> usize {
        self.capacity.load(Ordering::Acquire) as usize * memory::PAGE_SIZE
    }

    fn is_empty(&self) -> bool {
        self.slots.load(Ordering::Acquire) == 0
    }

    fn is_full(&self) -> bool {
        self.slots.load(Ordering::Acquire) >= self.capacity.load(Ordering::Acquire)
    }

    fn has_readers(&self) -> bool {
        self.readers.load(Ordering::Acquire) != 0
    }

    fn has_writers(&self) -> bool {
        self.writers.load(Ordering::Acquire) != 0
    }

    /// Stores the fill level for those who look without the lock.
    fn publish(&self, queue: &Ring) {
        // Release: pairs with the Acquire loads above.
        self.bytes.store(queue.bytes(), Ordering::Release);
        self.slots.store(queue.len() as u32, Ordering::Release);
    }

    fn wake_readers(&self) {
        self.read_waiters.wake_all();
        self.watchers.notify(PollEvents::INPUT);
    }

    fn wake_writers(&self) {
        self.write_waiters.wake_all();
        self.watchers.notify(PollEvents::OUTPUT);
    }

    /// Waits until there is something to read; false at the end of the file.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::Interrupted`].
    fn await_data(&self, non_block: bool) -> Result<bool> {
        if !self.is_empty() {
            return Ok(true);
        }
        if !self.has_writers() {
            return Ok(false);
        }
        if non_block {
            return Err(Error::WouldBlock);
        }
        wait::interruptible(&self.read_waiters, || !self.is_empty() || !self.has_writers())?;
        Ok(true)
    }

    /// Waits until there is a free segment.
    ///
    /// # Errors
    /// [`Error::BrokenPipe`], [`Error::WouldBlock`], [`Error::Interrupted`].
    fn await_room(&self, non_block: bool) -> Result<()> {
        if !self.has_readers() {
            return Err(Error::BrokenPipe);
        }
        if !self.is_full() {
            return Ok(());
        }
        if non_block {
            return Err(Error::WouldBlock);
        }
        wait::interruptible(&self.write_waiters, || !self.is_full() || !self.has_readers())
    }

    /// Reads what is there, waiting only when there is nothing. Zero is the end of the file.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::Interrupted`], [`Error::BadAddress`].
    pub fn read(&self, sink: &mut Sink<'_>, non_block: bool) -> Result<usize> {
        if sink.is_full() {
            return Ok(0);
        }
        loop {
            let mut queue = self.queue.lock();
            if queue.len() == 0 {
                drop(queue);
                if !self.await_data(non_block)? {
                    return Ok(0);
                }
                continue;
            }
            let was_full = queue.is_full();
            let result = Self::take_bytes(&mut queue, sink);
            self.publish(&queue);
            let wake = was_full && !queue.is_full();
            drop(queue);
            if wake {
                self.wake_writers();
            }
            return result;
        }
    }

    fn take_bytes(queue: &mut Ring, sink: &mut Sink<'_>) -> Result<usize> {
        let mut total = 0;
        while let Some(segment) = queue.first_mut() {
            let count = segment.length.min(sink.remaining());
            if count == 0 {
                break;
            }
            let moved = match sink.write_frame(&segment.frame, segment.offset, count) {
                Ok(moved) => moved,
                Err(_) if total > 0 => break,
                Err(_) => return Err(Error::BadAddress),
            };
            segment.offset += moved;
            segment.length -= moved;
            let (emptied, packet) = (segment.length == 0, segment.packet);
            queue.consumed(moved);
            total += moved;
            if packet {
                // A packet is read in one piece; what does not fit is lost.
                queue.drop_first();
                break;
            }
            if emptied {
                queue.recycle_first();
            }
            if moved < count {
                break;
            }
        }
        Ok(total)
    }

    /// Writes all bytes, waiting for room; at most [`ATOMIC_BYTES`] go in as one piece. With `packet` each
    /// page is read as a unit (O_DIRECT).
    ///
    /// # Errors
    /// [`Error::BrokenPipe`] (the personality sends SIGPIPE), [`Error::WouldBlock`], [`Error::Interrupted`],
    /// [`Error::BadAddress`], [`Error::OutOfMemory`]; after a partial write its count is returned instead.
    pub fn write(&self, source: &mut Source<'_>, non_block: bool, packet: bool) -> Result<usize> {
        let mut total = 0;
        while !source.is_empty() {
            if !self.has_readers() {
                return if total > 0 { Ok(total) } else { Err(Error::BrokenPipe) };
            }
            let mut queue = self.queue.lock();
            let was_empty = queue.len() == 0;
            let result = Self::put_bytes(&mut queue, source, packet);
            self.publish(&queue);
            let (wake, more_room) = (was_empty && queue.len() != 0, !queue.is_full());
            drop(queue);
            if wake {
                self.wake_readers();
            }
            match result {
                Ok(count) => total += count,
                Err(error) => return if total > 0 { Ok(total) } else { Err(error) },
            }
            if source.is_empty() {
                break;
            }
            if more_room {
                continue;
            }
            if let Err(error) = self.await_room(non_block) {
                return if total > 0 { Ok(total) } else { Err(error) };
            }
        }
        Ok(total)
    }

    fn put_bytes(queue: &mut Ring, source: &mut Source<'_>, packet: bool) -> Result<usize> {
        let mut total = 0;
        // A tail that fits wholly behind the last segment joins it, so that small writes share a page.
        let tail = source.remaining() % memory::PAGE_SIZE;
        if !packet
            && tail != 0
            && source.remaining() < memory::PAGE_SIZE
            && let Some(last) = queue.last_mut()
            && last.mergeable
            && last.offset + last.length + tail <= memory::PAGE_SIZE
        {
            let at = last.offset + last.length;
            let moved = source.read_frame(&last.frame, at, tail).map_err(|_| Error::BadAddress)?;
            last.length += moved;
            queue.produced(moved);
            total += moved;
        }
        while !source.is_empty() && !queue.is_full() {
            let frame = match queue.take_spare() {
                Some(frame) => frame,
                None => match Frame::allocate(Purpose::Pipe, Zeroed::No) {
                    Ok(frame) => frame,
                    Err(_) if total > 0 => break,
                    Err(_) => return Err(Error::OutOfMemory),
                },
            };
            let count = source.remaining().min(memory::PAGE_SIZE);
            match source.read_frame(&frame, 0, count) {
                Ok(moved) => {
                    queue.push(Segment { frame, offset: 0, length: moved, mergeable: !packet, packet });
                    total += moved;
                    if moved < count {
                        break;
                    }
                }
                Err(_) => {
                    queue.keep_spare(frame);
                    return if total > 0 { Ok(total) } else { Err(Error::BadAddress) };
                }
            }
        }
        Ok(total)
    }

    /// Changes the number of pages (F_SETPIPE_SZ): rounded up to a power of two. Returns the new size in bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::NotPermitted`] beyond [`MAX_BYTES`] without privilege, [`Error::Busy`] when
    /// more is in the pipe, [`Error::OutOfMemory`].
    pub fn resize(&self, bytes: usize, privileged: bool) -> Result<usize> {
        if bytes > LIMIT_BYTES {
            return Err(Error::Invalid);
        }
        let pages = bytes.div_ceil(memory::PAGE_SIZE).max(1).next_power_of_two();
        if pages * memory::PAGE_SIZE > MAX_BYTES && !privileged {
            return Err(Error::NotPermitted);
        }
        let mut queue = self.queue.lock();
        if pages < queue.len() {
            return Err(Error::Busy);
        }
        let grown = pages > queue.capacity();
        queue.resize(pages)?;
        self.capacity.store(pages as u32, Ordering::Release);
        drop(queue);
        if grown {
            self.wake_writers();
        }
        Ok(pages * memory::PAGE_SIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_pipe() -> Pipe {
        let pipe = Pipe::new().unwrap();
        pipe.readers.store(1, Ordering::Relaxed);
        pipe.writers.store(1, Ordering::Relaxed);
        pipe
    }

    fn read(pipe: &Pipe, size: usize) -> Result<alloc::vec::Vec<u8>> {
        let mut bytes = alloc::vec![0; size];
        let count = pipe.read(&mut Sink::kernel(&mut bytes), true)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    fn write(pipe: &Pipe, bytes: &[u8]) -> Result<usize> {
        pipe.write(&mut Source::kernel(bytes), true, false)
    }

    #[test]
    fn bytes_come_out_in_the_order_they_went_in() {
        let pipe = open_pipe();
        assert_eq!(write(&pipe, b"hello "), Ok(6));
        assert_eq!(write(&pipe, b"world"), Ok(5));
        assert_eq!(pipe.readable_bytes(), 11);
        assert_eq!(read(&pipe, 8).unwrap(), b"hello wo");
        assert_eq!(read(&pipe, 8).unwrap(), b"rld");
        assert_eq!(read(&pipe, 8), Err(Error::WouldBlock));
    }

    #[test]
    fn small_writes_share_a_page() {
        let pipe = open_pipe();
        for _ in 0..4096 {
            assert_eq!(write(&pipe, b"x"), Ok(1));
        }
        assert_eq!(pipe.slots.load(Ordering::Relaxed), 1);
        assert_eq!(write(&pipe, b"x"), Ok(1));
        assert_eq!(pipe.slots.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_full_pipe_takes_what_fits_and_then_blocks() {
        let pipe = open_pipe();
        let big = alloc::vec![7; 100_000];
        assert_eq!(write(&pipe, &big), Ok(65536));
        assert_eq!(write(&pipe, b"x"), Err(Error::WouldBlock));
        assert_eq!(read(&pipe, 4096).unwrap().len(), 4096);
        assert_eq!(write(&pipe, b"x"), Ok(1));
    }

    #[test]
    fn without_writers_an_empty_pipe_is_at_its_end() {
        let pipe = open_pipe();
        write(&pipe, b"rest").unwrap();
        pipe.writers.store(0, Ordering::Relaxed);
        assert_eq!(read(&pipe, 10).unwrap(), b"rest");
        assert_eq!(read(&pipe, 10).unwrap(), b"");
    }

    #[test]
    fn without_readers_a_pipe_is_broken() {
        let pipe = open_pipe();
        pipe.readers.store(0, Ordering::Relaxed);
        assert_eq!(write(&pipe, b"x"), Err(Error::BrokenPipe));
    }

    #[test]
    fn packets_are_read_one_by_one_and_cut() {
        let pipe = open_pipe();
        pipe.write(&mut Source::kernel(b"first"), true, true).unwrap();
        pipe.write(&mut Source::kernel(b"second"), true, true).unwrap();
        assert_eq!(read(&pipe, 3).unwrap(), b"fir");
        assert_eq!(read(&pipe, 100).unwrap(), b"second");
    }

    #[test]
    fn resizing_keeps_the_contents_and_refuses_to_lose_them() {
        let pipe = open_pipe();
        let bytes: alloc::vec::Vec<u8> = (0..20_000).map(|at| at as u8).collect();
        write(&pipe, &bytes).unwrap();
        assert_eq!(pipe.resize(4096, false), Err(Error::Busy));
        assert_eq!(pipe.resize(40_000, false), Ok(65536));
        assert_eq!(pipe.resize(30_000, false), Ok(32768));
        assert_eq!(read(&pipe, 30_000).unwrap(), bytes);
        assert_eq!(pipe.resize(2 << 20, false), Err(Error::NotPermitted));
    }
}
