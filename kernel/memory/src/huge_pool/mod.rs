//! The pool of huge pages: 2 MiB each, kept for programs that ask for them by name (`MAP_HUGETLB`, files of `hugetlbfs`).
//!
//! # A page
//! Its 512 frames lie one behind the other and never part. With them goes a leaf table that says the same frame by frame; it is *behind* the page wherever that is
//! mapped (`machine::page_table::Leaf`), so that everything that only looks at entries finds them as ever. The references to the table's
//! frame are those to the page: `PooledPage` is one, and so is each link that maps the page, and the file's own.
//!
//! ```text
//! free in the pool ── take ──> in use ── the last reference goes ──> coming home ── the last frame is free ──> free, or given up if it is surplus
//! ```
//!
//! While a page is in use its table holds one reference to each frame. Who has a frame at hand for a transfer has one more, so a page comes home when the
//! last of its frames does. Frames of the pool are known by who pays for them (`POOL_PAYS`): releasing any other frame asks nothing new.
//!
//! # Promises
//! A mapping is promised its pages when it is made, and a promised page is there when it is touched. The pool never promises what it has not: `promised` is at
//! most `free`. Who keeps count of what was promised:
//!
//! | memory | the promise is of | and is over when |
//! |---|---|---|
//! | private | a region that was mapped so (`RegionFlags::PROMISED`): a page for each of its places that is empty | the page is taken, or the region goes |
//! | shared | a file: a page for each of its pages that is noted as promised | the page is taken, or the file is cut off there |
//! | of a mount with a least size | its [`HugeQuota`]: what its files do not have of it | it is unmounted |
//!
//! # Surplus
//! Where the administrator permits it, what is missing for a promise, or an access, is taken from free memory for as long as it is needed. Pages in use that
//! the pool should not have any more, because it was made smaller, are surplus too.
//!
//! # Locking
//! `POOL` is a leaf, taken with interrupts off, because frames are freed anywhere. Memory is allocated and given up without it.

mod counts;
mod page;
mod quota;
mod supply;

pub use counts::{HugePoolCounts, counts, overcommit_limit, set_overcommit_limit};
pub(crate) use page::{Kind, PooledPage, came_home};
pub use quota::HugeQuota;
pub use supply::set_size;
pub(crate) use supply::{promise, take, unpromise};

/// Bytes of a page of the pool.
pub const HUGE_PAGE_BYTES: u64 = machine::page_table::LEAF_TABLE_BYTES;

/// Frames of a page of the pool, as file sizes count them.
pub(crate) const HUGE_PAGE_FRAMES: u64 = HUGE_PAGE_BYTES >> machine::address::PAGE_SHIFT;

/// In the place of an account's number: the frame is one of the pool's. No account has this number.
pub(crate) const POOL_PAYS: u16 = u16::MAX;
