//! What else Linux documents of a PCI function (`Documentation/ABI/testing/sysfs-bus-pci`): its place among processors, its interrupts, how it can be reset, and which driver
//! is to have it.
//!
//! Memory regions are not files (`resourceN`): a mapping of a program has frames of memory behind it, which registers are not.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt::Write;

use device::model::Attached;
use device::pci::{self, Function, MessageSource};
use machine::cpu::{self, CpuSet};
use vfs::{Error, Result};

use crate::bus::{error_of, is_on};
use crate::contents::Entries;

/// Most bytes of a driver's name: a page with its end, as on Linux.
const NAME_MAX: usize = 4094;
/// Base class of what shows pictures, of the kind that has been there since the first PCs.
const VGA: u32 = 0x03_0000;

pub(crate) fn all(entries: &mut Entries, attached: &Arc<Attached<Function>>) -> Result<()> {
    let function = &attached.device;
    processors(entries)?;
    constants(entries, function)?;
    interrupts(entries, function)?;
    driver_override(entries, function)?;
    reset(entries, function)
}

/// All processors are as near to it as any.
fn processors(entries: &mut Entries) -> Result<()> {
    entries.line("numa_node", |out| out.write_str("-1"))?;
    let all = || CpuSet::first(cpu::count());
    entries.line("local_cpulist", move |out| all().write_list(out))?;
    entries.line("local_cpus", move |out| all().write_mask(cpu::count(), out))
}

fn constants(entries: &mut Entries, function: &Arc<Function>) -> Result<()> {
    entries.line("dma_mask_bits", |out| out.write_str("64"))?;
    entries.line("consistent_dma_mask_bits", |out| out.write_str("64"))?;
    entries.line("broken_parity_status", |out| out.write_str("0"))?;
    // Nothing here puts functions to sleep.
    entries.line("d3cold_allowed", |out| out.write_str("0"))?;
    entries.line("power_state", |out| out.write_str("D0"))?;
    entries.line("msi_bus", |out| out.write_str("1"))?;
    if function.express.is_some() {
        entries.line("ari_enabled", |out| out.write_str("0"))?;
    }
    if function.identity.class & 0xff_ff00 == VGA {
        entries.line("boot_vga", |out| out.write_str("0"))?;
    }
    Ok(())
}

/// `msi_irqs`: a file for each interrupt by message.
fn interrupts(entries: &mut Entries, function: &Arc<Function>) -> Result<()> {
    if function.messages().is_none() {
        return Ok(());
    }
    let function = function.clone();
    entries.directory("msi_irqs", move |entries| {
        let kind = match function.message_source() {
            Some(MessageSource::Table) => "msix",
            _ => "msi",
        };
        let numbers = function.messages();
        for number in numbers.as_deref().into_iter().flatten() {
            entries.line(&alloc::format!("{number}"), move |out| out.write_str(kind))?;
        }
        Ok(())
    })
}

fn driver_override(entries: &mut Entries, function: &Arc<Function>) -> Result<()> {
    let (shown, named) = (function.clone(), function.clone());
    entries.setting(
        "driver_override",
        move |out| out.write_str(shown.driver_override().as_deref().unwrap_or("(null)")),
        move |text| {
            if text.len() > NAME_MAX {
                return Err(Error::Invalid);
            }
            named.set_driver_override(if text.is_empty() { None } else { Some(text.into()) });
            Ok(())
        },
    )
}

/// How it can be reset, if it can be.
fn reset(entries: &mut Entries, function: &Arc<Function>) -> Result<()> {
    let Some(hierarchy) = pci::hierarchy() else { return Ok(()) };
    if pci::reset_methods(hierarchy, function).next().is_none() {
        return Ok(());
    }
    let own = function.clone();
    entries.line("reset_method", move |out| {
        let mut names = String::new();
        for method in pci::reset_methods(hierarchy, &own) {
            let blank = if names.is_empty() { "" } else { " " };
            // Writing into a string does not fail.
            let _ = write!(names, "{blank}{}", method.name());
        }
        out.write_str(&names)
    })?;
    let own = function.clone();
    entries.switch("reset", move |text| match is_on(text) {
        Ok(true) if text == "1" => pci::reset(&own).map_err(error_of),
        _ => Err(Error::Invalid),
    })
}
