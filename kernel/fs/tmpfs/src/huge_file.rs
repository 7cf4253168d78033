//! Regular files whose pages are huge ones of the pool: what is done with such an open file.
//!
//! They are mapped, and read; nothing can be written to them but through a mapping.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use memory::buffer::Sink;
use memory::file_cache::FileCache;
use memory::huge_pool::{HUGE_PAGE_BYTES, HugeQuota};
use sync::SpinLock;
use vfs::file::{FileFeatures, FileMappingKind, FileOperations, OpenFile};
use vfs::flags::AllocateMode;
use vfs::{Error, Result, allocation};

use crate::memory_file::{Seal, Seals};

/// The files of an instance, so that their pages are home when it has ended, whoever may still refer to an inode.
pub(crate) struct HugeFiles {
    quota: Arc<HugeQuota>,
    caches: SpinLock<Vec<Weak<FileCache>>>,
}

impl HugeFiles {
    pub(crate) fn new(quota: Arc<HugeQuota>) -> Self {
        Self { quota, caches: SpinLock::named("files of huge pages", Vec::new()) }
    }

    pub(crate) fn quota(&self) -> &HugeQuota {
        &self.quota
    }

    /// The pages of a new file, of which there are none.
    pub(crate) fn make(&self) -> Result<Arc<FileCache>> {
        let cache = allocation::arc(FileCache::of_huge_pages(0, Some(self.quota.clone()))?)?;
        let known = Arc::downgrade(&cache);
        let is_full = |caches: &Vec<_>| caches.len() == caches.capacity();
        {
            let mut caches = self.caches.lock();
            if is_full(&caches) {
                caches.retain(|cache| cache.strong_count() > 0);
            }
        }
        allocation::lock_with_room(|| self.caches.lock(), 1, |caches| caches)?.push(known);
        Ok(cache)
    }

    /// The instance is mounted nowhere, so nobody has a file open or mapped: all pages go, and what was kept for them.
    pub(crate) fn end(&self) {
        let caches = core::mem::take(&mut *self.caches.lock());
        for cache in caches.iter().filter_map(Weak::upgrade) {
            let cut = cache.truncate(0);
            debug_assert!(cut.is_ok(), "cutting off whole pages takes no memory");
        }
        self.quota.end();
    }
}

pub(crate) struct HugeFile {
    pub(crate) cache: Arc<FileCache>,
    pub(crate) seals: Seals,
}

impl HugeFile {
    pub(crate) fn truncate(&self, size: u64) -> Result<()> {
        if !size.is_multiple_of(HUGE_PAGE_BYTES) {
            return Err(Error::Invalid);
        }
        self.seals.check_resize(self.cache.size(), size)?;
        Ok(self.cache.truncate(size)?)
    }

    pub(crate) fn allocate(&self, size: u64, mode: AllocateMode, offset: u64, end: u64) -> Result<()> {
        if !(AllocateMode::KEEP_SIZE | AllocateMode::PUNCH_HOLE).contains(mode) {
            return Err(Error::NotSupported);
        }
        if mode.contains(AllocateMode::PUNCH_HOLE) {
            self.seals.check(Seal::WRITE | Seal::FUTURE_WRITE)?;
            return Ok(self.cache.punch_hole(offset..end.min(self.cache.size()).max(offset))?);
        }
        if !mode.contains(AllocateMode::KEEP_SIZE) && end > size {
            self.seals.check_resize(size, end)?;
            if !end.is_multiple_of(HUGE_PAGE_BYTES) {
                return Err(Error::Invalid);
            }
        }
        Ok(self.cache.allocate(offset..end)?)
    }
}

impl FileOperations for HugeFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE | FileFeatures::REGULAR
    }

    fn read(&self, file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let number = self.cache.read_huge(*position, sink)?;
        *position += number as u64;
        vfs::time::accessed(file);
        Ok(number)
    }

    fn mapping(&self, _file: &OpenFile) -> Result<FileMappingKind> {
        Ok(FileMappingKind::Pages(self.cache.clone()))
    }

    fn sync(&self, _file: &OpenFile, _data_only: bool) -> Result<()> {
        Ok(())
    }
}
