//! Messages of the protocol as bytes (version 7; `linux/fuse.h` is its description).
//!
//! | module | what it decides |
//! |---|---|
//! | `body` | how a request is written |
//! | `decoder` | how values are read, with every length checked |
//! | [`opcode`] | the kinds of requests and notifications |
//! | [`reply`] | what a server answers |
//! | [`init`] | what both sides agree on first |
//!
//! A request is a header of 40 bytes (its length, kind, number, the file's number, who asks) and what the kind says. A reply is a header of 16 bytes (its length, an
//! error or 0, the request's number) and what the request's kind says. Numbers are little-endian.

mod body;
mod decoder;
pub mod init;
pub mod opcode;
pub mod reply;

pub use body::Body;
pub use decoder::{Decoder, Malformed};

/// Bytes before what a request says.
pub const REQUEST_HEADER_BYTES: usize = 40;
/// Bytes before what a reply says.
pub const REPLY_HEADER_BYTES: usize = 16;
/// The number of the root directory.
pub const ROOT: u64 = 1;
/// What a write has before its data.
pub const WRITE_BYTES: usize = 40;
/// The smallest room that a server must have for requests.
pub const READ_BUFFER_MIN: usize = 8192;

/// What the kind in a mode says, if there is such a kind.
#[must_use]
pub fn kind_of(mode: u32) -> Option<vfs::FileKind> {
    if mode & KIND_MASK == 0 { None } else { vfs::FileKind::from_mode(mode) }
}

/// The bits of a mode that say what a file is.
const KIND_MASK: u32 = 0o170_000;

/// Flags of an open file, as the server sets them.
pub mod open_flag {
    /// The pages of the file are not used.
    pub const DIRECT: u32 = 1 << 0;
    /// What was read of it before is still true.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// There is no position.
    pub const NOT_SEEKABLE: u32 = 1 << 2;
    /// There is no position at all: reads and writes are not serialised.
    pub const STREAM: u32 = 1 << 4;
    /// Closing is not to be told.
    pub const NO_FLUSH: u32 = 1 << 5;
}

/// Which attributes a change sets.
pub mod change {
    /// Permission bits.
    pub const MODE: u32 = 1 << 0;
    /// The owner.
    pub const USER: u32 = 1 << 1;
    /// The group.
    pub const GROUP: u32 = 1 << 2;
    /// The size.
    pub const SIZE: u32 = 1 << 3;
    /// The time of the last access.
    pub const ACCESSED: u32 = 1 << 4;
    /// The time of the last modification.
    pub const MODIFIED: u32 = 1 << 5;
    /// By this open file.
    pub const HANDLE: u32 = 1 << 6;
    /// The time of the last access, to now.
    pub const ACCESSED_NOW: u32 = 1 << 7;
    /// The time of the last modification, to now.
    pub const MODIFIED_NOW: u32 = 1 << 8;
}
