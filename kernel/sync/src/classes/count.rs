//! How many locks a thread takes, and how many each system call takes (specs/scalability.md §B).
//!
//! Counted is what a thread takes itself: not what interrupts and softirqs take that happen to come while it runs. So
//! the counts don't depend on the load. A thread writes its own counts with plain stores. At the end of a system call they are added
//! to a table of calls, which costs atomic operations: outside of the call, as [`mark`] tells who watches.

use core::fmt;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::registry::{CLASSES_MAX, ClassId};
use super::thread;

/// Locks of a call whose classes are told; those beyond are only counted.
const TOLD_MAX: usize = 128;
/// Calls that are told apart: Linux' numbers, then those from [`NATIVE`] on.
const CALLS_MAX: usize = LINUX_CALLS + 64;
const LINUX_CALLS: usize = 512;
const NATIVE: usize = 0x1000;
/// Outside of any call.
const NO_CALL: u16 = u16::MAX;

/// Part of each thread.
pub(super) struct Counts {
    total: AtomicU64,
    by_class: [AtomicU32; CLASSES_MAX],
    /// The call that the thread is in.
    call: AtomicU16,
    total_at_entry: AtomicU64,
    /// Classes of the locks taken in this call.
    told: [AtomicU16; TOLD_MAX],
}

struct Call {
    calls: AtomicU64,
    locks: AtomicU64,
    most: AtomicU64,
    by_class: [AtomicU32; CLASSES_MAX],
}

static CALLS: [Call; CALLS_MAX] = [const {
    Call {
        calls: AtomicU64::new(0),
        locks: AtomicU64::new(0),
        most: AtomicU64::new(0),
        by_class: [const { AtomicU32::new(0) }; CLASSES_MAX],
    }
}; CALLS_MAX];

impl Counts {
    pub(super) const fn new() -> Self {
        Self {
            total: AtomicU64::new(0),
            by_class: [const { AtomicU32::new(0) }; CLASSES_MAX],
            call: AtomicU16::new(NO_CALL),
            total_at_entry: AtomicU64::new(0),
            told: [const { AtomicU16::new(0) }; TOLD_MAX],
        }
    }

    /// The thread, which is the running one, has taken a lock.
    pub(super) fn add(&self, class: ClassId) {
        let before = self.total.load(Ordering::Relaxed);
        self.total.store(before + 1, Ordering::Relaxed);
        let by_class = &self.by_class[class.index()];
        by_class.store(by_class.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        let in_call = before.wrapping_sub(self.total_at_entry.load(Ordering::Relaxed)) as usize;
        if let Some(slot) = self.told.get(in_call) {
            slot.store(class.0, Ordering::Relaxed);
        }
    }
}

/// Locks that the running thread has taken.
pub(super) fn of_current_thread() -> u64 {
    thread::with_current(|locks| locks.counts.total.load(Ordering::Relaxed))
}

/// Writes the number of locks that the running thread has taken, in all and of each class.
///
/// # Errors
/// The writer's.
pub(super) fn write_current(to: &mut dyn fmt::Write) -> fmt::Result {
    thread::with_current(|locks| {
        writeln!(to, "total {}", locks.counts.total.load(Ordering::Relaxed))?;
        for class in ClassId::all() {
            match locks.counts.by_class[class.index()].load(Ordering::Relaxed) {
                0 => {}
                count => writeln!(to, "{class} {count}")?,
            }
        }
        Ok(())
    })
}

fn index_of(call: usize) -> usize {
    match call {
        0..LINUX_CALLS => call,
        NATIVE.. => LINUX_CALLS + (call - NATIVE).min(CALLS_MAX - LINUX_CALLS - 1),
        _ => LINUX_CALLS - 1,
    }
}

/// The running thread begins a system call.
pub(super) fn call_begins(number: u64) {
    let index = index_of(number as usize);
    thread::with_current(|locks| {
        let counts = &locks.counts;
        counts.total_at_entry.store(counts.total.load(Ordering::Relaxed), Ordering::Relaxed);
        counts.call.store(index as u16, Ordering::Relaxed);
    });
    mark(index);
}

/// The running thread ends it.
pub(super) fn call_ends() {
    mark(CALLS_MAX);
    thread::with_current(|locks| {
        let counts = &locks.counts;
        let Some(call) = CALLS.get(usize::from(counts.call.load(Ordering::Relaxed))) else { return };
        counts.call.store(NO_CALL, Ordering::Relaxed);
        let taken = counts.total.load(Ordering::Relaxed) - counts.total_at_entry.load(Ordering::Relaxed);
        call.calls.fetch_add(1, Ordering::Relaxed);
        call.locks.fetch_add(taken, Ordering::Relaxed);
        call.most.fetch_max(taken, Ordering::Relaxed);
        for slot in counts.told.iter().take(taken as usize) {
            call.by_class[usize::from(slot.load(Ordering::Relaxed))].fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Another thread runs on this CPU from now on.
pub(super) fn switched() {
    mark(
        thread::with_current(|locks| locks.counts.call.load(Ordering::Relaxed)).min(CALLS_MAX as u16).into(),
    );
}

/// The counts were written: who watches shall write out his.
pub(super) fn mark_end() {
    mark(CALLS_MAX + 1);
}

/// One byte for each call, one for what is outside of calls, and one for the end. Which of them is written tells who watches the machine from
/// outside (`tools/qemu-plugin`) what call this CPU is in from now on.
// SAFETY: nothing else has that name.
#[unsafe(no_mangle)]
static STARLING_CALL_MARKS: [core::sync::atomic::AtomicU8; CALLS_MAX + 2] =
    [const { core::sync::atomic::AtomicU8::new(0) }; CALLS_MAX + 2];

#[inline(never)]
fn mark(index: usize) {
    STARLING_CALL_MARKS[index].store(1, Ordering::Relaxed);
}

/// Writes a line for each call made: number, calls, locks, most locks of one call; then a line for each of its classes.
///
/// # Errors
/// The writer's.
pub(super) fn write_calls(to: &mut dyn fmt::Write) -> fmt::Result {
    for (index, call) in CALLS.iter().enumerate() {
        let calls = call.calls.load(Ordering::Relaxed);
        if calls == 0 {
            continue;
        }
        let number = if index < LINUX_CALLS { index } else { index - LINUX_CALLS + NATIVE };
        let (locks, most) = (call.locks.load(Ordering::Relaxed), call.most.load(Ordering::Relaxed));
        writeln!(to, "call {number} {calls} {locks} {most}")?;
        for class in ClassId::all() {
            match call.by_class[class.index()].load(Ordering::Relaxed) {
                0 => {}
                count => writeln!(to, "class {count} {class}")?,
            }
        }
    }
    Ok(())
}
