//! The type `9p`.

use alloc::boxed::Box;
use alloc::sync::Arc;

use vfs::Result;
use vfs::superblock::{FileSystemType, Superblock, SuperblockOperations, SuperblockTraits};

use super::instance::{Instance, Operations};
use crate::options::{Caching, Carrier, Options};
use crate::{stream, transport};

/// What `statfs` calls it.
const MAGIC: u64 = 0x0102_1997;
/// What `stat` recommends for transfers: a question costs much, the bytes little.
const BLOCK_BYTES: u32 = 128 << 10;

struct Kind;

static KIND: Kind = Kind;

/// Registers the type. Once, at start-up.
pub fn register() {
    vfs::superblock::register_file_system(&KIND);
}

impl FileSystemType for Kind {
    /// A server may say anything: that is looked at as what a hostile host says.
    fn is_safe_for_users(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "9p"
    }

    fn mount(&'static self, source: &[u8], options: &[u8]) -> Result<Arc<Superblock>> {
        let options = Options::parse(options)?;
        let taken = match options.carrier {
            Carrier::Virtio => transport::take(source)?,
            Carrier::Files { from, to } => stream::take(from, to)?,
        };
        let keeps_nothing = options.caching == Caching::None;
        let traits = SuperblockTraits {
            volatile: keeps_nothing,
            no_negative_entries: keeps_nothing,
            block_bytes: BLOCK_BYTES,
            ..SuperblockTraits::default()
        };
        let instance = Instance::open(taken, source, options)?;
        let operations: Box<dyn SuperblockOperations> = vfs::allocation::boxed(Operations::new(&instance))?;
        Superblock::new("9p", MAGIC, traits, operations, |superblock| instance.root(superblock))
            .inspect(|superblock| superblock.set_backing(instance.backing.clone()))
            // The thread would do that, too, but later: until then the transport is taken.
            .inspect_err(|_| instance.end())
    }
}
