//! Messages of 9P2000.L as bytes.
//!
//! | module | what it decides |
//! |---|---|
//! | `decoder` | how values are read, with every length checked |
//! | `encoder` | how values are written |
//! | `request` | what a client says |
//! | `reply` | what a server answers |
//!
//! A message is its length (4 bytes, itself included), its kind (1), its tag (2) and what the kind says. Numbers are little-endian; a text is its length (2 bytes)
//! and its bytes. A reply's kind is that of its request plus one, or [`kind::ERROR`] with an errno.

mod decoder;
mod encoder;
pub mod reply;
pub mod request;

pub use decoder::{Decoder, Malformed};
pub use encoder::Encoder;
pub use reply::{Attributes, Entry, Identity, Status};
pub use request::{AttributeChange, Request};

/// Length, kind and tag.
pub const HEADER_BYTES: usize = 7;
/// A reply that carries data: header and a count.
pub const DATA_HEADER_BYTES: usize = HEADER_BYTES + 4;
/// What a message with data takes beyond that, as servers reckon.
pub const OVERHEAD_BYTES: u32 = 24;
/// The tag of the first message.
pub const NO_TAG: u16 = u16::MAX;
/// No file.
pub const NO_FID: u32 = u32::MAX;
/// What this client speaks.
pub const VERSION: &[u8] = b"9P2000.L";

/// Kinds of requests.
#[allow(missing_docs, reason = "the names say it")]
pub mod kind {
    pub const ERROR: u8 = 7;
    pub const STATUS: u8 = 8;
    pub const OPEN: u8 = 12;
    pub const CREATE: u8 = 14;
    pub const SYMBOLIC_LINK: u8 = 16;
    pub const MAKE_NODE: u8 = 18;
    pub const READ_LINK: u8 = 22;
    pub const GET_ATTRIBUTES: u8 = 24;
    pub const SET_ATTRIBUTES: u8 = 26;
    pub const WALK_EXTENDED: u8 = 30;
    pub const CREATE_EXTENDED: u8 = 32;
    pub const READ_DIRECTORY: u8 = 40;
    pub const SYNC: u8 = 50;
    pub const LINK: u8 = 70;
    pub const MAKE_DIRECTORY: u8 = 72;
    pub const RENAME: u8 = 74;
    pub const UNLINK: u8 = 76;
    pub const VERSION: u8 = 100;
    pub const ATTACH: u8 = 104;
    pub const FLUSH: u8 = 108;
    pub const WALK: u8 = 110;
    pub const READ: u8 = 116;
    pub const WRITE: u8 = 118;
    pub const CLUNK: u8 = 120;
}
