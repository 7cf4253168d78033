//! Events for user space: a device came, went, got or lost its driver.
//!
//! Each event has a number, counted from 1. The last [`KEPT`] are kept for a reader that comes later; [`set_listener`] names who is to
//! be told at once (the kernel's netlink socket, and what starts `/proc/sys/kernel/hotplug`). Emitting never waits for readers: who falls
//! behind by more than is kept finds a gap in the numbers.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;

use sync::{Once, SpinLock};

use super::driver::BusDevice;

/// Events kept: two per device of a machine that has just started.
pub const KEPT: usize = 128;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The device is there.
    Add,
    /// It is gone.
    Remove,
    /// It has a driver.
    Bind,
    /// It has none any more.
    Unbind,
    /// Something about it changed.
    Change,
}

impl Action {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Remove => "remove",
            Self::Bind => "bind",
            Self::Unbind => "unbind",
            Self::Change => "change",
        }
    }

    /// The one that a program asks for by writing into `uevent`; what follows the word is not looked at.
    pub fn parse(text: &str) -> Option<Self> {
        let word = text.split_ascii_whitespace().next()?;
        [Self::Add, Self::Remove, Self::Bind, Self::Unbind, Self::Change]
            .into_iter()
            .find(|action| action.name() == word)
    }
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its number.
    pub sequence: u64,
    /// What happened.
    pub action: Action,
    /// To which device, as a path below `/sys`.
    pub path: String,
    /// The bus of the device.
    pub subsystem: &'static str,
    /// Lines `KEY=VALUE` with the rest.
    pub properties: String,
}

struct Queue {
    last: u64,
    kept: VecDeque<Arc<Event>>,
}

static QUEUE: SpinLock<Queue> = SpinLock::named("device events", Queue { last: 0, kept: VecDeque::new() });
static LISTENER: Once<fn(&Event)> = Once::new();

/// Names who is told of each event, after it is kept. Once. May sleep.
pub fn set_listener(listener: fn(&Event)) {
    LISTENER.call_once(|| listener);
}

/// The number of the last event.
pub fn last_sequence() -> u64 {
    QUEUE.lock().last
}

/// The first kept event after one of this number.
pub fn after(sequence: u64) -> Option<Arc<Event>> {
    QUEUE.lock().kept.iter().find(|event| event.sequence > sequence).cloned()
}

/// Something happened to a device.
pub fn emit<D: BusDevice>(action: Action, device: &D) {
    let mut properties = String::new();
    device.describe(&mut properties);
    let (path, subsystem) = (device.path(), device.subsystem());
    let mut event = Arc::new(Event { sequence: 0, action, path, subsystem, properties });
    let mut room = VecDeque::new();
    if QUEUE.lock().kept.capacity() < KEPT {
        room.reserve_exact(KEPT);
    }
    let mut old = None;
    {
        let mut queue = QUEUE.lock();
        queue.last += 1;
        // Nobody else has it yet.
        if let Some(unshared) = Arc::get_mut(&mut event) {
            unshared.sequence = queue.last;
        }
        if queue.kept.capacity() < KEPT {
            room.extend(queue.kept.drain(..));
            core::mem::swap(&mut queue.kept, &mut room);
        }
        if queue.kept.len() >= KEPT {
            old = queue.kept.pop_front();
        }
        queue.kept.push_back(event.clone());
    }
    drop((old, room));
    if let Some(listener) = LISTENER.get() {
        listener(&event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(&'static str);

    impl BusDevice for Named {
        fn name(&self) -> String {
            self.0.into()
        }

        fn subsystem(&self) -> &'static str {
            "named"
        }

        fn describe(&self, out: &mut String) {
            out.push_str("A=1\n");
        }
    }

    #[test]
    fn late_reader_gets_what_is_kept_in_order() {
        let before = last_sequence();
        for _ in 0..KEPT + 5 {
            emit(Action::Add, &Named("one"));
        }
        emit(Action::Remove, &Named("one"));
        let (mut seen, mut last) = (0, before);
        while let Some(event) = after(last) {
            assert!(event.sequence > last);
            last = event.sequence;
            seen += 1;
        }
        assert!(seen <= KEPT && last >= before + KEPT as u64 + 6);
        let event = after(last - 1).unwrap();
        assert_eq!((event.action.name(), event.subsystem), ("remove", "named"));
        assert_eq!((event.path.as_str(), event.properties.as_str()), ("/devices/one", "A=1\n"));
    }
}
