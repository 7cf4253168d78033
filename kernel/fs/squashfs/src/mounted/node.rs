//! An inode in memory, and the pages of a regular file.

use alloc::sync::Arc;

use machine::address::PAGE_SIZE;
use memory::fallible;
use memory::file_cache::{CacheError, FileCache, FileRepresentative, PageRun};
use vfs::disk::transfer::error_of as error_of_device;
use vfs::disk::{DiskFile, Home, shrink};
use vfs::file::{FileOperations, NoOperations, OpenFile};
use vfs::flags::OpenFlags;
use vfs::inode::{
    DirectorySink, FIRST_POSITION, Inode, InodeOperations, LinkTarget, NewFile, Rename, SetAttribute,
};
use vfs::name::Name;
use vfs::{AttributeChange, Error, Result, allocation};

use super::instance::{Instance, error_of, kind_of};
use crate::{FileMap, Kind};

/// A file of the image.
struct File {
    found: crate::Inode,
    map: FileMap,
}

/// See the theory of this file.
pub(super) struct Node {
    instance: Arc<Instance>,
    file: Arc<File>,
    cache: Option<Arc<FileCache>>,
}

/// The pages of a regular file.
struct Pages {
    instance: Arc<Instance>,
    file: Arc<File>,
}

impl Node {
    pub(super) fn new(instance: Arc<Instance>, found: crate::Inode) -> Result<Self> {
        let (kind, size) = (found.kind, found.size);
        let file = allocation::arc(File { found, map: FileMap::default() })?;
        let cache = if kind == Kind::Regular {
            let pages = allocation::arc(Pages { instance: instance.clone(), file: file.clone() })?;
            let backing = instance.files.backing().clone();
            let cache = FileCache::with_representative(size, pages, backing)?;
            shrink::enter(&cache)?;
            Some(cache)
        } else {
            None
        };
        Ok(Self { instance, file, cache })
    }
}

fn error_of_page(error: &crate::Error) -> CacheError {
    match error {
        crate::Error::Device(error) => error_of_device(*error),
        crate::Error::OutOfMemory => CacheError::OutOfMemory,
        other => {
            log::error!("squashfs: {other}");
            CacheError::InputOutput
        }
    }
}

impl Pages {
    /// Fills the first pages of a run: those of one block of the file.
    fn fill_first(&self, run: &mut PageRun) -> Result<(), crate::Error> {
        let system = &self.instance.system;
        let block_bytes = u64::from(system.block_bytes());
        let offset = run.first() * PAGE_SIZE as u64;
        let left = (block_bytes - offset % block_bytes) as usize / PAGE_SIZE;
        let count = left.clamp(1, run.pages());
        let mut bytes = fallible::try_vec_of(0, PAGE_SIZE)?;
        for (frame, position) in run.frames()[..count].iter().zip((offset..).step_by(PAGE_SIZE)) {
            let there = system.read(&self.file.found, &self.file.map, position, &mut bytes)?;
            bytes[there..].fill(0);
            frame.write(0, &bytes);
        }
        run.split(count).complete(Ok(()));
        Ok(())
    }
}

impl FileRepresentative for Pages {
    fn fill(&self, mut pages: PageRun) {
        while pages.pages() > 0 {
            if let Err(error) = self.fill_first(&mut pages) {
                return pages.complete(Err(error_of_page(&error)));
            }
        }
    }

    fn write_back(&self, pages: PageRun) {
        pages.complete(Err(CacheError::ReadOnly));
    }

    fn prepare_write(&self, _page: u64) -> Result<bool, CacheError> {
        Err(CacheError::ReadOnly)
    }
}

impl InodeOperations for Node {
    fn lookup(&self, directory: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        if self.file.found.kind != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        let found = self.instance.system.lookup(&self.file.found, name).map_err(error_of)?;
        self.instance.inode(directory, found)
    }

    fn create(&self, _directory: &Arc<Inode>, _name: &Name, _new: &NewFile<'_>) -> Result<Arc<Inode>> {
        Err(Error::ReadOnly)
    }

    fn rename(&self, _rename: &Rename<'_>) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn read_directory(&self, _directory: &Inode, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let mut next = position;
        let listed = self.instance.system.list(&self.file.found, position - FIRST_POSITION, |entry| {
            let behind = entry.next + FIRST_POSITION;
            let taken = sink.entry(entry.name, entry.number.into(), kind_of(entry.kind), behind);
            if taken {
                next = behind;
            }
            taken
        });
        listed.map_err(error_of)?;
        Ok(next)
    }

    fn link_target(&self, _inode: &Arc<Inode>) -> Result<LinkTarget> {
        let target = self.instance.system.link_target(&self.file.found).map_err(error_of)?;
        Ok(LinkTarget::Text(allocation::arc_bytes(&target)?))
    }

    fn change_attributes(&self, _inode: &Inode, _change: &AttributeChange) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn truncate(&self, _inode: &Inode, _size: u64) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn blocks(&self, _inode: &Inode) -> u64 {
        self.file.found.blocks_512()
    }

    fn extended_attribute(&self, _inode: &Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize> {
        match self.instance.system.attribute(&self.file.found, name, buffer) {
            Err(crate::Error::NotFound) => Err(Error::NoData),
            other => other.map_err(error_of),
        }
    }

    fn set_extended_attribute(
        &self,
        _inode: &Inode,
        _name: &[u8],
        _value: &[u8],
        _how: SetAttribute,
    ) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn remove_extended_attribute(&self, _inode: &Inode, _name: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn list_extended_attributes(
        &self,
        _inode: &Inode,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut stopped = Ok(());
        let listed = self.instance.system.for_each_attribute(&self.file.found, |name| {
            if stopped.is_ok() {
                stopped = each(name);
            }
            Ok(())
        });
        stopped.and(listed.map_err(error_of))
    }

    fn open(&self, inode: &Arc<Inode>, _flags: OpenFlags) -> Result<Option<Arc<dyn FileOperations>>> {
        if self.cache.is_some() { DiskFile::of_inode(inode).map(Some) } else { Ok(None) }
    }

    fn file_operations(&self) -> &dyn FileOperations {
        &NoOperations
    }

    fn home(&self) -> Option<&dyn Home> {
        Some(self)
    }

    fn cache(&self) -> Option<&Arc<FileCache>> {
        self.cache.as_ref()
    }
}

impl Home for Node {
    fn commit(&self, _inode: &Inode, _data_only: bool) -> Result<()> {
        Ok(())
    }

    fn before_write(&self, _file: &OpenFile, _position: u64, _bytes: u64) -> Result<()> {
        Err(Error::ReadOnly)
    }
}
