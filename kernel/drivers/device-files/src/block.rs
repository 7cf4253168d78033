//! Disks and partitions: their directories, `/sys/block`, `/sys/class/block`, `/proc/partitions` and `/proc/diskstats`.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};

use block::disk::{self, Disk};
use block::registry::BlockDevice;
use block::scheduler::Setting;
use block::{Limits, SECTOR_BYTES};
use device::model::uevent;
use vfs::text::Text;
use vfs::{Error, Result};

use crate::bus::{add_directory, is_on};
use crate::contents::Entries;

/// Where disks without a device of their own are.
const VIRTUAL: &str = "/devices/virtual";
/// What read-ahead counts in, in KiB.
const PAGE_KIB: u32 = 4;

fn all() -> Result<Vec<Arc<Disk>>> {
    disk::all().map_err(|_| Error::OutOfMemory)
}

/// Calls `each` with all disks and partitions, each disk before its partitions.
fn for_each(mut each: impl FnMut(&Arc<Disk>, &Arc<BlockDevice>) -> Result<()>) -> Result<()> {
    for disk in all()? {
        each(&disk, &disk.device)?;
        for (_, part) in disk.partitions().map_err(|_| Error::OutOfMemory)? {
            each(&disk, &part)?;
        }
    }
    Ok(())
}

/// Adds what disks there are.
pub(crate) fn fill() -> Result<()> {
    add_directory("block", |entries| {
        all()?.iter().try_for_each(|disk| {
            entries.link(disk.name(), alloc::format!("..{}", disk.path_of(&disk.device)))
        })
    })?;
    add_directory("class/block", |entries| {
        for_each(|disk, device| entries.link(device.name(), alloc::format!("../..{}", disk.path_of(device))))
    })?;
    add_directory("class/nvme", controllers)?;
    add_directory("devices/virtual/block", |entries| directories(entries, VIRTUAL))
}

/// Links to the directories of disks and partitions, by their numbers.
pub(crate) fn by_number(entries: &mut Entries) -> Result<()> {
    for_each(|disk, device| {
        let number = device.number();
        let name = alloc::format!("{}:{}", number.major, number.minor);
        entries.link(&name, alloc::format!("../..{}", disk.path_of(device)))
    })
}

/// The directory `block` of a device that has disks. A controller may stand between, in a directory of its class (`nvme/nvme0`); what is a
/// device of another bus has a directory already: a function behind a bridge, with a colon in its name, or a virtio device.
pub(crate) fn below(entries: &mut Entries, parent: &str) -> Result<()> {
    let mut between: Vec<String> = Vec::new();
    for disk in all()? {
        let Some(rest) = disk.description.parent.strip_prefix(parent) else { continue };
        let next = rest.strip_prefix('/').and_then(|rest| rest.split('/').next());
        let is_device =
            |name: &str| name.contains(':') || crate::virtio::is_at(&alloc::format!("{parent}/{name}"));
        if let Some(name) = next.filter(|name| !is_device(name) && !between.iter().any(|one| one == name)) {
            between.push(String::from(name));
        }
    }
    for name in between {
        let path = alloc::format!("{parent}/{name}");
        entries.directory(&name, move |entries| below(entries, &path))?;
    }
    let first = all()?.into_iter().find(|disk| disk.description.parent == parent);
    if let Some(disk) = first {
        let own = String::from(parent);
        entries.directory("block", move |entries| directories(entries, &own))?;
        controller(entries, &disk)?;
    }
    Ok(())
}

/// The class of the controller that has a disk, its name, and where the device is that it is of; None if the disk is a device's itself.
fn controller_of(disk: &Disk) -> Option<(&str, &str, &str)> {
    if disk.queue().driver().controller_details().is_empty() {
        return None;
    }
    let (rest, name) = disk.description.parent.rsplit_once('/')?;
    let (device, class) = rest.rsplit_once('/')?;
    Some((class, name, device))
}

/// What the directory of a controller shows besides its disks.
fn controller(entries: &mut Entries, disk: &Arc<Disk>) -> Result<()> {
    let Some((class, _, device)) = controller_of(disk) else { return Ok(()) };
    for (name, _) in disk.queue().driver().controller_details() {
        let own = disk.clone();
        entries.line(name, move |out| {
            let details = own.queue().driver().controller_details();
            details.iter().find(|detail| detail.0 == name).map_or(Ok(()), |detail| out.write_str(&detail.1))
        })?;
    }
    let up = "../".repeat(disk.description.parent.matches('/').count());
    entries.link("subsystem", alloc::format!("{up}class/{class}"))?;
    entries.link("device", alloc::format!("{up}{}", device.trim_start_matches('/')))?;
    entries.line("uevent", |_| Ok(()))
}

/// `/sys/class/nvme`: controllers that have disks.
fn controllers(entries: &mut Entries) -> Result<()> {
    let mut names = Vec::new();
    for disk in all()? {
        let Some((_, name, _)) = controller_of(&disk) else { continue };
        if !names.iter().any(|known| known == name) {
            entries.link(name, alloc::format!("../..{}", disk.description.parent))?;
            names.push(String::from(name));
        }
    }
    Ok(())
}

fn directories(entries: &mut Entries, parent: &str) -> Result<()> {
    for disk in all()?.into_iter().filter(|disk| disk.description.parent == parent) {
        let name = String::from(disk.name());
        entries.directory(&name, move |entries| whole(entries, &disk))?;
    }
    Ok(())
}

/// The directory of a disk.
fn whole(entries: &mut Entries, disk: &Arc<Disk>) -> Result<()> {
    attributes(entries, disk, &disk.device)?;
    let description = &disk.description;
    let (minors, removable, sequence) = (description.family.minors, description.removable, disk.sequence);
    entries.line("range", move |out| write!(out, "{minors}"))?;
    entries.line("ext_range", |out| out.write_str("256"))?;
    entries.line("removable", move |out| write!(out, "{}", u8::from(removable)))?;
    entries.line("hidden", |out| out.write_str("0"))?;
    entries.line("capability", |out| out.write_str("0"))?;
    entries.line("diskseq", move |out| write!(out, "{sequence}"))?;
    let own = disk.clone();
    entries.line("serial", move |out| out.write_str(&own.description.serial))?;
    if let Some((_, parent)) = description.parent.rsplit_once('/')
        && description.parent != VIRTUAL
    {
        entries.link("device", alloc::format!("../../../{parent}"))?;
    }
    let own = disk.clone();
    entries.directory("queue", move |entries| queue(entries, &own))?;
    entries.directory("slaves", |_| Ok(()))?;
    if let Some((directory, _)) = disk.queue().driver().details() {
        let own = disk.clone();
        entries.directory(directory, move |entries| details(entries, &own))?;
    }
    for (_, part) in disk.partitions().map_err(|_| Error::OutOfMemory)? {
        let (own, name) = (disk.clone(), String::from(part.name()));
        entries.directory(&name, move |entries| partition(entries, &own, &part))?;
    }
    Ok(())
}

/// What only the driver knows to show of a disk.
fn details(entries: &mut Entries, disk: &Arc<Disk>) -> Result<()> {
    let files = disk.queue().driver().details().map(|(_, files)| files).unwrap_or_default();
    for (name, text) in files {
        entries.line(name, move |out| out.write_str(&text))?;
    }
    Ok(())
}

/// The directory of a partition.
fn partition(entries: &mut Entries, disk: &Arc<Disk>, part: &Arc<BlockDevice>) -> Result<()> {
    attributes(entries, disk, part)?;
    let (number, start) = (part.part(), part.volume().start());
    entries.line("partition", move |out| write!(out, "{number}"))?;
    entries.line("start", move |out| write!(out, "{start}"))
}

/// What disks and partitions have.
fn attributes(entries: &mut Entries, disk: &Arc<Disk>, device: &Arc<BlockDevice>) -> Result<()> {
    let depth = disk.path_of(device).matches('/').count();
    entries.link("subsystem", alloc::format!("{}class/block", "../".repeat(depth)))?;
    let number = device.number();
    entries.line("dev", move |out| write!(out, "{}:{}", number.major, number.minor))?;
    let own = device.clone();
    entries.line("size", move |out| write!(out, "{}", own.volume().sectors()))?;
    let (shown, stored) = (device.clone(), device.clone());
    entries.setting(
        "ro",
        move |out| write!(out, "{}", u8::from(shown.is_read_only())),
        move |text| {
            stored.set_read_only(is_on(text)?);
            Ok(())
        },
    )?;
    entries.line("alignment_offset", |out| out.write_str("0"))?;
    entries.line("discard_alignment", |out| out.write_str("0"))?;
    let own = device.clone();
    entries.line("stat", move |out| write!(out, "{}", own.statistics()))?;
    let own = device.clone();
    entries.line("inflight", move |out| write!(out, "{:8} {:8}", own.statistics().in_flight, 0))?;
    entries.directory("holders", |_| Ok(()))?;
    let (shown, stored) = ((disk.clone(), device.clone()), (disk.clone(), device.clone()));
    let show = move |out: &mut Text| {
        let mut text = String::new();
        shown.0.describe(&shown.1, &mut text)?;
        out.write_str(text.trim_end_matches('\n'))
    };
    entries.setting("uevent", show, move |text| {
        stored.0.pretend(&stored.1, &uevent::Request::parse(text).ok_or(Error::Invalid)?);
        Ok(())
    })
}

/// The directory `queue` of a disk.
fn queue(entries: &mut Entries, disk: &Arc<Disk>) -> Result<()> {
    let Limits { sectors_max, segments_max, .. } = *disk.queue().limits();
    let limits = *disk.queue().limits();
    let bytes = |sectors: u32| u64::from(sectors) * SECTOR_BYTES as u64;
    let granularity = if limits.discard_sectors_max > 0 { limits.logical_block_bytes } else { 0 };
    let numbers = [
        ("logical_block_size", limits.logical_block_bytes.into()),
        ("hw_sector_size", limits.logical_block_bytes.into()),
        ("physical_block_size", limits.physical_block_bytes.into()),
        ("minimum_io_size", limits.physical_block_bytes.into()),
        ("optimal_io_size", 0),
        ("max_sectors_kb", bytes(sectors_max) / 1024),
        ("max_hw_sectors_kb", bytes(sectors_max) / 1024),
        ("max_segments", segments_max as u64),
        ("rotational", limits.rotational.into()),
        ("discard_granularity", granularity.into()),
        ("discard_max_bytes", bytes(limits.discard_sectors_max)),
        ("discard_max_hw_bytes", bytes(limits.discard_sectors_max)),
        ("discard_zeroes_data", 0),
        ("write_zeroes_max_bytes", bytes(limits.zeroes_sectors_max)),
        ("fua", limits.force_unit_access.into()),
        ("io_timeout", limits.timeout_ns / 1_000_000),
        ("nomerges", 0),
        ("add_random", 0),
        ("iostats", 1),
        ("zone_write_granularity", 0),
    ];
    for (name, value) in numbers {
        entries.line(name, move |out| write!(out, "{value}"))?;
    }
    numbers_to_set(entries, disk)?;
    let write_cache = if limits.write_cache { "write back" } else { "write through" };
    entries.line("write_cache", move |out| out.write_str(write_cache))?;
    entries.line("zoned", |out| out.write_str("none"))?;
    let (shown, stored) = (disk.clone(), disk.clone());
    entries.setting(
        "scheduler",
        move |out| schedulers(out, &shown),
        move |name| stored.queue().set_scheduler(name).map_err(error_of),
    )?;
    let settings = disk.queue().settings().map_err(error_of)?;
    if settings.is_empty() {
        return Ok(());
    }
    let own = disk.clone();
    entries.directory("iosched", move |entries| settings_of(entries, &own))
}

/// What root may change of a disk's queue, whatever its scheduler.
fn numbers_to_set(entries: &mut Entries, disk: &Arc<Disk>) -> Result<()> {
    let parse = |text: &str| text.parse::<u32>().map_err(|_| Error::Invalid);
    let (shown, stored) = (disk.clone(), disk.clone());
    entries.setting(
        "read_ahead_kb",
        move |out| write!(out, "{}", u64::from(shown.queue().read_ahead().pages()) * u64::from(PAGE_KIB)),
        move |text| {
            stored.queue().read_ahead().set_pages(parse(text)? / PAGE_KIB);
            Ok(())
        },
    )?;
    let (shown, stored) = (disk.clone(), disk.clone());
    entries.setting(
        "nr_requests",
        move |out| write!(out, "{}", shown.queue().depth()),
        move |text| stored.queue().set_depth(parse(text)?).map_err(error_of),
    )
}

/// Those that there are, the one in use in brackets.
fn schedulers(out: &mut Text, disk: &Disk) -> fmt::Result {
    let used = disk.queue().scheduler_name();
    for (index, name) in block::scheduler::NAMES.into_iter().enumerate() {
        let (open, close) = if name == used { ("[", "]") } else { ("", "") };
        let before = if index > 0 { " " } else { "" };
        write!(out, "{before}{open}{name}{close}")?;
    }
    Ok(())
}

/// The directory `iosched`: numbers of the scheduler that is in use.
fn settings_of(entries: &mut Entries, disk: &Arc<Disk>) -> Result<()> {
    for Setting { name, .. } in disk.queue().settings().map_err(error_of)? {
        let (shown, stored) = (disk.clone(), disk.clone());
        let show = move |out: &mut Text| {
            let settings = shown.queue().settings().unwrap_or_default();
            let setting = settings.iter().find(|setting| setting.name == name);
            setting.map_or(Ok(()), |setting| write!(out, "{}", setting.value))
        };
        entries.setting(name, show, move |text| {
            // What is below the least is the least, and what is above the most is that.
            let value = text.parse::<i32>().map_err(|_| Error::Invalid)?;
            stored.queue().set(name, u32::try_from(value).unwrap_or(0)).map_err(error_of)
        })?;
    }
    Ok(())
}

fn error_of(error: block::Error) -> Error {
    match error {
        block::Error::Invalid => Error::Invalid,
        _ => Error::OutOfMemory,
    }
}

/// `/proc/partitions`
pub(crate) fn partitions(out: &mut Text) -> Result<()> {
    // A text remembers when memory ran out.
    let _ = out.write_str("major minor  #blocks  name\n\n");
    for_each(|_, device| {
        let number = device.number();
        let kibibytes = device.volume().sectors() / 2;
        if device.volume().sectors() == 0 {
            return Ok(());
        }
        let _ = writeln!(out, "{:4}  {:7} {kibibytes:10} {}", number.major, number.minor, device.name());
        Ok(())
    })
}

/// `/proc/diskstats`
pub(crate) fn disk_statistics(out: &mut Text) -> Result<()> {
    for_each(|_, device| {
        let number = device.number();
        let (name, statistics) = (device.name(), device.statistics());
        let _ = writeln!(out, "{:4} {:7} {name} {statistics}", number.major, number.minor);
        Ok(())
    })
}
