//! Text that grows, for files that show something: writing never panics, running out of memory is remembered.

use alloc::vec::Vec;
use core::fmt;

use crate::{Result, allocation};

/// The digits of a number, without an allocation.
pub fn digits(number: u32, buffer: &mut [u8; 10]) -> &[u8] {
    let mut start = buffer.len();
    let mut rest = number;
    loop {
        start -= 1;
        buffer[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return &buffer[start..];
        }
    }
}

/// A growing text.
#[derive(Default)]
pub struct Text {
    bytes: Vec<u8>,
    failed: bool,
}

impl Text {
    /// An empty text; allocates nothing.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), failed: false }
    }

    /// Appends bytes.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.failed |= self.failed || allocation::extend(&mut self.bytes, bytes).is_err();
    }

    /// What was written so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The text; `ENOMEM` when a part of it did not fit into memory.
    pub fn finish(self) -> Result<Vec<u8>> {
        if self.failed { Err(crate::Error::OutOfMemory) } else { Ok(self.bytes) }
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_bytes(text.as_bytes());
        if self.failed { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        let mut buffer = [0; 10];
        assert_eq!(digits(0, &mut buffer), b"0");
        assert_eq!(digits(4_294_967_295, &mut buffer), b"4294967295");
    }
}
