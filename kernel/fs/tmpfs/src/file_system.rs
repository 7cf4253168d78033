//! The type `tmpfs`, its instances and their limits.
//!
//! An instance may use so many pages and so many inodes (`size=`, `nr_blocks=`, `nr_inodes=`; half of the memory and as
//! many inodes by default). Pages are charged by the file caches, inodes here. Both are single atomics.

use alloc::sync::{Arc, Weak};
use core::any::Any;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use machine::address::PAGE_SIZE;
use memory::file_cache::PageBudget;
use vfs::attributes::{DeviceNumber, FileKind, FileSystemStatus, Timestamp};
use vfs::inode::{Inode, InodeAttributes};
use vfs::superblock::{FileSystemType, Superblock, SuperblockOperations, SuperblockTraits};
use vfs::{Error, Result, allocation};

use crate::node::TmpNode;

/// `TMPFS_MAGIC`
const MAGIC: u64 = 0x0102_1994;

/// The limits of an instance and what is in use: shared by its inodes and caches.
pub(crate) struct Limits {
    pages_max: AtomicU64,
    pages: AtomicU64,
    inodes_max: AtomicU64,
    inodes: AtomicU64,
    next_number: AtomicU64,
}

impl PageBudget for Limits {
    fn charge(&self, pages: u64) -> bool {
        let maximum = self.pages_max.load(Ordering::Relaxed);
        let update = |used: u64| used.checked_add(pages).filter(|&sum| maximum == 0 || sum <= maximum);
        // Relaxed: a count that guards nothing else.
        self.pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).is_ok()
    }

    fn charge_regardless(&self, pages: u64) {
        // An image may be larger than half of the memory: the limit is on what comes besides.
        let raise = |maximum: u64| (maximum != 0).then(|| maximum.saturating_add(pages));
        let _unlimited = self.pages_max.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raise);
        self.pages.fetch_add(pages, Ordering::Relaxed);
    }

    fn release(&self, pages: u64) {
        self.pages.fetch_sub(pages, Ordering::Relaxed);
    }
}

impl Limits {
    /// Counts an inode and returns its number. Fails with `ENOSPC`.
    pub(crate) fn take_inode(&self) -> Result<u64> {
        let maximum = self.inodes_max.load(Ordering::Relaxed);
        let update = |used: u64| (maximum == 0 || used < maximum).then_some(used + 1);
        self.inodes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).map_err(|_| Error::NoSpace)?;
        Ok(self.next_number.fetch_add(1, Ordering::Relaxed))
    }

    /// Gives an inode back.
    pub(crate) fn release_inode(&self) {
        self.inodes.fetch_sub(1, Ordering::Relaxed);
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

    /// Parses `size=10m,mode=755`. Fails with `EINVAL`.
    fn parse(mut self, text: &[u8], total_pages: u64) -> Result<Self> {
        for option in text.split(|&byte| byte == b',').filter(|option| !option.is_empty()) {
            let mut parts = option.splitn(2, |&byte| byte == b'=');
            let key = parts.next().unwrap_or_default();
            let value = parts.next().unwrap_or_default();
            match key {
                b"size" => self.pages = parse_size(value, total_pages)?.div_ceil(PAGE_SIZE as u64),
                b"nr_blocks" => self.pages = parse_size(value, total_pages)?,
                b"nr_inodes" => self.inodes = parse_size(value, total_pages)?,
                b"mode" => self.mode = parse_number(value, 8)? as u32 & 0o7777,
                b"uid" => self.user = parse_number(value, 10)? as u32,
                b"gid" => self.group = parse_number(value, 10)? as u32,
                b"inode32" | b"inode64" | b"huge" | b"mpol" | b"noswap" => {}
                _ => return Err(Error::Invalid),
            }
        }
        Ok(self)
    }
}

fn parse_number(text: &[u8], radix: u32) -> Result<u64> {
    let text = core::str::from_utf8(text).map_err(|_| Error::Invalid)?;
    u64::from_str_radix(text, radix).map_err(|_| Error::Invalid)
}

/// A number with `k`, `m`, `g` or `%` (of the memory) behind it.
fn parse_size(text: &[u8], total_pages: u64) -> Result<u64> {
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
    pub(crate) limits: Arc<Limits>,
}

impl SuperblockOperations for TmpFs {
    fn status(&self) -> FileSystemStatus {
        let limits = &self.limits;
        let blocks = limits.pages_max.load(Ordering::Relaxed);
        let free = blocks.saturating_sub(limits.pages.load(Ordering::Relaxed));
        let files = limits.inodes_max.load(Ordering::Relaxed);
        FileSystemStatus {
            magic: MAGIC,
            block_size: PAGE_SIZE as u64,
            blocks,
            blocks_free: free,
            blocks_available: free,
            files,
            files_free: files.saturating_sub(limits.inodes.load(Ordering::Relaxed)),
            name_length: 255,
            id: 0,
        }
    }

    fn show_options(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let pages = self.limits.pages_max.load(Ordering::Relaxed);
        if pages != memory::frame::total_frames() / 2 && pages != 0 {
            write!(out, ",size={}k", pages * (PAGE_SIZE as u64 / 1024))?;
        }
        Ok(())
    }

    fn remount(&self, options: &[u8]) -> Result<()> {
        let limits = &self.limits;
        let total = memory::frame::total_frames();
        let mut current = Options::default_for(total);
        current.pages = limits.pages_max.load(Ordering::Relaxed);
        current.inodes = limits.inodes_max.load(Ordering::Relaxed);
        let new = current.parse(options, total)?;
        let too_small = |maximum: u64, used: u64| maximum != 0 && maximum < used;
        if too_small(new.pages, limits.pages.load(Ordering::Relaxed))
            || too_small(new.inodes, limits.inodes.load(Ordering::Relaxed))
        {
            return Err(Error::Invalid);
        }
        limits.pages_max.store(new.pages, Ordering::Relaxed);
        limits.inodes_max.store(new.inodes, Ordering::Relaxed);
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
    fn name(&self) -> &'static str {
        self.name
    }

    fn mount(&'static self, _source: &[u8], options: &[u8]) -> Result<Arc<Superblock>> {
        let total = memory::frame::total_frames();
        let mut defaults = Options::default_for(total);
        defaults.mode = self.default_mode;
        make(self.name, defaults.parse(options, total)?)
    }
}

/// An instance for the kernel's own use: `name` is the type that `/proc/mounts` shows (`rootfs`, `devtmpfs`).
pub fn new_instance(name: &'static str, mode: u32) -> Result<Arc<Superblock>> {
    let mut options = Options::default_for(memory::frame::total_frames());
    options.mode = mode;
    make(name, options)
}

fn make(name: &'static str, options: Options) -> Result<Arc<Superblock>> {
    let limits = allocation::arc(Limits {
        pages_max: AtomicU64::new(options.pages),
        pages: AtomicU64::new(0),
        inodes_max: AtomicU64::new(options.inodes),
        inodes: AtomicU64::new(0),
        next_number: AtomicU64::new(1),
    })?;
    let operations = allocation::boxed(TmpFs { limits: limits.clone() })?;
    Superblock::new(name, MAGIC, SuperblockTraits::default(), operations, |superblock| {
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
        let weak: Weak<Superblock> = Arc::downgrade(superblock);
        let node = TmpNode::directory(limits.clone());
        let inode: Arc<Inode> =
            Inode::with_time(weak, superblock.device(), attributes, node, Timestamp::now())?;
        Ok(inode)
    })
}
