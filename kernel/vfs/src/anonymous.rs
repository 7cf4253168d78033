//! Inodes of files that are in no directory: pipes, event counters, sockets.
//!
//! Files that only carry an object (`eventfd`, `epoll`, …) share one inode; pipes and sockets have one each, since they
//! have owners, times and numbers of their own. Nobody can walk here; the internal mount is only there for
//! `/proc/self/fd`.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};

use machine::cpu::MAX_CPUS;
use memory::per_cpu::Shared;
use sync::{Once, PerCpu, per_cpu};

use crate::attributes::{DeviceNumber, FileKind, FileSystemStatus};
use crate::flags::MountFlags;
use crate::inode::{Inode, InodeAttributes, InodeOperations};
use crate::mount::Mount;
use crate::superblock::{Superblock, SuperblockOperations, SuperblockTraits};
use crate::{Result, allocation};

/// `ANON_INODE_FS_MAGIC`
const MAGIC: u64 = 0x0904_1934;

struct Nowhere;

impl SuperblockOperations for Nowhere {
    fn status(&self) -> FileSystemStatus {
        FileSystemStatus {
            block_size: machine::address::PAGE_SIZE as u64,
            name_length: 255,
            ..FileSystemStatus::default()
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct Plain;

impl InodeOperations for Plain {}

struct Home {
    superblock: Arc<Superblock>,
    shared: Arc<Inode>,
    mount: Shared<Mount>,
}

static HOME: Once<Home> = Once::new();
/// Inodes made so far on each CPU: numbers are unique by their CPU.
static MADE: PerCpu<AtomicU64> = per_cpu!(AtomicU64::new(0));
/// The first number beside that of the shared inode.
const FIRST_NUMBER: u64 = 2;

fn home() -> Result<&'static Home> {
    if let Some(home) = HOME.get() {
        return Ok(home);
    }
    let operations = allocation::boxed(Nowhere)?;
    let mut shared = None;
    let superblock = Superblock::new(
        "anon_inodefs",
        MAGIC,
        SuperblockTraits::default(),
        operations as Box<_>,
        |superblock| {
            let attributes = attributes(1, FileKind::Anonymous, 0o600, 0, 0);
            let inode: Arc<Inode> = Inode::new(superblock, attributes, Plain)?;
            shared = Some(inode.clone());
            Ok(inode)
        },
    )?;
    let shared = shared.ok_or(crate::Error::OutOfMemory)?;
    let mount = Mount::new(superblock.clone(), superblock.root().clone(), b"none", MountFlags::empty())?;
    // It stays for ever, and every place without a path refers to it.
    Shared::spread(&mount);
    Ok(HOME.call_once(|| Home { superblock, shared, mount }))
}

const fn attributes(number: u64, kind: FileKind, mode: u32, user: u32, group: u32) -> InodeAttributes {
    InodeAttributes { number, kind, mode, user, group, links: 1, special: DeviceNumber::new(0, 0), size: 0 }
}

/// The inode that all files share that only carry an object.
pub fn shared_inode() -> Result<Arc<Inode>> {
    Ok(home()?.shared.clone())
}

/// A new inode of its own: for a pipe or a socket.
pub fn new_inode(kind: FileKind, mode: u32, user: u32, group: u32) -> Result<Arc<Inode>> {
    // Relaxed: only uniqueness matters.
    let cpu = machine::cpu::current();
    let made = MADE.of(cpu).fetch_add(1, Ordering::Relaxed);
    let number = FIRST_NUMBER + made * MAX_CPUS as u64 + cpu.index() as u64;
    let inode = Inode::new(&home()?.superblock, attributes(number, kind, mode, user, group), Plain)?;
    Ok(inode)
}

/// The mount that places of files without a path are in.
pub(crate) fn internal_mount() -> Result<Shared<Mount>> {
    Ok(home()?.mount.clone())
}
