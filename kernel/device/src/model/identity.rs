//! Which object something is.
//!
//! A device that was taken out and put in again has its old name, and perhaps its old address in memory. Whoever keeps something about
//! a device by its name, as the file layer keeps entries of `/sys`, tells the two apart by their [`Identity`].

use core::sync::atomic::{AtomicU64, Ordering};

/// Tells an object from all that were and will be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity(u64);

impl Identity {
    /// One that nothing else has.
    #[expect(clippy::new_without_default, reason = "no two are equal, so none is the default")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// As a number.
    pub const fn number(self) -> u64 {
        self.0
    }
}
