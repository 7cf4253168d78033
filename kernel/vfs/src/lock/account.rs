//! How many record locks a user may have: they are memory of the kernel that no open file bounds.
//!
//! The personality keeps one account for each user and names it when a lock is set. A record holds a [`Charge`], and gives it back
//! with itself.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// Record locks that a user may have in the smallest machine.
const LIMIT_MIN: u64 = 4096;

/// The number of a user's record locks.
#[derive(Debug)]
pub struct LockAccount {
    // Any CPU, relaxed: it guards no other data.
    held: AtomicU64,
    limit: u64,
}

impl LockAccount {
    /// An account with a limit.
    pub const fn new(limit: u64) -> Self {
        Self { held: AtomicU64::new(0), limit }
    }

    /// What one user may have in a machine of so many page frames: one lock a frame, two or three per cent of memory.
    pub fn limit_for(frames: u64) -> u64 {
        frames.max(LIMIT_MIN)
    }

    /// Record locks that the user has.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

/// A record's place in its user's account.
#[derive(Debug)]
pub(super) struct Charge(Arc<LockAccount>);

impl Charge {
    /// Counts one more lock: `ENOLCK` at the limit.
    pub(super) fn claim(account: &Arc<LockAccount>) -> Result<Self> {
        // Count first and look then: two claims at the limit may both fail, but none goes beyond it.
        let charge = Self(account.clone());
        if account.held.fetch_add(1, Ordering::Relaxed) < account.limit {
            Ok(charge)
        } else {
            Err(Error::NoLocks)
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let before = self.0.held.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a user's number of locks went below zero");
    }
}
