//! Inodes: the files themselves, apart from their names.
//!
//! An [`Inode`] is one allocation: a head with the attributes every file has, followed by the file system's own part
//! `O`, which implements [`InodeOperations`]. Attributes are independent atomics: `stat` and permission checks read
//! them with plain loads, no lock and no call into the file system; whoever changes one holds no lock either, or, where
//! several must change together with the contents (write, truncate, directory changes), the inode's [`lock`](Inode::lock).
//!
//! # Locks
//! - [`Inode::lock`] (sleeping, shared for lookups and directory reading, exclusive for changes of a directory or of a
//!   file's contents). Two directories are locked in the order of their addresses, under the file system's rename lock
//!   when they differ; a file is locked after its directory.
//! - Attributes: none.
//! - Mode, owner, group and the access list change under `identity`; they are read without it.
//!
//! # Access lists
//! Few files have one. What everybody may is three bits beside the permission bits, brought up to date when those change, and zeroes for a file with a list:
//! one comparison tells that everybody may do something and that there is no list to say otherwise. Nobody may write an immutable file: the bit for
//! writing is no bit of everybody's then.
//! - `writers` counts open files that write (positive) or programs that run from it (negative): `ETXTBSY`.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use memory::file_cache::FileCache;
use memory::per_cpu::Shared;
use sync::clustered::Count;
use sync::{Once, SpinLock, rcu};

use crate::access_list::{AccessList, ListKind, NewLists};
use crate::attributes::{
    AtomicTimestamp, AttributeChange, DeviceNumber, FileKind, FileStatus, MODE_MASK, SET_GROUP_ID,
    SET_USER_ID, Timestamp,
};
use crate::credentials::Credentials;
use crate::file::FileOperations;
use crate::file_flags::{FileFlags, FileSettings};
use crate::flags::{Access, AllocateMode, OpenFlags, RenameFlags};
use crate::lock::FileLocks;
use crate::mount::Path;
use crate::name::Name;
use crate::superblock::{Superblock, SuperblockLink};
use crate::{Error, Result, allocation};

/// What a symbolic link leads to.
pub enum LinkTarget {
    /// A path to walk, relative to the link's directory.
    Text(Arc<[u8]>),
    /// A place to jump to without walking (`/proc/self/fd/N`, `exe`, `cwd`, `root`).
    Jump(Path),
}

/// A file to be created.
pub struct NewFile<'a> {
    /// What kind.
    pub kind: FileKind,
    /// Permission bits, umask already applied.
    pub mode: u32,
    /// The access lists that it has from its directory, which the permission bits agree with.
    pub access_lists: Option<&'a NewLists>,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// For device nodes.
    pub special: DeviceNumber,
    /// For symbolic links: where it leads to.
    pub target: &'a [u8],
}

/// What a program asked for that makes a file.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Permission bits, before the mask.
    pub mode: u32,
    /// The mask.
    pub umask: u32,
    /// How it will open the file at once, if it will.
    pub open: Option<OpenFlags>,
}

/// What a file is asked for that is left to its file system.
#[derive(Clone, Copy, Debug)]
pub enum Question<'a> {
    /// May it be used in these ways?
    Access(Access, &'a Credentials),
    /// The same, for a program that only wants to know (`access`), or makes a directory its own (`chdir`).
    Wish(Access, &'a Credentials),
    /// Its attributes are to be shown: bring them up to date.
    Status,
    /// Its attributes are to be changed.
    Change,
    /// Something else is to be done by a path that led to it.
    Other,
}

/// A rename within one file system; both directories are locked exclusively.
pub struct Rename<'a> {
    /// Where the file is.
    pub old_directory: &'a Arc<Inode>,
    /// Its name.
    pub old_name: &'a [u8],
    /// The file.
    pub inode: &'a Arc<Inode>,
    /// Where it goes; may be the same directory.
    pub new_directory: &'a Arc<Inode>,
    /// Its new name.
    pub new_name: &'a Name,
    /// What is replaced or exchanged; kinds and emptiness of directories are the file system's to check.
    pub replaced: Option<&'a Arc<Inode>>,
    /// How.
    pub flags: RenameFlags,
    /// With [`RenameFlags::WHITEOUT`]: what has the old name afterwards.
    pub whiteout: Option<&'a NewFile<'a>>,
}

/// Takes directory entries; called by file systems without spin locks held, since it may write to user memory.
pub trait DirectorySink {
    /// One entry. `next` is the position from which reading goes on after it. False: there is no room, the entry was
    /// not taken.
    fn entry(&mut self, name: &[u8], inode: u64, kind: FileKind, next: u64) -> bool;
}

/// Positions of `.` and `..`, which the file layer supplies itself; a file system's own begin at 2.
pub const FIRST_POSITION: u64 = 2;

/// What a file system does for one of its inodes. `inode` (or `directory`) is always the inode that `self` is part of.
#[allow(unused_variables, reason = "default bodies refuse without looking at their arguments")]
pub trait InodeOperations: Any + Send + Sync {
    /// Finds a name in a directory. Called with the directory's lock held shared (at least).
    fn lookup(&self, directory: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        Err(Error::NotDirectory)
    }

    /// Whether an entry found earlier is still what `name` means. Only asked when the file system is *volatile*.
    fn still_valid(&self, directory: &Inode, name: &[u8], child: &Inode) -> bool {
        true
    }

    /// Creates a file under a name that does not exist. The directory is locked exclusively.
    fn create(&self, directory: &Arc<Inode>, name: &Name, new: &NewFile<'_>) -> Result<Arc<Inode>> {
        // As Linux has it where nothing can be made.
        Err(if new.kind == FileKind::Regular { Error::AccessDenied } else { Error::NotPermitted })
    }

    /// The same, with what the program asked for: for file systems that make and open a file in one step, or know another mask.
    fn create_asked(
        &self,
        directory: &Arc<Inode>,
        name: &Name,
        new: &NewFile<'_>,
        asked: &Asked,
    ) -> Result<Arc<Inode>> {
        self.create(directory, name, new)
    }

    /// Creates a file without a name (`O_TMPFILE`); its link count is 0.
    fn create_unnamed(&self, directory: &Arc<Inode>, new: &NewFile<'_>) -> Result<Arc<Inode>> {
        Err(Error::NotSupported)
    }

    /// Gives a file another name. The directory is locked exclusively.
    fn link(&self, directory: &Arc<Inode>, name: &Name, inode: &Arc<Inode>) -> Result<()> {
        Err(Error::NotPermitted)
    }

    /// Removes the name of a file that is not a directory. The directory is locked exclusively.
    fn unlink(&self, directory: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>) -> Result<()> {
        Err(Error::NotPermitted)
    }

    /// Removes an empty directory. Both are locked exclusively.
    fn remove_directory(&self, directory: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>) -> Result<()> {
        Err(Error::NotPermitted)
    }

    /// Moves a name (called on the old directory).
    fn rename(&self, rename: &Rename<'_>) -> Result<()> {
        Err(Error::NotPermitted)
    }

    /// Lists a directory from `position` (2 or more) until the sink is full; returns where to go on.
    /// The directory is locked shared.
    fn read_directory(&self, directory: &Inode, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        Err(Error::NotDirectory)
    }

    /// Where a symbolic link leads to.
    fn link_target(&self, inode: &Arc<Inode>) -> Result<LinkTarget> {
        Err(Error::Invalid)
    }

    /// What `readlink` shows; for most links the text that is followed.
    fn link_text(&self, inode: &Arc<Inode>) -> Result<Arc<[u8]>> {
        match self.link_target(inode)? {
            LinkTarget::Text(text) => Ok(text),
            LinkTarget::Jump(_) => Err(Error::Invalid),
        }
    }

    /// Brings attributes up to date that the file system computes (owner of `/proc/PID`, size of a table). May sleep.
    fn refresh(&self, inode: &Inode) {}

    /// Answers what is asked of a file that is left to its file system ([`InodeHead::leave_to_file_system`]), before anything is done with it for a program.
    ///
    /// # Errors
    /// What the program is to be told instead.
    fn permit(&self, inode: &Inode, question: Question<'_>) -> Result<()> {
        Ok(())
    }

    /// Whether such a file's owners and mode decide who may change its attributes.
    fn goes_by_attributes(&self) -> bool {
        false
    }

    /// Agrees to a change of mode, owner or times before it is made in the inode.
    fn change_attributes(&self, inode: &Inode, change: &AttributeChange) -> Result<()> {
        Ok(())
    }

    /// The file's flags and project; see [`file_flags`](crate::file_flags).
    ///
    /// # Errors
    /// `ENOTTY` where there are none.
    fn settings(&self, inode: &Inode) -> Result<FileSettings> {
        Err(Error::NotTerminal)
    }

    /// Sets them; who may do it is checked. The inode is locked exclusively.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for what such a file can't have.
    fn change_settings(&self, inode: &Inode, wanted: &FileSettings) -> Result<()> {
        Err(Error::NotTerminal)
    }

    /// What tells a file from another one that had its number before (`FS_IOC_GETVERSION`).
    ///
    /// # Errors
    /// `ENOTTY` where there is nothing of that kind.
    fn generation(&self) -> Result<u32> {
        Err(Error::NotTerminal)
    }

    /// Sets a regular file's size. The inode is locked exclusively.
    fn truncate(&self, inode: &Inode, size: u64) -> Result<()> {
        Err(Error::Invalid)
    }

    /// `fallocate`. The inode is locked exclusively.
    fn allocate(&self, inode: &Inode, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        Err(Error::NotSupported)
    }

    /// 512-byte blocks in use. May sleep.
    fn blocks(&self, inode: &Inode) -> u64 {
        0
    }

    /// [`refresh`](Self::refresh) and [`blocks`](Self::blocks) for who is in a read section. `None` where they would sleep; to be asked of no file of a volatile
    /// file system.
    fn blocks_at_hand(&self, inode: &Inode) -> Option<u64> {
        self.refresh(inode);
        Some(self.blocks(inode))
    }

    /// Copies the value of an extended attribute into `buffer` (nothing when it is empty) and returns its length.
    fn extended_attribute(&self, inode: &Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize> {
        Err(Error::NotSupported)
    }

    /// Sets an extended attribute.
    fn set_extended_attribute(
        &self,
        inode: &Inode,
        name: &[u8],
        value: &[u8],
        how: SetAttribute,
    ) -> Result<()> {
        Err(Error::NotSupported)
    }

    /// Removes an extended attribute.
    fn remove_extended_attribute(&self, inode: &Inode, name: &[u8]) -> Result<()> {
        Err(Error::NotSupported)
    }

    /// A list as the file system keeps it. Asked for regular files, directories and special files only.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where there are none at all.
    fn access_list(&self, inode: &Inode, kind: ListKind) -> Result<Option<AccessList>> {
        Err(Error::NotSupported)
    }

    /// Sets or removes a list, and in the same step the permission bits if they change with it. What the inode in memory
    /// shows of both the caller changes. The inode is locked exclusively.
    fn set_access_list(
        &self,
        inode: &Inode,
        kind: ListKind,
        list: Option<&AccessList>,
        mode: Option<u32>,
    ) -> Result<()> {
        Err(Error::NotSupported)
    }

    /// Calls `each` with the names of all extended attributes, those of access lists among them.
    fn list_extended_attributes(
        &self,
        inode: &Inode,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        Ok(())
    }

    /// Makes what an open file works on. `None`: the inode itself, through [`file_operations`](Self::file_operations).
    fn open(&self, inode: &Arc<Inode>, flags: OpenFlags) -> Result<Option<Arc<dyn FileOperations>>> {
        Ok(None)
    }

    /// The operations of open files that [`open`](Self::open) made no object for.
    fn file_operations(&self) -> &dyn FileOperations {
        &crate::file::NoOperations
    }

    /// What the file system does for open files whose pages have their home on a device ([`DiskFile`](crate::disk::DiskFile)).
    fn home(&self) -> Option<&dyn crate::disk::Home> {
        None
    }

    /// The name space of mounts that it stands for, and keeps (`/proc/PID/ns/mnt`).
    fn mount_namespace(&self) -> Option<&Arc<crate::mount::MountNamespace>> {
        None
    }

    /// The pages of a regular file.
    fn cache(&self) -> Option<&Arc<FileCache>> {
        None
    }
}

/// Whether an extended attribute must or must not exist already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetAttribute {
    /// Either way.
    Any,
    /// Fail with `EEXIST` when it exists.
    Create,
    /// Fail with `ENODATA` when it does not.
    Replace,
}

/// Above kind and permission bits: three bits of what everybody may, none for a file that has an access list.
const EVERYBODY_SHIFT: u32 = 16;
/// Beside the permission bits of a file that has no access list.
const PLAIN: u32 = 1 << 19;
/// Beside the permission bits of a directory that has a default list.
const HAS_DEFAULT: u32 = 1 << 31;
/// Beside the permission bits of a file whose access list could not be read.
const UNREADABLE: u32 = 1 << 30;

/// Beside the permission bits of a file that may have [capabilities](crate::file_capabilities).
const MAY_HAVE_CAPABILITIES: u32 = 1 << 20;

/// Beside the permission bits of a file that is [left to its file system](InodeHead::leave_to_file_system).
const LEFT: u32 = 1 << 29;

/// Beside the permission bits: the [flags](FileFlags::KNOWN) of a file, so many bits further up than they are numbered.
const FLAGS_SHIFT: u32 = 19;
const IMMUTABLE: u32 = FileFlags::IMMUTABLE.bits() << FLAGS_SHIFT;
const _: () = assert!(
    FileFlags::KNOWN.bits() << FLAGS_SHIFT >> FLAGS_SHIFT == FileFlags::KNOWN.bits()
        && FileFlags::KNOWN.bits() << FLAGS_SHIFT
            & (0xffff
                | 7 << EVERYBODY_SHIFT
                | PLAIN
                | MAY_HAVE_CAPABILITIES
                | LEFT
                | UNREADABLE
                | HAS_DEFAULT)
            == 0
);

/// The mode's word with what everybody may.
const fn with_everybody(word: u32) -> u32 {
    let everybody = if word & PLAIN == 0 { 0 } else { word & (word >> 3) & (word >> 6) & 7 };
    let everybody = if word & IMMUTABLE == 0 { everybody } else { everybody & !Access::WRITE.bits() };
    word & !(7 << EVERYBODY_SHIFT) | everybody << EVERYBODY_SHIFT
}

/// The attributes that every inode has.
pub struct InodeHead {
    /// The number within its file system.
    pub number: u64,
    /// What it is.
    pub kind: FileKind,
    /// Which device a device node stands for.
    pub special: DeviceNumber,
    superblock: Shared<SuperblockLink>,
    /// Copied from the superblock: `stat` needs no pointer chase.
    device: DeviceNumber,
    block_bytes: u32,
    /// Copied as well: what `statx` may show of the flags.
    attributes: u32,
    /// Kind and permission bits, and above them what everybody may, [`PLAIN`], [`HAS_DEFAULT`], [`UNREADABLE`], [`MAY_HAVE_CAPABILITIES`] and flags.
    mode: AtomicU32,
    user: AtomicU32,
    group: AtomicU32,
    /// Held while mode, owner and access list change, or are looked at together.
    identity: SpinLock<()>,
    access_list: rcu::Pointer<AccessList>,
    links: AtomicU32,
    size: AtomicU64,
    accessed: AtomicTimestamp,
    modified: AtomicTimestamp,
    changed: AtomicTimestamp,
    born: Timestamp,
    writers: AtomicI32,
    /// Open files at places of this file: a file without names is gone with the last one.
    /// Open files. All CPUs count there when they open the same file; the number is needed when its last name is gone.
    openers: Count,
    /// Without a name, but may be given one (`O_TMPFILE` without `O_EXCL`).
    linkable: AtomicBool,
    /// Of a directory that must have one name only: the address of the entry that leads to it, 0 without one. Of other files: the number of a
    /// directory that they were found in, 0 without one ([`noted_parent`](Self::noted_parent)).
    entry: AtomicUsize,
    locks: Once<Arc<FileLocks>>,
    extension: Once<Arc<dyn Any + Send + Sync>>,
    watches: Once<Box<crate::inotify::WatchList>>,
}

/// An inode: the head, its lock, and the file system's own part.
pub struct Inode<O: ?Sized = dyn InodeOperations> {
    head: InodeHead,
    lock: sched::RwLock<()>,
    operations: O,
}

/// Whose a file is, and what that permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Permission bits; [`InodeHead::identity`] gives the kind with them.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
}

/// What a new inode starts with.
#[derive(Clone, Copy, Debug)]
pub struct InodeAttributes {
    /// The number within its file system.
    pub number: u64,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Hard links.
    pub links: u32,
    /// For device nodes.
    pub special: DeviceNumber,
    /// Bytes.
    pub size: u64,
}

impl<O: InodeOperations> Inode<O> {
    /// A new inode of `superblock`; all times are now. One allocation.
    pub fn new(
        superblock: &Arc<Superblock>,
        attributes: InodeAttributes,
        operations: O,
    ) -> Result<Arc<Self>> {
        let link = superblock.link().clone();
        let device = link.device;
        allocation::arc(Self::build(link, device, attributes, operations))
    }

    /// A new inode of the file system that `other` is of: the same as [`new`](Self::new), but it takes no reference to the
    /// superblock, which all CPUs would write.
    pub fn beside(other: &InodeHead, attributes: InodeAttributes, operations: O) -> Result<Arc<Self>> {
        let link = other.superblock.clone();
        let device = link.device;
        allocation::arc(Self::build(link, device, attributes, operations))
    }

    /// As [`beside`](Self::beside), with a device of its own to show: numbers of files are unique together with that.
    pub fn of_device(
        other: &InodeHead,
        device: DeviceNumber,
        attributes: InodeAttributes,
        operations: O,
    ) -> Result<Arc<Self>> {
        allocation::arc(Self::build(other.superblock.clone(), device, attributes, operations))
    }

    #[inline(always)]
    fn build(
        superblock: Shared<SuperblockLink>,
        device: DeviceNumber,
        attributes: InodeAttributes,
        operations: O,
    ) -> Self {
        let time = Timestamp::coarse();
        let (block_bytes, stacked) = (superblock.block_bytes, superblock.stacked);
        let attributes_shown = superblock.attributes;
        Self {
            head: InodeHead {
                number: attributes.number,
                kind: attributes.kind,
                special: attributes.special,
                superblock,
                device,
                block_bytes: if block_bytes == 0 { machine::address::PAGE_SIZE as u32 } else { block_bytes },
                attributes: attributes_shown,
                mode: AtomicU32::new(with_everybody(
                    attributes.mode & MODE_MASK | attributes.kind.mode_bits() | PLAIN,
                )),
                user: AtomicU32::new(attributes.user),
                group: AtomicU32::new(attributes.group),
                identity: SpinLock::named("identity of an inode", ()),
                access_list: rcu::Pointer::null(),
                links: AtomicU32::new(attributes.links),
                size: AtomicU64::new(attributes.size),
                accessed: AtomicTimestamp::new(time),
                modified: AtomicTimestamp::new(time),
                changed: AtomicTimestamp::new(time),
                born: time,
                writers: AtomicI32::new(0),
                openers: Count::new(&"openers of a file"),
                linkable: AtomicBool::new(false),
                entry: AtomicUsize::new(0),
                locks: Once::new(),
                extension: Once::new(),
                watches: Once::new(),
            },
            lock: match stacked {
                0 => sched::RwLock::named("inode", ()),
                1 => sched::RwLock::named("inode above a file system", ()),
                _ => sched::RwLock::named("inode above two file systems", ()),
            },
            operations,
        }
    }
}

impl<O: ?Sized> Inode<O> {
    /// The attributes.
    #[inline]
    pub fn head(&self) -> &InodeHead {
        &self.head
    }

    /// The lock that orders changes of the directory, or writes to the file.
    #[inline]
    pub fn lock(&self) -> &sched::RwLock<()> {
        &self.lock
    }

    /// The file system's part.
    #[inline]
    pub fn operations(&self) -> &O {
        &self.operations
    }
}

impl<O: ?Sized> core::ops::Deref for Inode<O> {
    type Target = InodeHead;

    #[inline]
    fn deref(&self) -> &InodeHead {
        &self.head
    }
}

impl Inode {
    /// The file system's part as its own type; `None` for another file system's inode.
    pub fn downcast<O: InodeOperations>(&self) -> Option<&O> {
        let any: &dyn Any = &self.operations;
        any.downcast_ref()
    }

    /// As [`downcast`](Self::downcast), for the only user of the inode.
    pub fn downcast_mut<O: InodeOperations>(&mut self) -> Option<&mut O> {
        let any: &mut dyn Any = &mut self.operations;
        any.downcast_mut()
    }

    /// Asks the file system of a file that is left to it.
    ///
    /// # Errors
    /// What the program is to be told.
    #[inline]
    pub fn ask(&self, question: Question<'_>) -> Result<()> {
        if self.is_left_to_file_system() { self.operations.permit(self, question) } else { Ok(()) }
    }

    /// What `stat` shows, the mount's part left empty. May sleep.
    #[inline(always)]
    pub fn status(&self) -> FileStatus {
        self.operations.refresh(self);
        self.status_with(self.operations.blocks(self))
    }

    /// The same for who is in a read section; `None` if it is not at hand. About a dozen plain loads.
    #[inline(always)]
    pub(crate) fn status_at_hand(&self) -> Option<FileStatus> {
        Some(self.status_with(self.operations.blocks_at_hand(self)?))
    }

    #[inline(always)]
    fn status_with(&self, blocks: u64) -> FileStatus {
        let head = &self.head;
        FileStatus {
            device: head.device,
            inode: head.number,
            mode: head.mode(),
            links: head.links(),
            user: head.user(),
            group: head.group(),
            special: head.special,
            size: head.size(),
            block_size: head.block_bytes,
            blocks,
            accessed: head.accessed.get(),
            modified: head.modified.get(),
            changed: head.changed.get(),
            born: head.born,
            mount_id: 0,
            mount_root: false,
            attributes: head.file_flags().bits() & head.attributes,
            attributes_known: head.attributes,
        }
    }
}

impl InodeHead {
    /// Permission bits and kind.
    #[inline]
    pub fn mode(&self) -> u32 {
        // Relaxed, here and below: every attribute stands for itself.
        u32::from(self.mode.load(Ordering::Relaxed) as u16)
    }

    /// Whether executing it may give what a write takes away: the rights of its owner or group, or capabilities.
    #[inline]
    pub(crate) fn may_give_privileges(&self) -> bool {
        self.mode.load(Ordering::Relaxed) & (SET_USER_ID | SET_GROUP_ID | MAY_HAVE_CAPABILITIES) != 0
    }

    /// Whether it may have [capabilities](crate::file_capabilities).
    #[inline]
    pub fn may_have_capabilities(&self) -> bool {
        self.mode.load(Ordering::Relaxed) & MAY_HAVE_CAPABILITIES != 0
    }

    /// Says whether it may have them. A file system that has found attributes at a file, or can't know, says yes before others see the inode.
    pub fn expect_capabilities(&self, may_have: bool) {
        let _one = self.identity.lock();
        self.change_word(MAY_HAVE_CAPABILITIES, if may_have { MAY_HAVE_CAPABILITIES } else { 0 });
    }

    /// Who may do what with the file is its file system's to say, which is [asked](InodeOperations::permit) each time. Said before others see the inode.
    pub fn leave_to_file_system(&self) {
        let _one = self.identity.lock();
        self.change_word(LEFT | PLAIN, LEFT);
    }

    /// Whether that was said.
    #[inline]
    pub fn is_left_to_file_system(&self) -> bool {
        self.mode.load(Ordering::Relaxed) & LEFT != 0
    }

    /// The [flags](FileFlags::KNOWN) of the file that the file layer knows of.
    #[inline]
    pub fn file_flags(&self) -> FileFlags {
        let word = self.mode.load(Ordering::Relaxed);
        FileFlags::from_bits_retain(word >> FLAGS_SHIFT) & FileFlags::KNOWN
    }

    /// Whether files of its file system may have any that `statx` shows.
    pub fn may_have_flags(&self) -> bool {
        self.attributes != 0
    }

    /// Shows the flags of the file, which the file system has stored or read.
    pub fn show_file_flags(&self, flags: FileFlags) {
        let _one = self.identity.lock();
        self.change_word(FileFlags::KNOWN.bits() << FLAGS_SHIFT, flags.bits() << FLAGS_SHIFT);
    }

    /// Whether everybody may access the file in all of these ways; false if that takes a closer look.
    #[inline]
    pub(crate) fn everybody_may(&self, wanted: u32) -> bool {
        self.mode.load(Ordering::Relaxed) >> EVERYBODY_SHIFT & wanted == wanted
    }

    /// Whether the mode says everything about who may access the file.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.mode.load(Ordering::Relaxed) & PLAIN != 0
    }

    /// Whether files that are made in the directory begin with its default list.
    #[inline]
    pub(crate) fn has_default_list(&self) -> bool {
        self.mode.load(Ordering::Relaxed) & HAS_DEFAULT != 0
    }

    /// Whether its file system has access lists.
    pub(crate) fn may_have_lists(&self) -> bool {
        self.kind != FileKind::SymbolicLink && self.superblock.access_lists.load(Ordering::Relaxed)
    }

    /// Asks the access list, if there is one.
    ///
    /// # Errors
    /// `EIO` if it could not be read.
    pub(crate) fn ask_access_list<T>(&self, ask: impl FnOnce(&AccessList) -> T) -> Result<Option<T>> {
        if self.mode.load(Ordering::Relaxed) & UNREADABLE != 0 {
            return Err(Error::Io);
        }
        let guard = rcu::read();
        Ok(self.access_list.read(&guard).map(ask))
    }

    /// Changes the bits of the mode's word that are in `mask`; `identity` is held.
    fn change_word(&self, mask: u32, bits: u32) {
        let word = self.mode.load(Ordering::Relaxed);
        self.mode.store(with_everybody(word & !mask | bits & mask), Ordering::Relaxed);
    }

    /// Shows an access list, which the file system has stored or read, and the permission bits that agree with it. Nothing fails in it.
    pub(crate) fn show_access_list(&self, list: Option<rcu::RcuBox<AccessList>>, mode: Option<u32>) {
        let _one = self.identity.lock();
        if let Some(mode) = mode {
            self.change_word(MODE_MASK, mode);
        }
        // Who sees that there is a list finds it, or the mode that replaced it.
        let removed = list.is_none();
        if !removed {
            self.access_list.replace(list);
        }
        self.change_word(PLAIN | UNREADABLE, if removed { PLAIN } else { 0 });
        if removed {
            self.access_list.replace(None);
        }
    }

    /// Shows that the directory has a default list, or none.
    pub(crate) fn show_default_list(&self, has: bool) {
        let _one = self.identity.lock();
        self.change_word(HAS_DEFAULT, if has { HAS_DEFAULT } else { 0 });
    }

    /// Shows the lists that a file system has read of the file, which nobody else sees yet. Who may use a file whose list could not be
    /// read is not known: nobody then, but for its owner and those who need no permission.
    pub fn show_lists(&self, access: Result<Option<AccessList>>, has_default: bool) {
        if has_default {
            self.show_default_list(true);
        }
        match access.and_then(|list| list.map(allocation::rcu).transpose()) {
            Ok(None) => {}
            Ok(list) => self.show_access_list(list, None),
            Err(_) => {
                let _one = self.identity.lock();
                self.change_word(PLAIN | UNREADABLE, UNREADABLE);
            }
        }
    }

    /// Shows the lists that another file has: the one that this one stands for.
    pub fn mirror_lists(&self, other: &InodeHead) {
        if self.is_plain() && other.is_plain() && self.has_default_list() == other.has_default_list() {
            return;
        }
        self.show_default_list(other.has_default_list());
        if other.is_plain() {
            return self.show_access_list(None, None);
        }
        let guard = rcu::read();
        let (own, list) = (self.access_list.read(&guard), other.access_list.read(&guard));
        if self.is_plain() || own != list {
            let copy = list.ok_or(Error::Io).and_then(AccessList::try_clone);
            self.show_lists(copy.map(Some), self.has_default_list());
        }
    }

    /// Changes the permission bits.
    pub fn set_mode(&self, mode: u32) {
        let _one = self.identity.lock();
        self.change_word(MODE_MASK, mode);
    }

    /// The owner.
    #[inline]
    pub fn user(&self) -> u32 {
        self.user.load(Ordering::Relaxed)
    }

    /// The group.
    #[inline]
    pub fn group(&self) -> u32 {
        self.group.load(Ordering::Relaxed)
    }

    /// Changes the owner and group.
    pub fn set_owner(&self, user: u32, group: u32) {
        let _one = self.identity.lock();
        self.user.store(user, Ordering::Relaxed);
        self.group.store(group, Ordering::Relaxed);
    }

    /// Mode, owner and group as they were at one moment: who acts for the owner because the mode says so must not see a mode that a former
    /// owner gave.
    pub fn identity(&self) -> Identity {
        let _one = self.identity.lock();
        Identity { mode: self.mode(), user: self.user(), group: self.group() }
    }

    /// Changes mode, owner and group in one step.
    pub fn set_identity(&self, new: Identity) {
        let _one = self.identity.lock();
        self.change_word(MODE_MASK, new.mode);
        self.user.store(new.user, Ordering::Relaxed);
        self.group.store(new.group, Ordering::Relaxed);
    }

    /// The number of hard links.
    #[inline]
    pub fn links(&self) -> u32 {
        self.links.load(Ordering::Relaxed)
    }

    /// Sets the number of hard links; the directory (or the inode's lock) orders changes.
    pub fn set_links(&self, links: u32) {
        self.links.store(links, Ordering::Relaxed);
    }

    /// One more hard link.
    pub fn add_link(&self) {
        self.links.fetch_add(1, Ordering::Relaxed);
    }

    /// One hard link less.
    pub fn remove_link(&self) {
        let before = self.links.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "an inode lost a link that it did not have");
    }

    /// Counts an open file.
    #[inline]
    pub(crate) fn add_opener(&self) {
        self.openers.add(1);
    }

    /// An open file has ended; whether it may have been the last one of a file without a name.
    #[inline]
    pub(crate) fn remove_opener(&self) -> bool {
        self.openers.add(-1);
        // With the fence in `is_gone`: of who closes last and who removes the last name, one sees that it is gone.
        fence(Ordering::SeqCst);
        self.links() == 0
    }

    /// Open files at places of this file.
    pub(crate) fn open_files(&self) -> i64 {
        self.openers.value()
    }

    /// Open files that write, or programs that run from it as a negative number.
    pub(crate) fn writers(&self) -> i32 {
        self.writers.load(Ordering::Acquire)
    }

    /// Whether it has neither names nor open files.
    pub(crate) fn is_gone(&self) -> bool {
        fence(Ordering::SeqCst);
        self.links() == 0 && self.openers.value() == 0
    }

    /// Bytes.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Sets the size.
    #[inline]
    pub fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
    }

    /// Device of the file system.
    #[inline]
    pub fn device(&self) -> DeviceNumber {
        self.device
    }

    /// The file system; `None` once it is gone.
    pub fn superblock(&self) -> Option<Arc<Superblock>> {
        self.superblock.superblock.get()?.upgrade()
    }

    /// Whether both belong to the same file system.
    #[inline]
    pub fn same_superblock(&self, other: &InodeHead) -> bool {
        Shared::ptr_eq(&self.superblock, &other.superblock)
    }

    /// The access time stamp.
    #[inline]
    pub fn accessed(&self) -> &AtomicTimestamp {
        &self.accessed
    }

    /// The modification time stamp.
    #[inline]
    pub fn modified(&self) -> &AtomicTimestamp {
        &self.modified
    }

    /// The change time stamp.
    #[inline]
    pub fn changed(&self) -> &AtomicTimestamp {
        &self.changed
    }

    /// The creation time.
    pub fn born(&self) -> Timestamp {
        self.born
    }

    /// Stamps a modification of the contents: one clock reading, two stores.
    #[inline]
    pub fn touch_modified(&self) {
        let now = Timestamp::coarse();
        self.modified.set(now);
        self.changed.set(now);
    }

    /// Stamps a change of the attributes.
    #[inline]
    pub fn touch_changed(&self) {
        self.changed.set(Timestamp::coarse());
    }

    /// Whether a file without a name may be given one.
    pub fn linkable(&self) -> bool {
        self.linkable.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub(crate) fn set_linkable(&self, linkable: bool) {
        self.linkable.store(linkable, Ordering::Relaxed);
    }

    /// Notes the address of the entry that leads to it, unless there is another one.
    pub(crate) fn take_entry(&self, address: usize) -> bool {
        // Relaxed, here and below: which of two entries is the one says the exchange itself.
        self.entry.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// That entry leads there no longer.
    pub(crate) fn leave_entry(&self, address: usize) {
        let _ = self.entry.compare_exchange(address, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Notes which directory the file was found in last. One store.
    pub(crate) fn note_parent(&self, parent: u64) {
        if self.kind != FileKind::Directory {
            // Relaxed: nothing is read through it, and who uses it looks whether it is true.
            self.entry.store(parent as usize, Ordering::Relaxed);
        }
    }

    /// The number of a directory that a file that is none was found in, and may have left since; `None` if it was found in none.
    pub fn noted_parent(&self) -> Option<u64> {
        let noted = self.entry.load(Ordering::Relaxed) as u64;
        (self.kind != FileKind::Directory && noted != 0).then_some(noted)
    }

    /// Counts an open file that writes. Fails with `ETXTBSY` while a program runs from the file.
    pub fn begin_write_access(&self) -> Result<()> {
        self.count_access(1)
    }

    /// The end of what [`begin_write_access`](Self::begin_write_access) began.
    pub fn end_write_access(&self) {
        self.writers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Counts a program that runs from the file. Fails with `ETXTBSY` while it is open for writing.
    pub fn deny_write_access(&self) -> Result<()> {
        self.count_access(-1)
    }

    /// The end of what [`deny_write_access`](Self::deny_write_access) began.
    pub fn allow_write_access(&self) {
        self.writers.fetch_add(1, Ordering::AcqRel);
    }

    fn count_access(&self, step: i32) -> Result<()> {
        // AcqRel: orders the count with what is done under it.
        self.writers
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                if count.signum() == -step { None } else { count.checked_add(step) }
            })
            .map(|_| ())
            .map_err(|_| Error::TextBusy)
    }

    /// The locks on the file, made on first use.
    pub fn locks(&self) -> Result<&FileLocks> {
        if let Some(locks) = self.existing_locks() {
            return Ok(locks);
        }
        let fresh = FileLocks::registered(self.device, self.number)?;
        Ok(self.locks.call_once(|| fresh))
    }

    /// The locks on the file if there ever were any.
    #[inline]
    pub fn existing_locks(&self) -> Option<&FileLocks> {
        self.locks.get().map(|locks| &**locks)
    }

    /// The watches on the file, made on first use.
    pub fn watches(&self) -> Result<&crate::inotify::WatchList> {
        if let Some(watches) = self.existing_watches() {
            return Ok(watches);
        }
        let fresh = allocation::boxed(crate::inotify::WatchList::new())?;
        Ok(self.watches.call_once(|| fresh))
    }

    /// The watches on the file if there ever were any.
    #[inline]
    pub fn existing_watches(&self) -> Option<&crate::inotify::WatchList> {
        self.watches.get().map(|watches| &**watches)
    }

    /// An object that another part of the kernel attached (the pipe of a FIFO, a bound socket): the one attached
    /// first is the one everybody gets.
    pub fn attach(&self, object: Arc<dyn Any + Send + Sync>) -> Arc<dyn Any + Send + Sync> {
        self.extension.call_once(|| object).clone()
    }

    /// The attached object.
    pub fn attached(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.extension.get()
    }
}
