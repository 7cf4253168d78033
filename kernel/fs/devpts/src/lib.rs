//! `devpts`: the slaves of pseudo-terminals as files, and `ptmx`.
//!
//! There is one instance for all mounts. Its directory has a node for each pair that exists ([`Slaves`] is told by crate
//! `tty` when one comes or goes) and the multiplexer. A slave's node belongs to whoever opened the master.
//!
//! Names come and go without anybody asking the file layer, so the instance is *volatile*: cached entries are checked
//! against the table at each use.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod directory;
mod slaves;

use alloc::sync::Arc;
use core::any::Any;
use core::fmt;

use sync::SpinLock;
use tty::pseudo::Pair;
use vfs::attributes::{DeviceNumber, FileKind, FileSystemStatus};
use vfs::inode::{Inode, InodeAttributes};
use vfs::superblock::{FileSystemType, MountedBy, Superblock, SuperblockOperations, SuperblockTraits};
use vfs::{Result, allocation};

use directory::{ROOT_NUMBER, RootDirectory};
pub use slaves::Slaves;

/// `DEVPTS_SUPER_MAGIC`
const MAGIC: u64 = 0x1cd1;
const BLOCK_BYTES: u64 = 4096;

struct DevPts {
    instance: SpinLock<Option<Arc<Superblock>>>,
}

static DEVPTS: DevPts = DevPts { instance: SpinLock::named("devpts", None) };

/// Registers the file system type and the table of slaves. Once, at start-up.
pub fn register() {
    vfs::superblock::register_file_system(&DEVPTS);
    tty::pseudo::register_directory(slaves::table());
}

/// The pair with a number.
pub fn find(number: u32) -> Option<Arc<Pair>> {
    slaves::table().find(number)
}

struct Instance;

impl SuperblockOperations for Instance {
    fn status(&self) -> FileSystemStatus {
        FileSystemStatus {
            magic: MAGIC,
            block_size: BLOCK_BYTES,
            name_length: 255,
            ..FileSystemStatus::default()
        }
    }

    fn show_options(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str(",gid=5,mode=620,ptmxmode=666")
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl FileSystemType for DevPts {
    fn mounted_by(&self) -> MountedBy {
        MountedBy::Everybody
    }

    fn name(&self) -> &'static str {
        "devpts"
    }

    fn mount(&'static self, _source: &[u8], _options: &[u8]) -> Result<Arc<Superblock>> {
        if let Some(instance) = &*self.instance.lock() {
            return Ok(instance.clone());
        }
        let traits = SuperblockTraits {
            volatile: true,
            no_negative_entries: true,
            block_bytes: 1024,
            ..SuperblockTraits::default()
        };
        let operations = allocation::boxed(Instance)?;
        let superblock = Superblock::new("devpts", MAGIC, traits, operations, |superblock| {
            let attributes = InodeAttributes {
                number: ROOT_NUMBER,
                kind: FileKind::Directory,
                mode: 0o755,
                user: 0,
                group: 0,
                links: 2,
                special: DeviceNumber::default(),
                size: 0,
            };
            let inode: Arc<Inode> = Inode::new(superblock, attributes, RootDirectory::new())?;
            Ok(inode)
        })?;
        let mut instance = self.instance.lock();
        Ok(instance.get_or_insert(superblock).clone())
    }
}
