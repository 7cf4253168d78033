//! A change of trees of mounts, prepared as a whole and then made at once.
//!
//! # States
//! *Planned*: mounts that are to come and to go are collected, with the lists of children that their parents will have and the places where they will be. All that can
//! fail, fails here; dropping the plan gives up what was made for it, and nothing has changed. *Made* ([`Change::commit`]): nothing can fail.
//!
//! A mount that moves is at its new place before it leaves the old one: who walks there meanwhile finds it at one of them, or at both.
//!
//! # Locking
//! Events propagate between name spaces, so there is one lock for the changes of all (sleeping, before the locks of directories), which a plan holds from
//! its beginning to its end. Readers don't take it. Name spaces that a plan refers to are let go of after the lock: the last handle takes a name space apart,
//! which takes the lock again. So a handle that a plan makes for itself has a place there before it is made ([`Change::home_of`]).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use memory::per_cpu::Shared;
use sched::MutexGuard;
use sync::rcu::{self, RcuBox};

use super::group;
use super::namespace::MountNamespace;
use super::point::{Attachment, ChildMounts, Mount};
use super::policy;
use crate::dentry::{Dentry, DentryFlags};
use crate::{Error, Result, allocation};

/// Mounts that one name space may hold (`/proc/sys/fs/mount-max`).
static MOUNT_MAX: AtomicU64 = AtomicU64::new(100_000);

/// Mounts that one name space may hold.
pub fn mount_max() -> u64 {
    // Relaxed: a word of its own.
    MOUNT_MAX.load(Ordering::Relaxed)
}

/// Changes that; what is there stays.
pub fn set_mount_max(maximum: u64) {
    MOUNT_MAX.store(maximum, Ordering::Relaxed);
}

/// Held over changes. Counts visits of groups and mounts, so that a propagation knows where it has been.
static CHANGES: sched::Mutex<u64> = sched::Mutex::named("changes of mounts", 0);

/// A name space in which mounts come or go.
struct Touched {
    namespace: Arc<MountNamespace>,
    arriving: usize,
}

/// One parent's children.
struct Edit {
    parent: Shared<Mount>,
    remove: Option<Shared<Mount>>,
    add: Option<(Arc<Dentry>, Shared<Mount>)>,
}

/// See the theory of this file.
pub(super) struct Change {
    // Dropped in this order: see "Locking".
    plan: Plan,
    lock: MutexGuard<'static, u64>,
    touched: Vec<Touched>,
}

/// A list of children that a parent will have.
struct NewList {
    parent: Shared<Mount>,
    list: Option<RcuBox<ChildMounts>>,
    gains: bool,
}

#[derive(Default)]
struct Plan {
    edits: Vec<Edit>,
    places: Vec<(Shared<Mount>, Option<RcuBox<Attachment>>)>,
    arrivals: Vec<(Arc<MountNamespace>, Shared<Mount>)>,
    departures: Vec<Shared<Mount>>,
    /// Some of the arrivals are in another name space now.
    transfers: bool,
    root: Option<(Arc<MountNamespace>, Shared<Mount>)>,
    undo: Undo,
}

/// What has happened to mounts already, and is taken back when the change is not made.
#[derive(Default)]
struct Undo {
    /// Made for it.
    made: Vec<Shared<Mount>>,
    /// Made shared for it.
    newly_shared: Vec<Shared<Mount>>,
}

impl Change {
    /// Takes the lock.
    pub(super) fn begin() -> Self {
        Self { plan: Plan::default(), lock: CHANGES.lock(), touched: Vec::new() }
    }

    /// A number for one visit of groups and mounts.
    pub(super) fn next_visit(&mut self) -> u64 {
        *self.lock += 1;
        *self.lock
    }

    /// Keeps the name space until the lock is free, and tells its watchers when the change is made.
    pub(super) fn touch(&mut self, namespace: &Arc<MountNamespace>, arriving: usize) -> Result<()> {
        let known = self.touched.iter_mut().find(|touched| Arc::ptr_eq(&touched.namespace, namespace));
        let arriving_now = match known {
            Some(touched) => {
                touched.arriving += arriving;
                touched.arriving
            }
            None => {
                allocation::push(&mut self.touched, Touched { namespace: namespace.clone(), arriving })?;
                arriving
            }
        };
        if arriving > 0 && (namespace.mount_count() + arriving_now) as u64 > mount_max() {
            return Err(Error::NoSpace);
        }
        if arriving > 0
            && let Some(user) = namespace.user()
        {
            let his = self.touched.iter().filter(|touched| touched.namespace.user() == Some(user));
            policy::check_room(user, his.map(|touched| touched.arriving as u64).sum())?;
        }
        Ok(())
    }

    /// The name space that a mount is in, unless that is being taken apart. It is touched, and kept until the lock is free: everybody else may let go of it meanwhile.
    ///
    /// # Errors
    /// No memory: there is no handle then that could be the last one.
    pub(super) fn home_of(&mut self, mount: &Mount) -> Result<Option<Arc<MountNamespace>>> {
        allocation::reserve(&mut self.touched, 1)?;
        let home = mount.home();
        if let Some(namespace) = &home {
            self.touch(namespace, 0)?;
        }
        Ok(home)
    }

    /// A mount that was made for this change: it is taken apart when that is not made.
    pub(super) fn made(&mut self, mount: &Shared<Mount>) -> Result<()> {
        allocation::push(&mut self.plan.undo.made, mount.clone())
    }

    /// Makes a mount shared, for this change.
    pub(super) fn share(&mut self, mount: &Shared<Mount>) -> Result<()> {
        if mount.relations().group.is_none() {
            allocation::push(&mut self.plan.undo.newly_shared, mount.clone())?;
            group::make_shared(mount)?;
        }
        Ok(())
    }

    /// `mount` will be listed in the name space.
    pub(super) fn arrive(&mut self, namespace: &Arc<MountNamespace>, mount: &Shared<Mount>) -> Result<()> {
        allocation::push(&mut self.plan.arrivals, (namespace.clone(), mount.clone()))
    }

    /// `mount` will be listed in this name space, and not where it is now.
    pub(super) fn transfer(&mut self, namespace: &Arc<MountNamespace>, mount: &Shared<Mount>) -> Result<()> {
        self.plan.transfers = true;
        self.arrive(namespace, mount)
    }

    /// `mount` will be in no name space, and in no group.
    pub(super) fn depart(&mut self, mount: &Shared<Mount>) -> Result<()> {
        group::prepare_to_leave(mount)?;
        allocation::push(&mut self.plan.departures, mount.clone())
    }

    /// `mount` will be on `point` of `parent`, whatever is there now.
    pub(super) fn place(
        &mut self,
        mount: &Shared<Mount>,
        parent: &Shared<Mount>,
        point: &Arc<Dentry>,
    ) -> Result<()> {
        let attachment = allocation::rcu(Attachment { parent: parent.clone(), point: point.clone() })?;
        allocation::push(&mut self.plan.places, (mount.clone(), Some(attachment)))?;
        let add = Some((point.clone(), mount.clone()));
        allocation::push(&mut self.plan.edits, Edit { parent: parent.clone(), remove: None, add })
    }

    /// `mount` will not be where it is now.
    pub(super) fn displace(&mut self, mount: &Shared<Mount>) -> Result<()> {
        let Some((parent, _)) = mount.attachment_now() else { return Ok(()) };
        let remove = Some(mount.clone());
        allocation::push(&mut self.plan.edits, Edit { parent, remove, add: None })
    }

    /// `mount` will not know where it is, but covers that still for those who are there.
    pub(super) fn uproot(&mut self, mount: &Shared<Mount>) -> Result<()> {
        allocation::push(&mut self.plan.places, (mount.clone(), None))
    }

    /// `mount` will be at no place at all.
    pub(super) fn detach(&mut self, mount: &Shared<Mount>) -> Result<()> {
        self.displace(mount)?;
        allocation::push(&mut self.plan.places, (mount.clone(), None))
    }

    /// `mount` will be the name space's root.
    pub(super) fn set_root(&mut self, namespace: &Arc<MountNamespace>, mount: &Shared<Mount>) {
        self.plan.root = Some((namespace.clone(), mount.clone()));
    }

    /// What is left that can fail.
    fn prepare(&mut self) -> Result<Vec<NewList>> {
        let mut lists = Vec::new();
        let edits = &mut self.plan.edits;
        let address = |mount: &Shared<Mount>| Shared::as_ptr(mount) as usize;
        let removed_address = |edit: &Edit| edit.remove.as_ref().map_or(0, address);
        sorting::sort_by_key(edits, |edit| (address(&edit.parent), removed_address(edit)));
        for edits in edits.chunk_by(|one, other| Shared::ptr_eq(&one.parent, &other.parent)) {
            let removed =
                |mount: &Shared<Mount>| edits.binary_search_by_key(&address(mount), removed_address).is_ok();
            let added = || edits.iter().filter_map(|edit| edit.add.as_ref());
            let parent = edits[0].parent.clone();
            let list = parent.changed_children(removed, added())?;
            allocation::push(&mut lists, NewList { parent, list, gains: added().next().is_some() })?;
        }
        for touched in &self.touched {
            touched.namespace.reserve(touched.arriving)?;
        }
        Ok(lists)
    }

    /// Makes the change, or fails and changes nothing.
    pub(super) fn commit(mut self) -> Result<()> {
        let mut lists = self.prepare()?;
        let Self { plan, lock, touched } = self;
        let Plan { edits, places, arrivals, departures, transfers, root, mut undo } = plan;
        undo.made.clear();
        undo.newly_shared.clear();
        for (namespace, mount) in &arrivals {
            namespace.add(mount);
        }
        for (point, _) in edits.iter().filter_map(|edit| edit.add.as_ref()) {
            point.set_flags(DentryFlags::MOUNT_POINT);
        }
        {
            // First where something comes, then where it only goes. When two mounts change places, each is on the other one for a moment: who steps onto
            // mounts goes round in circles meanwhile, so it must not be for long.
            let _unpreempted = rcu::read();
            for NewList { parent, list, .. } in lists.iter_mut().filter(|list| list.gains) {
                parent.replace_children(list.take());
            }
            for (mount, attachment) in places {
                mount.attachment.replace(attachment);
            }
            for NewList { parent, list, .. } in lists.iter_mut().filter(|list| !list.gains) {
                parent.replace_children(list.take());
            }
        }
        let old_root = root.map(|(namespace, root)| (namespace.replace_root(root), namespace));
        for mount in &departures {
            mount.namespace.store(0, Ordering::Release);
        }
        for Touched { namespace, .. } in &touched {
            if transfers || !departures.is_empty() {
                namespace.forget_departed();
            }
            namespace.changed();
        }
        for mount in &departures {
            group::leave(mount);
        }
        drop(lock);
        drop((lists, edits, arrivals, old_root));
        Shared::gather_all(&departures);
        Ok(())
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        for mount in &self.made {
            group::leave(mount);
            mount.attachment.replace(None);
            mount.replace_children(None);
        }
        for mount in &self.newly_shared {
            group::leave_group(mount);
        }
    }
}

#[cfg(test)]
mod tests {
    use memory::fallible::{inject, stop_injection};

    use super::*;
    use crate::flags::MountFlags;

    #[test]
    fn a_name_space_whose_last_handle_a_change_has_ends_after_the_lock() {
        let superblock = crate::anonymous::internal_mount().unwrap().superblock().clone();
        let root = superblock.root().clone();
        let mount = Mount::new(superblock, root, b"none", MountFlags::empty()).unwrap();
        let namespace = MountNamespace::new(mount.clone()).unwrap();
        let mut change = Change::begin();
        let without_memory = {
            // Without memory no handle is made at all: this would wait for ever for the lock that is held.
            let _held = mount.home.lock();
            inject(0);
            change.home_of(&mount)
        };
        assert!(stop_injection().is_some(), "a place for the handle takes memory");
        assert!(matches!(without_memory, Err(Error::OutOfMemory)));
        let found = change.home_of(&mount).unwrap();
        inject(0);
        // Known already: nothing can fail any more.
        assert!(change.home_of(&mount).is_ok_and(|again| again.is_some()));
        assert!(stop_injection().is_none());
        drop((namespace, found));
        assert!(mount.home().is_some());
        drop(change);
        assert!(mount.home().is_none());
        assert!(matches!(Change::begin().home_of(&mount), Ok(None)));
    }
}
