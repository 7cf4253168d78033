//! The bytes of one message.
//!
//! Short ones lie in the heap, longer ones in page frames, which bytes reach from the program's memory and leave for it
//! without a copy in between.

use alloc::vec::Vec;

use machine::address::PAGE_SIZE;
use memory::buffer::{Sink, Source};
use memory::frame::{Frame, Purpose, Zeroed};
use vfs::{Error, Result, allocation};

use crate::bpf::Packet;

/// Up to here the heap's objects waste less than a frame does.
const HEAP_MAX: usize = 2048;

/// At least so many bytes are allocated: a cache line, so that what processors write for different sockets lies in different ones.
const LINE: usize = 64;

/// Bytes under way.
#[derive(Debug)]
pub(super) enum Payload {
    /// In the heap.
    Heap(Vec<u8>),
    /// In frames, all full but the last one.
    Frames(Vec<Frame>, usize),
}

impl Payload {
    /// Takes `length` bytes from the source.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::BadAddress`] when not all of them are there.
    pub(super) fn load(source: &mut Source<'_>, length: usize) -> Result<Self> {
        if length <= HEAP_MAX {
            let mut bytes = Vec::new();
            allocation::reserve(&mut bytes, length.max(LINE))?;
            bytes.resize(length, 0);
            let loaded = source.read(&mut bytes)?;
            return if loaded == length { Ok(Self::Heap(bytes)) } else { Err(Error::BadAddress) };
        }
        let mut frames = Vec::new();
        allocation::reserve(&mut frames, length.div_ceil(PAGE_SIZE))?;
        let mut left = length;
        while left > 0 {
            let count = left.min(PAGE_SIZE);
            let frame = Frame::allocate(Purpose::Pipe, Zeroed::No)?;
            if source.read_frame(&frame, 0, count)? != count {
                return Err(Error::BadAddress);
            }
            frames.push(frame);
            left -= count;
        }
        Ok(Self::Frames(frames, length))
    }

    /// Bytes of it.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Heap(bytes) => bytes.len(),
            Self::Frames(_, length) => *length,
        }
    }

    /// Keeps no more than so many bytes.
    pub(super) fn truncate(&mut self, kept: usize) {
        match self {
            Self::Heap(bytes) => bytes.truncate(kept),
            Self::Frames(frames, length) => {
                *length = kept.min(*length);
                frames.truncate(length.div_ceil(PAGE_SIZE));
            }
        }
    }

    /// Puts the bytes from `offset` on into the sink, as many as fit; returns how many.
    ///
    /// # Errors
    /// [`Error::BadAddress`] when not one byte could be stored.
    pub(super) fn store(&self, offset: usize, sink: &mut Sink<'_>) -> Result<usize> {
        let frames = match self {
            Self::Heap(bytes) => return Ok(sink.write(&bytes[offset.min(bytes.len())..])?),
            Self::Frames(frames, _) => frames,
        };
        let end = self.len();
        let mut at = offset;
        while at < end && !sink.is_full() {
            let inside = at % PAGE_SIZE;
            let count = (PAGE_SIZE - inside).min(end - at).min(sink.remaining());
            let stored = match sink.write_frame(&frames[at / PAGE_SIZE], inside, count) {
                Ok(stored) => stored,
                Err(_) if at > offset => break,
                Err(fault) => return Err(fault.into()),
            };
            at += stored;
            if stored < count {
                break;
            }
        }
        Ok(at - offset)
    }
}

impl Packet for Payload {
    fn length(&self) -> usize {
        self.len()
    }

    fn read(&self, from: usize, into: &mut [u8]) -> bool {
        let wanted = into.len();
        from < self.len() && self.store(from, &mut Sink::kernel(into)) == Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(length: usize, offset: usize) {
        let bytes: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
        let payload = Payload::load(&mut Source::kernel(&bytes), length).unwrap();
        assert_eq!(payload.len(), length);
        let mut out = vec![0; length];
        let stored = payload.store(offset, &mut Sink::kernel(&mut out)).unwrap();
        assert_eq!(&out[..stored], &bytes[offset..]);
    }

    #[test]
    fn bytes_come_out_as_they_went_in() {
        for (length, offset) in
            [(0, 0), (1, 0), (HEAP_MAX, 7), (HEAP_MAX + 1, 0), (20_000, 4095), (8192, 8192)]
        {
            round_trip(length, offset);
        }
    }

    #[test]
    fn filters_read_across_frames_and_what_is_cut_is_gone() {
        let bytes: Vec<u8> = (0..10_000).map(|index| (index % 251) as u8).collect();
        let mut payload = Payload::load(&mut Source::kernel(&bytes), bytes.len()).unwrap();
        let mut word = [0; 4];
        assert!(payload.read(PAGE_SIZE - 2, &mut word));
        assert_eq!(word, bytes[PAGE_SIZE - 2..PAGE_SIZE + 2]);
        assert!(payload.read(9_996, &mut word) && !payload.read(9_997, &mut word));
        assert!(!payload.read(10_000, &mut word) && !payload.read(usize::MAX, &mut word));
        payload.truncate(5000);
        assert_eq!(payload.len(), 5000);
        assert!(payload.read(4996, &mut word) && !payload.read(4997, &mut word));
        payload.truncate(6000);
        assert_eq!(payload.len(), 5000);
    }

    #[test]
    fn a_short_source_is_a_bad_address() {
        assert_eq!(Payload::load(&mut Source::kernel(b"abc"), 4).unwrap_err(), Error::BadAddress);
    }
}
