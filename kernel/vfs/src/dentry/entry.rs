//! Directory entries: names, and what they mean.
//!
//! A [`Dentry`] ties a place in the tree (parent and name) to an inode, or to none (a *negative* entry: the name is
//! known not to exist). What an entry means never changes: creating a file replaces the negative entry by a new one.
//! Its place changes only by rename.
//!
//! # Reading
//! Everything that a path walk looks at (place, inode, children) is read under RCU without a lock, a reference count
//! or a store. A walk that leaves the RCU section takes a reference (one atomic increment).
//!
//! # Hot entries
//! When references keep being taken by another processor than the one before, the entry gets a handle whose count is spread
//! over the processors ([`memory::per_cpu::Hot`]): walks take that instead of the entry's own count. The handle refers to the entry, so it
//! goes when the entry is unhashed, when what it roots is forgotten, and when the shrinker finds that the entry was not used of late.
//!
//! # States
//! *Hashed*: found under its parent. *Unhashed* (deleted, evicted or replaced): no longer found, alive as long as
//! somebody refers to it. The only transition is hashed → unhashed ([`DentryFlags::UNHASHED`]; an eviction that finds the
//! entry in use takes it back), and
//! it is made under the parent's children lock, by whoever holds the parent inode's lock exclusively or, for unused
//! entries, by the shrinker.
//!
//! # Invariants
//! - A child's place refers to its parent, and the parent's table to its children: the cycle is broken by eviction,
//!   and for good by [`forget_tree`](super::forget_tree) when the directory is removed or the last mount of the file
//!   system goes. Nothing is entered below a removed directory: no way down would find it again.
//! - Two hashed entries of one parent never have the same name.
//! - Where the file system says that a directory has one name, two hashed entries never lead to one directory, whatever its image says: what is above what,
//!   and so in which order directories are locked, follows from entries.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use bitflags::bitflags;
use memory::per_cpu::{Hot, Kept};
use sync::rcu::{self, RcuReadGuard};

use super::cache;
use super::children::Children;
use crate::attributes::FileKind;
use crate::inode::Inode;
use crate::name::{Name, hash_name};
use crate::superblock::SuperblockTraits;
use crate::{Error, Result, allocation};

bitflags! {
    /// State of an entry.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DentryFlags: u32 {
        /// Something is (or was) mounted on it in some name space.
        const MOUNT_POINT = 1;
        /// No longer found under its parent.
        const UNHASHED = 2;
        /// Used since the shrinker last looked.
        const REFERENCED = 4;
        /// The file system is asked before a cached entry is believed.
        const VOLATILE = 8;
        /// Absent names are not cached.
        const NO_NEGATIVE = 16;
        /// Its name was removed while it was in use: shown as ` (deleted)`.
        const DELETED = 32;
        /// What is cached below it was forgotten for good; it is never hot again.
        const FORGOTTEN = 64;
        /// A directory has one entry at most here.
        const ONE_NAME = 128;
    }
}

/// Where an entry is.
pub(super) struct Place {
    pub(super) parent: Option<Arc<Dentry>>,
    pub(super) name: Name,
    pub(super) hash: u32,
}

/// An entry of the cache.
pub struct Dentry {
    pub(super) place: rcu::Pointer<Place>,
    inode: Option<Arc<Inode>>,
    flags: AtomicU32,
    /// The processor of the last reference, in the low half, and how many were taken by another than the one before. A hint: lost
    /// updates do no harm.
    users: AtomicU32,
    hot: Hot<Dentry>,
    pub(super) children: Children,
}

/// What an entry has of the directory that it is in.
const INHERITED: DentryFlags =
    DentryFlags::VOLATILE.union(DentryFlags::NO_NEGATIVE).union(DentryFlags::ONE_NAME);

/// References from another processor than the one before, after which an entry is hot.
const FOREIGN_MAX: u32 = 8;

impl Dentry {
    fn allocate(place: Option<Place>, inode: Option<Arc<Inode>>, flags: DentryFlags) -> Result<Arc<Self>> {
        let place = match place {
            Some(place) => rcu::Pointer::new(allocation::rcu(place)?),
            None => rcu::Pointer::null(),
        };
        allocation::arc(Self {
            place,
            inode,
            flags: AtomicU32::new(flags.bits()),
            users: AtomicU32::new(0),
            hot: Hot::new(),
            children: Children::new(),
        })
    }

    /// The root of a file system: no parent, no name.
    pub fn new_root(inode: Arc<Inode>, traits: SuperblockTraits) -> Result<Arc<Self>> {
        let mut flags = DentryFlags::empty();
        flags.set(DentryFlags::VOLATILE, traits.volatile);
        flags.set(DentryFlags::NO_NEGATIVE, traits.no_negative_entries);
        flags.set(DentryFlags::ONE_NAME, traits.one_name);
        let root = Self::allocate(None, Some(inode), flags)?;
        let is_only = root.take_directory();
        debug_assert!(is_only, "nobody knows a root before it is made");
        Ok(root)
    }

    /// An entry that is in no directory (unnamed temporary files, pipes seen through `/proc`).
    pub fn new_detached(name: &[u8], inode: Arc<Inode>) -> Result<Arc<Self>> {
        let place = Place { parent: None, name: Name::new(name)?, hash: hash_name(name) };
        Self::allocate(Some(place), Some(inode), DentryFlags::UNHASHED)
    }

    /// Enters what `name` means in directory `parent` into the cache; when somebody else was faster, theirs is
    /// returned. In a removed directory the entry is the caller's alone. The caller holds the directory's lock (shared or
    /// exclusive). Two or three allocations.
    ///
    /// # Errors
    /// No memory; `EIO` for a directory that has another name, where that is damage.
    pub fn enter(parent: &Arc<Self>, name: &[u8], inode: Option<Arc<Inode>>) -> Result<Arc<Self>> {
        let hash = hash_name(name);
        let inherited = parent.flags() & INHERITED;
        let place = Place { parent: Some(parent.clone()), name: Name::new(name)?, hash };
        if parent.is_dead() {
            return Self::allocate(Some(place), inode, inherited | DentryFlags::UNHASHED);
        }
        let entry = Self::allocate(Some(place), inode, inherited | DentryFlags::REFERENCED)?;
        let number = entry.inode().map_or(0, |inode| inode.number);
        let (entered, is_new) = parent.children.insert(parent, entry, hash, name).inspect_err(|error| {
            if *error == Error::Io {
                log::error!("directory {number} has a second name, {}", name.escape_ascii());
            }
        })?;
        if is_new {
            entered.note_parent(parent);
            cache::added(&entered);
        }
        Ok(entered)
    }

    /// Notes for the inode that it is found in `parent`.
    pub(super) fn note_parent(&self, parent: &Self) {
        if let (Some(inode), Some(directory)) = (self.inode(), parent.inode()) {
            inode.note_parent(directory.number);
        }
    }

    /// Looks for a cached entry without a lock. One hash of the name; one table, one bucket and one entry read.
    #[inline]
    pub fn cached_child<'guard>(
        self: &'guard Arc<Self>,
        name: &[u8],
        hash: u32,
        guard: &'guard RcuReadGuard,
    ) -> Option<&'guard Arc<Self>> {
        self.children.find(self, name, hash, guard)
    }

    /// Whether `name` is still this entry's name in `parent`.
    #[inline]
    pub(super) fn is_at(&self, parent: &Arc<Self>, name: &[u8], guard: &RcuReadGuard) -> bool {
        self.place.read(guard).is_some_and(|place| {
            place.name.as_bytes() == name && place.parent.as_ref().is_some_and(|own| Arc::ptr_eq(own, parent))
        }) && !self.flags().contains(DentryFlags::UNHASHED)
    }

    /// What it means; `None` for a negative entry.
    #[inline]
    pub fn inode(&self) -> Option<&Arc<Inode>> {
        self.inode.as_ref()
    }

    /// What it means. Fails with `ENOENT` for a negative entry.
    #[inline]
    pub fn existing(&self) -> Result<&Arc<Inode>> {
        self.inode.as_ref().ok_or(Error::NotFound)
    }

    /// The state.
    #[inline]
    pub fn flags(&self) -> DentryFlags {
        // Relaxed: a flag that guards data (MOUNT_POINT, UNHASHED) is checked again under the lock that orders it.
        DentryFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Sets flags.
    pub fn set_flags(&self, flags: DentryFlags) {
        self.flags.fetch_or(flags.bits(), Ordering::AcqRel);
    }

    /// Clears flags.
    pub(super) fn clear_flags(&self, flags: DentryFlags) {
        self.flags.fetch_and(!flags.bits(), Ordering::AcqRel);
    }

    /// A reference that outlives the read section.
    #[inline(always)]
    pub(crate) fn keep(self: &Arc<Self>, guard: &RcuReadGuard) -> Kept<Self> {
        self.hot.keep(self, guard)
    }

    /// Notes who took a reference from its own count; called outside of the read section.
    #[inline(always)]
    pub(crate) fn note_user(self: &Arc<Self>) {
        let users = self.users.load(Ordering::Relaxed);
        let cpu = machine::cpu::current().index() as u32;
        if users & 0xffff != cpu {
            self.note_foreign(users >> 16, cpu);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_foreign(self: &Arc<Self>, before: u32, cpu: u32) {
        // When that is reached, nothing is stored any more, hot or not.
        if before > FOREIGN_MAX {
            return;
        }
        self.users.store((before + 1) << 16 | cpu, Ordering::Relaxed);
        if before == FOREIGN_MAX && !self.is_out() {
            self.hot.heat(self);
            // SeqCst: the handle is in place before the flags are read; who sets one looks for a handle afterwards. One of the two
            // takes it out.
            fence(Ordering::SeqCst);
            if self.is_out() {
                self.cool();
            }
        }
    }

    /// Whether nobody would cool it any more.
    fn is_out(&self) -> bool {
        self.flags().intersects(DentryFlags::UNHASHED | DentryFlags::FORGOTTEN)
    }

    /// Counts its references in one place again: it was found unused, or is found no longer.
    pub(super) fn cool(&self) {
        // SeqCst: pairs with the fence in `note_foreign`.
        fence(Ordering::SeqCst);
        self.users.store(0, Ordering::Relaxed);
        self.hot.cool();
    }

    /// Whether its references are counted per processor.
    pub(super) fn is_hot(&self) -> bool {
        self.hot.is_hot()
    }

    /// Notes a use for the shrinker; stores only when it was not noted yet.
    #[inline]
    pub(crate) fn mark_referenced(&self) {
        if !self.flags().contains(DentryFlags::REFERENCED) {
            self.set_flags(DentryFlags::REFERENCED);
        }
    }

    /// Whether it is the root of its file system (or detached).
    pub fn is_root(&self) -> bool {
        let guard = rcu::read();
        self.place.read(&guard).is_none_or(|place| place.parent.is_none())
    }

    /// The directory it is in; `None` for a root.
    pub fn parent(&self) -> Option<Arc<Self>> {
        let guard = rcu::read();
        self.place.read(&guard).and_then(|place| place.parent.clone())
    }

    /// The directory it is in, under RCU.
    #[inline]
    pub fn parent_under<'guard>(&self, guard: &'guard RcuReadGuard) -> Option<&'guard Arc<Self>> {
        self.place.read(guard).and_then(|place| place.parent.as_ref())
    }

    /// Its name (empty for a root) and the directory it is in, of the same moment.
    pub fn name_and_parent_under<'guard>(
        &self,
        guard: &'guard RcuReadGuard,
    ) -> (&'guard [u8], Option<&'guard Arc<Self>>) {
        self.place.read(guard).map_or((&[], None), |place| (place.name.as_bytes(), place.parent.as_ref()))
    }

    /// Calls `use_name` with its name (empty for a root), under RCU: do not sleep in it.
    pub fn with_name<R>(&self, use_name: impl FnOnce(&[u8]) -> R) -> R {
        let guard = rcu::read();
        use_name(self.place.read(&guard).map_or(&[], |place| place.name.as_bytes()))
    }

    /// A copy of its name.
    pub fn name(&self) -> Result<Name> {
        // Names of up to 24 bytes are copied without allocating; longer ones may allocate under RCU, which does not
        // sleep either.
        self.with_name(Name::new)
    }

    /// Whether `ancestor` is this entry or a directory above it. The caller holds the rename lock if the answer is
    /// to last.
    pub fn is_below(self: &Arc<Self>, ancestor: &Arc<Self>) -> bool {
        let guard = rcu::read();
        let mut current = self;
        loop {
            if Arc::ptr_eq(current, ancestor) {
                return true;
            }
            match current.parent_under(&guard) {
                Some(parent) => current = parent,
                None => return false,
            }
        }
    }

    /// Whether its name was removed: nothing may be created in such a directory.
    pub fn is_dead(&self) -> bool {
        self.flags().contains(DentryFlags::DELETED)
    }

    /// The directory that may have no other entry, if this is one's.
    fn only_directory(&self) -> Option<&Arc<Inode>> {
        if !self.flags().contains(DentryFlags::ONE_NAME) {
            return None;
        }
        self.inode.as_ref().filter(|inode| inode.kind == FileKind::Directory)
    }

    /// Becomes the entry that leads to its directory; false if there is another one.
    pub(super) fn take_directory(self: &Arc<Self>) -> bool {
        self.only_directory().is_none_or(|inode| inode.take_entry(Arc::as_ptr(self).addr()))
    }

    /// Leads there no longer: it was unhashed.
    pub(super) fn leave_directory(self: &Arc<Self>) {
        if let Some(inode) = self.only_directory() {
            inode.leave_entry(Arc::as_ptr(self).addr());
        }
    }

    /// Whether this is an entry of the directory that `ancestor` leads to, or below it. Directories are compared, not entries: a damaged file
    /// system may have two that lead to one. The caller holds the rename lock if the answer is to last.
    pub(crate) fn lies_in(self: &Arc<Self>, ancestor: &Arc<Self>) -> bool {
        let Some(directory) = ancestor.inode() else { return self.is_below(ancestor) };
        let guard = rcu::read();
        let mut current = self;
        loop {
            if current.inode().is_some_and(|inode| Arc::ptr_eq(inode, directory)) {
                return true;
            }
            match current.parent_under(&guard) {
                Some(parent) => current = parent,
                None => return false,
            }
        }
    }

    /// Takes it out of its directory: the name was removed. The caller holds the directory's lock exclusively, and, if
    /// this is a directory too, its own: names that are cached below, absent ones, go as well.
    pub fn remove(self: &Arc<Self>) {
        self.set_flags(DentryFlags::DELETED);
        self.unhash();
        self.forget_children();
    }

    /// Breaks the cycles with what is cached below a removed directory.
    pub(super) fn forget_children(self: &Arc<Self>) {
        if !self.children.is_empty() {
            cache::forget_tree(self);
        }
    }

    /// Forgets it: the next lookup asks the file system. For entries that turned out to be out of date.
    pub fn unhash(self: &Arc<Self>) {
        self.set_flags(DentryFlags::UNHASHED);
        self.leave_directory();
        self.cool();
        if let Some((parent, hash)) = self.home() {
            parent.children.sweep(&parent, hash);
        }
    }

    /// Forgets it and what is cached below it, which would keep it for ever: what it stood for has gone, and something else may have its
    /// name. Whoever uses an entry of it keeps that one.
    pub(crate) fn forget(self: &Arc<Self>) {
        self.unhash();
        self.forget_children();
    }

    /// Takes it out as unused, unless there are more than `references`: then it stays, and the answer is false.
    pub(super) fn evict(self: &Arc<Self>, references: usize) -> bool {
        self.home().is_some_and(|(parent, hash)| parent.children.evict(&parent, self, hash, references))
    }

    /// Sets the flag if nobody uses it. The caller holds the parent's children lock: nobody enters the name meanwhile.
    ///
    /// Who takes a reference under RCU looks at the flag *afterwards* ([`still_hashed`](Self::still_hashed)), and this
    /// looks at the number of references after setting the flag: one of the two sees the other. In a directory that is
    /// evicted nobody can enter names: that takes a reference.
    pub(super) fn unhash_unused(self: &Arc<Self>, references: usize) -> bool {
        // SeqCst: see above; pairs with the fence in `still_hashed`.
        self.flags.fetch_or(DentryFlags::UNHASHED.bits(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let unused = Arc::strong_count(self) <= references && self.children.is_empty();
        if unused {
            self.leave_directory();
        } else {
            self.flags.fetch_and(!DentryFlags::UNHASHED.bits(), Ordering::SeqCst);
        }
        unused
    }

    /// Whether a reference that was just taken under RCU is one of an entry that is still found; else it is to be
    /// looked up anew.
    #[inline]
    pub(crate) fn still_hashed(&self) -> bool {
        // SeqCst: the reference was taken before the flag is read; pairs with the fence in `evict`.
        fence(Ordering::SeqCst);
        !self.flags().contains(DentryFlags::UNHASHED)
    }

    /// The directory whose table has it, and under which hash.
    fn home(&self) -> Option<(Arc<Self>, u32)> {
        let guard = rcu::read();
        let place = self.place.read(&guard)?;
        place.parent.clone().map(|parent| (parent, place.hash))
    }
}
