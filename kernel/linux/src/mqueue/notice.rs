//! A process that wants to be told of a message that comes into an empty queue (mq_notify(3)). It is told once.

use alloc::sync::{Arc, Weak};

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
    /// The signal and its value; `None`: the process just keeps others from being told.
    pub(super) signal: Option<(Signal, u64)>,
    /// `sigev_notify`, as it was asked for.
    pub(super) how: i32,
}

/// Who sent the message.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    pub(super) pid: Pid,
    pub(super) user: u32,
}

impl Notice {
    /// Tells it. What can't be kept is dropped.
    pub(super) fn tell(self, sender: Sender) {
        let Some((signal, value)) = self.signal else { return };
        if let Some(process) = self.process.upgrade() {
            let who = u64::from(sender.pid) | u64::from(sender.user) << 32;
            let fields = [who, value, 0, 0];
            let _ =
                send::from_queue(&process, SignalInformation { signal, code: FROM_QUEUE, error: 0, fields });
        }
    }

    /// Whether it is this process's.
    pub(super) fn is_of(&self, process: &Arc<Process>) -> bool {
        core::ptr::eq(self.process.as_ptr(), &**process)
    }
}
