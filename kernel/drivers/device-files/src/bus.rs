//! `/sys/bus`, and the tree of devices below `/sys/devices`.
//!
//! A bus has the directories `devices` (links to where the devices are) and `drivers` (for each one, links to its devices and the
//! switches `bind`, `unbind` and, where ids can be added, `new_id` and `remove_id`).

use alloc::string::String;
use core::fmt::Write;

use device::express::PORT_BUS;
use device::model::{Attached, Bus, BusDevice, DriverError};
use device::pci;
use vfs::generated::{Body, Node};
use vfs::{Error, Result};

use crate::contents::{Contents, Entries};
use crate::pci as function;

/// As errno.
pub(crate) fn error_of(error: DriverError) -> Error {
    match error {
        DriverError::NotFound => Error::NoDevice,
        DriverError::Busy => Error::Busy,
        DriverError::NotSupported => Error::NotSupported,
        DriverError::Broken => Error::Io,
        DriverError::Exhausted => Error::OutOfMemory,
        DriverError::Invalid => Error::Invalid,
    }
}

/// A computed directory at a path in /sys.
pub(crate) fn add_directory(
    path: &str,
    fill: impl Fn(&mut Entries) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let contents = Contents::new(alloc::format!("/sys/{path}"), fill)?;
    sysfs::add(path, Node::new(0o755, Body::Directory(contents)))
}

/// Adds what devices there are.
pub(crate) fn fill() -> Result<()> {
    pci::initialize();
    sysfs::add_text("kernel/uevent_seqnum", |out| {
        // A text remembers when memory ran out.
        let _ = writeln!(out, "{}", device::model::uevent::last_sequence());
        Ok(())
    })?;
    add_directory("bus/pci", |entries| {
        entries.switch("rescan", |text| {
            if is_on(text)? {
                pci::rescan(None);
            }
            Ok(())
        })?;
        entries.directory("slots", crate::express::slots)?;
        bus(entries, &pci::BUS)
    })?;
    add_directory("bus/pci_express", |entries| bus(entries, &PORT_BUS))?;
    add_directory("bus/virtio", |entries| bus(entries, &::virtio::BUS))?;
    crate::block::fill()?;
    crate::virtio::fill()?;
    crate::class::fill()?;
    let Some(hierarchy) = pci::hierarchy() else { return Ok(()) };
    let root = hierarchy.root();
    let top = alloc::format!("devices/pci{:04x}:{:02x}", root.segment, root.first_bus);
    add_directory(&top, |entries| {
        entries.line("uevent", |_| Ok(()))?;
        function::children(entries, None)
    })
}

/// A number that stands for yes or no.
pub(crate) fn is_on(text: &str) -> Result<bool> {
    text.parse::<u32>().map(|value| value != 0).map_err(|_| Error::Invalid)
}

/// A bus's devices and drivers.
pub(crate) fn bus<D: BusDevice>(entries: &mut Entries, bus: &'static Bus<D>) -> Result<()> {
    entries.switch("drivers_probe", move |text| bus.probe(text).map_err(error_of))?;
    entries.setting(
        "drivers_autoprobe",
        move |out| write!(out, "{}", u8::from(bus.autoprobe())),
        move |text| {
            bus.set_autoprobe(is_on(text)?);
            Ok(())
        },
    )?;
    entries.directory("devices", move |entries| {
        for attached in bus.devices() {
            let target = alloc::format!("../../..{}", attached.device.path());
            entries.link(&attached.device.name(), target)?;
        }
        Ok(())
    })?;
    entries.directory("drivers", move |entries| {
        for driver in bus.drivers() {
            let name = String::from(driver.name());
            entries.directory(driver.name(), move |entries| self::driver(entries, bus, &name))?;
        }
        Ok(())
    })
}

fn driver<D: BusDevice>(entries: &mut Entries, bus: &'static Bus<D>, name: &str) -> Result<()> {
    for attached in bus.devices() {
        if attached.driver().is_some_and(|driver| driver.name() == name) {
            let target = alloc::format!("../../../..{}", attached.device.path());
            entries.link(&attached.device.name(), target)?;
        }
    }
    let own = || String::from(name);
    let (for_bind, for_unbind, for_id) = (own(), own(), own());
    entries.switch("bind", move |text| bus.bind(&for_bind, text).map_err(error_of))?;
    entries.switch("unbind", move |text| bus.unbind(&for_unbind, text).map_err(error_of))?;
    if bus.driver(name).is_some_and(|driver| driver.takes_ids()) {
        let for_removal = own();
        entries.switch("new_id", move |text| bus.add_id(&for_id, text).map_err(error_of))?;
        entries.switch("remove_id", move |text| bus.remove_id(&for_removal, text).map_err(error_of))?;
    }
    Ok(())
}

/// What devices of all buses show: `uevent`, `subsystem`, and `driver` if they have one.
pub(crate) fn common<D: BusDevice>(
    entries: &mut Entries,
    bus: &'static Bus<D>,
    attached: &Attached<D>,
) -> Result<()> {
    let depth = attached.device.path().matches('/').count();
    let up = "../".repeat(depth);
    entries.link("subsystem", alloc::format!("{up}bus/{}", bus.name()))?;
    if let Some(driver) = attached.driver() {
        entries.link("driver", alloc::format!("{up}bus/{}/drivers/{}", bus.name(), driver.name()))?;
    }
    let name = attached.device.name();
    let for_store = name.clone();
    let show = move |out: &mut vfs::text::Text| match bus.device(&name) {
        Some(attached) => out.write_str(Bus::describe(&attached).trim_end_matches('\n')),
        None => Ok(()),
    };
    entries.setting("uevent", show, move |text| {
        let attached = bus.device(&for_store).ok_or(Error::NoDevice)?;
        Bus::pretend(&attached, text).map_err(error_of)
    })
}
