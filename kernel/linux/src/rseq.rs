//! Restartable sequences (rseq(2)).
//!
//! A thread registers an area where the kernel keeps the number of the CPU it runs on. Before user mode is entered after the thread may
//! have been preempted or moved, or when a signal is delivered, the area is updated; if the thread was inside a critical
//! section that it announced there, it continues at the section's abort handler.
//!
//! Whether other threads have run is asked with interrupts off, right before user mode is entered: a thread may be switched away from at any
//! time before, so an earlier answer may be wrong by then.

use crate::abi::{CriticalSection, RestartableSequence};
use crate::errno::{Errno, SysResult};
use crate::signal::information::SignalInformation;
use crate::signal::send;
use crate::signal::set::Signal;
use crate::task::{SequenceArea, Task};
use crate::user_pointer::UserPointer;

/// Bytes of the area that have a meaning (AT_RSEQ_FEATURE_SIZE).
pub const FEATURE_BYTES: u32 = 28;
/// Alignment of the area (AT_RSEQ_ALIGN).
pub const ALIGNMENT: u32 = 32;
const UNINITIALIZED: u32 = u32::MAX;

/// Registers or removes the area.
pub fn rseq(task: &mut Task, address: u64, bytes: u32, flags: u32, signature: u32) -> SysResult {
    const UNREGISTER: u32 = 1;
    let known = task.sequence;
    if flags & UNREGISTER != 0 {
        if flags != UNREGISTER || known.address != address || known.address == 0 {
            return Err(Errno::EINVAL);
        }
        if known.bytes != bytes {
            return Err(Errno::EINVAL);
        }
        if known.signature != signature {
            return Err(Errno::EPERM);
        }
        let area = RestartableSequence { cpu_id: UNINITIALIZED, ..Default::default() };
        UserPointer::<RestartableSequence>::new(address).write(&area)?;
        task.sequence = SequenceArea::default();
        return Ok(0);
    }
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    if known.address != 0 {
        let same = known.address == address && known.bytes == bytes;
        return Err(match (same, known.signature == signature) {
            (false, _) => Errno::EINVAL,
            (true, false) => Errno::EPERM,
            (true, true) => Errno::EBUSY,
        });
    }
    if bytes < 32 || !address.is_multiple_of(u64::from(ALIGNMENT)) {
        return Err(Errno::EINVAL);
    }
    if address >= machine::address::USER_END as u64 {
        return Err(Errno::EFAULT);
    }
    task.sequence = SequenceArea { address, bytes, signature, cpu: UNINITIALIZED, switches: u64::MAX };
    Ok(0)
}

/// Other threads have run since the last call; user mode is entered when that is not so any more.
#[inline(never)]
pub fn after_switch(task: &mut Task) {
    // Read first: what happens meanwhile is seen by the next look.
    task.sequence.switches = sched::current().switches();
    if task.sequence.address != 0 {
        update(task);
    }
}

/// A signal is about to be delivered: the section is left before the frame is built.
pub fn on_signal(task: &mut Task) {
    if task.sequence.address != 0 {
        update(task);
    }
}

fn update(task: &mut Task) {
    if refresh(task).is_err() {
        task.sequence = SequenceArea::default();
        send::force(&task.thread, SignalInformation::from_kernel(Signal::SIGSEGV));
    }
}

fn refresh(task: &mut Task) -> Result<(), Errno> {
    leave_section(task)?;
    let cpu = machine::cpu::current().index() as u32;
    if cpu != task.sequence.cpu {
        let words = [cpu, cpu];
        UserPointer::<[u32; 2]>::new(task.sequence.address).write(&words)?;
        // node_id and mm_cid follow flags: one node, and the CPU's number serves as concurrency id.
        UserPointer::<[u32; 2]>::new(task.sequence.address + 20).write(&[0, cpu])?;
        task.sequence.cpu = cpu;
    }
    Ok(())
}

/// Continues at the abort handler if the thread is inside its critical section.
fn leave_section(task: &mut Task) -> Result<(), Errno> {
    const SECTION_OFFSET: u64 = 8;
    let place = UserPointer::<u64>::new(task.sequence.address + SECTION_OFFSET);
    let announced = place.read()?;
    if announced == 0 {
        return Ok(());
    }
    let section = UserPointer::<CriticalSection>::new(announced).read()?;
    let end = machine::address::USER_END as u64;
    if section.abort >= end || section.version != 0 {
        return Err(Errno::EFAULT);
    }
    let inside = task.user.registers.rip.wrapping_sub(section.start) < section.length;
    place.write(&0)?;
    if inside {
        let signature = UserPointer::<u32>::new(section.abort.wrapping_sub(4)).read()?;
        if signature != task.sequence.signature {
            return Err(Errno::EFAULT);
        }
        task.user.registers.rip = section.abort;
    }
    Ok(())
}
