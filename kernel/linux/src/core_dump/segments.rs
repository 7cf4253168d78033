//! What of each mapping is written: `/proc/PID/coredump_filter`, `madvise(MADV_DONTDUMP)`.

use alloc::vec::Vec;
use core::any::Any;

use machine::address::{PAGE_SIZE, UserAddr};
use memory::address_space::{AddressSpace, MapBacking};
use memory::region::{FileMapping, Region, RegionFlags};

use crate::errno::Errno;
use crate::exec::MappedFile;

bitflags::bitflags! {
    /// What is dumped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Filter: u32 {
        /// Private memory that was written to.
        const ANONYMOUS_PRIVATE = 1 << 0;
        /// Shared memory without a name.
        const ANONYMOUS_SHARED = 1 << 1;
        /// Files that are mapped privately.
        const FILE_PRIVATE = 1 << 2;
        /// Files that are mapped shared.
        const FILE_SHARED = 1 << 3;
        /// First pages of programs and libraries.
        const ELF_HEADERS = 1 << 4;
        /// Private memory of huge pages from the pool.
        const HUGE_PRIVATE = 1 << 5;
        /// Shared memory of them.
        const HUGE_SHARED = 1 << 6;
        /// The others: of memory that is a disk.
        const _ = 0x180;
    }
}

/// What is dumped unless a process wants something else.
pub(crate) const FILTER_DEFAULT: u32 = 0x33;

/// A mapping in the dump.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) end: u64,
    /// So much of it is written.
    pub(super) dumped: u64,
    /// `PF_R`, `PF_W`, `PF_X`.
    pub(super) protection: u32,
    /// What is not in memory can be read all the same: of a file.
    pub(super) has_file: bool,
}

/// All mappings, and what is written of them.
///
/// # Errors
/// ENOMEM.
pub(super) fn segments(space: &AddressSpace, filter: Filter) -> Result<Vec<Segment>, Errno> {
    let mut found = Vec::new();
    let mut outcome = Ok(());
    space.for_each_region(|region| {
        let flags = region.flags();
        let mut protection = 0;
        for (flag, bit) in [(RegionFlags::READ, 4), (RegionFlags::WRITE, 2), (RegionFlags::EXECUTE, 1)] {
            protection |= if flags.contains(flag) { bit } else { 0 };
        }
        let segment = Segment {
            start: region.start(),
            end: region.end(),
            dumped: dumped_bytes(space, region, filter),
            protection,
            has_file: !matches!(region.backing(), MapBacking::Anonymous),
        };
        outcome =
            outcome.and_then(|()| memory::fallible::try_push(&mut found, segment).map_err(|_| Errno::ENOMEM));
    });
    outcome.map(|()| found)
}

fn dumped_bytes(space: &AddressSpace, region: &Region, filter: Filter) -> u64 {
    let flags = region.flags();
    let all = region.end() - region.start();
    let whole = |wanted: Filter| if filter.contains(wanted) { all } else { 0 };
    if flags.contains(RegionFlags::DONT_DUMP) {
        return 0;
    }
    if flags.contains(RegionFlags::POOLED) {
        let shared = flags.contains(RegionFlags::SHARED);
        return whole(if shared { Filter::HUGE_SHARED } else { Filter::HUGE_PRIVATE });
    }
    match region.backing() {
        MapBacking::Special(special) => {
            if special.name() == "[vdso]" {
                all
            } else {
                0
            }
        }
        MapBacking::Paged(_) => 0,
        // What was never written to is left out as a whole: reservations can be huge.
        MapBacking::Anonymous if space.region_usage(region).anonymous == 0 => 0,
        MapBacking::Anonymous => whole(Filter::ANONYMOUS_PRIVATE),
        MapBacking::File(file) if flags.contains(RegionFlags::SHARED) => {
            whole(if has_name(file) { Filter::FILE_SHARED } else { Filter::ANONYMOUS_SHARED })
        }
        MapBacking::File(_) if filter.contains(Filter::FILE_PRIVATE) => all,
        // What the program has written is nowhere else.
        MapBacking::File(_)
            if filter.contains(Filter::ANONYMOUS_PRIVATE) && has_private_pages(space, region) =>
        {
            all
        }
        MapBacking::File(_) if filter.contains(Filter::ELF_HEADERS) && region.file_offset() == 0 => {
            let mut magic = [0; 4];
            let read = space.read_remote(UserAddr::new(region.start()), &mut magic);
            if read == Ok(magic.len()) && magic == *b"\x7fELF" { PAGE_SIZE as u64 } else { 0 }
        }
        MapBacking::File(_) => 0,
    }
}

fn has_private_pages(space: &AddressSpace, region: &Region) -> bool {
    region.flags().contains(RegionFlags::MAY_HAVE_PRIVATE) && space.region_usage(region).anonymous > 0
}

/// Whether a mapped file has a name, and so outlives the process.
fn has_name(file: &FileMapping) -> bool {
    let Some(object) = file.object() else { return false };
    let any: &dyn Any = &**object;
    any.downcast_ref::<MappedFile>().is_some_and(|mapped| mapped.file().inode().links() > 0)
}
