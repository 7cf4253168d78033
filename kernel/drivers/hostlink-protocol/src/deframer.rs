//! Cuts frames out of a byte stream that arrives in arbitrary pieces.
//!
//! The deframer holds at most one unfinished frame. [`Deframer::feed`] takes bytes until one frame is complete and
//! tells how many it took, so the caller loops until all its bytes are taken. A length over the limit is an error
//! that cannot be recovered from: the stream has lost its frame boundaries.

use crate::{FrameError, HEADER_BYTES, MAX_FRAME, MAX_PAYLOAD};

/// Collects the bytes of one frame at a time.
#[derive(Debug)]
pub struct Deframer {
    bytes: [u8; MAX_FRAME],
    filled: usize,
    /// The frame in `bytes` was handed out: the next byte starts a new one.
    delivered: bool,
}

/// A frame's kind byte and payload.
pub type RawFrame<'a> = (u8, &'a [u8]);

impl Default for Deframer {
    fn default() -> Self {
        Self::new()
    }
}

impl Deframer {
    /// A deframer at the start of a stream.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [0; MAX_FRAME], filled: 0, delivered: false }
    }

    /// Takes bytes from the front of `input` until a frame is complete or `input` is used up. Returns how many
    /// bytes were taken and the frame, if one is complete.
    ///
    /// # Errors
    /// [`FrameError::TooLong`] when a header announces more than [`MAX_PAYLOAD`] bytes.
    pub fn feed(&mut self, input: &[u8]) -> Result<(usize, Option<RawFrame<'_>>), FrameError> {
        if self.delivered {
            self.delivered = false;
            self.filled = 0;
        }
        let mut taken = self.fill_up_to(HEADER_BYTES, input);
        if self.filled < HEADER_BYTES {
            return Ok((taken, None));
        }
        let length = usize::from(u16::from_le_bytes([self.bytes[1], self.bytes[2]]));
        if length > MAX_PAYLOAD {
            return Err(FrameError::TooLong(length));
        }
        let end = HEADER_BYTES + length;
        taken += self.fill_up_to(end, &input[taken..]);
        debug_assert!(self.filled <= end && taken <= input.len());
        if self.filled < end {
            return Ok((taken, None));
        }
        self.delivered = true;
        Ok((taken, Some((self.bytes[0], &self.bytes[HEADER_BYTES..end]))))
    }

    /// Whether a frame has begun and not ended: more bytes are certain to come.
    #[must_use]
    pub const fn is_inside_frame(&self) -> bool {
        self.filled > 0 && !self.delivered
    }

    fn fill_up_to(&mut self, end: usize, input: &[u8]) -> usize {
        let count = end.saturating_sub(self.filled).min(input.len());
        self.bytes[self.filled..self.filled + count].copy_from_slice(&input[..count]);
        self.filled += count;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GuestFrame;

    fn stream() -> Vec<u8> {
        let mut stream = Vec::new();
        for frame in
            [GuestFrame::Stdout(b"one"), GuestFrame::Stderr(b""), GuestFrame::Stdout(&[7; MAX_PAYLOAD])]
        {
            let mut bytes = [0; MAX_FRAME];
            let length = frame.encode(&mut bytes).expect("fits");
            stream.extend_from_slice(&bytes[..length]);
        }
        stream
    }

    #[test]
    fn frames_are_found_however_the_stream_is_cut() {
        let stream = stream();
        for piece in [1, 2, 3, 5, 4096, stream.len()] {
            let mut deframer = Deframer::new();
            let mut found = Vec::new();
            for mut input in stream.chunks(piece) {
                while !input.is_empty() {
                    let (taken, frame) = deframer.feed(input).expect("well formed");
                    input = &input[taken..];
                    if let Some((kind, payload)) = frame {
                        found.push((kind, payload.to_vec()));
                    }
                }
            }
            assert_eq!(found.len(), 3, "in pieces of {piece}");
            assert_eq!(found[0], (2, b"one".to_vec()));
            assert_eq!(found[1], (3, vec![]));
            assert_eq!(found[2], (2, vec![7; MAX_PAYLOAD]));
        }
    }

    #[test]
    fn it_is_known_whether_a_frame_has_begun() {
        let mut deframer = Deframer::new();
        assert!(!deframer.is_inside_frame());
        for byte in [2, 1, 0] {
            deframer.feed(&[byte]).expect("well formed");
            assert!(deframer.is_inside_frame());
        }
        deframer.feed(b"x").expect("well formed");
        assert!(!deframer.is_inside_frame());
    }

    #[test]
    fn overlong_frame_is_an_error() {
        let mut deframer = Deframer::new();
        assert_eq!(deframer.feed(&[2, 1, 0x10]), Err(FrameError::TooLong(4097)));
    }
}
