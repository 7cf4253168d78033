//! What wakes the threads of a device.

use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use device::signal::Signal;
use memory::{OutOfMemory, fallible};

use crate::transport::Handlers;

/// Those of a device's queues. That of the first also tells of its configuration.
pub(crate) struct Signals {
    queues: Vec<Signal>,
    changed: AtomicBool,
    name: fn(usize) -> String,
}

impl Signals {
    /// For so many queues, which are called so.
    pub(crate) fn new(queues: usize, name: fn(usize) -> String) -> Result<Self, OutOfMemory> {
        let mut signals = fallible::try_vec(queues)?;
        signals.extend((0..queues).map(|_| Signal::default()));
        Ok(Self { queues: signals, changed: AtomicBool::new(false), name })
    }

    /// That of a queue.
    pub(crate) fn of(&self, queue: usize) -> &Signal {
        &self.queues[queue]
    }

    /// Raises all.
    pub(crate) fn raise_all(&self) {
        self.queues.iter().for_each(Signal::raise);
    }

    /// Whether the configuration has changed since the last time.
    pub(crate) fn take_change(&self) -> bool {
        self.changed.swap(false, Ordering::Acquire)
    }
}

impl Handlers for Signals {
    fn queue(&self, index: usize) {
        if let Some(signal) = self.queues.get(index) {
            signal.raise();
        }
    }

    fn configuration(&self) {
        self.changed.store(true, Ordering::Release);
        self.queue(0);
    }

    fn queue_name(&self, index: usize) -> String {
        (self.name)(index)
    }
}
