//! Numbers about kernel stacks, and the text of `/proc/kstack`.

use core::fmt;

use super::per_cpu::DEPTHS;

/// Sums over all CPUs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Stacks in use.
    pub stacks: u64,
    /// Pages mapped into stacks, retired and cached ones included.
    pub mapped_pages: u64,
    /// Frames in the CPUs' reserves.
    pub reserve_frames: u64,
    /// Pages of stacks that wait to be unmapped or reused.
    pub retired_pages: u64,
    /// Growth faults.
    pub faults: u64,
    /// Pages that growth added.
    pub pages_grown: u64,
    /// Threads not admitted for lack of frames.
    pub refused: u64,
    /// Threads not admitted because their stack was being trimmed.
    pub busy: u64,
    /// Growth faults that found no frame: must be 0.
    pub without_frame: u64,
    /// Frames fetched for reserves.
    pub fetched: u64,
    /// Frames taken from the emergency stash.
    pub stashed: u64,
    /// Pages taken from sleeping threads.
    pub trimmed: u64,
    /// New threads that got a used stack.
    pub cache_hits: u64,
    /// New threads that got a new stack.
    pub cache_misses: u64,
    /// Stacks that overflowed.
    pub overflows: u64,
    /// Slots that have descriptors, in steps of 64.
    pub slots: u64,
    /// Threads parked in a growth fault until there were frames.
    pub parked: u64,
    /// Threads that ended and were measured (one in sixteen), by how deep their stack ever was: up to 1, 2, 4, 8, 16, 32, 64 KiB, more.
    pub depths: [u64; DEPTHS],
    /// Threads that live, likewise, but known by pages only.
    pub live_depths: [u64; DEPTHS],
}

/// Names of the depths, as Linux has them in `/proc/vmstat`.
pub const DEPTH_NAMES: [&str; DEPTHS] = [
    "kstack_1k",
    "kstack_2k",
    "kstack_4k",
    "kstack_8k",
    "kstack_16k",
    "kstack_32k",
    "kstack_64k",
    "kstack_rest",
];

/// KiB of memory mapped into kernel stacks: `KernelStack:` and `nr_kernel_stack`.
pub fn mapped_kib() -> u64 {
    super::mapped_pages() * 4
}

/// The text of `/proc/kstack`.
///
/// # Errors
/// Those of the writer.
pub fn write_report(out: &mut dyn fmt::Write) -> fmt::Result {
    let totals = super::totals();
    let parameters = super::parameters();
    writeln!(out, "mode {:?} pages {} layout {:?}", parameters.mode, parameters.pages, parameters.layout)?;
    writeln!(out, "stacks {}", totals.stacks)?;
    writeln!(out, "mapped_kib {}", totals.mapped_pages * 4)?;
    writeln!(out, "slots {}", totals.slots)?;
    for (name, value) in [
        ("faults", totals.faults),
        ("pages_grown", totals.pages_grown),
        ("admissions_refused", totals.refused),
        ("admissions_busy", totals.busy),
        ("faults_without_frame", totals.without_frame),
        ("parked", totals.parked),
        ("reserve_frames", totals.reserve_frames),
        ("reserve_fetched", totals.fetched),
        ("reserve_from_stash", totals.stashed),
        ("pages_trimmed", totals.trimmed),
        ("pages_retired", totals.retired_pages),
        ("cache_hits", totals.cache_hits),
        ("cache_misses", totals.cache_misses),
        ("overflows", totals.overflows),
    ] {
        writeln!(out, "{name} {value}")?;
    }
    for (index, name) in DEPTH_NAMES.iter().enumerate() {
        writeln!(out, "{name} ended {} live {}", totals.depths[index], totals.live_depths[index])?;
    }
    super::write_windows(out)
}
