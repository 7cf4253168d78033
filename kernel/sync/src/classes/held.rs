//! A list of locks that are held, oldest first.
//!
//! One CPU or thread writes it, with interrupts off, so what interrupts add is gone when they are over.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicUsize, Ordering};

use machine::interrupt;

use super::context::Context;
use super::registry::ClassId;

/// Most locks held at once; those beyond are not looked at.
const HELD_MAX: usize = 24;

struct Entry {
    class: AtomicU16,
    context: AtomicU8,
    lock: AtomicUsize,
}

/// Locks held by a CPU or by a thread.
pub(super) struct HeldList {
    length: AtomicUsize,
    entries: [Entry; HELD_MAX],
}

impl HeldList {
    pub(super) const fn new() -> Self {
        Self {
            length: AtomicUsize::new(0),
            entries: [const {
                Entry { class: AtomicU16::new(0), context: AtomicU8::new(0), lock: AtomicUsize::new(0) }
            }; HELD_MAX],
        }
    }

    pub(super) fn push(&self, class: ClassId, context: Context, lock: usize) {
        let _interrupts = interrupt::disable();
        let length = self.length.load(Ordering::Relaxed);
        if length < HELD_MAX {
            let entry = &self.entries[length];
            entry.class.store(class.0, Ordering::Relaxed);
            entry.context.store(context as u8, Ordering::Relaxed);
            entry.lock.store(lock, Ordering::Relaxed);
            self.length.store(length + 1, Ordering::Relaxed);
        }
    }

    /// Takes out the youngest entry of that lock; whether there was one.
    pub(super) fn remove(&self, lock: usize) -> bool {
        let _interrupts = interrupt::disable();
        let length = self.length.load(Ordering::Relaxed);
        let Some(place) = (0..length).rev().find(|&at| self.entries[at].lock.load(Ordering::Relaxed) == lock)
        else {
            return false;
        };
        for at in place + 1..length {
            let (from, to) = (&self.entries[at], &self.entries[at - 1]);
            to.class.store(from.class.load(Ordering::Relaxed), Ordering::Relaxed);
            to.context.store(from.context.load(Ordering::Relaxed), Ordering::Relaxed);
            to.lock.store(from.lock.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.length.store(length - 1, Ordering::Relaxed);
        true
    }

    /// The classes of those taken in that context, oldest first.
    pub(super) fn classes(&self, context: Context) -> impl Iterator<Item = ClassId> {
        let entries = self.entries.iter().take(self.length.load(Ordering::Relaxed));
        entries
            .filter(move |entry| entry.context.load(Ordering::Relaxed) == context as u8)
            .map(|entry| ClassId(entry.class.load(Ordering::Relaxed)))
    }
}
