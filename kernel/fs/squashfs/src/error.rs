//! What can go wrong, and how it is said.

use core::fmt;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The device.
    Device(block::Error),
    /// The image contradicts itself: what, and where.
    Corrupted(&'static str, u64),
    /// No image of this kind.
    NotSquash,
    /// A compression or version that is not known.
    Unsupported(&'static str, u32),
    /// No such name or attribute.
    NotFound,
    /// Not the right kind of file for this.
    WrongKind,
    /// A buffer is too small.
    Range,
    /// No memory.
    OutOfMemory,
}

/// The result of an operation.
pub type Result<T> = core::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => write!(out, "{error}"),
            Self::Corrupted(what, place) => write!(out, "damaged: {what} ({place:#x})"),
            Self::NotSquash => out.write_str("no squashfs file system"),
            Self::Unsupported(what, number) => write!(out, "{what} ({number}) is not supported"),
            Self::NotFound => out.write_str("not found"),
            Self::WrongKind => out.write_str("the wrong kind of file"),
            Self::Range => out.write_str("the buffer is too small"),
            Self::OutOfMemory => out.write_str("out of memory"),
        }
    }
}

impl From<block::Error> for Error {
    fn from(error: block::Error) -> Self {
        match error {
            block::Error::OutOfMemory => Self::OutOfMemory,
            error => Self::Device(error),
        }
    }
}

impl From<memory::OutOfMemory> for Error {
    fn from(_: memory::OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}
