//! The type `squashfs`, and mounting.

use alloc::boxed::Box;
use alloc::sync::Arc;

use block::registry::BlockDevice;
use vfs::superblock::{FileSystemType, Superblock, SuperblockOperations, SuperblockTraits};
use vfs::{Error, Result};

use super::instance::{Instance, Operations};

/// What `statfs` calls it.
const MAGIC: u64 = 0x7371_7368;

struct Kind;

static KIND: Kind = Kind;

/// Registers the type. Once, at start-up.
pub fn register() {
    vfs::superblock::register_file_system(&KIND);
}

impl FileSystemType for Kind {
    fn name(&self) -> &'static str {
        "squashfs"
    }

    fn needs_device(&self) -> bool {
        true
    }

    fn mount(&'static self, _source: &[u8], _options: &[u8]) -> Result<Arc<Superblock>> {
        Err(Error::NotBlockDevice)
    }

    /// Who asks for writing gets a file system that is only read, as on Linux.
    fn mount_device(
        &'static self,
        device: &Arc<BlockDevice>,
        _read_only: bool,
        options: &[u8],
    ) -> Result<Arc<Superblock>> {
        let known = |option: &[u8]| matches!(option, b"" | b"ro" | b"errors=continue");
        if !options.split(|&byte| byte == b',').all(known) {
            log::warn!("squashfs on {}: unknown options {}", device.name(), options.escape_ascii());
            return Err(Error::Invalid);
        }
        let instance = Instance::open(device)?;
        let operations: Box<dyn SuperblockOperations> = vfs::allocation::boxed(Operations::new(&instance)?)?;
        let superblock = Superblock::on_device(
            device,
            "squashfs",
            MAGIC,
            SuperblockTraits::default(),
            operations,
            |superblock| instance.root(superblock),
        )?;
        superblock.set_read_only(true);
        Ok(superblock)
    }
}
