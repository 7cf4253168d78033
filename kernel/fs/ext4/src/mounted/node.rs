//! An inode in memory, as the file layer uses it.
//!
//! What the disk says of it is read from the cache of metadata each time: that is the newest, and nothing is kept twice.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use block::SECTOR_BYTES;
use machine::address::UserAddr;
use memory::file_cache::FileCache;
use vfs::access_list::{AccessList, ListKind};
use vfs::disk::{DiskFile, Home, shrink};
use vfs::file::{FileOperations, NoOperations, OpenFile};
use vfs::file_flags::FileSettings;
use vfs::flags::{AllocateMode, OpenFlags};
use vfs::inode::{
    DirectorySink, FIRST_POSITION, Inode, InodeOperations, LinkTarget, NewFile, Rename, SetAttribute,
};
use vfs::name::Name;
use vfs::{AttributeChange, Error, FileKind, Result, SeekFrom, allocation};

use super::instance::{Instance, error_of};
use super::pages::{File, Pages};
use super::trim::FITRIM;
use crate::Kind;

/// See the theory of this file.
pub(super) struct Node {
    pub(super) instance: Arc<Instance>,
    pub(super) file: Arc<File>,
    pub(super) cache: Option<Arc<FileCache>>,
    /// Its last name went: who drops it has it deleted.
    pub(super) nameless: AtomicBool,
    /// A directory's parent, as far as it was looked up; 0: it was not.
    pub(super) parent: AtomicU32,
}

impl Node {
    /// `pages`: those that a former node of the file left dirty.
    pub(super) fn new(
        instance: Arc<Instance>,
        inode: &crate::Inode,
        pages: Option<(Arc<File>, Arc<FileCache>)>,
    ) -> Result<Self> {
        let (nameless, parent) = (AtomicBool::new(false), AtomicU32::new(0));
        if let Some((file, cache)) = pages {
            return Ok(Self { instance, file, cache: Some(cache), nameless, parent });
        }
        let file = allocation::arc(File::new(inode.number))?;
        let cache = if inode.kind == Kind::Regular {
            let pages = allocation::arc(Pages { instance: instance.clone(), file: file.clone() })?;
            let backing = instance.files.backing().clone();
            let cache = FileCache::with_representative(inode.size, pages, backing)?;
            shrink::enter(&cache)?;
            Some(cache)
        } else {
            None
        };
        Ok(Self { instance, file, cache, nameless, parent })
    }

    /// Sectors, with those for the file's promised blocks.
    fn blocks_of(&self, stored: &crate::Inode) -> u64 {
        let sectors_per_block = (self.instance.system().block_bytes() / SECTOR_BYTES) as u64;
        stored.blocks + self.file.promised() * sectors_per_block
    }

    /// What the disk says, or will. Reads it where that is not in memory.
    pub(super) fn stored(&self) -> Result<crate::Inode> {
        self.instance.system().inode(self.file.number).map_err(error_of)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if *self.nameless.get_mut() {
            // Relaxed: the lock of the list that the file joins orders it for whoever deletes it.
            self.file.gone.store(true, Relaxed);
            self.instance.note_gone(&self.file);
        }
    }
}

/// Access lists have calls of their own; there is nothing else of that kind.
fn check_attribute(name: &[u8]) -> Result<()> {
    if name.starts_with(b"system.") { Err(Error::NotSupported) } else { Ok(()) }
}

fn error_of_attribute(error: crate::Error) -> Error {
    match error {
        crate::Error::NotFound => Error::NoData,
        other => error_of(other),
    }
}

impl InodeOperations for Node {
    fn lookup(&self, directory: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        let cleanings = self.instance.cleanings();
        let found = self.instance.system().lookup(&self.stored()?, name).map_err(error_of)?;
        let inode = self.instance.inode(directory, found, cleanings)?;
        if inode.kind == FileKind::Directory {
            self.adopt(&inode)?;
        }
        Ok(inode)
    }

    fn create(&self, directory: &Arc<Inode>, name: &Name, new: &NewFile<'_>) -> Result<Arc<Inode>> {
        self.create_named(directory, name, new)
    }

    fn create_unnamed(&self, directory: &Arc<Inode>, new: &NewFile<'_>) -> Result<Arc<Inode>> {
        self.create_nameless(directory, new)
    }

    fn link(&self, directory: &Arc<Inode>, name: &Name, inode: &Arc<Inode>) -> Result<()> {
        self.add_name(directory, name, inode)
    }

    fn unlink(&self, directory: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>) -> Result<()> {
        self.remove_name(directory, name, inode)
    }

    fn remove_directory(&self, directory: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>) -> Result<()> {
        self.remove_name(directory, name, inode)
    }

    fn rename(&self, rename: &Rename<'_>) -> Result<()> {
        self.move_name(rename)
    }

    fn read_directory(&self, _directory: &Inode, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let system = self.instance.system();
        let mut last = position;
        let next = system.list(&self.stored()?, position - FIRST_POSITION, |entry, behind| {
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
        let target = self.instance.system().link_target(&self.stored()?).map_err(error_of)?;
        Ok(LinkTarget::Text(allocation::arc_bytes(&target)?))
    }

    fn change_attributes(&self, inode: &Inode, change: &AttributeChange) -> Result<()> {
        self.store_attributes(inode, change)
    }

    fn settings(&self, inode: &Inode) -> Result<FileSettings> {
        self.flags_and_project(inode.kind)
    }

    fn change_settings(&self, inode: &Inode, wanted: &FileSettings) -> Result<()> {
        self.set_flags_and_project(inode, wanted)
    }

    fn generation(&self) -> Result<u32> {
        Ok(self.stored()?.generation)
    }

    fn truncate(&self, inode: &Inode, size: u64) -> Result<()> {
        Self::check_writable(inode)?;
        self.set_size(size)
    }

    fn allocate(&self, inode: &Inode, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        if mode.intersects(AllocateMode::MOVES) {
            return self.move_blocks(inode, mode, offset, length);
        }
        self.change_blocks(mode, offset, length)
    }

    /// With those that its dirty pages will get: programs such as `tar` take a file without any for one large hole.
    fn blocks(&self, _inode: &Inode) -> u64 {
        self.stored().map_or(0, |stored| self.blocks_of(&stored))
    }

    fn blocks_at_hand(&self, inode: &Inode) -> Option<u64> {
        let stored = self.instance.system().inode_at_hand(self.file.number)?;
        self.refresh(inode);
        Some(self.blocks_of(&stored))
    }

    fn extended_attribute(&self, _inode: &Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize> {
        check_attribute(name)?;
        self.instance.system().attribute(&self.stored()?, name, buffer).map_err(error_of_attribute)
    }

    fn access_list(&self, _inode: &Inode, kind: ListKind) -> Result<Option<AccessList>> {
        self.list(kind)
    }

    fn set_access_list(
        &self,
        inode: &Inode,
        kind: ListKind,
        list: Option<&AccessList>,
        mode: Option<u32>,
    ) -> Result<()> {
        self.store_list(inode, kind, list, mode)
    }

    fn set_extended_attribute(
        &self,
        inode: &Inode,
        name: &[u8],
        value: &[u8],
        how: SetAttribute,
    ) -> Result<()> {
        check_attribute(name)?;
        let how = match how {
            SetAttribute::Any => crate::SetAttribute::Any,
            SetAttribute::Create => crate::SetAttribute::Create,
            SetAttribute::Replace => crate::SetAttribute::Replace,
        };
        let now = super::instance::now();
        let writer = self.instance.writer()?;
        let privileged = self.instance.is_privileged();
        let stored = self
            .instance
            .retry_for_space(|| writer.set_attribute(self.file.number, name, value, how, privileged, now));
        let stored = stored.map_err(error_of_attribute)?;
        inode.changed().set(super::instance::stamp(stored.changed));
        Ok(())
    }

    fn remove_extended_attribute(&self, inode: &Inode, name: &[u8]) -> Result<()> {
        check_attribute(name)?;
        let now = super::instance::now();
        let stored = self.instance.writer()?.remove_attribute(self.file.number, name, now);
        let stored = stored.map_err(error_of_attribute)?;
        inode.changed().set(super::instance::stamp(stored.changed));
        Ok(())
    }

    fn list_extended_attributes(
        &self,
        _inode: &Inode,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut stopped = Ok(());
        let listed = self.instance.system().for_each_attribute(&self.stored()?, |name| {
            let shown = check_attribute(name).is_ok() || ListKind::of_attribute(name).is_some();
            if stopped.is_ok() && shown {
                stopped = each(name);
            }
            Ok(())
        });
        stopped.and(listed.map_err(error_of))
    }

    fn refresh(&self, inode: &Inode) {
        self.file.show_written(inode);
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
    fn before_write(&self, file: &OpenFile, _position: u64, _bytes: u64) -> Result<()> {
        Self::check_writable(file.inode())
    }

    /// The time is the same in both places, so that nobody sees another one when the inode comes back to memory.
    fn after_write(&self, file: &OpenFile) {
        let now = self.file.note_written();
        file.inode().modified().set(now);
        file.inode().changed().set(now);
    }

    fn seek(&self, _file: &OpenFile, _current: u64, target: SeekFrom) -> Option<Result<u64>> {
        match target {
            SeekFrom::Data(offset) => Some(self.find_data(offset, true)),
            SeekFrom::Hole(offset) => Some(self.find_data(offset, false)),
            _ => None,
        }
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        if command == FITRIM { self.instance.trim(argument) } else { Err(Error::NotTerminal) }
    }

    fn commit(&self, inode: &Inode, data_only: bool) -> Result<()> {
        let Ok(writer) = self.instance.writer() else { return Ok(()) };
        if !data_only {
            // A change of attributes is on the disk before it is in memory: not in between.
            let _unchanged = inode.lock().read();
            self.store_times(inode)?;
        }
        match inode.kind {
            FileKind::Regular => writer.commit_file(self.file.number, data_only),
            _ => writer.commit(),
        }
        .map_err(error_of)
    }
}
