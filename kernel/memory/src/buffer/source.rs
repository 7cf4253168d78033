//! The origin of a write.

use super::ranges::{Ranges, UserRange};
use super::sink::moved;
use crate::frame::Frame;
use machine::address::UserAddr;
use machine::fault::Fault;
use machine::user_memory::{self, Partial};

/// Where the bytes of a write come from.
pub struct Source<'a> {
    origin: Origin<'a>,
}

enum Origin<'a> {
    Kernel(&'a [u8]),
    User(Ranges<'a>),
}

impl<'a> Source<'a> {
    /// Bytes of the kernel's.
    pub fn kernel(bytes: &'a [u8]) -> Source<'a> {
        Source { origin: Origin::Kernel(bytes) }
    }

    /// One range of the running program's memory.
    pub fn user(address: UserAddr, length: usize) -> Source<'a> {
        Source { origin: Origin::User(Ranges::one(address, length)) }
    }

    /// A list of ranges of the running program's memory.
    pub fn user_list(list: &'a [UserRange]) -> Source<'a> {
        Source { origin: Origin::User(Ranges::list(list)) }
    }

    /// Bytes that are left.
    pub fn remaining(&self) -> usize {
        match &self.origin {
            Origin::Kernel(bytes) => bytes.len(),
            Origin::User(ranges) => ranges.remaining(),
        }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// Whether a program's ranges begin and end at multiples of a power of two.
    pub fn is_aligned(&self, to: usize) -> bool {
        match &self.origin {
            Origin::Kernel(bytes) => bytes.len() & (to - 1) == 0,
            Origin::User(ranges) => ranges.are_aligned(to),
        }
    }

    /// Fills the buffer as far as there are bytes; returns how many.
    ///
    /// # Errors
    /// [`Fault`] when not even the first byte could be loaded.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Fault> {
        let count = buffer.len();
        let buffer = core::cell::RefCell::new(buffer);
        self.transfer(
            count,
            |bytes, at| buffer.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes),
            |piece, at| {
                user_memory::read_partial(&mut buffer.borrow_mut()[at..at + piece.length], piece.address)
            },
        )
    }

    /// Moves bytes into a frame, without a copy in between; returns how many.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub fn read_frame(&mut self, frame: &Frame, offset: usize, count: usize) -> Result<usize, Fault> {
        self.transfer(
            count,
            |bytes, at| frame.write(offset + at, bytes),
            |piece, at| frame.from_user_partial(offset + at, piece.address, piece.length),
        )
    }

    /// Steps over bytes as if they had been read.
    #[inline(always)]
    pub fn skip(&mut self, count: usize) {
        let _ = self.transfer(count, |_, _| (), |_, _| Ok(()));
    }

    fn transfer(
        &mut self,
        count: usize,
        mut from_kernel: impl FnMut(&[u8], usize),
        mut from_user: impl FnMut(UserRange, usize) -> Result<(), Partial>,
    ) -> Result<usize, Fault> {
        let mut done = 0;
        match &mut self.origin {
            Origin::Kernel(bytes) => {
                done = count.min(bytes.len());
                let (now, later) = bytes.split_at(done);
                from_kernel(now, 0);
                *bytes = later;
            }
            Origin::User(ranges) => {
                while done < count {
                    let piece = ranges.piece(count - done);
                    if piece.length == 0 {
                        break;
                    }
                    let (loaded, all) = moved(from_user(piece, done), piece.length);
                    ranges.advance(loaded);
                    done += loaded;
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
    fn kernel_source_gives_what_is_left() {
        let mut source = Source::kernel(b"abcde");
        let mut buffer = [0; 3];
        assert_eq!(source.read(&mut buffer), Ok(3));
        assert_eq!(&buffer, b"abc");
        assert_eq!(source.remaining(), 2);
        assert_eq!(source.read(&mut buffer), Ok(2));
        assert_eq!(&buffer, b"dec");
        assert!(source.is_empty());
    }
}
