//! What stands behind a file cache whose pages have a home elsewhere.

use super::run::PageRun;
use super::{CacheError, MAX_FILE_BYTES};

/// A file's representative: brings pages in and writes them back. Called without any lock of the cache's held except perhaps `change`; may
/// sleep. Each page is on its way in one direction at a time.
///
/// # Runs
/// Both calls get a [`PageRun`]: neighbouring pages, at most [`super::RUN_PAGES`] of them. They *begin* the transfer and may return before it has ended;
/// the run is taken apart where the file is not contiguous on the disk ([`PageRun::split`]), goes with the transfer, and ends by
/// [`PageRun::complete`], from any thread. A run that is dropped has failed for want of memory.
///
/// # What pages may do meanwhile
/// Nobody sees a page that is being filled. One that is being written may be read, but is not changed by who writes through the
/// cache or a mapping before the transfer has ended.
pub trait FileRepresentative: Send + Sync {
    /// Begins to fill the frames. What lies beyond the end of the file is zeroed by the cache afterwards.
    fn fill(&self, pages: PageRun);

    /// Begins to write the pages to where they live. Runs come in file order. Pages beyond [`super::FileCache::size`] need not be
    /// written: the file has just been cut off, or the bytes that make it longer are not there yet, and the page comes again.
    fn write_back(&self, pages: PageRun);

    /// A clean page is about to become dirty: reserves the space it will need. Called before bytes are stored, by writers
    /// and by faults of mappings; may sleep. True: something was reserved, which [`write_back`](Self::write_back) uses or
    /// [`forget_write`](Self::forget_write) gives back, the latter also when the page did not become dirty by this.
    ///
    /// # Errors
    /// [`CacheError::NoSpace`] refuses the write.
    fn prepare_write(&self, page: u64) -> Result<bool, CacheError> {
        let _ = page;
        Ok(false)
    }

    /// How long the file may become, at least 2 GiB - 1 bytes.
    fn bytes_max(&self) -> u64 {
        MAX_FILE_BYTES
    }

    /// Programs may store to a dirty page through a mapping from now on, until it has been written. Called with spin locks held.
    fn note_stores(&self) {}

    /// A dirty page was given up without having been written: it was cut off, or a hole was made where it was. Or what was reserved for it
    /// is not needed.
    fn forget_write(&self, page: u64) {
        let _ = page;
    }

    /// All transfers that were begun so far shall get on: called when somebody is about to wait. For those that hold transfers
    /// back to join them.
    fn submit_held(&self) {}
}
