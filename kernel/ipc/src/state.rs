//! The state of a thread's operation, as pure transitions of one word (specs/fiasco-mp.md, Figure 10).
//!
//! | state | the thread | who ends it |
//! |---|---|---|
//! | READY | is in no operation, or prepares one | itself |
//! | POLLING | has offered its message, and waits for the receiver | wakeup (delivered, failed), itself (cancellation) |
//! | RECEIVING | waits for a message | the sender's delivery, itself (time-out, cancel), the end of its partner |
//! | DONE | has its result | itself |
//!
//! Flags of POLLING: FOLLOWS says that a receive follows, so the one who accepts the message makes the state RECEIVING and not the
//! thread itself, which may be scheduled late. WAKE says that the thread is needed to begin that receive (it has a time-out, or senders wait
//! already); without it the thread sleeps through. CANCEL has been asked for from outside.
//!
//! Only the CPU that owns the control block writes the word. The thread sleeps until [`State::needs_thread`].

use crate::operation::Error;

const KIND: u32 = 0xf;
const FOLLOWS: u32 = 1 << 4;
const WAKE: u32 = 1 << 5;
const CANCEL: u32 = 1 << 6;
const REMOTE: u32 = 1 << 7;
const CODE_SHIFT: u32 = 8;

/// See the theory of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// In no operation.
    Ready,
    /// Waits for its receiver.
    Polling,
    /// Waits for a message.
    Receiving,
    /// Has its result.
    Done,
}

/// The state word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State(u32);

impl State {
    /// In no operation.
    pub const READY: State = State(0);

    /// A sender before its offer. `receive_follows` says whether a receive follows and, if so, whether the thread must be awake to begin it.
    pub const fn polling(receive_follows: Option<bool>) -> State {
        State(match receive_follows {
            None => 1,
            Some(false) => 1 | FOLLOWS,
            Some(true) => 1 | FOLLOWS | WAKE,
        })
    }

    /// A receiver.
    pub const fn receiving() -> State {
        State(2)
    }

    pub(crate) const fn from_bits(bits: u32) -> State {
        State(bits)
    }

    pub(crate) const fn to_bits(self) -> u32 {
        self.0
    }

    /// Which state.
    #[inline(always)]
    pub const fn kind(self) -> Kind {
        match self.0 & KIND {
            0 => Kind::Ready,
            1 => Kind::Polling,
            2 => Kind::Receiving,
            _ => Kind::Done,
        }
    }

    const fn with_kind(self, kind: Kind) -> State {
        State(self.0 & !KIND | kind as u32)
    }

    /// A receiver has taken the message: success, or at once the state of the receive that follows.
    #[must_use]
    pub const fn accepted(self) -> State {
        match self.0 & FOLLOWS {
            0 => self.with_kind(Kind::Done),
            _ => self.with_kind(Kind::Receiving),
        }
    }

    /// A message has come.
    #[must_use]
    pub const fn delivered(self) -> State {
        self.with_kind(Kind::Done)
    }

    /// The operation has failed.
    #[must_use]
    pub const fn failed(self, error: Error) -> State {
        State(self.0 & (CANCEL | REMOTE) | Kind::Done as u32 | (error as u32) << CODE_SHIFT)
    }

    /// Somebody asks for the operation's end.
    #[must_use]
    pub const fn canceled(self) -> State {
        State(self.0 | CANCEL)
    }

    /// The thread is needed for what comes.
    #[must_use]
    pub const fn with_thread_needed(self) -> State {
        State(self.0 | WAKE)
    }

    /// A partner was on another CPU.
    #[must_use]
    pub const fn with_remote(self, remote: bool) -> State {
        State(self.0 | if remote { REMOTE } else { 0 })
    }

    /// Whether somebody has asked for the operation's end.
    pub const fn is_canceled(self) -> bool {
        self.0 & CANCEL != 0
    }

    /// Whether a partner was on another CPU.
    pub const fn is_remote(self) -> bool {
        self.0 & REMOTE != 0
    }

    /// Why the operation failed, if it is done and did.
    pub fn error(self) -> Option<Error> {
        match (self.0 >> CODE_SHIFT) as u8 {
            0 => None,
            code => Error::from_code(code),
        }
    }

    /// Whether a sleeping thread has something to do.
    #[inline(always)]
    pub const fn needs_thread(self) -> bool {
        match self.kind() {
            Kind::Polling => self.is_canceled(),
            Kind::Receiving => self.is_canceled() || self.0 & WAKE != 0,
            Kind::Ready | Kind::Done => true,
        }
    }

    /// Its thread has seen to what it was needed for, and sleeps for the message.
    #[must_use]
    pub const fn thread_sleeps(self) -> State {
        State(self.0 & !WAKE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_receives_the_moment_its_message_is_taken() {
        let call = State::polling(Some(false));
        assert_eq!((call.kind(), call.needs_thread()), (Kind::Polling, false));
        let receiving = call.accepted();
        assert_eq!((receiving.kind(), receiving.needs_thread()), (Kind::Receiving, false));
        assert!(State::polling(Some(true)).accepted().needs_thread(), "its time-out must be started");
        assert_eq!(State::polling(None).accepted().kind(), Kind::Done);
    }

    #[test]
    fn a_cancellation_outlives_the_delivery() {
        let call = State::polling(Some(false)).canceled();
        assert!(call.needs_thread());
        assert!(call.accepted().is_canceled() && call.accepted().needs_thread());
    }

    #[test]
    fn errors_survive_the_word() {
        for error in [Error::NotExistent, Error::ReceiveTimeout, Error::ReceiveAborted, Error::SendCanceled] {
            let state = State::polling(Some(true)).with_remote(true).failed(error);
            assert_eq!((state.kind(), state.error(), state.is_remote()), (Kind::Done, Some(error), true));
        }
        assert_eq!(State::receiving().delivered().error(), None);
    }
}
