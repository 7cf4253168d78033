//! The types: `fuse`, and `fuse.` with the name of the server's program behind it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::RefCell;

use vfs::superblock::{FileSystemType, MountedBy, Superblock, SuperblockOperations, SuperblockTraits};
use vfs::{Error, Result, UserSpace};

use super::instance::{Instance, Operations};
use crate::connection::Connection;
use crate::device::Device;
use crate::options::Options;

/// What `statfs` calls it.
const MAGIC: u64 = 0x6573_5546;

struct Kind;

static KIND: Kind = Kind;

/// Registers the type.
pub(crate) fn register() {
    vfs::superblock::register_file_system(&KIND);
}

/// The name space of users of the calling program.
fn caller_space() -> UserSpace {
    let space = RefCell::new(UserSpace::FIRST.clone());
    vfs::credentials::caller_is(|caller| {
        *space.borrow_mut() = caller.space.clone();
        true
    });
    space.into_inner()
}

impl FileSystemType for Kind {
    fn name(&self) -> &'static str {
        "fuse"
    }

    fn has_subtypes(&self) -> bool {
        true
    }

    /// A server may say anything: that is looked at as what a hostile program says.
    fn mounted_by(&self) -> MountedBy {
        MountedBy::Users
    }

    fn mount(&'static self, _source: &[u8], options: &[u8]) -> Result<Arc<Superblock>> {
        let space = caller_space();
        let options = Options::parse(options, &space)?;
        let file = vfs::caller::file(options.descriptor).map_err(|_| Error::Invalid)?;
        let device = file.object::<Device>().ok_or(Error::Invalid)?;
        // Who has another one's device is not to have him answer for it.
        if !device.space().is_same(&space) || device.is_attached() {
            return Err(Error::Invalid);
        }
        let subtype = options.subtype.clone();
        let connection = Connection::new(options, space)?;
        let instance = Instance::new(&connection)?;
        let traits = SuperblockTraits {
            volatile: true,
            no_negative_entries: true,
            awaited: true,
            ..SuperblockTraits::default()
        };
        let operations: Box<dyn SuperblockOperations> =
            vfs::allocation::boxed(Operations::new(&instance)).inspect_err(|_| instance.end())?;
        let superblock =
            Superblock::new("fuse", MAGIC, traits, operations, |superblock| instance.root(superblock))
                .inspect_err(|_| instance.end())?;
        superblock.set_backing(instance.backing.clone());
        if let Some(subtype) = subtype {
            superblock.set_subtype(&subtype)?;
        }
        device.attach(&connection)?;
        crate::control::enter(&superblock, &connection)?;
        connection.begin()?;
        Ok(superblock)
    }
}
