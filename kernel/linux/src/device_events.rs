//! Who is told of devices that come, go and change: programs that listen to netlink sockets, and the program of `/proc/sys/kernel/hotplug`.
//!
//! A message has the form of Linux's: what happened and where in one string, `add@/devices/virtual/block/loop0`, and then each variable in a string
//! of its own, with a zero after each. Events get their numbers while the list of listeners is locked, so that all see them in the order of the numbers.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use device::model::uevent::{self, Event};
use net::netlink;
use vfs::allocation;

use crate::helper;

/// The kernel's listener.
struct Tellers;

/// Names it. Once, at start-up.
pub(crate) fn register() {
    uevent::set_listener(&Tellers);
}

impl uevent::Listener for Tellers {
    fn wants(&self) -> bool {
        netlink::has_members(netlink::KERNEL_GROUP) || helper::has_hotplug()
    }

    fn tell(&self, event: Event) {
        let mut sequence = 0;
        if netlink::has_members(netlink::KERNEL_GROUP) {
            let sent = netlink::publish(netlink::KERNEL_GROUP, || {
                sequence = uevent::next_sequence();
                message_of(&event, sequence)
            });
            if let Err(error) = sent {
                log::warn!("an event of {} is lost: {error:?}", event.path);
            }
        }
        if sequence == 0 {
            sequence = uevent::next_sequence();
        }
        helper::start_hotplug(&event, sequence);
    }
}

/// Counts bytes.
struct Length(usize);

impl Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

/// Bytes that are there already, in which text takes no memory.
struct Room(Vec<u8>);

impl Write for Room {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.capacity() - self.0.len() < text.len() {
            return Err(fmt::Error);
        }
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

fn write_message(out: &mut dyn Write, event: &Event, sequence: u64) -> fmt::Result {
    let (action, path) = (event.action.name(), &event.path);
    write!(out, "{action}@{path}\0ACTION={action}\0DEVPATH={path}\0SUBSYSTEM={}\0", event.subsystem)?;
    for variable in event.variables() {
        write!(out, "{variable}\0")?;
    }
    write!(out, "SEQNUM={sequence}\0")
}

/// The bytes of a message.
///
/// # Errors
/// ENOMEM.
fn message_of(event: &Event, sequence: u64) -> vfs::Result<Vec<u8>> {
    let mut length = Length(0);
    let mut room = Room(Vec::new());
    // Counting does not fail.
    let _ = write_message(&mut length, event, sequence);
    allocation::reserve(&mut room.0, length.0)?;
    write_message(&mut room, event, sequence).map_err(|_| vfs::Error::OutOfMemory)?;
    Ok(room.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_form_of_linux() {
        let event = Event {
            action: uevent::Action::Add,
            path: "/devices/virtual/block/loop0".into(),
            subsystem: "block",
            properties: "MAJOR=7\nMINOR=0\nno variable\n".into(),
        };
        let expected = "add@/devices/virtual/block/loop0\0ACTION=add\0DEVPATH=/devices/virtual/block/loop0\0SUBSYSTEM=block\0\
                        MAJOR=7\0MINOR=0\0SEQNUM=12\0";
        assert_eq!(message_of(&event, 12).unwrap(), expected.as_bytes());
    }
}
