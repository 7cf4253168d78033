//! What can go wrong, and how it is said.

use core::fmt;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The device.
    Device(block::Error),
    /// The image contradicts itself: what, and in which block or inode.
    Corrupted(&'static str, u64),
    /// No file system of this family.
    NotExt,
    /// A feature that must be known to mount at all.
    UnknownFeature(&'static str, u32),
    /// No such name or attribute.
    NotFound,
    /// Not a directory.
    NotDirectory,
    /// Not the right kind of file for this.
    WrongKind,
    /// A buffer is too small.
    Range,
    /// No memory.
    OutOfMemory,
    /// No block, no inode, or no room for an attribute.
    NoSpace,
    /// There is one of that name already.
    Exists,
    /// A directory that is not empty.
    NotEmpty,
    /// A directory where none may be.
    IsDirectory,
    /// More names than a file may have.
    TooManyLinks,
    /// Beyond what a file may be long.
    TooLarge,
    /// A name that is too long.
    NameTooLong,
    /// Mounted for reading, or stopped by an error.
    ReadOnly,
    /// A file that nobody may change.
    Immutable,
    /// A name for a file of another project in a directory that has those of its own only.
    OtherProject,
    /// Not for this file system or file.
    NotSupported,
}

/// The result of an operation.
pub type Result<T> = core::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => write!(out, "{error}"),
            Self::Corrupted(what, place) => write!(out, "damaged: {what} ({place})"),
            Self::NotExt => out.write_str("no ext2, ext3 or ext4 file system"),
            Self::UnknownFeature(name, bits) => {
                write!(out, "the feature {name} ({bits:#x}) is not supported: not mounted")
            }
            Self::NotFound => out.write_str("not found"),
            Self::NotDirectory => out.write_str("not a directory"),
            Self::WrongKind => out.write_str("the wrong kind of file"),
            Self::Range => out.write_str("the buffer is too small"),
            Self::OutOfMemory => out.write_str("out of memory"),
            Self::NoSpace => out.write_str("no space left"),
            Self::Exists => out.write_str("it exists"),
            Self::NotEmpty => out.write_str("the directory is not empty"),
            Self::IsDirectory => out.write_str("a directory"),
            Self::TooManyLinks => out.write_str("too many links"),
            Self::TooLarge => out.write_str("too large"),
            Self::NameTooLong => out.write_str("the name is too long"),
            Self::ReadOnly => out.write_str("only to be read"),
            Self::Immutable => out.write_str("not to be changed"),
            Self::OtherProject => out.write_str("of another project"),
            Self::NotSupported => out.write_str("not supported"),
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
