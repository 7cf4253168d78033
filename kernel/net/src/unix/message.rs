//! One message in a socket's queue, and what it costs its sender.
//!
//! A message counts against its sender's buffer with what it occupies on Linux, bookkeeping included, so that programs
//! find room for as many messages as there: 278 of one byte in a default buffer.

use alloc::boxed::Box;

use machine::address::PAGE_SIZE;

use super::endpoint::Endpoint;
use super::identity::Identity;
use super::payload::Payload;
use super::rights::Rights;

/// Bookkeeping per message: the buffer's head, and what stands behind the first bytes.
const HEAD_BYTES: usize = 256;
const TAIL_BYTES: usize = 320;
/// Most bytes in one piece; the rest lies in pages.
const LINEAR_MAX: usize = PAGE_SIZE - TAIL_BYTES;

/// A message under way.
pub(super) struct Message {
    /// Its bytes.
    pub(super) payload: Payload,
    /// How many of them are read already (streams).
    pub(super) taken: usize,
    /// It is empty, and a peek has seen it: the next one with an offset (`SO_PEEK_OFF`) passes it over.
    pub(super) is_peeked: bool,
    /// It is the byte out of band of a stream, not received yet.
    pub(super) is_urgent: bool,
    /// When it was sent, or if the receiver did not want to know that then, received: nanoseconds since 1970. 0: not known.
    pub(super) stamp_ns: u64,
    /// What it counts in the sender's buffer.
    pub(super) charge: usize,
    /// The socket that sent it, if that is not the other end of the receiver's pair.
    pub(super) sender: Option<Endpoint>,
    /// Who sent it.
    pub(super) identity: Identity,
    /// Files that come with it.
    pub(super) rights: Option<Box<Rights>>,
}

impl Message {
    /// Bytes not read yet.
    pub(super) fn remaining(&self) -> usize {
        self.payload.len() - self.taken
    }

    /// Of a stream: whether the byte out of band stands here, or stood here.
    pub(super) fn is_mark(&self) -> bool {
        self.is_urgent || self.remaining() == 0
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(rights) = self.rights.take() {
            rights.discard();
        }
    }
}

/// What a message of so many bytes counts.
pub(super) fn charge_of(length: usize) -> usize {
    let linear = length.min(LINEAR_MAX);
    let pages = (length - linear).next_multiple_of(PAGE_SIZE);
    HEAD_BYTES + (linear + TAIL_BYTES).next_power_of_two() + pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_small_messages_fit_as_on_linux() {
        assert_eq!(super::super::options::BUFFER_DEFAULT.div_ceil(charge_of(1)), 278);
        assert!(charge_of(100_000) < 110_000);
    }
}
