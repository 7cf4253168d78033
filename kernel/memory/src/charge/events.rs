//! What happens to accounts at their limits, counted for `memory.events`.

use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use super::account::AccountNumber;

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Pages were taken from it although it was below its lower protection.
    Low,
    /// Its threads were held up because it had more than its higher mark.
    High,
    /// It came to its limit.
    Max,
    /// Reclaim did not help then.
    OutOfMemory,
    /// One of its processes was killed for that.
    Kill,
    /// All of its processes were.
    GroupKill,
}

/// How many kinds there are.
pub const EVENTS: usize = 6;

/// A `fn(AccountNumber)`, or null.
static LISTENER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sets what is told that something has happened in an account. It is called where the caller may sleep. Once, at start-up.
pub fn set_listener(listener: fn(AccountNumber)) {
    // Release: pairs with the Acquire in `note`.
    LISTENER.store(listener as *mut (), Release);
}

impl AccountNumber {
    /// Counts an event, and tells it. The caller may sleep, and somebody refers to the account.
    pub fn note(self, event: Event) {
        self.count(event);
        self.tell();
    }

    /// Counts an event.
    pub fn count(self, event: Event) {
        self.slot().events[event as usize].0.fetch_add(1, Relaxed);
        for above in self.upwards() {
            above.slot().events[event as usize].1.fetch_add(1, Relaxed);
        }
    }

    /// Tells that events were counted.
    pub fn tell(self) {
        let pointer = LISTENER.load(Acquire);
        if !pointer.is_null() {
            // SAFETY: a non-null pointer was made from a `fn(AccountNumber)` in `set_listener`, the only writer.
            let listener = unsafe { core::mem::transmute::<*mut (), fn(AccountNumber)>(pointer) };
            self.upwards().for_each(listener);
        }
    }
}
