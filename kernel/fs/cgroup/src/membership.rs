//! Where a process is: how it comes into a group and leaves it.
//!
//! A process in the root group has no group and counts nowhere. Others are in the list of their group from the fork, or from when they are moved,
//! to the end of their last thread; a zombie is in no list, but is still counted (`pids`) and shown in its group until it is waited for.
//!
//! The pointer to the group changes only with the list of the process's threads locked, by who holds the lock of the tree, and not once the last thread
//! has left. So threads that come and go under the lock of that list are counted in one group.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use sync::rcu::{self, ArcSlot};
use vfs::allocation;

use crate::group::{Group, Members};
use crate::{freezer, pids};

/// A process as groups know it.
pub trait Member: Send + Sync {
    /// Where it is.
    fn membership(&self) -> &Membership;

    /// Its number as the caller counts; 0 if the caller has no number for it.
    fn number(&self) -> u32;

    /// Calls for the numbers of its threads.
    fn each_thread(&self, each: &mut dyn FnMut(u32));

    /// Calls with how many threads live, with their list locked.
    fn with_threads(&self, work: &mut dyn FnMut(u32));

    /// Has all its threads look whether they shall stop or go on.
    fn interrupt(&self);

    /// Ends it as `SIGKILL` does.
    fn kill(&self);

    /// Has its threads compete for processors in a group, or in none.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn set_processors(&self, group: Option<&Arc<sched::control::Group>>) -> vfs::Result<()>;

    /// Processor time so far, in user mode and in the kernel.
    fn processor_time_ns(&self) -> (u64, u64);
}

/// A process's place in the tree.
pub struct Membership {
    /// None in the root group.
    pub(crate) group: ArcSlot<Group>,
    /// Where it is in the group's list, as far as it is known. Written under the lock of a list.
    pub(crate) place: AtomicUsize,
    /// What it counts in `pids`. Written as the group is.
    pub(crate) charged: AtomicU32,
    /// Threads that stand still because the group is frozen. Written with the list of threads locked.
    pub(crate) parked: AtomicU32,
    /// It shall stand still.
    pub(crate) freezes: AtomicBool,
    /// Processor time before it came.
    pub(crate) before: crate::processor_time::Before,
}

/// How a fork went.
#[derive(Debug, PartialEq, Eq)]
pub enum Joined {
    /// The child is where it belongs.
    Yes,
    /// So it is, and it must be killed: all of the group are.
    ToBeKilled,
    /// A limit of `pids` is reached.
    Full,
    /// The wanted group was removed.
    Removed,
    /// The wanted group hands controllers on.
    Busy,
    /// No memory.
    NoMemory,
}

impl Default for Membership {
    fn default() -> Self {
        Self::new()
    }
}

impl Membership {
    /// In the root group.
    pub const fn new() -> Self {
        Self {
            group: ArcSlot::empty(),
            place: AtomicUsize::new(0),
            charged: AtomicU32::new(0),
            parked: AtomicU32::new(0),
            freezes: AtomicBool::new(false),
            before: crate::processor_time::Before::new(),
        }
    }

    /// Whether it is in the root group.
    #[inline(always)]
    pub fn is_in_root(&self) -> bool {
        self.group.is_empty()
    }

    /// The group; none for the root.
    pub fn group(&self) -> Option<Arc<Group>> {
        self.group.get(&rcu::read())
    }

    /// The group, the root among them.
    pub(crate) fn group_or_root(&self) -> Arc<Group> {
        self.group().unwrap_or_else(|| crate::tree::root().clone())
    }

    /// The group that its threads compete for processors in.
    pub fn processors(&self) -> Option<Arc<sched::control::Group>> {
        self.group().and_then(|group| crate::processors::of(&group))
    }

    /// Whether it shall stand still.
    #[inline(always)]
    pub fn freezes(&self) -> bool {
        self.freezes.load(Ordering::Acquire)
    }

    /// Whether a fork would exceed a limit; that is counted, too. Before anything is made for the child.
    #[inline]
    pub fn refuses_fork(&self) -> bool {
        !self.is_in_root() && self.refuses_fork_in_group()
    }

    #[inline(never)]
    fn refuses_fork_in_group(&self) -> bool {
        let Some(group) = self.group() else { return false };
        let full = pids::is_full(&group);
        if full {
            pids::deny(&group);
        }
        full
    }

    /// A new process begins in the group of its parent, or in the one that was asked for.
    #[inline]
    pub fn join(&self, child: &Arc<dyn Member>, wanted: Option<&Arc<Group>>) -> Joined {
        if self.is_in_root() && wanted.is_none() { Joined::Yes } else { self.join_group(child, wanted) }
    }

    #[inline(never)]
    fn join_group(&self, child: &Arc<dyn Member>, wanted: Option<&Arc<Group>>) -> Joined {
        loop {
            let group = match wanted {
                Some(wanted) => Some(wanted.clone()),
                None => self.group(),
            };
            let Some(group) = group.filter(|group| !group.is_root()) else { return Joined::Yes };
            if pids::claim(&group).is_err() {
                pids::deny(&group);
                return Joined::Full;
            }
            let outcome = begin_in(child, &group);
            if outcome != Joined::Yes && outcome != Joined::ToBeKilled {
                pids::release(&group, 1);
            }
            // The parent has left its group, which was removed since, or hands controllers on.
            if !matches!(outcome, Joined::Removed | Joined::Busy) || wanted.is_some() {
                return outcome;
            }
        }
    }

    /// A process that had joined was not made after all.
    #[inline]
    pub fn abandon(&self, child: &Arc<dyn Member>) {
        if !self.is_in_root() {
            self.end(&**child);
            self.release();
        }
    }

    /// One more thread of the process, with the list of threads locked.
    ///
    /// # Errors
    /// A limit is reached.
    #[inline]
    pub fn thread_begins(&self) -> Result<(), Full> {
        if self.is_in_root() { Ok(()) } else { self.thread_begins_in_group() }
    }

    #[inline(never)]
    fn thread_begins_in_group(&self) -> Result<(), Full> {
        let guard = rcu::read();
        let Some(group) = self.group.peek(&guard) else { return Ok(()) };
        pids::claim(group).map_err(|pids::Full| Full)?;
        self.charged.fetch_add(1, Ordering::Relaxed);
        group.threads.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// A thread that is not the last one ends, with the list of threads locked.
    #[inline]
    pub fn thread_ends(&self) {
        if !self.is_in_root() {
            self.thread_ends_in_group();
        }
    }

    #[inline(never)]
    fn thread_ends_in_group(&self) {
        let guard = rcu::read();
        let Some(group) = self.group.peek(&guard) else { return };
        self.charged.fetch_sub(1, Ordering::Relaxed);
        pids::release(group, 1);
        group.threads.fetch_sub(1, Ordering::AcqRel);
    }

    /// After a thread has ended, without locks: the others may all stand still.
    #[inline]
    pub fn thread_has_ended(&self) {
        if self.freezes()
            && let Some(group) = self.group()
        {
            freezer::look_again_locked(&group);
        }
    }

    /// The last thread has left: the process is in no list any more. Without locks.
    #[inline]
    pub fn end(&self, member: &dyn Member) {
        if !self.is_in_root() {
            self.end_in_group(member);
        }
    }

    #[inline(never)]
    fn end_in_group(&self, member: &dyn Member) {
        let Some(group) = self.group() else { return };
        group.ended.add(self.before.since(member.processor_time_ns()));
        group.threads.fetch_sub(1, Ordering::AcqRel);
        let (removed, last) = take_out(&group, member);
        drop(removed);
        if last {
            group.depopulate();
        }
        self.thread_has_ended();
    }

    /// It was waited for: it counts no more.
    #[inline]
    pub fn release(&self) {
        if !self.is_in_root() {
            self.release_in_group();
        }
    }

    #[inline(never)]
    fn release_in_group(&self) {
        if let Some(group) = self.group() {
            pids::release(&group, self.charged.swap(0, Ordering::Relaxed));
        }
    }
}

/// A limit of `pids` is reached.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

/// Puts a new process, which nobody else knows, into a group.
fn begin_in(child: &Arc<dyn Member>, group: &Arc<Group>) -> Joined {
    let membership = child.membership();
    let (first, killed) = {
        let mut members = group.members.lock();
        if members.removed {
            return Joined::Removed;
        }
        if !group.enabled().is_empty() {
            return Joined::Busy;
        }
        if allocation::reserve(&mut members.list, 1).is_err() {
            return Joined::NoMemory;
        }
        membership.charged.store(1, Ordering::Relaxed);
        // There was none: nothing to drop.
        drop(membership.group.replace(Some(group.clone())));
        // Who freezes the group sets this for those that it finds in the list.
        membership.freezes.store(group.freezer.is_freezing(), Ordering::Release);
        group.threads.fetch_add(1, Ordering::AcqRel);
        (put_in(&mut members, child.clone()), members.kills > 0)
    };
    if first {
        group.populate();
    }
    if killed { Joined::ToBeKilled } else { Joined::Yes }
}

/// Puts a process into a list that has room. Whether it is the first there.
pub(crate) fn put_in(members: &mut Members, member: Arc<dyn Member>) -> bool {
    member.membership().place.store(members.list.len(), Ordering::Relaxed);
    members.list.push(member);
    members.list.len() == 1
}

/// Takes a process out of the list of a group. What the list had of it, and whether it was the last one.
pub(crate) fn take_out(group: &Group, member: &dyn Member) -> (Option<Arc<dyn Member>>, bool) {
    let membership = member.membership();
    let is_it = |other: &Arc<dyn Member>| core::ptr::eq(other.membership(), membership);
    let mut members = group.members.lock();
    let noted = membership.place.load(Ordering::Relaxed);
    // Who is in two lists for a moment has only one note.
    let place = match members.list.get(noted) {
        Some(other) if is_it(other) => Some(noted),
        _ => members.list.iter().position(is_it),
    };
    let Some(place) = place else { return (None, false) };
    let removed = members.list.swap_remove(place);
    if let Some(moved) = members.list.get(place) {
        moved.membership().place.store(place, Ordering::Relaxed);
    }
    (Some(removed), members.list.is_empty())
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;

    use super::*;
    use crate::controllers::Controllers;
    use crate::tree;

    /// A process that does something when it is first asked where it is: that is when it is about to be put into a group.
    struct Process {
        membership: Membership,
        at_first: sync::SpinLock<Option<Box<dyn FnOnce() + Send>>>,
    }

    fn process(at_first: Option<Box<dyn FnOnce() + Send>>) -> Arc<dyn Member> {
        Arc::new(Process { membership: Membership::new(), at_first: sync::SpinLock::new(at_first) })
    }

    impl Member for Process {
        fn membership(&self) -> &Membership {
            let act = self.at_first.lock().take();
            if let Some(act) = act {
                act();
            }
            &self.membership
        }

        fn number(&self) -> u32 {
            0
        }

        fn each_thread(&self, _each: &mut dyn FnMut(u32)) {}

        fn with_threads(&self, work: &mut dyn FnMut(u32)) {
            work(1);
        }

        fn interrupt(&self) {}

        fn kill(&self) {}

        fn set_processors(&self, _group: Option<&Arc<sched::control::Group>>) -> vfs::Result<()> {
            Ok(())
        }

        fn processor_time_ns(&self) -> (u64, u64) {
            (0, 0)
        }
    }

    #[test]
    fn a_child_goes_where_its_parent_has_been_moved_to() {
        let make =
            |name: &[u8]| tree::make(tree::root(), name, (0, 0), |group| Ok(group.clone())).expect("memory");
        let (former, new) = (make(b"fork from"), make(b"fork to"));
        let parent = process(None);
        let begin = |member: &Arc<dyn Member>, group: &Arc<Group>| {
            pids::claim(group).expect("no limit");
            assert_eq!(begin_in(member, group), Joined::Yes);
        };
        begin(&parent, &former);
        // The parent moves while it forks, and its former group hands controllers on, as only groups without members do.
        let (moved, left, entered) = (parent.clone(), former.clone(), new.clone());
        let child = process(Some(Box::new(move || {
            parent_moves(&moved, &left, &entered);
            left.enabled.store(Controllers::PIDS.bits(), Ordering::Relaxed);
        })));
        assert_eq!(parent.membership().join(&child, None), Joined::Yes);
        let group = child.membership().group().expect("not the root");
        assert!(Arc::ptr_eq(&group, &new));
        assert_eq!((former.pids.current(), new.pids.current()), (0, 2));
        former.enabled.store(0, Ordering::Relaxed);
        for member in [&child, &parent] {
            member.membership().end(&**member);
            member.membership().release();
        }
        for group in [&former, &new] {
            tree::remove(group).expect("empty");
        }
    }

    fn parent_moves(parent: &Arc<dyn Member>, from: &Arc<Group>, to: &Arc<Group>) {
        let (removed, last) = take_out(from, &**parent);
        assert!(removed.is_some() && last);
        from.threads.fetch_sub(1, Ordering::AcqRel);
        from.depopulate();
        pids::release(from, 1);
        pids::add(to, 1);
        to.threads.fetch_add(1, Ordering::AcqRel);
        drop(parent.membership().group.replace(Some(to.clone())));
        if put_in(&mut to.members.lock(), parent.clone()) {
            to.populate();
        }
    }
}
