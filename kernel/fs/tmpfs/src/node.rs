//! Files, directories, symbolic links and special nodes.
//!
//! # Locking
//! A directory's names are under a sleeping lock of their own, so that reading a directory may write to user memory
//! while it holds it shared. The file layer holds the directory's inode lock around all of these calls.
//!
//! # Link counts
//! A directory has 2 and one for each directory in it. A node's count reaches 0 when its last name goes; its bytes go
//! with its last user.

use alloc::sync::Arc;

use memory::buffer::{Sink, Source};
use memory::file_cache::{CacheKind, FileCache};
use memory::per_cpu::Shared;
use sync::SpinLock;
use vfs::access_list::{AccessList, ListKind, NewLists};
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::file::{
    FileFeatures, FileMappingKind, FileOperations, OpenFile, SeekFrom, read_cache, seek_cache, write_cache,
};
use vfs::file_flags::{FileFlags, FileSettings};
use vfs::flags::{AllocateMode, RenameFlags};
use vfs::inode::{
    DirectorySink, Inode, InodeAttributes, InodeOperations, LinkTarget, NewFile, Rename, SetAttribute,
};
use vfs::name::Name;
use vfs::{Error, Result, allocation};

use crate::directory::Names;
use crate::extended::ExtendedAttributes;
use crate::file_system::Limits;
use crate::huge_file::HugeFile;
use crate::memory_file::{Seal, Seals};

/// What a directory's size grows by with each name.
const NAME_BYTES: u64 = 20;
/// Flags that a file may have.
const FLAGS: FileFlags = FileFlags::IMMUTABLE
    .union(FileFlags::APPEND_ONLY)
    .union(FileFlags::NO_DUMP)
    .union(FileFlags::NO_ACCESS_TIME);
/// Those that it has from its directory.
const INHERITED_FLAGS: FileFlags = FileFlags::NO_DUMP.union(FileFlags::NO_ACCESS_TIME);
/// Most names of a file.
const LINKS_MAX: u32 = 1 << 31;

#[cfg_attr(
    debug_assertions,
    allow(clippy::large_enum_variant, reason = "what debug builds keep of a lock makes it so")
)]
pub(crate) enum Contents {
    Directory(sched::RwLock<Names>),
    File { cache: Arc<FileCache>, seals: Seals },
    Huge(HugeFile),
    Link(Arc<[u8]>),
    Special,
}

/// The file system's part of an inode.
pub(crate) struct TmpNode {
    pub(crate) contents: Contents,
    extended: SpinLock<ExtendedAttributes>,
    limits: Shared<Limits>,
}

impl TmpNode {
    /// Counted before: [`Limits::take_inode`].
    pub(crate) fn new(contents: Contents, limits: Shared<Limits>) -> Self {
        Self { contents, extended: SpinLock::new(ExtendedAttributes::new()), limits }
    }

    pub(crate) fn directory(limits: Shared<Limits>) -> Self {
        Self::new(Contents::Directory(sched::RwLock::new(Names::new())), limits)
    }

    pub(crate) fn file(limits: Shared<Limits>, seals: Seals) -> Result<Self> {
        if let Some(files) = &limits.huge {
            return match files.make(seals) {
                Ok(file) => Ok(Self::new(Contents::Huge(file), limits)),
                Err(error) => {
                    limits.release_inode();
                    Err(error)
                }
            };
        }
        let budget = limits.clone().into_budget();
        let cache = allocation::arc(FileCache::with_budget(CacheKind::SharedMemory, budget));
        match cache {
            Ok(cache) => Ok(Self::new(Contents::File { cache, seals }, limits)),
            Err(error) => {
                limits.release_inode();
                Err(error)
            }
        }
    }

    pub(crate) fn names(&self) -> Result<&sched::RwLock<Names>> {
        match &self.contents {
            Contents::Directory(names) => Ok(names),
            _ => Err(Error::NotDirectory),
        }
    }

    /// The names of a directory that nobody else uses.
    pub(crate) fn names_mut(&mut self) -> Option<&mut Names> {
        match &mut self.contents {
            Contents::Directory(names) => Some(names.get_mut()),
            _ => None,
        }
    }

    fn file_cache(&self) -> Result<(&Arc<FileCache>, &Seals)> {
        match &self.contents {
            Contents::File { cache, seals } => Ok((cache, seals)),
            _ => Err(Error::Invalid),
        }
    }

    /// The seals of a regular file, and whether it may be mapped now.
    pub(crate) fn seals(&self) -> Option<(&Seals, &Arc<FileCache>)> {
        match &self.contents {
            Contents::File { cache, seals } | Contents::Huge(HugeFile { cache, seals, .. }) => {
                Some((seals, cache))
            }
            _ => None,
        }
    }

    /// A new inode of the same instance.
    pub(crate) fn make(&self, directory: &Inode, new: &NewFile<'_>) -> Result<Arc<Inode>> {
        if self.limits.huge.is_some() && new.kind == FileKind::SymbolicLink {
            return Err(Error::Invalid);
        }
        let number = self.limits.take_inode()?;
        let limits = self.limits.clone();
        let (node, links, size) = match new.kind {
            FileKind::Directory => (Self::directory(limits), 2, 0),
            FileKind::Regular => (Self::file(limits, Seals::none())?, 1, 0),
            FileKind::SymbolicLink => match allocation::arc_bytes(new.target) {
                Ok(target) => (Self::new(Contents::Link(target), limits), 1, new.target.len() as u64),
                Err(error) => {
                    limits.release_inode();
                    return Err(error);
                }
            },
            _ => (Self::new(Contents::Special, limits), 1, 0),
        };
        let attributes = InodeAttributes {
            number,
            kind: new.kind,
            mode: new.mode,
            user: new.user,
            group: new.group,
            links,
            special: if new.kind.is_device() { new.special } else { DeviceNumber::default() },
            size,
        };
        let inode = Inode::beside(directory, attributes, node)?;
        let inherited = directory.file_flags() & INHERITED_FLAGS;
        if !inherited.is_empty() {
            inode.show_file_flags(inherited);
        }
        if let Some(lists) = new.access_lists {
            inode.operations().begin_with(lists)?;
        }
        Ok(inode)
    }

    /// Stores the access lists of a new file.
    fn begin_with(&self, lists: &NewLists) -> Result<()> {
        for (kind, list) in [(ListKind::Access, &lists.access), (ListKind::Default, &lists.default)] {
            if let Some(list) = list {
                self.store_list(kind, list)?;
            }
        }
        Ok(())
    }

    /// Stores an access list as the attribute that shows it.
    fn store_list(&self, kind: ListKind, list: &AccessList) -> Result<()> {
        let mut value = allocation::filled(0, list.to_value(&mut [])?)?;
        list.to_value(&mut value)?;
        self.extended.lock().set(kind.attribute(), &value, SetAttribute::Any)
    }

    /// Adds a name to a directory; room was reserved.
    fn add_name(&self, directory: &Inode, names: &mut Names, name: &Name, inode: &Arc<Inode>) {
        names.insert(name.clone(), inode.clone());
        directory.set_size(names.len() as u64 * NAME_BYTES);
        if inode.kind == FileKind::Directory {
            directory.add_link();
        }
        directory.touch_modified();
    }

    fn remove_name(directory: &Inode, names: &mut Names, name: &[u8]) -> Result<Arc<Inode>> {
        let inode = names.remove(name).ok_or(Error::NotFound)?;
        directory.set_size(names.len() as u64 * NAME_BYTES);
        if inode.kind == FileKind::Directory {
            directory.remove_link();
        }
        directory.touch_modified();
        Ok(inode)
    }

    fn is_empty_directory(inode: &Inode) -> Result<bool> {
        let node = inode.downcast::<Self>().ok_or(Error::CrossDevice)?;
        Ok(node.names()?.read().len() == 0)
    }

    /// The name `rename.new_name` begins to mean the renamed file.
    fn put_renamed(rename: &Rename<'_>) -> Result<()> {
        let target = rename.new_directory.downcast::<Self>().ok_or(Error::CrossDevice)?;
        let mut names = target.names()?.write();
        match rename.replaced {
            Some(replaced) => {
                let was_directory = replaced.kind == FileKind::Directory;
                names.replace(rename.new_name.as_bytes(), rename.inode.clone()).ok_or(Error::NotFound)?;
                replaced.remove_link();
                if was_directory {
                    replaced.set_links(0);
                }
                // A directory replaces a directory: the parent's count stays.
                replaced.touch_changed();
                rename.new_directory.touch_modified();
            }
            None => target.add_name(rename.new_directory, &mut names, rename.new_name, rename.inode),
        }
        Ok(())
    }

    /// The old name begins to mean the whiteout.
    fn leave(&self, rename: &Rename<'_>, whiteout: Arc<Inode>) -> Result<()> {
        self.names()?.write().replace(rename.old_name, whiteout).ok_or(Error::NotFound)?;
        if rename.inode.kind == FileKind::Directory {
            rename.old_directory.remove_link();
        }
        rename.old_directory.touch_modified();
        Ok(())
    }

    fn exchange(&self, rename: &Rename<'_>, other: &Arc<Inode>) -> Result<()> {
        let target = rename.new_directory.downcast::<Self>().ok_or(Error::CrossDevice)?;
        self.names()?.write().replace(rename.old_name, other.clone()).ok_or(Error::NotFound)?;
        target
            .names()?
            .write()
            .replace(rename.new_name.as_bytes(), rename.inode.clone())
            .ok_or(Error::NotFound)?;
        let moved = |inode: &Inode| inode.kind == FileKind::Directory;
        match (moved(rename.inode), moved(other)) {
            (true, false) => {
                rename.old_directory.remove_link();
                rename.new_directory.add_link();
            }
            (false, true) => {
                rename.new_directory.remove_link();
                rename.old_directory.add_link();
            }
            _ => {}
        }
        for inode in [rename.inode, other] {
            inode.touch_changed();
        }
        rename.old_directory.touch_modified();
        rename.new_directory.touch_modified();
        Ok(())
    }
}

impl Drop for TmpNode {
    fn drop(&mut self) {
        if let Some(names) = self.names_mut() {
            names.dismantle();
        }
        if let (Contents::Huge(file), Some(files)) = (&self.contents, &self.limits.huge) {
            files.forget(file);
        }
        self.limits.release_inode();
    }
}

impl InodeOperations for TmpNode {
    fn lookup(&self, _directory: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        self.names()?.read().find(name).cloned().ok_or(Error::NotFound)
    }

    fn create(&self, directory: &Arc<Inode>, name: &Name, new: &NewFile<'_>) -> Result<Arc<Inode>> {
        let mut names = self.names()?.write();
        names.reserve()?;
        let inode = self.make(directory, new)?;
        self.add_name(directory, &mut names, name, &inode);
        Ok(inode)
    }

    fn create_unnamed(&self, directory: &Arc<Inode>, new: &NewFile<'_>) -> Result<Arc<Inode>> {
        let inode = self.make(directory, new)?;
        inode.set_links(0);
        Ok(inode)
    }

    fn link(&self, directory: &Arc<Inode>, name: &Name, inode: &Arc<Inode>) -> Result<()> {
        if inode.links() >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        let mut names = self.names()?.write();
        names.reserve()?;
        inode.add_link();
        inode.touch_changed();
        self.add_name(directory, &mut names, name, inode);
        Ok(())
    }

    fn unlink(&self, directory: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>) -> Result<()> {
        Self::remove_name(directory, &mut self.names()?.write(), name)?;
        inode.remove_link();
        inode.touch_changed();
        Ok(())
    }

    fn remove_directory(&self, directory: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>) -> Result<()> {
        if !Self::is_empty_directory(inode)? {
            return Err(Error::NotEmpty);
        }
        Self::remove_name(directory, &mut self.names()?.write(), name)?;
        inode.set_links(0);
        inode.touch_changed();
        Ok(())
    }

    fn rename(&self, rename: &Rename<'_>) -> Result<()> {
        if rename.whiteout.is_some() && self.limits.huge.is_some() {
            return Err(Error::Invalid);
        }
        if let Some(other) = rename.replaced.filter(|_| rename.flags.contains(RenameFlags::EXCHANGE)) {
            return self.exchange(rename, other);
        }
        if let Some(replaced) = rename.replaced
            && replaced.kind == FileKind::Directory
            && !Self::is_empty_directory(replaced)?
        {
            return Err(Error::NotEmpty);
        }
        let whiteout = match rename.whiteout {
            Some(new) => Some(self.make(rename.old_directory, new)?),
            None => None,
        };
        if rename.replaced.is_none() {
            let target = rename.new_directory.downcast::<Self>().ok_or(Error::CrossDevice)?;
            target.names()?.write().reserve()?;
        }
        // From here on nothing fails: the new name comes first, so that the file never has none.
        Self::put_renamed(rename)?;
        match whiteout {
            Some(whiteout) => self.leave(rename, whiteout)?,
            None => {
                Self::remove_name(rename.old_directory, &mut self.names()?.write(), rename.old_name)?;
            }
        }
        rename.inode.touch_changed();
        Ok(())
    }

    fn read_directory(&self, _directory: &Inode, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let names = self.names()?.read();
        let mut next = position;
        for (name, inode, after) in names.from(position) {
            if !sink.entry(name.as_bytes(), inode.number, inode.kind, after) {
                return Ok(next);
            }
            next = after;
        }
        Ok(names.end().max(position))
    }

    fn link_target(&self, _inode: &Arc<Inode>) -> Result<LinkTarget> {
        match &self.contents {
            Contents::Link(target) => Ok(LinkTarget::Text(target.clone())),
            _ => Err(Error::Invalid),
        }
    }

    /// They are kept in the inode's head alone.
    fn settings(&self, inode: &Inode) -> Result<FileSettings> {
        match self.contents {
            Contents::Directory(_) | Contents::File { .. } if inode.may_have_flags() => {
                Ok(FileSettings { flags: inode.file_flags(), project: 0, has_more: false })
            }
            _ => Err(Error::NotTerminal),
        }
    }

    fn change_settings(&self, _inode: &Inode, wanted: &FileSettings) -> Result<()> {
        if wanted.has_more || !FLAGS.contains(wanted.flags) { Err(Error::NotSupported) } else { Ok(()) }
    }

    fn truncate(&self, _inode: &Inode, size: u64) -> Result<()> {
        if let Contents::Huge(file) = &self.contents {
            return file.truncate(size);
        }
        let (cache, seals) = self.file_cache()?;
        seals.check_resize(cache.size(), size)?;
        Ok(cache.truncate(size)?)
    }

    fn allocate(&self, inode: &Inode, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        let end = offset + length;
        if let Contents::Huge(file) = &self.contents {
            return file.allocate(inode.size(), mode, offset, end);
        }
        let (cache, seals) = self.file_cache()?;
        if mode.intersects(AllocateMode::MOVES) {
            return Err(Error::NotSupported);
        }
        if mode.intersects(AllocateMode::PUNCH_HOLE | AllocateMode::ZERO_RANGE) {
            seals.check(Seal::WRITE | Seal::FUTURE_WRITE)?;
        }
        if !mode.contains(AllocateMode::KEEP_SIZE) {
            seals.check_resize(inode.size(), inode.size().max(end))?;
        }
        if mode.intersects(AllocateMode::PUNCH_HOLE | AllocateMode::ZERO_RANGE) {
            cache.punch_hole(offset..end.min(cache.size()).max(offset))?;
        }
        if !mode.contains(AllocateMode::PUNCH_HOLE) {
            cache.allocate(offset..end)?;
        }
        Ok(())
    }

    fn blocks(&self, _inode: &Inode) -> u64 {
        match &self.contents {
            Contents::File { cache, .. } | Contents::Huge(HugeFile { cache, .. }) => {
                cache.resident_pages() * 8
            }
            _ => 0,
        }
    }

    fn extended_attribute(&self, _inode: &Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize> {
        self.extended.lock().get(name, buffer)
    }

    fn set_extended_attribute(
        &self,
        _inode: &Inode,
        name: &[u8],
        value: &[u8],
        how: SetAttribute,
    ) -> Result<()> {
        self.extended.lock().set(name, value, how)
    }

    fn remove_extended_attribute(&self, _inode: &Inode, name: &[u8]) -> Result<()> {
        self.extended.lock().remove(name)
    }

    fn access_list(&self, _inode: &Inode, kind: ListKind) -> Result<Option<AccessList>> {
        let extended = self.extended.lock();
        extended.value(kind.attribute()).map_or(Ok(None), AccessList::from_value)
    }

    fn set_access_list(
        &self,
        _inode: &Inode,
        kind: ListKind,
        list: Option<&AccessList>,
        _mode: Option<u32>,
    ) -> Result<()> {
        match list {
            Some(list) => self.store_list(kind, list),
            None => match self.extended.lock().remove(kind.attribute()) {
                Ok(()) | Err(Error::NoData) => Ok(()),
                Err(error) => Err(error),
            },
        }
    }

    fn list_extended_attributes(
        &self,
        _inode: &Inode,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let extended = self.extended.lock();
        let mut names = extended.names();
        names.try_for_each(each)
    }

    fn file_operations(&self) -> &dyn FileOperations {
        match &self.contents {
            Contents::Huge(file) => file,
            _ => self,
        }
    }

    fn cache(&self) -> Option<&Arc<FileCache>> {
        self.file_cache().ok().map(|(cache, _)| cache)
    }
}

impl FileOperations for TmpNode {
    fn features(&self) -> FileFeatures {
        match &self.contents {
            Contents::File { .. } => FileFeatures::SEEKABLE | FileFeatures::REGULAR,
            _ => FileFeatures::SEEKABLE,
        }
    }

    fn read(&self, file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        read_cache(file, self.file_cache()?.0, position, sink)
    }

    fn write(&self, file: &OpenFile, position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let (cache, seals) = self.file_cache()?;
        if seals.any() {
            seals.check(Seal::WRITE | Seal::FUTURE_WRITE)?;
            seals.check_resize(
                cache.size(),
                position.saturating_add(source.remaining() as u64).max(cache.size()),
            )?;
        }
        write_cache(file, cache, position, source)
    }

    fn seek(&self, file: &OpenFile, current: u64, target: SeekFrom) -> Result<u64> {
        match &self.contents {
            Contents::File { cache, .. } => seek_cache(cache, current, target),
            _ => match target {
                SeekFrom::Start(_) | SeekFrom::Current(_) => {
                    let (base, offset) = match target {
                        SeekFrom::Current(offset) => (current as i64, offset),
                        SeekFrom::Start(offset) => (0, offset),
                        _ => return Err(Error::Invalid),
                    };
                    let position = base.checked_add(offset).ok_or(Error::Overflow)?;
                    u64::try_from(position).map_err(|_| Error::Invalid)
                }
                SeekFrom::End(0) => Ok(file.inode().size()),
                _ => Err(Error::Invalid),
            },
        }
    }

    fn mapping(&self, _file: &OpenFile) -> Result<FileMappingKind> {
        match &self.contents {
            Contents::File { cache, .. } => Ok(FileMappingKind::Pages(cache.clone())),
            _ => Err(Error::NoDevice),
        }
    }

    fn sync(&self, _file: &OpenFile, _data_only: bool) -> Result<()> {
        Ok(())
    }
}
