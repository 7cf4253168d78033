//! Service devices in the directory of their port, hot-plug slots, error counters.

use alloc::sync::Arc;
use core::fmt::Write;

use device::express::aer::{self, Severity};
use device::express::{PORT_BUS, ServiceKind, hot_plug, services_of};
use device::pci::registers::EXTENDED_AER;
use device::pci::{Function, capability};
use vfs::generated::text_file;
use vfs::text::Text;
use vfs::{Error, Result};

use crate::bus::{common, error_of};
use crate::contents::Entries;
use crate::pci::speed;

/// Where the link's registers are in the PCI Express capability.
const LINK_CAPABILITIES: u16 = 0xc;
const LINK_STATUS: u16 = 0x12;

/// The service devices of a port.
pub(crate) fn services(entries: &mut Entries, port: &Arc<Function>) -> Result<()> {
    for attached in PORT_BUS.devices().into_iter().filter(|one| Arc::ptr_eq(&one.device.port, port)) {
        let name = device::model::BusDevice::name(&*attached.device);
        let identity = attached.identity;
        entries.directory_of(identity, &name, move |entries| common(entries, &PORT_BUS, &attached))?;
    }
    Ok(())
}

/// Errors by severity, and those that a root port was told of.
pub(crate) fn counters(entries: &mut Entries, function: &Arc<Function>) -> Result<()> {
    if capability::find_extended(&function.config, EXTENDED_AER).is_none() {
        return Ok(());
    }
    let files = [
        ("aer_dev_correctable", Severity::Correctable, "COR"),
        ("aer_dev_nonfatal", Severity::NonFatal, "NONFATAL"),
        ("aer_dev_fatal", Severity::Fatal, "FATAL"),
    ];
    for (name, severity, word) in files {
        let own = function.clone();
        let file = text_file(move |out| {
            write_counters(out, &own, severity, word);
            Ok(())
        })?;
        entries.file(name, 0o444, file)?;
    }
    let has_service = services_of(function).contains(ServiceKind::Aer);
    if !has_service || aer::root_totals(function, Severity::Fatal).is_none() {
        return Ok(());
    }
    for (name, severity) in
        [("cor", Severity::Correctable), ("nonfatal", Severity::NonFatal), ("fatal", Severity::Fatal)]
    {
        let own = function.clone();
        entries.line(&alloc::format!("aer_rootport_total_err_{name}"), move |out| {
            write!(out, "{}", aer::root_totals(&own, severity).unwrap_or(0))
        })?;
    }
    Ok(())
}

fn write_counters(out: &mut Text, function: &Function, severity: Severity, word: &str) {
    let named = aer::names(severity).iter().enumerate().filter(|(_, name)| !name.is_empty());
    for (bit, name) in named {
        // A text remembers when memory ran out.
        let _ = writeln!(out, "{name} {}", function.errors.of(severity, bit));
    }
    let _ = writeln!(out, "TOTAL_ERR_{word} {}", function.errors.total(severity));
}

/// `/sys/bus/pci/slots`
pub(crate) fn slots(entries: &mut Entries) -> Result<()> {
    for slot in hot_plug::slots() {
        let name = alloc::format!("{}", slot.capabilities.number());
        entries.directory_of(slot.identity, &name, move |entries| {
            let (shown, switched) = (slot.clone(), slot.clone());
            entries.setting(
                "power",
                move |out| write!(out, "{}", u8::from(shown.has_power())),
                move |text| match text {
                    "0" => switched.set_power(false).map_err(error_of),
                    "1" => switched.set_power(true).map_err(error_of),
                    _ => Err(Error::Invalid),
                },
            )?;
            let (shown, switched) = (slot.clone(), slot.clone());
            entries.setting(
                "attention",
                move |out| write!(out, "{}", shown.attention()),
                move |text| {
                    switched.set_attention(text.parse().map_err(|_| Error::Invalid)?);
                    Ok(())
                },
            )?;
            let own = slot.clone();
            entries.line("latch", move |out| write!(out, "{}", u8::from(own.is_latch_open())))?;
            let own = slot.clone();
            entries.line("adapter", move |out| write!(out, "{}", u8::from(own.is_occupied())))?;
            let port = slot.port().clone();
            let bus = port.buses().map_or(0, |(bus, _)| bus);
            let segment = port.address().segment;
            entries.line("address", move |out| write!(out, "{segment:04x}:{bus:02x}:00"))?;
            for (name, register) in [("max", LINK_CAPABILITIES), ("cur", LINK_STATUS)] {
                let port = port.clone();
                entries.line(&alloc::format!("{name}_bus_speed"), move |out| {
                    let offset = port.express.map_or(0, |express| express.offset);
                    out.write_str(speed(port.config.read_u16(offset + register) & 0xf))
                })?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
