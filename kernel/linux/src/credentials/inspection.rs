//! Who may look into a process and change it: the rule of ptrace(2), "ptrace access mode checking".
//!
//! What may be looked into is a program as it runs under its credentials. execve replaces memory, credentials and whether the program lets itself be looked
//! into in one step, under the lock of [`Process::executable`], and numbers the program. A look ([`Inspector::inspect`]) checks, takes what it wants, and
//! is good only if the program is still the same one then: otherwise it is checked again, against the program that is there now. So nobody comes to the
//! memory or the files of a set-user-ID program by a check that its caller's program had passed.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use vfs::{Capabilities, UserSpace};

use super::identity::{Credentials, Ids};
use crate::errno::Errno;
use crate::process::process::Process;
use crate::process::thread::Thread;
use crate::ptrace::scope;
use crate::task::Task;

/// Which of its ids the looker acts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActsBy {
    /// Those by which it opens files, and its effective capabilities: files of `/proc`.
    FileSystem,
    /// The real ones, and its permitted capabilities: system calls that name a process.
    Real,
}

/// Who looks.
pub(crate) struct Inspector<'a> {
    process: &'a Arc<Process>,
    credentials: &'a Credentials,
    acts_by: ActsBy,
    /// Not only to look: `ptrace_scope` counts.
    attaches: bool,
}

/// The caller may not look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

impl From<Refused> for Errno {
    fn from(_: Refused) -> Errno {
        Errno::EPERM
    }
}

impl From<Refused> for vfs::Error {
    fn from(_: Refused) -> vfs::Error {
        vfs::Error::AccessDenied
    }
}

impl Credentials {
    /// Whether who has them may look into a process with the credentials of `target`. `is_dumpable`: whether that process lets itself be looked into.
    /// `memory_space`: the name space of users in which its program was started.
    fn may_inspect(
        &self,
        acts_by: ActsBy,
        target: &Credentials,
        is_dumpable: bool,
        memory_space: &UserSpace,
    ) -> bool {
        let (user, group, mine) = match acts_by {
            ActsBy::FileSystem => (self.file.user, self.file.group, self.file.capabilities),
            ActsBy::Real => (self.user.real, self.group.real, self.permitted),
        };
        let traces = |space: &UserSpace| self.has_in(space, Capabilities::SYS_PTRACE);
        let same = target.user == Ids::all(user) && target.group == Ids::all(group);
        let can_t_do_more = target.space().is_same(self.space()) && mine.contains(target.permitted);
        let traces_target = traces(target.space());
        (same || traces_target) && (is_dumpable || traces(memory_space)) && (can_t_do_more || traces_target)
    }
}

impl<'a> Inspector<'a> {
    /// The caller of a system call that names a process.
    pub(crate) fn calling(task: &'a Task) -> Self {
        Self {
            process: task.process(),
            credentials: &task.credentials,
            acts_by: ActsBy::Real,
            attaches: false,
        }
    }

    /// The same of one that traces the process, takes its files, or reads or writes its memory.
    pub(crate) fn attaching(task: &'a Task) -> Self {
        Self { attaches: true, ..Self::calling(task) }
    }

    /// A thread that reads files of `/proc`; `credentials` are its own.
    pub(crate) fn reading(thread: &'a Thread, credentials: &'a Credentials) -> Self {
        Self { process: thread.process(), credentials, acts_by: ActsBy::FileSystem, attaches: false }
    }

    /// The same where the file is of no less use than the process's memory.
    pub(crate) fn attaching_by_file(thread: &'a Thread, credentials: &'a Credentials) -> Self {
        Self { attaches: true, ..Self::reading(thread, credentials) }
    }

    /// The number of the program that runs in `process`, if it may be looked into.
    fn check(&self, process: &Arc<Process>) -> Result<u64, Refused> {
        let executable = process.executable.lock();
        // Relaxed: whoever gives a process other credentials says first that it is not to be looked into, and publishes them by a lock.
        let is_allowed = Arc::ptr_eq(self.process, process)
            || process.look_at_credentials(|target| {
                let is_dumpable = process.is_dumpable.load(Ordering::Relaxed) == 1;
                self.credentials.may_inspect(self.acts_by, target, is_dumpable, &executable.space)
            });
        let program = executable.program;
        drop(executable);
        let is_other = !Arc::ptr_eq(self.process, process);
        if is_allowed && self.attaches && is_other && !scope::lets(self.process, self.credentials, process) {
            return Err(Refused);
        }
        if is_allowed { Ok(program) } else { Err(Refused) }
    }

    /// What `look` takes from a process: of a program that may be looked into. It is called again when another program has come meanwhile.
    ///
    /// # Errors
    /// [`Refused`].
    pub(crate) fn inspect<T>(
        &self,
        process: &Arc<Process>,
        mut look: impl FnMut() -> T,
    ) -> Result<T, Refused> {
        loop {
            let program = self.check(process)?;
            let found = look();
            if process.executable.lock().program == program {
                return Ok(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: u32) -> Credentials {
        let mut user = Credentials::root().expect("memory");
        (user.user, user.group) = (Ids::all(id), Ids::all(id));
        (user.file.user, user.file.group) = (id, id);
        (user.permitted, user.file.capabilities) = (Capabilities::empty(), Capabilities::empty());
        user
    }

    #[test]
    fn one_looks_into_what_runs_as_oneself_and_lets_itself_be_looked_into() {
        for acts_by in [ActsBy::FileSystem, ActsBy::Real] {
            assert!(user(7).may_inspect(acts_by, &user(7), true, UserSpace::FIRST));
            assert!(!user(7).may_inspect(acts_by, &user(7), false, UserSpace::FIRST));
            assert!(!user(7).may_inspect(acts_by, &user(8), true, UserSpace::FIRST));
            let mut saved = user(7);
            saved.user.saved = 8;
            assert!(
                !user(7).may_inspect(acts_by, &saved, true, UserSpace::FIRST),
                "it may become somebody else"
            );
            let mut capable = user(7);
            capable.permitted = Capabilities::CHOWN;
            assert!(!user(7).may_inspect(acts_by, &capable, true, UserSpace::FIRST), "it may do more");
            let mut tracer = user(7);
            tracer.file.capabilities = Capabilities::SYS_PTRACE;
            assert!(tracer.may_inspect(acts_by, &capable, false, UserSpace::FIRST));
        }
    }

    #[test]
    fn calls_act_by_real_ids_and_files_by_those_for_files() {
        let mut caller = user(7);
        (caller.file.user, caller.file.group) = (8, 8);
        assert!(caller.may_inspect(ActsBy::Real, &user(7), true, UserSpace::FIRST));
        assert!(!caller.may_inspect(ActsBy::Real, &user(8), true, UserSpace::FIRST));
        assert!(caller.may_inspect(ActsBy::FileSystem, &user(8), true, UserSpace::FIRST));
        assert!(!caller.may_inspect(ActsBy::FileSystem, &user(7), true, UserSpace::FIRST));
        let mut capable = user(7);
        capable.permitted = Capabilities::CHOWN;
        let mut caller = user(7);
        caller.permitted = Capabilities::CHOWN;
        assert!(caller.may_inspect(ActsBy::Real, &capable, true, UserSpace::FIRST));
        assert!(
            !caller.may_inspect(ActsBy::FileSystem, &capable, true, UserSpace::FIRST),
            "what it has is not effective"
        );
    }
}
