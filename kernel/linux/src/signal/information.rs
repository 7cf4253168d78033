//! What is known about one sent signal: the kernel's form of `siginfo_t`.
//!
//! Only the parts of the union that Linux defines are kept (32 bytes); the rest of the 128 bytes is zero in user memory.

use vfs::UserSpace;

use super::set::Signal;
use crate::abi::{SignalFdInformation, SignalInfoWords};
use crate::process::pid_space::{self, Space, Viewer};

/// Sent by `kill`.
pub const SI_USER: i32 = 0;
/// Sent by the kernel.
pub const SI_KERNEL: i32 = 0x80;
/// Sent by `sigqueue`.
pub const SI_QUEUE: i32 = -1;
/// A POSIX timer expired.
pub const SI_TIMER: i32 = -2;
/// A file is ready (the form of SIGIO).
pub const SI_IO: i32 = -5;
/// Sent by `tkill` or `tgkill`.
pub const SI_TKILL: i32 = -6;

/// `si_code` of SIGCHLD: what happened to the child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
#[allow(missing_docs, reason = "named as in the manual")]
pub enum ChildEvent {
    Exited = 1,
    Killed = 2,
    Dumped = 3,
    Trapped = 4,
    Stopped = 5,
    Continued = 6,
}

/// One sent signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalInformation {
    /// Which signal.
    pub signal: Signal,
    /// `si_code`.
    pub code: i32,
    /// `si_errno`.
    pub error: i32,
    /// The union, from offset 16 of `siginfo_t` on.
    pub fields: [u64; 4],
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

impl SignalInformation {
    /// A signal from the kernel without further facts.
    pub const fn from_kernel(signal: Signal) -> Self {
        SignalInformation { signal, code: SI_KERNEL, error: 0, fields: [0; 4] }
    }

    /// As [`SignalInformation::from_kernel`].
    pub const fn kernel(signal: Signal) -> Self {
        Self::from_kernel(signal)
    }

    /// A signal one process sends another (`kill`, `tgkill`).
    pub const fn from_process(signal: Signal, code: i32, pid: u32, uid: u32) -> Self {
        SignalInformation { signal, code, error: 0, fields: [pair(pid, uid), 0, 0, 0] }
    }

    /// A fault of the thread itself at `address`.
    pub const fn fault(signal: Signal, code: i32, address: u64) -> Self {
        SignalInformation { signal, code, error: 0, fields: [address, 0, 0, 0] }
    }

    /// A timer's expiry: `si_tid`, `si_overrun`, `si_value`.
    pub const fn timer(signal: Signal, id: u32, overrun: u32, value: u64) -> Self {
        SignalInformation { signal, code: SI_TIMER, error: 0, fields: [pair(id, overrun), value, 0, 0] }
    }

    /// News of a child. Times are in clock ticks (USER_HZ = 100).
    pub const fn child(
        signal: Signal,
        event: ChildEvent,
        pid: u32,
        uid: u32,
        status: i32,
        user_ticks: u64,
        system_ticks: u64,
    ) -> Self {
        SignalInformation {
            signal,
            code: event as i32,
            error: 0,
            fields: [pair(pid, uid), status as u32 as u64, user_ticks, system_ticks],
        }
    }

    /// What a program passed to `rt_sigqueueinfo`.
    pub fn from_words(signal: Signal, words: &SignalInfoWords) -> Self {
        SignalInformation { signal, code: words.code, error: words.error, fields: words.fields }
    }

    /// Whether it says who sent it, or which child it is about.
    const fn names_somebody(&self) -> bool {
        match (self.code, self.signal) {
            (SI_TIMER | SI_IO | SI_KERNEL, _) => false,
            (code, signal) => code <= 0 || matches!(signal, Signal::SIGCHLD),
        }
    }

    /// With the sending process as the target calls it: at once, as its number may be another one's when the signal is taken.
    pub(crate) fn addressed_to(&self, space: &Space) -> Self {
        let mut addressed = *self;
        if space.is_some() && self.names_somebody() {
            let (process, user) = (self.fields[0] as u32, (self.fields[0] >> 32) as u32);
            addressed.fields[0] = pair(pid_space::seen(space, process), user);
        }
        addressed
    }

    /// With the sender's user as a program in a name space of users sees him.
    pub(crate) fn seen_in(&self, users: &UserSpace) -> Self {
        let mut seen = *self;
        if !users.is_first() && self.names_somebody() {
            let (process, user) = (self.fields[0] as u32, (self.fields[0] >> 32) as u32);
            seen.fields[0] = pair(process, users.shown_user(user));
        }
        seen
    }

    /// With the sender, as a program in other name spaces calls him, as the kernel does.
    pub(crate) fn sent_by(&self, viewer: Viewer<'_>) -> Self {
        let mut sent = *self;
        if !viewer.is_first() && self.names_somebody() {
            let (process, user) = (self.fields[0] as u32, (self.fields[0] >> 32) as u32);
            let process = pid_space::kernel(viewer.processes, process).unwrap_or(0);
            sent.fields[0] = pair(process, viewer.users.kernel_user(user).unwrap_or(u32::MAX));
        }
        sent
    }

    /// As user space sees it.
    pub fn to_words(&self) -> SignalInfoWords {
        SignalInfoWords {
            signal: self.signal.number() as i32,
            error: self.error,
            code: self.code,
            fields: self.fields,
            ..Default::default()
        }
    }

    /// The sender's process id, where the signal has one.
    pub const fn sender(&self) -> u32 {
        self.fields[0] as u32
    }

    /// Whether the kernel itself sent it (not another process): such signals may not be dropped for lack of memory.
    pub const fn is_from_kernel(&self) -> bool {
        self.code > 0
    }

    /// As a signalfd reports it.
    #[inline(never)]
    pub fn to_signalfd(&self) -> SignalFdInformation {
        let mut out = SignalFdInformation {
            signal: self.signal.number() as u32,
            error: self.error,
            code: self.code,
            ..Default::default()
        };
        let (low, high) = (self.fields[0] as u32, (self.fields[0] >> 32) as u32);
        match (self.code, self.signal) {
            (SI_TIMER, _) => {
                out.timer = low;
                out.overrun = high;
                out.integer = self.fields[1] as i32;
                out.pointer = self.fields[1];
            }
            (code, Signal::SIGCHLD) if code > 0 => {
                out.pid = low;
                out.uid = high;
                out.status = self.fields[1] as i32;
                out.user_time = self.fields[2];
                out.system_time = self.fields[3];
            }
            (code, Signal::SIGSEGV | Signal::SIGBUS | Signal::SIGILL | Signal::SIGFPE) if code > 0 => {
                out.address = self.fields[0];
            }
            (code, Signal::SIGIO) if code > 0 => {
                out.band = self.fields[0] as u32;
                out.descriptor = self.fields[1] as i32;
            }
            _ => {
                out.pid = low;
                out.uid = high;
                out.integer = self.fields[1] as i32;
                out.pointer = self.fields[1];
            }
        }
        out
    }
}
