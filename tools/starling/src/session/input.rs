//! Standard input of the tool on its way to the guest, within the credit that the guest has given.
//!
//! Other input than a terminal's is read within the credit, so that who feeds it waits. A keyboard is read always, for the keys that are meant for the tool: what there is no credit
//! for is kept, [`KEPT_MAX`] bytes of it, and the rest is dropped, as by a terminal that nobody reads.

use std::collections::VecDeque;
use std::io::IsTerminal;

use hostlink_protocol::{Channel, Credit, HostFrame};
use rustix::io::Errno;
use rustix::stdio::stdin;

use super::terminal;

/// Bytes read at a time: one frame's payload.
const PIECE: usize = hostlink_protocol::MAX_PAYLOAD;
/// Bytes of a keyboard that wait for credit at most: as many as a terminal of Linux keeps.
const KEPT_MAX: usize = 4096;
/// The key that ends the virtual machine when pressed often enough in a row: Ctrl-].
const ESCAPE: u8 = 0x1d;
/// How often it must be pressed.
const ESCAPES: u32 = 3;
/// The key that enters the kernel debugger when pressed after the other one.
const DEBUGGER: u8 = b'g';

/// What reading gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// Bytes for the guest.
    Bytes(Vec<u8>),
    /// The end of the input.
    End,
    /// The user wants the virtual machine gone.
    Escape,
    /// The user wants the kernel debugger.
    EnterDebugger,
    /// Nothing now.
    Nothing,
}

/// Standard input.
#[derive(Debug)]
pub(super) struct Input {
    channel: Channel,
    credit: Credit,
    open: bool,
    is_terminal: bool,
    escapes: u32,
    /// What was read and has not been sent.
    kept: VecDeque<u8>,
}

impl Input {
    /// Standard input as the input of `channel`; `open` false: it is not read at all.
    pub(super) fn new(channel: Channel, open: bool) -> Self {
        Self {
            channel,
            credit: Credit::default(),
            open,
            is_terminal: std::io::stdin().is_terminal(),
            escapes: 0,
            kept: VecDeque::new(),
        }
    }

    /// Adds the credit that the guest has given.
    pub(super) fn grant(&mut self, channel: Channel, bytes: u32) {
        if channel == self.channel {
            self.credit.grant(bytes);
        }
    }

    /// Whether input can be taken now.
    pub(super) fn is_wanted(&self) -> bool {
        self.open && (self.channel == Channel::TtyInput || self.credit.available() > 0)
    }

    /// Nobody takes input any more.
    pub(super) fn close(&mut self) {
        self.open = false;
        self.kept.clear();
    }

    /// Whether reading now would stop this process, because it is in the background of its terminal.
    pub(super) fn would_stop(&self) -> bool {
        self.is_terminal && !terminal::in_foreground()
    }

    /// Reads what there is; other than a terminal's within the credit. Called when `poll` says that there is something.
    pub(super) fn read(&mut self) -> Read {
        let mut buffer = [0; PIECE];
        let room = match self.channel {
            Channel::TtyInput => PIECE,
            Channel::Stdin => self.credit.available().min(PIECE),
        };
        let count = match rustix::io::read(stdin(), &mut buffer[..room]) {
            Ok(0) => {
                self.open = false;
                return Read::End;
            }
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => return Read::Nothing,
            Err(_) => {
                self.open = false;
                return Read::End;
            }
        };
        let bytes = &buffer[..count];
        let wants_debugger = self.channel == Channel::TtyInput && self.escapes == 1 && bytes == [DEBUGGER];
        if self.channel == Channel::TtyInput && self.counts_as_escape(bytes) {
            return Read::Escape;
        }
        if wants_debugger {
            return Read::EnterDebugger;
        }
        Read::Bytes(bytes.to_vec())
    }

    /// Bytes that were read are for the guest.
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        let room = match self.channel {
            Channel::TtyInput => (KEPT_MAX + self.credit.available()).saturating_sub(self.kept.len()),
            Channel::Stdin => bytes.len(),
        };
        self.kept.extend(&bytes[..bytes.len().min(room)]);
    }

    /// Bytes of that which may be sent now, in frames of a size that goes.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        let count = self.kept.len().min(self.credit.available()).min(PIECE);
        if count == 0 {
            return None;
        }
        let spent = self.credit.spend(count);
        assert!(spent, "no more is sent than there is credit for");
        Some(self.kept.drain(..count).collect())
    }

    /// The frame for bytes of this input.
    pub(super) const fn frame<'a>(&self, bytes: &'a [u8]) -> HostFrame<'a> {
        match self.channel {
            Channel::Stdin => HostFrame::Stdin(bytes),
            Channel::TtyInput => HostFrame::TtyInput(bytes),
        }
    }

    fn counts_as_escape(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            self.escapes = if *byte == ESCAPE { self.escapes + 1 } else { 0 };
        }
        self.escapes >= ESCAPES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostlink_protocol::INITIAL_CREDIT;

    #[test]
    fn keys_without_credit_are_kept_and_those_beyond_dropped() {
        let mut input = Input::new(Channel::TtyInput, true);
        input.keep(&vec![b'a'; INITIAL_CREDIT as usize]);
        let mut sent = 0;
        while let Some(bytes) = input.take() {
            sent += bytes.len();
        }
        assert_eq!(sent, INITIAL_CREDIT as usize);
        assert!(input.is_wanted(), "for the keys that are the tool's");
        input.keep(&[b'b'; KEPT_MAX]);
        input.keep(b"c");
        assert_eq!(input.take(), None);
        input.grant(Channel::TtyInput, 5000);
        assert_eq!(input.take(), Some(vec![b'b'; KEPT_MAX]));
        assert_eq!(input.take(), None);
    }

    #[test]
    fn other_input_is_not_read_without_credit() {
        let mut input = Input::new(Channel::Stdin, true);
        input.keep(&vec![0; INITIAL_CREDIT as usize]);
        while input.take().is_some() {}
        assert!(!input.is_wanted());
        input.grant(Channel::Stdin, 1);
        assert!(input.is_wanted());
        input.close();
        assert!(!input.is_wanted());
    }
}
