//! The directory of a PCI function.

use alloc::sync::Arc;
use core::fmt::Write;

use device::model::BusDevice;
use device::pci::{self, Address, BUS, Function, REGIONS, WindowKind};
use vfs::text::Text;
use vfs::{Error, Result, allocation};

use crate::attributes;
use crate::bus::{common, is_on};
use crate::config::ConfigFile;
use crate::contents::Entries;
use crate::express;

/// Registers for virtual functions, of which there are none, between those of a function and a bridge's windows.
const VIRTUAL_REGIONS: usize = 6;
/// Lines for a bridge's windows.
const WINDOWS: usize = 4;

/// The functions right behind a bridge, each with those behind it.
pub(crate) fn children(entries: &mut Entries, bridge: Option<Address>) -> Result<()> {
    for attached in BUS.devices().into_iter().filter(|attached| attached.device.upstream == bridge) {
        let name = alloc::format!("{}", attached.device.address());
        entries.directory_of(attached.identity, &name, move |entries| {
            let function = &attached.device;
            common(entries, &BUS, &attached)?;
            identity(entries, function)?;
            place(entries, function)?;
            switches(entries, function)?;
            attributes::all(entries, &attached)?;
            link(entries, function)?;
            express::counters(entries, function)?;
            express::services(entries, function)?;
            crate::virtio::below(entries, &function.path())?;
            crate::block::below(entries, &function.path())?;
            children(entries, Some(function.address()))
        })?;
    }
    Ok(())
}

fn identity(entries: &mut Entries, function: &Arc<Function>) -> Result<()> {
    let identity = function.identity;
    let hexadecimal = [
        ("vendor", identity.vendor),
        ("device", identity.device),
        ("subsystem_vendor", identity.subsystem_vendor),
        ("subsystem_device", identity.subsystem),
    ];
    for (name, value) in hexadecimal {
        entries.line(name, move |out| write!(out, "{value:#06x}"))?;
    }
    entries.line("class", move |out| write!(out, "{:#08x}", identity.class))?;
    entries.line("revision", move |out| write!(out, "{:#04x}", identity.revision))?;
    let own = function.clone();
    entries.line("modalias", move |out| own.write_modalias(out))
}

fn place(entries: &mut Entries, function: &Arc<Function>) -> Result<()> {
    let config = allocation::arc(ConfigFile::of_sysfs(function.clone()))?;
    entries.file("config", 0o644, config)?;
    let own = function.clone();
    entries.line("irq", move |out| write!(out, "{}", own.interrupt()))?;
    let own = function.clone();
    entries.file(
        "resource",
        0o444,
        vfs::generated::text_file(move |out| {
            write_resources(out, &own);
            Ok(())
        })?,
    )?;
    if let Some((secondary, subordinate)) = function.buses() {
        entries.line("secondary_bus_number", move |out| write!(out, "{secondary}"))?;
        entries.line("subordinate_bus_number", move |out| write!(out, "{subordinate}"))?;
    }
    Ok(())
}

/// First and last address and kind of each region, of those of virtual functions, and of a bridge's windows.
fn write_resources(out: &mut Text, function: &Function) {
    let mut line = |start: u64, end: u64, flags: u64| {
        let _ = writeln!(out, "{start:#018x} {end:#018x} {flags:#018x}");
    };
    for index in 0..REGIONS {
        match function.region(index) {
            Some(region) => line(region.start, region.end() - 1, region.flags(index)),
            None => line(0, 0, 0),
        }
    }
    if !function.is_bridge() {
        return;
    }
    (0..VIRTUAL_REGIONS).for_each(|_| line(0, 0, 0));
    let windows = function.windows();
    for (kind, flags) in
        [(WindowKind::Io, 0x101), (WindowKind::Memory, 0x200), (WindowKind::Prefetch, 0x10_2201)]
    {
        let window = windows.get(kind);
        match window.bytes() {
            0 => line(0, 0, 0),
            _ => line(window.start, window.end - 1, flags),
        }
    }
    (3..WINDOWS).for_each(|_| line(0, 0, 0));
}

fn switches(entries: &mut Entries, function: &Arc<Function>) -> Result<()> {
    let (shown, switched) = (function.clone(), function.clone());
    entries.setting(
        "enable",
        move |out| write!(out, "{}", shown.enable_count()),
        move |text| {
            let wanted = is_on(text)?;
            // What has a driver is that one's.
            if BUS.attached(&switched).is_some_and(|attached| attached.driver().is_some()) {
                return Err(Error::Busy);
            }
            match (wanted, switched.enable_count()) {
                (true, _) => switched.enable(),
                (false, 0) => return Err(Error::Io),
                (false, _) => switched.disable(),
            }
            Ok(())
        },
    )?;
    let own = function.clone();
    entries.switch("remove", move |text| {
        if is_on(text)? {
            pci::remove(core::slice::from_ref(&own));
        }
        Ok(())
    })?;
    let own = function.clone();
    entries.switch("rescan", move |text| {
        if is_on(text)? {
            let bridge = if own.is_bridge() { Some(own.clone()) } else { own.upstream.and_then(pci::find) };
            pci::rescan(bridge.as_ref());
        }
        Ok(())
    })
}

/// Speed and width of a PCI Express function's link.
fn link(entries: &mut Entries, function: &Arc<Function>) -> Result<()> {
    const CAPABILITIES: u16 = 0xc;
    const STATUS: u16 = 0x12;
    let Some(express) = function.express else { return Ok(()) };
    for (name, register) in [("max", CAPABILITIES), ("current", STATUS)] {
        let (for_speed, for_width) = (function.clone(), function.clone());
        let register = express.offset + register;
        entries.line(&alloc::format!("{name}_link_speed"), move |out| {
            out.write_str(speed(for_speed.config.read_u16(register) & 0xf))
        })?;
        entries.line(&alloc::format!("{name}_link_width"), move |out| {
            write!(out, "{}", for_width.config.read_u16(register) >> 4 & 0x3f)
        })?;
    }
    Ok(())
}

/// A link's speed as Linux writes it.
pub(crate) const fn speed(code: u16) -> &'static str {
    match code {
        1 => "2.5 GT/s PCIe",
        2 => "5.0 GT/s PCIe",
        3 => "8.0 GT/s PCIe",
        4 => "16.0 GT/s PCIe",
        5 => "32.0 GT/s PCIe",
        6 => "64.0 GT/s PCIe",
        _ => "Unknown",
    }
}
