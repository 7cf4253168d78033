//! What is shown of a name space: `/proc/PID/mountinfo` and its kin.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::per_cpu::Shared;

use super::group::Group;
use super::namespace::MountNamespace;
use super::path::{Path, PathPrefix};
use super::point::Mount;
use crate::attributes::DeviceNumber;
use crate::flags::MountFlags;
use crate::{Result, allocation};

/// What `mountinfo` shows of a mount.
pub struct MountDescription {
    /// Its id.
    pub id: u64,
    /// The id of the mount it is attached to.
    pub parent: u64,
    /// The file system's device number.
    pub device: DeviceNumber,
    /// The part of the file system it shows.
    pub root: Vec<u8>,
    /// Where it is, seen from the reader's root.
    pub point: Vec<u8>,
    /// Its flags.
    pub flags: MountFlags,
    /// The peer group that it is in.
    pub shared: Option<u64>,
    /// The peer group that it receives from.
    pub master: Option<u64>,
    /// The nearest one before that which has a mount that the reader sees, if that is another one.
    pub propagate_from: Option<u64>,
    /// Whether it may not be bound elsewhere.
    pub unbindable: bool,
    /// The file system's type.
    pub file_system: &'static str,
    /// The name of the program that makes its files.
    pub subtype: Option<Arc<[u8]>>,
    /// What was given as its source.
    pub source: Arc<[u8]>,
    /// Whether the file system itself is read-only.
    pub read_only: bool,
    /// The mount, for the file system's own options.
    pub mount: Shared<Mount>,
}

impl MountNamespace {
    /// Calls `each` with a description of every mount that can be reached from `root`.
    pub fn describe(&self, root: &Path, mut each: impl FnMut(&MountDescription) -> Result<()>) -> Result<()> {
        for mount in self.all_mounts()? {
            let mut point = Vec::new();
            let prefix = Path::root_of(&mount).write_to(root, false, &mut point)?;
            if prefix == PathPrefix::Unreachable {
                continue;
            }
            let mut within = Vec::new();
            Path::root_of(&mount).write_within_file_system(&mut within)?;
            let relations = mount.relations();
            let propagate_from = match &relations.master {
                Some(master) => self.seen_above(master, root)?,
                None => None,
            };
            each(&MountDescription {
                id: mount.id(),
                parent: mount.parent_id(),
                device: mount.superblock().device(),
                root: within,
                point,
                flags: mount.flags(),
                shared: relations.group.map(|group| group.id()),
                master: relations.master.map(|group| group.id()),
                propagate_from,
                unbindable: relations.unbindable,
                file_system: mount.superblock().file_system(),
                subtype: mount.superblock().subtype().cloned(),
                source: mount.source(),
                read_only: mount.superblock().read_only(),
                mount: mount.clone(),
            })?;
        }
        Ok(())
    }

    /// The first group from `master` upwards that has a mount which is seen from `root`; `None` if that is `master`, or there is none.
    fn seen_above(&self, master: &Arc<Group>, root: &Path) -> Result<Option<u64>> {
        let mut group = master.clone();
        loop {
            let peers = group.peers()?;
            if peers.iter().any(|peer| self.contains(peer) && Path::root_of(peer).is_seen_from(root)) {
                return Ok((!Arc::ptr_eq(&group, master)).then(|| group.id()));
            }
            match peers.first().and_then(|peer| peer.relations().master) {
                Some(above) => group = above,
                None => return Ok(None),
            }
        }
    }
}

impl Path {
    /// Appends the path from the root of the file system to here.
    pub(super) fn write_within_file_system(&self, out: &mut Vec<u8>) -> Result<()> {
        let mut parts = Vec::new();
        let mut current = Arc::clone(&self.dentry);
        while let Some(parent) = current.parent() {
            allocation::push(&mut parts, current.name()?)?;
            current = parent;
        }
        if parts.is_empty() {
            // A file without a place in any tree has its name.
            let is_root = Arc::ptr_eq(&self.dentry, self.mount.superblock().root());
            let name = if is_root { None } else { Some(current.name()?) };
            return allocation::extend(out, name.as_ref().map_or(b"/", |name| name.as_bytes()));
        }
        for name in parts.iter().rev() {
            allocation::reserve(out, name.as_bytes().len() + 1)?;
            out.push(b'/');
            out.extend_from_slice(name.as_bytes());
        }
        Ok(())
    }
}
