//! unshare(2) and setns(2) as far as they are about name spaces, and what clone(2) makes of its flags.

use alloc::sync::Arc;

use vfs::mount::policy;
use vfs::user_space::{self, Owner};
use vfs::walk::FileSystemContext;
use vfs::{Capabilities, UserSpace};

use super::files::{NameSpaceFile, Target};
use super::kind::Kind;
use super::{GroupSpace, NameSpaces, Networks, Space, TimeSpace, next_number};
use crate::credentials::identity::Credentials;
use crate::errno::{Errno, SysResult};
use crate::fork::CloneFlags;
use crate::process::pid_space::PidSpace;
use crate::process::process::Process;
use crate::sysv::space::IpcSpace;
use crate::task::Task;

/// Flags of name spaces that can be made.
pub(crate) const MADE: CloneFlags = OWNED.union(CloneFlags::NEWUSER);
/// Those that belong to a name space of users.
const OWNED: CloneFlags = CloneFlags::NEWNS.union(SHARED);
/// Those of them that a thread has in one object.
const SHARED: CloneFlags = CloneFlags::NEWUTS
    .union(CloneFlags::NEWIPC)
    .union(CloneFlags::NEWCGROUP)
    .union(CloneFlags::NEWPID)
    .union(CloneFlags::NEWNET)
    .union(CloneFlags::NEWTIME);

/// The credentials in a new name space of users if the flags ask for one, which comes before others: those belong to it then. Fails as well if the caller may not
/// make those others.
///
/// # Errors
/// EPERM for who is not privileged, whose ids are not mapped in his own name space of users, or who has changed his root directory; ENOSPC at a limit; ENOMEM.
pub(crate) fn new_credentials(task: &Task, flags: CloneFlags) -> Result<Option<Credentials>, Errno> {
    if !flags.intersects(MADE) {
        return Ok(None);
    }
    let old = &task.credentials;
    let new = match flags.contains(CloneFlags::NEWUSER) {
        true => {
            let places = task.file_system.places();
            if !places.root.same(&places.namespace.root()) {
                return Err(Errno::EPERM);
            }
            let (user, group) = (old.user.effective, old.group.effective);
            Some(old.entering(UserSpace::make(next_number(), &old.file, user, group)?))
        }
        false => None,
    };
    let acting = new.as_ref().unwrap_or(old);
    if flags.intersects(OWNED) && !acting.has_here(Capabilities::SYS_ADMIN) {
        let only_mounts = (flags & OWNED) == CloneFlags::NEWNS;
        if !only_mounts || !policy::user_mounts() {
            return Err(Errno::EPERM);
        }
    }
    Ok(new)
}

/// Gives a context a name space of mounts of its own; who is not privileged gets one that is private to him.
///
/// # Errors
/// ENOSPC, ENOMEM.
pub(crate) fn unshare_mounts(context: &FileSystemContext, acting: &Credentials) -> Result<(), Errno> {
    let user = (!acting.has_here(Capabilities::SYS_ADMIN)).then_some(acting.user.effective);
    Ok(context.unshare_mounts(claim(user_space::Kind::Mount, acting)?, user)?)
}

/// A place in the counts for a new name space of who has these credentials.
///
/// # Errors
/// ENOSPC, ENOMEM.
pub(crate) fn claim(kind: user_space::Kind, credentials: &Credentials) -> Result<Owner, Errno> {
    Ok(Owner::claim(kind, credentials.space(), credentials.user.effective)?)
}

/// The name spaces that flags ask for, made of those of the caller; `None` in the first ones. They belong to that of users of the credentials.
///
/// # Errors
/// ENOSPC, ENOMEM.
pub(crate) fn make(
    task: &Task,
    flags: CloneFlags,
    credentials: &Credentials,
) -> Result<Option<Arc<NameSpaces>>, Errno> {
    if !flags.intersects(SHARED) {
        return Ok(task.name_spaces.clone());
    }
    let mut spaces = task.current_name_spaces();
    if flags.contains(CloneFlags::NEWUTS) {
        let owner = claim(user_space::Kind::SystemNames, credentials)?;
        spaces.names = Space::made(spaces.names.copy(next_number(), owner))?;
    }
    if flags.contains(CloneFlags::NEWIPC) {
        let owner = claim(user_space::Kind::Ipc, credentials)?;
        let maker = (credentials.file.user, credentials.file.group);
        spaces.ipc = Space::made(IpcSpace::new(next_number(), owner, maker))?;
    }
    if flags.contains(CloneFlags::NEWCGROUP) {
        let owner = claim(user_space::Kind::Cgroup, credentials)?;
        let root = task.process().control_group.group();
        spaces.groups = Space::made(GroupSpace::new(next_number(), owner, root))?;
    }
    if flags.contains(CloneFlags::NEWNET) {
        let owner = claim(user_space::Kind::Network, credentials)?;
        spaces.networks = Space::made(Networks::new(next_number(), owner))?;
    }
    if flags.contains(CloneFlags::NEWTIME) {
        let owner = claim(user_space::Kind::Time, credentials)?;
        spaces.times_of_children = Space::made(spaces.times_of_children.copy(next_number(), owner))?;
    }
    if flags.contains(CloneFlags::NEWPID) {
        if spaces.for_children.is_some() {
            return Err(Errno::EINVAL);
        }
        let owner = claim(user_space::Kind::Process, credentials)?;
        spaces.for_children = Some(PidSpace::new(next_number(), task.process().space(), owner)?);
    }
    spaces.into_shared()
}

/// Those of a thread whose new program, or child, is in the name space of times that its maker has for it; `None`: that is its own.
///
/// # Errors
/// ENOMEM.
pub(crate) fn with_times_of_children(spaces: &NameSpaces) -> Result<Option<Arc<NameSpaces>>, Errno> {
    if spaces.times.is_same(&spaces.times_of_children) {
        return Ok(None);
    }
    let times = spaces.times_of_children.clone();
    NameSpaces { times, ..NameSpaces::clone(spaces) }.into_shared()
}

/// What a call enters.
struct Entered {
    spaces: NameSpaces,
    enters_ipc: bool,
    times: Option<Space<TimeSpace>>,
    file_system: Option<Arc<FileSystemContext>>,
    /// In another name space of users.
    credentials: Option<Credentials>,
}

/// Moves the caller to the name space that a file stands for, or to some of a process's.
#[inline(never)]
pub fn setns(task: &mut Task, descriptor: i32, kinds: u32) -> SysResult {
    let file = task.usable_file(descriptor)?;
    let mut entered = Entered {
        spaces: task.current_name_spaces(),
        enters_ipc: false,
        times: None,
        file_system: None,
        credentials: None,
    };
    if let Some(NameSpaceFile(target)) = file.object::<NameSpaceFile>() {
        if kinds != 0 && kinds != target.kind().flag() {
            return Err(Errno::EINVAL);
        }
        entered.enter(task, target)?;
    } else {
        let process = crate::pidfd::process_of(task, descriptor).map_err(|_| Errno::EINVAL)?;
        let known = Kind::ENTERED.iter().fold(0, |known, kind| known | kind.flag());
        if kinds == 0 || kinds & !known != 0 {
            return Err(Errno::EINVAL);
        }
        for kind in Kind::ENTERED.into_iter().filter(|kind| kinds & kind.flag() != 0) {
            entered.enter(task, &of_process(task, &process, kind)?)?;
        }
    }
    let Entered { spaces, enters_ipc, times, file_system, credentials } = entered;
    let spaces = spaces.into_shared()?;
    let credentials = match credentials {
        Some(credentials) => Some(memory::fallible::try_arc(credentials).map_err(|_| Errno::ENOMEM)?),
        None => None,
    };
    if let Some(times) = times {
        times.freeze();
        crate::vdso::follow(&task.address_space, &times)?;
    }
    if enters_ipc {
        crate::sysv::semaphore::undo::leave(task);
    }
    task.enter_name_spaces(spaces);
    if let Some(credentials) = credentials {
        task.install_credentials(credentials);
    }
    if let Some(file_system) = file_system {
        task.replace_file_system(file_system);
    }
    Ok(0)
}

/// The name space of a process that the caller may look into.
fn of_process(task: &Task, process: &Arc<Process>, kind: Kind) -> Result<Target, Errno> {
    let look = || {
        let thread = process.representative().ok_or(Errno::ESRCH)?;
        Target::of(&thread, kind).map_err(|_| Errno::ESRCH)
    };
    crate::credentials::inspection::Inspector::calling(task).inspect(process, look)?
}

impl Entered {
    fn enter(&mut self, task: &Task, target: &Target) -> Result<(), Errno> {
        let credentials = &task.credentials;
        credentials.require_in(target.owner(), Capabilities::SYS_ADMIN).or_else(|errno| match target {
            // What is wrong with these comes first.
            Target::Users(_) => Ok(()),
            _ => Err(errno),
        })?;
        let users = self.credentials.as_ref().unwrap_or(credentials).space().clone();
        match target {
            Target::Users(space) => {
                let is_alone = task.process().thread_count() == 1 && !task.file_system.is_shared();
                if space.is_same(credentials.space()) || !is_alone {
                    return Err(Errno::EINVAL);
                }
                credentials.require_in(space, Capabilities::SYS_ADMIN)?;
                self.credentials = Some(credentials.entering(space.clone()));
                return Ok(());
            }
            _ => credentials.require_in(&users, Capabilities::SYS_ADMIN)?,
        }
        match target {
            Target::Users(_) => {}
            Target::Processes(space) => {
                let own = task.process().space();
                if !PidSpace::encloses(own, space) {
                    return Err(Errno::EINVAL);
                }
                let is_own = PidSpace::encloses(space, own);
                self.spaces.for_children = space.clone().filter(|_| !is_own);
            }
            Target::Networks(networks) => self.spaces.networks = networks.clone(),
            Target::Times(times) => {
                // Others would go on with the page by which this memory's clocks are read.
                if !task.is_alone_in_memory() {
                    return Err(Errno::EUSERS);
                }
                (self.spaces.times, self.spaces.times_of_children) = (times.clone(), times.clone());
                self.times = Some(times.clone());
            }
            Target::SystemNames(names) => self.spaces.names = names.clone(),
            Target::Groups(groups) => self.spaces.groups = groups.clone(),
            Target::Ipc(ipc) => {
                self.spaces.ipc = ipc.clone();
                self.enters_ipc = true;
            }
            Target::Mounts(mounts) => {
                credentials.require_in(&users, Capabilities::SYS_CHROOT)?;
                if task.file_system.is_shared() {
                    return Err(Errno::EINVAL);
                }
                let context = FileSystemContext::initial(mounts.clone())?;
                context.set_umask(task.file_system.umask());
                self.file_system = Some(context);
            }
        }
        Ok(())
    }
}

impl Task {
    /// Whether no other thread and no other process has its memory.
    fn is_alone_in_memory(&self) -> bool {
        let own = self.address_space.id();
        let mut users = 0;
        crate::process::table::for_each_process(|process| {
            users += u32::from(process.look_at_address_space(|space| space.id()) == Some(own));
        });
        users <= 1 && self.process().thread_count() == 1
    }
}
