//! What a region shows besides zeros.

use crate::file_cache::FileCache;
use crate::frame::Frame;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

/// What `/proc/PID/maps` and others want to know about the owner of a mapped file cache: implemented by open files.
pub trait MappedObject: Any + Send + Sync {
    /// Writes the name (a path) as it is now.
    ///
    /// # Errors
    /// What the formatter returns.
    fn write_name(&self, out: &mut dyn fmt::Write) -> fmt::Result;

    /// Device and inode number.
    fn identity(&self) -> (u64, u64);

    /// Makes a part of the file last, given by bytes; false if it could not be, or an earlier write-back had failed.
    fn make_durable(&self, start: u64, end: u64) -> bool;

    /// One more region shows the object, on behalf of the running thread. Only for [`FileMapping::counted`]; called with spin locks held.
    fn region_added(&self) {}

    /// One region less shows the object.
    fn region_removed(&self) {}
}

/// A mapped file: its cache, and the open file that is kept alive by the mapping. One is made per mmap call and shared
/// by the regions that come of it by splitting and forking.
pub struct FileMapping {
    cache: Arc<FileCache>,
    object: Option<Arc<dyn MappedObject>>,
    /// The object wants to know how many regions show it. Such regions are never merged.
    counted: bool,
}

impl FileMapping {
    /// A mapping of `cache` on behalf of `object`.
    #[must_use]
    pub fn new(cache: Arc<FileCache>, object: Option<Arc<dyn MappedObject>>) -> FileMapping {
        cache.mapping_added();
        FileMapping { cache, object, counted: false }
    }

    /// The same, and `object` is told of each region that comes and goes (System V shared memory).
    #[must_use]
    pub fn counted(cache: Arc<FileCache>, object: Arc<dyn MappedObject>) -> FileMapping {
        let mut mapping = FileMapping::new(cache, Some(object));
        mapping.counted = true;
        mapping
    }

    /// Whether regions that show it are counted.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.counted
    }

    /// The object, if it is to be told of regions.
    fn counting_object(&self) -> Option<&dyn MappedObject> {
        self.object.as_deref().filter(|_| self.counted)
    }

    /// A tree of regions has one more that shows this.
    #[inline]
    pub(super) fn region_added(&self) {
        if let Some(object) = self.counting_object() {
            object.region_added();
        }
    }

    /// It has one less.
    #[inline]
    pub(super) fn region_removed(&self) {
        if let Some(object) = self.counting_object() {
            object.region_removed();
        }
    }

    /// The pages.
    #[must_use]
    pub fn cache(&self) -> &Arc<FileCache> {
        &self.cache
    }

    /// The open file.
    #[must_use]
    pub fn object(&self) -> Option<&Arc<dyn MappedObject>> {
        self.object.as_ref()
    }

    /// Whether both show the same file through the same open file.
    #[must_use]
    pub fn same_object(&self, other: &FileMapping) -> bool {
        let same_owner = match (&self.object, &other.object) {
            (None, None) => true,
            (Some(one), Some(two)) => Arc::as_ptr(one).addr() == Arc::as_ptr(two).addr(),
            _ => false,
        };
        same_owner && Arc::ptr_eq(&self.cache, &other.cache)
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        self.cache.mapping_removed();
    }
}

/// Frames of the kernel's that programs may see (vDSO code, its data).
pub struct SpecialMapping {
    name: &'static str,
    frames: Vec<Frame>,
}

impl SpecialMapping {
    /// These frames, shown in `/proc/PID/maps` under this name (`[vdso]`, `[vvar]`).
    #[must_use]
    pub fn new(name: &'static str, frames: Vec<Frame>) -> SpecialMapping {
        SpecialMapping { name, frames }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The frame of a page.
    #[must_use]
    pub fn frame(&self, page: u64) -> Option<&Frame> {
        self.frames.get(usize::try_from(page).ok()?)
    }

    /// Number of pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.frames.len() as u64
    }
}
