//! Process groups and sessions (setpgid(2), setsid(2)).
//!
//! A process points to its group, the group to its session; the group lists its members, so that a signal to the group reaches them
//! without a search. A group lives in the process table while it has members, a session while it has groups.
//!
//! Locking: `members` is held while signals are sent to the group and while fork adds a child; so a signal to the group either
//! reaches the child or is pending in the parent before the child is added (fork then starts again). A process's own `group`
//! pointer changes only with the locks of both groups' lists taken one after the other, never nested, and only by who holds
//! `MOVES`: a shell and its child often move the child to the same group at the same time, and that must be one group.
//!
//! A group that has lost its last member is *dissolved*: nobody joins it any more, and the process with its number may make another one
//! before this one has left the table.
//!
//! A process notes at which place of its group's list it is, so that it leaves without a search, however many members there are. The note
//! is written under the list's lock. Who is in two lists for a moment has only one note: what is not at its place is searched for.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

use sync::SpinLock;
use tty::Terminal;

use super::process::{Process, State};
use super::table::{self, Pid};
use crate::errno::Errno;

/// A session: groups that share a controlling terminal.
pub struct Session {
    id: Pid,
    /// The controlling terminal.
    pub(crate) terminal: SpinLock<Option<Arc<Terminal>>>,
    /// The group that was in the foreground of the terminal when that hung up; 0: it did not.
    pub(crate) hung_up_group: AtomicU32,
    groups: AtomicUsize,
}

impl Session {
    /// A new session; its first group is made with [`ProcessGroup::new`].
    pub fn new(id: Pid) -> Result<Arc<Session>, Errno> {
        let session = Session {
            id,
            terminal: SpinLock::new(None),
            hung_up_group: AtomicU32::new(0),
            groups: AtomicUsize::new(0),
        };
        memory::fallible::try_arc(session).map_err(|_| Errno::ENOMEM)
    }

    /// Its number: the pid of the process that made it.
    pub fn id(&self) -> Pid {
        self.id
    }
}

/// A process group.
pub struct ProcessGroup {
    id: Pid,
    session: Arc<Session>,
    members: SpinLock<Members>,
}

/// Held by who looks what group a process is in, or whether there is a group, and moves the process then (setpgid, setsid).
pub(crate) static MOVES: sched::Mutex<()> = sched::Mutex::named("moves between process groups", ());

struct Members {
    list: Vec<Weak<Process>>,
    /// The last one has left.
    dissolved: bool,
}

impl ProcessGroup {
    /// A new group without members.
    pub fn new(id: Pid, session: Arc<Session>) -> Result<Arc<ProcessGroup>, Errno> {
        let members = Members { list: Vec::new(), dissolved: false };
        let group = ProcessGroup { id, session, members: SpinLock::new(members) };
        let group = memory::fallible::try_arc(group).map_err(|_| Errno::ENOMEM)?;
        Ok(group)
    }

    /// Its number.
    pub fn id(&self) -> Pid {
        self.id
    }

    /// Its session.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Whether its last member has left: then it is no group any more, though a look-up may still have found it.
    pub fn is_dissolved(&self) -> bool {
        self.members.lock().dissolved
    }

    /// Adds a member if `permitted` says so under the list's lock, unless the group is dissolved. A group that gets its first member
    /// becomes findable.
    pub fn add(
        self: &Arc<Self>,
        process: &Arc<Process>,
        permitted: impl FnOnce() -> bool,
    ) -> Result<bool, Errno> {
        let mut members = self.members.lock();
        memory::fallible::try_reserve(&mut members.list, 1).map_err(|_| Errno::ENOMEM)?;
        if members.dissolved || !permitted() {
            return Ok(false);
        }
        let first = members.list.is_empty();
        process.note_place_in_group(members.list.len());
        members.list.push(Arc::downgrade(process));
        drop(members);
        if first {
            if self.session.groups.fetch_add(1, Ordering::AcqRel) == 0 {
                table::insert_session(&self.session);
            }
            table::insert_group(self);
        }
        Ok(true)
    }

    /// Takes a member out; the last one takes the group out of the table, and the last group its session.
    pub fn remove(&self, process: &Process) {
        let mut members = self.members.lock();
        let before = members.list.len();
        take_out(&mut members.list, process);
        let last = before > 0 && members.list.is_empty();
        members.dissolved |= last;
        drop(members);
        if last {
            table::remove_group(self);
            if self.session.groups.fetch_sub(1, Ordering::AcqRel) == 1 {
                table::remove_session(&self.session);
            }
        }
    }

    /// Makes a process that was added to this group, and is still a member of `old`, a member of this one only. It may have been waited
    /// for since: then it is a member of neither.
    pub(crate) fn take_from(self: &Arc<Self>, old: &ProcessGroup, process: &Process) {
        process.replace_group(self.clone());
        old.remove(process);
        // Pairs with the fence in `leave_group`: either who buries the process finds it here, or its state is seen below.
        fence(Ordering::SeqCst);
        if process.state() == State::Dead {
            self.remove(process);
        }
    }

    /// Calls `visit` for each member under the list's lock.
    pub fn for_each(&self, mut visit: impl FnMut(&Arc<Process>)) {
        for member in self.members.lock().list.iter().filter_map(Weak::upgrade) {
            visit(&member);
        }
    }

    /// The members now.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn members(&self) -> Result<Vec<Arc<Process>>, Errno> {
        let mut found = Vec::new();
        let members = self.members.lock();
        memory::fallible::try_reserve(&mut found, members.list.len()).map_err(|_| Errno::ENOMEM)?;
        found.extend(members.list.iter().filter_map(Weak::upgrade));
        Ok(found)
    }

    /// Whether the condition holds for a member. It is asked without the list's lock, and also when there is no memory for a copy
    /// of the list: then each next member is searched for.
    pub(crate) fn any_member(&self, mut condition: impl FnMut(&Arc<Process>) -> bool) -> bool {
        if let Ok(members) = self.members() {
            return members.iter().any(condition);
        }
        let mut from = 0;
        while let Some(member) = self.next_member(from) {
            if condition(&member) {
                return true;
            }
            from = member.pid() + 1;
        }
        false
    }

    /// The member with the lowest number from `from` on.
    fn next_member(&self, from: Pid) -> Option<Arc<Process>> {
        let members = self.members.lock();
        let later = members.list.iter().filter_map(Weak::upgrade).filter(|member| member.pid() >= from);
        later.min_by_key(|member| member.pid())
    }

    /// Whether no member has a parent in another group of the same session: then nobody would continue a stopped member.
    /// Who has no thread any more counts neither as a member nor as a parent: of two that end at the same time, at least the later one sees
    /// that the other does not hold the group either.
    pub fn is_orphaned(&self) -> bool {
        !self.any_member(|member| {
            if member.thread_count() == 0 {
                return false;
            }
            let Some(parent) = member.parent() else { return false };
            // Process 1 has no thread either.
            if parent.thread_count() == 0 {
                return false;
            }
            let group = parent.group();
            group.id != self.id && group.session.id == self.session.id
        })
    }
}

/// Takes a dead process out of its group, also out of one that it is just being moved to.
pub(crate) fn leave_group(process: &Process) {
    debug_assert_eq!(process.state(), State::Dead);
    fence(Ordering::SeqCst);
    process.group().remove(process);
}

/// Takes a process out of a list; the last one of the list goes to its place.
fn take_out(members: &mut Vec<Weak<Process>>, process: &Process) {
    let is_at = |member: &Weak<Process>| core::ptr::eq(member.as_ptr(), process);
    let noted = process.place_in_group();
    let place = match members.get(noted).is_some_and(is_at) {
        true => Some(noted),
        false => members.iter().position(is_at),
    };
    let Some(place) = place else { return };
    members.swap_remove(place);
    // Never the last reference: who is in a list has not left it yet, and who makes it leave has one.
    if let Some(moved) = members.get(place).and_then(Weak::upgrade) {
        moved.note_place_in_group(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::exercise::Maker;

    const FORMER: Pid = 4_000_001;
    const LATER: Pid = 4_000_002;

    fn group(id: Pid, session: &Arc<Session>) -> Arc<ProcessGroup> {
        ProcessGroup::new(id, session.clone()).expect("memory")
    }

    /// A member of `former` that was added to `later`.
    fn on_its_way(former: &Arc<ProcessGroup>, later: &Arc<ProcessGroup>) -> Arc<Process> {
        let process = Maker::new().and_then(|maker| maker.make(FORMER)).expect("memory");
        assert!(former.add(&process, || true).expect("memory"));
        process.replace_group(former.clone());
        assert!(later.add(&process, || true).expect("memory"));
        process
    }

    #[test]
    fn a_process_that_is_waited_for_on_its_way_is_in_neither_group() {
        let session = Session::new(FORMER).expect("memory");
        for (offset, dies_first) in [(0, true), (2, false)] {
            let (former, later) = (group(FORMER + offset, &session), group(LATER + offset, &session));
            let process = on_its_way(&former, &later);
            if dies_first {
                process.set_state(State::Dead);
                leave_group(&process);
                later.take_from(&former, &process);
            } else {
                later.take_from(&former, &process);
                assert!(former.is_dissolved() && !later.is_dissolved());
                process.set_state(State::Dead);
                leave_group(&process);
            }
            assert!(former.is_dissolved() && later.is_dissolved());
            assert!(table::group(later.id()).is_none());
        }
        assert!(table::session(FORMER).is_none());
    }
}
