//! A batch of bios that are submitted together, so that neighbours meet before the device sees the first of them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::fallible;

use crate::bio::Bio;
use crate::queue::Queue;

/// Bios held back at most: a longer batch gains nothing and makes the device wait.
const HELD_MAX: usize = 64;

/// Collects bios for one queue; submits them when it is dropped, or full.
pub struct Plug {
    queue: Arc<Queue>,
    held: Vec<Bio>,
}

impl Plug {
    /// An empty batch.
    pub fn new(queue: Arc<Queue>) -> Self {
        Self { queue, held: Vec::new() }
    }

    /// Adds a bio. Without memory to hold it, it is submitted at once.
    pub fn submit(&mut self, bio: Bio) {
        if self.held.len() == HELD_MAX {
            self.flush();
        }
        match fallible::try_reserve(&mut self.held, 1) {
            Ok(()) => self.held.push(bio),
            Err(_) => self.queue.submit(bio),
        }
    }

    /// Submits what is held back.
    pub fn flush(&mut self) {
        self.queue.submit_batch(self.held.drain(..));
    }
}

impl Drop for Plug {
    fn drop(&mut self) {
        self.flush();
    }
}
