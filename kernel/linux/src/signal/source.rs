//! Where signalfd descriptors get their signals from: the calling thread and its process.

use core::sync::atomic::{AtomicU64, Ordering};

use vfs::signalfd::{RECORD_BYTES, SignalSource};
use vfs::{PollEvents, PollTable};
use zerocopy::IntoBytes;

use super::set::SignalSet;
use crate::abi::SignalFdInformation;
use crate::errno::{Errno, SysResult};
use crate::process::thread::Thread;
use crate::task::Task;
use crate::user_pointer::UserPointer;

const _: () = assert!(RECORD_BYTES == size_of::<SignalFdInformation>());

struct Caller;

/// Registers with the file layer. Once, at start-up.
pub(crate) fn register() {
    static CALLER: Caller = Caller;
    vfs::signalfd::set_source(&CALLER);
}

fn pending(thread: &Thread, set: u64) -> bool {
    let signals = thread.process().signals.lock();
    let pending = signals.pending.set() | thread.pending.lock().set();
    !(pending & SignalSet::from_bits(set)).is_empty()
}

impl SignalSource for Caller {
    fn take(&self, set: u64) -> Option<[u8; RECORD_BYTES]> {
        let thread = crate::terminal::calling_thread()?;
        let held_back = !SignalSet::from_bits(set);
        let taken = {
            let mut signals = thread.process().signals.lock();
            let taken = thread.pending.lock().take(held_back);
            taken.or_else(|| signals.pending.take(held_back))
        }?;
        crate::timer::signal_taken(thread.process(), &taken);
        let mut record = [0; RECORD_BYTES];
        let taken = taken.seen_in(thread.credentials().space());
        record.copy_from_slice(taken.to_signalfd().as_bytes());
        Some(record)
    }

    fn is_pending(&self, set: u64) -> bool {
        crate::terminal::calling_thread().is_some_and(|thread| pending(&thread, set))
    }

    fn wait(&self, set: &AtomicU64) -> vfs::Result<()> {
        let thread = crate::terminal::calling_thread().ok_or(vfs::Error::Invalid)?;
        let waited = thread
            .process()
            .signal_event
            .wait_interruptible(|| pending(&thread, set.load(Ordering::Acquire)));
        waited.map_err(|_| vfs::Error::Interrupted)
    }

    fn register(&self, table: &mut PollTable<'_>) {
        if let Some(thread) = crate::terminal::calling_thread() {
            table.register(&thread.process().signal_pollers);
        }
    }
}

/// Tells those who poll a signalfd that a signal came.
pub(super) fn notify(process: &crate::process::process::Process) {
    process.signal_event.wake_all();
    process.signal_pollers.notify(PollEvents::INPUT);
}

/// Makes a descriptor that signals can be read from.
pub fn signalfd(task: &mut Task, descriptor: i32, mask: u64, size: usize) -> SysResult {
    signalfd4(task, descriptor, mask, size, 0)
}

/// Makes or changes a descriptor that signals can be read from.
pub fn signalfd4(task: &mut Task, descriptor: i32, mask: u64, size: usize, flags: u32) -> SysResult {
    let known = vfs::OpenFlags::NON_BLOCK | vfs::OpenFlags::CLOSE_ON_EXEC;
    let flags =
        vfs::OpenFlags::from_bits(flags).filter(|flags| known.contains(*flags)).ok_or(Errno::EINVAL)?;
    if size != 8 {
        return Err(Errno::EINVAL);
    }
    let set = SignalSet::from_bits(UserPointer::<u64>::new(mask).read()?).blockable().bits();
    if descriptor != -1 {
        let file = task.usable_file(descriptor)?;
        vfs::signalfd::SignalFile::of(&file)?.set(set);
        notify(task.process());
        return Ok(descriptor as usize);
    }
    let close_on_exec = flags.contains(vfs::OpenFlags::CLOSE_ON_EXEC);
    let file = vfs::signalfd::create(set, flags - vfs::OpenFlags::CLOSE_ON_EXEC)?;
    task.install_file(file, close_on_exec)
}
