//! The operations of futex(2).

use alloc::sync::Arc;

use machine::address::UserAddr;
use machine::fault::Access;
use machine::time::now_ns;
use machine::user_memory;
use sched::{WaitError, WakeBatch};

use super::inheritance;
use super::key::Key;
use super::queue::{self, Waiter, withdraw};
use crate::abi::Timespec;
use crate::errno::{Errno, SysResult};
use crate::task::{Pause, Task};
use crate::time::Clock;
use crate::time::wall_clock::{Until, block_interruptible};
use crate::user_pointer::UserPointer;

const COMMAND_MASK: u32 = 0x7f;
const PRIVATE: u32 = 0x80;
const REALTIME: u32 = 0x100;
const WAIT: u32 = 0;
const WAKE: u32 = 1;
const REQUEUE: u32 = 3;
const CMP_REQUEUE: u32 = 4;
const WAKE_OP: u32 = 5;
const LOCK_PI: u32 = 6;
const UNLOCK_PI: u32 = 7;
const TRYLOCK_PI: u32 = 8;
const WAIT_BITSET: u32 = 9;
const WAKE_BITSET: u32 = 10;
const WAIT_REQUEUE_PI: u32 = 11;
const CMP_REQUEUE_PI: u32 = 12;
const LOCK_PI2: u32 = 13;
const MATCH_ANY: u32 = u32::MAX;
/// Tries to bring in a page that goes away again each time; a program that achieves that gets EFAULT.
pub(super) const FAULT_TRIES: u32 = 16;

/// Dispatches by operation.
pub fn futex(
    task: &mut Task,
    address: u64,
    operation: u32,
    value: u32,
    timeout: u64,
    second: u64,
    third: u32,
) -> SysResult {
    let shared = operation & PRIVATE == 0;
    let command = operation & COMMAND_MASK;
    let realtime = operation & REALTIME != 0;
    if realtime && !matches!(command, WAIT | WAIT_BITSET | WAIT_REQUEUE_PI | LOCK_PI2) {
        return Err(Errno::ENOSYS);
    }
    let wake_second = timeout as i32 as usize;
    match command {
        WAIT | WAIT_BITSET => {
            let deadline = deadline(task, command, realtime, timeout)?;
            let bitset = if command == WAIT { MATCH_ANY } else { third };
            wait(task, address, value, shared, bitset, deadline)
        }
        WAKE => wake(task, address, shared, MATCH_ANY, value),
        WAKE_BITSET => wake(task, address, shared, third, value),
        REQUEUE => requeue(task, address, shared, [second, timeout], value, None),
        CMP_REQUEUE => requeue(task, address, shared, [second, timeout], value, Some(third)),
        WAKE_OP => wake_operation(task, address, second, shared, value, wake_second, third),
        LOCK_PI | LOCK_PI2 => {
            let deadline = deadline(task, command, realtime, timeout)?;
            inheritance::lock(task, address, shared, deadline)
        }
        TRYLOCK_PI => inheritance::try_lock(task, address, shared),
        UNLOCK_PI => inheritance::unlock(task, address, shared),
        WAIT_REQUEUE_PI => {
            let deadline = deadline(task, command, realtime, timeout)?;
            inheritance::wait_requeue(task, [address, second], value, shared, deadline)
        }
        CMP_REQUEUE_PI => inheritance::requeue(task, address, shared, (second, timeout as u32), value, third),
        _ => Err(Errno::ENOSYS),
    }
}

/// When a wait ends: relative to now for WAIT, a time of day for LOCK_PI, of the clock that the flag says for all others.
fn deadline(task: &Task, command: u32, realtime: bool, timeout: u64) -> Result<Option<Until>, Errno> {
    let Some(pointer) = UserPointer::<Timespec>::new(timeout).given() else { return Ok(None) };
    let ns = pointer.read()?.to_ns().ok_or(Errno::EINVAL)?;
    Ok(Some(match (command, realtime) {
        (WAIT, _) => Until::Monotonic(now_ns().saturating_add(ns)),
        (LOCK_PI, _) | (_, true) => Until::TimeOfDay(ns),
        (_, false) => Until::Monotonic(task.to_kernel_time(Clock::Monotonic, ns)),
    }))
}

/// Reads the word with the bucket locked, where no page can be brought in; `None` when it must be.
pub(super) fn load_locked(address: u64) -> Option<u32> {
    user_memory::load_u32(UserAddr::new(address)).ok()
}

/// Brings the word's page in.
pub(super) fn fault_in(address: u64) -> Result<(), Errno> {
    UserPointer::<u32>::new(address).read().map(drop)
}

/// The thread's waiter, made on its first wait.
pub(super) fn waiter_of(task: &mut Task) -> Result<Arc<Waiter>, Errno> {
    if task.futex_waiter.is_none() {
        task.futex_waiter = Some(Waiter::new()?);
    }
    task.futex_waiter.clone().ok_or(Errno::ENOMEM)
}

/// Sleeps while the word has the value.
fn wait(
    task: &mut Task,
    address: u64,
    value: u32,
    shared: bool,
    bitset: u32,
    until: Option<Until>,
) -> SysResult {
    if bitset == 0 {
        return Err(Errno::EINVAL);
    }
    let key = Key::of(task, address, shared)?;
    let waiter = waiter_of(task)?;
    enqueue(key, address, value, bitset, &waiter)?;
    let slept = block_interruptible(|| waiter.is_woken(), until);
    if slept.is_ok() || !withdraw(&waiter) {
        return Ok(0);
    }
    match (slept, until) {
        (Err(WaitError::TimedOut), _) => Err(Errno::ETIMEDOUT),
        (_, None) => Err(Errno::ERESTARTSYS),
        (_, Some(until)) => Err(task.pause(Pause::Futex { address, value, shared, bitset, until })),
    }
}

/// Queues the waiter if the word has the value.
pub(super) fn enqueue(
    key: Key,
    address: u64,
    value: u32,
    bitset: u32,
    waiter: &Arc<Waiter>,
) -> Result<(), Errno> {
    for _ in 0..FAULT_TRIES {
        {
            let mut bucket = queue::lock(&key);
            if let Some(found) = load_locked(address) {
                if found != value {
                    return Err(Errno::EAGAIN);
                }
                return bucket.push(key, bitset, waiter);
            }
        }
        fault_in(address)?;
    }
    Err(Errno::EFAULT)
}

/// Goes on with an interrupted wait.
pub fn resume(
    task: &mut Task,
    address: u64,
    value: u32,
    shared: bool,
    bitset: u32,
    until: Until,
) -> SysResult {
    wait(task, address, value, shared, bitset, Some(until))
}

fn wake(task: &Task, address: u64, shared: bool, bitset: u32, count: u32) -> SysResult {
    if bitset == 0 {
        return Err(Errno::EINVAL);
    }
    let key = Key::of(task, address, shared)?;
    let _batch = WakeBatch::begin();
    // As in Linux, "at most 0" still means one.
    let woken = queue::lock(&key).wake(&key, bitset, count.max(1) as usize)?;
    if woken == 0 && inheritance::is_waited_for(&key) { Err(Errno::EINVAL) } else { Ok(woken) }
}

/// Wakes one waiter of a word that the kernel changed itself, whichever kind of futex it is.
pub fn wake_address(task: &Task, address: u64) {
    let _ = wake(task, address, true, MATCH_ANY, 1);
}

/// `second` is the other address and the number to requeue.
fn requeue(
    task: &Task,
    address: u64,
    shared: bool,
    second: [u64; 2],
    count: u32,
    compare: Option<u32>,
) -> SysResult {
    let (count, moved_limit) = (count as i32, second[1] as i32);
    if count < 0 || moved_limit < 0 {
        return Err(Errno::EINVAL);
    }
    let from = Key::of(task, address, shared)?;
    let to = Key::of(task, second[0], shared)?;
    for _ in 0..FAULT_TRIES {
        let mut must_fault = false;
        let outcome = queue::wake_and_requeue(from, to, count as usize, moved_limit as usize, || {
            let Some(expected) = compare else { return Ok(()) };
            match load_locked(address) {
                Some(found) if found == expected => Ok(()),
                Some(_) => Err(Errno::EAGAIN),
                None => {
                    must_fault = true;
                    Err(Errno::EFAULT)
                }
            }
        });
        if !must_fault {
            return outcome.map(|(woken, moved)| woken + moved);
        }
        fault_in(address)?;
    }
    Err(Errno::EFAULT)
}

/// The operation that WAKE_OP's last argument encodes: changes the second word, then compares its old value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WordOperation {
    operation: u32,
    comparison: u32,
    operand: u32,
    reference: i32,
}

impl WordOperation {
    pub(super) fn decode(word: u32) -> Result<WordOperation, Errno> {
        const SHIFT: u32 = 8;
        let sign_extend = |field: u32| ((field << 20) as i32) >> 20;
        let mut operand = sign_extend(word >> 12 & 0xfff) as u32;
        let operation = word >> 28;
        if operation & SHIFT != 0 {
            operand = 1u32.wrapping_shl(operand);
        }
        let decoded = WordOperation {
            operation: operation & !SHIFT,
            comparison: word >> 24 & 0xf,
            operand,
            reference: sign_extend(word & 0xfff),
        };
        if decoded.operation > 4 || decoded.comparison > 5 { Err(Errno::ENOSYS) } else { Ok(decoded) }
    }

    pub(super) fn apply(&self, old: u32) -> u32 {
        match self.operation {
            0 => self.operand,
            1 => old.wrapping_add(self.operand),
            2 => old | self.operand,
            3 => old & !self.operand,
            _ => old ^ self.operand,
        }
    }

    pub(super) fn holds(&self, old: u32) -> bool {
        let old = old as i32;
        match self.comparison {
            0 => old == self.reference,
            1 => old != self.reference,
            2 => old < self.reference,
            3 => old <= self.reference,
            4 => old > self.reference,
            _ => old >= self.reference,
        }
    }
}

#[inline(never)]
fn wake_operation(
    task: &Task,
    address: u64,
    second: u64,
    shared: bool,
    count: u32,
    second_count: usize,
    word: u32,
) -> SysResult {
    let operation = WordOperation::decode(word)?;
    let one = Key::of(task, address, shared)?;
    let two = Key::of(task, second, shared)?;
    let target = UserAddr::new(second);
    for _ in 0..FAULT_TRIES {
        let batch = WakeBatch::begin();
        let woken = queue::with_both(&one, &two, |first, other| {
            let old = exchange(target, &operation)?;
            let wake_all = || {
                let mut woken = first.wake(&one, MATCH_ANY, count as usize)?;
                if operation.holds(old) {
                    woken += other.unwrap_or(first).wake(&two, MATCH_ANY, second_count)?;
                }
                Ok(woken)
            };
            Some(wake_all())
        });
        drop(batch);
        if let Some(woken) = woken {
            return woken;
        }
        // Brings the page in, writable.
        task.address_space.fault(target, Access::Write).map_err(|_| Errno::EFAULT)?;
    }
    Err(Errno::EFAULT)
}

/// Changes the word; its old value, or `None` when the page is not there.
fn exchange(target: UserAddr, operation: &WordOperation) -> Option<u32> {
    let mut old = user_memory::load_u32(target).ok()?;
    loop {
        let found = user_memory::compare_exchange_u32(target, old, operation.apply(old)).ok()?;
        if found == old {
            return Some(old);
        }
        old = found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn encode(operation: u32, comparison: u32, operand: u32, reference: u32) -> u32 {
        operation << 28 | comparison << 24 | (operand & 0xfff) << 12 | reference & 0xfff
    }

    #[test]
    fn word_operations_decode_as_the_manual_says() {
        let add = WordOperation::decode(encode(1, 4, 5, 3)).expect("valid");
        assert_eq!(add.apply(10), 15);
        assert!(add.holds(4) && !add.holds(3));
        let shifted = WordOperation::decode(encode(8 | 2, 0, 4, 0xfff)).expect("valid");
        assert_eq!(shifted.apply(1), 17);
        assert!(shifted.holds(u32::MAX), "operands are signed 12-bit numbers");
        assert_eq!(WordOperation::decode(encode(7, 0, 0, 0)), Err(Errno::ENOSYS));
        assert_eq!(WordOperation::decode(encode(0, 9, 0, 0)), Err(Errno::ENOSYS));
    }
}
