//! An inode in memory, as the file layer uses it.
//!
//! # What is known, and for how long
//! `cache=loose`: what was found stays true, since nobody else changes the files. `cache=none`: names are walked to and attributes fetched whenever somebody asks;
//! only those of directories are believed for [`FRESH_NS`], so that each step of a path does not ask twice.
//!
//! # Locking
//! The file layer's, and those of [`File`]. Attributes are shown as they come: the last answer counts.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use memory::file_cache::FileCache;
use sync::Once;
use vfs::attributes::MODE_MASK;
use vfs::disk::{DiskFile, Home, shrink};
use vfs::file::{FileOperations, NoOperations, OpenFile};
use vfs::flags::{AllocateMode, OpenFlags};
use vfs::inode::{DirectorySink, Inode, InodeOperations, LinkTarget, NewFile, Rename, SetAttribute};
use vfs::name::Name;
use vfs::{AttributeChange, Error, FileKind, Result, allocation};

use super::direct::DirectFile;
use super::file::{File, walk};
use super::instance::{Instance, attributes, stamp};
use super::listing::{self, OpenDirectory};
use super::pages::Pages;
use crate::wire::{Attributes, Identity, Request};

/// How long the attributes of a directory are believed at least.
const FRESH_NS: u64 = 1_000_000;

/// See the theory of this file.
pub(super) struct Node {
    pub(super) instance: Arc<Instance>,
    pub(super) file: Arc<File>,
    pub(super) cache: Option<Arc<FileCache>>,
    /// 512-byte blocks, as the server said.
    blocks: AtomicU64,
    /// Until when attributes are believed.
    fresh_until_ns: AtomicU64,
    /// Permission bits, as the server has them.
    stored_mode: AtomicU32,
    /// Where a symbolic link leads to.
    target: Once<Arc<[u8]>>,
}

/// The part of an inode that is this file system's.
///
/// # Errors
/// `EXDEV` for inodes of others.
pub(super) fn node_of(inode: &Inode) -> Result<&Node> {
    inode.downcast::<Node>().ok_or(Error::CrossDevice)
}

impl Node {
    pub(super) fn new(instance: &Arc<Instance>, file: Arc<File>, kind: FileKind, size: u64) -> Result<Self> {
        let cache = if kind == FileKind::Regular {
            let pages = allocation::arc(Pages { instance: instance.clone(), file: file.clone() })?;
            let cache = FileCache::with_representative(size, pages, instance.backing.clone())?;
            shrink::enter(&cache)?;
            Some(cache)
        } else {
            None
        };
        Ok(Self::with(instance, file, cache))
    }

    /// Of a file whose pages are still there.
    pub(super) fn again(instance: &Arc<Instance>, file: Arc<File>, cache: Arc<FileCache>) -> Self {
        Self::with(instance, file, Some(cache))
    }

    fn with(instance: &Arc<Instance>, file: Arc<File>, cache: Option<Arc<FileCache>>) -> Self {
        Self {
            instance: instance.clone(),
            file,
            cache,
            blocks: AtomicU64::new(0),
            fresh_until_ns: AtomicU64::new(0),
            stored_mode: AtomicU32::new(0),
            target: Once::new(),
        }
    }

    /// Shows what the server says of the file.
    pub(super) fn show(&self, inode: &Inode, found: &Attributes) {
        let is_ours = self.instance.is_loose() && self.is_in_use();
        inode.set_identity(vfs::inode::Identity { mode: found.mode, user: found.user, group: found.group });
        self.note_mode(found.mode);
        inode.set_links(u32::try_from(found.links).unwrap_or(u32::MAX));
        inode.accessed().set(stamp(found.accessed));
        self.blocks.store(found.blocks, Relaxed);
        if is_ours {
            return;
        }
        let modified = stamp(found.modified);
        let is_changed = modified != inode.modified().get() || found.size != inode.size();
        inode.modified().set(modified);
        inode.changed().set(stamp(found.changed));
        if let Some(cache) = &self.cache {
            if is_changed && cache.dirty_pages() == 0 {
                cache.drop_clean(0, u64::MAX, usize::MAX);
            }
            if cache.size() != found.size {
                // What mappings have stored there goes to the server first.
                let _ = self.write_pages();
                cache.adopt_size(found.size);
            }
        }
        inode.set_size(found.size);
        if inode.kind == FileKind::Directory {
            self.fresh_until_ns.store(machine::time::now_ns() + FRESH_NS, Relaxed);
        }
    }

    /// Whether what is here may be newer than what the server has.
    fn is_in_use(&self) -> bool {
        let has_news = |cache: &Arc<FileCache>| cache.dirty_pages() > 0 || cache.pages_under_write_back() > 0;
        self.file.openers.load(Relaxed) > 0 || self.cache.as_ref().is_some_and(has_news)
    }

    /// Asks the server for the attributes, unless nobody has them but us.
    pub(super) fn fetch(&self, inode: &Inode) -> Result<()> {
        if self.file.is_nameless() {
            return Ok(());
        }
        let found = self.file.by_name(|path| attributes(&self.instance.client, path))?;
        self.show(inode, &found);
        Ok(())
    }

    /// The server has these permission bits.
    pub(super) fn note_mode(&self, mode: u32) {
        self.stored_mode.store(mode & MODE_MASK, Relaxed);
    }

    /// Whether the server has these permission bits.
    pub(super) fn mode_is_stored(&self, mode: u32) -> bool {
        self.stored_mode.load(Relaxed) == mode & MODE_MASK
    }

    /// What was known of a directory has changed.
    pub(super) fn stale(&self) {
        self.fresh_until_ns.store(0, Relaxed);
    }

    /// Dirty pages (of mappings, where calls go past them) are written.
    pub(super) fn write_pages(&self) -> Result<()> {
        match &self.cache {
            Some(cache) if cache.dirty_pages() > 0 || cache.pages_under_write_back() > 0 => {
                Ok(cache.write_back(0, u64::MAX)?)
            }
            _ => Ok(()),
        }
    }

    /// An open file of it is closed.
    pub(super) fn closed(&self) {
        let is_last = self.file.openers.fetch_sub(1, Relaxed) == 1;
        let is_needed = |cache: &Arc<FileCache>| {
            cache.is_mapped() || cache.dirty_pages() > 0 || cache.pages_under_write_back() > 0
        };
        if is_last && !self.cache.as_ref().is_some_and(is_needed) {
            self.file.close();
        }
    }

    fn open_regular(&self, inode: &Arc<Inode>, flags: OpenFlags) -> Result<Arc<dyn FileOperations>> {
        if !self.instance.is_loose() {
            return DirectFile::open(self, flags);
        }
        // The way is opened now, so that a refusal is told now, and the file can lose its name.
        let way = if flags.writable() { self.file.writer() } else { self.file.reader() };
        way?;
        let open = DiskFile::of_inode(inode)?;
        self.file.openers.fetch_add(1, Relaxed);
        Ok(open)
    }

    fn is_still(&self, name: &[u8], child: &Inode) -> Result<bool> {
        let node = node_of(child)?;
        let (fid, found) = self.file.by_name(|path| walk(&self.instance.client, path, Some(name)))?;
        let is_directory = child.kind == FileKind::Directory;
        // Numbers of files that went are used again soon.
        let is_same = found.is_some_and(|found| {
            found.path == node.file.number
                && (found.kind & Identity::DIRECTORY != 0) == is_directory
                && (found.kind & Identity::SYMBOLIC_LINK != 0) == (child.kind == FileKind::SymbolicLink)
                && !node.file.is_nameless()
        });
        if is_same {
            // A directory has one name, however many links it counts.
            node.file.found_by(fid, if is_directory { 1 } else { child.links() })?;
        }
        Ok(is_same)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.file.is_nameless() {
            self.file.gone.store(true, Relaxed);
        }
    }
}

impl InodeOperations for Node {
    fn lookup(&self, directory: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        let client = &self.instance.client;
        let (fid, _) = self.file.by_name(|path| walk(client, path, Some(name)))?;
        let found = attributes(client, &fid)?;
        self.instance.inode(directory, fid, &found)
    }

    fn still_valid(&self, _directory: &Inode, name: &[u8], child: &Inode) -> bool {
        match self.is_still(name, child) {
            Ok(is_still) => is_still,
            Err(Error::NotFound | Error::Stale | Error::NotDirectory) => false,
            // Who asked was killed, or could not ask: what is mounted on the entry must not go for that.
            Err(_) => true,
        }
    }

    fn create(&self, directory: &Arc<Inode>, name: &Name, new: &NewFile<'_>) -> Result<Arc<Inode>> {
        self.create_named(directory, name, new)
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
        let open = listing::open(&self.file)?;
        listing::list(&self.instance.client, &open, position, sink)
    }

    fn link_target(&self, _inode: &Arc<Inode>) -> Result<LinkTarget> {
        if let Some(target) = self.target.get() {
            return Ok(LinkTarget::Text(target.clone()));
        }
        let target = self.file.by_name(|path| self.instance.client.read_link(path.number()))?;
        if self.instance.is_loose() {
            self.target.call_once(|| target.clone());
        }
        Ok(LinkTarget::Text(target))
    }

    fn refresh(&self, inode: &Inode) {
        let is_fresh = || {
            inode.kind == FileKind::Directory && machine::time::now_ns() < self.fresh_until_ns.load(Relaxed)
        };
        if !self.instance.is_loose() && !is_fresh() {
            // Without an answer what was known is shown.
            let _ = self.fetch(inode);
        }
    }

    fn change_attributes(&self, inode: &Inode, change: &AttributeChange) -> Result<()> {
        self.store_attributes(inode, change)
    }

    fn truncate(&self, inode: &Inode, size: u64) -> Result<()> {
        self.set_size(inode, size)
    }

    fn allocate(&self, _inode: &Inode, _mode: AllocateMode, _offset: u64, _length: u64) -> Result<()> {
        Err(Error::NotSupported)
    }

    fn blocks(&self, _inode: &Inode) -> u64 {
        self.blocks.load(Relaxed)
    }

    fn extended_attribute(&self, _inode: &Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize> {
        self.read_extended(name, buffer)
    }

    fn set_extended_attribute(
        &self,
        _inode: &Inode,
        name: &[u8],
        value: &[u8],
        how: SetAttribute,
    ) -> Result<()> {
        self.write_extended(name, value, how)
    }

    fn remove_extended_attribute(&self, _inode: &Inode, name: &[u8]) -> Result<()> {
        self.remove_extended(name)
    }

    fn list_extended_attributes(
        &self,
        _inode: &Inode,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.list_extended(each)
    }

    fn open(&self, inode: &Arc<Inode>, flags: OpenFlags) -> Result<Option<Arc<dyn FileOperations>>> {
        match inode.kind {
            FileKind::Regular => self.open_regular(inode, flags).map(Some),
            FileKind::Directory => OpenDirectory::open(self).map(Some),
            _ => Ok(None),
        }
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
    fn commit(&self, inode: &Inode, data_only: bool) -> Result<()> {
        if !data_only {
            self.store_mode(inode)?;
        }
        let way = self.file.writer().or_else(|_| self.file.reader())?;
        self.instance.client.call(&Request::Sync { fid: way.fid.number(), data_only })
    }

    fn direct_bytes(&self) -> usize {
        1
    }

    fn flush(&self, file: &OpenFile) -> Result<()> {
        if !file.flags().writable() || self.file.is_nameless() {
            return Ok(());
        }
        self.write_pages()?;
        self.store_mode(file.inode())
    }

    fn release(&self, _file: &OpenFile) {
        self.closed();
    }
}
