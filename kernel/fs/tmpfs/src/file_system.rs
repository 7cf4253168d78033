//! The type `tmpfs`, its instances and their limits.
//!
//! An instance may use so many pages and so many inodes (`size=`, `nr_blocks=`, `nr_inodes=`; half of the memory and as
//! many inodes by default). Pages are charged by the file caches, inodes here. Both are [`Quota`]s: CPUs that make and remove
//! files write no line in common while the limit is far.

use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use machine::address::PAGE_SIZE;
use memory::file_cache::PageBudget;
use memory::huge_pool::HugeQuota;
use memory::per_cpu::{PerCpuBox, Quota, SharedOwner};
use vfs::attributes::{DeviceNumber, FileKind, FileSystemStatus};
use vfs::file_flags::FileFlags;
use vfs::handle::Handles;
use vfs::inode::{Inode, InodeAttributes};
use vfs::superblock::{FileSystemType, MountedBy, Superblock, SuperblockOperations, SuperblockTraits};
use vfs::{Error, PathContext, Result, UserSpace, allocation};

use crate::handles::Exported;
use crate::huge_file::HugeFiles;
use crate::node::TmpNode;

/// `TMPFS_MAGIC`
const MAGIC: u64 = 0x0102_1994;

/// The limits of an instance and what is in use: shared by its inodes and caches.
pub(crate) struct Limits {
    pages: Quota,
    inodes: Quota,
    /// The next number of each CPU; a multiple of the batch when it needs another one.
    numbers: PerCpuBox<AtomicU64>,
    /// Batches of numbers that CPUs have taken.
    batches: AtomicU64,
    /// Regular files have huge pages, which count here.
    pub(crate) huge: Option<HugeFiles>,
}

/// Inode numbers that a CPU takes at once.
const NUMBERS: u64 = 64;

impl PageBudget for Limits {
    fn charge(&self, pages: u64) -> bool {
        self.pages.take(pages)
    }

    fn charge_regardless(&self, pages: u64) {
        // An image may be larger than half of the memory: the limit is on what comes besides.
        self.pages.take_regardless(pages);
    }

    fn release(&self, pages: u64) {
        self.pages.give_back(pages);
    }
}

impl Limits {
    fn new(pages: u64, inodes: u64, huge: Option<HugeFiles>) -> Result<Self> {
        Ok(Self {
            pages: Quota::try_new(pages)?,
            inodes: Quota::try_new(inodes)?,
            numbers: PerCpuBox::try_zeroed().map_err(|_| Error::OutOfMemory)?,
            batches: AtomicU64::new(0),
            huge,
        })
    }

    /// Limits of an instance whose files have huge pages.
    pub(crate) fn of_huge_pages(inodes: u64, quota: Arc<HugeQuota>) -> Result<Self> {
        Self::new(0, inodes, Some(HugeFiles::new(quota)))
    }

    /// The inodes.
    pub(crate) fn inodes(&self) -> &Quota {
        &self.inodes
    }

    /// Counts an inode and returns its number. Fails with `ENOSPC`.
    pub(crate) fn take_inode(&self) -> Result<u64> {
        if self.inodes.take(1) { Ok(self.next_number()) } else { Err(Error::NoSpace) }
    }

    fn next_number(&self) -> u64 {
        // Relaxed: only uniqueness matters. Who moves to another CPU in between throws at most a batch away.
        let own = self.numbers.this();
        let next = |number: u64| (!number.is_multiple_of(NUMBERS)).then_some(number + 1);
        own.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_else(|_| {
            // 0 is no inode's number.
            let first = (self.batches.fetch_add(1, Ordering::Relaxed) * NUMBERS).max(1);
            own.store(first + 1, Ordering::Relaxed);
            first
        })
    }

    /// Gives an inode back.
    pub(crate) fn release_inode(&self) {
        self.inodes.give_back(1);
    }
}

/// Options of an instance.
#[derive(Clone, Copy, Debug)]
struct Options {
    pages: u64,
    inodes: u64,
    mode: u32,
    user: u32,
    group: u32,
}

impl Options {
    fn default_for(total_pages: u64) -> Self {
        Self { pages: total_pages / 2, inodes: total_pages / 2, mode: 0o1777, user: 0, group: 0 }
    }

    /// Parses `size=10m,mode=755`; ids are those of the name space of users. Fails with `EINVAL`.
    fn parse(mut self, text: &[u8], total_pages: u64, users: &UserSpace) -> Result<Self> {
        for option in text.split(|&byte| byte == b',').filter(|option| !option.is_empty()) {
            let mut parts = option.splitn(2, |&byte| byte == b'=');
            let key = parts.next().unwrap_or_default();
            let value = parts.next().unwrap_or_default();
            match key {
                b"size" => self.pages = parse_size(value, total_pages)?.div_ceil(PAGE_SIZE as u64),
                b"nr_blocks" => self.pages = parse_size(value, total_pages)?,
                b"nr_inodes" => self.inodes = parse_size(value, total_pages)?,
                b"mode" => self.mode = parse_number(value, 8)? as u32 & 0o7777,
                b"uid" => self.user = users.kernel_user(parse_id(value)?).ok_or(Error::Invalid)?,
                b"gid" => self.group = users.kernel_group(parse_id(value)?).ok_or(Error::Invalid)?,
                b"inode32" | b"inode64" | b"huge" | b"mpol" | b"noswap" => {}
                _ => return Err(Error::Invalid),
            }
        }
        Ok(self)
    }
}

pub(crate) fn parse_id(text: &[u8]) -> Result<u32> {
    u32::try_from(parse_number(text, 10)?).map_err(|_| Error::Invalid)
}

pub(crate) fn parse_number(text: &[u8], radix: u32) -> Result<u64> {
    let text = core::str::from_utf8(text).map_err(|_| Error::Invalid)?;
    u64::from_str_radix(text, radix).map_err(|_| Error::Invalid)
}

/// A number with `k`, `m`, `g` or `%` (of the memory) behind it.
pub(crate) fn parse_size(text: &[u8], total_pages: u64) -> Result<u64> {
    let Some((&last, front)) = text.split_last() else { return Err(Error::Invalid) };
    let shift = match last.to_ascii_lowercase() {
        b'k' => 10,
        b'm' => 20,
        b'g' => 30,
        b'%' => {
            let percent = parse_number(front, 10)?;
            let pages = total_pages.checked_mul(percent).ok_or(Error::Invalid)? / 100;
            return Ok(pages * PAGE_SIZE as u64);
        }
        _ => return parse_number(text, 10),
    };
    parse_number(front, 10)?.checked_mul(1 << shift).ok_or(Error::Invalid)
}

/// An instance.
pub struct TmpFs {
    pub(crate) limits: SharedOwner<Limits>,
    exported: Exported,
}

impl SuperblockOperations for TmpFs {
    fn status(&self) -> FileSystemStatus {
        let limits = &self.limits;
        let blocks = limits.pages.limit();
        let free = blocks.saturating_sub(limits.pages.used());
        let files = limits.inodes.limit();
        FileSystemStatus {
            magic: MAGIC,
            block_size: PAGE_SIZE as u64,
            blocks,
            blocks_free: free,
            blocks_available: free,
            files,
            files_free: files.saturating_sub(limits.inodes.used()),
            name_length: 255,
            id: 0,
        }
    }

    fn handles(&self) -> Option<&dyn Handles> {
        Some(&self.exported)
    }

    fn show_options(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let pages = self.limits.pages.limit();
        if pages != memory::frame::total_frames() / 2 && pages != 0 {
            write!(out, ",size={}k", pages * (PAGE_SIZE as u64 / 1024))?;
        }
        Ok(())
    }

    fn remount(&self, _superblock: &Superblock, options: &[u8]) -> Result<()> {
        let limits = &self.limits;
        let total = memory::frame::total_frames();
        let mut current = Options::default_for(total);
        current.pages = limits.pages.limit();
        current.inodes = limits.inodes.limit();
        let new = current.parse(options, total, UserSpace::FIRST)?;
        let (pages_before, set) = (limits.pages.limit(), limits.pages.set_limit(new.pages));
        if !set {
            return Err(Error::Invalid);
        }
        if !limits.inodes.set_limit(new.inodes) {
            // What is in use fitted into it just now; if it does not any more, the new limit stays.
            let _was_set = limits.pages.set_limit(pages_before);
            return Err(Error::Invalid);
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The type `tmpfs`.
pub struct TmpFsType {
    name: &'static str,
    default_mode: u32,
}

/// `tmpfs`, to be registered at start-up.
pub static TMPFS: TmpFsType = TmpFsType { name: "tmpfs", default_mode: 0o1777 };
/// `ramfs`: the same without limits unless they are given.
pub static RAMFS: TmpFsType = TmpFsType { name: "ramfs", default_mode: 0o755 };

impl FileSystemType for TmpFsType {
    fn mounted_by(&self) -> MountedBy {
        MountedBy::Users
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn mount(&'static self, _source: &[u8], options: &[u8]) -> Result<Arc<Superblock>> {
        self.make_for(0, 0, options, UserSpace::FIRST)
    }

    /// The root belongs to who mounts it.
    fn mount_at(
        &'static self,
        context: &PathContext<'_>,
        _source: &[u8],
        options: &[u8],
    ) -> Result<Arc<Superblock>> {
        let mounter = context.credentials;
        self.make_for(mounter.user, mounter.group, options, &mounter.space)
    }
}

impl TmpFsType {
    fn make_for(&self, user: u32, group: u32, options: &[u8], users: &UserSpace) -> Result<Arc<Superblock>> {
        let total = memory::frame::total_frames();
        let defaults = Options { mode: self.default_mode, user, group, ..Options::default_for(total) };
        make(self.name, defaults.parse(options, total, users)?)
    }
}

/// An instance for the kernel's own use: `name` is the type that `/proc/mounts` shows (`rootfs`, `devtmpfs`).
pub fn new_instance(name: &'static str, mode: u32) -> Result<Arc<Superblock>> {
    let mut options = Options::default_for(memory::frame::total_frames());
    options.mode = mode;
    make(name, options)
}

fn make(name: &'static str, options: Options) -> Result<Arc<Superblock>> {
    let owner = SharedOwner::try_new(Limits::new(options.pages, options.inodes, None)?)?;
    let limits = owner.clone();
    let operations = allocation::boxed(TmpFs { limits: owner, exported: Exported::new() })?;
    // Linux has no extended attributes in a ramfs, and no flags.
    let is_ramfs = name == RAMFS.name;
    let traits = SuperblockTraits {
        access_lists: !is_ramfs,
        attributes: if is_ramfs { 0 } else { FileFlags::SHOWN.bits() },
        ..SuperblockTraits::default()
    };
    Superblock::new(name, MAGIC, traits, operations, |superblock| {
        let attributes = InodeAttributes {
            number: limits.take_inode()?,
            kind: FileKind::Directory,
            mode: options.mode,
            user: options.user,
            group: options.group,
            links: 2,
            special: DeviceNumber::default(),
            size: 0,
        };
        let node = TmpNode::directory(limits.clone());
        let inode: Arc<Inode> = Inode::new(superblock, attributes, node)?;
        Ok(inode)
    })
}
