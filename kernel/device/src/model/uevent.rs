//! Events for user space: a device came, went, got or lost its driver, or a program wants others to believe so.
//!
//! Each event has a number, counted from 1. [`set_listener`] names who is to be told of events: the personality, which has programs that listen to
//! netlink sockets and starts `/proc/sys/kernel/hotplug`. Without a listener, or while it has nobody to tell, an event is a number that is counted, and
//! nothing else is made.

use alloc::string::String;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};

use sync::Once;

use super::driver::BusDevice;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The device is there.
    Add,
    /// It is gone.
    Remove,
    /// Something about it changed.
    Change,
    /// It has another name or place.
    Move,
    /// It works.
    Online,
    /// It does not.
    Offline,
    /// It has a driver.
    Bind,
    /// It has none any more.
    Unbind,
}

impl Action {
    const ALL: [Self; 8] = [
        Self::Add,
        Self::Remove,
        Self::Change,
        Self::Move,
        Self::Online,
        Self::Offline,
        Self::Bind,
        Self::Unbind,
    ];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Remove => "remove",
            Self::Change => "change",
            Self::Move => "move",
            Self::Online => "online",
            Self::Offline => "offline",
            Self::Bind => "bind",
            Self::Unbind => "unbind",
        }
    }
}

/// An event that a program asks for by writing into `uevent`: an action, perhaps an identity, and after that perhaps keys with values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// What shall have happened.
    pub action: Action,
    /// Lines that say who asked, and what else was said.
    pub properties: String,
}

/// Bytes of a request at most.
const REQUEST_BYTES_MAX: usize = 2048;

/// Whether a word has the form of a UUID: hexadecimal digits in five groups.
fn is_uuid(word: &str) -> bool {
    let groups =
        word.split('-').map(|group| (group.len(), group.bytes().all(|byte| byte.is_ascii_hexdigit())));
    groups.eq([8, 4, 4, 4, 12].map(|length| (length, true)))
}

impl Request {
    /// Reads what was written: `ACTION [UUID [KEY=VALUE ...]]`, with single blanks; keys and values are letters and digits. None if it is not of that form.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let name = words.next()?;
        let action = Action::ALL.into_iter().find(|action| action.name() == name)?;
        let uuid = words.next();
        if text.len() > REQUEST_BYTES_MAX || uuid.is_some_and(|uuid| !is_uuid(uuid)) {
            return None;
        }
        let mut properties = String::from("SYNTH_UUID=");
        properties.push_str(uuid.unwrap_or("0"));
        properties.push('\n');
        for word in words {
            let is_word =
                |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let (key, value) = word.split_once('=').filter(|(key, value)| is_word(key) && is_word(value))?;
            // Writing into a string does not fail.
            let _ = writeln!(properties, "SYNTH_ARG_{key}={value}");
        }
        Some(Self { action, properties })
    }
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// What happened.
    pub action: Action,
    /// To which device, as a path below `/sys`.
    pub path: String,
    /// The bus of the device.
    pub subsystem: &'static str,
    /// Lines `KEY=VALUE` with the rest.
    pub properties: String,
}

impl Event {
    /// The lines of it that are variables.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.properties.lines().filter(|line| line.contains('='))
    }
}

/// Who is told of events.
pub trait Listener: Sync {
    /// Whether there is somebody to tell.
    fn wants(&self) -> bool;

    /// An event happened. It draws its [number](next_sequence) itself, so that it can have its listeners see them in order. May sleep.
    fn tell(&self, event: Event);
}

static LAST: AtomicU64 = AtomicU64::new(0);
static LISTENER: Once<&'static dyn Listener> = Once::new();

/// Names who is told of each event. Once.
pub fn set_listener(listener: &'static dyn Listener) {
    LISTENER.call_once(|| listener);
}

/// The number of the last event.
pub fn last_sequence() -> u64 {
    LAST.load(Ordering::Relaxed)
}

/// The number of an event that happens now.
pub fn next_sequence() -> u64 {
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// Something happened to a device.
pub fn emit<D: BusDevice>(action: Action, device: &D) {
    emit_with(action, device, "");
}

/// Something happened to a device, with more to say than what the device says of itself.
pub fn emit_with<D: BusDevice>(action: Action, device: &D, more: &str) {
    let Some(listener) = LISTENER.get().filter(|listener| listener.wants()) else {
        next_sequence();
        return;
    };
    let mut properties = String::from(more);
    device.describe(&mut properties);
    listener.tell(Event { action, path: device.path(), subsystem: device.subsystem(), properties });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_an_action_an_identity_and_keys() {
        let request = |text: &str| Request::parse(text).map(|request| (request.action, request.properties));
        assert_eq!(request("add"), Some((Action::Add, "SYNTH_UUID=0\n".into())));
        let uuid = "fe4d7c9d-b8c6-4a70-9ef1-3d8a58d18eed";
        let expected = "SYNTH_UUID=fe4d7c9d-b8c6-4a70-9ef1-3d8a58d18eed\nSYNTH_ARG_A=1\nSYNTH_ARG_B=abc\n";
        assert_eq!(
            request(&alloc::format!("change {uuid} A=1 B=abc")),
            Some((Action::Change, expected.into()))
        );
        assert!(request(&alloc::format!("offline {uuid}")).is_some());
        for wrong in [
            "",
            "added",
            "add ",
            "add  ",
            "add x",
            "add A=1",
            " add",
            "add fe4d7c9d-b8c6-4a70-9ef1-3d8a58d18ee",
        ] {
            assert_eq!(request(wrong), None, "{wrong:?}");
        }
        for wrong in ["A", "A=", "=1", "A=1 ", "A_B=1", "A=1=2", "A=\n"] {
            assert_eq!(request(&alloc::format!("add {uuid} {wrong}")), None, "{wrong:?}");
        }
        assert_eq!(request(&alloc::format!("add {uuid} A={}", "1".repeat(REQUEST_BYTES_MAX))), None);
    }

    #[test]
    fn events_are_counted_without_a_listener() {
        struct Named;
        impl BusDevice for Named {
            fn name(&self) -> String {
                "one".into()
            }

            fn subsystem(&self) -> &'static str {
                "named"
            }

            fn describe(&self, _out: &mut String) {
                panic!("nobody wants to know");
            }
        }
        let before = last_sequence();
        emit(Action::Add, &Named);
        assert!(last_sequence() > before);
    }
}
