//! A port that the kernel keeps for itself, under a name that it waits for. For programs it is in use.

use alloc::sync::Arc;

use sched::WaitQueue;
use sync::Once;

use super::port::Port;

/// Who waits for a port.
struct Wanted {
    name: &'static str,
    room: &'static WaitQueue,
    data: &'static WaitQueue,
    take: fn(KeptPort),
}

static WANTED: Once<Wanted> = Once::new();

/// Has the port of this name, when a console with one is found, given to `take`; it wakes these queues then. Only the first call counts.
pub fn keep_port(name: &'static str, room: &'static WaitQueue, data: &'static WaitQueue, take: fn(KeptPort)) {
    WANTED.call_once(|| Wanted { name, room, data, take });
}

/// Queues that are woken in place of a port's own.
#[derive(Clone, Copy)]
pub(super) struct Queues {
    pub(super) port: u32,
    pub(super) room: &'static WaitQueue,
    pub(super) data: &'static WaitQueue,
}

/// The queues for a port of this name, if it is to be kept.
pub(super) fn wanted(port: u32, name: &str) -> Option<Queues> {
    let wanted = WANTED.get().filter(|wanted| wanted.name == name)?;
    Some(Queues { port, room: wanted.room, data: wanted.data })
}

/// Hands the port over.
pub(super) fn hand_over(port: &Arc<Port>) {
    if let Some(wanted) = WANTED.get() {
        (wanted.take)(KeptPort(port.clone()));
    }
}

/// The port: a stream of bytes in both directions. Nothing here waits.
pub struct KeptPort(Arc<Port>);

impl KeptPort {
    /// Writes all the pieces, one after the other with nothing in between, or none of them.
    pub fn try_write_all(&self, pieces: &[&[u8]]) -> bool {
        self.0.try_write_all(pieces)
    }

    /// How many bytes can be written now. Less than asked for: there will be a wake-up.
    pub fn room(&self, wanted: usize) -> usize {
        self.0.room(wanted)
    }

    /// Whether the host has all that was written. If not, there will be a wake-up.
    pub fn is_drained(&self) -> bool {
        self.0.is_drained()
    }

    /// Takes bytes that have come, and says how many.
    pub fn read(&self, target: &mut [u8]) -> usize {
        self.0.read(target)
    }

    /// Whether there are bytes to read. If not, there will be a wake-up.
    pub fn has_data(&self) -> bool {
        self.0.has_data()
    }

    /// Whether it is not there any more.
    pub fn is_gone(&self) -> bool {
        !self.0.is_there()
    }
}
