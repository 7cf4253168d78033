//! Reading and writing the little-endian fields of a payload.
//!
//! [`Reader`] takes fields off the front of a payload and [`Writer`] appends fields to a frame being built. Both
//! check bounds and report [`FrameError`] instead of panicking.

use crate::{FrameError, HEADER_BYTES, header};

/// Takes fields off the front of the payload of a frame of kind `kind`.
pub(crate) struct Reader<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(kind: u8, payload: &'a [u8]) -> Self {
        Self { kind, rest: payload }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (field, rest) = self.rest.split_first_chunk::<N>().ok_or(FrameError::WrongLength(self.kind))?;
        self.rest = rest;
        Ok(*field)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FrameError> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FrameError> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FrameError> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FrameError> {
        self.take().map(u64::from_le_bytes)
    }

    /// Takes the next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let (field, rest) = self.rest.split_at_checked(count).ok_or(FrameError::WrongLength(self.kind))?;
        self.rest = rest;
        Ok(field)
    }

    /// Takes all that is left.
    pub(crate) const fn remainder(&mut self) -> &'a [u8] {
        let rest = self.rest;
        self.rest = &[];
        rest
    }

    /// Whether all fields have been taken.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Finishes with `frame` if nothing is left over.
    pub(crate) const fn finish<T: Copy>(self, frame: T) -> Result<T, FrameError> {
        if self.rest.is_empty() { Ok(frame) } else { Err(FrameError::WrongLength(self.kind)) }
    }
}

/// Builds one frame in a caller's buffer.
pub(crate) struct Writer<'a> {
    kind: u8,
    out: &'a mut [u8],
    filled: usize,
}

impl<'a> Writer<'a> {
    /// Starts a frame of `kind` at the front of `out`, leaving room for its header.
    pub(crate) const fn new(kind: u8, out: &'a mut [u8]) -> Self {
        Self { kind, out, filled: HEADER_BYTES }
    }

    /// Appends `bytes` to the payload.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        let end = self.filled + bytes.len();
        self.out.get_mut(self.filled..end).ok_or(FrameError::NoRoom)?.copy_from_slice(bytes);
        self.filled = end;
        Ok(())
    }

    /// Writes the header and returns the length of the whole frame.
    pub(crate) fn finish(self) -> Result<usize, FrameError> {
        let header = header(self.kind, self.filled - HEADER_BYTES)?;
        self.out.first_chunk_mut().ok_or(FrameError::NoRoom).map(|start| *start = header)?;
        Ok(self.filled)
    }
}
