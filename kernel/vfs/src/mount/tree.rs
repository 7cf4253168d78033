//! Trees of mounts: their members, copies of them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::per_cpu::Shared;

use super::change::Change;
use super::path::Path;
use super::point::Mount;
use crate::flags::MountFlags;
use crate::{Result, allocation};

/// Which mounts of a tree are copied with its top.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Copied {
    /// All that may be bound elsewhere (`MS_REC`).
    Bindable,
    /// As they would come to another name space: without those that keep name spaces.
    Elsewhere,
    /// All of a name space, but for those that keep name spaces.
    NameSpace,
}

/// A copy, member by member.
pub(super) struct TreeCopy {
    pub(super) originals: Vec<Shared<Mount>>,
    pub(super) copies: Vec<Shared<Mount>>,
}

/// A mount and all mounts below it, parents first.
pub(super) fn members(top: &Shared<Mount>) -> Result<Vec<Shared<Mount>>> {
    let mut tree = only(top)?;
    let mut next = 0;
    while next < tree.len() {
        let children = tree[next].children()?;
        allocation::reserve(&mut tree, children.len())?;
        tree.extend(children);
        next += 1;
    }
    Ok(tree)
}

/// A tree of one mount.
pub(super) fn only(mount: &Shared<Mount>) -> Result<Vec<Shared<Mount>>> {
    let mut tree = Vec::new();
    allocation::push(&mut tree, mount.clone())?;
    Ok(tree)
}

/// Whether it keeps a name space of mounts.
pub(super) fn keeps_namespace(mount: &Mount) -> bool {
    mount.root().inode().is_some_and(|inode| inode.operations().mount_namespace().is_some())
}

/// A detached copy of a mount that shows `root`, which has nothing to do with its original.
pub(super) fn copy_mount(change: &mut Change, root: &Path) -> Result<Shared<Mount>> {
    let mount = &root.mount;
    let copy =
        Mount::new(mount.superblock().clone(), Arc::clone(&root.dentry), &mount.source(), mount.flags())?;
    copy.lock_flags(mount.locked_flags());
    change.made(&copy)?;
    Ok(copy)
}

/// Copies the mount that `top` is in, to show that place, and with `below` those on it.
pub(super) fn copy(change: &mut Change, top: &Path, below: Option<Copied>) -> Result<TreeCopy> {
    let first = copy_mount(change, top)?;
    let mut tree = TreeCopy { originals: only(&top.mount)?, copies: only(&first)? };
    let Some(below) = below else { return Ok(tree) };
    let mut next = 0;
    while next < tree.originals.len() {
        let (original, parent) = (tree.originals[next].clone(), tree.copies[next].clone());
        for child in original.children()? {
            let Some((_, point)) = child.attachment_now() else { continue };
            let outside = next == 0 && !point.is_below(&top.dentry);
            let left_out = match below {
                Copied::Bindable => child.relations.lock().unbindable,
                Copied::Elsewhere | Copied::NameSpace => keeps_namespace(&child),
            };
            if outside || left_out {
                continue;
            }
            let copy = copy_mount(change, &Path::root_of(&child))?;
            copy.set_locked(child.is_locked());
            Mount::attach_new(&copy, &parent, &point)?;
            allocation::push(&mut tree.originals, child)?;
            allocation::push(&mut tree.copies, copy)?;
        }
        next += 1;
    }
    Ok(tree)
}

/// Locks what who has the copies could use to see or do more than their maker let him: what is mounted on what, and what the flags forbid.
pub(super) fn lock(copies: &[Shared<Mount>]) {
    let forbidding =
        MountFlags::READ_ONLY | MountFlags::NO_SET_ID | MountFlags::NO_DEVICES | MountFlags::NO_EXECUTE;
    for (index, copy) in copies.iter().enumerate() {
        copy.lock_flags(copy.flags() & forbidding | MountFlags::NO_ACCESS_TIME);
        copy.set_locked(index != 0);
    }
}
