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
    places: SpinLock<Places>,
}

/// A place for each file; vacant ones are a list.
struct Places {
    all: Vec<Place>,
    first_vacant: Option<usize>,
}

enum Place {
    Taken(Weak<FileCache>),
    /// And the next one that is.
    Vacant(Option<usize>),
}

impl HugeFiles {
    pub(crate) fn new(quota: Arc<HugeQuota>) -> Self {
        let places = Places { all: Vec::new(), first_vacant: None };
        Self { quota, places: SpinLock::named("files of huge pages", places) }
    }

    pub(crate) fn quota(&self) -> &HugeQuota {
        &self.quota
    }

    /// A new file without pages.
    pub(crate) fn make(&self, seals: Seals) -> Result<HugeFile> {
        let cache = allocation::arc(FileCache::of_huge_pages(0, Some(self.quota.clone()))?)?;
        let taken = Place::Taken(Arc::downgrade(&cache));
        let mut places = allocation::lock_with_room(|| self.places.lock(), 1, |places| &mut places.all)?;
        let place = match places.first_vacant {
            Some(place) => {
                if let Place::Vacant(next) = core::mem::replace(&mut places.all[place], taken) {
                    places.first_vacant = next;
                }
                place
            }
            None => {
                places.all.push(taken);
                places.all.len() - 1
            }
        };
        Ok(HugeFile { cache, seals, place })
    }

    /// The file is gone.
    pub(crate) fn forget(&self, file: &HugeFile) {
        let gone = {
            let mut places = self.places.lock();
            let vacant = Place::Vacant(places.first_vacant);
            // After the end there are no places.
            let gone = places.all.get_mut(file.place).map(|place| core::mem::replace(place, vacant));
            if gone.is_some() {
                places.first_vacant = Some(file.place);
            }
            gone
        };
        drop(gone);
    }

    /// The instance is mounted nowhere, so nobody has a file open or mapped: all pages go, and what was kept for them.
    pub(crate) fn end(&self) {
        let places = {
            let mut places = self.places.lock();
            places.first_vacant = None;
            core::mem::take(&mut places.all)
        };
        for place in places {
            if let Place::Taken(cache) = place
                && let Some(cache) = cache.upgrade()
            {
                let cut = cache.truncate(0);
                debug_assert!(cut.is_ok(), "cutting off whole pages takes no memory");
            }
        }
        self.quota.end();
    }
}

pub(crate) struct HugeFile {
    pub(crate) cache: Arc<FileCache>,
    pub(crate) seals: Seals,
    place: usize,
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
