//! Directories of the host in the guest, at places below its root.
//!
//! The host names a file server for each by a tag ([`Key::Volume`](hostlink_protocol::request::Key::Volume)).

use vfs::flags::{LookupFlags, MountFlags};
use vfs::mount::MountSource;
use vfs::superblock::find_file_system;
use vfs::walk::PathContext;
use vfs::{Error, Result};

use crate::first_program::{DIRECTORY_MODE, look_for_devices};

/// Every call asks the host, who may change the files, too.
const KEEPS_NOTHING: &[u8] = b"trans=virtio,version=9p2000.L,cache=none";
/// The files are the guest's alone.
pub(crate) const KEEPS_ALL: &[u8] = b"trans=virtio,version=9p2000.L,cache=loose";

/// The next word of a description.
pub(crate) fn word<'a>(text: &mut &'a [u8]) -> Result<&'a [u8]> {
    let end = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    *text = rest.get(1..).unwrap_or_default();
    if word.is_empty() { Err(Error::Invalid) } else { Ok(word) }
}

/// How it is mounted, by the options of its description.
pub(crate) fn flags_of(access: &[u8]) -> MountFlags {
    let mut flags = MountFlags::RELATIVE_ACCESS_TIME;
    flags.set(MountFlags::READ_ONLY, access.split(|&byte| byte == b',').any(|word| word == b"ro"));
    flags
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
