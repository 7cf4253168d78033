//! Pages of a file: which blocks they are, and their way from the device.

use alloc::sync::Arc;

use block::{BioFlags, Operation, SECTOR_BYTES};
use machine::address::PAGE_SIZE;
use memory::fallible;
use memory::file_cache::{CacheError, FileRepresentative, PageRun};
use vfs::disk::transfer::{error_of as error_of_device, submit};

use super::instance::Instance;
use crate::{Error, Inode};

/// The pages of a file.
pub(super) struct Pages {
    pub(super) instance: Arc<Instance>,
    pub(super) inode: Inode,
}

fn error_of(error: &Error) -> CacheError {
    match error {
        Error::Device(error) => error_of_device(*error),
        Error::OutOfMemory => CacheError::OutOfMemory,
        other => {
            log::error!("ext4: {other}");
            CacheError::InputOutput
        }
    }
}

impl Pages {
    /// Begins to fill the first pages of a run, as far as their blocks are neighbours. What is left is left in the run.
    fn fill_first(&self, run: &mut PageRun) -> Result<(), Error> {
        let system = &self.instance.system;
        let block_bytes = system.block_bytes() as u64;
        let offset = run.first() * PAGE_SIZE as u64;
        let inside = offset % block_bytes;
        let wanted = (inside + (run.pages() * PAGE_SIZE) as u64).div_ceil(block_bytes);
        let found = system.map(&self.inode, offset / block_bytes, wanted)?;
        let bytes = (found.count.min(wanted) * block_bytes).saturating_sub(inside);
        let whole = (bytes / PAGE_SIZE as u64).min(run.pages() as u64) as usize;
        match found.place {
            None if whole > 0 => {
                let pages = run.split(whole);
                pages.frames().iter().for_each(memory::frame::Frame::zero);
                pages.complete(Ok(()));
            }
            Some(place) if whole > 0 => {
                let sector = (place * block_bytes + inside) / SECTOR_BYTES as u64;
                let pages = run.split(whole);
                let volume = self.instance.device.volume();
                submit(volume, Operation::Read, sector, whole * PAGE_SIZE, pages, BioFlags::empty());
            }
            _ => self.fill_from_pieces(offset, run)?,
        }
        Ok(())
    }

    /// A page whose blocks are not neighbours.
    #[inline(never)]
    fn fill_from_pieces(&self, offset: u64, run: &mut PageRun) -> Result<(), Error> {
        let mut bytes = fallible::try_vec_of(0, PAGE_SIZE)?;
        self.instance.system.read(&self.inode, offset, &mut bytes)?;
        let page = run.split(1);
        page.frames()[0].write(0, &bytes);
        page.complete(Ok(()));
        Ok(())
    }
}

impl FileRepresentative for Pages {
    fn fill(&self, mut pages: PageRun) {
        while pages.pages() > 0 {
            if let Err(error) = self.fill_first(&mut pages) {
                return pages.complete(Err(error_of(&error)));
            }
        }
    }

    fn write_back(&self, pages: PageRun) {
        pages.complete(Err(CacheError::ReadOnly));
    }

    fn prepare_write(&self, _page: u64) -> Result<(), CacheError> {
        Err(CacheError::ReadOnly)
    }
}
