//! The file layer and `tmpfs` together, as system calls use them.

mod archive;
mod concurrency;
mod failure;
mod files;
mod hostile_archive;
mod model;
mod mounts;
mod names;
mod paths;
mod permissions;
mod pipes;
mod watching;

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::buffer::{Sink, Source};
use vfs::credentials::Credentials;
use vfs::file::OpenFile;
use vfs::flags::{LookupFlags, MountFlags, OpenFlags};
use vfs::mount::{Mount, MountNamespace, Path};
use vfs::tree::OpenHow;
use vfs::walk::{PathContext, Places};
use vfs::{Error, Result};

/// A root file system and somebody who uses it.
pub(crate) struct World {
    pub(crate) places: Places,
    pub(crate) credentials: Credentials,
}

/// Threads of tests with a world of their own: the entry cache is one for all of them. Who counts what is left in it waits until
/// nobody else evicts entries, since that leaves them with another processor until its next grace period.
static PRESENT: (std::sync::Mutex<usize>, std::sync::Condvar) =
    (std::sync::Mutex::new(0), std::sync::Condvar::new());

/// The number of them, also after one failed while it held the lock.
fn present() -> std::sync::MutexGuard<'static, usize> {
    PRESENT.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Held by a thread from its first world to its end: from then on it is a processor, whose quiescent states those who are alone may
/// wait for, so it must never wait for them.
struct Presence;

std::thread_local! {
    static PRESENCE: Presence = Presence::new();
}

impl Presence {
    fn new() -> Self {
        *present() += 1;
        Self
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        *present() -= 1;
        PRESENT.1.notify_all();
    }
}

/// Runs a test while no other has a world. The caller becomes a processor only then: those it waits for may wait for a grace
/// period.
pub(crate) fn alone(test: impl FnOnce()) {
    let _nobody = PRESENT
        .1
        .wait_while(present(), |number| *number > 0)
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    sched::current();
    test();
}

impl World {
    pub(crate) fn try_new() -> Result<Self> {
        let superblock = crate::new_instance("rootfs", 0o755)?;
        let root = superblock.root().clone();
        let mount = Mount::new(superblock, root, b"rootfs", MountFlags::RELATIVE_ACCESS_TIME)?;
        let namespace = MountNamespace::new(mount)?;
        let root = namespace.root();
        let places = Places { cwd: root.clone(), root, namespace };
        Ok(Self { places, credentials: Credentials::root() })
    }

    pub(crate) fn new() -> Self {
        // Not a processor yet while it waits: who is alone may wait for a grace period.
        PRESENCE.with(|_| ());
        sched::current();
        Self::try_new().expect("memory for a test's file system")
    }

    pub(crate) fn become_user(&mut self, user: u32) {
        self.credentials = Credentials::ordinary(user, user);
    }

    pub(crate) fn become_root(&mut self) {
        self.credentials = Credentials::root();
    }

    pub(crate) fn context(&self) -> PathContext<'_> {
        PathContext { places: &self.places, credentials: &self.credentials, umask: 0o022 }
    }

    pub(crate) fn cwd(&self) -> &Path {
        &self.places.cwd
    }

    pub(crate) fn open(&self, path: &str, flags: OpenFlags) -> Result<Arc<OpenFile>> {
        let how = OpenHow { flags, mode: 0o666, resolve: LookupFlags::empty() };
        self.context().open(self.cwd(), path.as_bytes(), &how)
    }

    pub(crate) fn mkdir(&self, path: &str) -> Result<()> {
        self.context().make_directory(self.cwd(), path.as_bytes(), 0o777)
    }

    pub(crate) fn unlink(&self, path: &str) -> Result<()> {
        self.context().unlink(self.cwd(), path.as_bytes())
    }

    pub(crate) fn rmdir(&self, path: &str) -> Result<()> {
        self.context().remove_directory(self.cwd(), path.as_bytes())
    }

    pub(crate) fn rename(&self, old: &str, new: &str) -> Result<()> {
        let flags = vfs::flags::RenameFlags::empty();
        self.context().rename(self.cwd(), old.as_bytes(), self.cwd(), new.as_bytes(), flags)
    }

    pub(crate) fn link(&self, old: &str, new: &str) -> Result<()> {
        let flags = LookupFlags::empty();
        self.context().make_hard_link(self.cwd(), old.as_bytes(), self.cwd(), new.as_bytes(), flags)
    }

    pub(crate) fn symlink(&self, target: &str, path: &str) -> Result<()> {
        self.context().make_symbolic_link(target.as_bytes(), self.cwd(), path.as_bytes())
    }

    pub(crate) fn walk(&self, path: &str) -> Result<Path> {
        self.context().walk(self.cwd(), path.as_bytes(), LookupFlags::FOLLOW)
    }

    pub(crate) fn stat(&self, path: &str) -> Result<vfs::attributes::FileStatus> {
        self.context().status(self.cwd(), path.as_bytes(), LookupFlags::FOLLOW)
    }

    pub(crate) fn lstat(&self, path: &str) -> Result<vfs::attributes::FileStatus> {
        self.context().status(self.cwd(), path.as_bytes(), LookupFlags::empty())
    }

    pub(crate) fn write_file(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let file = self.open(path, OpenFlags::CREATE | OpenFlags::WRITE_ONLY | OpenFlags::TRUNCATE)?;
        let written = file.write(&mut Source::kernel(bytes))?;
        if written == bytes.len() { Ok(()) } else { Err(Error::OutOfMemory) }
    }

    pub(crate) fn read_file(&self, path: &str) -> Result<Vec<u8>> {
        read_all(&self.open(path, OpenFlags::empty())?)
    }

    pub(crate) fn list(&self, path: &str) -> Result<Vec<String>> {
        let file = self.open(path, OpenFlags::DIRECTORY)?;
        let mut names = Names(Vec::new());
        file.read_directory(&mut names)?;
        Ok(names.0)
    }

    pub(crate) fn path_of(&self, place: &Path) -> String {
        let mut out = Vec::new();
        place.write_to(&self.places.root, true, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }
}

pub(crate) struct Names(pub(crate) Vec<String>);

impl vfs::inode::DirectorySink for Names {
    fn entry(&mut self, name: &[u8], _inode: u64, _kind: vfs::attributes::FileKind, _next: u64) -> bool {
        self.0.push(String::from_utf8(name.to_vec()).unwrap());
        true
    }
}

pub(crate) fn read_all(file: &Arc<OpenFile>) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut buffer = [0; 1000];
    loop {
        let number = file.read(&mut Sink::kernel(&mut buffer))?;
        if number == 0 {
            return Ok(all);
        }
        all.extend_from_slice(&buffer[..number]);
    }
}

pub(crate) fn read_some(file: &Arc<OpenFile>, limit: usize) -> Result<Vec<u8>> {
    let mut buffer = vec![0; limit];
    let number = file.read(&mut Sink::kernel(&mut buffer))?;
    buffer.truncate(number);
    Ok(buffer)
}

pub(crate) fn write(file: &Arc<OpenFile>, bytes: &[u8]) -> Result<usize> {
    file.write(&mut Source::kernel(bytes))
}

/// Lets everything go that this test has waiting for a grace period.
pub(crate) fn settle() {
    for _ in 0..50 {
        {
            let _pinned = machine::preempt::disable();
            sync::rcu::invoke(u32::MAX);
            if sync::rcu::pending() == 0 {
                return;
            }
        }
        sync::rcu::synchronize();
    }
}
