//! Mount name spaces: whose mounts a process sees.
//!
//! # Locking
//! Trees of mounts change under one lock ([`super::change`]). `mounts` (spinning) guards the list and the root.
//!
//! # End
//! The last handle takes the tree apart, and may sleep for that: it is not dropped where that is forbidden, nor while changes are locked.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use memory::per_cpu::Shared;
use sync::SpinLock;

use super::change::Change;
use super::group;
use super::path::Path;
use super::point::Mount;
use super::policy;
use crate::attributes::DeviceNumber;
use crate::poll::PollList;
use crate::superblock::Superblock;
use crate::user_space::{Owner, UserSpace};
use crate::{Result, allocation};

/// A name space of mounts.
pub struct MountNamespace {
    id: u64,
    owner: Owner,
    /// The user whom it is private to, who may mount in it without privilege.
    user: Option<u32>,
    /// It is nobody's view: the tree of a descriptor of `open_tree` or `fsmount`, until it is attached somewhere.
    detached: bool,
    mounts: SpinLock<Mounts>,
    /// Counts changes, so that whoever has `/proc/self/mounts` open learns of them.
    events: AtomicU64,
    watchers: PollList,
}

struct Mounts {
    root: Shared<Mount>,
    /// All mounts in the order in which they were attached.
    list: Vec<Shared<Mount>>,
}

/// Name space ids begin at 1: 0 stands for none.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl MountNamespace {
    /// A name space with one mount, its root.
    pub fn new(root: Shared<Mount>) -> Result<Arc<Self>> {
        let namespace = Self::empty(root.clone(), Owner::FIRST, None, false)?;
        namespace.reserve(1)?;
        namespace.add(&root);
        Ok(namespace)
    }

    /// A name space that will have this root; nothing is listed yet.
    pub(super) fn empty(
        root: Shared<Mount>,
        owner: Owner,
        user: Option<u32>,
        detached: bool,
    ) -> Result<Arc<Self>> {
        allocation::arc(Self {
            // Relaxed: only uniqueness and order matter.
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            owner,
            user,
            detached,
            mounts: SpinLock::new(Mounts { root, list: Vec::new() }),
            events: AtomicU64::new(0),
            watchers: PollList::new(),
        })
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The name space of users that it belongs to.
    pub fn owner(&self) -> &UserSpace {
        self.owner.space()
    }

    /// The user whom it is private to ([`policy`]).
    pub fn user(&self) -> Option<u32> {
        self.user
    }

    pub(super) fn is_detached(&self) -> bool {
        self.detached
    }

    /// The place where absolute paths begin that no `chroot` changed.
    pub fn root(&self) -> Path {
        let mount = self.mounts.lock().root.clone();
        Path::root_of(&mount).onto_mounts()
    }

    pub(super) fn root_mount(&self) -> Shared<Mount> {
        self.mounts.lock().root.clone()
    }

    /// Sets the root; returns the one before.
    pub(super) fn replace_root(&self, root: Shared<Mount>) -> Shared<Mount> {
        core::mem::replace(&mut self.mounts.lock().root, root)
    }

    /// The number of changes so far.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Acquire)
    }

    /// Who waits for changes.
    pub fn watchers(&self) -> &PollList {
        &self.watchers
    }

    /// Whether a mount belongs to it.
    pub fn contains(&self, mount: &Mount) -> bool {
        mount.namespace.load(Ordering::Acquire) == self.id
    }

    /// Makes room for `number` more mounts.
    pub(super) fn reserve(&self, number: usize) -> Result<()> {
        allocation::lock_with_room(|| self.mounts.lock(), number, |mounts| &mut mounts.list).map(drop)
    }

    /// Lists a mount; room was reserved. From now on its references are counted per CPU.
    pub(super) fn add(self: &Arc<Self>, mount: &Shared<Mount>) {
        Shared::spread(mount);
        let before = core::mem::replace(&mut *mount.home.lock(), Arc::downgrade(self));
        drop(before);
        mount.namespace.store(self.id, Ordering::Release);
        self.mounts.lock().list.push(mount.clone());
        if let Some(user) = self.user {
            policy::charge(user);
        }
    }

    /// Takes those off the list that are not in the name space any more. The caller has handles of them, and gathers their references.
    pub(super) fn forget_departed(&self) {
        let departed = {
            let list = &mut self.mounts.lock().list;
            let before = list.len();
            list.retain(|mount| self.contains(mount));
            before - list.len()
        };
        if let Some(user) = self.user {
            policy::release(user, departed);
        }
    }

    /// The number of mounts.
    pub fn mount_count(&self) -> usize {
        self.mounts.lock().list.len()
    }

    /// The file system with a device number, if it is mounted here; who asks need not come to it by a path.
    ///
    /// # Errors
    /// No memory.
    pub fn superblock_of(&self, device: DeviceNumber) -> Result<Option<Arc<Superblock>>> {
        let mounts = self.all_mounts()?;
        Ok(mounts.iter().map(|mount| mount.superblock()).find(|one| one.device() == device).cloned())
    }

    /// All mounts, in the order in which they were attached.
    pub(super) fn all_mounts(&self) -> Result<Vec<Shared<Mount>>> {
        let mut copy = Vec::new();
        loop {
            let wanted = self.mount_count();
            allocation::reserve(&mut copy, wanted)?;
            let mounts = self.mounts.lock();
            if mounts.list.len() <= copy.capacity() {
                copy.extend(mounts.list.iter().cloned());
                return Ok(copy);
            }
        }
    }

    /// Tells watchers that something changed.
    pub(super) fn changed(&self) {
        self.events.fetch_add(1, Ordering::AcqRel);
        self.watchers.notify(crate::poll::PollEvents::ERROR | crate::poll::PollEvents::PRIORITY);
    }
}

impl Drop for MountNamespace {
    fn drop(&mut self) {
        let list = core::mem::take(&mut self.mounts.lock().list);
        if list.is_empty() {
            // It never came to be, and changes may be locked.
            return;
        }
        {
            let _changes = Change::begin();
            if let Some(user) = self.user {
                policy::release(user, list.len());
            }
            for mount in &list {
                group::leave(mount);
                mount.namespace.store(0, Ordering::Release);
                mount.attachment.replace(None);
                mount.replace_children(None);
            }
        }
        Shared::gather_all(&list);
    }
}
