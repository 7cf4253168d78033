//! File cache managers (FCM): the pages of one file or one piece of shared memory, and the file representative (FR)
//! behind them.
//!
//! - [`FileCache`]: the object that files, mappings and futexes share.
//! - [`FileRepresentative`]: what a file system implements when the pages have a home elsewhere.
//! - the page index: a radix tree with tags.

mod cache;
mod index;
mod lookup;
mod representative;
mod sparse;
mod transfer;

pub use cache::{CacheError, CacheKind, FileCache, MAX_FILE_BYTES, PageBudget};
pub use index::{SHIFT, SLOTS, Tag};
pub(crate) use lookup::BATCH_PAGES;
pub use lookup::Intent;
pub use representative::FileRepresentative;

#[cfg(test)]
mod tests;
