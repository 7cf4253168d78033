//! Whether anybody wants to hear of what happens to files: who watches them, and who has a lease.
//!
//! All calls on files look at one word. While it is zero, nothing else is looked at: neither lists of watches nor leases. A [`Share`] in it is held for each
//! watch, mark and lease.
//!
//! Watches may miss what happens while they are made. A lease may not: whoever counts as an opener of the file and then finds the word zero
//! must be seen by who sets the word and then looks at the number of openers. Those who open files spend no fence on it. Who takes the first share
//! waits for a grace period of RCU instead ([`Share::seen_by_all`]): after that each processor has passed a full barrier, so of every opening that found the
//! word zero the count is there to see.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Shares that are held.
static SHARES: AtomicUsize = AtomicUsize::new(0);
/// Those of them that all processors know of.
static KNOWN: AtomicUsize = AtomicUsize::new(0);
/// Held while one becomes known.
static MAKING: sched::Mutex<()> = sched::Mutex::named("watchers known to all", ());

/// Whether anything is watched.
#[inline]
pub(crate) fn anything() -> bool {
    // Relaxed: see above.
    SHARES.load(Ordering::Relaxed) != 0
}

/// A reason to look closer at what happens to files.
#[derive(Debug)]
pub(crate) struct Share {
    is_known: bool,
}

impl Share {
    /// One that misses what happens at the same time.
    pub(crate) fn new() -> Self {
        SHARES.fetch_add(1, Ordering::Relaxed);
        Self { is_known: false }
    }

    /// One that nobody misses who counts as an opener from now on, and of whom else the caller sees that he does. Sleeps.
    pub(crate) fn seen_by_all() -> Self {
        let _one = MAKING.lock();
        SHARES.fetch_add(1, Ordering::SeqCst);
        // While there is another one, the word has not been zero since all knew of that.
        if KNOWN.load(Ordering::SeqCst) == 0 {
            sync::rcu::synchronize();
        }
        KNOWN.fetch_add(1, Ordering::SeqCst);
        Self { is_known: true }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.is_known {
            KNOWN.fetch_sub(1, Ordering::SeqCst);
        }
        let before = SHARES.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a share is given back once");
    }
}
