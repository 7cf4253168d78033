//! Numbers about memory, for `/proc/meminfo`, `vmstat`, `buddyinfo`, `zoneinfo` and the tests.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::frame::per_cpu::Counters;
use crate::frame::{MAX_ORDER, ORDERS, Purpose, Watermarks, pool};
use crate::{address_space, file_cache, heap, kstack, local, oom, reclaim};

/// KiB of a frame.
const FRAME_KIB: u64 = 4;

/// The state of memory at one moment. What CPUs take or give back meanwhile may be counted twice or not at all, a frame each;
/// what moves between them and the pool is not, since that happens under the pool's lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Frames that the kernel manages, in use or not.
    pub total_frames: u64,
    /// Frames in the pool, untouched ones included.
    pub free_frames: u64,
    /// Of these: frames that nobody needed yet.
    pub untouched_frames: u64,
    /// Free frames that CPUs have at hand.
    pub cached_frames: u64,
    /// Of these: zeroed ones.
    pub zeroed_frames: u64,
    /// Frames of metadata.
    pub metadata_frames: u64,
    /// Free blocks by order.
    pub blocks: [u32; ORDERS],
    /// The watermarks.
    pub watermarks: Watermarks,
    used: [u64; Purpose::COUNT],
}

impl Memory {
    /// Frames in use for a purpose.
    pub fn used(&self, purpose: Purpose) -> u64 {
        self.used[purpose as usize]
    }

    /// KiB in use for a purpose.
    pub fn used_kib(&self, purpose: Purpose) -> u64 {
        self.used(purpose) * FRAME_KIB
    }

    /// `MemTotal` in KiB.
    pub fn total_kib(&self) -> u64 {
        self.total_frames * FRAME_KIB
    }

    /// `MemFree` in KiB.
    pub fn free_kib(&self) -> u64 {
        (self.free_frames + self.cached_frames) * FRAME_KIB
    }

    /// `MemAvailable` in KiB: free memory above the reserve, and half of what can be reclaimed.
    pub fn available_kib(&self) -> u64 {
        let reclaimable = self.used(Purpose::FileCache) / 2;
        (self.free_frames + self.cached_frames + reclaimable).saturating_sub(self.watermarks.low) * FRAME_KIB
    }
}

/// The state of memory now.
pub fn memory() -> Memory {
    let locked = pool::lock();
    let pool = locked.statistics();
    let mut memory = Memory {
        total_frames: pool.managed,
        free_frames: pool.free,
        untouched_frames: pool.untouched,
        metadata_frames: pool.metadata,
        blocks: pool.blocks,
        watermarks: pool.marks,
        ..Memory::default()
    };
    let mut used = [0_i64; Purpose::COUNT];
    for cpu in local::all() {
        memory.zeroed_frames += cpu.frames.zeroed.len() as u64;
        memory.cached_frames += cpu.frames.at_hand();
        for (sum, part) in used.iter_mut().zip(&cpu.frames.counters.used) {
            *sum += part.load(Relaxed);
        }
    }
    drop(locked);
    memory.used = used.map(|frames| frames.max(0) as u64);
    memory
}

/// Frames of files that programs have mapped, or that are otherwise in use by more than the cache. All frames that were ever touched are looked at, which takes
/// milliseconds for each GiB; so who asks again soon gets the same answer.
pub fn mapped_frames() -> u64 {
    const FRESH_NS: u64 = 250_000_000;
    static LOOKED_NS: AtomicU64 = AtomicU64::new(0);
    static FOUND: AtomicU64 = AtomicU64::new(0);
    let now_ns = machine::time::now_ns();
    // Relaxed: whoever reads one of a former answer has a former answer.
    let looked_ns = LOOKED_NS.load(Relaxed);
    if looked_ns == 0 || now_ns.saturating_sub(looked_ns) > FRESH_NS {
        FOUND.store(super::frame::table::shared_file_frames(), Relaxed);
        LOOKED_NS.store(now_ns, Relaxed);
    }
    FOUND.load(Relaxed)
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Events {
    /// Frames given out.
    pub allocated: u64,
    /// Frames taken back.
    pub freed: u64,
    /// Batches that CPUs fetched from the pool.
    pub refills: u64,
    /// Batches that CPUs gave back to the pool.
    pub drains: u64,
    /// Zeroed frames that were at hand.
    pub zeroed_hits: u64,
    /// Zeroed frames that were zeroed on the spot.
    pub zeroed_misses: u64,
    /// Allocations that reclaimed for themselves.
    pub direct_reclaims: u64,
    /// Frames reclaimed.
    pub reclaimed: u64,
    /// Victims of the out-of-memory policy.
    pub oom_kills: u64,
}

/// What happened so far.
pub fn events() -> Events {
    let (direct_reclaims, reclaimed) = reclaim::counts();
    let mut events = Events { direct_reclaims, reclaimed, oom_kills: oom::kills(), ..Events::default() };
    for cpu in local::all() {
        let Counters { allocated, freed, refills, drains, zeroed_hits, zeroed_misses, .. } =
            &cpu.frames.counters;
        events.allocated += allocated.load(Relaxed);
        events.freed += freed.load(Relaxed);
        events.refills += refills.load(Relaxed);
        events.drains += drains.load(Relaxed);
        events.zeroed_hits += zeroed_hits.load(Relaxed);
        events.zeroed_misses += zeroed_misses.load(Relaxed);
    }
    events
}

/// The lines of `/proc/meminfo` that this crate knows; the caller adds those about swap, shared memory and commitments.
///
/// # Errors
/// Those of the writer.
pub fn write_meminfo(out: &mut dyn fmt::Write) -> fmt::Result {
    let memory = memory();
    let slab_kib = memory.used_kib(Purpose::Slab);
    let cached_kib = memory.used_kib(Purpose::FileCache) + memory.used_kib(Purpose::Shmem);
    for (name, kib) in [
        ("MemTotal", memory.total_kib()),
        ("MemFree", memory.free_kib()),
        ("MemAvailable", memory.available_kib()),
        ("Buffers", 0),
        ("Cached", cached_kib),
        ("SwapCached", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("AnonPages", memory.used_kib(Purpose::Anonymous)),
        ("Shmem", memory.used_kib(Purpose::Shmem)),
        ("Slab", slab_kib),
        ("SReclaimable", 0),
        ("SUnreclaim", slab_kib),
        ("KernelStack", kstack::mapped_kib()),
        ("PageTables", memory.used_kib(Purpose::PageTable)),
        ("VmallocTotal", (1_u64 << 39) / 1024),
        ("VmallocUsed", heap::area_bytes() / 1024),
        ("Percpu", memory.used_kib(Purpose::PerCpu)),
    ] {
        writeln!(out, "{:<15} {kib:8} kB", Label(name))?;
    }
    Ok(())
}

/// A name and a colon, padded as one.
struct Label(&'static str);

impl fmt::Display for Label {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:", self.0)?;
        (self.0.len() + 1..out.width().unwrap_or(0)).try_for_each(|_| out.write_str(" "))
    }
}

/// The lines of `/proc/vmstat` that this crate knows.
///
/// # Errors
/// Those of the writer.
pub fn write_vmstat(out: &mut dyn fmt::Write) -> fmt::Result {
    let (memory, events, stacks) = (memory(), events(), kstack::statistics());
    let (written, huge) = (file_cache::write_back_counts(), address_space::huge_counts());
    for (name, value) in [
        ("nr_dirty", written.dirty),
        ("nr_writeback", written.under_write_back),
        ("nr_dirtied", written.dirtied),
        ("nr_written", written.written),
        ("nr_free_pages", memory.free_frames + memory.cached_frames),
        ("nr_anon_pages", memory.used(Purpose::Anonymous)),
        ("nr_file_pages", memory.used(Purpose::FileCache) + memory.used(Purpose::Shmem)),
        ("nr_mapped", mapped_frames()),
        ("nr_shmem", memory.used(Purpose::Shmem)),
        ("nr_slab_unreclaimable", memory.used(Purpose::Slab)),
        ("nr_page_table_pages", memory.used(Purpose::PageTable)),
        ("nr_kernel_pages", memory.used(Purpose::Kernel)),
        ("nr_kernel_stack_pages", memory.used(Purpose::KernelStack)),
        ("nr_area_pages", memory.used(Purpose::Area)),
        ("nr_pipe_pages", memory.used(Purpose::Pipe)),
        ("nr_device_pages", memory.used(Purpose::Device)),
        ("nr_per_cpu_pages", memory.used(Purpose::PerCpu)),
        ("nr_per_cpu_free_pages", memory.cached_frames),
        ("nr_kernel_stack", stacks.mapped_pages * FRAME_KIB),
        ("nr_dynamic_stacks_faults", stacks.faults),
        ("pgalloc_normal", events.allocated),
        ("pgfree", events.freed),
        ("pgsteal_direct", events.reclaimed),
        ("allocstall_normal", events.direct_reclaims),
        ("oom_kill", events.oom_kills),
        ("zeroed_hit", events.zeroed_hits),
        ("zeroed_miss", events.zeroed_misses),
        ("pcp_refill", events.refills),
        ("pcp_drain", events.drains),
        ("nr_anon_transparent_hugepages", huge.mapped),
        ("thp_fault_alloc", huge.filled),
        ("thp_fault_fallback", huge.fallbacks),
        ("thp_collapse_alloc", huge.collapsed),
        ("thp_collapse_alloc_failed", huge.not_collapsed),
        ("thp_split_page", huge.undone),
        ("thp_split_pmd", huge.undone),
    ] {
        writeln!(out, "{name} {value}")?;
    }
    for (name, value) in kstack::DEPTH_NAMES.iter().zip(stacks.depths) {
        writeln!(out, "{name} {value}")?;
    }
    Ok(())
}

/// The text of `/proc/buddyinfo`. Memory not brought up yet counts as blocks of the highest order.
///
/// # Errors
/// Those of the writer.
pub fn write_buddyinfo(out: &mut dyn fmt::Write) -> fmt::Result {
    let memory = memory();
    write!(out, "Node 0, zone   Normal ")?;
    for (order, blocks) in memory.blocks.iter().enumerate() {
        let untouched =
            if order == usize::from(MAX_ORDER) { memory.untouched_frames >> MAX_ORDER } else { 0 };
        write!(out, "{:6} ", u64::from(*blocks) + untouched)?;
    }
    writeln!(out)
}

/// The text of `/proc/zoneinfo`.
///
/// # Errors
/// Those of the writer.
pub fn write_zoneinfo(out: &mut dyn fmt::Write) -> fmt::Result {
    let memory = memory();
    writeln!(out, "Node 0, zone   Normal")?;
    writeln!(out, "  pages free     {}", memory.free_frames)?;
    writeln!(out, "        min      {}", memory.watermarks.minimum)?;
    writeln!(out, "        low      {}", memory.watermarks.low)?;
    writeln!(out, "        high     {}", memory.watermarks.high)?;
    writeln!(out, "        spanned  {}", memory.total_frames + memory.metadata_frames)?;
    writeln!(out, "        present  {}", memory.total_frames + memory.metadata_frames)?;
    writeln!(out, "        managed  {}", memory.total_frames)?;
    writeln!(out, "  pagesets")?;
    for (number, cpu) in local::all().enumerate() {
        writeln!(out, "    cpu: {number}")?;
        writeln!(out, "              count: {}", cpu.frames.at_hand())?;
        writeln!(out, "              high:  {}", crate::frame::per_cpu::READY_CAPACITY)?;
        writeln!(out, "              batch: {}", crate::frame::per_cpu::BATCH)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, Zeroed};

    #[test]
    fn allocated_frames_leave_the_free_ones() {
        let _frame = Frame::allocate(Purpose::Kernel, Zeroed::No).expect("memory");
        let memory = memory();
        assert!(memory.free_frames < memory.total_frames);
        assert!(memory.used(Purpose::Kernel) >= 1);
        assert!(events().allocated >= 1);
    }

    #[test]
    fn the_texts_have_the_shape_that_programs_parse() {
        let mut text = String::new();
        write_meminfo(&mut text).expect("a string takes it");
        let total = text.lines().next().expect("a line");
        let words: Vec<_> = total.split_whitespace().collect();
        assert_eq!((words[0], words[2]), ("MemTotal:", "kB"));
        assert!(words[1].parse::<u64>().expect("a number") > 0);
        assert!(text.contains("\nKernelStack:    "));
        let mut text = String::new();
        write_buddyinfo(&mut text).expect("a string takes it");
        assert_eq!(text.split_whitespace().count(), 4 + ORDERS);
        let mut text = String::new();
        write_vmstat(&mut text).expect("a string takes it");
        assert!(text.contains("nr_dynamic_stacks_faults 0\n"));
        write_zoneinfo(&mut text).expect("a string takes it");
        heap::write_slabinfo(&mut text).expect("a string takes it");
        kstack::write_report(&mut text).expect("a string takes it");
    }
}
