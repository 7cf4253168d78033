//! `meminfo`: the state of memory in the words that programs look for.
//!
//! There is one list of file pages and one of anonymous pages, and no swap: all pages count as active, none as
//! inactive. What is not measured is left out.

use core::fmt::{self, Write};

use memory::file_cache::write_back_counts;
use memory::frame::Purpose;
use memory::{address_space, heap, huge_pool, kstack, statistics};
use vfs::Result;
use vfs::text::Text;

const PAGE_KIB: u64 = machine::address::PAGE_SIZE as u64 / 1024;
/// The address range that the kernel's own mappings have, as Linux reports it.
const KERNEL_RANGE_KIB: u64 = (1 << 35) - 1;
/// Bytes of a page of the next larger size.
const LARGE_PAGE_KIB: u64 = 2048;

/// A name and its colon, padded, and a number of KiB.
fn write_line(name: &str, kib: u64, out: &mut dyn Write) -> fmt::Result {
    let padding = 15_usize.saturating_sub(name.len());
    writeln!(out, "{name}:{:padding$}{kib:>8} kB", "")
}

/// `meminfo`
pub(super) fn memory(out: &mut Text) -> Result<()> {
    let memory = statistics::memory();
    let written = write_back_counts();
    let (anonymous, shared) = (memory.used_kib(Purpose::Anonymous), memory.used_kib(Purpose::Shmem));
    let (files, slab) = (memory.used_kib(Purpose::FileCache), memory.used_kib(Purpose::Slab));
    for (name, kib) in [
        ("MemTotal", memory.total_kib()),
        ("MemFree", memory.free_kib()),
        ("MemAvailable", memory.available_kib()),
        ("Buffers", 0),
        ("Cached", files + shared),
        ("SwapCached", 0),
        ("Active", anonymous + shared + files),
        ("Inactive", 0),
        ("Active(anon)", anonymous + shared),
        ("Inactive(anon)", 0),
        ("Active(file)", files),
        ("Inactive(file)", 0),
        ("Unevictable", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", written.dirty * PAGE_KIB),
        ("Writeback", written.under_write_back * PAGE_KIB),
        ("AnonPages", anonymous),
        ("Mapped", statistics::mapped_frames() * PAGE_KIB),
        ("Shmem", shared),
        ("KReclaimable", 0),
        ("Slab", slab),
        ("SReclaimable", 0),
        ("SUnreclaim", slab),
        ("KernelStack", kstack::mapped_kib()),
        ("PageTables", memory.used_kib(Purpose::PageTable)),
        ("NFS_Unstable", 0),
        ("Bounce", 0),
        ("WritebackTmp", 0),
        ("CommitLimit", address_space::commit_limit_pages() * PAGE_KIB),
        ("Committed_AS", address_space::committed_pages() * PAGE_KIB),
        ("VmallocTotal", KERNEL_RANGE_KIB),
        ("VmallocUsed", heap::area_bytes() / 1024),
        ("VmallocChunk", 0),
        ("Percpu", memory.used_kib(Purpose::PerCpu)),
        ("AnonHugePages", address_space::huge_counts().mapped * LARGE_PAGE_KIB),
        ("ShmemHugePages", 0),
        ("ShmemPmdMapped", 0),
        ("FileHugePages", 0),
        ("FilePmdMapped", 0),
    ] {
        let _ = write_line(name, kib, out);
    }
    let pool = huge_pool::counts();
    for (name, pages) in [
        ("HugePages_Total:", pool.total),
        ("HugePages_Free:", pool.free),
        ("HugePages_Rsvd:", pool.promised),
        ("HugePages_Surp:", pool.surplus),
    ] {
        let _ = writeln!(out, "{name:<19}{pages:5}");
    }
    let _ = write_line("Hugepagesize", LARGE_PAGE_KIB, out);
    let _ = write_line("Hugetlb", pool.total * LARGE_PAGE_KIB, out);
    Ok(())
}

/// `/sys/devices/system/node/node0/meminfo`
pub(super) fn node_memory(out: &mut Text) -> Result<()> {
    let memory = statistics::memory();
    let (total, free) = (memory.total_kib(), memory.free_kib());
    for (name, kib) in [
        ("MemTotal", total),
        ("MemFree", free),
        ("MemUsed", total.saturating_sub(free)),
        ("FilePages", memory.used_kib(Purpose::FileCache) + memory.used_kib(Purpose::Shmem)),
        ("AnonPages", memory.used_kib(Purpose::Anonymous)),
        ("Shmem", memory.used_kib(Purpose::Shmem)),
        ("KernelStack", kstack::mapped_kib()),
        ("PageTables", memory.used_kib(Purpose::PageTable)),
        ("Slab", memory.used_kib(Purpose::Slab)),
    ] {
        let _ = out.write_str("Node 0 ");
        let _ = write_line(name, kib, out);
    }
    let pool = huge_pool::counts();
    for (name, pages) in
        [("HugePages_Total:", pool.total), ("HugePages_Free:", pool.free), ("HugePages_Surp:", pool.surplus)]
    {
        let _ = writeln!(out, "Node 0 {name:<17}{pages:5}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn numbers_end_in_the_same_column() {
        let mut text = String::new();
        for (name, kib) in [("MemTotal", 24_684_084), ("Buffers", 50_260), ("Inactive(file)", 0)] {
            write_line(name, kib, &mut text).expect("a string takes it");
        }
        assert_eq!(
            text,
            "MemTotal:       24684084 kB\nBuffers:           50260 kB\nInactive(file):        0 kB\n"
        );
    }

    #[test]
    fn greater_numbers_push_the_unit_on() {
        let mut text = String::new();
        write_line("VmallocTotal", KERNEL_RANGE_KIB, &mut text).expect("a string takes it");
        assert_eq!(text, "VmallocTotal:   34359738367 kB\n");
    }
}
