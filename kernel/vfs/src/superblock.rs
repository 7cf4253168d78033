//! Mounted file systems and the registry of their types.
//!
//! A [`Superblock`] is one instance of a file system: its root, its identity, its flags. It lives as long as a mount
//! or an inode's user refers to it. [`FileSystemType`]s are registered once at start-up.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use block::registry::BlockDevice;
use memory::file_cache::{BackingDevice, WriteErrors};
use memory::per_cpu::{Shared, SharedOwner};
use sync::{Once, SpinLock};

use crate::attributes::{DeviceNumber, FileSystemStatus};
use crate::dentry::Dentry;
use crate::fanotify::MarkList;
use crate::handle::Handles;
use crate::inode::Inode;
use crate::user_space::UserSpace;
use crate::walk::PathContext;
use crate::{Error, Result, allocation};

/// What a file system instance does as a whole.
pub trait SuperblockOperations: Send + Sync {
    /// What `statfs` shows.
    fn status(&self) -> FileSystemStatus;

    /// What `statfs` shows to a program, where whoever has the files must be asked.
    ///
    /// # Errors
    /// What the program is to be told.
    fn status_for_caller(&self) -> Result<FileSystemStatus> {
        Ok(self.status())
    }

    /// Somebody unmounts it by force: what waits for whoever has the files shall wait no longer.
    fn abort(&self) {}

    /// Writes everything back.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Writes the options that `/proc/mounts` shows, each with a leading comma.
    fn show_options(&self, _out: &mut dyn fmt::Write) -> fmt::Result {
        Ok(())
    }

    /// Changes options at a remount.
    fn remount(&self, _superblock: &Superblock, _options: &[u8]) -> Result<()> {
        Ok(())
    }

    /// The last mount has gone, and whoever unmounted it waits: writes everything back, so that the device holds all there is. What is dropped
    /// without this call (a lazy unmount) must do the same by itself, but not where it is dropped: that may be where nothing may sleep.
    fn finish(&self) {}

    /// Where a mount begins: at the root, unless who mounts it sees only a part of it.
    fn root_for_caller(&self, superblock: &Superblock) -> Result<Arc<Dentry>> {
        Ok(superblock.root().clone())
    }

    /// Agrees to a change between reading only and writing, before it is made.
    fn change_read_only(&self, _read_only: bool) -> Result<()> {
        Ok(())
    }

    /// Handles of its files, if it has any.
    fn handles(&self) -> Option<&dyn Handles> {
        None
    }

    /// An extension point; rarely needed.
    fn as_any(&self) -> &dyn core::any::Any;
}

/// Who may mount a type of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountedBy {
    /// Only who is privileged in the first name space of users: what is on a device may be made to harm the kernel.
    Administrator,
    /// Who is privileged in his own name space of users, to which the instance belongs then.
    Users,
    /// Who is privileged in the name space of users that owns what it shows. All mounts show the same.
    OwnersOfContent,
    /// Who is privileged in his own name space of users. All mounts show the same.
    Everybody,
}

/// A type of file system, as named in `mount(2)`.
pub trait FileSystemType: Send + Sync {
    /// The name.
    fn name(&self) -> &'static str;

    /// Whether its name may be followed by a point and the name of the program that makes the files (`fuse.sshfs`).
    fn has_subtypes(&self) -> bool {
        false
    }

    /// Whether it needs a block device (no `nodev` in `/proc/filesystems`).
    fn needs_device(&self) -> bool {
        false
    }

    /// Who may mount it.
    fn mounted_by(&self) -> MountedBy {
        MountedBy::Administrator
    }

    /// Whether normal users may mount it in name spaces that are private to them: it bears whatever they may have its content be.
    fn is_safe_for_users(&self) -> bool {
        matches!(self.mounted_by(), MountedBy::Users | MountedBy::Everybody)
    }

    /// Makes an instance, or returns the one that is shared by all mounts.
    fn mount(&'static self, source: &[u8], options: &[u8]) -> Result<Arc<Superblock>>;

    /// Makes an instance from what is at places in the tree, which its options name. Only asked by `mount(2)`.
    fn mount_at(
        &'static self,
        context: &PathContext<'_>,
        source: &[u8],
        options: &[u8],
    ) -> Result<Arc<Superblock>> {
        let _ = context;
        self.mount(source, options)
    }

    /// Makes an instance of what is on a block device. Called once for each device that is mounted, however often.
    fn mount_device(
        &'static self,
        device: &Arc<BlockDevice>,
        read_only: bool,
        options: &[u8],
    ) -> Result<Arc<Superblock>> {
        let _ = (device, read_only, options);
        Err(Error::NotBlockDevice)
    }
}

/// Properties of an instance that the file layer acts on.
#[derive(Clone, Copy, Debug, Default)]
pub struct SuperblockTraits {
    /// Entries can vanish or change meaning behind the file layer's back: cached ones are asked about.
    pub volatile: bool,
    /// Absent names are not worth caching.
    pub no_negative_entries: bool,
    /// Looking a name up is all there is: making one that is absent fails with `ENOENT`, whoever asks (`proc`).
    pub lookup_only: bool,
    /// Files may have access lists.
    pub access_lists: bool,
    /// A directory has one name, and whatever says otherwise is damage: a second entry of one is refused.
    pub one_name: bool,
    /// Device nodes, set-user-id programs and programs are of no effect (`proc`, `sysfs`).
    pub no_devices: bool,
    /// It keeps something that is free when unmounting it returns: what takes it apart is waited for.
    pub awaited: bool,
    /// Nothing can be executed from it.
    pub no_execute: bool,
    /// Its files are in no tree of mounts, but may be bound to places there (`nsfs`).
    pub bound_from_nowhere: bool,
    /// What `statx` may show of the flags of its files, numbered as in [`FileFlags`](crate::file_flags::FileFlags).
    pub attributes: u32,
    /// The size that `stat` recommends for transfers; 0: a page. Programs buffer that much.
    pub block_bytes: u32,
    /// How many file systems stand on each other here: 0 for one whose files are its own, at most [`STACKED_MAX`]. The locks of each height
    /// are a class of their own, taken before those below.
    pub stacked: u8,
}

/// Most file systems on top of another one: each takes kernel stack.
pub const STACKED_MAX: u8 = 2;

/// A device number for files that are on none.
pub fn anonymous_device() -> DeviceNumber {
    // Relaxed: only uniqueness matters.
    DeviceNumber::new(0, NEXT_ANONYMOUS_DEVICE.fetch_add(1, Ordering::Relaxed))
}

/// One instance of a file system.
pub struct Superblock {
    device: DeviceNumber,
    file_system: &'static str,
    /// The name of the type that it is shown as, where one type is built from another.
    shown_as: Once<&'static str>,
    /// The name of the program that makes the files, shown behind that of the type.
    subtype: Once<Arc<[u8]>>,
    magic: u64,
    traits: SuperblockTraits,
    read_only: AtomicBool,
    mounts: AtomicU32,
    root: Once<Arc<Dentry>>,
    /// What its inodes have of it.
    link: SharedOwner<SuperblockLink>,
    rename: sched::Mutex<()>,
    /// Where its files' pages live.
    backing: Once<Arc<BackingDevice>>,
    /// The name space of users that it belongs to; the first one if nothing was said.
    owner: Once<UserSpace>,
    /// What groups of `fanotify` want to hear of its files.
    marks: MarkList,
    operations: Box<dyn SuperblockOperations>,
}

/// What every inode has of its file system. Its handles are counted per CPU: files are made and removed on all of them.
pub(crate) struct SuperblockLink {
    pub(crate) device: DeviceNumber,
    pub(crate) block_bytes: u32,
    pub(crate) attributes: u32,
    pub(crate) stacked: u8,
    pub(crate) access_lists: AtomicBool,
    /// Set before there are inodes.
    pub(crate) superblock: Once<Weak<Superblock>>,
}

/// Minor numbers of file systems without a device, handed out ascending.
static NEXT_ANONYMOUS_DEVICE: AtomicU32 = AtomicU32::new(1);

impl Superblock {
    /// A new instance without a device. `make_root` makes the root inode; it gets a handle of the instance.
    pub fn new(
        file_system: &'static str,
        magic: u64,
        traits: SuperblockTraits,
        operations: Box<dyn SuperblockOperations>,
        make_root: impl FnOnce(&Arc<Superblock>) -> Result<Arc<Inode>>,
    ) -> Result<Arc<Self>> {
        Self::with_number(anonymous_device(), file_system, magic, traits, operations, make_root)
    }

    /// A new instance that is on a block device.
    pub fn on_device(
        device: &BlockDevice,
        file_system: &'static str,
        magic: u64,
        traits: SuperblockTraits,
        operations: Box<dyn SuperblockOperations>,
        make_root: impl FnOnce(&Arc<Superblock>) -> Result<Arc<Inode>>,
    ) -> Result<Arc<Self>> {
        let number = device.number();
        let number = DeviceNumber::new(number.major, number.minor);
        Self::with_number(number, file_system, magic, traits, operations, make_root)
    }

    fn with_number(
        device: DeviceNumber,
        file_system: &'static str,
        magic: u64,
        traits: SuperblockTraits,
        operations: Box<dyn SuperblockOperations>,
        make_root: impl FnOnce(&Arc<Superblock>) -> Result<Arc<Inode>>,
    ) -> Result<Arc<Self>> {
        let link = SharedOwner::try_new(SuperblockLink {
            device,
            block_bytes: traits.block_bytes,
            attributes: traits.attributes,
            stacked: traits.stacked,
            access_lists: AtomicBool::new(traits.access_lists),
            superblock: Once::new(),
        })?;
        let superblock = allocation::arc(Self {
            device,
            file_system,
            shown_as: Once::new(),
            subtype: Once::new(),
            magic,
            traits,
            read_only: AtomicBool::new(false),
            mounts: AtomicU32::new(0),
            root: Once::new(),
            link,
            rename: match traits.stacked {
                0 => sched::Mutex::named("rename", ()),
                1 => sched::Mutex::named("rename above a file system", ()),
                _ => sched::Mutex::named("rename above two file systems", ()),
            },
            backing: Once::new(),
            owner: Once::new(),
            marks: MarkList::new(),
            operations,
        })?;
        superblock.link.superblock.call_once(|| Arc::downgrade(&superblock));
        let root = Dentry::new_root(make_root(&superblock)?, traits)?;
        superblock.root.call_once(|| root);
        Ok(superblock)
    }

    /// The root directory.
    pub fn root(&self) -> &Arc<Dentry> {
        self.root.get().expect("set before `new` returns")
    }

    /// What an inode of it holds.
    pub(crate) fn link(&self) -> &Shared<SuperblockLink> {
        &self.link
    }

    pub(crate) fn marks(&self) -> &MarkList {
        &self.marks
    }

    /// The device number that `stat` shows.
    pub fn device(&self) -> DeviceNumber {
        self.device
    }

    /// Whether a block device is claimed for it.
    pub fn is_on_device(&self) -> bool {
        self.device.major != 0
    }

    /// The type's name.
    pub fn file_system(&self) -> &'static str {
        self.shown_as.get().copied().unwrap_or(self.file_system)
    }

    /// Shows it as an instance of another type: one that is built from this type. Only the first call counts.
    pub fn show_as(&self, file_system: &'static str) {
        self.shown_as.call_once(|| file_system);
    }

    /// Names the program that makes the files. Only the first call counts.
    ///
    /// # Errors
    /// No memory.
    pub fn set_subtype(&self, subtype: &[u8]) -> Result<()> {
        let subtype = allocation::arc_bytes(subtype)?;
        self.subtype.call_once(|| subtype);
        Ok(())
    }

    /// That name.
    pub fn subtype(&self) -> Option<&Arc<[u8]>> {
        self.subtype.get()
    }

    /// The type's magic number.
    pub fn magic(&self) -> u64 {
        self.magic
    }

    /// What the file layer acts on.
    #[inline]
    pub fn traits(&self) -> SuperblockTraits {
        self.traits
    }

    /// Whether nothing may be changed, whatever the mount.
    #[inline]
    pub fn read_only(&self) -> bool {
        // Relaxed: a flag of its own.
        self.read_only.load(Ordering::Relaxed)
    }

    /// Changes that.
    pub fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Relaxed);
    }

    /// Whether files may have access lists.
    pub fn set_access_lists(&self, access_lists: bool) {
        self.link.access_lists.store(access_lists, Ordering::Relaxed);
    }

    /// Held over renames between directories: while it is held, no directory's ancestors change.
    pub fn rename_lock(&self) -> &sched::Mutex<()> {
        &self.rename
    }

    /// Sets where its files' pages live, so that `syncfs` can tell what went wrong there. Only the first call counts.
    pub fn set_backing(&self, backing: Arc<BackingDevice>) {
        self.backing.call_once(|| backing);
    }

    /// Where its files' pages live, if that was said.
    pub fn backing(&self) -> Option<&Arc<BackingDevice>> {
        self.backing.get()
    }

    /// Sets the name space of users that it belongs to. Only the first call counts.
    pub fn set_owner(&self, owner: &UserSpace) {
        self.owner.call_once(|| owner.clone());
    }

    /// The name space of users that it belongs to: ids that this does not know can't own files of it, its device nodes are of no use in a later one, and its
    /// set-user-id programs only there.
    #[inline]
    pub fn owner(&self) -> &UserSpace {
        self.owner.get().unwrap_or(UserSpace::FIRST)
    }

    /// Errors of writing its files back, if they are written anywhere.
    #[inline]
    pub fn write_errors(&self) -> Option<&WriteErrors> {
        self.backing().map(|backing| backing.write_errors())
    }

    /// The file system's part.
    pub fn operations(&self) -> &dyn SuperblockOperations {
        &*self.operations
    }

    /// Changes the file system's own options.
    ///
    /// # Errors
    /// Those of the file system: `EINVAL` for options that it does not know.
    pub fn remount(&self, options: &[u8]) -> Result<()> {
        self.operations.remount(self, options)
    }

    /// What `statfs` shows.
    pub fn status(&self) -> FileSystemStatus {
        self.completed(self.operations.status())
    }

    /// What `statfs` shows to a program.
    ///
    /// # Errors
    /// What the file system says.
    pub fn status_for_caller(&self) -> Result<FileSystemStatus> {
        self.operations.status_for_caller().map(|status| self.completed(status))
    }

    fn completed(&self, status: FileSystemStatus) -> FileSystemStatus {
        FileSystemStatus { magic: self.magic, id: self.device.encode(), ..status }
    }

    /// Ends it, unless it is still mounted. May sleep.
    pub fn finish(&self) {
        if self.mounts.load(Ordering::Acquire) == 0 {
            self.operations.finish();
        }
    }

    pub(crate) fn mount_added(&self) {
        // Relaxed: guarded by the references that mounts hold.
        self.mounts.fetch_add(1, Ordering::Relaxed);
    }

    /// The last mount gone means that no path leads in: the cached tree is taken apart, since its entries refer to
    /// each other in both directions.
    pub(crate) fn mount_removed(&self) {
        if self.mounts.fetch_sub(1, Ordering::AcqRel) == 1 {
            crate::dentry::forget_tree(self.root());
        }
    }
}

/// File systems that are on devices, mounted or about to go.
static ON_DEVICES: sched::Mutex<Vec<Weak<Superblock>>> =
    sched::Mutex::named("file systems on devices", Vec::new());

/// The file system on a device: the one that is mounted already, or a new instance.
///
/// # Errors
/// What [`FileSystemType::mount_device`] says; `EBUSY` when it is mounted as another type, or for reading where it is to be written or the
/// other way round.
pub fn mount_device(
    file_system: &'static dyn FileSystemType,
    device: &Arc<BlockDevice>,
    read_only: bool,
    options: &[u8],
) -> Result<Arc<Superblock>> {
    let number = DeviceNumber::new(device.number().major, device.number().minor);
    let mut known = ON_DEVICES.lock();
    known.retain(|superblock| superblock.strong_count() > 0);
    let present = known.iter().filter_map(Weak::upgrade).find(|superblock| superblock.device == number);
    if let Some(superblock) = present {
        let same = superblock.file_system == file_system.name() && superblock.read_only() == read_only;
        return if same { Ok(superblock) } else { Err(Error::Busy) };
    }
    allocation::reserve(&mut known, 1)?;
    let superblock = file_system.mount_device(device, read_only, options)?;
    superblock.set_read_only(read_only || superblock.read_only());
    known.push(Arc::downgrade(&superblock));
    Ok(superblock)
}

static TYPES: SpinLock<Vec<&'static dyn FileSystemType>> = SpinLock::new(Vec::new());

/// Adds a type at start-up.
pub fn register_file_system(file_system: &'static dyn FileSystemType) {
    TYPES.lock().push(file_system);
}

/// The type with this name, which may have a subtype behind it. Fails with `ENODEV`.
pub fn find_file_system(name: &[u8]) -> Result<&'static dyn FileSystemType> {
    let found = find_exactly(name);
    match subtype_of(name) {
        Some(subtype) if found.is_none() => find_exactly(&name[..name.len() - subtype.len() - 1])
            .filter(|known| known.has_subtypes())
            .ok_or(Error::NoDevice),
        _ => found.ok_or(Error::NoDevice),
    }
}

/// What is behind the first point of a type's name.
pub fn subtype_of(name: &[u8]) -> Option<&[u8]> {
    let point = name.iter().position(|&byte| byte == b'.')?;
    Some(&name[point + 1..])
}

fn find_exactly(name: &[u8]) -> Option<&'static dyn FileSystemType> {
    TYPES.lock().iter().find(|known| known.name().as_bytes() == name).copied()
}

/// Calls `each` for every registered type, in the order of registration.
pub fn for_each_file_system(mut each: impl FnMut(&'static dyn FileSystemType)) {
    let mut index = 0;
    loop {
        let file_system = TYPES.lock().get(index).copied();
        let Some(file_system) = file_system else { return };
        each(file_system);
        index += 1;
    }
}
