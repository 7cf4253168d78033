//! Regular files whose pages are huge ones of the pool: what is done with such an open file.
//!
//! They are mapped, and read; nothing can be written to them but through a mapping.

use alloc::sync::Arc;

use memory::buffer::Sink;
use memory::file_cache::FileCache;
use memory::huge_pool::HUGE_PAGE_BYTES;
use vfs::file::{FileFeatures, FileMappingKind, FileOperations, OpenFile};
use vfs::flags::AllocateMode;
use vfs::{Error, Result};

use crate::memory_file::{Seal, Seals};

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
