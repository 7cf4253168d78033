//! The name of a function, in a place of its own: in the table it is compressed, and reports are made without allocating.

use core::fmt;
use core::ops::Deref;

/// Longest name, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 255;

/// A function's name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    /// ASCII; zeros after the name.
    bytes: [u8; NAME_BYTES_MAX],
    length: u8,
}

impl Name {
    /// No characters.
    pub(super) const fn empty() -> Self {
        Self { bytes: [0; NAME_BYTES_MAX], length: 0 }
    }

    /// Appends an ASCII character; false if there is no room for it, or it is none.
    pub(super) fn push(&mut self, character: u8) -> bool {
        match self.bytes.get_mut(usize::from(self.length)) {
            Some(place) if character.is_ascii() => {
                *place = character;
                self.length += 1;
                true
            }
            _ => false,
        }
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.length)).unwrap_or_default();
        // Only ASCII is put in, so there is always a text.
        core::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, formatter)
    }
}
