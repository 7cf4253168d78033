//! The type `hugetlbfs`: directories as in a tmpfs, and files of huge pages.
//!
//! An instance may have a limit (`size=`), and may keep the least that it shall have of the pool for itself (`min_size=`): both in whole pages, or as a part of what the
//! pool has when it is mounted. Pages are counted by files ([`HugeQuota`]), inodes as in a tmpfs.

use alloc::sync::Arc;
use core::any::Any;
use core::fmt;

use memory::huge_pool::{self, HUGE_PAGE_BYTES, HugeQuota};
use memory::per_cpu::SharedOwner;
use vfs::attributes::{DeviceNumber, FileKind, FileSystemStatus};
use vfs::inode::{Inode, InodeAttributes};
use vfs::superblock::{FileSystemType, MountedBy, Superblock, SuperblockOperations, SuperblockTraits};
use vfs::{Error, PathContext, Result, UserSpace, allocation};

use crate::file_system::{Limits, parse_id, parse_number, parse_size};
use crate::huge_file::HugeFiles;
use crate::node::TmpNode;

/// `HUGETLBFS_MAGIC`
const MAGIC: u64 = 0x9584_58f6;

const DEFAULT_MODE: u32 = 0o755;

#[derive(Clone, Copy, Debug)]
struct Options {
    limit: Option<u64>,
    least: u64,
    /// 0: as many as there may be.
    inodes: u64,
    mode: u32,
    user: u32,
    group: u32,
}

impl Options {
    /// Parses `size=10m,pagesize=2M`; ids are those of the name space of users. Fails with `EINVAL`.
    fn parse(mut self, text: &[u8], users: &UserSpace) -> Result<Self> {
        for option in text.split(|&byte| byte == b',').filter(|option| !option.is_empty()) {
            let mut parts = option.splitn(2, |&byte| byte == b'=');
            let key = parts.next().unwrap_or_default();
            let value = parts.next().unwrap_or_default();
            match key {
                b"size" => self.limit = Some(parse_pages(value)?),
                b"min_size" => self.least = parse_pages(value)?,
                b"nr_inodes" => self.inodes = parse_size(value, 0)?,
                b"mode" => self.mode = parse_number(value, 8)? as u32 & 0o1777,
                b"uid" => self.user = users.kernel_user(parse_id(value)?).ok_or(Error::Invalid)?,
                b"gid" => self.group = users.kernel_group(parse_id(value)?).ok_or(Error::Invalid)?,
                b"pagesize" if parse_size(value, 0)? == HUGE_PAGE_BYTES => {}
                _ => return Err(Error::Invalid),
            }
        }
        if self.limit.is_some_and(|limit| limit < self.least) {
            return Err(Error::Invalid);
        }
        Ok(self)
    }
}

/// Bytes, or a part of the pool, as pages.
fn parse_pages(text: &[u8]) -> Result<u64> {
    match text.strip_suffix(b"%") {
        Some(percent) => {
            let pages = huge_pool::counts().total.checked_mul(parse_number(percent, 10)?);
            Ok(pages.ok_or(Error::Invalid)? / 100)
        }
        None => Ok(parse_size(text, 0)? / HUGE_PAGE_BYTES),
    }
}

/// An instance.
struct HugeFs {
    limits: SharedOwner<Limits>,
    options: Options,
}

impl HugeFs {
    fn quota(&self) -> Option<&HugeQuota> {
        self.limits.huge.as_ref().map(HugeFiles::quota)
    }
}

impl SuperblockOperations for HugeFs {
    /// As on Linux, an instance that neither has a limit nor keeps anything says nothing about its blocks and inodes.
    fn status(&self) -> FileSystemStatus {
        let counted = self.quota().filter(|_| self.options.limit.is_some() || self.options.least > 0);
        let blocks = counted.map_or(0, |quota| quota.limit().unwrap_or(u64::MAX));
        let free = counted.map_or(0, |quota| blocks.saturating_sub(quota.used()));
        let inodes = self.limits.inodes();
        let files = match (counted, inodes.limit()) {
            (None, _) => 0,
            (Some(_), 0) => u64::MAX,
            (Some(_), limit) => limit,
        };
        FileSystemStatus {
            magic: MAGIC,
            block_size: HUGE_PAGE_BYTES,
            blocks,
            blocks_free: free,
            blocks_available: free,
            files,
            files_free: if files == u64::MAX { files } else { files.saturating_sub(inodes.used()) },
            name_length: 255,
            id: 0,
        }
    }

    fn show_options(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let options = &self.options;
        for (name, id) in [("uid", options.user), ("gid", options.group)] {
            if id != 0 {
                write!(out, ",{name}={id}")?;
            }
        }
        if options.mode != DEFAULT_MODE {
            write!(out, ",mode={:o}", options.mode)?;
        }
        if options.inodes != 0 {
            write!(out, ",nr_inodes={}", options.inodes)?;
        }
        out.write_str(",pagesize=2M")?;
        if let Some(limit) = options.limit {
            write!(out, ",size={}", limit * HUGE_PAGE_BYTES)?;
        }
        if options.least > 0 {
            write!(out, ",min_size={}", options.least * HUGE_PAGE_BYTES)?;
        }
        Ok(())
    }

    /// What refers to the instance may be there a little longer.
    fn finish(&self) {
        if let Some(files) = &self.limits.huge {
            files.end();
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The type `hugetlbfs`.
pub struct HugeFsType;

/// `hugetlbfs`, to be registered at start-up.
pub static HUGETLBFS: HugeFsType = HugeFsType;

impl FileSystemType for HugeFsType {
    fn mounted_by(&self) -> MountedBy {
        MountedBy::Administrator
    }

    fn name(&self) -> &'static str {
        "hugetlbfs"
    }

    fn mount(&'static self, _source: &[u8], options: &[u8]) -> Result<Arc<Superblock>> {
        make(defaults(0, 0).parse(options, UserSpace::FIRST)?)
    }

    /// The root belongs to who mounts it.
    fn mount_at(
        &'static self,
        context: &PathContext<'_>,
        _source: &[u8],
        options: &[u8],
    ) -> Result<Arc<Superblock>> {
        let mounter = context.credentials;
        make(defaults(mounter.user, mounter.group).parse(options, &mounter.space)?)
    }
}

fn defaults(user: u32, group: u32) -> Options {
    Options { limit: None, least: 0, inodes: 0, mode: DEFAULT_MODE, user, group }
}

/// An instance for the kernel's own use.
pub(crate) fn new_instance() -> Result<Arc<Superblock>> {
    make(defaults(0, 0))
}

fn make(options: Options) -> Result<Arc<Superblock>> {
    let quota = HugeQuota::new(options.limit, options.least).map_err(|_| Error::OutOfMemory)?;
    let owner = SharedOwner::try_new(Limits::of_huge_pages(options.inodes, allocation::arc(quota)?)?)?;
    let limits = owner.clone();
    let operations = allocation::boxed(HugeFs { limits: owner, options })?;
    let traits = SuperblockTraits {
        awaited: true,
        block_bytes: HUGE_PAGE_BYTES as u32,
        ..SuperblockTraits::default()
    };
    Superblock::new(HUGETLBFS.name(), MAGIC, traits, operations, |superblock| {
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
        let inode: Arc<Inode> = Inode::new(superblock, attributes, TmpNode::directory(limits.clone()))?;
        Ok(inode)
    })
}
