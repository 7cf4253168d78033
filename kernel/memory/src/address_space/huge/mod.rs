//! Huge pages: 2 MiB of anonymous private memory that one entry maps.
//!
//! # The table behind
//! In the place of a leaf table a directory's entry may map 512 contiguous frames itself. The leaf table that says the same page by page
//! exists all the same, filled, *behind* the huge page (`machine::page_table::Leaf`). So everything that only looks (smaps, pagemap, mincore,
//! access from outside, core dumps) finds entries as ever, each with a reference to its own frame, and undoing a huge page takes one store
//! and a flush, but no memory. Whoever wants to *change* an entry has the page undone first, by the calls that make a table shared after a fork
//! the space's own (`shared_tables`): both are *closed* tables, and the rules are the same.
//!
//! ```text
//! no table ── first access, 2 MiB are free at once ─────> huge ── an entry is to change, or a region to be cut here ──> own
//! own ── MADV_COLLAPSE: contents move to a huge page ───> huge ── fork: both spaces link to the table ────────────────> shared
//! shared ── a store, the others have gone, and the entries still are a huge page's ──> huge
//! ```
//!
//! # Rules
//! - A huge page lies in one region, which is anonymous and private, and its permissions are those of the region with stores. So a fault
//!   that finds one has nothing to do.
//! - Tables are closed, for whatever reason, with `change` held: who has seen that a range has no closed tables finds none until he lets go.
//! - Huge pages are undone with `regions` held for writing, unless no region is there any more: a reader that has found one in the tree
//!   may go on to the table behind it while it holds the region lock.
//! - The table and the frames stay the same when a huge page is undone, and so do permissions. A processor that translates by the old
//!   entry meanwhile does nothing that the new ones would not allow.
//!
//! A fault takes a huge page only where no leaf table is yet. A hot path so never asks about huge pages.

mod collapse;
mod fill;
mod policy;
mod undo;

pub use policy::{HugeCounts, HugeMode, huge_counts, huge_mode, set_huge_mode};

pub(super) use undo::leave;
