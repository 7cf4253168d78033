//! What a thread asks for and what it gets.

use crate::id::ThreadId;

/// Words of a message. All are carried in registers from sender to receiver.
pub const WORDS: usize = 3;

/// A message.
pub type Message = [u64; WORDS];

/// How long a thread waits for its partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Not at all: the partner is ready, or the operation fails.
    Zero,
    /// So many nanoseconds.
    After(u64),
    /// Until it comes.
    Never,
}

impl Timeout {
    pub(crate) fn deadline_ns(self) -> Option<u64> {
        match self {
            Timeout::Zero => Some(0),
            Timeout::After(nanoseconds) => Some(machine::time::now_ns().saturating_add(nanoseconds)),
            Timeout::Never => None,
        }
    }
}

/// The sending half.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    /// To whom.
    pub to: ThreadId,
    /// What.
    pub message: Message,
    /// How long to wait for it to receive.
    pub timeout: Timeout,
}

/// The receiving half.
#[derive(Clone, Copy, Debug)]
pub struct Receive {
    /// From whom; `None` from whoever sends first.
    pub from: Option<ThreadId>,
    /// How long to wait for a message.
    pub timeout: Timeout,
}

impl Receive {
    pub(crate) fn expected(&self) -> ThreadId {
        self.from.unwrap_or(ThreadId::ANYBODY)
    }
}

/// One operation: send, receive, or the one after the other with nothing in between, so that the partner can answer at once
/// (call, reply and wait).
#[derive(Clone, Copy, Debug, Default)]
pub struct Operation {
    /// First.
    pub send: Option<Send>,
    /// Then.
    pub receive: Option<Receive>,
}

impl Operation {
    /// Sends.
    pub fn send(to: ThreadId, message: Message, timeout: Timeout) -> Self {
        Self { send: Some(Send { to, message, timeout }), receive: None }
    }

    /// Receives from one thread, or from whoever sends first.
    pub fn receive(from: Option<ThreadId>, timeout: Timeout) -> Self {
        Self { send: None, receive: Some(Receive { from, timeout }) }
    }

    /// Sends and receives the answer.
    pub fn call(to: ThreadId, message: Message, send: Timeout, receive: Timeout) -> Self {
        Self {
            send: Some(Send { to, message, timeout: send }),
            receive: Some(Receive { from: Some(to), timeout: receive }),
        }
    }

    /// Answers one client and receives from the next.
    pub fn reply_and_wait(to: ThreadId, message: Message, send: Timeout, receive: Timeout) -> Self {
        Self {
            send: Some(Send { to, message, timeout: send }),
            receive: Some(Receive { from: None, timeout: receive }),
        }
    }
}

/// What a successful operation brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// From whom; nobody if the operation did not receive.
    pub from: ThreadId,
    /// What.
    pub message: Message,
    /// Whether a partner was on another CPU.
    pub remote: bool,
}

/// Why an operation failed. The numbers are those of the L4 version 2 interface; bit 0x10 tells the sending half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Error {
    /// The partner does not exist, or ended while the sender waited for it.
    NotExistent = 0x10,
    /// Nobody sent in time.
    ReceiveTimeout = 0x20,
    /// The partner did not receive in time.
    SendTimeout = 0x30,
    /// The wait for a message was cancelled.
    ReceiveCanceled = 0x40,
    /// The wait for the partner was cancelled.
    SendCanceled = 0x50,
    /// The thread from which a message was expected has ended. What was sent to it before had arrived.
    ReceiveAborted = 0xc0,
}

impl Error {
    pub(crate) fn from_code(code: u8) -> Option<Error> {
        [
            Error::NotExistent,
            Error::ReceiveTimeout,
            Error::SendTimeout,
            Error::ReceiveCanceled,
            Error::SendCanceled,
            Error::ReceiveAborted,
        ]
        .into_iter()
        .find(|error| *error as u8 == code)
    }
}

/// Why an operation was refused: nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its partner would be the thread itself.
    OwnId,
    /// The partner takes no messages from this user.
    NotPermitted,
    /// Partitioned threads do this only on their own CPU.
    OtherCpu,
}

/// An operation that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It failed.
    Ipc(Error),
    /// It was refused.
    Refused(Refusal),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Ipc(error)
    }
}

/// For whom a thread sends, as far as that decides to whom it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Real user.
    pub real: u32,
    /// Effective user.
    pub effective: u32,
    /// Saved user.
    pub saved: u32,
    /// May send to everybody.
    pub privileged: bool,
}

impl Caller {
    /// The kernel's own threads.
    pub const KERNEL: Caller = Caller { real: 0, effective: 0, saved: 0, privileged: true };

    /// What of it is kept in the control block, for the decisions of others.
    pub(crate) fn users(&self) -> u64 {
        u64::from(self.real) << 32 | u64::from(self.saved)
    }

    /// Whether it may send to a thread of these users: the rule of kill(2).
    pub(crate) fn may_send_to(&self, users: u64) -> bool {
        let (real, saved) = ((users >> 32) as u32, users as u32);
        self.privileged || [self.real, self.effective].iter().any(|mine| *mine == real || *mine == saved)
    }
}
