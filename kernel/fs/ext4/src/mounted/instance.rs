//! One mounted file system, and the inodes of it that are in memory.
//!
//! An inode is found by its number as long as somebody has it, so that all names of a file lead to the same pages. The table holds weak references; it is cleaned when it
//! has doubled.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::any::Any;
use core::fmt;
use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use block::registry::{BlockDevice, Holder};
use memory::file_cache::FileCache;
use sched::WaitQueue;
use sync::{Once, SpinLock};
use vfs::attributes::FileSystemStatus;
use vfs::credentials::{Capabilities, caller_is};
use vfs::disk::DeviceFiles;
use vfs::file_flags::FileFlags;
use vfs::inode::{Inode, InodeAttributes};
use vfs::superblock::{Superblock, SuperblockOperations};
use vfs::{DeviceNumber, Error, FileKind, Result, Timestamp, allocation};

use super::access_list;
use super::gone::Gone;
use super::node::Node;
use super::options::Options;
use super::pages::File;
use super::transfers::Transfers;
use crate::cache::BlockMap;
use crate::{FileSystem, Kind, NAME_MAX, Time, Writer};

/// Inodes in the table before those that have gone are looked for.
const CLEAN_FROM: usize = 256;

/// See the theory of this file.
pub(super) struct Instance {
    /// What is read until it is written for the first time.
    reader: Option<Box<FileSystem>>,
    writer: Once<Box<Writer>>,
    pub(super) device: Arc<BlockDevice>,
    options: SpinLock<Options>,
    pub(super) files: Arc<DeviceFiles>,
    inodes: sched::Mutex<Known>,
    /// How often entries of inodes that have left memory were taken out of `inodes`; under its lock.
    cleanings: AtomicU64,
    pub(super) gone: Gone,
    pub(super) transfers: Arc<Transfers>,
    /// It was written back for the last time, or is being.
    pub(super) ended: AtomicBool,
    /// Whose claim of the device the thread is to release when it has ended it.
    pub(super) left: SpinLock<Option<Holder>>,
    pub(super) wait: WaitQueue,
}

struct Known {
    table: BlockMap<Entry>,
    clean_at: usize,
}

/// An inode, and its pages: as long as some are dirty they are there without the inode, and whoever looks the file up again must get them.
struct Entry {
    inode: Weak<Inode>,
    pages: Option<(Weak<File>, Weak<FileCache>)>,
}

impl Entry {
    fn is_used(&self) -> bool {
        self.inode.strong_count() > 0
            || self.pages.as_ref().is_some_and(|(_, cache)| cache.strong_count() > 0)
    }

    /// Pages that outlived their inode.
    fn pages(&self) -> Option<(Arc<File>, Arc<FileCache>)> {
        let (file, cache) = self.pages.as_ref()?;
        let (file, cache) = (file.upgrade()?, cache.upgrade()?);
        (!file.gone.load(Relaxed)).then_some((file, cache))
    }
}

pub(super) fn error_of(error: crate::Error) -> Error {
    match error {
        crate::Error::Device(error) => error.into(),
        crate::Error::Corrupted(..) => {
            log::error!("ext4: {error}");
            Error::Io
        }
        crate::Error::NotExt | crate::Error::UnknownFeature(..) => Error::Invalid,
        crate::Error::NotFound => Error::NotFound,
        crate::Error::NotDirectory => Error::NotDirectory,
        crate::Error::Range => Error::Range,
        crate::Error::OutOfMemory => Error::OutOfMemory,
        crate::Error::WrongKind => Error::Invalid,
        crate::Error::NoSpace => Error::NoSpace,
        crate::Error::Exists => Error::Exists,
        crate::Error::NotEmpty => Error::NotEmpty,
        crate::Error::IsDirectory => Error::IsDirectory,
        crate::Error::TooManyLinks => Error::TooManyLinks,
        crate::Error::TooLarge => Error::FileTooLarge,
        crate::Error::NameTooLong => Error::NameTooLong,
        crate::Error::ReadOnly => Error::ReadOnly,
        crate::Error::Immutable => Error::NotPermitted,
        crate::Error::OtherProject => Error::CrossDevice,
        crate::Error::NotSupported => Error::NotSupported,
    }
}

pub(super) fn kind_of(kind: Kind) -> FileKind {
    match kind {
        Kind::Regular => FileKind::Regular,
        Kind::Directory => FileKind::Directory,
        Kind::Link => FileKind::SymbolicLink,
        Kind::CharacterDevice => FileKind::CharacterDevice,
        Kind::BlockDevice => FileKind::BlockDevice,
        Kind::Fifo => FileKind::Fifo,
        Kind::Socket => FileKind::Socket,
    }
}

/// The time, as inodes have it.
pub(super) fn now() -> Time {
    time_of(Timestamp::coarse())
}

pub(super) fn time_of(stamp: Timestamp) -> Time {
    Time { seconds: stamp.seconds, nanoseconds: stamp.nanoseconds }
}

pub(super) fn stamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

/// Why a mount is refused.
fn refused(device: &BlockDevice, error: crate::Error) -> Error {
    if error != crate::Error::NotExt {
        log::warn!("ext4 on {}: {error}", device.name());
    }
    error_of(error)
}

/// What is on a device, to be changed.
fn mount_writer(device: &BlockDevice) -> Result<Box<Writer>> {
    let writer = Writer::mount(device.volume(), b"", now()).map_err(|error| match error {
        // It may be mounted to be read, or that is refused then.
        crate::Error::UnknownFeature(..) => {
            refused(device, error);
            Error::ReadOnly
        }
        error => refused(device, error),
    })?;
    allocation::boxed(writer)
}

impl Instance {
    /// What is on a device.
    pub(super) fn open(device: &Arc<BlockDevice>, read_only: bool, options: &[u8]) -> Result<Arc<Self>> {
        let files = DeviceFiles::of(device)?;
        // What programs wrote to the device must be there when it is read past their pages.
        files.empty()?;
        let writer = Once::new();
        let mut reader = None;
        if read_only {
            let system = FileSystem::mount(device.volume()).map_err(|error| refused(device, error))?;
            reader = Some(allocation::boxed(system)?);
        } else {
            let mounted = mount_writer(device)?;
            writer.call_once(|| mounted);
        }
        let system = match (writer.get(), &reader) {
            (Some(writer), _) => Writer::system(writer),
            (None, Some(system)) => system,
            (None, None) => return Err(Error::Io),
        };
        let (user, group) = system.reserved_for();
        let options = Options::new(user, group).parse(options, device)?;
        let known = Known { table: BlockMap::default(), clean_at: CLEAN_FROM };
        let inodes = sched::Mutex::named("inodes of ext4 in memory", known);
        allocation::arc(Self {
            reader,
            writer,
            device: device.clone(),
            options: SpinLock::named("mount options of ext4", options),
            files,
            inodes,
            cleanings: AtomicU64::new(0),
            gone: Gone::new(),
            transfers: allocation::arc(Transfers::new())?,
            ended: AtomicBool::new(false),
            left: SpinLock::named("end of a mount of ext4", None),
            wait: WaitQueue::new(),
        })
    }

    /// What its mount chose.
    pub(super) fn options(&self) -> Options {
        *self.options.lock()
    }

    /// Whether the caller may use the blocks that are kept for the superuser: who has the capability, and those that the superblock or the
    /// mount names.
    pub(super) fn is_privileged(&self) -> bool {
        let options = self.options();
        caller_is(|caller| {
            caller.has(Capabilities::SYS_RESOURCE)
                || caller.user == options.reserved_user
                || (options.reserved_group != 0 && caller.in_group(options.reserved_group))
        })
    }

    /// What is read.
    pub(super) fn system(&self) -> &FileSystem {
        match (self.writer.get(), &self.reader) {
            (Some(writer), _) => writer.system(),
            (None, Some(system)) => system,
            (None, None) => unreachable!("one of them is there from the beginning"),
        }
    }

    /// What is written.
    ///
    /// # Errors
    /// `EROFS` if it is mounted to be read.
    pub(super) fn writer(&self) -> Result<&Writer> {
        self.writer.get().map(|writer| &**writer).ok_or(Error::ReadOnly)
    }

    /// Changes are to be possible, or no longer.
    ///
    /// # Errors
    /// `EROFS` where the device or the image forbids them, or an error has ended them.
    fn change_read_only(self: &Arc<Self>, read_only: bool) -> Result<()> {
        match self.writer.get() {
            Some(writer) if read_only => {
                self.sync()?;
                writer.pause().map_err(error_of)
            }
            Some(writer) => writer.resume(now()).map_err(error_of),
            None if read_only => Ok(()),
            None if self.device.is_read_only() => Err(Error::ReadOnly),
            None => {
                let mounted = mount_writer(&self.device)?;
                self.start_threads()?;
                self.writer.call_once(|| mounted);
                Ok(())
            }
        }
    }

    /// The same with what is written.
    pub(super) fn with_space<T>(&self, operation: impl Fn(&Writer) -> crate::Result<T>) -> Result<T> {
        let writer = self.writer()?;
        self.retry_for_space(|| operation(writer)).map_err(error_of)
    }

    fn status(&self) -> crate::Status {
        self.delete_gone();
        match self.writer.get() {
            None => self.system().status(),
            Some(writer) => {
                let status = writer.status();
                let promised = writer.promised();
                crate::Status {
                    blocks_free: status.blocks_free.saturating_sub(promised),
                    blocks_available: status.blocks_available.saturating_sub(promised),
                    ..status
                }
            }
        }
    }

    /// The root directory.
    pub(super) fn root(self: &Arc<Self>, superblock: &Arc<Superblock>) -> Result<Arc<Inode>> {
        let root = self.system().root().map_err(error_of)?;
        self.enter(root, self.cleanings(), |attributes, node| Ok(Inode::new(superblock, attributes, node)?))
    }

    /// What to give to [`Instance::inode`]: asked before the inode is read.
    pub(super) fn cleanings(&self) -> u64 {
        self.cleanings.load(Acquire)
    }

    /// The inode that a directory's entry names, which was read after so many `cleanings`.
    pub(super) fn inode(
        self: &Arc<Self>,
        beside: &Inode,
        found: crate::Inode,
        cleanings: u64,
    ) -> Result<Arc<Inode>> {
        self.enter(found, cleanings, |attributes, node| Ok(Inode::beside(beside, attributes, node)?))
    }

    /// Whether somebody has the file of a number, or its pages are on their way to the disk.
    pub(super) fn is_had(&self, number: u32) -> bool {
        self.inodes.lock().table.get(&u64::from(number)).is_some_and(|entry| {
            entry.inode.strong_count() > 0
                || entry.pages.as_ref().is_some_and(|(file, _)| file.strong_count() > 0)
        })
    }

    /// Inodes that are gone leave the list, and their memory with it.
    fn clean(&self, known: &mut Known) {
        known.table.retain(|_, entry| entry.is_used());
        self.cleanings.fetch_add(1, Release);
        known.clean_at = (known.table.len() * 2).max(CLEAN_FROM);
    }

    /// The same at any time, unless somebody is at the list.
    pub(super) fn forget_gone(&self) {
        if let Some(mut known) = self.inodes.try_lock() {
            self.clean(&mut known);
        }
    }

    fn enter(
        self: &Arc<Self>,
        mut found: crate::Inode,
        cleanings: u64,
        make: impl FnOnce(InodeAttributes, Node) -> Result<Arc<Inode>>,
    ) -> Result<Arc<Inode>> {
        let number = u64::from(found.number);
        let mut lists = access_list::find(self.system(), &found);
        let mut known = self.inodes.lock();
        if let Some(inode) = known.table.get(&number).and_then(|entry| entry.inode.upgrade()) {
            return Ok(inode);
        }
        // It was in memory since, perhaps, and changed there: what was read may be older than that.
        if known.table.contains_key(&number) || self.cleanings() != cleanings {
            found = self.system().inode(found.number).map_err(error_of)?;
            lists = access_list::find(self.system(), &found);
        }
        if known.table.len() >= known.clean_at {
            self.clean(&mut known);
        }
        known.table.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        let kind = kind_of(found.kind);
        let special = if kind.is_device() {
            DeviceNumber::new(found.special.0, found.special.1)
        } else {
            DeviceNumber::default()
        };
        let pages = known.table.get(&number).and_then(Entry::pages);
        let size = pages.as_ref().map_or(found.size, |(_, cache)| cache.size());
        let attributes = InodeAttributes {
            number,
            kind,
            mode: found.mode.into(),
            user: found.user,
            group: found.group,
            links: found.links.into(),
            special,
            size,
        };
        let (accessed, modified, changed) = (found.accessed, found.modified, found.changed);
        let flags = found.flags;
        let may_have_capabilities = kind == FileKind::Regular && found.has_attributes();
        let node = Node::new(self.clone(), &found, pages)?;
        let pages = node.cache.as_ref().map(|cache| (Arc::downgrade(&node.file), Arc::downgrade(cache)));
        let inode = make(attributes, node)?;
        lists.show(&inode);
        if may_have_capabilities {
            inode.expect_capabilities(true);
        }
        if flags & FileFlags::KNOWN.bits() != 0 {
            show_flags(&inode, flags);
        }
        inode.accessed().set(stamp(accessed));
        inode.modified().set(stamp(modified));
        inode.changed().set(stamp(changed));
        inode.operations().refresh(&inode);
        known.table.insert(number, Entry { inode: Arc::downgrade(&inode), pages });
        Ok(inode)
    }
}

/// Brings what an inode in memory says of links and times up to date, and of a directory's size.
pub(super) fn show(inode: &Inode, stored: &crate::Inode) {
    inode.set_links(stored.links.into());
    if inode.kind == FileKind::Directory {
        inode.set_size(stored.size);
    }
    inode.modified().set(stamp(stored.modified));
    inode.changed().set(stamp(stored.changed));
}

/// Brings what an inode in memory says of the file's flags up to date.
pub(super) fn show_flags(inode: &Inode, flags: u32) {
    inode.show_file_flags(FileFlags::from_bits_retain(flags));
}

/// What the file layer asks of the file system as a whole. The device is claimed as long as this is there: inodes that wait to be freed do not
/// keep others from it.
pub(super) struct Operations {
    instance: Arc<Instance>,
    holder: Holder,
}

impl Operations {
    pub(super) fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }

    /// Those of a file system whose device is claimed.
    pub(super) fn new(instance: &Arc<Instance>, claim: Claim) -> Self {
        let holder = Holder(Arc::as_ptr(instance).addr());
        claim.hand_over(holder);
        Self { instance: instance.clone(), holder }
    }
}

/// Keeps others from a device while it is looked at and its journal replayed.
pub(super) struct Claim {
    device: Arc<BlockDevice>,
    /// Its address is unique as long as it lives.
    token: Box<u8>,
    handed_over: bool,
}

impl Claim {
    /// # Errors
    /// `EBUSY` when somebody has the device, no memory.
    pub(super) fn new(device: &Arc<BlockDevice>) -> Result<Self> {
        let token = vfs::allocation::boxed(0)?;
        device.claim(Holder(core::ptr::from_ref(&*token).addr()))?;
        Ok(Self { device: device.clone(), token, handed_over: false })
    }

    fn holder(&self) -> Holder {
        Holder(core::ptr::from_ref(&*self.token).addr())
    }

    fn hand_over(mut self, to: Holder) {
        self.device.hand_over(self.holder(), to);
        self.handed_over = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.handed_over {
            self.device.release(self.holder());
        }
    }
}

impl Drop for Operations {
    fn drop(&mut self) {
        // After a lazy unmount the thread ends it: here nothing may sleep.
        if !self.instance.leave_to_thread(self.holder) {
            self.instance.device.release(self.holder);
        }
    }
}

impl SuperblockOperations for Operations {
    fn status(&self) -> FileSystemStatus {
        let status = self.instance.status();
        FileSystemStatus {
            magic: 0,
            block_size: status.block_bytes as u64,
            blocks: status.blocks,
            blocks_free: status.blocks_free,
            blocks_available: status.blocks_available,
            files: status.inodes,
            files_free: status.inodes_free,
            name_length: NAME_MAX as u64,
            id: 0,
        }
    }

    fn sync(&self) -> Result<()> {
        self.instance.sync()
    }

    fn finish(&self) {
        super::reclaim::leave(&self.instance);
        self.instance.end();
    }

    fn handles(&self) -> Option<&dyn vfs::handle::Handles> {
        Some(self)
    }

    fn change_read_only(&self, read_only: bool) -> Result<()> {
        self.instance.change_read_only(read_only)
    }

    fn show_options(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let (user, group) = self.instance.system().reserved_for();
        self.instance.options().show(&Options::new(user, group), out)
    }

    fn remount(&self, superblock: &Superblock, options: &[u8]) -> Result<()> {
        let new = self.instance.options().parse(options, &self.instance.device)?;
        *self.instance.options.lock() = new;
        superblock.set_access_lists(new.access_lists);
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
