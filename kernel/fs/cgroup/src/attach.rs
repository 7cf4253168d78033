//! Moving processes (`cgroup.procs`), and who may.
//!
//! Who moves a process must be able to write to `cgroup.procs` of the group it comes to, which opening the file has checked, and of the nearest group
//! that is above both: so whom a part of the tree was given to moves processes within that part only. With the mount option `nsdelegate` both
//! groups must also be in the name space of who opened the file, and most files of the group at which that begins take nothing from him.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use sync::rcu::Replaced;
use vfs::permission::check_access;
use vfs::{Access, Credentials, Error, Inode, Result};

use crate::file_system;
use crate::group::Group;
use crate::interface::Entry;
use crate::membership::{self, Member};
use crate::{directory, freezer, interface, pids, processors, programs, tree};

/// Who opened a file.
pub(crate) struct Opener {
    credentials: Credentials,
    view: Arc<Group>,
    is_in_first_space: bool,
}

impl Opener {
    /// Who calls.
    pub(crate) fn calling() -> Self {
        let credentials = programs::get().and_then(|programs| programs.credentials());
        Self {
            credentials: credentials.unwrap_or(Credentials::root()),
            view: programs::view(),
            is_in_first_space: programs::is_in_first_space(),
        }
    }

    /// Whether he may write to a file of a group. Where name spaces are borders, what limits the root of his own one is the business of those outside.
    ///
    /// # Errors
    /// `EPERM`.
    pub(crate) fn check_border(&self, group: &Arc<Group>, entry: &Entry) -> Result<()> {
        let is_border = !self.is_in_first_space && Arc::ptr_eq(group, &self.view);
        if is_border && !entry.is_delegated && file_system::delegates_to_name_spaces() {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }
}

/// The group that a directory shows, if it does.
pub fn group_of_directory(inode: &Inode) -> Option<Arc<Group>> {
    directory::group_of(inode)
}

/// Whether the caller may make a child in a group instead of his own (`CLONE_INTO_CGROUP`).
///
/// # Errors
/// `EACCES`, `EBUSY`, `ENODEV`, `ENOENT`.
pub fn check_target(group: &Arc<Group>) -> Result<()> {
    let _tree = tree::lock(group)?;
    let opener = Opener::calling();
    may_write(group, &opener)?;
    let caller = programs::get().and_then(|programs| programs.caller()).ok_or(Error::NoProcess)?;
    check_permission(&caller.membership().group_or_root(), group, &opener)?;
    check_destination(group)
}

fn may_write(group: &Arc<Group>, opener: &Opener) -> Result<()> {
    let file = directory::file(group, interface::PROCESSES)?;
    check_access(&file, Access::WRITE, &opener.credentials)
}

fn check_permission(from: &Arc<Group>, to: &Arc<Group>, opener: &Opener) -> Result<()> {
    let mut common = to;
    while !from.is_within(common) {
        let Some(parent) = &common.parent else { break };
        common = parent;
    }
    may_write(common, opener)?;
    let in_view = |group: &Group| group.is_within(&opener.view);
    if file_system::delegates_to_name_spaces() && !(in_view(from) && in_view(to)) {
        return Err(Error::NotFound);
    }
    Ok(())
}

/// No processes in groups that hand controllers on.
fn check_destination(to: &Group) -> Result<()> {
    if to.is_root() || to.enabled().is_empty() { Ok(()) } else { Err(Error::Busy) }
}

/// The process that a number written to `cgroup.procs` or `cgroup.threads` means; 0 is the caller.
fn find(number: &[u8]) -> Result<Arc<dyn Member>> {
    let number = crate::number::parse_int(number)?;
    let number = u32::try_from(number).map_err(|_| Error::Invalid)?;
    let programs = programs::get().ok_or(Error::NoProcess)?;
    match number {
        0 => programs.caller(),
        number => programs.find(number),
    }
    .ok_or(Error::NoProcess)
}

/// Writes to `cgroup.procs`.
pub(crate) fn move_process(to: &Arc<Group>, opener: &Opener, number: &[u8]) -> Result<()> {
    let member = find(number)?;
    let _tree = tree::lock(to)?;
    let from = member.membership().group_or_root();
    check_permission(&from, to, opener)?;
    check_destination(to)?;
    migrate(&member, &from, to)
}

/// Writes to `cgroup.threads`: without threaded groups, a thread can be moved only to where it is.
pub(crate) fn move_thread(to: &Arc<Group>, opener: &Opener, number: &[u8]) -> Result<()> {
    let member = find(number)?;
    let _tree = tree::lock(to)?;
    let from = member.membership().group_or_root();
    check_permission(&from, to, opener)?;
    if Arc::ptr_eq(&from, to) { Ok(()) } else { Err(Error::NotSupported) }
}

/// What must be dropped without locks.
type Former = (Option<Replaced<Group>>, Option<Arc<dyn Member>>);

/// Moves a process; under the lock of the tree, which keeps both groups and the process's place.
fn migrate(member: &Arc<dyn Member>, from: &Arc<Group>, to: &Arc<Group>) -> Result<()> {
    if Arc::ptr_eq(from, to) {
        // Who moved it here may have had no memory to bring all of its threads along.
        return member.set_processors(processors::of(to).as_ref());
    }
    let used = member.processor_time_ns();
    let mut outcome: Result<Option<Former>> = Ok(None);
    let (mut is_first, mut was_last) = (false, false);
    member.with_threads(&mut |threads| {
        // One that has ended stays where it is; the write succeeds.
        if threads > 0 {
            outcome = enter(member, to).map(|first| {
                is_first = first;
                let (former, last) = leave(member, from, to, threads);
                was_last = last;
                Some(former)
            });
        }
    });
    let Some(former) = outcome? else { return Ok(()) };
    drop(former);
    member.membership().change_account(from, used);
    if is_first {
        to.populate();
    }
    if was_last {
        from.depopulate();
    }
    let brought_along = member.set_processors(processors::of(to).as_ref());
    // It stands still in one group and goes on in the other.
    member.interrupt();
    freezer::look_again(from);
    freezer::look_again(to);
    brought_along
}

/// Puts it into the list of its new group. Whether it is the first there.
fn enter(member: &Arc<dyn Member>, to: &Group) -> Result<bool> {
    if to.is_root() {
        return Ok(false);
    }
    let mut members = to.members.lock();
    vfs::allocation::reserve(&mut members.list, 1)?;
    Ok(membership::put_in(&mut members, member.clone()))
}

/// Takes it and what it counts out of its old group, and shows the new one. Whether it was the last in the old one.
fn leave(member: &Arc<dyn Member>, from: &Arc<Group>, to: &Arc<Group>, threads: u32) -> (Former, bool) {
    let membership = member.membership();
    let parked = membership.parked.load(Ordering::Relaxed);
    let (removed, last) = if from.is_root() {
        membership.charged.store(threads, Ordering::Relaxed);
        (None, false)
    } else {
        from.threads.fetch_sub(threads, Ordering::AcqRel);
        membership::take_out(from, &**member)
    };
    let charged = membership.charged.load(Ordering::Relaxed);
    pids::add(to, charged);
    pids::release(from, if from.is_root() { 0 } else { charged });
    from.freezer.move_parked(&to.freezer, parked);
    membership.freezes.store(to.freezer.is_freezing(), Ordering::Release);
    let group = if to.is_root() {
        membership.charged.store(0, Ordering::Relaxed);
        None
    } else {
        to.threads.fetch_add(threads, Ordering::AcqRel);
        Some(to.clone())
    };
    ((membership.group.replace(group), removed), last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_root_of_a_name_space_are_set_outside() {
        let make = |parent, name: &[u8]| {
            tree::make(parent, name, (0, 0), |group| Ok(group.clone())).expect("memory")
        };
        let border = make(tree::root(), b"border");
        let inner = make(&border, b"inner");
        let opener = |is_in_first_space| Opener {
            credentials: Credentials::root(),
            view: border.clone(),
            is_in_first_space,
        };
        let check = |opener: &Opener, group, name| {
            let entry = interface::ENTRIES.iter().find(|entry| entry.name == name).expect("it is there");
            opener.check_border(group, entry)
        };
        let inside = opener(false);
        assert_eq!(check(&inside, &border, "cgroup.freeze"), Ok(()), "name spaces are no borders");
        file_system::set_delegates_to_name_spaces(true);
        for name in ["cgroup.freeze", "memory.max", "pids.max", "cgroup.max.depth"] {
            assert_eq!(check(&inside, &border, name), Err(Error::NotPermitted), "{name}");
            assert_eq!(check(&inside, &inner, name), Ok(()), "{name}");
            assert_eq!(check(&opener(true), &border, name), Ok(()), "{name}");
        }
        for name in ["cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "memory.reclaim"] {
            assert_eq!(check(&inside, &border, name), Ok(()), "{name}");
        }
        file_system::set_delegates_to_name_spaces(false);
        for group in [&inner, &border] {
            tree::remove(group).expect("empty");
        }
    }
}
