//! File cache managers (FCM): the pages of one file or one piece of shared memory, and the file representative (FR)
//! behind them.
//!
//! - [`FileCache`]: the object that files, mappings and futexes share.
//! - [`FileRepresentative`]: what a file system implements when the pages have a home elsewhere.
//! - the index of the pages is a [`crate::page_index::RadixTree`].

mod cache;
mod lookup;
mod representative;
mod sparse;
mod transfer;
mod variant;

pub use cache::{CacheError, CacheKind, FileCache, MAX_FILE_BYTES, PageBudget};
pub(crate) use lookup::BATCH_PAGES;
pub use lookup::Intent;
pub use representative::FileRepresentative;
pub(crate) use variant::initialize;
pub use variant::write_report;

#[cfg(test)]
pub(crate) mod tests;
