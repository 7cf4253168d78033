//! Where walks begin: root and working directory of a process, and who walks.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use memory::per_cpu::Shared;
use sync::SpinLock;

use crate::attributes::FileStatus;
use crate::credentials::Credentials;
use crate::dentry::Dentry;
use crate::flags::{Access, LookupFlags};
use crate::inode::{Inode, Question};
use crate::mount::{Mount, MountNamespace, Path};
use crate::user_space::Owner;
use crate::{Result, allocation};

use super::walker::Walker;

/// Root and working directory, as one immutable pair: a walk uses the pair it began with.
pub struct Places {
    /// Where absolute paths begin, and beyond which `..` does not lead.
    pub root: Path,
    /// Where relative paths begin.
    pub cwd: Path,
    /// The mount name space.
    pub namespace: Arc<MountNamespace>,
}

/// The pair that is in force in a context. Forked processes share the pair, whose references are then written only
/// by `fork`, `exit` and changes; those of this handle, which every path call takes, are the context's own.
pub type CurrentPlaces = Arc<OwnPlaces>;

/// A context's own handle of a pair. With its counts it fills a cache line: two processes that one parent forked
/// would otherwise have theirs side by side.
pub struct OwnPlaces {
    places: Arc<Places>,
    _fill: [u64; 5],
}

impl OwnPlaces {
    fn new(places: Arc<Places>) -> Result<CurrentPlaces> {
        allocation::arc(Self { places, _fill: [0; 5] })
    }
}

impl core::ops::Deref for OwnPlaces {
    type Target = Places;

    #[inline]
    fn deref(&self) -> &Places {
        &self.places
    }
}

/// What `CLONE_FS` shares: root, working directory and umask.
pub struct FileSystemContext {
    places: SpinLock<CurrentPlaces>,
    umask: AtomicU32,
    /// How many threads have it as theirs.
    users: AtomicU32,
    /// As in [`OwnPlaces`].
    _fill: [u64; 3],
}

const _: () = assert!(size_of::<OwnPlaces>() == 48 && size_of::<FileSystemContext>() >= 48);

impl FileSystemContext {
    /// A context.
    pub fn new(places: Arc<Places>, umask: u32) -> Result<Arc<Self>> {
        let places = OwnPlaces::new(places)?;
        allocation::arc(Self {
            places: SpinLock::new(places),
            umask: AtomicU32::new(umask & 0o777),
            users: AtomicU32::new(0),
            _fill: [0; 3],
        })
    }

    /// Root and working directory of a name space's root.
    pub fn initial(namespace: Arc<MountNamespace>) -> Result<Arc<Self>> {
        let root = namespace.root();
        let places = allocation::arc(Places { cwd: root.clone(), root, namespace })?;
        Self::new(places, 0o022)
    }

    /// A copy of its own (`fork`, `unshare(CLONE_FS)`).
    pub fn duplicate(&self) -> Result<Arc<Self>> {
        Self::new(self.places().places.clone(), self.umask())
    }

    /// Root and working directory now: one lock, one reference.
    #[inline(always)]
    pub fn places(&self) -> CurrentPlaces {
        self.places.lock().clone()
    }

    /// The file mode creation mask.
    pub fn umask(&self) -> u32 {
        // Relaxed: a word of its own.
        self.umask.load(Ordering::Relaxed)
    }

    /// Changes the mask; returns the old one.
    pub fn set_umask(&self, mask: u32) -> u32 {
        self.umask.swap(mask & 0o777, Ordering::Relaxed)
    }

    /// Whether more than one thread has it as its own.
    pub fn is_shared(&self) -> bool {
        // Relaxed: who would begin to share it is a user himself, so it never looks unshared meanwhile.
        self.users.load(Ordering::Relaxed) > 1
    }

    fn replace(&self, change: impl Fn(&Places) -> Places) -> Result<()> {
        loop {
            let old = self.places();
            let new = OwnPlaces::new(allocation::arc(change(&old))?)?;
            let mut places = self.places.lock();
            if Arc::ptr_eq(&places, &old) {
                let before = core::mem::replace(&mut *places, new);
                drop(places);
                drop(before);
                return Ok(());
            }
        }
    }

    /// `chdir`; the caller has checked the place.
    pub fn set_cwd(&self, cwd: &Path) -> Result<()> {
        self.replace(|old| Places {
            root: old.root.clone(),
            cwd: cwd.clone(),
            namespace: old.namespace.clone(),
        })
    }

    /// `chroot`; the caller has checked the place.
    pub fn set_root(&self, root: &Path) -> Result<()> {
        self.replace(|old| Places {
            root: root.clone(),
            cwd: old.cwd.clone(),
            namespace: old.namespace.clone(),
        })
    }

    /// After `pivot_root`: who had the old root as root or working directory gets the new one.
    pub fn move_root(&self, old_root: &Path, new_root: &Path) -> Result<()> {
        let moved = |path: &Path| if path.same(old_root) { new_root.clone() } else { path.clone() };
        self.replace(|old| Places {
            root: moved(&old.root),
            cwd: moved(&old.cwd),
            namespace: old.namespace.clone(),
        })
    }

    /// `unshare(CLONE_NEWNS)`: a copy of the name space, private to a user if one is given; root and working directory are the same places in it.
    pub fn unshare_mounts(&self, owner: Owner, user: Option<u32>) -> Result<()> {
        let old = self.places();
        let (mut root, mut cwd) = (old.root.clone(), old.cwd.clone());
        let namespace = old.namespace.copy(&mut [&mut root, &mut cwd], owner, user)?;
        let new = OwnPlaces::new(allocation::arc(Places { root, cwd, namespace })?)?;
        let before = core::mem::replace(&mut *self.places.lock(), new);
        drop(before);
        Ok(())
    }
}

/// A thread has a context as its own. Counted apart from the references to it, which also those take who look at somebody else's.
pub struct FileSystemUse(Arc<FileSystemContext>);

impl FileSystemUse {
    /// One more user.
    pub fn begin(context: Arc<FileSystemContext>) -> Self {
        context.users.fetch_add(1, Ordering::Relaxed);
        Self(context)
    }

    /// What is used.
    pub fn context(&self) -> &Arc<FileSystemContext> {
        &self.0
    }
}

impl Drop for FileSystemUse {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Who walks, and from where. Made for each call; borrows everything.
#[derive(Clone, Copy)]
pub struct PathContext<'a> {
    /// Root and working directory.
    pub places: &'a Places,
    /// Who walks.
    pub credentials: &'a Credentials,
    /// The file mode creation mask.
    pub umask: u32,
}

impl<'a> PathContext<'a> {
    /// The place a path leads to. `start` is where a relative path begins (`&context.places.cwd` for `AT_FDCWD`).
    pub fn walk(&self, start: &Path, path: &[u8], flags: LookupFlags) -> Result<Path> {
        Walker::new(self, start, path, flags)?.finish()
    }

    /// `stat`, `statx`, `fstatat`. Where the whole walk is fast, no reference is taken to anything.
    pub fn status(&self, start: &Path, path: &[u8], flags: LookupFlags) -> Result<FileStatus> {
        if let Some(outcome) = super::fast::status(self, start, path, flags) {
            return outcome;
        }
        status_of(&self.walk(start, path, flags)?)
    }

    /// `access`, `faccessat`: whether the context's credentials allow it.
    pub fn access(&self, start: &Path, path: &[u8], access: Access, flags: LookupFlags) -> Result<()> {
        let place = self.walk(start, path, flags)?;
        self.check_mount(&place, access)?;
        self.check_wish(place.inode()?, access)
    }

    /// Whether a file may be accessed at a place, the mount's flags included. For what is accessed then; `access` is for who only wants to know.
    pub fn check_place(&self, place: &Path, access: Access) -> Result<()> {
        self.check_mount(place, access)?;
        crate::permission::check_access(place.inode()?, access, self.credentials)
    }

    /// Whether a directory may become somebody's working directory.
    pub fn check_directory(&self, place: &Path) -> Result<()> {
        let inode = place.inode()?;
        inode.operations().refresh(inode);
        self.check_wish(inode, Access::EXECUTE)
    }

    /// Whether a file's mount lets it be accessed.
    fn check_mount(&self, place: &Path, access: Access) -> Result<()> {
        use crate::attributes::FileKind;
        let inode = place.inode()?;
        inode.operations().refresh(inode);
        if access.contains(Access::EXECUTE) && inode.kind == FileKind::Regular && !may_execute(place) {
            return Err(crate::Error::AccessDenied);
        }
        if access.contains(Access::WRITE)
            && matches!(inode.kind, FileKind::Regular | FileKind::Directory | FileKind::SymbolicLink)
        {
            place.mount.writable()?;
        }
        Ok(())
    }

    fn check_wish(&self, inode: &Inode, access: Access) -> Result<()> {
        if inode.is_left_to_file_system() {
            return inode.ask(Question::Wish(access, self.credentials));
        }
        crate::permission::check_access(inode, access, self.credentials)
    }

    /// `chdir`, `chroot`: a directory that may be searched.
    pub fn walk_to_directory(&self, start: &Path, path: &[u8]) -> Result<Path> {
        let place = self.walk(start, path, LookupFlags::FOLLOW | LookupFlags::DIRECTORY)?;
        self.check_wish(place.inode()?, Access::EXECUTE)?;
        Ok(place)
    }
}

/// What `stat` shows of a place.
pub fn status_of(place: &Path) -> Result<FileStatus> {
    let inode = place.inode()?;
    inode.ask(Question::Status)?;
    Ok(status_at(&place.mount, &place.dentry, inode.status()))
}

/// The same, of an inode's status.
#[inline(always)]
pub(super) fn status_at(mount: &Shared<Mount>, dentry: &Arc<Dentry>, mut status: FileStatus) -> FileStatus {
    status.mount_id = mount.id();
    status.mount_root = Arc::ptr_eq(dentry, mount.root());
    status
}

/// Whether the mount lets programs be executed.
pub fn may_execute(place: &Path) -> bool {
    !place.mount.flags().contains(crate::flags::MountFlags::NO_EXECUTE)
        && !place.mount.superblock().traits().no_execute
}
