//! membarrier(2): orders accesses to memory of threads that run, at the cost of who asks for it.
//!
//! A processor that is interrupted makes a full barrier. One that runs none of the process's threads need not be: it makes one when it
//! switches to such a thread. So a private barrier interrupts the processors that run the process, and nobody else.

use core::sync::atomic::{Ordering, fence};

use machine::cpu::{self, CpuId, CpuSet};

use crate::errno::{Errno, SysResult};
use crate::task::Task;

const QUERY: u32 = 0;
const GLOBAL: u32 = 1;
const GLOBAL_EXPEDITED: u32 = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: u32 = 1 << 2;
const PRIVATE_EXPEDITED: u32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: u32 = 1 << 4;
const SYNC_CORE: u32 = 1 << 5;
const REGISTER_SYNC_CORE: u32 = 1 << 6;
const SEQUENCE: u32 = 1 << 7;
const REGISTER_SEQUENCE: u32 = 1 << 8;
/// All of them.
const KNOWN: u32 = (1 << 9) - 1;
/// With [`SEQUENCE`]: one processor only.
const FLAG_CPU: u32 = 1;

/// Orders memory accesses of a process's threads.
pub fn membarrier(task: &mut Task, command: u32, flags: u32, number: i32) -> SysResult {
    if flags != 0 && (command != SEQUENCE || flags != FLAG_CPU) {
        return Err(Errno::EINVAL);
    }
    let registered = &task.process().membarrier;
    let is_registered = || registered.load(Ordering::Relaxed) & (command << 1) != 0;
    match command {
        QUERY => return Ok(KNOWN as usize),
        REGISTER_GLOBAL_EXPEDITED | REGISTER_PRIVATE_EXPEDITED | REGISTER_SYNC_CORE | REGISTER_SEQUENCE => {
            registered.fetch_or(command, Ordering::Relaxed);
        }
        PRIVATE_EXPEDITED | SYNC_CORE | SEQUENCE if !is_registered() => return Err(Errno::EPERM),
        PRIVATE_EXPEDITED => interrupt(processors_of(task), barrier),
        SEQUENCE => {
            let wanted = usize::try_from(number).ok().filter(|_| flags & FLAG_CPU != 0);
            let wanted =
                wanted.map_or(CpuSet::ALL, |number| CpuId::new(number).map_or(CpuSet::EMPTY, CpuSet::only));
            interrupt(processors_of(task).intersection(wanted), leave_sequence);
        }
        // A processor that comes back to the process from the idle loop has not been serialised by a load of page tables.
        GLOBAL | GLOBAL_EXPEDITED | SYNC_CORE => interrupt(cpu::online(), barrier),
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// Those that run threads of the process, this one among them.
fn processors_of(task: &Task) -> CpuSet {
    fence(Ordering::SeqCst);
    task.process().look_at_address_space(|space| space.running_on()).unwrap_or(CpuSet::EMPTY)
}

/// An interrupt serialises the core on its return to user mode, too.
fn interrupt(processors: CpuSet, function: fn(usize)) {
    sync::remote::call(processors, function, 0);
    fence(Ordering::SeqCst);
}

fn barrier(_: usize) {
    fence(Ordering::SeqCst);
}

/// The thread that runs here looks at its sequence (`rseq`) before it goes on.
fn leave_sequence(_: usize) {
    fence(Ordering::SeqCst);
    sched::Thread::disturb_program();
}
