//! What a process has mapped: `maps`, `smaps`, `smaps_rollup`.
//!
//! Regions are copied out one by one; nothing is formatted with a lock of the address space held. A program may have very many: what an open file keeps does not
//! grow with them.

use alloc::string::String;
use alloc::sync::{Arc, Weak};
use core::any::Any;
use core::fmt::Write;

use machine::address::{PAGE_SIZE, UserAddr};
use memory::address_space::{AddressSpace, MapBacking, RegionUsage};
use memory::huge_pool::HUGE_PAGE_BYTES;
use memory::region::{FileMapping, Region, RegionFlags};
use vfs::file::FileOperations;
use vfs::generated::{PART_BYTES, PartedFile, Parts};
use vfs::text::Text;
use vfs::{DeviceNumber, Error, Result};

use super::process::Subject;
use super::{mounts, places};
use crate::exec::MappedFile;
use crate::memory_policy::MemoryPolicy;

/// How memory of huge pages without a file is shown.
const HUGE_NAME: &[u8] = b"/anon_hugepage (deleted)";

/// Where names start in a line.
const NAME_COLUMN: usize = 73;

/// What the numbers and letters of a line come from.
struct Line {
    range: (u64, u64),
    flags: RegionFlags,
    offset: u64,
    device: DeviceNumber,
    inode: u64,
}

impl Line {
    fn write(&self, name: &[u8], out: &mut Text) {
        let letter = |flag, letter| if self.flags.contains(flag) { letter } else { '-' };
        let start = out.as_bytes().len();
        let _ = write!(
            out,
            "{:08x}-{:08x} {}{}{}{} {:08x} {:02x}:{:02x} {} ",
            self.range.0,
            self.range.1,
            letter(RegionFlags::READ, 'r'),
            letter(RegionFlags::WRITE, 'w'),
            letter(RegionFlags::EXECUTE, 'x'),
            if self.flags.contains(RegionFlags::SHARED) { 's' } else { 'p' },
            self.offset,
            self.device.major,
            self.device.minor,
            self.inode,
        );
        if !name.is_empty() {
            let padding = NAME_COLUMN.saturating_sub(out.as_bytes().len() - start);
            let _ = write!(out, "{:padding$}", "");
            mounts::write_with_numbers(name, b"\n", out);
        }
        out.push_bytes(b"\n");
    }
}

/// Device and inode number of a mapped file; writes its name. Shared memory without a file is shown as Linux does.
fn identify(file: &FileMapping, name: &mut Text) -> (DeviceNumber, u64) {
    let Some(object) = file.object() else {
        name.push_bytes(if file.cache().is_huge() { HUGE_NAME } else { b"/dev/zero (deleted)" });
        return (DeviceNumber::default(), 0);
    };
    let any: &dyn Any = &**object;
    let written = match any.downcast_ref::<MappedFile>().and_then(|mapped| mapped.file().path()) {
        Some(path) => places::write_path(path, name),
        None => {
            let mut text = String::new();
            let _ = object.write_name(&mut text);
            name.push_bytes(text.as_bytes());
            Ok(())
        }
    };
    if written.is_err() {
        name.push_bytes(b"//toolong");
    }
    let (device, inode) = object.identity();
    (DeviceNumber::decode(device), inode)
}

/// Places that regions without a file are named after, wherever the process says they are.
#[derive(Clone, Copy, Default)]
struct Landmarks {
    heap: (u64, u64),
    stack: u64,
}

impl Landmarks {
    fn of(space: &AddressSpace, stack: u64) -> Landmarks {
        let layout = space.layout();
        Landmarks { heap: (layout.break_start, layout.break_end), stack }
    }

    /// Whether a range is or touches the heap.
    fn are_of_heap(&self, range: (u64, u64)) -> bool {
        range.0 <= self.heap.1 && range.1 >= self.heap.0
    }

    /// Whether the stack begins in a range.
    fn are_of_stack(&self, range: (u64, u64)) -> bool {
        range.0 <= self.stack && range.1 >= self.stack
    }
}

fn write_line(region: &Region, landmarks: Landmarks, out: &mut Text) {
    let range = (region.start(), region.end());
    let flags = region.flags();
    let mut name = Text::new();
    let (device, inode) = match region.backing() {
        MapBacking::File(file) => identify(file, &mut name),
        MapBacking::Special(special) => {
            name.push_bytes(special.name().as_bytes());
            Default::default()
        }
        MapBacking::Paged(_) => {
            name.push_bytes(b"[pager]");
            Default::default()
        }
        MapBacking::Anonymous => {
            if flags.contains(RegionFlags::POOLED) {
                name.push_bytes(HUGE_NAME);
            } else if flags.contains(RegionFlags::SHARED) {
                name.push_bytes(b"/dev/zero (deleted)");
            } else if landmarks.are_of_heap(range) {
                name.push_bytes(b"[heap]");
            } else if landmarks.are_of_stack(range) {
                name.push_bytes(b"[stack]");
            }
            Default::default()
        }
    };
    let offset = if matches!(region.backing(), MapBacking::File(_)) { region.file_offset() } else { 0 };
    Line { range, flags, offset, device, inode }.write(name.as_bytes(), out);
}

fn space_of(subject: &Subject) -> Result<Option<Arc<AddressSpace>>> {
    Ok(subject.process()?.address_space())
}

/// How a region is shown.
type Show = fn(&AddressSpace, &Region, Landmarks, &mut Text);

/// An address space as a text of its regions. It stays the one that the process had when the file was opened, also when that executes another program: once
/// it is gone, there is nothing to read.
struct Regions {
    space: Weak<AddressSpace>,
    /// Where its stack begins.
    stack: u64,
    show: Show,
}

impl Parts for Regions {
    fn write_part(&self, from: u64, out: &mut Text) -> Result<Option<u64>> {
        let Some(space) = self.space.upgrade() else { return Ok(None) };
        let landmarks = Landmarks::of(&space, self.stack);
        let mut address = from;
        while let Some(region) = space.region_at_or_after(UserAddr::new(address)) {
            (self.show)(&space, &region, landmarks, out);
            address = region.end();
            if out.as_bytes().len() >= PART_BYTES {
                // Programs with very many regions are those that are killed while they are looked at.
                return if sched::current().is_killed() {
                    Err(Error::Interrupted)
                } else {
                    Ok(Some(address))
                };
            }
        }
        Ok(None)
    }
}

fn open(subject: &Subject, show: Show) -> Result<Arc<dyn FileOperations>> {
    let process = subject.process()?;
    let space = process.address_space().as_ref().map_or_else(Weak::new, Arc::downgrade);
    let stack = process.executable.lock().start_stack;
    let file: Arc<dyn FileOperations> = PartedFile::new(Regions { space, stack, show })?;
    Ok(file)
}

/// `maps`
pub(super) fn maps(subject: &Subject) -> Result<Arc<dyn FileOperations>> {
    open(subject, |_, region, landmarks, out| write_line(region, landmarks, out))
}

/// `smaps`
pub(super) fn detailed_maps(subject: &Subject) -> Result<Arc<dyn FileOperations>> {
    open(subject, write_details)
}

/// `numa_maps`: on which nodes of memory the pages of each region lie. There is one, and all pages are of it.
pub(super) fn node_maps(subject: &Subject) -> Result<Arc<dyn FileOperations>> {
    open(subject, write_nodes)
}

/// One line of a number of bytes.
fn write_amount(name: &str, bytes: u64, out: &mut dyn Write) {
    let padding = 15_usize.saturating_sub(name.len());
    let _ = writeln!(out, "{name}:{:padding$}{:>8} kB", "", bytes / 1024);
}

/// The amounts from `Shared_Clean` on; files have no transparent huge pages, and there is no swap.
fn write_shares(usage: &RegionUsage, out: &mut dyn Write) {
    for (name, bytes) in [
        ("Shared_Clean", usage.shared_clean),
        ("Shared_Dirty", usage.shared_dirty),
        ("Private_Clean", usage.private_clean),
        ("Private_Dirty", usage.private_dirty),
        ("Referenced", usage.referenced),
        ("Anonymous", usage.anonymous),
        ("LazyFree", 0),
        ("AnonHugePages", usage.huge),
        ("ShmemPmdMapped", 0),
        ("FilePmdMapped", 0),
        ("Shared_Hugetlb", usage.pooled_shared),
        ("Private_Hugetlb", usage.pooled_private),
        ("Swap", 0),
        ("SwapPss", 0),
        ("Locked", usage.locked),
    ] {
        write_amount(name, bytes, out);
    }
}

/// The two-letter names of a region's properties, in the order of Linux.
fn write_flags(flags: RegionFlags, out: &mut dyn Write) {
    let _ = out.write_str("VmFlags: ");
    for (flag, name) in [
        (RegionFlags::READ, "rd"),
        (RegionFlags::WRITE, "wr"),
        (RegionFlags::EXECUTE, "ex"),
        (RegionFlags::SHARED, "sh"),
        (RegionFlags::MAY_READ, "mr"),
        (RegionFlags::MAY_WRITE, "mw"),
        (RegionFlags::MAY_EXECUTE, "me"),
        (RegionFlags::GROWS_DOWN, "gd"),
        (RegionFlags::LOCKED, "lo"),
        (RegionFlags::SEQUENTIAL, "sr"),
        (RegionFlags::RANDOM, "rr"),
        (RegionFlags::DONT_FORK, "dc"),
        (RegionFlags::POOLED, "de"),
        (RegionFlags::ACCOUNTED, "ac"),
        (RegionFlags::NO_RESERVE, "nr"),
        (RegionFlags::POOLED, "ht"),
        (RegionFlags::WIPE_ON_FORK, "wf"),
        (RegionFlags::DONT_DUMP, "dd"),
        (RegionFlags::HUGE_PAGE, "hg"),
        (RegionFlags::NO_HUGE_PAGE, "nh"),
        (RegionFlags::MERGEABLE, "mg"),
    ] {
        if flags.contains(flag) {
            let _ = write!(out, "{name} ");
        }
    }
    let _ = out.write_str("\n");
}

/// The lines of a region in `smaps`.
fn write_details(space: &AddressSpace, region: &Region, landmarks: Landmarks, out: &mut Text) {
    write_line(region, landmarks, out);
    let usage = space.region_usage(region);
    write_amount("Size", region.end() - region.start(), out);
    let pooled = region.flags().contains(RegionFlags::POOLED);
    let page = if pooled { HUGE_PAGE_BYTES } else { PAGE_SIZE as u64 };
    write_amount("KernelPageSize", page, out);
    write_amount("MMUPageSize", page, out);
    write_amount("Rss", usage.resident, out);
    write_amount("Pss", usage.proportional, out);
    write_shares(&usage, out);
    let _ = writeln!(out, "THPeligible:    {:>8}", u8::from(space.uses_huge_pages(region)));
    write_flags(region.flags(), out);
}

/// The line of a region in `numa_maps`.
fn write_nodes(space: &AddressSpace, region: &Region, landmarks: Landmarks, out: &mut Text) {
    let range = (region.start(), region.end());
    let _ = write!(out, "{:08x} ", region.start());
    MemoryPolicy::of(region).write(out);
    let flags = region.flags();
    match region.backing() {
        MapBacking::File(file) if file.object().is_some() => {
            let mut name = Text::new();
            identify(file, &mut name);
            let _ = out.write_str(" file=");
            mounts::write_with_numbers(name.as_bytes(), b"\n\t= ", out);
        }
        MapBacking::Special(_) => {}
        _ if landmarks.are_of_heap(range) => _ = out.write_str(" heap"),
        _ if landmarks.are_of_stack(range) => _ = out.write_str(" stack"),
        _ => {}
    }
    let pooled = flags.contains(RegionFlags::POOLED);
    let page = if pooled { HUGE_PAGE_BYTES } else { PAGE_SIZE as u64 };
    if pooled {
        let _ = out.write_str(" huge");
    }
    write_pages(&space.region_usage(region), page, out);
}

/// The numbers of a line of `numa_maps`, in pages. All that is in memory counts as active.
fn write_pages(usage: &RegionUsage, page_bytes: u64, out: &mut dyn Write) {
    let resident = (usage.resident + usage.pooled_shared + usage.pooled_private) / page_bytes;
    let anonymous = usage.anonymous / page_bytes;
    let dirty = (usage.shared_dirty + usage.private_dirty) / page_bytes;
    if resident > 0 {
        for (name, pages) in [("anon", anonymous), ("dirty", dirty)] {
            if pages > 0 {
                let _ = write!(out, " {name}={pages}");
            }
        }
        if resident != anonymous && resident != dirty {
            let _ = write!(out, " mapped={resident}");
        }
        let _ = write!(out, " N0={resident} kernelpagesize_kB={}", page_bytes / 1024);
    }
    let _ = out.write_str("\n");
}

/// Sums over all regions, by what they show.
#[derive(Default)]
struct Rollup {
    range: Option<(u64, u64)>,
    all: RegionUsage,
    anonymous: u64,
    files: u64,
}

impl Rollup {
    fn add(&mut self, region: &Region, usage: &RegionUsage) {
        let start = self.range.map_or(region.start(), |range| range.0);
        self.range = Some((start, region.end()));
        let of_kind = match region.backing() {
            MapBacking::File(_) => &mut self.files,
            _ => &mut self.anonymous,
        };
        *of_kind += usage.proportional;
        let all = &mut self.all;
        all.resident += usage.resident;
        all.proportional += usage.proportional;
        all.shared_clean += usage.shared_clean;
        all.shared_dirty += usage.shared_dirty;
        all.private_clean += usage.private_clean;
        all.private_dirty += usage.private_dirty;
        all.referenced += usage.referenced;
        all.anonymous += usage.anonymous;
        all.huge += usage.huge;
        all.pooled_shared += usage.pooled_shared;
        all.pooled_private += usage.pooled_private;
        all.locked += usage.locked;
    }
}

/// `smaps_rollup`
pub(super) fn summed_maps(subject: &Subject, out: &mut Text) -> Result<()> {
    let Some(space) = space_of(subject)? else { return Ok(()) };
    let mut rollup = Rollup::default();
    space.for_each_region(|region| rollup.add(region, &space.region_usage(region)));
    let Some(range) = rollup.range else { return Ok(()) };
    let (device, inode) = Default::default();
    Line { range, flags: RegionFlags::empty(), offset: 0, device, inode }.write(b"[rollup]", out);
    write_amount("Rss", rollup.all.resident, out);
    write_amount("Pss", rollup.all.proportional, out);
    write_amount("Pss_Anon", rollup.anonymous, out);
    write_amount("Pss_File", rollup.files, out);
    write_shares(&rollup.all, out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(range: (u64, u64), flags: RegionFlags, name: &[u8]) -> Text {
        let mut out = Text::new();
        Line { range, flags, offset: 0x2000, device: DeviceNumber::new(0xfe, 0), inode: 247_026 }
            .write(name, &mut out);
        out
    }

    #[test]
    fn lines_are_those_of_linux() {
        let flags = RegionFlags::READ | RegionFlags::EXECUTE;
        assert_eq!(
            line((0x55b8_29bc_4000, 0x55b8_29bc_9000), flags, b"/usr/bin/cat").as_bytes(),
            b"55b829bc4000-55b829bc9000 r-xp 00002000 fe:00 247026                     /usr/bin/cat\n"
        );
        assert_eq!(
            line((0x40_0000, 0x40_1000), RegionFlags::SHARED, b"").as_bytes(),
            b"00400000-00401000 ---s 00002000 fe:00 247026 \n"
        );
        assert_eq!(
            line((0x40_0000, 0x40_1000), RegionFlags::WRITE, b"a\nb").as_bytes(),
            b"00400000-00401000 -w-p 00002000 fe:00 247026                             a\\012b\n"
        );
    }

    #[test]
    fn a_region_that_touches_the_heap_is_named_after_it() {
        let landmarks = Landmarks { heap: (0x5000, 0x7000), stack: 0x9100 };
        for (range, heap, stack) in [
            ((0x3000, 0x4000), false, false),
            ((0x4000, 0x5000), true, false),
            ((0x6000, 0x7000), true, false),
            ((0x8000, 0x9000), false, false),
            ((0x8000, 0xa000), false, true),
            ((0xa000, 0xb000), false, false),
        ] {
            assert_eq!((landmarks.are_of_heap(range), landmarks.are_of_stack(range)), (heap, stack));
        }
    }

    #[test]
    fn pages_of_a_node_are_those_of_linux() {
        let usage = |resident, anonymous, private_dirty| RegionUsage {
            resident,
            anonymous,
            private_dirty,
            ..RegionUsage::default()
        };
        for (usage, expected) in [
            (usage(0, 0, 0), "\n"),
            (usage(8192, 0, 0), " mapped=2 N0=2 kernelpagesize_kB=4\n"),
            (usage(4096, 4096, 4096), " anon=1 dirty=1 N0=1 kernelpagesize_kB=4\n"),
            (usage(12288, 4096, 4096), " anon=1 dirty=1 mapped=3 N0=3 kernelpagesize_kB=4\n"),
        ] {
            let mut text = String::new();
            write_pages(&usage, 4096, &mut text);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn amounts_end_in_the_same_column() {
        let mut text = String::new();
        write_amount("Size", 8192, &mut text);
        write_amount("Private_Hugetlb", 0, &mut text);
        assert_eq!(text, "Size:                  8 kB\nPrivate_Hugetlb:       0 kB\n");
    }

    #[test]
    fn properties_have_two_letters() {
        let mut text = String::new();
        let may = RegionFlags::MAY_READ | RegionFlags::MAY_WRITE | RegionFlags::MAY_EXECUTE;
        write_flags(RegionFlags::READ | may, &mut text);
        assert_eq!(text, "VmFlags: rd mr mw me \n");
    }
}
