//! Files that stand for name spaces (`/proc/PID/ns`): open, they keep them; setns(2) takes them. Two are the same name space if stat(2) says that they are the
//! same file.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;

use machine::address::UserAddr;
use sched::work::Work;
use sync::SpinLock;
use vfs::file::FileFeatures;
use vfs::inode::{Inode, InodeOperations};
use vfs::mount::{MountNamespace, Path};
use vfs::text::Text;
use vfs::{Error, FileOperations, OpenFile, OpenFlags, PathContext, Result, UserSpace};

use super::kind::Kind;
use super::names::SystemNames;
use super::{GroupSpace, NameSpaces, Networks, Space, TimeSpace};
use crate::nowhere::Home;
use crate::process::pid_space::{self, PidSpace};
use crate::process::thread::Thread;
use crate::sysv::space::IpcSpace;
use crate::user_pointer::UserPointer;

/// `NSFS_MAGIC`
const MAGIC: u64 = 0x6e73_6673;
/// Name spaces of mounts made later than the first one.
const LATER_MOUNTS: u64 = 4_026_532_000;

/// A name space that a file stands for.
#[derive(Clone)]
pub(super) enum Target {
    Mounts(Arc<MountNamespace>),
    SystemNames(Space<SystemNames>),
    Ipc(Space<IpcSpace>),
    Groups(Space<GroupSpace>),
    Users(UserSpace),
    Networks(Space<Networks>),
    Processes(pid_space::Space),
    Times(Space<TimeSpace>),
}

impl Target {
    pub(super) fn of(thread: &Thread, kind: Kind) -> Result<Self> {
        Ok(match kind {
            Kind::Mount => {
                let context = thread.file_system().ok_or(Error::NotFound)?;
                Self::Mounts(context.places().namespace.clone())
            }
            Kind::SystemNames => Self::SystemNames(NameSpaces::of(thread).names),
            Kind::Ipc => Self::Ipc(NameSpaces::of(thread).ipc),
            Kind::Cgroup => Self::Groups(NameSpaces::of(thread).groups),
            Kind::Network => Self::Networks(NameSpaces::of(thread).networks),
            Kind::Process => Self::Processes(thread.process().space().clone()),
            Kind::ProcessOfChildren => {
                let made = NameSpaces::of(thread).for_children;
                // Nobody enters one that has no init yet.
                if made.as_ref().is_some_and(|made| !made.has_begun()) {
                    return Err(Error::NotFound);
                }
                Self::Processes(made.or_else(|| thread.process().space().clone()))
            }
            Kind::User => Self::Users(thread.credentials().space().clone()),
            Kind::Time => Self::Times(NameSpaces::of(thread).times),
            Kind::TimeOfChildren => Self::Times(NameSpaces::of(thread).times_of_children),
        })
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Mounts(_) => Kind::Mount,
            Self::SystemNames(_) => Kind::SystemNames,
            Self::Ipc(_) => Kind::Ipc,
            Self::Groups(_) => Kind::Cgroup,
            Self::Users(_) => Kind::User,
            Self::Networks(_) => Kind::Network,
            Self::Processes(_) => Kind::Process,
            Self::Times(_) => Kind::Time,
        }
    }

    /// The name space of users that it belongs to; of such a one, itself.
    pub(super) fn owner(&self) -> &UserSpace {
        match self {
            Self::Mounts(mounts) => mounts.owner(),
            Self::SystemNames(names) => names.owner(),
            Self::Ipc(ipc) => ipc.owner(),
            Self::Groups(groups) => groups.owner(),
            Self::Users(space) => space,
            Self::Networks(networks) => networks.owner(),
            Self::Processes(space) => space.as_ref().map_or(UserSpace::FIRST, |space| space.owner()),
            Self::Times(times) => times.owner(),
        }
    }

    fn number(&self) -> u64 {
        match self {
            Self::Mounts(mounts) if mounts.id() == 1 => Kind::Mount.first_number(),
            Self::Mounts(mounts) => LATER_MOUNTS + mounts.id(),
            Self::SystemNames(names) => names.number(),
            Self::Ipc(ipc) => ipc.number(),
            Self::Groups(groups) => groups.number(),
            Self::Users(space) => space.number(),
            Self::Networks(networks) => networks.number(),
            Self::Processes(None) => pid_space::FIRST_NUMBER,
            Self::Processes(Some(space)) => space.number(),
            Self::Times(times) => times.number(),
        }
    }
}

/// An open file.
pub(super) struct NameSpaceFile(pub(super) Target);

const GET_USER_SPACE: u32 = 0xb701;
const GET_PARENT: u32 = 0xb702;
const GET_KIND: u32 = 0xb703;
const GET_OWNER: u32 = 0xb704;

impl FileOperations for NameSpaceFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::empty()
    }

    /// ioctl_ns(2).
    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        let caller = crate::terminal::calling_thread().ok_or(Error::NoProcess)?;
        match (command, &self.0) {
            (GET_USER_SPACE | GET_PARENT, Target::Users(space)) => {
                open(&caller, Target::Users(visible(&caller, space.parent())?))
            }
            (GET_USER_SPACE, target) => open(&caller, Target::Users(visible(&caller, Some(target.owner()))?)),
            (GET_PARENT, Target::Processes(space)) => {
                let parent = space.as_ref().map(|space| space.parent());
                let is_visible =
                    |parent: &&pid_space::Space| PidSpace::encloses(caller.process().space(), parent);
                let parent = parent.filter(is_visible).ok_or(Error::NotPermitted)?;
                open(&caller, Target::Processes(parent.clone()))
            }
            (GET_KIND, target) => Ok(target.kind().flag() as usize),
            (GET_OWNER, Target::Users(space)) => {
                let owner = caller.credentials().space().shown_user(space.owner());
                let pointer = UserPointer::<u32>::new(argument.as_u64());
                pointer.write(&owner).map(|()| 0).map_err(|_| Error::BadAddress)
            }
            (GET_PARENT | GET_OWNER, _) => Err(Error::Invalid),
            _ => Err(Error::NotTerminal),
        }
    }
}

/// A name space of users, if the caller may know of it: it is in his own.
fn visible(caller: &Thread, space: Option<&UserSpace>) -> Result<UserSpace> {
    let space = space.filter(|space| space.is_within(caller.credentials().space()));
    space.cloned().ok_or(Error::NotPermitted)
}

/// Opens the file of a name space for the caller.
fn open(caller: &Thread, target: Target) -> Result<usize> {
    let place = place(target)?;
    let (context, credentials) = (caller.file_system().ok_or(Error::NoProcess)?, caller.credentials());
    let context = PathContext { places: &context.places(), credentials: &credentials.file, umask: 0 };
    let file = context.open_existing(place, OpenFlags::empty())?;
    let files = caller.files().ok_or(Error::NoProcess)?;
    let limit = caller.process().limit(crate::process::limits::Resource::OpenFiles);
    Ok(files.install(file, vfs::DescriptorFlags::CLOSE_ON_EXEC, 0, limit)? as usize)
}

struct NameSpaceInode {
    target: Target,
    /// Who ends the name space if this was its last user, where its end sleeps.
    end: SpinLock<Option<Work<Target>>>,
}

impl NameSpaceInode {
    /// The end of a name space of mounts sleeps, and so does that of one of IPC, for its message queues.
    fn new(target: Target) -> Result<Self> {
        let sleeps = match &target {
            Target::Mounts(_) => true,
            Target::Ipc(space) => !space.is_first(),
            _ => false,
        };
        let end = if sleeps { Some(Work::prepare(drop)?) } else { None };
        Ok(Self { target, end: SpinLock::new(end) })
    }
}

impl Drop for NameSpaceInode {
    /// The last user of a mounted file may be a callback.
    fn drop(&mut self) {
        let target = core::mem::replace(&mut self.target, Target::Times(Space::default()));
        let end = self.end.lock().take();
        if let Some(end) = end {
            end.queue(target);
        }
    }
}

impl InodeOperations for NameSpaceInode {
    fn mount_namespace(&self) -> Option<&Arc<MountNamespace>> {
        if let Target::Mounts(mounts) = &self.target { Some(mounts) } else { None }
    }

    fn open(&self, _inode: &Arc<Inode>, _flags: OpenFlags) -> Result<Option<Arc<dyn FileOperations>>> {
        let file: Arc<dyn FileOperations> = vfs::allocation::arc(NameSpaceFile(self.target.clone()))?;
        Ok(Some(file))
    }
}

static HOME: Home = Home::bindable("nsfs", MAGIC);

/// `uts:[4026531838]`
fn name(target: &Target) -> Result<Vec<u8>> {
    let mut name = Text::new();
    // What does not fit into memory is remembered by the text.
    let _ = write!(name, "{}:[{}]", target.kind().name(), target.number());
    name.finish()
}

fn place(target: Target) -> Result<Path> {
    let name = name(&target)?;
    let inode = HOME.file(target.number(), 0o444, (0, 0), 0, NameSpaceInode::new(target)?)?;
    HOME.place_of(inode, &name)
}

/// The file of a thread's name space.
///
/// # Errors
/// No memory; `ENOENT` for a thread that ends.
pub(crate) fn place_of(thread: &Thread, kind: Kind) -> Result<Path> {
    place(Target::of(thread, kind)?)
}

/// What `readlink` says of it.
///
/// # Errors
/// As [`place_of`].
pub(crate) fn name_of(thread: &Thread, kind: Kind) -> Result<Vec<u8>> {
    name(&Target::of(thread, kind)?)
}
