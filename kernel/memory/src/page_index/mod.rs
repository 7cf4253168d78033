//! Page indices: maps from page numbers to words, with tags (specs/page-cache.md).
//!
//! - [`RadixTree`]: the one of the kernel's file caches: read under RCU, changed through an [`Edit`].
//! - [`PageIndex`]: what all index structures can do, for tests and measurements that compare them.
//! - [`Tag`]: what an index says about pages.
//! - On the host, to be compared with it: `ExtendibleHash`, `ThreadedTree` and `Treap` (example `pcbench`).
//! - [`levels`]: how many nodes the trees of the whole kernel have.

mod edit;
#[cfg(not(target_os = "none"))]
mod hash;
mod index;
mod node;
#[cfg(not(target_os = "none"))]
mod ordered;
mod radix;
mod spare;
mod statistics;
#[cfg(not(target_os = "none"))]
mod threaded;
#[cfg(not(target_os = "none"))]
mod treap;

pub use edit::{Edit, MissingNodes};
#[cfg(not(target_os = "none"))]
pub use hash::ExtendibleHash;
pub use index::{PageIndex, TAGS, Tag};
pub use node::{Fanout, SHIFT, Shift};
pub use radix::{Place, RadixTree, height_for};
pub use spare::Spare;
pub use statistics::{LEVELS, levels};
#[cfg(not(target_os = "none"))]
pub use threaded::ThreadedTree;
#[cfg(not(target_os = "none"))]
pub use treap::Treap;

#[cfg(test)]
mod tests;
