//! The file system `cgroup2`: one instance for all mounts. A mount in a name space of groups shows that one's root.

use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use sync::Once;
use vfs::attributes::FileSystemStatus;
use vfs::dentry::Dentry;
use vfs::inode::Inode;
use vfs::superblock::{FileSystemType, Superblock, SuperblockOperations, SuperblockTraits};
use vfs::{Error, Result, allocation};

use crate::{directory, programs, tree};

/// `CGROUP2_SUPER_MAGIC`
const MAGIC: u64 = 0x6367_7270;
const ROOT_MODE: u32 = 0o755;

/// The type `cgroup2`.
pub struct Cgroup2 {
    instance: Once<Arc<Superblock>>,
}

/// `cgroup2`, registered at start-up.
pub static CGROUP2: Cgroup2 = Cgroup2 { instance: Once::new() };

/// Registers the file system type. Once, at start-up.
pub fn register() {
    vfs::superblock::register_file_system(&CGROUP2);
}

/// The option `nsdelegate`: name spaces are borders of delegation.
static NAME_SPACES_DELEGATE: AtomicBool = AtomicBool::new(false);

pub(crate) fn delegates_to_name_spaces() -> bool {
    NAME_SPACES_DELEGATE.load(Ordering::Relaxed)
}

pub(crate) fn set_delegates_to_name_spaces(delegates: bool) {
    NAME_SPACES_DELEGATE.store(delegates, Ordering::Relaxed);
}

/// Applies mount options, which only the first name space may change.
fn apply(options: &[u8]) -> Result<()> {
    let mut delegates = false;
    for option in options.split(|&byte| byte == b',').filter(|option| !option.is_empty()) {
        match option {
            b"nsdelegate" => delegates = true,
            _ => return Err(Error::Invalid),
        }
    }
    if programs::is_in_first_space() {
        set_delegates_to_name_spaces(delegates);
    }
    Ok(())
}

struct Instance;

impl SuperblockOperations for Instance {
    fn status(&self) -> FileSystemStatus {
        FileSystemStatus {
            block_size: machine::address::PAGE_SIZE as u64,
            name_length: 255,
            ..FileSystemStatus::default()
        }
    }

    fn show_options(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        if delegates_to_name_spaces() { out.write_str(",nsdelegate") } else { Ok(()) }
    }

    fn remount(&self, _superblock: &Superblock, options: &[u8]) -> Result<()> {
        apply(options)
    }

    fn root_for_caller(&self, superblock: &Superblock) -> Result<Arc<Dentry>> {
        let view = programs::view();
        let mut place = superblock.root().clone();
        let depth = view.depth as usize;
        for above in (0..depth).rev() {
            let group = view.upwards().nth(above).ok_or(Error::NotFound)?;
            place = vfs::walk::find_entry(&place, group.name.as_bytes())?;
        }
        Ok(place)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Cgroup2 {
    fn instance(&self) -> Result<&Arc<Superblock>> {
        if let Some(instance) = self.instance.get() {
            return Ok(instance);
        }
        let traits = SuperblockTraits {
            volatile: true,
            no_negative_entries: true,
            no_devices: true,
            no_execute: true,
            ..SuperblockTraits::default()
        };
        let root = tree::root();
        let superblock =
            Superblock::new("cgroup2", MAGIC, traits, allocation::boxed(Instance)?, |superblock| {
                let attributes = directory::attributes(root, ROOT_MODE, 0, 0);
                let inode: Arc<Inode> = Inode::new(superblock, attributes, directory::operations(root))?;
                Ok(inode)
            })?;
        let superblock = self.instance.call_once(|| superblock);
        directory::keep_own(root, superblock.root().existing()?.clone())?;
        Ok(superblock)
    }
}

impl FileSystemType for Cgroup2 {
    fn name(&self) -> &'static str {
        "cgroup2"
    }

    fn mount(&'static self, _source: &[u8], options: &[u8]) -> Result<Arc<Superblock>> {
        apply(options)?;
        self.instance().cloned()
    }
}
