//! Unmounting, also where it propagates to.
//!
//! # What goes
//! The mount (with `MNT_DETACH` all below it), and what is at the same places on all that receive from there. There it goes if nothing else is mounted
//! on it: but what covers its root completely was there before it came, and comes back to its place. What is locked to its parent goes together with that only.
//!
//! Who is in a tree that was detached sees what is locked in it as before, so that nothing is uncovered; the rest of it comes apart.
//!
//! Without `MNT_DETACH` nothing goes if one of them is in use.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use memory::per_cpu::Shared;

use super::change::Change;
use super::group;
use super::namespace::MountNamespace;
use super::path::Path;
use super::point::Mount;
use super::{propagate, tree};
use crate::flags::UnmountFlags;
use crate::{Error, Result, allocation};

/// Marks of one unmount: each is the number of a visit and one of these.
#[derive(Clone, Copy)]
struct Marks {
    candidate: u64,
    goes: u64,
}

fn has_mark(mount: &Mount, mark: u64) -> bool {
    // Relaxed: under the lock of changes.
    mount.mark.load(Ordering::Relaxed) == mark
}

fn set_mark(mount: &Mount, mark: u64) {
    mount.mark.store(mark, Ordering::Relaxed);
}

impl MountNamespace {
    /// Unmounts the mount that `place` is the root of; `process_root` can't be unmounted except lazily.
    ///
    /// # Errors
    /// `EINVAL`: it is not one, or locked. `EBUSY`: in use. `EAGAIN`: it was not marked as expired. No memory.
    pub fn unmount(self: &Arc<Self>, place: Path, flags: UnmountFlags, process_root: &Path) -> Result<()> {
        if flags.contains(UnmountFlags::FORCE) && !place.mount.is_locked() {
            self.check_mount_root(&place)?;
            place.mount.superblock().operations().abort();
        }
        let mut change = Change::begin();
        self.check_mount_root(&place)?;
        let mount = &place.mount;
        let expires = flags.contains(UnmountFlags::EXPIRE);
        let lazily = flags.contains(UnmountFlags::DETACH);
        let forced = flags.intersects(UnmountFlags::FORCE | UnmountFlags::DETACH);
        if mount.is_locked() || expires && (forced || Shared::ptr_eq(mount, &process_root.mount)) {
            return Err(Error::Invalid);
        }
        if Shared::ptr_eq(mount, &self.root_mount()) {
            return Err(if lazily { Error::Invalid } else { Error::Busy });
        }
        if !lazily && mount.has_child(|_| true) {
            return Err(Error::Busy);
        }
        let superblock = mount.superblock().clone();
        let tree = if lazily { tree::members(mount)? } else { tree::only(mount)? };
        drop(place);
        let going = with_counterparts(&mut change, tree)?;
        if !lazily {
            check_unused(&going)?;
            if expires && !going[0].expire() {
                going.iter().for_each(Shared::spread);
                return Err(Error::WouldBlock);
            }
        }
        let planned = plan(&mut change, &going).and_then(|()| change.commit());
        if planned.is_err() && !lazily {
            going.iter().for_each(Shared::spread);
        }
        planned?;
        if !lazily {
            going.iter().for_each(|mount| mount.end_companion());
        }
        drop(going);
        let traits = superblock.traits();
        if !lazily && (superblock.is_on_device() || traits.stacked > 0 || traits.awaited) {
            // What is left of the mounts goes now. So it is here that the file system ends, and the device is free when the call returns.
            sync::rcu::barrier_expedited();
            superblock.finish();
        }
        Ok(())
    }
}

/// The tree, and what goes with it elsewhere.
fn with_counterparts(change: &mut Change, tree: Vec<Shared<Mount>>) -> Result<Vec<Shared<Mount>>> {
    let marks = Marks { candidate: change.next_visit(), goes: change.next_visit() };
    for mount in &tree {
        set_mark(mount, marks.goes);
    }
    let mut candidates = Vec::new();
    for mount in &tree {
        for counterpart in propagate::counterparts(change, mount)? {
            let known = has_mark(&counterpart, marks.goes) || has_mark(&counterpart, marks.candidate);
            let with_parent = || {
                let parent = counterpart.attachment_now().map(|(parent, _)| parent);
                parent
                    .is_some_and(|parent| has_mark(&parent, marks.goes) || has_mark(&parent, marks.candidate))
            };
            if !known && (!counterpart.is_locked() || with_parent()) {
                set_mark(&counterpart, marks.candidate);
                allocation::push(&mut candidates, counterpart)?;
            }
        }
    }
    let mut going = tree;
    // Leaves first: whether a mount goes depends on what is on it.
    for candidate in candidates.into_iter().rev() {
        let stays = |child: &Shared<Mount>| !has_mark(child, marks.goes);
        if !candidate.has_child(|child| stays(child) && !covers(child, &candidate)) {
            set_mark(&candidate, marks.goes);
            allocation::push(&mut going, candidate)?;
        }
    }
    Ok(going)
}

/// Whether a mount is on the root of another one.
fn covers(child: &Mount, mount: &Mount) -> bool {
    child.attachment_now().is_some_and(|(_, point)| Arc::ptr_eq(&point, mount.root()))
}

/// What stays and comes to the place of a mount that goes.
fn cover_of(mount: &Shared<Mount>, goes: u64) -> Option<Shared<Mount>> {
    propagate::mounted_at(mount, mount.root()).filter(|cover| !has_mark(cover, goes))
}

/// Fails if somebody uses one of the mounts. Their references are counted in one place from here on, also if they are not in use.
///
/// References of an idle attached mount: the parent's child list, the name space's list, those of its groups, that of what covers it, and the caller's. Older
/// child lists and attachments of mounts that were on it may hold more until they are dropped after a grace
/// period: then waiting for that decides.
fn check_unused(mounts: &[Shared<Mount>]) -> Result<()> {
    const REFERENCES_WHEN_IDLE: usize = 3;
    let is_used = |mount: &Shared<Mount>| {
        let covers = usize::from(propagate::mounted_at(mount, mount.root()).is_some());
        Shared::count(mount) > REFERENCES_WHEN_IDLE + group::handles(mount) + covers
    };
    Shared::gather_all(mounts);
    if !mounts.iter().any(is_used) {
        return Ok(());
    }
    sync::rcu::barrier_expedited();
    if !mounts.iter().any(is_used) {
        return Ok(());
    }
    mounts.iter().for_each(Shared::spread);
    Err(Error::Busy)
}

fn plan(change: &mut Change, going: &[Shared<Mount>]) -> Result<()> {
    let goes = going[0].mark.load(Ordering::Relaxed);
    for mount in going {
        change.home_of(mount)?;
        if let Some(cover) = cover_of(mount, goes)
            && let Some((parent, point)) = mount.attachment_now()
        {
            change.displace(&cover)?;
            change.place(&cover, &parent, &point)?;
        }
        let parent = mount.attachment_now().map(|(parent, _)| parent);
        if mount.is_locked() && parent.is_some_and(|parent| has_mark(&parent, goes)) {
            change.uproot(mount)?;
        } else {
            change.detach(mount)?;
        }
        change.depart(mount)?;
    }
    Ok(())
}
