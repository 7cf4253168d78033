//! The destination of a read.

use super::ranges::{Ranges, UserRange};
use crate::frame::Frame;
use machine::address::UserAddr;
use machine::fault::Fault;
use machine::user_memory::{self, Partial};

/// Where the bytes of a read go.
pub struct Sink<'a> {
    target: Target<'a>,
}

enum Target<'a> {
    Kernel(&'a mut [u8]),
    User(Ranges<'a>),
}

/// What a step of a transfer has to say: bytes moved, and whether that was all it was asked for.
pub(super) fn moved(result: Result<(), Partial>, asked: usize) -> (usize, bool) {
    match result {
        Ok(()) => (asked, true),
        Err(partial) => (partial.copied, false),
    }
}

impl<'a> Sink<'a> {
    /// A kernel buffer.
    pub fn kernel(buffer: &'a mut [u8]) -> Sink<'a> {
        Sink { target: Target::Kernel(buffer) }
    }

    /// One range of the running program's memory.
    pub fn user(address: UserAddr, length: usize) -> Sink<'a> {
        Sink { target: Target::User(Ranges::one(address, length)) }
    }

    /// A list of ranges of the running program's memory.
    pub fn user_list(list: &'a [UserRange]) -> Sink<'a> {
        Sink { target: Target::User(Ranges::list(list)) }
    }

    /// Bytes that still fit.
    pub fn remaining(&self) -> usize {
        match &self.target {
            Target::Kernel(buffer) => buffer.len(),
            Target::User(ranges) => ranges.remaining(),
        }
    }

    /// Whether nothing more fits.
    pub fn is_full(&self) -> bool {
        self.remaining() == 0
    }

    /// Whether a program's ranges begin and end at multiples of a power of two.
    pub fn is_aligned(&self, to: usize) -> bool {
        match &self.target {
            Target::Kernel(bytes) => bytes.len() & (to - 1) == 0,
            Target::User(ranges) => ranges.are_aligned(to),
        }
    }

    /// Takes as many of the bytes as fit; returns how many.
    ///
    /// # Errors
    /// [`Fault`] when not even the first byte could be stored.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        self.transfer(
            bytes.len(),
            |buffer, at| buffer.copy_from_slice(&bytes[at..at + buffer.len()]),
            |piece, at| user_memory::write_partial(piece.address, &bytes[at..at + piece.length]),
        )
    }

    /// Takes zeros, at most this many; returns how many.
    ///
    /// # Errors
    /// As [`Sink::write`].
    pub fn write_zeros(&mut self, count: usize) -> Result<usize, Fault> {
        self.transfer(
            count,
            |buffer, _| buffer.fill(0),
            |piece, _| user_memory::zero(piece.address, piece.length),
        )
    }

    /// Takes bytes of a frame, without a copy in between; returns how many.
    ///
    /// # Errors
    /// As [`Sink::write`].
    pub fn write_frame(&mut self, frame: &Frame, offset: usize, count: usize) -> Result<usize, Fault> {
        self.transfer(
            count,
            |buffer, at| frame.read(offset + at, buffer),
            |piece, at| frame.to_user_partial(offset + at, piece.address, piece.length),
        )
    }

    /// Brings in what the next byte goes to, so that a transfer in an atomic section, where nothing is brought in, gets on. May sleep.
    ///
    /// # Errors
    /// [`Fault`] when it cannot be stored.
    pub fn prepare(&mut self) -> Result<(), Fault> {
        let Target::User(ranges) = &mut self.target else { return Ok(()) };
        let piece = ranges.piece(1);
        if piece.length == 0 {
            return Ok(());
        }
        // The word with the byte is in the same page; it is written as it was.
        let word = UserAddr::new(piece.address.as_u64() & !3);
        user_memory::compare_exchange_u32(word, 0, 0).map(|_| ())
    }

    /// Steps over bytes as if they had been written (for calls that transfer by other means).
    pub fn skip(&mut self, count: usize) {
        let _ = self.transfer(count, |_, _| (), |_, _| Ok(()));
    }

    fn transfer(
        &mut self,
        count: usize,
        mut to_kernel: impl FnMut(&mut [u8], usize),
        mut to_user: impl FnMut(UserRange, usize) -> Result<(), Partial>,
    ) -> Result<usize, Fault> {
        let mut done = 0;
        match &mut self.target {
            Target::Kernel(buffer) => {
                done = count.min(buffer.len());
                let (now, later) = core::mem::take(buffer).split_at_mut(done);
                to_kernel(now, 0);
                *buffer = later;
            }
            Target::User(ranges) => {
                while done < count {
                    let piece = ranges.piece(count - done);
                    if piece.length == 0 {
                        break;
                    }
                    let (stored, all) = moved(to_user(piece, done), piece.length);
                    ranges.advance(stored);
                    done += stored;
                    if !all {
                        return if done > 0 { Ok(done) } else { Err(Fault) };
                    }
                }
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_sink_takes_what_fits() {
        let mut buffer = [9_u8; 5];
        let mut sink = Sink::kernel(&mut buffer);
        assert_eq!(sink.write(b"ab"), Ok(2));
        assert_eq!(sink.write_zeros(1), Ok(1));
        assert_eq!(sink.remaining(), 2);
        assert_eq!(sink.write(b"cdef"), Ok(2));
        assert_eq!(sink.write(b"x"), Ok(0));
        assert!(sink.is_full());
        assert_eq!(&buffer, b"ab\0cd");
    }
}
