//! futex_waitv(2): waiting on several futexes at once.

use alloc::sync::Arc;
use alloc::vec::Vec;

use sched::WaitError;

use super::key::Key;
use super::queue::{Waiter, withdraw};
use crate::abi::{FutexWaiter, Timespec};
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::time::Clock;
use crate::time::wall_clock::{Until, block_interruptible};
use crate::user_pointer::UserPointer;

const WAITERS_MAX: u32 = 128;
const SIZE_32: u32 = 2;
const PRIVATE: u32 = 128;
const CLOCK_REALTIME: u32 = 0;
const CLOCK_MONOTONIC: u32 = 1;

/// Sleeps while each word has its value; returns the index of one that was woken.
#[inline(never)]
pub fn futex_waitv(
    task: &mut Task,
    list: u64,
    count: u32,
    flags: u32,
    timeout: u64,
    clock: u32,
) -> SysResult {
    if flags != 0 || count == 0 || count > WAITERS_MAX {
        return Err(Errno::EINVAL);
    }
    let until = match UserPointer::<Timespec>::new(timeout).given() {
        None => None,
        Some(pointer) => {
            let ns = pointer.read()?.to_ns().ok_or(Errno::EINVAL)?;
            Some(match clock {
                CLOCK_REALTIME => Until::TimeOfDay(ns),
                CLOCK_MONOTONIC => Until::Monotonic(task.to_kernel_time(Clock::Monotonic, ns)),
                _ => return Err(Errno::EINVAL),
            })
        }
    };
    let wanted = UserPointer::<FutexWaiter>::new(list).read_vector(count as usize)?;
    let mut waiters: Vec<Arc<Waiter>> = memory::fallible::try_vec(wanted.len()).map_err(|_| Errno::ENOMEM)?;
    let queued = wanted.iter().try_for_each(|one| {
        let waiter = Waiter::new()?;
        enqueue(task, one, &waiter)?;
        waiters.push(waiter);
        Ok(())
    });
    let slept = match queued {
        Ok(()) => Ok(block_interruptible(|| waiters.iter().any(|w| w.is_woken()), until)),
        Err(errno) => Err(errno),
    };
    // All are taken out; whoever is not there any more was woken.
    let mut woken = None;
    for (index, waiter) in waiters.iter().enumerate() {
        if !withdraw(waiter) && woken.is_none() {
            woken = Some(index);
        }
    }
    match (woken, slept) {
        (Some(index), _) => Ok(index),
        (None, Err(errno)) => Err(errno),
        (None, Ok(Err(WaitError::TimedOut))) => Err(Errno::ETIMEDOUT),
        (None, Ok(_)) => Err(Errno::ERESTARTSYS),
    }
}

fn enqueue(task: &Task, wanted: &FutexWaiter, waiter: &Arc<Waiter>) -> Result<(), Errno> {
    if wanted.flags & !PRIVATE != SIZE_32 || wanted.reserved != 0 || wanted.value > u32::MAX.into() {
        return Err(Errno::EINVAL);
    }
    let key = Key::of(task, wanted.address, wanted.flags & PRIVATE == 0)?;
    super::calls::enqueue(key, wanted.address, wanted.value as u32, u32::MAX, waiter)
}
