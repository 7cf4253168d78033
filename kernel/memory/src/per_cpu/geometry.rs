//! The arithmetic of interleaved per-CPU memory.
//!
//! ```text
//! block (1 MiB of addresses, aligned)
//!   chunk of CPU 0    8 KiB   <- an object's cookie points in here
//!   chunk of CPU 1    8 KiB   <- its copy for CPU 1: cookie + (1 << 13)
//!   ...                          addresses for all possible CPUs, frames only for those that exist
//!   chunk of CPU 63   8 KiB
//!   management        8 KiB   <- the descriptor
//!   (no memory)
//! ```
//!
//! An object takes the same units of 8 bytes in every chunk. So the copy of CPU n is found by one shift and one addition,
//! objects of one CPU lie densely beside each other, and no two CPUs' copies share a cache line or a page.

use machine::cpu::{self, CpuId, CpuSet, MAX_CPUS};

/// log2 of [`CHUNK_BYTES`].
pub const CHUNK_SHIFT: u32 = 13;

/// A CPU's part of a block: two pages. Also the size of the largest object.
pub const CHUNK_BYTES: usize = 1 << CHUNK_SHIFT;

/// The smallest unit of allocation.
pub(crate) const UNIT_BYTES: usize = size_of::<usize>();

/// Units of a chunk.
pub(crate) const UNITS: usize = CHUNK_BYTES / UNIT_BYTES;

/// Largest alignment: a cache line.
pub(crate) const ALIGN_MAX: usize = 64;

/// Where the descriptor lies in a block: behind the chunks.
pub(crate) const MANAGEMENT_OFFSET: usize = MAX_CPUS << CHUNK_SHIFT;

/// Bytes of the management section.
pub(crate) const MANAGEMENT_BYTES: usize = 8192;

/// log2 of [`BLOCK_BYTES`].
pub(crate) const BLOCK_SHIFT: u32 = 20;

/// Addresses of a block; its first address is a multiple of it, so that a block is found from any address inside.
pub(crate) const BLOCK_BYTES: usize = 1 << BLOCK_SHIFT;

const _: () = assert!(UNITS == 1024 && MANAGEMENT_OFFSET + MANAGEMENT_BYTES <= BLOCK_BYTES);

/// Distance of a CPU's copy from the cookie.
#[inline(always)]
pub(crate) const fn offset_of(cpu: CpuId) -> usize {
    cpu.index() << CHUNK_SHIFT
}

/// The processors whose chunks have memory: those that the machine has, started or not.
pub fn existing_cpus() -> CpuSet {
    CpuSet::first(cpu::count())
}
