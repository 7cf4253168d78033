//! User address spaces: regions, page faults, copy-on-write, and keeping translation caches honest.
//!
//! # State
//! An [`AddressSpace`] has a tree of regions (what may be where), page tables (what is where), a layout (break, where
//! mappings go) and counters. Page-table entries own references to frames; the bits that software keeps in an entry are
//! in `entry`.
//!
//! # Locks
//! - `change` (sleeps) is held by everything that changes regions or takes frames out of the tables: map, unmap, protect,
//!   remap, advise, break, stack growth, fork, truncation of a mapped file. So there is one changer at a time.
//! - `regions` (spins, many readers): held by a page fault from its look-up to the store of the entry, and by a changer
//!   only for the moment of editing the tree. Once a changer has had it for writing, no fault is left in what it removed;
//!   it clears and frees tables with the lock released. So a long unmap does not delay faults elsewhere.
//! - Entries are atomic words: concurrent faults on one page are settled by compare-and-swap.
//!
//! Order: `FileCache::change`, then `AddressSpace::change`, then `regions`, then the locks of a file cache's index.
//!
//! A fault never sleeps under `regions`. When it needs a page from a file system, or memory by reclaim, it lets go, waits
//! and begins anew.
//!
//! # Fork
//! While `copying` is set, faults that would break a sharing wait: the write-protected entries reach all processors'
//! translation caches before anybody may copy a page on write.
//!
//! # Frames and translation caches
//! What leaves the tables goes into a `gather::Gather` and is freed after the processors that may hold translations
//! have forgotten them (`tables`). Processors that only borrow the tables (idle, kernel threads) are not disturbed;
//! they catch up when they return to the program.

mod account;
mod advise;
mod brk;
mod detach;
mod entry;
mod error;
mod fault;
mod forced;
mod fork;
mod futex;
mod gather;
mod hold;
mod huge;
mod inspect;
mod lock;
mod map;
mod nonlinear;
mod pager;
mod placement;
mod policy;
mod pooled;
mod populate;
mod protect;
mod registry;
mod remap;
mod remote;
mod request;
mod shared_tables;
mod space;
mod stack;
mod synchronise;
mod tables;
mod unmap;
mod usage;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod window;

pub use account::{
    CommitMode, Commitment, commit_limit_pages, commit_mode, commit_ratio, committed_pages, set_commit_mode,
    set_commit_ratio,
};
pub use error::MapError;
pub use futex::FutexKey;
pub use hold::Hold;
pub use huge::{HugeCounts, HugeMode, huge_counts, huge_mode, set_huge_mode};
pub use inspect::PresentPage;
pub use pager::{PagerId, Provision, TakeBack};
pub use request::{
    Advice, Limits, LockAllFlags, MapBacking, MapFlags, MapRequest, Protection, RemapFlags, SyncMode,
};
pub use space::{AddressSpace, Layout, MAX_REGIONS, MINIMUM_ADDRESS, USER_TOP, initialize};
pub use usage::{RegionUsage, Usage};

pub(crate) use entry::{PRIVATE, SHARED_MEMORY};
pub(crate) use registry::{
    end_left, forget_file_pages, forget_unused_file_pages, unmap_file_pages, write_protect_file_pages,
};
