//! What a tracer wants to be told, and how a tracee goes on.

use vfs::Capabilities;

use crate::errno::Errno;
use crate::task::Task;

bitflags::bitflags! {
    /// `PTRACE_O_*`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Options: u64 {
        /// Stops at calls are told apart from SIGTRAP.
        const SYSGOOD = 1;
        /// [`Event::Fork`]
        const FORK = 1 << 1;
        /// [`Event::Vfork`]
        const VFORK = 1 << 2;
        /// [`Event::Clone`]
        const CLONE = 1 << 3;
        /// [`Event::Exec`]
        const EXEC = 1 << 4;
        /// [`Event::VforkDone`]
        const VFORK_DONE = 1 << 5;
        /// [`Event::Exit`]
        const EXIT = 1 << 6;
        /// [`Event::Seccomp`]
        const SECCOMP = 1 << 7;
        /// The tracee is killed when the tracer ends.
        const EXIT_KILL = 1 << 20;
        /// Filters have no effect on the tracee.
        const SUSPEND_SECCOMP = 1 << 21;
    }
}

impl Options {
    /// The options of a request.
    ///
    /// # Errors
    /// `invalid` for those that there are none of; EPERM for who may not suspend filters.
    pub(super) fn read(task: &Task, bits: u64, invalid: Errno) -> Result<Options, Errno> {
        let options = Options::from_bits(bits).ok_or(invalid)?;
        if options.contains(Options::SUSPEND_SECCOMP) {
            task.credentials.require(Capabilities::SYS_ADMIN)?;
            if task.thread.is_filtered() {
                return Err(Errno::EPERM);
            }
        }
        Ok(options)
    }
}

/// `PTRACE_EVENT_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Event {
    /// A process was made by fork.
    Fork = 1,
    /// A process was made by vfork.
    Vfork = 2,
    /// A thread was made, or a process that does not end with SIGCHLD.
    Clone = 3,
    /// Another program runs.
    Exec = 4,
    /// The child of a vfork has given the memory back.
    VforkDone = 5,
    /// The thread ends.
    Exit = 6,
    /// A filter asks.
    Seccomp = 7,
}

impl Event {
    /// The option that asks for it.
    pub(super) fn option(self) -> Options {
        Options::from_bits_retain(1 << self as u8)
    }
}

/// How a tracee runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Course {
    /// Until something comes.
    #[default]
    Free,
    /// Until a call begins or ends.
    Calls,
    /// Until a call begins, which is not made.
    Emulated,
    /// For one instruction.
    Step,
    /// For one instruction; a call is not made.
    EmulatedStep,
}

impl Course {
    pub(super) fn steps(self) -> bool {
        matches!(self, Course::Step | Course::EmulatedStep)
    }

    pub(super) fn stops_before_calls(self) -> bool {
        matches!(self, Course::Calls | Course::Emulated | Course::EmulatedStep)
    }

    pub(super) fn emulates(self) -> bool {
        matches!(self, Course::Emulated | Course::EmulatedStep)
    }
}
