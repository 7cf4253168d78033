//! Page indices: maps from page numbers to words, with tags (specs/page-cache.md).
//!
//! - [`RadixTree`]: the one of the kernel's file caches: read under RCU, changed through an [`Edit`].
//! - [`PageIndex`]: what all index structures can do, for tests and measurements that compare them.
//! - [`Tag`]: what an index says about pages.
//! - [`levels`]: how many nodes the trees of the whole kernel have.

mod edit;
mod index;
mod node;
mod radix;
mod spare;
mod statistics;

pub use edit::{Edit, MissingNodes};
pub use index::{PageIndex, TAGS, Tag};
pub use node::{Fanout, Shift};
pub use radix::{Place, RadixTree, height_for};
pub use spare::Spare;
pub use statistics::{LEVELS, levels};

#[cfg(test)]
mod tests;
