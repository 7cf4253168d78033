//! `memfd_create`: files in memory without a name, and seals.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use memory::file_cache::FileCache;
use memory::per_cpu::Shared;
use sync::Once;
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::credentials::Credentials;
use vfs::dentry::{Dentry, DentryFlags};
use vfs::file::OpenFile;
use vfs::flags::{MountFlags, OpenFlags};
use vfs::inode::NewFile;
use vfs::mount::{Mount, Path};
use vfs::{Error, Result};

use crate::node::TmpNode;

/// Longest name that a program may give (the kernel puts `memfd:` before it).
const NAME_MAX: usize = 249;

/// A seal, as in `F_ADD_SEALS`.
pub struct Seal;

impl Seal {
    /// No more seals.
    pub const SEAL: u32 = 1;
    /// The size can't shrink.
    pub const SHRINK: u32 = 2;
    /// The size can't grow.
    pub const GROW: u32 = 4;
    /// Nothing can be written.
    pub const WRITE: u32 = 8;
    /// Nothing can be written but through existing mappings.
    pub const FUTURE_WRITE: u32 = 16;
    /// The execute bits can't change.
    pub const EXECUTE: u32 = 32;
    const ALL: u32 = 63;
}

/// The seals of a file.
pub struct Seals(AtomicU32);

impl Seals {
    /// Of a file with a name: it has none but that there can be no others, and that one stops nothing.
    pub(crate) const fn none() -> Self {
        Self(AtomicU32::new(Seal::SEAL))
    }

    const fn with(seals: u32) -> Self {
        Self(AtomicU32::new(seals))
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Whether anything but further seals is forbidden.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.get() & !Seal::SEAL != 0
    }

    /// Fails with `EPERM` when one of the seals is set.
    pub(crate) fn check(&self, seals: u32) -> Result<()> {
        if self.get() & seals != 0 { Err(Error::NotPermitted) } else { Ok(()) }
    }

    /// Fails with `EPERM` when the size may not change so.
    pub(crate) fn check_resize(&self, old: u64, new: u64) -> Result<()> {
        match new.cmp(&old) {
            core::cmp::Ordering::Less => self.check(Seal::SHRINK),
            core::cmp::Ordering::Greater => self.check(Seal::GROW),
            core::cmp::Ordering::Equal => Ok(()),
        }
    }
}

/// Where memory files are: mounted nowhere.
struct Home {
    mount: Shared<Mount>,
}

/// Those of files of small pages, and of huge ones.
static HOMES: [Once<Home>; 2] = [const { Once::new() }; 2];

fn home(huge: bool) -> Result<&'static Home> {
    let place = &HOMES[usize::from(huge)];
    if let Some(home) = place.get() {
        return Ok(home);
    }
    let superblock = match huge {
        true => crate::huge_file_system::new_instance()?,
        false => crate::file_system::new_instance("tmpfs", 0o1777)?,
    };
    let mount = Mount::new(superblock.clone(), superblock.root().clone(), b"memfd", MountFlags::NO_DEVICES)?;
    // It stays for ever, and every memory file refers to it.
    Shared::spread(&mount);
    Ok(place.call_once(|| Home { mount }))
}

/// `memfd_create`: `sealing` allows seals, `no_execute` seals the execute bits; with `huge` the file has huge pages of the pool.
pub fn create(
    name: &[u8],
    sealing: bool,
    no_execute: bool,
    huge: bool,
    credentials: &Credentials,
) -> Result<Arc<OpenFile>> {
    if name.len() > NAME_MAX {
        return Err(Error::Invalid);
    }
    let mut seals = if sealing { 0 } else { Seal::SEAL };
    if no_execute {
        seals = Seal::EXECUTE;
    }
    let home = home(huge)?;
    let root = home.mount.root().existing()?;
    let node = root.downcast::<TmpNode>().ok_or(Error::Io)?;
    let new = NewFile {
        kind: FileKind::Regular,
        mode: if no_execute { 0o666 } else { 0o777 },
        access_lists: None,
        user: credentials.user,
        group: credentials.group,
        special: DeviceNumber::default(),
        target: &[],
    };
    let inode = node.make(root, &new)?;
    inode.set_links(0);
    if let Some((own, _)) = inode.downcast::<TmpNode>().and_then(TmpNode::seals) {
        own.0.store(Seals::with(seals).get(), Ordering::Release);
    }
    let mut full_name = vfs::text::Text::new();
    full_name.push_bytes(b"memfd:");
    full_name.push_bytes(name);
    let dentry = Dentry::new_detached(&full_name.finish()?, inode)?;
    dentry.set_flags(DentryFlags::DELETED);
    vfs::tree::open_place(
        Path::new(home.mount.clone(), dentry),
        OpenFlags::READ_WRITE | OpenFlags::LARGE_FILE,
    )
}

fn seals_of(file: &OpenFile) -> Result<(&Seals, &Arc<FileCache>)> {
    file.inode().downcast::<TmpNode>().and_then(TmpNode::seals).ok_or(Error::Invalid)
}

/// `F_GET_SEALS`
pub fn seals(file: &OpenFile) -> Result<u32> {
    Ok(seals_of(file)?.0.get())
}

/// `F_ADD_SEALS`. `EBUSY`: against writing, while the file is mapped.
pub fn add_seals(file: &OpenFile, new: u32) -> Result<()> {
    if !file.flags().writable() {
        return Err(Error::NotPermitted);
    }
    if new & !Seal::ALL != 0 {
        return Err(Error::Invalid);
    }
    let (seals, cache) = seals_of(file)?;
    let _exclusive = file.inode().lock().write();
    seals.check(Seal::SEAL)?;
    if new & Seal::WRITE != 0 && seals.get() & Seal::WRITE == 0 && cache.is_mapped() {
        return Err(Error::Busy);
    }
    seals.0.fetch_or(new, Ordering::AcqRel);
    Ok(())
}

/// Whether a shared mapping may be writable: `EPERM` when sealed against writing.
pub fn check_writable_mapping(file: &OpenFile) -> Result<()> {
    match seals_of(file) {
        Ok((seals, _)) => seals.check(Seal::WRITE | Seal::FUTURE_WRITE),
        Err(_) => Ok(()),
    }
}
