//! `/proc/bus/pci`: a list of all functions, and configuration space by bus, device and function number.

use alloc::collections::BTreeSet;
use core::fmt::Write;

use device::pci::{self, Address, BUS, REGIONS};
use vfs::generated::{Body, Node};
use vfs::text::Text;
use vfs::{Result, allocation};

use crate::config::ConfigFile;
use crate::contents::{Contents, Entries};

/// Adds the directory.
pub(crate) fn fill() -> Result<()> {
    pci::initialize();
    procfs::add_text("partitions", crate::block::partitions)?;
    procfs::add_text("diskstats", crate::block::disk_statistics)?;
    let contents = Contents::new("/proc/bus/pci".into(), |entries| {
        entries.file(
            "devices",
            0o444,
            vfs::generated::text_file(|out| {
                list(out);
                Ok(())
            })?,
        )?;
        let buses: BTreeSet<u8> = BUS.devices().iter().map(|one| one.device.address().bus).collect();
        for bus in buses {
            entries.directory(&alloc::format!("{bus:02x}"), move |entries| functions(entries, bus))?;
        }
        Ok(())
    })?;
    procfs::add_at("bus/pci", Node::new(0o555, Body::Directory(contents)))
}

fn functions(entries: &mut Entries, bus: u8) -> Result<()> {
    for attached in BUS.devices().into_iter().filter(|one| one.device.address().bus == bus) {
        let address: Address = attached.device.address();
        let name = alloc::format!("{:02x}.{}", address.device(), address.function());
        let config = allocation::arc(ConfigFile::of_proc(attached.device.clone()))?;
        entries.file_of(attached.identity, &name, 0o644, config)?;
    }
    Ok(())
}

/// A line for each function: where, who, interrupt, addresses with the low bits of their registers, sizes, driver.
fn list(out: &mut Text) {
    for attached in BUS.devices() {
        let function = &attached.device;
        let (address, identity) = (function.address(), function.identity);
        // A text remembers when memory ran out.
        let _ = write!(out, "{:04x}\t{:04x}{:04x}\t", address.requester(), identity.vendor, identity.device);
        let _ = write!(out, "{:x}", function.interrupt());
        let regions = (0..REGIONS).map(|index| function.region(index).map(|region| (index, region)));
        for region in regions.clone() {
            let start = region.map_or(0, |(index, region)| region.start | region.flags(index) & 0xf);
            let _ = write!(out, "\t{start:16x}");
        }
        for region in regions {
            let _ = write!(out, "\t{:16x}", region.map_or(0, |(_, region)| region.bytes));
        }
        let driver = attached.driver();
        let _ = writeln!(out, "\t{}", driver.as_ref().map_or("", |driver| driver.name()));
    }
}
