//! The buffers of a pipe: a queue of pieces of page frames.
//!
//! A buffer is a frame and the part of it that holds bytes. Frames are either the pipe's own (a write may append to the
//! last one) or shared with a file's pages or another pipe (read only). The number of buffers is limited by the
//! capacity, so that a write of up to one page always fits into one free buffer: that is what makes it atomic.

use alloc::collections::VecDeque;

use memory::buffer::{Sink, Source};
use memory::frame::{Frame, Purpose, Zeroed};

use crate::{Error, Result, allocation};

/// Bytes of a buffer.
pub(super) const BUFFER_BYTES: usize = machine::address::PAGE_SIZE;
/// Writes up to this size are atomic.
pub(super) const PIPE_BUF: usize = 4096;
/// Buffers of a new pipe.
pub const CAPACITY_DEFAULT: usize = 16;
/// Most buffers that an unprivileged process may ask for (1 MiB, `/proc/sys/fs/pipe-max-size`).
pub const CAPACITY_MAX: usize = 256;

/// A part of a frame.
#[derive(Clone)]
pub(crate) struct Buffer {
    pub(crate) frame: Frame,
    pub(crate) offset: usize,
    pub(crate) length: usize,
    /// Whether a write may append to it or reuse its frame: the frame belongs to this buffer alone.
    pub(crate) own: bool,
}

/// The queue.
pub(crate) struct Ring {
    pub(super) buffers: VecDeque<Buffer>,
    pub(super) capacity: usize,
    /// A frame kept for the next write, so that a ping-pong does not allocate.
    spare: Option<Frame>,
}

impl Ring {
    pub(super) fn new() -> Self {
        Self { buffers: VecDeque::new(), capacity: CAPACITY_DEFAULT, spare: None }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.buffers.len() >= self.capacity
    }

    pub(crate) fn bytes(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.length).sum()
    }

    pub(super) fn clear(&mut self) {
        self.buffers.clear();
        self.spare = None;
    }

    /// Puts a buffer at the end; there is room.
    pub(crate) fn push(&mut self, buffer: Buffer) -> Result<()> {
        debug_assert!(!self.is_full() && buffer.length > 0 && buffer.offset + buffer.length <= BUFFER_BYTES);
        if self.buffers.len() == self.buffers.capacity() {
            allocation::fail_point()?;
            self.buffers.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        }
        self.buffers.push_back(buffer);
        Ok(())
    }

    fn take_frame(&mut self) -> Result<Frame> {
        match self.spare.take() {
            Some(frame) => Ok(frame),
            None => Ok(Frame::allocate(Purpose::Pipe, Zeroed::No)?),
        }
    }

    /// Takes a buffer's bytes off the front: all of them if `count` is its length.
    pub(super) fn consume(&mut self, count: usize) {
        let Some(front) = self.buffers.front_mut() else { return };
        debug_assert!(count <= front.length);
        front.offset += count;
        front.length -= count;
        if front.length == 0
            && let Some(empty) = self.buffers.pop_front()
            && empty.own
            && self.spare.is_none()
        {
            self.spare = Some(empty.frame);
        }
    }

    /// Appends bytes of `source`, at most `limit`, as far as there is room; stops at a fault. Returns the bytes moved.
    pub(super) fn fill(&mut self, source: &mut Source<'_>, limit: usize) -> Result<usize> {
        let wanted = source.remaining().min(limit);
        let mut done = 0;
        // The odd part of a page first, to the last buffer, if it fits there as a whole.
        let odd = wanted % BUFFER_BYTES;
        if odd > 0
            && let Some(last) = self.buffers.back_mut()
            && last.own
            && last.offset + last.length + odd <= BUFFER_BYTES
        {
            if source.read_frame(&last.frame, last.offset + last.length, odd)? < odd {
                return Err(Error::BadAddress);
            }
            last.length += odd;
            done = odd;
        }
        while done < wanted && !self.is_full() {
            let frame = match self.take_frame() {
                Ok(frame) => frame,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            };
            let count = (wanted - done).min(BUFFER_BYTES);
            // A part of a buffer counts for nothing when the rest can't be read.
            let whole = source.read_frame(&frame, 0, count).is_ok_and(|copied| copied == count);
            let pushed = match whole {
                true => self.push(Buffer { frame, offset: 0, length: count, own: true }),
                false => Err(Error::BadAddress),
            };
            match pushed {
                Ok(()) => done += count,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Moves bytes from the front to `sink`. Returns the bytes moved.
    pub(super) fn drain(&mut self, sink: &mut Sink<'_>) -> Result<usize> {
        let mut done = 0;
        let mut wanted = sink.remaining();
        while wanted > 0 {
            let Some(front) = self.buffers.front() else { break };
            let count = front.length.min(wanted);
            // As on Linux a buffer that can't be stored as far as wanted stays as it is.
            if !sink.write_frame(&front.frame, front.offset, count).is_ok_and(|copied| copied == count) {
                if done > 0 {
                    break;
                }
                return Err(Error::BadAddress);
            }
            self.consume(count);
            done += count;
            wanted -= count;
        }
        Ok(done)
    }
}
