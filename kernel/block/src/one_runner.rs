//! Work that one does at a time, without others having to wait for it: who finds it being done has it done once more.
//!
//! # The handshake
//! One word: [`IDLE`], [`RUNNING`], or [`ASKED`]: somebody runs and is to look again.
//! - Whoever wants a run swaps `ASKED` in. If the word was `IDLE`, the run is its own to make; else the runner will.
//! - The runner swaps `RUNNING` in, works, and puts `IDLE` in the place of `RUNNING`. If `ASKED` is there instead, it starts over.
//!
//! The word changes by read-modify-write operations only, so each reads what the one before it left: no request is
//! overlooked. All of them release and those of the runner acquire, and such operations carry on what earlier ones released: the run
//! that begins with reading `ASKED` sees what everybody did who has asked till then.
//!
//! Two flags, one for each side, would not do with these orderings: each side writes its own and reads the other's, and
//! on every processor a read may pass a write that still waits in the store buffer.
//!
//! `tests/models.rs` compiles this file against loom's atomics and tries all interleavings.

#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicU8, Ordering};

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicU8, Ordering};

/// Nobody runs.
const IDLE: u8 = 0;
/// Somebody runs.
const RUNNING: u8 = 1;
/// Somebody runs, or is about to, and has to look at everything once more.
const ASKED: u8 = 2;

/// See the theory of this file.
pub(crate) struct OneRunner(AtomicU8);

impl OneRunner {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(IDLE))
    }

    /// Has the work done, after everything that the caller did before: here, or by whoever is at it already. The work may call
    /// this itself, and is then called again.
    pub(crate) fn run(&self, mut work: impl FnMut()) {
        if self.0.swap(ASKED, Ordering::AcqRel) != IDLE {
            return;
        }
        loop {
            self.0.swap(RUNNING, Ordering::AcqRel);
            work();
            // Release, if it succeeds: the next runner sees what this one did.
            if self.0.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }
}
