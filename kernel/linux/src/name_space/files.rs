//! Files that stand for name spaces (`/proc/PID/ns`): open, they keep them; setns(2) takes them. Two are the same name space if stat(2) says that they are the
//! same file.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;

use machine::address::UserAddr;
use vfs::file::FileFeatures;
use vfs::inode::{Inode, InodeOperations};
use vfs::mount::{MountNamespace, Path};
use vfs::text::Text;
use vfs::{Error, FileOperations, OpenFile, OpenFlags, PathContext, Result};

use super::kind::Kind;
use super::names::SystemNames;
use super::{NameSpaces, Space};
use crate::nowhere::Home;
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
    /// The only one of its kind.
    Only(Kind),
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
            kind => Self::Only(kind),
        })
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Mounts(_) => Kind::Mount,
            Self::SystemNames(_) => Kind::SystemNames,
            Self::Ipc(_) => Kind::Ipc,
            Self::Only(kind) => *kind,
        }
    }

    fn number(&self) -> u64 {
        match self {
            Self::Mounts(mounts) if mounts.id() == 1 => Kind::Mount.first_number(),
            Self::Mounts(mounts) => LATER_MOUNTS + mounts.id(),
            Self::SystemNames(names) => names.number(),
            Self::Ipc(ipc) => ipc.number(),
            Self::Only(kind) => kind.first_number(),
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

    /// ioctl_ns(2). There is one name space of users, which is everybody's and has no parent.
    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        let kind = self.0.kind();
        match command {
            GET_USER_SPACE if kind == Kind::User => Err(Error::NotPermitted),
            GET_USER_SPACE => {
                let caller = crate::terminal::calling_thread().ok_or(Error::NoProcess)?;
                let place = place(Target::Only(Kind::User))?;
                let (context, credentials) =
                    (caller.file_system().ok_or(Error::NoProcess)?, caller.credentials());
                let context =
                    PathContext { places: &context.places(), credentials: &credentials.file, umask: 0 };
                let file = context.open_existing(place, OpenFlags::empty())?;
                let files = caller.files().ok_or(Error::NoProcess)?;
                let limit = caller.process().limit(crate::process::limits::Resource::OpenFiles);
                Ok(files.install(file, vfs::DescriptorFlags::CLOSE_ON_EXEC, 0, limit)? as usize)
            }
            GET_PARENT if matches!(kind, Kind::User | Kind::Process) => Err(Error::NotPermitted),
            GET_KIND => Ok(kind.flag() as usize),
            GET_OWNER if kind == Kind::User => {
                let owner = UserPointer::<u32>::new(argument.as_u64());
                owner.write(&0).map(|()| 0).map_err(|_| Error::BadAddress)
            }
            GET_PARENT | GET_OWNER => Err(Error::Invalid),
            _ => Err(Error::NotTerminal),
        }
    }
}

struct NameSpaceInode(Target);

impl InodeOperations for NameSpaceInode {
    fn open(&self, _inode: &Arc<Inode>, _flags: OpenFlags) -> Result<Option<Arc<dyn FileOperations>>> {
        let file: Arc<dyn FileOperations> = vfs::allocation::arc(NameSpaceFile(self.0.clone()))?;
        Ok(Some(file))
    }
}

static HOME: Home = Home::new("nsfs", MAGIC);

/// `uts:[4026531838]`
fn name(target: &Target) -> Result<Vec<u8>> {
    let mut name = Text::new();
    // What does not fit into memory is remembered by the text.
    let _ = write!(name, "{}:[{}]", target.kind().name(), target.number());
    name.finish()
}

fn place(target: Target) -> Result<Path> {
    let name = name(&target)?;
    let inode = HOME.file(target.number(), 0o444, (0, 0), 0, NameSpaceInode(target))?;
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
