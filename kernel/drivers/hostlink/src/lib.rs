//! The guest's end of the host link: what the kernel and `starling run` say to each other (the book's page on the
//! host link has the protocol, crate `hostlink-protocol` the bytes).
//!
//! [`Link`] sits on a [`Transport`], such as a serial port. Frames leave whole: each is queued in one piece or not at all. Input arrives in a
//! thread of the link, which takes frames apart and hands them on: standard input goes into a buffer that readers empty,
//! the terminal's input and window size to the registered [`Terminal`], signals and the wish to end to the registered
//! [`Control`].
//!
//! # Moving
//! A link begins on a transport that is there from the start ([`FirstTransport`]: a serial port) and moves to a faster one
//! when that is found ([`Link::move_to`]). Each side says in the first stream that it has moved, and reads that one up to
//! there before it reads the second, so no frame is lost and none overtakes another. The first stays open: it has the
//! reports of panics, and everything else again, should the second one go away.
//! What was under way there is lost then; so the command's output is closed, its input ends, and the terminal is hung up. The host is told, and its signals come
//! by the first one from then on.
//!
//! The host sends only as much input as it was allowed to; the link allows more when input is consumed.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod input;
mod link;
mod receiver;
mod transport;

pub use hostlink_protocol::ExitKind;
pub use link::{Link, OUTPUT_BYTES_MAX, Output, SendError};
pub use transport::{FirstTransport, Queues, SecondTransport, Transport};

/// The terminal that the host's terminal is connected to.
pub trait Terminal: Send + Sync {
    /// Bytes were typed. Returns how many were taken; the rest is offered again after [`Link::terminal_has_room`].
    fn input(&self, bytes: &[u8]) -> usize;

    /// The host's terminal has this size now.
    fn resize(&self, rows: u16, columns: u16);

    /// What was typed and printed is lost, and nothing more will come.
    fn hang_up(&self);
}

/// Who is in charge of the command.
pub trait Control: Send + Sync {
    /// A signal for the command's process.
    fn signal(&self, number: u8);

    /// End everything in good order.
    fn terminate(&self);
}
