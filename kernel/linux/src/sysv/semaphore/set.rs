//! A set of semaphores.
//!
//! Who changes a value does for those that wait what has become possible, so that a thread is woken when its operations are done, and
//! values never show that it was about to. One that waits for a single semaphore is in that one's list, for less or for zero; the others are in a list of the
//! set. In each they are served in their order, past those that can't go on yet.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicI32, Ordering};

use super::limits::{SemaphoreClaim, VALUE_MAX};
use super::operation::{Refusal, Semaphore, alters, perform};

use crate::abi::{SemaphoreOperation, SemaphoreSetStatus};
use crate::errno::Errno;
use crate::name_space::WeakSpace;
use crate::process::pid_space::Viewer;
use crate::process::table::Pid;
use crate::sysv::now;
use crate::sysv::permissions::Permissions;
use crate::sysv::registry::Registered;
use crate::sysv::space::IpcSpace;
use crate::sysv::waiting::Waiting;

/// A thread that waits, and what for.
pub(super) struct Sleeper {
    pub(super) waiting: Waiting<Result<(), Errno>>,
    pub(super) operations: Vec<SemaphoreOperation>,
    /// Whose adjustments are meant. The thread is there while it waits, and so is its list.
    pub(super) owner: Option<u64>,
    pub(super) process: Pid,
}

/// Who waits for one semaphore only.
#[derive(Default)]
struct Alone {
    decrease: VecDeque<Arc<Sleeper>>,
    zero: VecDeque<Arc<Sleeper>>,
}

/// Who waits with operations on several.
struct Together {
    sleeper: Arc<Sleeper>,
    /// The operation that it waits for.
    place: usize,
}

/// What is taken back at the end of an owner.
struct Undo {
    owner: u64,
    adjustments: Vec<i16>,
}

/// Values, and who waits.
pub(super) struct State {
    pub(super) permissions: Permissions,
    pub(super) is_removed: bool,
    semaphores: Vec<Semaphore>,
    /// Of each semaphore for which somebody has waited.
    alone: Vec<Option<Box<Alone>>>,
    together: VecDeque<Together>,
    /// By owner.
    undos: Vec<Undo>,
    // Seconds since 1970.
    operated: u64,
    changed: u64,
}

/// A set. See the theory of this file.
pub(in crate::sysv) struct Set {
    id: AtomicI32,
    length: usize,
    pub(super) state: sched::Mutex<State>,
    claim: SemaphoreClaim,
}

impl Registered for Set {
    fn assign(&self, id: i32) {
        self.id.store(id, Ordering::Relaxed);
    }
}

impl Set {
    /// One of zeros that nobody can find yet.
    pub(super) fn new(
        permissions: Permissions,
        length: usize,
        space: WeakSpace<IpcSpace>,
    ) -> Result<Arc<Set>, Errno> {
        let claim = SemaphoreClaim::new(length, space).ok_or(Errno::ENOSPC)?;
        let semaphores = memory::fallible::try_vec_of(Semaphore::default(), length);
        let mut alone = memory::fallible::try_vec(length).map_err(|_| Errno::ENOMEM)?;
        alone.resize_with(length, || None);
        let state = State {
            permissions,
            is_removed: false,
            semaphores: semaphores.map_err(|_| Errno::ENOMEM)?,
            alone,
            together: VecDeque::new(),
            undos: Vec::new(),
            operated: 0,
            changed: now(),
        };
        let state = sched::Mutex::named("set of semaphores", state);
        let set = Set { id: AtomicI32::new(-1), length, state, claim };
        memory::fallible::try_arc(set).map_err(|_| Errno::ENOMEM)
    }

    pub(super) fn id(&self) -> i32 {
        self.id.load(Ordering::Relaxed)
    }

    /// How many semaphores there are.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// What IPC_STAT says.
    pub(super) fn status(&self, key: i32, viewer: Viewer<'_>) -> SemaphoreSetStatus {
        let state = self.state.lock();
        SemaphoreSetStatus {
            permissions: state.permissions.seen_in(viewer.users).to_user(key, self.id()),
            operated: state.operated,
            changed: state.changed,
            semaphores: self.length as u64,
            ..Default::default()
        }
    }

    /// Removes the set; who waits is told.
    pub(super) fn remove(&self, state: &mut State) {
        drop(self.claim.space().map(|space| space.sets.remove(self.id())));
        state.is_removed = true;
        state.undos = Vec::new();
        let removed = Err(Errno::EIDRM);
        for waiters in state.alone.iter_mut().filter_map(Option::take) {
            waiters.decrease.iter().chain(&waiters.zero).for_each(|sleeper| sleeper.waiting.end(removed));
        }
        state.together.drain(..).for_each(|waiter| waiter.sleeper.waiting.end(removed));
    }
}

impl State {
    /// Does operations, and what follows for those that wait.
    pub(super) fn operate(
        &mut self,
        operations: &[SemaphoreOperation],
        owner: Option<u64>,
        process: Pid,
    ) -> Result<(), Refusal> {
        self.attempt(operations, owner, process)?;
        self.settle(
            operations.iter().filter(|operation| operation.change != 0).map(SemaphoreOperation::index),
        );
        Ok(())
    }

    fn attempt(
        &mut self,
        operations: &[SemaphoreOperation],
        owner: Option<u64>,
        process: Pid,
    ) -> Result<(), Refusal> {
        let undo = owner.and_then(|owner| self.undos.binary_search_by_key(&owner, |undo| undo.owner).ok());
        let adjustments = undo.map(|index| self.undos[index].adjustments.as_mut_slice());
        perform(operations, &mut self.semaphores, adjustments, process)?;
        self.operated = now();
        Ok(())
    }

    /// These semaphores were changed: does for those that wait what has become possible.
    pub(super) fn settle(&mut self, changed: impl Iterator<Item = usize>) {
        changed.for_each(|index| self.settle_alone(index));
        let mut place = 0;
        while place < self.together.len() {
            let sleeper = self.together[place].sleeper.clone();
            match self.attempt(&sleeper.operations, sleeper.owner, sleeper.process) {
                Err(Refusal::Blocked(operation)) => {
                    self.together[place].place = operation;
                    place += 1;
                    continue;
                }
                outcome => {
                    self.together.remove(place);
                    sleeper.waiting.end(outcome.map_err(Refusal::errno));
                    if outcome.is_ok() && alters(&sleeper.operations) {
                        sleeper.operations.iter().for_each(|operation| self.settle_alone(operation.index()));
                        // Those before it may go on now.
                        place = 0;
                    }
                }
            }
        }
    }

    /// The same for who waits for nothing but one semaphore.
    fn settle_alone(&mut self, index: usize) {
        let Some(mut waiters) = self.alone[index].take() else { return };
        loop {
            if self.semaphores[index].value == 0 {
                while let Some(sleeper) = waiters.zero.pop_front() {
                    self.finish(&sleeper);
                }
            }
            let before = waiters.decrease.len();
            let mut place = 0;
            while self.semaphores[index].value > 0 && place < waiters.decrease.len() {
                let sleeper = waiters.decrease[place].clone();
                if self.finish(&sleeper) {
                    waiters.decrease.remove(place);
                } else {
                    place += 1;
                }
            }
            let is_zero_now = self.semaphores[index].value == 0 && waiters.decrease.len() < before;
            if !is_zero_now || waiters.zero.is_empty() {
                break;
            }
        }
        self.alone[index] = Some(waiters);
    }

    /// Does what a thread waits for, unless it has to wait on; returns whether its wait is over.
    fn finish(&mut self, sleeper: &Sleeper) -> bool {
        let outcome = self.attempt(&sleeper.operations, sleeper.owner, sleeper.process);
        let is_over = !matches!(outcome, Err(Refusal::Blocked(_)));
        if is_over {
            sleeper.waiting.end(outcome.map_err(Refusal::errno));
        }
        is_over
    }

    /// Has a thread wait for the operation in this place.
    pub(super) fn enter(&mut self, sleeper: &Arc<Sleeper>, place: usize) -> Result<(), Errno> {
        let [operation] = sleeper.operations.as_slice() else {
            self.together.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            self.together.push_back(Together { sleeper: sleeper.clone(), place });
            return Ok(());
        };
        let slot = &mut self.alone[operation.index()];
        if slot.is_none() {
            *slot = Some(memory::fallible::try_box(Alone::default()).map_err(|_| Errno::ENOMEM)?);
        }
        let waiters = slot.as_mut().ok_or(Errno::ENOMEM)?;
        let list = if operation.change == 0 { &mut waiters.zero } else { &mut waiters.decrease };
        list.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        list.push_back(sleeper.clone());
        Ok(())
    }

    /// A thread waits no more.
    pub(super) fn leave(&mut self, sleeper: &Arc<Sleeper>) {
        let other = |entry: &Arc<Sleeper>| !Arc::ptr_eq(entry, sleeper);
        match sleeper.operations.as_slice() {
            [operation] => {
                if let Some(waiters) = self.alone.get_mut(operation.index()).and_then(Option::as_mut) {
                    waiters.decrease.retain(other);
                    waiters.zero.retain(other);
                }
            }
            _ => self.together.retain(|waiter| other(&waiter.sleeper)),
        }
    }

    pub(super) fn semaphores(&self) -> &[Semaphore] {
        &self.semaphores
    }

    /// Threads that wait for more in a semaphore, and for it to become zero.
    pub(super) fn waiters(&self, index: usize) -> (usize, usize) {
        let alone = self.alone[index].as_ref().map_or((0, 0), |all| (all.decrease.len(), all.zero.len()));
        self.together.iter().fold(alone, |(more, zero), waiter| {
            let operation = &waiter.sleeper.operations[waiter.place];
            match (operation.index() == index, operation.change) {
                (false, _) => (more, zero),
                (true, 0) => (more, zero + 1),
                (true, _) => (more + 1, zero),
            }
        })
    }

    /// SETVAL, SETALL: gives semaphores from one on new values, of which nobody takes anything back.
    pub(super) fn set_values(&mut self, first: usize, values: &[u16], process: Pid) {
        for (index, &value) in (first..).zip(values) {
            self.semaphores[index] = Semaphore { value, process };
            self.undos.iter_mut().for_each(|undo| undo.adjustments[index] = 0);
        }
        self.changed = now();
        self.settle(first..first + values.len());
    }

    /// Notes a change by IPC_SET.
    pub(super) fn was_changed(&mut self) {
        self.changed = now();
    }

    /// Whether adjustments of an owner are kept.
    pub(super) fn keeps(&self, owner: u64) -> bool {
        self.undos.binary_search_by_key(&owner, |undo| undo.owner).is_ok()
    }

    /// Begins to keep adjustments of an owner.
    pub(super) fn keep(&mut self, owner: u64) -> Result<(), Errno> {
        let Err(place) = self.undos.binary_search_by_key(&owner, |undo| undo.owner) else { return Ok(()) };
        let adjustments =
            memory::fallible::try_vec_of(0, self.semaphores.len()).map_err(|_| Errno::ENOMEM)?;
        memory::fallible::try_reserve(&mut self.undos, 1).map_err(|_| Errno::ENOMEM)?;
        self.undos.insert(place, Undo { owner, adjustments });
        Ok(())
    }

    /// The owner is gone: what it did with SEM_UNDO is taken back, as far as values can be.
    pub(super) fn take_back(&mut self, owner: u64, process: Pid) {
        let Ok(place) = self.undos.binary_search_by_key(&owner, |undo| undo.owner) else { return };
        let Undo { adjustments, .. } = self.undos.remove(place);
        for (semaphore, adjustment) in
            self.semaphores.iter_mut().zip(&adjustments).filter(|(_, by)| **by != 0)
        {
            let value = i32::from(semaphore.value) + i32::from(*adjustment);
            *semaphore = Semaphore { value: value.clamp(0, VALUE_MAX) as u16, process };
        }
        self.operated = now();
        let changed = adjustments.iter().enumerate().filter(|(_, adjustment)| **adjustment != 0);
        self.settle(changed.map(|(index, _)| index));
    }
}

impl Refusal {
    /// What a call that was refused for good fails with.
    fn errno(self) -> Errno {
        match self {
            Self::Blocked(_) => Errno::EAGAIN,
            Self::Error(errno) => errno,
        }
    }
}
