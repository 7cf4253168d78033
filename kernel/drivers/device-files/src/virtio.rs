//! Virtio devices, below what each is reached by: a PCI function, or registers in memory (`/sys/devices/platform`).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use device::model::BusDevice;
use vfs::Result;
use virtio::BUS;

use crate::bus::{add_directory, common};
use crate::contents::Entries;

/// Where devices are that are reached by registers in memory.
const PLATFORM: &str = "/devices/platform";

/// Adds the devices that are on no other bus.
pub(crate) fn fill() -> Result<()> {
    add_directory(&PLATFORM[1..], |entries| {
        let mut names: Vec<String> = Vec::new();
        for attached in BUS.devices() {
            let path = attached.device.path();
            let below = path.strip_prefix(PLATFORM).and_then(|rest| rest.strip_prefix('/'));
            let Some((name, _)) = below.and_then(|rest| rest.split_once('/')) else { continue };
            if !names.iter().any(|known| known == name) {
                names.push(name.into());
            }
        }
        for name in names {
            let path = alloc::format!("{PLATFORM}/{name}");
            entries.directory(&name, move |entries| below(entries, &path))?;
        }
        Ok(())
    })
}

/// Whether a path below `/sys` is that of a virtio device.
pub(crate) fn is_at(path: &str) -> bool {
    BUS.devices().iter().any(|attached| attached.device.path() == path)
}

/// The virtio device that is reached by what has this directory, if there is one.
pub(crate) fn below(entries: &mut Entries, parent: &str) -> Result<()> {
    for attached in BUS.devices() {
        let name = attached.device.name();
        if attached.device.path().strip_suffix(&name).and_then(|path| path.strip_suffix('/')) != Some(parent)
        {
            continue;
        }
        entries.directory_of(attached.identity, &name, move |entries| {
            let device = &attached.device;
            common(entries, &BUS, &attached)?;
            let (kind, vendor) = (device.kind, device.vendor);
            entries.line("device", move |out| write!(out, "{kind:#06x}"))?;
            entries.line("vendor", move |out| write!(out, "{vendor:#06x}"))?;
            let own = device.clone();
            entries.line("status", move |out| write!(out, "{:#010x}", own.status()))?;
            let own = device.clone();
            entries.line("features", move |out| {
                // The first bit comes first.
                let features = own.features();
                (0..u64::BITS).try_for_each(|bit| write!(out, "{}", features >> bit & 1))
            })?;
            let own = device.clone();
            entries.line("modalias", move |out| own.write_modalias(out))?;
            crate::block::below(entries, &device.path())
        })?;
    }
    Ok(())
}
