//! Reading values from bytes that nobody vouches for.

/// The bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl From<Malformed> for vfs::Error {
    fn from(_: Malformed) -> Self {
        Self::Io
    }
}

/// Reads values one after the other. What is not there is [`Malformed`]; nothing is allocated.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Of these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What was not read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// So many bytes.
    ///
    /// # Errors
    /// [`Malformed`] if there are not as many.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// A number of 16 bits.
    ///
    /// # Errors
    /// [`Malformed`], as of all that follow.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    /// A number of 32 bits.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number of 64 bits.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_malformed() {
        let mut decoder = Decoder::new(&[3, 0, 1, 2]);
        assert_eq!((decoder.u16(), decoder.u32()), (Ok(3), Err(Malformed)));
        assert_eq!(decoder.bytes(3), Err(Malformed));
        assert_eq!((decoder.bytes(2), decoder.rest().len()), (Ok(&[1, 2][..]), 0));
    }
}
