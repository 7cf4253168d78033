//! The completion side of a ring.
//!
//! `tail` is the kernel's own; the program sees a copy. The head is the program's word and may say anything: more completions than there are places
//! means that there is no room.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use sync::SpinLock;
use vfs::eventfd::EventCounter;
use vfs::{OpenFile, PollEvents};

use super::abi::{COMPLETIONS_OVERFLOWED, Completion, EVENTS_DISABLED};
use super::memory::{RingMemory, word};
use super::ring::Ring;
use crate::errno::Errno;

/// Places that are made for completions at a time when there is no room in the ring.
const ROOM_STEP: usize = 16;

struct State {
    tail: u32,
    /// In their order, after those in the ring.
    overflow: Vec<Completion>,
}

/// See the theory of this file.
pub(super) struct Completions {
    state: SpinLock<State>,
    /// How many came, timeouts apart; for those that wait for a number of others.
    counted: AtomicU32,
    is_overflowed: AtomicBool,
    is_told: AtomicBool,
    /// Who is told, and whether only of what did not end while it was submitted.
    told: SpinLock<Option<(Arc<OpenFile>, bool)>>,
}

impl Completions {
    pub(super) const fn new() -> Self {
        Self {
            state: SpinLock::named("completions of a ring", State { tail: 0, overflow: Vec::new() }),
            counted: AtomicU32::new(0),
            is_overflowed: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            told: SpinLock::named("event counter of a ring", None),
        }
    }

    /// Makes sure that so many completions find room, whatever the program does.
    pub(super) fn make_room(&self, live: usize) -> Result<(), Errno> {
        let room = (live + 1).next_power_of_two().max(ROOM_STEP);
        let state = self.state.lock();
        if state.overflow.capacity() - state.overflow.len() > live {
            return Ok(());
        }
        drop(state);
        drop(vfs::allocation::lock_with_room(|| self.state.lock(), room, |state| &mut state.overflow)?);
        Ok(())
    }

    /// Completions that the program has not taken, as far as it can see them.
    pub(super) fn available(memory: &RingMemory) -> u32 {
        // Acquire: what the program read before it moved the head is not overwritten before.
        let head = memory.word(word::COMPLETION_HEAD).load(Ordering::Acquire);
        memory.word(word::COMPLETION_TAIL).load(Ordering::Relaxed).wrapping_sub(head)
    }

    pub(super) fn is_overflowed(&self) -> bool {
        self.is_overflowed.load(Ordering::Relaxed)
    }

    pub(super) fn counted(&self) -> u32 {
        self.counted.load(Ordering::Acquire)
    }

    pub(super) fn count(&self) {
        self.counted.fetch_add(1, Ordering::AcqRel);
    }

    /// Sets who is told. The former one is returned, to be dropped without locks.
    pub(super) fn tell(&self, told: Option<(Arc<OpenFile>, bool)>) -> Option<(Arc<OpenFile>, bool)> {
        let mut current = self.told.lock();
        self.is_told.store(told.is_some(), Ordering::Relaxed);
        core::mem::replace(&mut current, told)
    }
}

/// Puts a completion into the ring if there is room.
fn put(memory: &RingMemory, state: &mut State, completion: &Completion) -> bool {
    // Acquire: what the program read before it moved the head is not overwritten before.
    let head = memory.word(word::COMPLETION_HEAD).load(Ordering::Acquire);
    if state.tail.wrapping_sub(head) >= memory.completion_entries {
        return false;
    }
    memory.store(state.tail, completion);
    state.tail = state.tail.wrapping_add(1);
    // Release: the completion is there before the tail says so.
    memory.word(word::COMPLETION_TAIL).store(state.tail, Ordering::Release);
    true
}

impl Ring {
    /// A request has ended, or one more completion of it has come for which room was made.
    pub(super) fn post(&self, completion: &Completion, is_inline: bool) {
        let mut state = self.completions.state.lock();
        if !(state.overflow.is_empty() && put(&self.memory, &mut state, completion)) {
            debug_assert!(state.overflow.capacity() > state.overflow.len(), "room was made");
            state.overflow.push(*completion);
            self.completions.is_overflowed.store(true, Ordering::Relaxed);
            self.memory.word(word::SUBMISSION_FLAGS).fetch_or(COMPLETIONS_OVERFLOWED, Ordering::AcqRel);
        }
        drop(state);
        self.completion_arrived(is_inline);
    }

    /// A completion for which nobody has made room: false if there is none in the ring.
    pub(super) fn post_if_room(&self, completion: &Completion) -> bool {
        let mut state = self.completions.state.lock();
        let posted = state.overflow.is_empty() && put(&self.memory, &mut state, completion);
        drop(state);
        if posted {
            self.completion_arrived(false);
        }
        posted
    }

    /// A completion of another ring's request; room for it is made here, as long as not too many found none.
    ///
    /// # Errors
    /// EOVERFLOW, ENOMEM.
    pub(super) fn post_foreign(&self, completion: &Completion) -> Result<(), Errno> {
        if self.post_if_room(completion) {
            return Ok(());
        }
        if self.is_full() {
            return Err(Errno::EOVERFLOW);
        }
        self.completions.make_room(self.live() + 1)?;
        self.post(completion, false);
        Ok(())
    }

    /// Moves completions that found no room into the ring, as far as there is some now.
    pub(super) fn flush_completions(&self) {
        if !self.completions.is_overflowed() {
            return;
        }
        let mut state = self.completions.state.lock();
        let mut moved = 0;
        while moved < state.overflow.len() {
            let completion = state.overflow[moved];
            if !put(&self.memory, &mut state, &completion) {
                break;
            }
            moved += 1;
        }
        state.overflow.drain(..moved);
        if state.overflow.is_empty() {
            self.completions.is_overflowed.store(false, Ordering::Relaxed);
            self.memory.word(word::SUBMISSION_FLAGS).fetch_and(!COMPLETIONS_OVERFLOWED, Ordering::AcqRel);
        }
        drop(state);
        if moved > 0 {
            self.completion_arrived(false);
        }
    }

    /// Completions that found no room.
    pub(super) fn overflowed(&self) -> usize {
        if self.completions.is_overflowed() { self.completions.state.lock().overflow.len() } else { 0 }
    }

    fn completion_arrived(&self, is_inline: bool) {
        self.arrived.wake_all();
        self.watchers.notify(PollEvents::INPUT);
        if self.completions.is_told.load(Ordering::Relaxed) {
            self.tell_event_counter(is_inline);
        }
    }

    #[inline(never)]
    fn tell_event_counter(&self, is_inline: bool) {
        if self.memory.word(word::COMPLETION_FLAGS).load(Ordering::Acquire) & EVENTS_DISABLED != 0 {
            return;
        }
        let told = self.completions.told.lock().clone();
        if let Some((file, only_asynchronous)) = told
            && !(only_asynchronous && is_inline)
            && let Some(counter) = file.object::<EventCounter>()
        {
            counter.signal(1);
        }
    }
}
