//! The root file system that the host has: a directory behind a file server, or an image on a disk
//! ([`Key::Root`](hostlink_protocol::request::Key::Root)).
//!
//! What may only be read there is the lower layer of an overlay whose upper layer is in memory. An image that is written is ended in good order
//! before the host hears that the command has ended ([`end`]): then it needs no recovery.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;

use block::registry::BlockDevice;
use memory::per_cpu::Shared;
use sync::Once;
use vfs::credentials::Credentials;
use vfs::flags::{LookupFlags, MountFlags};
use vfs::mount::{Mount, MountNamespace, MountSource};
use vfs::superblock::{FileSystemType, Superblock, find_file_system, mount_device};
use vfs::walk::{PathContext, Places};
use vfs::{Error, Result};

use crate::first_program::{CannotStart, DIRECTORY_MODE, look_for_devices};
use crate::shared_folders::{KEEPS_ALL, flags_of, word};

/// What is below the root that programs see, which nobody reaches by a path.
static BELOW: Once<Places> = Once::new();

/// The image that is written.
static WRITTEN: Once<Arc<Superblock>> = Once::new();

/// A root file system, and how it is mounted.
type Root = (Arc<Superblock>, Shared<Mount>);

/// Where the files are.
enum Origin<'a> {
    /// At the file server of this tag.
    Server(&'a [u8]),
    /// On a disk.
    Disk { file_system: &'static dyn FileSystemType, device: Arc<BlockDevice> },
}

impl Origin<'_> {
    fn source(&self) -> Result<MountSource<'_>> {
        Ok(match self {
            Self::Server(tag) => {
                MountSource::New { file_system: find_file_system(b"9p")?, source: tag, options: KEEPS_ALL }
            }
            Self::Disk { file_system, device } => MountSource::Device {
                file_system: *file_system,
                device,
                source: device.name().as_bytes(),
                options: b"",
            },
        })
    }

    /// To be changed by the guest.
    fn mount(&self) -> Result<Root> {
        let (superblock, source) = match self {
            Self::Server(tag) => (
                find_file_system(b"9p")?.mount(tag, KEEPS_ALL)?,
                Cow::Borrowed(core::str::from_utf8(tag).unwrap_or("9p")),
            ),
            Self::Disk { file_system, device } => {
                let superblock = mount_device(*file_system, device, false, b"")?;
                WRITTEN.call_once(|| superblock.clone());
                (superblock, Cow::Owned(format!("/dev/{}", device.name())))
            }
        };
        let flags = MountFlags::RELATIVE_ACCESS_TIME;
        let mount = Mount::new(superblock.clone(), superblock.root().clone(), source.as_bytes(), flags)?;
        Ok((superblock, mount))
    }

    /// To be read; a tmpfs above it takes all changes.
    fn mount_below_memory(&self) -> Result<Root> {
        let flags = MountFlags::RELATIVE_ACCESS_TIME;
        let memory = tmpfs::new_instance("tmpfs", DIRECTORY_MODE)?;
        memory.remount(b"size=50%")?;
        let mount = Mount::new(memory.clone(), memory.root().clone(), b"tmpfs", flags)?;
        let namespace = MountNamespace::new(mount)?;
        let root = namespace.root();
        let places = BELOW.call_once(|| Places { cwd: root.clone(), root, namespace });
        let credentials = Credentials::root();
        let walk = PathContext { places, credentials: &credentials, umask: 0 };
        for directory in [&b"host"[..], b"changes", b"work"] {
            walk.make_directory(&places.root, directory, DIRECTORY_MODE)?;
        }
        let target = walk.walk(&places.root, b"host", LookupFlags::DIRECTORY)?;
        places.namespace.mount(self.source()?, &target, flags | MountFlags::READ_ONLY)?;
        let options = b"lowerdir=/host,upperdir=/changes,workdir=/work";
        let superblock = find_file_system(b"overlay")?.mount_at(&walk, b"overlay", options)?;
        let mount = Mount::new(superblock.clone(), superblock.root().clone(), b"overlay", flags)?;
        Ok((superblock, mount))
    }

    /// What is wrong with an image, in words: who mounts it hears a number.
    #[inline(never)]
    fn reason(&self, error: Error) -> String {
        let Self::Disk { file_system, device } = self else { return error.to_string() };
        let found = if file_system.name() == "squashfs" {
            let looked = squashfs::FileSystem::mount(device.volume()).and_then(|system| system.root());
            looked.err().map(|found| found.to_string())
        } else {
            match ext4::FileSystem::mount(device.volume()) {
                Err(found) => Some(found.to_string()),
                Ok(system) => match system.read_only_because() {
                    Some(feature) => Some(format!("the feature {feature} is not supported: only to be read")),
                    None => system.root().err().map(|found| found.to_string()),
                },
            }
        };
        found.unwrap_or_else(|| error.to_string())
    }
}

/// The disk with this serial number.
fn disk(serial: &[u8]) -> Result<Arc<BlockDevice>> {
    let disks = block::disk::all()?;
    let found = disks.iter().find(|disk| disk.description.serial.as_bytes() == serial);
    found.map(|disk| disk.device.clone()).ok_or(Error::NoDevice)
}

fn find<'a>(source: &'a [u8], kind: &[u8]) -> Result<Origin<'a>> {
    look_for_devices();
    match kind {
        b"" | b"9p" => Ok(Origin::Server(source)),
        kind => Ok(Origin::Disk { file_system: find_file_system(kind)?, device: disk(source)? }),
    }
}

/// Mounts the root file system that the host has.
pub(crate) fn mount(wanted: &[u8]) -> core::result::Result<Root, CannotStart> {
    let mut text = wanted;
    let described = word(&mut text).and_then(|source| Ok((source, word(&mut text)?)));
    let (source, access) = described.map_err(|error| CannotStart::new("root", error))?;
    let origin = find(source, text).map_err(|error| CannotStart::new("root", error))?;
    let mounted = if flags_of(access).contains(MountFlags::READ_ONLY) {
        origin.mount_below_memory()
    } else {
        origin.mount()
    };
    mounted.map_err(|error| CannotStart::new(format!("root: {}", origin.reason(error)), error))
}

/// Nothing is to be written any more: an image on a disk gets what is missing, and needs no recovery then. Who still runs is killed. Sleeps.
pub(crate) fn end() {
    if let Some(superblock) = WRITTEN.get() {
        linux::start::kill_all();
        superblock.set_read_only(true);
        superblock.operations().finish();
    }
}
