//! Page tables: the four-level trees in which the processor looks up user addresses.
//!
//! The tables are ordinary frames, reached through the direct map; the same code runs in both back ends. This
//! module knows the shape of the tree and of an entry. Which frame belongs where, who counts references to frames
//! and when translation caches must be flushed is the business of the address space above (crate `memory`).
//!
//! ```text
//! root (512 × 512 GiB) → directory pointers (512 × 1 GiB) → directories (512 × 2 MiB) → leaf tables (512 × 4 KiB)
//! ```
//!
//! **Concurrency.** Every entry is an atomic word, and there is no lock in here. Tables are added with a
//! compare-and-swap by whoever faults first; the loser gives its table back. Tables are only taken away by
//! [`PageTable::free_tables`], whose caller guarantees that nobody walks the addresses between its floor and its
//! ceiling. A walk touches exactly the tables that cover its address, so faults elsewhere are not disturbed.
//!
//! **Sharing.** After a fork two trees may link to one leaf table, and a link may map a huge page of 2 MiB, which several trees may have in common: see `leaf`.
//!
//! **The kernel's half.** The upper 256 entries of the root are copied from the kernel's own root when a tree is
//! made and never change afterwards.

mod entry;
mod leaf;
mod table;
mod tree;

pub use entry::{Entry, EntryCell, EntryFlags};
pub use leaf::{Leaf, Mark, NoLeaf, Place, find_tables_behind, leaf_entries};
pub use table::{ENTRIES, LEAF_TABLE_BYTES, TableFrames};
pub use tree::{PageTable, translate};
