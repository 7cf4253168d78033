//! Values that every CPU has a copy of: `specs/percpu-allocator.md`.
//!
//! From the bottom up: `geometry` (the arithmetic), `descriptor` (what is known of a block), `list` (the blocks in order),
//! `backing` (a block's memory), `allocator` (all of them), and its users: [`PerCpuBox`], [`Counter`], [`PerCpuRef`],
//! [`Shared`], [`Kept`], [`Quota`], and the free lists of the heap.

mod allocator;
#[cfg_attr(target_os = "none", path = "backing.rs")]
#[cfg_attr(not(target_os = "none"), path = "backing_hosted.rs")]
mod backing;
mod boxed;
mod counter;
mod descriptor;
pub mod exercise;
mod free_list;
mod geometry;
mod kept;
mod list;
mod local_tables;
mod quota;
mod reference;
mod report;
mod shared;
#[cfg(test)]
mod tests;

pub(crate) use allocator::initialize;
pub use allocator::{PerCpuError, Usage, usage};
pub use boxed::{PerCpuBox, Zeroable};
pub use counter::Counter;
pub(crate) use free_list::FreeList;
pub use geometry::{CHUNK_BYTES, CHUNK_SHIFT, existing_cpus};
pub use kept::{Hot, Kept};
pub(crate) use local_tables::register as register_local_tables;
pub use quota::Quota;
pub use reference::{PerCpuRef, Put};
pub use report::{BlockReport, blocks, check, write_blocks};
pub use shared::{Shared, SharedOwner};
