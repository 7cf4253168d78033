//! Devices that are on no bus: `/sys/class`, `/sys/devices/virtual`; and `/sys/dev`, which finds directories by number.
//!
//! A character device belongs to a class by its major number: `mem`, `tty` or `misc`. Programs that fill a `/dev` of their own (`mdev -s`) go by these
//! directories.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use devfs::nodes::{self, Node};
use device::model::BusDevice;
use device::model::uevent::{self, Request};
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::{Error, Result};

use crate::bus::add_directory;
use crate::contents::Entries;
use crate::random;

/// Every class, and the majors of its devices; what is of no other class is of the last one.
const CLASSES: [(&str, &[u32]); 3] = [("mem", &[1]), ("tty", &[4, 5, 204, 229]), ("misc", &[])];

fn class_of(node: &Node) -> &'static str {
    let has = |(_, majors): &&(&str, &[u32])| majors.contains(&node.number.major);
    CLASSES.iter().find(has).unwrap_or(&CLASSES[CLASSES.len() - 1]).0
}

/// Its name below `/sys`, which is not always that in `/dev`.
fn name_of(node: &Node) -> &'static str {
    if random::is_it(node.number) { random::NAME } else { node.path }
}

/// The character devices, of a class or of all.
fn devices(class: Option<&str>) -> Vec<Node> {
    let mut devices = nodes::all();
    devices.retain(|node| {
        node.kind == FileKind::CharacterDevice && class.is_none_or(|class| class_of(node) == class)
    });
    devices
}

/// Adds them all.
pub(crate) fn fill() -> Result<()> {
    for (class, _) in CLASSES {
        add_directory(&format!("class/{class}"), move |entries| {
            devices(Some(class)).iter().try_for_each(|node| {
                let name = name_of(node);
                entries.link(name, format!("../../devices/virtual/{class}/{name}"))
            })
        })?;
        add_directory(&format!("devices/virtual/{class}"), move |entries| {
            devices(Some(class)).into_iter().try_for_each(|node| {
                entries.directory(name_of(&node), move |entries| device(entries, class, &node))
            })
        })?;
    }
    add_directory("dev/char", |entries| {
        devices(None).iter().try_for_each(|node| {
            let target = format!("../../devices/virtual/{}/{}", class_of(node), name_of(node));
            entries.link(&format!("{}:{}", node.number.major, node.number.minor), target)
        })
    })?;
    add_directory("dev/block", crate::block::by_number)
}

fn device(entries: &mut Entries, class: &'static str, node: &Node) -> Result<()> {
    let (number, path, mode) = (node.number, node.path, node.mode);
    if random::is_it(number) {
        random::fill(entries)?;
    }
    entries.link("subsystem", format!("../../../../class/{class}"))?;
    entries.line("dev", move |out| write!(out, "{}:{}", number.major, number.minor))?;
    let subject = Subject { name: name_of(node), path, class, number, mode };
    let show = move |out: &mut vfs::text::Text| subject.write(out);
    entries.setting("uevent", show, move |text| {
        let request = Request::parse(text).ok_or(Error::Invalid)?;
        uevent::emit_with(request.action, &subject, &request.properties);
        Ok(())
    })
}

/// A device in an event for user space.
#[derive(Clone, Copy)]
struct Subject {
    name: &'static str,
    path: &'static str,
    class: &'static str,
    number: DeviceNumber,
    mode: u32,
}

impl Subject {
    fn write(&self, out: &mut dyn Write) -> core::fmt::Result {
        let Self { path, number, mode, .. } = self;
        write!(out, "MAJOR={}\nMINOR={}\nDEVNAME={path}\nDEVMODE=0{mode:o}", number.major, number.minor)
    }
}

impl BusDevice for Subject {
    fn name(&self) -> String {
        self.name.into()
    }

    fn subsystem(&self) -> &'static str {
        self.class
    }

    fn path(&self) -> String {
        format!("/devices/virtual/{}/{}", self.class, self.name)
    }

    fn describe(&self, out: &mut String) {
        // Writing into a string does not fail.
        let _ = self.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_device_has_a_class() {
        let node = |major| Node {
            path: "x",
            kind: FileKind::CharacterDevice,
            number: DeviceNumber::new(major, 0),
            mode: 0o666,
        };
        assert_eq!(
            [1, 5, 229, 10, 99].map(|major| class_of(&node(major))),
            ["mem", "tty", "tty", "misc", "misc"]
        );
    }
}
