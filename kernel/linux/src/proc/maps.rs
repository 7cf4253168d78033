//! What a process has mapped: `maps`, `smaps`, `statm`, and the memory lines of `status`.

use alloc::string::String;
use core::fmt::Write;

use machine::address::PAGE_SIZE;
use memory::address_space::{AddressSpace, MapBacking};
use memory::region::{Region, RegionFlags};
use vfs::text::Text;
use vfs::{DeviceNumber, Result};

use super::process::Subject;

const PAGE_KIB: u64 = PAGE_SIZE as u64 / 1024;
/// Where names start in a line.
const NAME_COLUMN: usize = 73;

fn write_line(region: &Region, out: &mut Text) {
    let flags = region.flags();
    let letter = |flag, letter| if flags.contains(flag) { letter } else { '-' };
    let (identity, mut name) = describe(region);
    if name.is_empty() {
        if flags.contains(RegionFlags::HEAP) {
            name.push_str("[heap]");
        } else if flags.contains(RegionFlags::STACK) {
            name.push_str("[stack]");
        }
    }
    let device = DeviceNumber::decode(identity.0);
    let line = alloc::format!(
        "{:08x}-{:08x} {}{}{}{} {:08x} {:02x}:{:02x} {} ",
        region.start(),
        region.end(),
        letter(RegionFlags::READ, 'r'),
        letter(RegionFlags::WRITE, 'w'),
        letter(RegionFlags::EXECUTE, 'x'),
        if flags.contains(RegionFlags::SHARED) { 's' } else { 'p' },
        if matches!(region.backing(), MapBacking::File(_)) { region.file_offset() } else { 0 },
        device.major,
        device.minor,
        identity.1,
    );
    let _ = match name.is_empty() {
        true => writeln!(out, "{line}"),
        false => writeln!(out, "{line:<NAME_COLUMN$}{name}"),
    };
}

fn describe(region: &Region) -> ((u64, u64), String) {
    let mut name = String::new();
    let identity = match region.backing() {
        MapBacking::Anonymous => (0, 0),
        MapBacking::Special(special) => {
            name.push_str(special.name());
            (0, 0)
        }
        MapBacking::File(file) => match file.object() {
            Some(object) => {
                let _ = object.write_name(&mut name);
                object.identity()
            }
            None => (0, 0),
        },
    };
    (identity, name)
}

fn space_of(subject: &Subject) -> Result<Option<alloc::sync::Arc<AddressSpace>>> {
    subject.check_access()?;
    Ok(subject.process()?.address_space())
}

/// `maps`
pub(super) fn maps(subject: &Subject, out: &mut Text) -> Result<()> {
    if let Some(space) = space_of(subject)? {
        space.for_each_region(|region| write_line(region, out));
    }
    Ok(())
}

/// `smaps`
pub(super) fn detailed_maps(subject: &Subject, out: &mut Text) -> Result<()> {
    let Some(space) = space_of(subject)? else { return Ok(()) };
    space.for_each_region(|region| {
        write_line(region, out);
        let usage = space.region_usage(region);
        let size = region.end() - region.start();
        for (name, bytes) in [
            ("Size", size),
            ("KernelPageSize", PAGE_SIZE as u64),
            ("MMUPageSize", PAGE_SIZE as u64),
            ("Rss", usage.resident),
            ("Pss", usage.proportional),
            ("Shared_Clean", usage.shared_clean),
            ("Shared_Dirty", usage.shared_dirty),
            ("Private_Clean", usage.private_clean),
            ("Private_Dirty", usage.private_dirty),
            ("Referenced", usage.referenced),
            ("Anonymous", usage.anonymous),
            ("Swap", 0),
            ("SwapPss", 0),
            ("Locked", usage.locked),
        ] {
            let label = alloc::format!("{name}:");
            let _ = writeln!(out, "{label:<16}{:>8} kB", bytes / 1024);
        }
        let _ = out.write_str("VmFlags:\n");
    });
    Ok(())
}

/// `statm`
pub(super) fn memory_pages(subject: &Subject, out: &mut Text) -> Result<()> {
    let usage = subject.process()?.address_space().map(|space| space.usage()).unwrap_or_default();
    let resident = usage.private_pages + usage.file_pages + usage.shared_memory_pages;
    let shared = usage.file_pages + usage.shared_memory_pages;
    let data = usage.data_pages + usage.stack_pages;
    let _ = writeln!(out, "{} {resident} {shared} {} 0 {data} 0", usage.mapped_pages, usage.code_pages);
    Ok(())
}

/// The memory lines of `status`.
pub(super) fn memory_status(space: &AddressSpace, out: &mut Text) {
    let usage = space.usage();
    let resident = usage.private_pages + usage.file_pages + usage.shared_memory_pages;
    for (name, pages) in [
        ("VmPeak", usage.peak_mapped_pages.max(usage.mapped_pages)),
        ("VmSize", usage.mapped_pages),
        ("VmLck", usage.locked_pages),
        ("VmPin", 0),
        ("VmHWM", usage.peak_resident_pages.max(resident)),
        ("VmRSS", resident),
        ("RssAnon", usage.private_pages),
        ("RssFile", usage.file_pages),
        ("RssShmem", usage.shared_memory_pages),
        ("VmData", usage.data_pages),
        ("VmStk", usage.stack_pages),
        ("VmExe", usage.code_pages),
        ("VmLib", 0),
        ("VmPTE", usage.table_bytes / PAGE_SIZE as u64),
        ("VmSwap", 0),
    ] {
        let _ = writeln!(out, "{name}:\t{:>8} kB", pages * PAGE_KIB);
    }
}
