//! Page frames: physical memory in units of 4 KiB.
//!
//! [`Frame`] is a counted handle of one, [`Block`] owns a contiguous run, `huge` has runs of 512 that are counted one by one. The parts, from the bottom up: `metadata`
//! (what is known of each), `untouched` (memory that nobody needed yet), `buddy` (free blocks), `pool` (both, with
//! watermarks), `per_cpu` (what a CPU has at hand), `allocate` (the way through all of them).

pub(crate) mod allocate;
#[cfg_attr(
    not(target_os = "none"),
    allow(dead_code, reason = "only the heap of the bare machine gives blocks away")
)]
mod block;
mod buddy;
pub(crate) mod contents;
mod handle;
#[cfg(not(target_os = "none"))]
mod hosted;
pub(crate) mod huge;
pub(crate) mod metadata;
pub(crate) mod number;
pub(crate) mod per_cpu;
mod poison;
pub(crate) mod pool;
mod purpose;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod untouched;
mod watermark;

pub use allocate::zero_ahead;
pub use block::Block;
#[cfg(target_os = "none")]
pub(crate) use block::block_of_frames;
pub use buddy::{MAX_ORDER, ORDERS};
pub use handle::{Frame, from_boot};
pub use purpose::Purpose;
pub use watermark::{Urgency, Watermarks};

use machine::cpu::CpuSet;

/// Whether an allocated frame has to be zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroed {
    /// All zeros.
    Yes,
    /// Whatever it holds: the caller overwrites it.
    No,
}

/// Gives back what CPUs have at hand, so that blocks can form and one CPU can use what another keeps. CPUs that have nothing
/// are left alone. The caller may wait.
pub fn drain_all_cpus() {
    let mut keepers = CpuSet::EMPTY;
    for cpu in machine::cpu::online().iter() {
        if crate::local::of(cpu).is_some_and(|memory| memory.frames.at_hand() > 0) {
            keepers.insert(cpu);
        }
    }
    sync::remote::call(keepers, |_| allocate::drain_this_cpu(), 0);
}

/// Frames that the pool manages, free or not.
#[must_use]
pub fn total_frames() -> u64 {
    pool::lock().statistics().managed
}

/// Hands all memory of the machine to the pool.
pub(crate) fn initialize() {
    let managed = {
        let mut pool = pool::lock();
        if pool.statistics().managed == 0 {
            pool.fill(machine::boot::hand_over());
        }
        pool.statistics().managed
    };
    allocate::set_limits(managed);
}
