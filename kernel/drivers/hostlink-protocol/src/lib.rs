//! The host link protocol: what `starling run` on the host and the kernel say to each other.
//!
//! A reliable byte stream with backpressure in both directions carries *frames*: a kind byte, the payload's
//! length as a 16-bit little-endian number, and the payload (at most [`MAX_PAYLOAD`] bytes). The book's page
//! `hostlink.md` tells the whole story; this crate is the only place that knows the bytes, so both sides agree.
//!
//! * [`GuestFrame`] and [`HostFrame`] are the frames by direction, with `encode` and `decode`.
//! * [`Deframer`] cuts frames out of a stream that arrives in arbitrary pieces.
//! * [`Credit`] counts how many input bytes the guest has allowed the host to send.
//! * [`request`] is the run request that travels as a file in the initramfs.
//!
//! The crate allocates nothing, has no dependencies and no `unsafe`. What arrives from the other side is never
//! trusted: a frame that does not parse is a [`FrameError`], never a panic.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

mod boot_trace;
mod credit;
mod deframer;
mod guest;
mod host;
pub mod request;
mod wire;

pub use boot_trace::{BootRecord, BootRecords};
pub use credit::{Channel, Credit, INITIAL_CREDIT};
pub use deframer::{Deframer, RawFrame};
pub use guest::{ExitKind, GuestFrame};
pub use host::HostFrame;

/// The protocol version spoken by this crate; [`GuestFrame::Hello`] carries it.
pub const VERSION: u16 = 1;

/// Bytes of a frame before its payload: kind and length.
pub const HEADER_BYTES: usize = 3;

/// What a port of a virtio console is called to which the link can move from the serial port.
pub const PORT_NAME: &str = "starling.link";

/// The longest payload of a frame. One page, so that a frame never needs a large buffer on either side.
pub const MAX_PAYLOAD: usize = 4096;

/// The longest frame: header and payload.
pub const MAX_FRAME: usize = HEADER_BYTES + MAX_PAYLOAD;

/// Why a frame could not be decoded or encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The kind byte is none that this direction knows.
    UnknownKind(u8),
    /// The payload is longer than [`MAX_PAYLOAD`].
    TooLong(usize),
    /// The payload is shorter than its kind needs, or has bytes left over.
    WrongLength(u8),
    /// The payload has the right length but a value that means nothing.
    BadValue(u8),
    /// The output buffer is too small for the encoded frame.
    NoRoom,
}

impl core::fmt::Display for FrameError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::UnknownKind(kind) => write!(f, "unknown frame kind {kind:#04x}"),
            Self::TooLong(length) => write!(f, "frame of {length} bytes is over the limit of {MAX_PAYLOAD}"),
            Self::WrongLength(kind) => write!(f, "frame {kind:#04x} has the wrong length"),
            Self::BadValue(kind) => write!(f, "frame {kind:#04x} has a value without meaning"),
            Self::NoRoom => write!(f, "no room for the frame"),
        }
    }
}

impl core::error::Error for FrameError {}

/// The header of a frame of `kind` whose payload has `length` bytes, for writers that send header and payload
/// one after the other instead of copying them into one buffer.
///
/// # Errors
/// [`FrameError::TooLong`] when the payload is over [`MAX_PAYLOAD`].
pub const fn header(kind: u8, length: usize) -> Result<[u8; HEADER_BYTES], FrameError> {
    if length > MAX_PAYLOAD {
        return Err(FrameError::TooLong(length));
    }
    let [low, high, ..] = length.to_le_bytes();
    Ok([kind, low, high])
}
