//! File cache managers (FCM): the pages of one file or one piece of shared memory, and the file representative (FR)
//! behind them.
//!
//! - [`FileCache`]: the object that files, mappings and futexes share.
//! - [`FileRepresentative`]: what a file system implements when the pages have a home elsewhere.
//! - a cache may have huge pages of the pool instead of small ones ([`FileCache::of_huge_pages`]).
//! - the index of the pages is a [`crate::page_index::RadixTree`].

mod backing;
mod cache;
mod device;
mod errors;
mod huge;
mod lookup;
mod representative;
mod run;
mod sparse;
mod transfer;
mod variant;
mod write_back;

pub use cache::{CacheError, CacheKind, FileCache, MAX_FILE_BYTES, PageBudget};
pub use device::{
    BackingDevice, DirtyFiles, Event, READ_AHEAD_PAGES, ReadAheadLimit, WriteBackCounts, write_back_counts,
};
pub use errors::{ErrorMark, SeenErrors, WriteErrors};
pub use lookup::{Census, Intent};
pub use representative::FileRepresentative;
pub use run::{PageRun, RUN_PAGES};
pub(crate) use variant::initialize;
pub use variant::write_report;
pub use write_back::Mapped;

#[cfg(test)]
mod backed_tests;
#[cfg(test)]
pub(crate) mod tests;
