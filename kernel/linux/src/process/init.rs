//! Process 1, which the kernel plays itself, and the end of the command.
//!
//! Process 1 has no thread and no memory. It is the parent of the command (process 2) and the heir of orphans, whose
//! ends it takes note of at once, so that none stays a zombie. When the command ends, the registered [`EndOfCommand`] hears of it;
//! the kernel binary connects that with the host.

use alloc::sync::Arc;

use sync::Once;

use super::group::{ProcessGroup, Session};
use super::limits;
use super::process::{Inheritance, Process};
use super::table::{self, INIT, ReservedPid};
use crate::credentials::identity::Credentials;
use crate::errno::Errno;
use crate::signal::actions::SignalActions;

/// The number of the command.
pub const COMMAND: table::Pid = 2;

/// How a program wants the machine to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineEnd {
    /// It starts anew.
    Restart,
    /// It stops.
    Halt,
    /// It is turned off.
    PowerOff,
}

/// Hears of the end of the command, and of the machine.
pub trait EndOfCommand: Send + Sync {
    /// The command ended with this status, encoded as wait4(2) does. Called once, in thread context, with the process already a zombie.
    fn command_ended(&self, status: u32);

    /// A program ends the machine. Called in thread context; all that programs have written has been handed on.
    fn machine_ended(&self, how: MachineEnd) -> !;
}

static PROCESS: Once<Arc<Process>> = Once::new();
static END: Once<&'static dyn EndOfCommand> = Once::new();

/// Kernel memory and the like that a thread needs; limits the default number of threads.
const BYTES_PER_THREAD: u64 = 16 << 10;

/// Makes process 1. Called once at start-up, before any other process is made.
///
/// # Errors
/// ENOMEM.
pub fn start(end: &'static dyn EndOfCommand) -> Result<(), Errno> {
    END.call_once(|| end);
    let reserved = ReservedPid::claim(INIT)?.ok_or(Errno::EEXIST)?;
    let group = ProcessGroup::new(INIT, Session::new(INIT)?)?;
    let threads = crate::memory::totals().total_bytes / BYTES_PER_THREAD;
    let mut name = [0; super::thread::NAME_BYTES];
    name[..4].copy_from_slice(b"init");
    let no_memory = |_| Errno::ENOMEM;
    let process = memory::fallible::try_arc(Process::new(Inheritance {
        pid: INIT,
        space: None,
        parent: None,
        exit_signal: 0,
        group: group.clone(),
        actions: SignalActions::new().and_then(memory::fallible::try_arc).map_err(no_memory)?,
        address_space: None,
        limits: limits::initial(threads),
        executable: Default::default(),
        credentials: memory::fallible::try_arc(Credentials::root()?).map_err(no_memory)?,
        name,
    }))
    .map_err(no_memory)?;
    group.add(&process, || true)?;
    table::insert_process(&process);
    reserved.keep();
    PROCESS.call_once(|| process);
    Ok(())
}

/// Process 1.
///
/// # Panics
/// Before [`start`]: no process exists then that could ask.
pub fn process() -> Arc<Process> {
    PROCESS.get().expect("process 1 is made before any other").clone()
}

/// Ends the machine for a program that may do so.
///
/// # Panics
/// Before [`start`]: no program exists then.
pub(crate) fn end_machine(how: MachineEnd) -> ! {
    END.get().expect("there is process 1 before any other").machine_ended(how)
}

/// A child of process 1 ended.
pub(crate) fn note_end(process: &Process) {
    if process.pid() == COMMAND
        && let Some(end) = END.get()
    {
        end.command_ended(process.exit_status.load(core::sync::atomic::Ordering::Relaxed));
    }
}
