//! FUTEX_WAIT_REQUEUE_PI and FUTEX_CMP_REQUEUE_PI: waiting on a condition variable whose mutex has priority inheritance.
//!
//! A thread waits on a plain word and says for which lock it will want to be moved. It is in the word's queue with no bits, so that FUTEX_WAKE
//! does not match it, and its waiter names the lock. Who requeues moves threads from there to the lock, with the graph and the bucket
//! locked; the first gets it if it is free. So a thread that gives up finds itself in the bucket, or else in the graph, or with the lock.

use sched::WaitError;

use super::super::calls::{enqueue, load_locked};
use super::super::key::Key;
use super::super::queue::{self, NO_BITS, withdraw};
use super::lock::{Attempt, Obstacle, Place, contender_of, finish, take_or_wait};
use super::{Contender, Locked};
use crate::errno::{Errno, SysResult};
use crate::process::thread::Thread;
use crate::task::Task;
use crate::time::wall_clock::{Until, block_interruptible};

/// Sleeps while the word has the value; then gets the lock.
#[inline(never)]
pub(in super::super) fn wait_requeue(
    task: &mut Task,
    [address, lock]: [u64; 2],
    value: u32,
    shared: bool,
    until: Option<Until>,
) -> SysResult {
    if address == lock {
        return Err(Errno::EINVAL);
    }
    let target = Key::of(task, lock, shared)?;
    let key = Key::of(task, address, shared)?;
    let contender = contender_of(task)?;
    let waiter = contender.waiter.as_ref().ok_or(Errno::ENOMEM)?;
    if key == target {
        return Err(Errno::EINVAL);
    }
    waiter.set_target(target);
    enqueue(key, address, value, NO_BITS, waiter)?;
    let slept = block_interruptible(|| waiter.is_woken(), until);
    if slept.is_err() && withdraw(waiter) {
        return Err(if slept == Err(WaitError::TimedOut) { Errno::ETIMEDOUT } else { Errno::ERESTARTNOINTR });
    }
    match finish(task, target, lock, &contender, slept) {
        // The word has changed since, so a call that is made again would say this.
        Err(Errno::EINTR) => Err(Errno::EAGAIN),
        finished => finished,
    }
}

/// A waiter of a bucket as one who may wait for a lock.
fn contender(waiter: &alloc::sync::Arc<queue::Waiter>) -> Result<Contender, Errno> {
    let thread = waiter.thread().personality().and_then(|object| object.downcast::<Thread>().ok());
    Ok(Contender { thread: thread.ok_or(Errno::ESRCH)?, waiter: Some(waiter.clone()) })
}

/// `lock` is its address and the number of threads that may be moved to it beside the one that is woken.
#[inline(never)]
pub(in super::super) fn requeue(
    task: &Task,
    address: u64,
    shared: bool,
    lock: (u64, u32),
    wake: u32,
    expected: u32,
) -> SysResult {
    let (lock, moved_limit) = (lock.0, lock.1 as i32);
    if address == lock || wake != 1 || moved_limit < 0 {
        return Err(Errno::EINVAL);
    }
    let from = Key::of(task, address, shared)?;
    let to = Key::of(task, lock, shared)?;
    if from == to {
        return Err(Errno::EINVAL);
    }
    loop {
        let mut word_missing = false;
        let moved = Place::new(lock).attempt(task, |place| {
            let mut locked = Locked::take();
            let mut bucket = queue::lock(&from);
            let Some(found) = load_locked(address) else {
                word_missing = true;
                return Err(Errno::EFAULT.into());
            };
            if found != expected {
                return Err(Errno::EAGAIN.into());
            }
            move_all(&mut locked, &mut bucket, place, [from, to], moved_limit as usize)
        });
        if !word_missing {
            return moved;
        }
        super::super::calls::fault_in(address)?;
    }
}

/// Moves up to `limit` threads and one more.
fn move_all(
    locked: &mut Locked,
    bucket: &mut queue::Bucket,
    place: &Place,
    [from, to]: [Key; 2],
    limit: usize,
) -> Result<usize, Obstacle> {
    let mut moved = 0;
    while moved <= limit {
        let Some(at) = bucket.first(&from) else { break };
        let waiter = bucket.bound_for(at, &to)?.clone();
        let contender = contender(&waiter)?;
        let attempt = match moved {
            0 => take_or_wait(locked, place, to, &contender, limit > 0)?,
            // The word names an owner by now, and says that others wait. Who was moved already stays so, whatever comes.
            _ => match take_or_wait(locked, place, to, &contender, true) {
                Ok(attempt) => attempt,
                Err(Obstacle::Error(errno)) => return Err(errno.into()),
                Err(Obstacle::Page | Obstacle::Changed) => break,
            },
        };
        bucket.take(at);
        if attempt == Attempt::Taken {
            Locked::grant(&contender, false);
        }
        moved += 1;
    }
    Ok(moved)
}
