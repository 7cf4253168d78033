//! Flow control of the input channels.
//!
//! The guest must never be sent more input than it has room for: a command that does not read would otherwise
//! block the link, and with it signals and window sizes. So the host may send only as many bytes as the guest has
//! granted. Each channel starts with [`INITIAL_CREDIT`]; the guest grants more with `CREDIT` frames as the bytes
//! are consumed.

use crate::HostFrame;

/// Input bytes that the host may send on each channel before the first `CREDIT` frame.
pub const INITIAL_CREDIT: u32 = 16_384;

/// An input channel, from host to guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// The command's standard input.
    Stdin,
    /// What is typed at the terminal.
    TtyInput,
}

impl Channel {
    /// The channel whose frames have this kind byte.
    #[must_use]
    pub const fn from_kind(kind: u8) -> Option<Self> {
        match kind {
            HostFrame::STDIN => Some(Self::Stdin),
            HostFrame::TTY_INPUT => Some(Self::TtyInput),
            _ => None,
        }
    }

    /// The kind byte of the channel's frames.
    #[must_use]
    pub const fn kind(self) -> u8 {
        match self {
            Self::Stdin => HostFrame::STDIN,
            Self::TtyInput => HostFrame::TTY_INPUT,
        }
    }
}

/// How many more bytes may be sent on one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit(u32);

impl Default for Credit {
    fn default() -> Self {
        Self(INITIAL_CREDIT)
    }
}

impl Credit {
    /// The bytes that may be sent now.
    #[must_use]
    pub const fn available(self) -> usize {
        self.0 as usize
    }

    /// Adds what a `CREDIT` frame grants. A guest that grants more than a `u32` holds has granted "no limit".
    pub const fn grant(&mut self, bytes: u32) {
        self.0 = self.0.saturating_add(bytes);
    }

    /// Takes the credit for `bytes` bytes that are being sent. False, and nothing taken, when there is not enough.
    #[must_use]
    pub fn spend(&mut self, bytes: usize) -> bool {
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.0.checked_sub(bytes));
        left.map(|left| self.0 = left).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_starts_with_the_implicit_grant_and_never_goes_below_zero() {
        let mut credit = Credit::default();
        assert_eq!(credit.available(), 16_384);
        assert!(credit.spend(16_384));
        assert!(!credit.spend(1));
        credit.grant(5);
        assert!(!credit.spend(6));
        assert!(credit.spend(5));
        assert_eq!(credit.available(), 0);
    }

    #[test]
    fn too_generous_a_guest_does_not_wrap_the_count() {
        let mut credit = Credit::default();
        credit.grant(u32::MAX);
        assert_eq!(credit.available(), u32::MAX as usize);
    }

    #[test]
    fn channels_are_named_by_their_frame_kind() {
        for channel in [Channel::Stdin, Channel::TtyInput] {
            assert_eq!(Channel::from_kind(channel.kind()), Some(channel));
        }
        assert_eq!(Channel::from_kind(HostFrame::STDIN_EOF), None);
    }
}
