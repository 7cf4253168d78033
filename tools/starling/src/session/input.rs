//! Standard input of the tool on its way to the guest, within the credit that the guest has given.

use std::io::IsTerminal;

use hostlink_protocol::{Channel, Credit, HostFrame};
use rustix::io::Errno;
use rustix::stdio::stdin;

use super::terminal;

/// Bytes read at a time: one frame's payload.
const PIECE: usize = hostlink_protocol::MAX_PAYLOAD;
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
        self.open && self.credit.available() > 0
    }

    /// Whether reading now would stop this process, because it is in the background of its terminal.
    pub(super) fn would_stop(&self) -> bool {
        self.is_terminal && !terminal::in_foreground()
    }

    /// Reads what there is, within the credit. Called when `poll` says that there is something.
    pub(super) fn read(&mut self) -> Read {
        let mut buffer = [0; PIECE];
        let room = self.credit.available().min(PIECE);
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
        let spent = self.credit.spend(count);
        assert!(spent, "no more is read than there is credit for");
        if self.channel == Channel::TtyInput && self.counts_as_escape(bytes) {
            return Read::Escape;
        }
        if wants_debugger {
            return Read::EnterDebugger;
        }
        Read::Bytes(bytes.to_vec())
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
