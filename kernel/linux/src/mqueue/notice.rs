//! A process that wants to be told of a message that comes into an empty queue (mq_notify(3)). It is told once.
//!
//! It gets a signal, or a message on a netlink socket of its own: what the C library makes `SIGEV_THREAD` of, with a thread that waits at the socket and starts
//! the program's. The message is what the process gave, with its last byte saying whether a message has come or nothing will any more; it has its
//! place in the socket from the beginning, so neither can be lost.

use alloc::sync::{Arc, Weak};

use net::netlink::Reserved;

use crate::process::process::Process;
use crate::process::table::Pid;
use crate::signal::information::SignalInformation;
use crate::signal::send;
use crate::signal::set::Signal;

/// `SI_MESGQ`
const FROM_QUEUE: i32 = -3;

/// Who is told, and how.
pub(super) struct Notice {
    pub(super) process: Weak<Process>,
    pub(super) pid: Pid,
    /// Which of its programs asked: what it executes later gets no signal, which it might not expect, and might not be sent by who asked.
    program: u64,
    how: How,
}

/// Bytes of a message to a socket (`NOTIFY_COOKIE_LEN`).
pub(super) const COOKIE_BYTES: usize = 32;
/// Its last byte: a message has come (`NOTIFY_WOKENUP`).
const HAS_COME: u8 = 1;
/// Nothing will be told any more (`NOTIFY_REMOVED`).
const REMOVED: u8 = 2;

/// How it is told.
pub(super) enum How {
    /// Not at all: it just keeps others from being told (`SIGEV_NONE`).
    Silently,
    /// By a signal with a value (`SIGEV_SIGNAL`). Number 0 is none.
    Signal(Option<Signal>, u64),
    /// By a message to a socket (`SIGEV_THREAD`).
    Socket(Reserved),
}

/// `SIGEV_SIGNAL`
pub(super) const SIGNAL: i32 = 0;
/// `SIGEV_NONE`
pub(super) const NONE: i32 = 1;
/// `SIGEV_THREAD`
pub(super) const THREAD: i32 = 2;

/// Who sent the message.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    pub(super) pid: Pid,
    pub(super) user: u32,
}

impl Notice {
    /// The calling process, as its program asks.
    pub(super) fn new(process: &Arc<Process>, how: How) -> Self {
        let program = process.executable.lock().program;
        Self { process: Arc::downgrade(process), pid: process.pid(), program, how }
    }

    /// Tells it. What can't be kept is dropped.
    pub(super) fn tell(self, sender: Sender) {
        let (signal, value) = match self.how {
            How::Silently | How::Signal(None, _) => return,
            How::Signal(Some(signal), value) => (signal, value),
            How::Socket(message) => return message.send(|bytes| finish(bytes, HAS_COME)),
        };
        if let Some(process) = self.process.upgrade()
            && process.executable.lock().program == self.program
        {
            let who = u64::from(sender.pid) | u64::from(sender.user) << 32;
            let fields = [who, value, 0, 0];
            let _ =
                send::from_queue(&process, SignalInformation { signal, code: FROM_QUEUE, error: 0, fields });
        }
    }

    /// It is taken back before it was told.
    pub(super) fn remove(self) {
        if let How::Socket(message) = self.how {
            message.send(|bytes| finish(bytes, REMOVED));
        }
    }

    /// `sigev_notify`, and the signal's number.
    pub(super) fn numbers(&self) -> (i32, u32) {
        match &self.how {
            How::Signal(signal, _) => (SIGNAL, signal.map_or(0, |signal| signal.number().into())),
            How::Silently => (NONE, 0),
            How::Socket(_) => (THREAD, 0),
        }
    }

    /// Whether it is this process's.
    pub(super) fn is_of(&self, process: &Arc<Process>) -> bool {
        core::ptr::eq(self.process.as_ptr(), &**process)
    }
}

fn finish(bytes: &mut [u8], what: u8) {
    if let Some(last) = bytes.last_mut() {
        *last = what;
    }
}
