//! Writing values into a message.

use alloc::vec::Vec;

use memory::{OutOfMemory, fallible};

use super::HEADER_BYTES;

/// A message that is being written. What does not fit into memory, or into the fields of the format, shows at the end.
pub struct Encoder {
    bytes: Vec<u8>,
    failed: bool,
}

impl Encoder {
    /// A message of that kind.
    #[must_use]
    pub fn new(kind: u8, tag: u16) -> Self {
        let mut encoder = Self { bytes: Vec::new(), failed: false };
        encoder.u32(0).u8(kind).u16(tag);
        encoder
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        if fallible::try_reserve(&mut self.bytes, bytes.len()).is_ok() {
            self.bytes.extend_from_slice(bytes);
        } else {
            self.failed = true;
        }
        self
    }

    /// A number of 8 bits.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    /// A number of 16 bits.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// A number of 32 bits.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// A number of 64 bits.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// A text.
    pub fn text(&mut self, text: &[u8]) -> &mut Self {
        match u16::try_from(text.len()) {
            Ok(length) => self.u16(length).bytes(text),
            Err(_) => {
                self.failed = true;
                self
            }
        }
    }

    /// The message; `more` bytes of data follow that are elsewhere.
    ///
    /// # Errors
    /// No memory, or a text of 64 KiB.
    pub fn finish(mut self, more: usize) -> Result<Vec<u8>, OutOfMemory> {
        let length = u32::try_from(self.bytes.len() + more).map_err(|_| OutOfMemory)?;
        if self.failed || self.bytes.len() < HEADER_BYTES {
            return Err(OutOfMemory);
        }
        self.bytes[..4].copy_from_slice(&length.to_le_bytes());
        Ok(self.bytes)
    }
}
