//! A group: a node of the tree.
//!
//! States: *live*, then *removed* (`Members::removed`, set with the list locked), then *dying* while something still refers to it (a zombie, an
//! open file), then gone. Who wants to join looks at `removed` under the lock of the list, so that nobody joins a group that was removed.
//!
//! A group is *populated* while it or a group below has a living process: `populated` counts its own list, if there is anybody on it, and its
//! children that are populated. Only a change between none and one goes up to the parent.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use hashbrown::HashTable;
use sync::SpinLock;
use vfs::inode::Inode;
use vfs::name::{Name, hash_name};
use vfs::{Error, Result, allocation};

use crate::controllers::Controllers;
use crate::freezer::Freezer;
use crate::membership::Member;
use crate::notice::Notice;
use crate::pids::Pids;
use crate::processor_time::Ended;

/// No limit, of `cgroup.max.depth` and `cgroup.max.descendants`.
pub(crate) const UNLIMITED: u32 = i32::MAX as u32;

/// A node of the tree of groups.
pub struct Group {
    /// Unique, ascending.
    pub(crate) number: u64,
    pub(crate) name: Name,
    pub(crate) parent: Option<Arc<Group>>,
    pub(crate) depth: u32,
    /// User and group that its files belong to at first: who made it.
    pub(crate) maker: (u32, u32),
    pub(crate) children: SpinLock<Children>,
    pub(crate) members: SpinLock<Members>,
    populated: AtomicU32,
    /// What it hands on: written under the lock of the tree.
    pub(crate) enabled: AtomicU8,
    pub(crate) depth_max: AtomicU32,
    pub(crate) descendants_max: AtomicU32,
    /// Groups below. Written under the lock of the tree.
    pub(crate) descendants: AtomicU32,
    /// Groups below that were removed and are not gone. Any processor.
    pub(crate) dying: AtomicU32,
    /// Living threads in it, not below. Written with the list of threads of their process locked.
    pub(crate) threads: AtomicU32,
    pub(crate) freezer: Freezer,
    pub(crate) ended: Ended,
    pub(crate) pids: Pids,
    /// While the controller `cpu` is handed on to it.
    pub(crate) processors: SpinLock<Option<Arc<sched::control::Group>>>,
    /// While the controller `memory` or `io` is handed on to it.
    pub(crate) account: SpinLock<Option<memory::charge::Account>>,
    /// Of `cgroup.events`.
    pub(crate) events: Notice,
    /// Of `memory.events`.
    pub(crate) memory_events: Notice,
    /// Inodes that somebody has looked up; the directory's is number 0.
    pub(crate) inodes: SpinLock<Vec<(u8, Arc<Inode>)>>,
    counted_dying: AtomicBool,
}

/// Who is in a group.
pub(crate) struct Members {
    /// Living processes; each notes where it is.
    pub(crate) list: Vec<Arc<dyn Member>>,
    pub(crate) removed: bool,
    /// Kills of the whole group that go on: who joins by a fork is killed as well.
    pub(crate) kills: u32,
}

/// The groups in a group.
pub(crate) struct Children {
    /// By number.
    list: Vec<Arc<Group>>,
    by_name: HashTable<Arc<Group>>,
}

fn hash(name: &[u8]) -> u64 {
    let hash = u64::from(hash_name(name));
    hash << 32 | hash
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

impl Group {
    /// A group that is in no list yet.
    pub(crate) fn new(parent: Option<&Arc<Group>>, name: &[u8], maker: (u32, u32)) -> Result<Arc<Group>> {
        allocation::arc(Group {
            // Relaxed: only uniqueness matters.
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            name: Name::new(name)?,
            depth: parent.map_or(0, |parent| parent.depth + 1),
            parent: parent.cloned(),
            maker,
            children: SpinLock::named(
                "groups in a control group",
                Children { list: Vec::new(), by_name: HashTable::new() },
            ),
            members: SpinLock::named(
                "members of a control group",
                Members { list: Vec::new(), removed: false, kills: 0 },
            ),
            populated: AtomicU32::new(0),
            enabled: AtomicU8::new(0),
            depth_max: AtomicU32::new(UNLIMITED),
            descendants_max: AtomicU32::new(UNLIMITED),
            descendants: AtomicU32::new(0),
            dying: AtomicU32::new(0),
            threads: AtomicU32::new(0),
            freezer: Freezer::new(parent.is_some_and(|parent| parent.freezer.is_freezing())),
            ended: Ended::default(),
            pids: Pids::new(),
            processors: SpinLock::named("processors of a control group", None),
            account: SpinLock::named("account of a control group", None),
            events: Notice::default(),
            memory_events: Notice::default(),
            inodes: SpinLock::named("inodes of a control group", Vec::new()),
            counted_dying: AtomicBool::new(false),
        })
    }

    /// Whether it is the root of all.
    pub fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    /// It and those above, the root last.
    pub(crate) fn upwards(&self) -> impl Iterator<Item = &Group> {
        core::iter::successors(Some(self), |group| group.parent.as_deref())
    }

    /// The same without the root, which counts and limits nothing.
    pub(crate) fn limited(&self) -> impl Iterator<Item = &Group> {
        self.upwards().filter(|group| !group.is_root())
    }

    /// Whether it is `other` or below.
    pub(crate) fn is_within(&self, other: &Group) -> bool {
        self.upwards().any(|group| core::ptr::eq(group, other))
    }

    /// What it hands on.
    pub(crate) fn enabled(&self) -> Controllers {
        Controllers::from_bits_truncate(self.enabled.load(Ordering::Relaxed))
    }

    /// What it may hand on: what its parent hands on.
    pub(crate) fn available(&self) -> Controllers {
        self.parent.as_ref().map_or(Controllers::all(), |parent| parent.enabled())
    }

    /// Whether it was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.members.lock().removed
    }

    /// Whether it or a group below has a living process.
    pub(crate) fn is_populated(&self) -> bool {
        // Acquire: pairs with the changes, so that who was told of one finds it.
        self.populated.load(Ordering::Acquire) != 0
    }

    /// It has its first member.
    pub(crate) fn populate(&self) {
        for group in self.limited() {
            if group.populated.fetch_add(1, Ordering::AcqRel) != 0 {
                return;
            }
            group.tell_events();
        }
    }

    /// Its last member is gone.
    pub(crate) fn depopulate(&self) {
        for group in self.limited() {
            let before = group.populated.fetch_sub(1, Ordering::AcqRel);
            debug_assert!(before > 0, "a group has lost more members than it had");
            if before != 1 {
                return;
            }
            group.tell_events();
        }
    }

    /// What `cgroup.events` shows has changed.
    pub(crate) fn tell_events(&self) {
        // Who is told by the poll finds the other notice.
        crate::interface::report_change(self, crate::interface::EVENTS);
        self.events.tell();
    }

    /// The child with a name.
    pub(crate) fn child(&self, name: &[u8]) -> Option<Arc<Group>> {
        let children = self.children.lock();
        children.by_name.find(hash(name), |child| child.name.as_bytes() == name).cloned()
    }

    /// Its children, by number.
    pub(crate) fn children(&self) -> Result<Vec<Arc<Group>>> {
        let mut found = Vec::new();
        let children = self.children.lock();
        allocation::reserve(&mut found, children.list.len())?;
        found.extend(children.list.iter().cloned());
        Ok(found)
    }

    /// The child with the lowest number from `from` on.
    pub(crate) fn next_child(&self, from: u64) -> Option<Arc<Group>> {
        let children = self.children.lock();
        let at = children.list.partition_point(|child| child.number < from);
        children.list.get(at).cloned()
    }

    pub(crate) fn has_children(&self) -> bool {
        !self.children.lock().list.is_empty()
    }

    /// Adds a child, whose number is the highest; under the lock of the tree.
    pub(crate) fn add_child(&self, child: &Arc<Group>) -> Result<()> {
        let mut children = self.children.lock();
        allocation::reserve(&mut children.list, 1)?;
        children
            .by_name
            .try_reserve(1, |child| hash(child.name.as_bytes()))
            .map_err(|_| Error::OutOfMemory)?;
        debug_assert!(children.list.last().is_none_or(|last| last.number < child.number));
        children.list.push(child.clone());
        children
            .by_name
            .insert_unique(hash(child.name.as_bytes()), child.clone(), |child| hash(child.name.as_bytes()));
        Ok(())
    }

    /// Takes a child out.
    pub(crate) fn remove_child(&self, child: &Group) {
        let removed = {
            let mut children = self.children.lock();
            let same = |other: &Arc<Group>| core::ptr::eq(&**other, child);
            let entry = children.by_name.find_entry(hash(child.name.as_bytes()), same).ok();
            let named = entry.map(|entry| entry.remove().0);
            let listed = children.list.binary_search_by_key(&child.number, |other| other.number);
            (named, listed.ok().map(|at| children.list.remove(at)))
        };
        drop(removed);
    }

    /// It was removed: until nobody refers to it, those above have a dying group below.
    pub(crate) fn count_dying(&self) {
        self.counted_dying.store(true, Ordering::Relaxed);
        self.upwards().skip(1).for_each(|above| {
            above.dying.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// Controllers were taken from it: what was set for them is forgotten.
    pub(crate) fn forget_settings(&self, controllers: Controllers) {
        if controllers.contains(Controllers::PIDS) {
            self.pids.set_max(None);
        }
        if controllers.contains(Controllers::CPU) {
            let former = self.processors.lock().take();
            drop(former);
        }
        if controllers.intersects(Controllers::NEED_ACCOUNT) {
            crate::accounts::forget(self, controllers, self.available());
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if *self.counted_dying.get_mut() {
            self.upwards().skip(1).for_each(|above| {
                above.dying.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }
}
