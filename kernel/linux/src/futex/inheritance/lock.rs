//! FUTEX_LOCK_PI, FUTEX_TRYLOCK_PI and FUTEX_UNLOCK_PI.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use machine::address::UserAddr;
use machine::fault::Access;
use machine::user_memory;
use sched::WaitError;

use super::super::calls::{FAULT_TRIES, waiter_of};
use super::super::key::Key;
use super::graph::Refusal;
use super::word::Word;
use super::{CLOSED, Contender, Locked};
use crate::errno::{Errno, SysResult};
use crate::process::thread::Thread;
use crate::process::{pid_space, table};
use crate::task::Task;
use crate::time::wall_clock::{Until, block_interruptible};
use crate::user_pointer::UserPointer;

/// Why an attempt that holds the graph's lock did not come to an end.
pub(super) enum Obstacle {
    /// The word's page is not there, or not writable.
    Page,
    /// The word changed meanwhile, or its owner was just ending.
    Changed,
    Error(Errno),
}

impl From<Errno> for Obstacle {
    fn from(errno: Errno) -> Self {
        Obstacle::Error(errno)
    }
}

impl From<Refusal> for Obstacle {
    fn from(refusal: Refusal) -> Self {
        Obstacle::Error(match refusal {
            Refusal::Deadlock => Errno::EDEADLK,
            Refusal::Memory => Errno::ENOMEM,
            Refusal::Ended => Errno::ESRCH,
        })
    }
}

/// What an attempt to take a lock came to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    Taken,
    Waits,
}

/// Whether one who does not get the lock waits for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    None,
    Waits,
}

/// A lock's word in the caller's memory, used with the graph locked.
pub(super) struct Place(UserAddr);

impl Place {
    pub(super) fn new(address: u64) -> Place {
        Place(UserAddr::new(address))
    }

    pub(super) fn read(&self) -> Result<Word, Obstacle> {
        user_memory::load_u32(self.0).map(Word).map_err(|_| Obstacle::Page)
    }

    pub(super) fn change(&self, from: Word, to: Word) -> Result<(), Obstacle> {
        match user_memory::compare_exchange_u32(self.0, from.0, to.0) {
            Ok(found) if found == from.0 => Ok(()),
            Ok(_) => Err(Obstacle::Changed),
            Err(_) => Err(Obstacle::Page),
        }
    }

    /// Makes attempts until one comes to an end. What it holds it must have let go of on its return.
    pub(super) fn attempt<T>(
        &self,
        task: &Task,
        mut attempt: impl FnMut(&Place) -> Result<T, Obstacle>,
    ) -> Result<T, Errno> {
        let mut faults = 0;
        loop {
            match attempt(self) {
                Ok(done) => return Ok(done),
                Err(Obstacle::Error(errno)) => return Err(errno),
                // Who changes the word all the time may not keep the caller here against a signal.
                Err(Obstacle::Changed) if sched::current().attention() => return Err(Errno::ERESTARTNOINTR),
                Err(Obstacle::Changed) => {}
                Err(Obstacle::Page) if faults == FAULT_TRIES => return Err(Errno::EFAULT),
                Err(Obstacle::Page) => {
                    faults += 1;
                    task.address_space.fault(self.0, Access::Write).map_err(|_| Errno::EFAULT)?;
                }
            }
        }
    }
}

/// The thread that the word names as the contender calls it, which has not ended. One that was just ending has changed the word.
fn owner_of(place: &Place, contender: &Contender, word: Word) -> Result<Contender, Obstacle> {
    let space = contender.thread.process().space();
    let found = pid_space::kernel(space, word.owner()).and_then(table::thread);
    // Acquire: pairs with `close`.
    match found.filter(|thread| thread.inheritance.load(Ordering::Acquire) != CLOSED) {
        Some(thread) => Ok(Contender { thread, waiter: None }),
        None => Err(has_no_owner(place, word)),
    }
}

/// Why nobody is where the word says: the owner was just ending and has changed it, or there is none.
fn has_no_owner(place: &Place, word: Word) -> Obstacle {
    match place.read() {
        Ok(now) if now == word => Errno::ESRCH.into(),
        Ok(_) => Obstacle::Changed,
        Err(obstacle) => obstacle,
    }
}

/// Takes a lock for a thread, or puts it into the queue: one attempt. `others_wait` is what the word shall say if it is taken.
fn take(
    locked: &mut Locked,
    place: &Place,
    key: Key,
    contender: &Contender,
    others_wait: bool,
    patience: Patience,
) -> Result<Attempt, Obstacle> {
    let number = contender.thread.own_number();
    let mut word = place.read()?;
    if word.owner() == number {
        return Err(Errno::EDEADLK.into());
    }
    let owner = match locked.graph.find(&key) {
        Some(lock) => {
            let owner = locked.graph.owner(lock).clone();
            if !locked.graph.is_unwritten(lock) {
                let space = contender.thread.process().space();
                word.agrees_with(pid_space::seen(space, owner.thread.tid()))?;
            }
            owner
        }
        None if word.owner() == 0 => {
            place.change(word, word.taken_by(number, others_wait))?;
            return Ok(Attempt::Taken);
        }
        None => {
            place.change(word, word.with_waiters())?;
            word = word.with_waiters();
            let owner = owner_of(place, contender, word)?;
            locked.kept = Some(owner.clone());
            owner
        }
    };
    if patience == Patience::None {
        return Err(Errno::EAGAIN.into());
    }
    match locked.wait(key, &owner, contender) {
        Err(Refusal::Ended) => Err(has_no_owner(place, word)),
        waits => waits.map(|()| Attempt::Waits).map_err(Obstacle::from),
    }
}

/// [`take`] for one that waits if it must.
pub(super) fn take_or_wait(
    locked: &mut Locked,
    place: &Place,
    key: Key,
    contender: &Contender,
    others_wait: bool,
) -> Result<Attempt, Obstacle> {
    take(locked, place, key, contender, others_wait, Patience::Waits)
}

/// Takes a lock; sleeps while another thread owns it.
#[inline(never)]
pub(in super::super) fn lock(task: &mut Task, address: u64, shared: bool, until: Option<Until>) -> SysResult {
    let key = Key::of(task, address, shared)?;
    let contender = contender_of(task)?;
    let attempt = Place::new(address)
        .attempt(task, |place| take_or_wait(&mut Locked::take(), place, key, &contender, false))?;
    if attempt == Attempt::Taken {
        return Ok(0);
    }
    match sleep(task, key, address, &contender, until) {
        Err(Errno::EINTR) => Err(Errno::ERESTARTNOINTR),
        slept => slept,
    }
}

/// The caller as one who may wait.
pub(super) fn contender_of(task: &mut Task) -> Result<Contender, Errno> {
    let waiter = waiter_of(task)?;
    Ok(Contender { thread: task.thread.clone(), waiter: Some(waiter) })
}

/// Sleeps in the queue of a lock until it is granted. EINTR: a signal came.
pub(super) fn sleep(
    task: &Task,
    key: Key,
    address: u64,
    contender: &Contender,
    until: Option<Until>,
) -> SysResult {
    let waiter = contender.waiter.as_ref().ok_or(Errno::ENOMEM)?;
    let slept = block_interruptible(|| waiter.is_woken(), until);
    finish(task, key, address, contender, slept)
}

/// The end of a wait: with the lock, or out of the queue.
pub(super) fn finish(
    task: &Task,
    key: Key,
    address: u64,
    contender: &Contender,
    slept: Result<(), WaitError>,
) -> SysResult {
    let waiter: &Arc<_> = contender.waiter.as_ref().ok_or(Errno::ENOMEM)?;
    if slept.is_err() && Locked::take().withdraw(contender) {
        return Err(if slept == Err(WaitError::TimedOut) { Errno::ETIMEDOUT } else { Errno::EINTR });
    }
    debug_assert!(waiter.is_woken(), "who is in no queue has the lock");
    if waiter.owner_died() { inherit(task, key, address, contender) } else { Ok(0) }
}

/// Writes the word of a lock whose owner died into it.
#[inline(never)]
fn inherit(task: &Task, key: Key, address: u64, contender: &Contender) -> SysResult {
    let number = contender.thread.own_number();
    let written = loop {
        let attempt = Place::new(address).attempt(task, |place| {
            let mut locked = Locked::take();
            let word = place.read()?;
            place.change(word, Word::inherited_by(number))?;
            locked.graph.written(&key, contender);
            Ok(())
        });
        // It has the lock, and so must say so, whatever signal waits.
        if attempt != Err(Errno::ERESTARTNOINTR) {
            break attempt;
        }
    };
    if written.is_err() {
        Locked::take().graph.written(&key, contender);
    }
    written.map(|()| 0)
}

/// Takes a lock if it is free.
#[inline(never)]
pub(in super::super) fn try_lock(task: &mut Task, address: u64, shared: bool) -> SysResult {
    let key = Key::of(task, address, shared)?;
    let contender = Contender { thread: task.thread.clone(), waiter: None };
    Place::new(address)
        .attempt(task, |place| take(&mut Locked::take(), place, key, &contender, false, Patience::None))?;
    Ok(0)
}

/// Frees a lock, or gives it to the most urgent of those that wait.
#[inline(never)]
pub(in super::super) fn unlock(task: &Task, address: u64, shared: bool) -> SysResult {
    let me: &Arc<Thread> = &task.thread;
    if Word(UserPointer::<u32>::new(address).read()?).owner() != me.own_number() {
        return Err(Errno::EPERM);
    }
    let key = Key::of(task, address, shared)?;
    Place::new(address).attempt(task, |place| {
        let mut locked = Locked::take();
        let word = place.read()?;
        if word.owner() != me.own_number() {
            return Err(Errno::EPERM.into());
        }
        let Some(lock) = locked.graph.find(&key) else {
            return place.change(word, Word(0));
        };
        if !Arc::ptr_eq(&locked.graph.owner(lock).thread, me) {
            return Err(Errno::EINVAL.into());
        }
        let Some(next) = locked.graph.first_waiter(lock) else {
            return place.change(word, Word(0));
        };
        place.change(word, Word::passed_to(next.thread.own_number()))?;
        locked.pass_on(lock, false);
        Ok(())
    })?;
    Ok(0)
}
