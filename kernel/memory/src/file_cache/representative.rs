//! What stands behind a file cache whose pages have a home elsewhere.

use super::CacheError;
use crate::frame::Frame;

/// A file's representative: brings pages in and writes them back. Called without any lock held; may sleep. Each page is
/// filled by one caller at a time.
pub trait FileRepresentative: Send + Sync {
    /// Fills the frame with the page's bytes; zeros beyond the end of the file.
    ///
    /// # Errors
    /// [`CacheError::InputOutput`] usually.
    fn fill(&self, page: u64, frame: &Frame) -> Result<(), CacheError>;

    /// Writes the page's bytes to where they live. Callers come in file order.
    ///
    /// # Errors
    /// [`CacheError::InputOutput`] or [`CacheError::NoSpace`].
    fn write_back(&self, page: u64, frame: &Frame) -> Result<(), CacheError>;

    /// A page is about to become dirty: reserves the space it will need.
    ///
    /// # Errors
    /// [`CacheError::NoSpace`] refuses the write.
    fn prepare_write(&self, page: u64) -> Result<(), CacheError> {
        let _ = page;
        Ok(())
    }
}
