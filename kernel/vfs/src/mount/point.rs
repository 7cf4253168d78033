//! One mount: a file system (or a part of it) attached to a directory of another mount.
//!
//! # States
//! *Attached*: it has a parent mount and a mount point, is among its parent's children and in its name space's list.
//! *Detached*: none of these (the name space's root, a mount that was unmounted while in use, one under construction).
//!
//! # Reading
//! A path walk crosses mounts in both directions under RCU: downwards through the parent's list of children, sorted by
//! the mount point's address, upwards through the attachment.
//!
//! # Locking
//! The tree changes only under the lock of [changes](super::change). Flags and the count of writers are atomics of their own.
//!
//! # References
//! Every path walk ends with a reference to a mount, mostly to the same one on all CPUs. So while a mount is on a name
//! space's list its references are counted per CPU ([`Shared`]); they are gathered to decide whether it is in use, and
//! when it has left the list.
//!
//! # Invariants
//! - The attachment's parent has the mount among its children, and the mount point carries `MOUNT_POINT`.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use memory::per_cpu::Shared;
use sync::SpinLock;
use sync::clustered::Count;
use sync::rcu::{self, RcuBox, RcuReadGuard};

use super::group::Relations;
use super::namespace::MountNamespace;
use crate::dentry::Dentry;
use crate::fanotify::MarkList;
use crate::flags::MountFlags;
use crate::superblock::Superblock;
use crate::{Error, Result, allocation};

/// Where a mount is attached.
pub(super) struct Attachment {
    pub(super) parent: Shared<Mount>,
    pub(super) point: Arc<Dentry>,
}

/// Mounts on directories of one mount, sorted by the address of the mount point.
pub(super) struct ChildMounts(Vec<(usize, Shared<Mount>)>);

/// A mount.
pub struct Mount {
    id: u64,
    superblock: Arc<Superblock>,
    root: Arc<Dentry>,
    source: SpinLock<Arc<[u8]>>,
    flags: AtomicU32,
    /// Files open for writing through it. Counted by all CPUs, needed when it is to become read-only.
    writers: Count,
    pub(super) attachment: rcu::Pointer<Attachment>,
    children: rcu::Pointer<ChildMounts>,
    pub(super) namespace: AtomicU64,
    /// The name space itself, while `namespace` is its id. Under the lock of changes.
    pub(super) home: SpinLock<Weak<MountNamespace>>,
    /// Changed under the lock of changes.
    pub(super) relations: SpinLock<Relations>,
    expired: AtomicU32,
    /// What the change that is under way has found out about it.
    pub(super) mark: AtomicU64,
    /// Flags that can't be cleared any more.
    locked_flags: AtomicU32,
    /// It can't be taken away from where it is but together with its parent.
    locked: AtomicBool,
    /// What groups of `fanotify` want to hear of its files.
    marks: MarkList,
    companion: SpinLock<Option<Arc<dyn Companion>>>,
}

/// Something that uses a mount's file system without keeping it mounted, and ends with the mount.
///
/// It has a mount of its own, which is attached nowhere; the one that it ends with keeps it.
pub trait Companion: Send + Sync {
    /// Stops, and lets go of the file system. Called when the mount was unmounted; otherwise it is dropped with the mount.
    fn end(&self);
    /// Whether it writes.
    fn is_writing(&self) -> bool;
}

/// Mount ids begin at 1: 0 stands for no mount.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Mount {
    /// A detached mount that shows `root` of `superblock`.
    pub fn new(
        superblock: Arc<Superblock>,
        root: Arc<Dentry>,
        source: &[u8],
        flags: MountFlags,
    ) -> Result<Shared<Self>> {
        let source = allocation::arc_bytes(source)?;
        // Before there is a mount whose end would take it back, also if that ends for want of memory.
        superblock.mount_added();
        Ok(Shared::try_new(Self {
            // Relaxed: only uniqueness matters.
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            superblock,
            root,
            source: SpinLock::new(source),
            flags: AtomicU32::new(flags.bits()),
            writers: Count::new(&"writers of a mount"),
            attachment: rcu::Pointer::null(),
            children: rcu::Pointer::null(),
            namespace: AtomicU64::new(0),
            home: SpinLock::named("home of a mount", Weak::new()),
            relations: SpinLock::named("relations of a mount", Relations::default()),
            expired: AtomicU32::new(0),
            mark: AtomicU64::new(0),
            locked_flags: AtomicU32::new(0),
            locked: AtomicBool::new(false),
            marks: MarkList::new(),
            companion: SpinLock::named("companion of a mount", None),
        })?)
    }

    /// Gives it a companion, in place of the one that it may have, which is returned.
    #[must_use]
    pub fn accompany(&self, companion: Arc<dyn Companion>) -> Option<Arc<dyn Companion>> {
        self.companion.lock().replace(companion)
    }

    /// Whether a companion writes to its file system.
    pub(super) fn has_writing_companion(&self) -> bool {
        let companion = self.companion.lock().clone();
        companion.is_some_and(|companion| companion.is_writing())
    }

    /// It was unmounted, and nobody uses it.
    pub(super) fn end_companion(&self) {
        let companion = self.companion.lock().take();
        if let Some(companion) = companion {
            companion.end();
        }
    }

    /// The id that `mountinfo` and `statx` show.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn marks(&self) -> &MarkList {
        &self.marks
    }

    /// The file system.
    #[inline]
    pub fn superblock(&self) -> &Arc<Superblock> {
        &self.superblock
    }

    /// The directory it shows at its mount point.
    #[inline]
    pub fn root(&self) -> &Arc<Dentry> {
        &self.root
    }

    /// Whether its root is that of the file system, so that it shows all of it.
    pub fn is_whole(&self) -> bool {
        Arc::ptr_eq(&self.root, self.superblock().root())
    }

    /// Whether an entry can be come to from its root. A directory that somebody stands in may be moved out of what the mount shows, and no `..` leads from there to the
    /// rest of the file system: that may be all that is kept from who stands there.
    pub fn shows(&self, dentry: &Arc<Dentry>) -> bool {
        self.is_whole() || dentry.is_below(&self.root)
    }

    /// What was given as its source.
    pub fn source(&self) -> Arc<[u8]> {
        self.source.lock().clone()
    }

    /// Its flags.
    #[inline]
    pub fn flags(&self) -> MountFlags {
        // Relaxed: a word of its own.
        MountFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Sets its flags, but for `READ_ONLY`, see [`set_read_only`](Self::set_read_only).
    pub(super) fn set_flags(&self, flags: MountFlags) {
        self.flags.store(flags.bits(), Ordering::Relaxed);
    }

    /// Whether nothing may be changed through it.
    #[inline]
    pub fn read_only(&self) -> bool {
        self.flags().contains(MountFlags::READ_ONLY) || self.superblock.read_only()
    }

    /// Fails with `EROFS` when nothing may be changed through it.
    #[inline]
    pub fn writable(&self) -> Result<()> {
        if self.read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Counts an open file that can write.
    pub fn begin_write(&self) -> Result<()> {
        self.writable()?;
        // Counted before the flag is looked at again, see `set_read_only`.
        self.writers.add(1);
        if self.read_only() {
            self.end_write();
            return Err(Error::ReadOnly);
        }
        Ok(())
    }

    /// The end of what [`begin_write`](Self::begin_write) began.
    pub fn end_write(&self) {
        self.writers.add(-1);
    }

    /// Makes it read-only. Fails with `EBUSY` while files are open for writing through it. May sleep.
    ///
    /// Who begins to write counts, then looks at the flag; here the flag is set, then counts are read. Every CPU passes a
    /// quiescent state, and so a full barrier, in between: either its count is seen here, or the flag is seen there.
    pub(super) fn set_read_only(&self) -> Result<()> {
        let before = self.flags.fetch_or(MountFlags::READ_ONLY.bits(), Ordering::AcqRel);
        rcu::synchronize_expedited();
        if self.writers() > 0 {
            self.flags.store(before, Ordering::Release);
            return Err(Error::Busy);
        }
        Ok(())
    }

    /// Files open for writing through it.
    pub(super) fn writers(&self) -> i64 {
        self.writers.value()
    }

    /// Marks it as expired; true when it was already and nobody used it since.
    pub(super) fn expire(&self) -> bool {
        self.expired.swap(1, Ordering::AcqRel) == 1
    }

    /// What is mounted on `point` of this mount, under RCU.
    #[inline]
    pub fn mounted_on<'guard>(
        &self,
        point: &Arc<Dentry>,
        guard: &'guard RcuReadGuard,
    ) -> Option<&'guard Shared<Mount>> {
        let children = self.children.read(guard)?;
        let address = Arc::as_ptr(point) as usize;
        let index = children.0.binary_search_by_key(&address, |(point, _)| *point).ok()?;
        Some(&children.0[index].1)
    }

    /// The parent and the mount point, under RCU; `None` for a root or a detached mount.
    #[inline]
    pub fn attached_at<'guard>(
        &self,
        guard: &'guard RcuReadGuard,
    ) -> Option<(&'guard Shared<Mount>, &'guard Arc<Dentry>)> {
        self.attachment.read(guard).map(|attachment| (&attachment.parent, &attachment.point))
    }

    /// Whether it is attached somewhere, or the root of a name space.
    pub fn in_namespace(&self) -> bool {
        self.namespace.load(Ordering::Acquire) != 0
    }

    /// Flags that can't be cleared any more; `NO_ACCESS_TIME` stands for all that is about times of access.
    pub(super) fn locked_flags(&self) -> MountFlags {
        MountFlags::from_bits_retain(self.locked_flags.load(Ordering::Relaxed))
    }

    /// Locks flags. Under the lock of changes, or before others know the mount.
    pub(super) fn lock_flags(&self, flags: MountFlags) {
        self.locked_flags.fetch_or(flags.bits(), Ordering::Relaxed);
    }

    /// Whether it can't be taken away from where it is but together with its parent.
    pub(super) fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Relaxed)
    }

    /// Locks it where it is, or frees it. As [`lock_flags`](Self::lock_flags).
    pub(super) fn set_locked(&self, locked: bool) {
        self.locked.store(locked, Ordering::Relaxed);
    }

    /// What it has to do with peer groups.
    pub(super) fn relations(&self) -> Relations {
        self.relations.lock().clone()
    }

    /// Whether events propagate from it.
    pub(super) fn is_shared(&self) -> bool {
        self.relations.lock().group.is_some()
    }

    /// The name space that it is in, unless that is being taken apart. Under the lock of changes this may become the last handle, which must not go there:
    /// see [`Change::home_of`](super::change::Change::home_of).
    pub(super) fn home(&self) -> Option<Arc<MountNamespace>> {
        if self.in_namespace() { self.home.lock().upgrade() } else { None }
    }

    /// The parent and the mount point, with references of their own.
    pub(super) fn attachment_now(&self) -> Option<(Shared<Mount>, Arc<Dentry>)> {
        let guard = rcu::read();
        self.attached_at(&guard).map(|(parent, point)| (parent.clone(), point.clone()))
    }

    /// The mounts on its directories.
    pub(super) fn children(&self) -> Result<Vec<Shared<Mount>>> {
        let guard = rcu::read();
        let mut list = Vec::new();
        if let Some(children) = self.children.read(&guard) {
            allocation::reserve(&mut list, children.0.len())?;
            list.extend(children.0.iter().map(|(_, mount)| mount.clone()));
        }
        Ok(list)
    }

    /// Whether there is a mount on its directories that `wanted` is true for.
    pub(super) fn has_child(&self, wanted: impl FnMut(&Shared<Mount>) -> bool) -> bool {
        let guard = rcu::read();
        self.children
            .read(&guard)
            .is_some_and(|children| children.0.iter().map(|(_, mount)| mount).any(wanted))
    }

    /// Attaches a mount that nobody knows yet to another one of that kind.
    pub(super) fn attach_new(this: &Shared<Self>, parent: &Shared<Mount>, point: &Arc<Dentry>) -> Result<()> {
        let attachment = allocation::rcu(Attachment { parent: parent.clone(), point: point.clone() })?;
        let added = (point.clone(), this.clone());
        let children = parent.changed_children(|_| false, core::iter::once(&added))?;
        parent.replace_children(children);
        this.attachment.replace(Some(attachment));
        Ok(())
    }

    /// A list of children like that of now, without some and with others.
    pub(super) fn changed_children<'a>(
        &self,
        removed: impl Fn(&Shared<Mount>) -> bool,
        added: impl Iterator<Item = &'a (Arc<Dentry>, Shared<Mount>)> + Clone,
    ) -> Result<Option<RcuBox<ChildMounts>>> {
        let guard = rcu::read();
        let mut list = Vec::new();
        let more = added.clone().count();
        let old = self.children.read(&guard);
        allocation::reserve(&mut list, old.map_or(0, |old| old.0.len()) + more)?;
        if let Some(old) = old {
            list.extend(old.0.iter().filter(|(_, mount)| !removed(mount)).cloned());
        }
        for (point, mount) in added {
            let address = Arc::as_ptr(point) as usize;
            let index = list.partition_point(|(other, _)| *other < address);
            debug_assert!(
                list.get(index).is_none_or(|(other, _)| *other != address),
                "two mounts on one directory"
            );
            list.insert(index, (address, mount.clone()));
        }
        if list.is_empty() { Ok(None) } else { allocation::rcu(ChildMounts(list)).map(Some) }
    }

    /// Sets that. The lock of changes is held, or nobody knows the mount.
    pub(super) fn replace_children(&self, children: Option<RcuBox<ChildMounts>>) {
        self.children.replace(children);
    }

    /// Whether it is `top` or below it.
    pub(super) fn is_within(this: &Shared<Self>, top: &Shared<Self>) -> bool {
        let guard = rcu::read();
        let mut current = this;
        loop {
            if Shared::ptr_eq(current, top) {
                return true;
            }
            match current.attached_at(&guard) {
                Some((parent, _)) => current = parent,
                None => return false,
            }
        }
    }

    /// The number of its parent, its own when it has none.
    pub(super) fn parent_id(&self) -> u64 {
        let guard = rcu::read();
        self.attachment.read(&guard).map_or(self.id, |attachment| attachment.parent.id)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.superblock.mount_removed();
    }
}
