//! Block devices: what stands between file systems and drivers of disks.
//!
//! A [`Bio`] is one transfer between memory and a range of sectors. It is submitted to a [`Queue`], which splits what is
//! too large for the device, merges neighbours into a [`Request`], lets a [`Scheduler`](scheduler::Scheduler) choose the order, hands
//! requests to the [`Driver`] and calls each bio's completion exactly once, whatever happens to the device.
//!
//! - Most users want [`Volume`]: a whole disk or a partition, read and written synchronously or not.
//! - [`partition`] reads GPT and MBR tables.
//! - [`disk`] names and numbers disks and finds their partitions.
//! - [`control`] has accounts transfer no more than they may.
//! - [`registry`] has all devices by name and number; drivers enter theirs there.
//! - [`RamDisk`] and [`FaultyDisk`] are devices in memory; the latter fails, forgets and records on demand.
//!
//! # Context
//! Submission may sleep (it allocates). Completions run in a thread's or softirq's context with no lock of this crate
//! held; they may submit further bios.
//!
//! # What is promised about order
//! Nothing between bios in flight. A [`Operation::Flush`], or a write with [`BioFlags::PREFLUSH`], makes everything durable
//! whose completion ran before its submission; a write with [`BioFlags::FORCE_UNIT_ACCESS`] is durable when it completes. For devices that
//! cannot do the latter the queue flushes afterwards.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod bio;
pub mod checksum;
pub mod control;
pub mod disk;
mod driver;
mod error;
mod faulty_disk;
mod flush;
mod lane;
mod one_runner;
mod outstanding;
pub mod partition;
mod plug;
mod queue;
pub mod ram_disk;
pub mod registry;
mod request;
pub mod scheduler;
mod statistics;
#[cfg(test)]
mod tests;
mod volume;

pub use bio::{Bio, BioFlags, Done, Memory, Operation, SECTOR_BYTES, Segment};
pub use driver::{Driver, Limits, TimeoutVerdict};
pub use error::{Error, Result};
pub use faulty_disk::{DiskEvent, FaultyDisk};
pub use plug::Plug;
pub use queue::Queue;
pub use ram_disk::RamDisk;
pub use request::Request;
pub use statistics::{Snapshot, Statistics};
pub use volume::{Batch, Volume};
