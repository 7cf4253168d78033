//! Messages between threads: Starling's own system calls (crate `ipc`; `user/ipc/include/starling_ipc.h` is the program's side).
//!
//! A thread gets its number with its first call of this kind, or by `ipc_self`, and loses it when it ends or executes another program: who knew
//! the old program has no business with the new one. Words go through registers both ways: the call takes the message in `rdx`, `r10`, `r8`,
//! and on success puts the one received there, and its sender into `rdi`.
//!
//! What a call returns: 0 or 0x100 (a partner was on another CPU) for success; a positive code of [`Error`] if the operation failed; a negative errno if it was refused.
//! A signal to the thread cancels the operation; the call is not restarted, because the message may have been delivered: the code says so.

use core::sync::atomic::Ordering;

use ::ipc::{
    Caller, Endpoint, Error, Failure, Operation, Options, Receive, Refusal, Send, ThreadId, Timeout,
};
use vfs::Capabilities;

use crate::errno::{Errno, SysResult};
use crate::task::Task;

/// Sends.
const SEND: u64 = 1;
/// Receives, from the partner.
const RECEIVE: u64 = 2;
/// Receives from whoever sends first.
const OPEN: u64 = 4;

/// What is sent carries pages: see [`crate::pager`].
const MAP: u64 = 8;

/// Flag of a successful operation: a partner was on another CPU.
const REMOTE: usize = 0x100;

/// Flag of `ipc_self`: everybody may send to the thread.
const OPEN_TO_ALL: u32 = 1;
/// Flag of `ipc_self`: the process is partitioned.
const PARTITIONED: u32 = 2;

/// A time-out without end.
const NEVER: u32 = u32::MAX;
/// The longest finite one, in microseconds: 35 minutes.
const MICROSECONDS_MAX: u32 = u32::MAX >> 1;

fn timeout(microseconds: u32) -> Result<Timeout, Errno> {
    const NS_PER_MICROSECOND: u64 = 1000;
    match microseconds {
        0 => Ok(Timeout::Zero),
        NEVER => Ok(Timeout::Never),
        1..=MICROSECONDS_MAX => Ok(Timeout::After(u64::from(microseconds) * NS_PER_MICROSECOND)),
        _ => Err(Errno::EINVAL),
    }
}

fn errno_of(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::OwnId => Errno::EDEADLK,
        Refusal::NotPermitted => Errno::EPERM,
        Refusal::OtherCpu => Errno::EXDEV,
    }
}

/// Of calls that have no codes of their own.
pub(crate) fn errno_of_failure(failure: Failure) -> Errno {
    match failure {
        Failure::Refused(refusal) => errno_of(refusal),
        Failure::Ipc(Error::NotExistent) => Errno::ESRCH,
        Failure::Ipc(_) => Errno::EINTR,
    }
}

pub(crate) fn caller_of(task: &Task) -> Caller {
    let user = &task.credentials.user;
    Caller {
        real: user.real,
        effective: user.effective,
        saved: user.saved,
        privileged: task.credentials.has(Capabilities::KILL),
    }
}

/// Gives the thread its number.
#[inline(never)]
pub(crate) fn register(task: &mut Task, flags: u32) -> Result<(), Errno> {
    let process = task.process();
    if flags & PARTITIONED != 0 {
        process.ipc_partitioned.store(true, Ordering::Relaxed);
    }
    let options = Options {
        open_to_all: flags & OPEN_TO_ALL != 0,
        partitioned: process.ipc_partitioned.load(Ordering::Relaxed),
    };
    let endpoint = Endpoint::register(&caller_of(task), options).map_err(|_| Errno::ENOMEM)?;
    task.thread.ipc_id.store(endpoint.id().to_bits(), Ordering::Relaxed);
    task.ipc = Some(endpoint);
    Ok(())
}

/// The partner that a program names. What stands for everybody inside the kernel is nobody's number outside.
pub(crate) fn partner_of(bits: u64) -> ThreadId {
    if bits == u64::MAX { ThreadId::NOBODY } else { ThreadId::from_bits(bits) }
}

fn operation_of(
    partner: u64,
    what: u64,
    message: [u64; ::ipc::WORDS],
    timeouts: u64,
) -> Result<Operation, Errno> {
    if what & (SEND | RECEIVE) == 0
        || what & !(SEND | RECEIVE | OPEN | MAP) != 0
        || what & (RECEIVE | OPEN) == OPEN
        || what & (SEND | MAP) == MAP
    {
        return Err(Errno::EINVAL);
    }
    let partner = partner_of(partner);
    let mut operation = Operation::default();
    if what & SEND != 0 {
        operation.send = Some(Send { to: partner, message, timeout: timeout(timeouts as u32)? });
    }
    if what & RECEIVE != 0 {
        let from = (what & OPEN == 0).then_some(partner);
        operation.receive = Some(Receive { from, timeout: timeout((timeouts >> 32) as u32)? });
    }
    Ok(operation)
}

/// Sends, receives, or both in one step.
pub fn ipc(
    task: &mut Task,
    partner: u64,
    what: u64,
    first: u64,
    second: u64,
    third: u64,
    timeouts: u64,
) -> SysResult {
    let operation = operation_of(partner, what, [first, second, third], timeouts)?;
    if task.ipc.is_none() {
        register(task, 0)?;
    }
    if what & MAP != 0
        && let Some(code) = crate::pager::give_pages(task, partner_of(partner), [first, second, third])?
    {
        return Ok(code);
    }
    let caller = caller_of(task);
    let endpoint = task.ipc.as_mut().ok_or(Errno::ENOMEM)?;
    match endpoint.operate(&operation, &caller) {
        Ok(received) => {
            if operation.receive.is_some() {
                let registers = &mut task.user.registers;
                registers.rdi = received.from.to_bits();
                [registers.rdx, registers.r10, registers.r8] = received.message;
            }
            Ok(if received.remote { REMOTE } else { 0 })
        }
        Err(Failure::Ipc(error)) => Ok(error as usize),
        Err(Failure::Refused(refusal)) => Err(errno_of(refusal)),
    }
}

/// The calling thread's number.
pub fn ipc_self(task: &mut Task, flags: u32) -> SysResult {
    if flags & !(OPEN_TO_ALL | PARTITIONED) != 0 {
        return Err(Errno::EINVAL);
    }
    match &mut task.ipc {
        None => register(task, flags)?,
        Some(endpoint) => {
            // Where a thread has its number from decides that.
            if flags & PARTITIONED != 0 && !endpoint.is_partitioned() {
                return Err(Errno::EBUSY);
            }
            if flags & OPEN_TO_ALL != 0 {
                endpoint.open_to_all();
            }
        }
    }
    Ok(task.thread.ipc_id.load(Ordering::Relaxed) as usize)
}

/// Ends the operation that a thread is in. Returns 1 if there was one.
pub fn ipc_cancel(task: &mut Task, id: u64) -> SysResult {
    let caller = caller_of(task);
    let cancelled = ::ipc::cancel(ThreadId::from_bits(id), &caller, task.ipc.as_ref());
    cancelled.map(usize::from).map_err(errno_of_failure)
}

/// The CPU on which a thread was in its last operation.
pub fn ipc_cpu(_task: &mut Task, id: u64) -> SysResult {
    Ok(::ipc::cpu_of(ThreadId::from_bits(id)).ok_or(Errno::ESRCH)?.index())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_outs_are_zero_finite_endless_or_refused() {
        assert_eq!(timeout(0), Ok(Timeout::Zero));
        assert_eq!(timeout(7), Ok(Timeout::After(7_000)));
        assert_eq!(timeout(0x7fff_ffff), Ok(Timeout::After(0x7fff_ffff * 1000)));
        assert_eq!(timeout(NEVER), Ok(Timeout::Never));
        assert_eq!([timeout(0x8000_0000), timeout(NEVER - 1)], [Err(Errno::EINVAL); 2]);
    }

    #[test]
    fn an_operation_sends_or_receives_or_both() {
        let operation = |what| operation_of(5, what, [1, 2, 3], u64::MAX);
        for what in [0, OPEN, SEND | OPEN, MAP, RECEIVE | MAP, SEND | 16, u64::MAX] {
            assert!(matches!(operation(what), Err(Errno::EINVAL)), "{what:#x}");
        }
        let call = operation(SEND | RECEIVE).unwrap();
        assert_eq!(call.receive.unwrap().from, Some(ThreadId::from_bits(5)));
        assert_eq!(operation(SEND | RECEIVE | OPEN).unwrap().receive.unwrap().from, None);
        assert!(operation(SEND).unwrap().receive.is_none());
        // No number stands for anybody.
        let closed = operation_of(u64::MAX, RECEIVE, [0; 3], 0).unwrap();
        assert_eq!(closed.receive.unwrap().from, Some(ThreadId::NOBODY));
        // Only the time-outs that count are looked at.
        assert!(operation_of(5, SEND, [0; 3], 0x8000_0000 << 32).is_ok());
        assert!(operation_of(5, RECEIVE, [0; 3], 0x8000_0000).is_ok());
        assert!(operation_of(5, SEND | RECEIVE, [0; 3], 0x8000_0000 << 32).is_err());
    }
}
