//! A question to a group: may this be done?

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::{Error, Result, allocation};

const WAITS: u32 = 0;
const ALLOWED: u32 = 1;
const DENIED: u32 = 2;

/// A question, known to who asks and to the group. The first answer is the one that counts.
pub(super) struct Question(AtomicU32);

impl Question {
    pub(super) fn new() -> Result<Arc<Self>> {
        allocation::arc(Self(AtomicU32::new(WAITS)))
    }

    /// Release, with the Acquire in `answer`.
    pub(super) fn allow(&self) {
        let _ = self.0.compare_exchange(WAITS, ALLOWED, Ordering::Release, Ordering::Relaxed);
    }

    pub(super) fn deny(&self) {
        let _ = self.0.compare_exchange(WAITS, DENIED, Ordering::Release, Ordering::Relaxed);
    }

    /// The answer, `EPERM` if it was denied; `None` while there is none.
    pub(super) fn answer(&self) -> Option<Result<()>> {
        match self.0.load(Ordering::Acquire) {
            WAITS => None,
            ALLOWED => Some(Ok(())),
            _ => Some(Err(Error::NotPermitted)),
        }
    }
}
