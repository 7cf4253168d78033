//! Robust futexes: what a thread that ends while it holds locks leaves to the others (get_robust_list(2)).
//!
//! The list is in user memory and may be anything: it is walked for at most `ENTRIES_MAX` entries, and every access may fail.

use crate::abi::RobustListHead;
use crate::credentials::inspection::Inspector;
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::UserPointer;

const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const TID_MASK: u32 = 0x3fff_ffff;
/// As in Linux; a longer list is a loop or an attack.
const ENTRIES_MAX: usize = 2048;
/// Tries against other threads that change the word meanwhile.
const EXCHANGE_TRIES: u32 = 64;

/// Registers the calling thread's list.
pub fn set_robust_list(task: &mut Task, head: u64, size: usize) -> SysResult {
    if size != size_of::<RobustListHead>() {
        return Err(Errno::EINVAL);
    }
    task.robust_list = head;
    task.thread.robust_list.store(head, core::sync::atomic::Ordering::Relaxed);
    Ok(0)
}

/// Reads a thread's registration.
pub fn get_robust_list(task: &mut Task, pid: i32, head: u64, size: u64) -> SysResult {
    let found = if pid == 0 {
        task.robust_list
    } else {
        let thread = u32::try_from(pid).ok().and_then(|pid| task.find_thread(pid)).ok_or(Errno::ESRCH)?;
        let list = || thread.robust_list.load(core::sync::atomic::Ordering::Relaxed);
        Inspector::calling(task).inspect(thread.process(), list)?
    };
    UserPointer::<u64>::new(size).write(&(size_of::<RobustListHead>() as u64))?;
    UserPointer::<u64>::new(head).write(&found)?;
    Ok(0)
}

/// Marks the locks on the ending thread's list as left by a dead owner.
pub(crate) fn release(task: &mut Task) {
    let Ok(head) = UserPointer::<RobustListHead>::new(task.robust_list).read() else { return };
    let futex = |entry: u64| (entry & !1).wrapping_add(head.futex_offset as u64);
    let mut entry = head.list;
    for _ in 0..ENTRIES_MAX {
        if entry & !1 == task.robust_list {
            break;
        }
        // Read on before the owner of the next lock may free this entry.
        let next = UserPointer::<u64>::new(entry & !1).read();
        if entry != head.pending && mark(task, futex(entry), entry & 1 != 0, false).is_err() {
            return;
        }
        let Ok(next) = next else { return };
        entry = next;
    }
    if head.pending & !1 != 0 {
        let _ = mark(task, futex(head.pending), head.pending & 1 != 0, true);
    }
}

fn mark(task: &Task, address: u64, priority_inheriting: bool, pending: bool) -> Result<(), Errno> {
    if !address.is_multiple_of(4) {
        return Err(Errno::EFAULT);
    }
    let tid = task.seen_number(task.thread.tid());
    let target = machine::address::UserAddr::new(address);
    for _ in 0..EXCHANGE_TRIES {
        let old = UserPointer::<u32>::new(address).read()?;
        // The lock was freed but its waiters not woken yet when the thread died.
        if pending && !priority_inheriting && old & TID_MASK == 0 {
            super::wake_address(task, address);
            return Ok(());
        }
        if old & TID_MASK != tid {
            return Ok(());
        }
        let new = old & WAITERS | OWNER_DIED;
        let found =
            machine::user_memory::compare_exchange_u32(target, old, new).map_err(|_| Errno::EFAULT)?;
        if found == old {
            if !priority_inheriting && old & WAITERS != 0 {
                super::wake_address(task, address);
            }
            return Ok(());
        }
    }
    Ok(())
}
