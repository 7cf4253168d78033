//! Directories of the host in the guest: as its root, and at places below it.
//!
//! The host names a file server for each by a tag ([`Key::Root`](hostlink_protocol::request::Key::Root), [`Key::Volume`](hostlink_protocol::request::Key::Volume)).

use alloc::sync::Arc;

use memory::per_cpu::Shared;
use sync::Once;
use vfs::credentials::Credentials;
use vfs::flags::{LookupFlags, MountFlags};
use vfs::mount::{Mount, MountNamespace, MountSource};
use vfs::superblock::{Superblock, find_file_system};
use vfs::walk::{PathContext, Places};
use vfs::{Error, Result};

use crate::first_program::{DIRECTORY_MODE, look_for_devices};

/// Every call asks the host, who may change the files, too.
const KEEPS_NOTHING: &[u8] = b"trans=virtio,version=9p2000.L,cache=none";
/// The files are the guest's alone.
const KEEPS_ALL: &[u8] = b"trans=virtio,version=9p2000.L,cache=loose";

/// The next word of a description.
fn word<'a>(text: &mut &'a [u8]) -> Result<&'a [u8]> {
    let end = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    *text = rest.get(1..).unwrap_or_default();
    if word.is_empty() { Err(Error::Invalid) } else { Ok(word) }
}

fn flags_of(access: &[u8]) -> MountFlags {
    let mut flags = MountFlags::RELATIVE_ACCESS_TIME;
    flags.set(MountFlags::READ_ONLY, access.split(|&byte| byte == b',').any(|word| word == b"ro"));
    flags
}

/// What is below the root that programs see, which nobody reaches by a path.
static BELOW: Once<Places> = Once::new();

/// The root file system that the host has. One that may only be read there is changed in memory.
pub(crate) fn root(wanted: &[u8]) -> Result<(Arc<Superblock>, Shared<Mount>)> {
    let mut text = wanted;
    let (tag, access) = (word(&mut text)?, word(&mut text)?);
    look_for_devices();
    if flags_of(access).contains(MountFlags::READ_ONLY) {
        return changed_in_memory(tag);
    }
    let superblock = find_file_system(b"9p")?.mount(tag, KEEPS_ALL)?;
    let mount = Mount::new(superblock.clone(), superblock.root().clone(), tag, flags_of(access))?;
    Ok((superblock, mount))
}

/// What the host has, with a tmpfs above it that takes all changes.
fn changed_in_memory(tag: &[u8]) -> Result<(Arc<Superblock>, Shared<Mount>)> {
    let flags = MountFlags::RELATIVE_ACCESS_TIME;
    let memory = tmpfs::new_instance("tmpfs", DIRECTORY_MODE)?;
    memory.operations().remount(b"size=50%")?;
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
    let source = MountSource::New { file_system: find_file_system(b"9p")?, source: tag, options: KEEPS_ALL };
    places.namespace.mount(source, &target, flags | MountFlags::READ_ONLY)?;
    let options = b"lowerdir=/host,upperdir=/changes,workdir=/work";
    let superblock = find_file_system(b"overlay")?.mount_at(&walk, b"overlay", options)?;
    let mount = Mount::new(superblock.clone(), superblock.root().clone(), b"overlay", flags)?;
    Ok((superblock, mount))
}

/// Mounts a directory of the host. That of the guest is made where it is missing.
pub(crate) fn mount(walk: &PathContext<'_>, volume: &[u8]) -> Result<()> {
    let mut text = volume;
    let (tag, access, place) = (word(&mut text)?, word(&mut text)?, text);
    look_for_devices();
    let root = &walk.places.root;
    let ends = place.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(index, _)| index);
    for end in ends.chain([place.len()]).filter(|&end| end > 0) {
        let parent = &place[..end];
        match walk.walk(root, parent, LookupFlags::FOLLOW) {
            Err(Error::NotFound) => walk.make_directory(root, parent, DIRECTORY_MODE)?,
            found => drop(found?),
        }
    }
    let target = walk.walk(root, place, LookupFlags::FOLLOW | LookupFlags::DIRECTORY)?;
    let is_loose = access.split(|&byte| byte == b',').any(|word| word == b"loose");
    let options = if is_loose { KEEPS_ALL } else { KEEPS_NOTHING };
    let source = MountSource::New { file_system: find_file_system(b"9p")?, source: tag, options };
    walk.places.namespace.mount(source, &target, flags_of(access))
}
