//! Writing what a request says.

use alloc::vec::Vec;

use vfs::{Error, Result, allocation};

/// What a request says, as far as it is written. That memory ran out shows at the end.
#[derive(Default)]
pub struct Body {
    bytes: Vec<u8>,
    failed: bool,
}

impl Body {
    /// Nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), failed: false }
    }

    /// Bytes as they are.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.failed |= allocation::extend(&mut self.bytes, bytes).is_err();
        self
    }

    /// Numbers of 32 bits.
    #[must_use]
    pub fn u32s(self, values: &[u32]) -> Self {
        values.iter().fold(self, |body, value| body.bytes(&value.to_le_bytes()))
    }

    /// Numbers of 64 bits.
    #[must_use]
    pub fn u64s(self, values: &[u64]) -> Self {
        values.iter().fold(self, |body, value| body.bytes(&value.to_le_bytes()))
    }

    /// A name or path, with the zero byte that ends it.
    #[must_use]
    pub fn name(self, name: &[u8]) -> Self {
        self.bytes(name).bytes(&[0])
    }

    /// All of it.
    ///
    /// # Errors
    /// No memory.
    pub fn finish(self) -> Result<Vec<u8>> {
        if self.failed { Err(Error::OutOfMemory) } else { Ok(self.bytes) }
    }
}
