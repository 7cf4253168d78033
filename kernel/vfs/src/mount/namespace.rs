//! Mount name spaces: whose mounts a process sees.
//!
//! # Locking
//! `changes` (sleeping) is held over every change of the tree of mounts; it comes before directory locks. `mounts`
//! (spinning) guards the list and the root.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use memory::per_cpu::Shared;
use sync::SpinLock;

use super::change::Propagation;
use super::path::{Path, PathPrefix};
use super::point::Mount;
use crate::attributes::DeviceNumber;
use crate::flags::MountFlags;
use crate::poll::PollList;
use crate::user_space::{Owner, UserSpace};
use crate::{Result, allocation};

/// A name space of mounts.
pub struct MountNamespace {
    id: u64,
    pub(super) changes: sched::Mutex<()>,
    mounts: SpinLock<Mounts>,
    /// Counts changes, so that whoever has `/proc/self/mounts` open learns of them.
    events: AtomicU64,
    watchers: PollList,
    owner: Owner,
}

struct Mounts {
    root: Shared<Mount>,
    /// All mounts in the order in which they were attached.
    list: Vec<Shared<Mount>>,
}

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
    /// How it propagates.
    pub propagation: Propagation,
    /// The file system's type.
    pub file_system: &'static str,
    /// What was given as its source.
    pub source: Arc<[u8]>,
    /// Whether the file system itself is read-only.
    pub read_only: bool,
    /// The mount, for the file system's own options.
    pub mount: Shared<Mount>,
}

/// Name space ids begin at 1: 0 stands for none.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl MountNamespace {
    /// The first name space, with one mount, its root.
    pub fn new(root: Shared<Mount>) -> Result<Arc<Self>> {
        Self::owned(root, Owner::FIRST)
    }

    /// A name space with one mount, its root, that belongs to somebody.
    pub(super) fn owned(root: Shared<Mount>, owner: Owner) -> Result<Arc<Self>> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let mut list = Vec::new();
        allocation::push(&mut list, root.clone())?;
        root.namespace.store(id, Ordering::Release);
        Shared::spread(&root);
        allocation::arc(Self {
            id,
            changes: sched::Mutex::named("changes of mounts", ()),
            mounts: SpinLock::new(Mounts { root, list }),
            events: AtomicU64::new(0),
            watchers: PollList::new(),
            owner,
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

    /// The place where absolute paths begin that no `chroot` changed.
    pub fn root(&self) -> Path {
        let mount = self.mounts.lock().root.clone();
        Path::root_of(&mount).onto_mounts()
    }

    pub(super) fn root_mount(&self) -> Shared<Mount> {
        self.mounts.lock().root.clone()
    }

    pub(super) fn set_root(&self, root: Shared<Mount>) {
        let old = core::mem::replace(&mut self.mounts.lock().root, root);
        drop(old);
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
    pub(super) fn add(&self, mount: &Shared<Mount>) {
        Shared::spread(mount);
        mount.namespace.store(self.id, Ordering::Release);
        self.mounts.lock().list.push(mount.clone());
    }

    /// Takes a mount off the list. The caller keeps a handle and gathers the references.
    pub(super) fn remove(&self, mount: &Shared<Mount>) {
        mount.namespace.store(0, Ordering::Release);
        let removed = {
            let mut mounts = self.mounts.lock();
            let index = mounts.list.iter().position(|listed| Shared::ptr_eq(listed, mount));
            index.map(|index| mounts.list.remove(index))
        };
        drop(removed);
    }

    /// The number of mounts.
    pub fn mount_count(&self) -> usize {
        self.mounts.lock().list.len()
    }

    /// Tells watchers that something changed.
    pub(super) fn changed(&self) {
        self.events.fetch_add(1, Ordering::AcqRel);
        self.watchers.notify(crate::poll::PollEvents::ERROR | crate::poll::PollEvents::PRIORITY);
    }

    /// Calls `each` with a description of every mount that can be reached from `root`.
    pub fn describe(&self, root: &Path, mut each: impl FnMut(&MountDescription) -> Result<()>) -> Result<()> {
        let mounts = {
            let mut copy = Vec::new();
            loop {
                let wanted = self.mount_count();
                allocation::reserve(&mut copy, wanted)?;
                let mounts = self.mounts.lock();
                if mounts.list.len() <= copy.capacity() {
                    copy.extend(mounts.list.iter().cloned());
                    break;
                }
            }
            copy
        };
        for mount in mounts {
            let mut point = Vec::new();
            let prefix = Path::root_of(&mount).write_to(root, false, &mut point)?;
            if prefix == PathPrefix::Unreachable {
                continue;
            }
            let mut within = Vec::new();
            Path::root_of(&mount).write_within_file_system(&mut within)?;
            // Not in the call below: the lock would be held until that returns, and it may sleep.
            let propagation = *mount.propagation.lock();
            each(&MountDescription {
                id: mount.id(),
                parent: mount.parent_id(),
                device: mount.superblock().device(),
                root: within,
                point,
                flags: mount.flags(),
                propagation,
                file_system: mount.superblock().file_system(),
                source: mount.source(),
                read_only: mount.superblock().read_only(),
                mount: mount.clone(),
            })?;
        }
        Ok(())
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
            return allocation::push(out, b'/');
        }
        for name in parts.iter().rev() {
            allocation::reserve(out, name.as_bytes().len() + 1)?;
            out.push(b'/');
            out.extend_from_slice(name.as_bytes());
        }
        Ok(())
    }
}
