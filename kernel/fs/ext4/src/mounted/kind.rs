//! The types `ext4`, `ext3` and `ext2`: one piece of code, as the features of an image say what it is.

use alloc::boxed::Box;
use alloc::sync::Arc;

use block::registry::BlockDevice;
use vfs::superblock::{FileSystemType, Superblock, SuperblockTraits};
use vfs::{Error, Result};

use super::instance::{Claim, Instance, Operations};

/// What `statfs` calls all three.
const MAGIC: u64 = 0xef53;

struct Kind(&'static str);

static KINDS: [Kind; 3] = [Kind("ext3"), Kind("ext2"), Kind("ext4")];

/// Registers the types. Once, at start-up.
pub fn register() {
    for kind in &KINDS {
        vfs::superblock::register_file_system(kind);
    }
}

impl FileSystemType for Kind {
    fn name(&self) -> &'static str {
        self.0
    }

    fn needs_device(&self) -> bool {
        true
    }

    fn mount(&'static self, _source: &[u8], _options: &[u8]) -> Result<Arc<Superblock>> {
        Err(Error::NotBlockDevice)
    }

    fn mount_device(
        &'static self,
        device: &Arc<BlockDevice>,
        read_only: bool,
        options: &[u8],
    ) -> Result<Arc<Superblock>> {
        if !read_only && device.is_read_only() {
            return Err(Error::ReadOnly);
        }
        // First: replaying the journal writes.
        let claim = Claim::new(device)?;
        let instance = Instance::open(device, read_only, options)?;
        let traits = SuperblockTraits {
            one_name: true,
            attributes: super::flags::ATTRIBUTES,
            access_lists: instance.options().access_lists,
            block_bytes: instance.system().block_bytes().min(machine::address::PAGE_SIZE) as u32,
            ..SuperblockTraits::default()
        };
        let operations = vfs::allocation::boxed(Operations::new(&instance, claim))?;
        let operations: Box<dyn vfs::superblock::SuperblockOperations> = operations;
        let superblock = Superblock::on_device(device, self.0, MAGIC, traits, operations, |superblock| {
            instance.root(superblock)
        })?;
        superblock.set_backing(instance.files.backing().clone());
        superblock.set_read_only(read_only);
        if !read_only {
            instance.start_threads()?;
        }
        super::reclaim::enter(&instance)?;
        let how = if read_only { "reading" } else { "writing" };
        log::info!("{} on {}: mounted for {how}", self.0, device.name());
        Ok(superblock)
    }
}
