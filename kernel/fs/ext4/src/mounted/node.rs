//! An inode in memory, as the file layer uses it.

use alloc::sync::Arc;

use memory::file_cache::FileCache;
use vfs::disk::{DiskFile, Home, shrink};
use vfs::file::{FileOperations, NoOperations};
use vfs::flags::OpenFlags;
use vfs::inode::{DirectorySink, FIRST_POSITION, Inode, InodeOperations, LinkTarget};
use vfs::{Error, FileKind, Result, allocation};

use super::instance::{Instance, error_of};
use super::pages::Pages;
use crate::Kind;

/// See the theory of this file.
pub(super) struct Node {
    instance: Arc<Instance>,
    inode: crate::Inode,
    cache: Option<Arc<FileCache>>,
}

impl Node {
    pub(super) fn new(instance: Arc<Instance>, inode: crate::Inode) -> Result<Self> {
        let cache = if inode.kind == Kind::Regular {
            let pages = allocation::arc(Pages { instance: instance.clone(), inode: inode.clone() })?;
            let backing = instance.files.backing().clone();
            let cache = FileCache::with_representative(inode.size, pages, backing)?;
            shrink::enter(&cache)?;
            Some(cache)
        } else {
            None
        };
        Ok(Self { instance, inode, cache })
    }
}

impl InodeOperations for Node {
    fn lookup(&self, directory: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        let found = self.instance.system.lookup(&self.inode, name).map_err(error_of)?;
        self.instance.inode(directory, found)
    }

    fn read_directory(&self, _directory: &Inode, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let system = &self.instance.system;
        let mut last = position;
        let next = system.list(&self.inode, position - FIRST_POSITION, |entry, behind| {
            let behind = behind + FIRST_POSITION;
            if matches!(entry.name, b"." | b"..") {
                last = behind;
                return true;
            }
            let kind = entry.kind.or_else(|| system.inode(entry.inode).ok().map(|inode| inode.kind));
            let kind = kind.map_or(FileKind::Regular, super::instance::kind_of);
            let taken = sink.entry(entry.name, entry.inode.into(), kind, behind);
            if taken {
                last = behind;
            }
            taken
        });
        Ok(last.max(next.map_err(error_of)? + FIRST_POSITION).max(position))
    }

    fn link_target(&self, _inode: &Arc<Inode>) -> Result<LinkTarget> {
        let target = self.instance.system.link_target(&self.inode).map_err(error_of)?;
        Ok(LinkTarget::Text(allocation::arc_bytes(&target)?))
    }

    fn truncate(&self, _inode: &Inode, _size: u64) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn blocks(&self, _inode: &Inode) -> u64 {
        self.inode.blocks
    }

    fn extended_attribute(&self, _inode: &Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize> {
        self.instance.system.attribute(&self.inode, name, buffer).map_err(|error| match error {
            crate::Error::NotFound => Error::NoData,
            other => error_of(other),
        })
    }

    fn list_extended_attributes(
        &self,
        _inode: &Inode,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut stopped = Ok(());
        let listed = self.instance.system.for_each_attribute(&self.inode, |name| {
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
}
