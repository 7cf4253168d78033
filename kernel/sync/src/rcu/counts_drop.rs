//! What tests put behind callbacks: a value that counts how often such values were dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counts its drop.
pub(super) struct CountsDrop(pub(super) Arc<AtomicU32>);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
