//! unshare(2) and setns(2) as far as they are about name spaces, and what clone(2) makes of its flags.

use alloc::sync::Arc;

use vfs::Capabilities;
use vfs::walk::FileSystemContext;

use super::files::{NameSpaceFile, Target};
use super::kind::Kind;
use super::{NameSpaces, Space, next_number};
use crate::errno::{Errno, SysResult};
use crate::fork::CloneFlags;
use crate::process::process::Process;
use crate::sysv::space::IpcSpace;
use crate::task::Task;

/// Flags of name spaces that can be made.
pub(crate) const MADE: CloneFlags = CloneFlags::NEWNS.union(CloneFlags::NEWUTS).union(CloneFlags::NEWIPC);

/// Whether the caller may make what the flags ask for.
///
/// # Errors
/// EPERM.
pub(crate) fn check(task: &Task, flags: CloneFlags) -> Result<(), Errno> {
    if flags.intersects(MADE) { task.credentials.require(Capabilities::SYS_ADMIN) } else { Ok(()) }
}

/// The name spaces that flags ask for, made of those of the caller; `None` in the first ones.
///
/// # Errors
/// ENOMEM.
pub(crate) fn make(task: &Task, flags: CloneFlags) -> Result<Option<Arc<NameSpaces>>, Errno> {
    if !flags.intersects(CloneFlags::NEWUTS | CloneFlags::NEWIPC) {
        return Ok(task.name_spaces.clone());
    }
    let mut spaces = task.current_name_spaces();
    if flags.contains(CloneFlags::NEWUTS) {
        spaces.names = Space::made(spaces.names.copy(next_number()))?;
    }
    if flags.contains(CloneFlags::NEWIPC) {
        spaces.ipc = Space::made(IpcSpace::new(next_number()))?;
    }
    spaces.into_shared()
}

/// What a call enters.
#[derive(Default)]
struct Entered {
    spaces: NameSpaces,
    enters_ipc: bool,
    file_system: Option<Arc<FileSystemContext>>,
}

/// Moves the caller to the name space that a file stands for, or to some of a process's.
#[inline(never)]
pub fn setns(task: &mut Task, descriptor: i32, kinds: u32) -> SysResult {
    let file = task.usable_file(descriptor)?;
    let mut entered = Entered { spaces: task.current_name_spaces(), ..Default::default() };
    if let Some(NameSpaceFile(target)) = file.object::<NameSpaceFile>() {
        if kinds != 0 && kinds != target.kind().flag() {
            return Err(Errno::EINVAL);
        }
        entered.enter(task, target)?;
    } else {
        let process = crate::pidfd::process_of(task, descriptor).map_err(|_| Errno::EINVAL)?;
        let known = Kind::ALL.iter().fold(0, |known, kind| known | kind.flag());
        if kinds == 0 || kinds & !known != 0 {
            return Err(Errno::EINVAL);
        }
        for kind in Kind::ALL.into_iter().filter(|kind| kinds & kind.flag() != 0) {
            entered.enter(task, &of_process(task, &process, kind)?)?;
        }
    }
    let Entered { spaces, enters_ipc, file_system } = entered;
    let spaces = spaces.into_shared()?;
    if enters_ipc {
        crate::sysv::semaphore::undo::leave(task);
    }
    task.enter_name_spaces(spaces);
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
        match target {
            // Nobody enters the name space of users that he is in.
            Target::Only(Kind::User) => return Err(Errno::EINVAL),
            _ => task.credentials.require(Capabilities::SYS_ADMIN)?,
        }
        match target {
            Target::Only(_) => {}
            Target::SystemNames(names) => self.spaces.names = names.clone(),
            Target::Ipc(ipc) => {
                self.spaces.ipc = ipc.clone();
                self.enters_ipc = true;
            }
            Target::Mounts(mounts) => {
                task.credentials.require(Capabilities::SYS_CHROOT)?;
                if task.shares_file_system() {
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
    /// Whether others have its root and working directory, too. It and what it shows of itself have a reference each.
    fn shares_file_system(&self) -> bool {
        const OWN: usize = 2;
        Arc::strong_count(&self.file_system) > OWN
    }
}
