//! Groups that stand still (`cgroup.freeze`).
//!
//! A group *freezes* if that was written to it or to a group above. Each thread of a process in it then parks on its way to user mode, and
//! counts itself. The group is *frozen* when all its threads are parked and all groups below are frozen; that is what `cgroup.events` shows.
//! A thread that must end does not stay parked, and one in a sleep that nothing interrupts parks when that is over.
//!
//! `freezing` and the wish of each process change with the group's list locked, so that who joins sees the wish; `frozen` is looked at again
//! under the lock of the tree whenever it may have changed.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use sync::rcu;
use vfs::{Result, allocation};

use crate::group::Group;
use crate::membership::{Member, Membership};
use crate::tree;

/// What a group knows of its standing still.
pub(crate) struct Freezer {
    /// What was written to it.
    wanted: AtomicBool,
    freezing: AtomicBool,
    frozen: AtomicBool,
    /// Threads of its own that are parked. Written with the list of threads of their process locked.
    parked: AtomicU32,
}

impl Freezer {
    pub(crate) fn new(freezing: bool) -> Self {
        Self {
            wanted: AtomicBool::new(false),
            freezing: AtomicBool::new(freezing),
            frozen: AtomicBool::new(false),
            parked: AtomicU32::new(0),
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    pub(crate) fn is_freezing(&self) -> bool {
        self.freezing.load(Ordering::Relaxed)
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Relaxed)
    }

    /// A process with parked threads comes or goes.
    pub(crate) fn move_parked(&self, to: &Freezer, parked: u32) {
        self.parked.fetch_sub(parked, Ordering::AcqRel);
        to.parked.fetch_add(parked, Ordering::AcqRel);
    }
}

impl Membership {
    /// A thread parks, or leaves its place, with the list of threads locked.
    pub fn park(&self, parks: bool) {
        let guard = rcu::read();
        // Who was moved to the root while it was parked leaves its place there.
        let group = self.group.peek(&guard).unwrap_or(tree::root());
        let count = if parks { AtomicU32::fetch_add } else { AtomicU32::fetch_sub };
        count(&self.parked, 1, Ordering::AcqRel);
        count(&group.freezer.parked, 1, Ordering::AcqRel);
    }
}

/// A group and all below, each before those below it.
pub(crate) fn subtree(group: &Arc<Group>) -> Result<Vec<Arc<Group>>> {
    let mut found = Vec::new();
    allocation::push(&mut found, group.clone())?;
    let mut next = 0;
    while next < found.len() {
        for child in found[next].children()? {
            allocation::push(&mut found, child)?;
        }
        next += 1;
    }
    Ok(found)
}

/// The members of a group now.
pub(crate) fn members(group: &Group) -> Result<Vec<Arc<dyn Member>>> {
    let mut copy = Vec::new();
    let members = group.members.lock();
    allocation::reserve(&mut copy, members.list.len())?;
    copy.extend(members.list.iter().cloned());
    Ok(copy)
}

/// Writes to `cgroup.freeze`.
pub(crate) fn set(group: &Arc<Group>, wanted: bool) -> Result<()> {
    let _tree = tree::lock(group)?;
    let groups = subtree(group)?;
    group.freezer.wanted.store(wanted, Ordering::Relaxed);
    for group in &groups {
        let above = group.parent.as_ref().is_some_and(|parent| parent.freezer.is_freezing());
        let freezing = above || group.freezer.is_wanted();
        if freezing == group.freezer.is_freezing() {
            continue;
        }
        let told = {
            let mut told = Vec::new();
            let members = group.members.lock();
            allocation::reserve(&mut told, members.list.len())?;
            told.extend(members.list.iter().cloned());
            group.freezer.freezing.store(freezing, Ordering::Relaxed);
            for member in &told {
                member.membership().freezes.store(freezing, Ordering::Release);
            }
            told
        };
        for member in told {
            member.interrupt();
        }
    }
    groups.iter().rev().for_each(look_again);
    Ok(())
}

/// Whether a group is frozen may have changed; under the lock of the tree.
pub(crate) fn look_again(group: &Arc<Group>) {
    for group in group.limited() {
        let freezer = &group.freezer;
        let stands = || group.threads.load(Ordering::Acquire) == freezer.parked.load(Ordering::Acquire);
        let frozen = freezer.is_freezing() && stands() && all_children_frozen(group);
        if freezer.frozen.swap(frozen, Ordering::Relaxed) == frozen {
            return;
        }
        group.tell_events();
    }
}

fn all_children_frozen(group: &Group) -> bool {
    let mut from = 0;
    while let Some(child) = group.next_child(from) {
        if !child.freezer.is_frozen() {
            return false;
        }
        from = child.number + 1;
    }
    true
}

/// The same without a lock held.
pub(crate) fn look_again_locked(group: &Arc<Group>) {
    let _tree = tree::lock_any();
    look_again(group);
}

impl Membership {
    /// After threads have parked or gone on, without locks.
    pub fn look_at_freezer(&self) {
        if let Some(group) = self.group() {
            look_again_locked(&group);
        }
    }
}
