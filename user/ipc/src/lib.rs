//! Messages between threads on Starling, for programs in Rust. `include/starling_ipc.h` is the same in C, and tells the rules.
//!
//! ```no_run
//! use starling_ipc::{Message, NEVER, ZERO};
//!
//! // A server: answers one client and receives from the next in one step.
//! let mut request = starling_ipc::wait(NEVER).unwrap();
//! loop {
//!     let answer = Message { partner: request.partner, words: request.words.map(|word| word + 1) };
//!     request = starling_ipc::reply_and_wait(answer, ZERO, NEVER).unwrap();
//! }
//! ```

use std::arch::asm;
use std::fmt;

/// Words of a message.
pub const WORDS: usize = 3;

/// A thread's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ThreadId(pub u64);

/// A message: to whom, or from whom, and what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The other thread.
    pub partner: ThreadId,
    /// What is said.
    pub words: [u64; WORDS],
}

/// How long to wait for the partner, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout(pub u32);

/// The partner is ready, or the operation fails.
pub const ZERO: Timeout = Timeout(0);
/// Wait until it comes.
pub const NEVER: Timeout = Timeout(u32::MAX);

/// Why an operation did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No such thread, or it ended while the sender waited for it.
    NotExistent,
    /// Nobody sent in time.
    ReceiveTimeout,
    /// The partner did not receive in time.
    SendTimeout,
    /// Waiting for a message was cancelled, or a signal came.
    ReceiveCanceled,
    /// Waiting for the receiver was cancelled, or a signal came.
    SendCanceled,
    /// The pages that the message carries could not be given.
    SendMapFailed,
    /// The thread from which an answer was expected has ended.
    ReceiveAborted,
    /// The call was refused; an errno.
    Refused(i32),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotExistent => formatter.write_str("there is no such thread"),
            Error::ReceiveTimeout => formatter.write_str("nobody sent in time"),
            Error::SendTimeout => formatter.write_str("the partner did not receive in time"),
            Error::ReceiveCanceled => formatter.write_str("receiving was cancelled"),
            Error::SendCanceled => formatter.write_str("sending was cancelled"),
            Error::SendMapFailed => formatter.write_str("the pages could not be given"),
            Error::ReceiveAborted => formatter.write_str("the partner has ended"),
            Error::Refused(errno) => {
                write!(formatter, "refused: {}", std::io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl std::error::Error for Error {}

/// An operation's outcome.
pub type Result<T> = core::result::Result<T, Error>;

/// What the first call in a thread may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Everybody may send to this thread.
    pub open_to_all: bool,
    /// The process is partitioned.
    pub partitioned: bool,
}

const IPC: i64 = 4096;
const IPC_SELF: i64 = 4097;
const IPC_CANCEL: i64 = 4098;
const IPC_CPU: i64 = 4099;
const IPC_PAGER: i64 = 4100;
const IPC_UNMAP: i64 = 4101;

const DO_SEND: u64 = 1;
const DO_RECEIVE: u64 = 2;
const FROM_ANYBODY: u64 = 4;
const WITH_PAGES: u64 = 8;

const GRANT: u64 = 1;
const STORE: u64 = 2;
const FETCH: u64 = 1;
const FAULT_LABEL: u64 = u64::MAX - 1;
const DENIED: u64 = 1;

fn result_of(value: i64) -> Result<u64> {
    match value {
        ..0 => Err(Error::Refused(i32::try_from(-value).unwrap_or(i32::MAX))),
        _ => match value & 0xf0 {
            0 => Ok(value.cast_unsigned()),
            0x10 => Err(Error::NotExistent),
            0x20 => Err(Error::ReceiveTimeout),
            0x30 => Err(Error::SendTimeout),
            0x40 => Err(Error::ReceiveCanceled),
            0x50 => Err(Error::SendCanceled),
            0x70 => Err(Error::SendMapFailed),
            _ => Err(Error::ReceiveAborted),
        },
    }
}

fn call(number: i64, argument: u64) -> i64 {
    let result;
    // SAFETY: these calls touch no memory of the program; the kernel changes the registers named here.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") argument,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result
}

fn call3(number: i64, arguments: [u64; 3]) -> i64 {
    let [first, second, third] = arguments;
    let result;
    // SAFETY: what these calls do to the program's memory is what the callers' safety sections say.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result
}

fn operate(message: Message, what: u64, send: Timeout, receive: Timeout) -> Result<Message> {
    let [mut first, mut second, mut third] = message.words;
    let (mut partner, result): (u64, i64);
    // SAFETY: the call touches no memory of the program; the kernel changes the registers named here.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") IPC => result,
            inlateout("rdi") message.partner.0 => partner,
            in("rsi") what,
            inlateout("rdx") first,
            inlateout("r10") second,
            inlateout("r8") third,
            in("r9") u64::from(receive.0) << 32 | u64::from(send.0),
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result_of(result)?;
    if what & DO_RECEIVE == 0 {
        partner = message.partner.0;
        [first, second, third] = message.words;
    }
    Ok(Message { partner: ThreadId(partner), words: [first, second, third] })
}

/// The calling thread's number.
///
/// # Errors
/// [`Error::Refused`].
pub fn this_thread(options: Options) -> Result<ThreadId> {
    let flags = u64::from(options.open_to_all) | u64::from(options.partitioned) << 1;
    match call(IPC_SELF, flags) {
        id @ 1.. => Ok(ThreadId(id.cast_unsigned())),
        errno => Err(Error::Refused(i32::try_from(-errno).unwrap_or(i32::MAX))),
    }
}

/// Sends.
///
/// # Errors
/// [`Error`].
pub fn send(message: Message, timeout: Timeout) -> Result<()> {
    operate(message, DO_SEND, timeout, ZERO).map(|_| ())
}

/// Receives from one thread.
///
/// # Errors
/// [`Error`].
pub fn receive(from: ThreadId, timeout: Timeout) -> Result<Message> {
    operate(Message { partner: from, ..Message::default() }, DO_RECEIVE, ZERO, timeout)
}

/// Receives from whoever sends first.
///
/// # Errors
/// [`Error`].
pub fn wait(timeout: Timeout) -> Result<Message> {
    operate(Message::default(), DO_RECEIVE | FROM_ANYBODY, ZERO, timeout)
}

/// Sends, and receives the answer, in one step: the partner may answer with [`ZERO`].
///
/// # Errors
/// [`Error`].
pub fn call_and_wait(message: Message, send: Timeout, receive: Timeout) -> Result<Message> {
    operate(message, DO_SEND | DO_RECEIVE, send, receive)
}

/// Answers one thread, and receives from whoever sends first, in one step.
///
/// # Errors
/// [`Error`].
pub fn reply_and_wait(message: Message, send: Timeout, receive: Timeout) -> Result<Message> {
    operate(message, DO_SEND | DO_RECEIVE | FROM_ANYBODY, send, receive)
}

/// Ends the operation that a thread is in; says whether there was one.
///
/// # Errors
/// [`Error::Refused`].
pub fn cancel(id: ThreadId) -> Result<bool> {
    result_of(call(IPC_CANCEL, id.0)).map(|cancelled| cancelled != 0)
}

/// The processor on which a thread was in its last operation.
///
/// # Errors
/// [`Error::Refused`].
pub fn processor_of(id: ThreadId) -> Result<usize> {
    match call(IPC_CPU, id.0) {
        cpu @ 0.. => Ok(usize::try_from(cpu).unwrap_or(usize::MAX)),
        errno => Err(Error::Refused(i32::try_from(-errno).unwrap_or(i32::MAX))),
    }
}

/// A page fault that a pager was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Who waits.
    pub thread: ThreadId,
    /// What it touched; the two lowest bits are lost.
    pub address: u64,
    /// It wanted to store.
    pub store: bool,
    /// It fetched an instruction.
    pub fetch: bool,
    /// The instruction.
    pub instruction: u64,
}

impl Message {
    /// The page fault that the message tells of, if it does. Whoever may send to this thread may send such a message.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        let [first, instruction, label] = self.words;
        (label == FAULT_LABEL).then_some(Fault {
            thread: self.partner,
            address: first & !3,
            store: first & STORE != 0,
            fetch: first & FETCH != 0,
            instruction,
        })
    }

    /// The answer to a fault that may not be: the thread gets SIGSEGV.
    #[must_use]
    pub fn denied(thread: ThreadId) -> Message {
        Message { partner: thread, words: [DENIED, 0, 0] }
    }
}

/// Pages to be given to a thread whose range this thread is the pager of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Where they are.
    pub from: *const u8,
    /// Where the partner shall have them.
    pub to: u64,
    /// How many, 1 to 512.
    pub count: u64,
    /// For stores too.
    pub store: bool,
    /// This process loses them: only of private anonymous memory, or of ranges that have a pager themselves.
    pub grant: bool,
}

impl Pages {
    fn message(self, partner: ThreadId) -> Message {
        let how = if self.store { STORE } else { 0 } | if self.grant { GRANT } else { 0 };
        Message { partner, words: [self.from.addr() as u64 | how, self.to, self.count] }
    }
}

/// Gives pages, and sends a message that says so.
///
/// # Safety
/// Others can store to the pages from now on if `store` says so, and granted pages read as zeros: nothing of the program's may rely on
/// what is in them.
///
/// # Errors
/// [`Error`].
pub unsafe fn give(partner: ThreadId, pages: Pages, timeout: Timeout) -> Result<()> {
    operate(pages.message(partner), DO_SEND | WITH_PAGES, timeout, ZERO).map(|_| ())
}

/// Gives pages, and receives from whoever sends first, in one step.
///
/// # Safety
/// As of [`give`].
///
/// # Errors
/// [`Error`].
pub unsafe fn give_and_wait(
    partner: ThreadId,
    pages: Pages,
    send: Timeout,
    receive: Timeout,
) -> Result<Message> {
    operate(pages.message(partner), DO_SEND | DO_RECEIVE | FROM_ANYBODY | WITH_PAGES, send, receive)
}

/// Gives a range of anonymous memory a pager; what is in it is dropped.
///
/// # Safety
/// Nothing of the program's relies on what is in the range, and the pager is trusted with what will be.
///
/// # Errors
/// [`Error::Refused`].
pub unsafe fn set_pager(address: *mut u8, length: usize, pager: ThreadId) -> Result<()> {
    result_of(call3(IPC_PAGER, [address.expose_provenance() as u64, length as u64, pager.0])).map(|_| ())
}

/// Takes the pages of a range back from whomever they were given to, directly or by others; or only the permission to store. Returns from how
/// many places.
///
/// # Errors
/// [`Error::Refused`].
pub fn take_back(address: *const u8, length: usize, only_stores: bool) -> Result<usize> {
    match call3(IPC_UNMAP, [address.addr() as u64, length as u64, u64::from(only_stores)]) {
        places @ 0.. => Ok(usize::try_from(places).unwrap_or(usize::MAX)),
        errno => Err(Error::Refused(i32::try_from(-errno).unwrap_or(i32::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_errors() {
        assert_eq!((result_of(0), result_of(0x100)), (Ok(0), Ok(0x100)));
        assert_eq!((result_of(0x30), result_of(0xc0)), (Err(Error::SendTimeout), Err(Error::ReceiveAborted)));
        assert_eq!(result_of(-35), Err(Error::Refused(35)));
        assert_eq!(result_of(0x70), Err(Error::SendMapFailed));
    }

    #[test]
    fn faults_are_told_by_their_label() {
        let mut message = Message { partner: ThreadId(7), words: [0x5000 | STORE, 0x40, FAULT_LABEL] };
        let fault = message.fault().unwrap();
        assert_eq!((fault.address, fault.store, fault.fetch), (0x5000, true, false));
        message.words[2] = 0;
        assert_eq!(message.fault(), None);
    }
}
