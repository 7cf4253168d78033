//! Flushes, and writes that must be durable on devices that cannot do that by themselves.
//!
//! One flush is under way at a time. Those who want one meanwhile wait together, and the next flush is for all of them: a
//! hundred concurrent `fsync`s cost two flushes. A bio moves through up to three stages:
//!
//! | stage | next |
//! |---|---|
//! | waits for the flush before it (`PREFLUSH`, or it is a flush itself) | data, or the end |
//! | data | waits for the flush after it, if it must be durable and the device cannot do that; else the end |
//! | waits for the flush after it | the end |

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::fallible;
use sync::SpinLock;

use crate::bio::{Bio, BioFlags, Operation};
use crate::queue::Queue;
use crate::{Error, Result};

pub(crate) struct Flushes {
    state: SpinLock<State>,
}

struct State {
    under_way: bool,
    waiting: Vec<Bio>,
}

impl Flushes {
    pub(crate) const fn new() -> Self {
        Self { state: SpinLock::new(State { under_way: false, waiting: Vec::new() }) }
    }

    /// Takes a bio whose next step is a flush, or, for durable writes without `PREFLUSH`, its data.
    pub(crate) fn submit(&self, queue: &Arc<Queue>, bio: Bio) {
        if bio.operation == Operation::Flush || bio.flags.contains(BioFlags::PREFLUSH) {
            self.wait_for_flush(queue, bio);
        } else {
            write_then_flush(queue, bio);
        }
    }

    pub(crate) fn wait_for_flush(&self, queue: &Arc<Queue>, bio: Bio) {
        let mut state = self.state.lock();
        if fallible::try_reserve(&mut state.waiting, 1).is_err() {
            drop(state);
            return bio.finish(Err(Error::OutOfMemory));
        }
        state.waiting.push(bio);
        if !core::mem::replace(&mut state.under_way, true) {
            drop(state);
            self.start(queue);
        }
    }

    /// Flushes for all who wait now; without memory for that they fail, and it is the turn of those who came meanwhile.
    fn start(&self, queue: &Arc<Queue>) {
        loop {
            let served = core::mem::take(&mut self.state.lock().waiting);
            let flushed = queue.clone();
            let flush = Bio::without_data(Operation::Flush, 0, 0, BioFlags::empty()).and_then(|flush| {
                flush.on_done(move |_, outcome| flushed.flushes.flushed(&flushed, served, outcome))
            });
            if let Ok(mut flush) = flush {
                flush.submitted_ns = machine::time::now_ns();
                if let Some(lane) = queue.insert(flush) {
                    queue.run_lane(lane);
                }
                return;
            }
            // The waiting bios went with the closure, and so were told that they failed.
            if !self.is_wanted_again() {
                return;
            }
        }
    }

    /// The flush under way has ended: whether there are some who wait for the next, which is under way then.
    fn is_wanted_again(&self) -> bool {
        let mut state = self.state.lock();
        state.under_way = !state.waiting.is_empty();
        state.under_way
    }

    fn flushed(&self, queue: &Arc<Queue>, served: Vec<Bio>, outcome: Result<()>) {
        for mut bio in served {
            if bio.operation == Operation::Flush
                || outcome.is_err()
                || !bio.flags.contains(BioFlags::PREFLUSH)
            {
                bio.finish(outcome);
                continue;
            }
            bio.flags.remove(BioFlags::PREFLUSH);
            let durable = bio.flags.contains(BioFlags::FORCE_UNIT_ACCESS);
            if durable && !queue.limits().force_unit_access {
                write_then_flush(queue, bio);
            } else if let Some(lane) = queue.insert(bio) {
                queue.run_lane(lane);
            }
        }
        if self.is_wanted_again() {
            self.start(queue);
        }
    }
}

/// Writes, and flushes before the bio's end is told.
fn write_then_flush(queue: &Arc<Queue>, mut bio: Bio) {
    bio.flags.remove(BioFlags::FORCE_UNIT_ACCESS);
    bio.flush_after = Some(queue.clone());
    if let Some(lane) = queue.insert(bio) {
        queue.run_lane(lane);
    }
}
