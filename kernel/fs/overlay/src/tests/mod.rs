//! Overlays of `tmpfs` directories, as system calls use them.

mod layers;
mod model;
mod semantics;

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::format;

use memory::buffer::{Sink, Source};
use vfs::attributes::DeviceNumber;
use vfs::file::OpenFile;
use vfs::flags::{LookupFlags, MountFlags, OpenFlags, RenameFlags, UnmountFlags};
use vfs::inode::{DirectorySink, SetAttribute};
use vfs::mount::{Mount, MountNamespace, MountSource, Path};
use vfs::superblock::FileSystemType;
use vfs::tree::OpenHow;
use vfs::walk::{PathContext, Places};
use vfs::{AttributeChange, Credentials, Error, FileKind, FileStatus, Result};

use crate::OVERLAY;

/// A root file system with the directories `/l1`, `/l2`, `/u`, `/w`, `/m` and `/plain`.
pub(crate) struct World {
    places: Places,
    credentials: Credentials,
    _turn: Option<Turn>,
}

/// Held by the test that runs.
type Turn = std::sync::MutexGuard<'static, ()>;

/// Unmounting waits for a grace period, and so for other tests' processors: one test at a time.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

struct Listing(Vec<(String, FileKind, u64)>);

impl DirectorySink for Listing {
    fn entry(&mut self, name: &[u8], inode: u64, kind: FileKind, _next: u64) -> bool {
        let name = core::str::from_utf8(name).unwrap().to_string();
        self.0.push((name, kind, inode));
        true
    }
}

/// Waits for this test's turn: it must not be a processor yet.
pub(crate) fn turn() -> Turn {
    ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl World {
    pub(crate) fn new() -> Self {
        Self::in_turn(Some(turn()))
    }

    /// For a test that makes several: `None` if it has its turn.
    pub(crate) fn in_turn(turn: Option<Turn>) -> Self {
        sched::current();
        let superblock = tmpfs::new_instance("rootfs", 0o755).unwrap();
        let root = superblock.root().clone();
        let mount = Mount::new(superblock, root, b"rootfs", MountFlags::RELATIVE_ACCESS_TIME).unwrap();
        let namespace = MountNamespace::new(mount).unwrap();
        let root = namespace.root();
        let places = Places { cwd: root.clone(), root, namespace };
        let world = Self { places, credentials: Credentials::root(), _turn: turn };
        for directory in ["/l1", "/l2", "/u", "/w", "/m", "/plain"] {
            world.mkdir(directory).unwrap();
        }
        world
    }

    /// Mounts a `tmpfs` of its own.
    pub(crate) fn mount_tmpfs(&self, path: &str) {
        let source = MountSource::New { file_system: &tmpfs::TMPFS, source: b"none", options: b"mode=755" };
        self.places.namespace.mount(source, &self.walk(path).unwrap(), MountFlags::empty()).unwrap();
    }

    pub(crate) fn overlay(&self, options: &str, target: &str) -> Result<()> {
        let superblock = OVERLAY.mount_at(&self.context(), b"overlay", options.as_bytes())?;
        let source = MountSource::Made { superblock, source: b"overlay" };
        self.places.namespace.mount(source, &self.walk(target)?, MountFlags::RELATIVE_ACCESS_TIME)
    }

    pub(crate) fn unmount(&self, path: &str) -> Result<()> {
        self.places.namespace.unmount(self.walk(path)?, UnmountFlags::empty(), &self.places.root)
    }

    pub(crate) fn context(&self) -> PathContext<'_> {
        PathContext { places: &self.places, credentials: &self.credentials, umask: 0o022 }
    }

    fn cwd(&self) -> &Path {
        &self.places.cwd
    }

    pub(crate) fn walk(&self, path: &str) -> Result<Path> {
        self.context().walk(self.cwd(), path.as_bytes(), LookupFlags::empty())
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

    pub(crate) fn rename(&self, old: &str, new: &str, flags: RenameFlags) -> Result<()> {
        self.context().rename(self.cwd(), old.as_bytes(), self.cwd(), new.as_bytes(), flags)
    }

    pub(crate) fn link(&self, old: &str, new: &str) -> Result<()> {
        let context = self.context();
        context.make_hard_link(self.cwd(), old.as_bytes(), self.cwd(), new.as_bytes(), LookupFlags::empty())
    }

    pub(crate) fn symlink(&self, target: &str, path: &str) -> Result<()> {
        self.context().make_symbolic_link(target.as_bytes(), self.cwd(), path.as_bytes())
    }

    pub(crate) fn mknod(&self, path: &str, kind: FileKind, major: u32, minor: u32) -> Result<()> {
        let number = DeviceNumber::new(major, minor);
        self.context().make_node(self.cwd(), path.as_bytes(), kind, 0o644, number)
    }

    pub(crate) fn stat(&self, path: &str) -> Result<FileStatus> {
        Ok(self.walk(path)?.inode()?.status())
    }

    pub(crate) fn change(&self, path: &str, change: &AttributeChange) -> Result<()> {
        self.context().change_attributes(&self.walk(path)?, change)
    }

    pub(crate) fn chmod(&self, path: &str, mode: u32) -> Result<()> {
        self.change(path, &AttributeChange { mode: Some(mode), ..AttributeChange::default() })
    }

    pub(crate) fn truncate(&self, path: &str, size: i64) -> Result<()> {
        self.context().truncate(self.cwd(), path.as_bytes(), size)
    }

    pub(crate) fn get(&self, path: &str, name: &str) -> Result<Vec<u8>> {
        let mut buffer = [0; 64];
        let place = self.walk(path)?;
        let length =
            vfs::tree::get_attribute(place.inode()?, name.as_bytes(), &mut buffer, &self.credentials)?;
        Ok(buffer[..length].to_vec())
    }

    pub(crate) fn set(&self, path: &str, name: &str, value: &[u8]) -> Result<()> {
        let place = self.walk(path)?;
        place.mount.writable()?;
        let how = SetAttribute::Any;
        vfs::tree::set_attribute(place.inode()?, name.as_bytes(), value, how, &self.credentials)
    }

    pub(crate) fn attributes(&self, path: &str) -> Result<String> {
        let list = vfs::tree::list_attributes(self.walk(path)?.inode()?, &self.credentials)?;
        Ok(String::from_utf8(list).unwrap())
    }

    pub(crate) fn write(&self, path: &str, text: &[u8]) -> Result<()> {
        let create = OpenFlags::CREATE | OpenFlags::TRUNCATE;
        // Nobody waits for a reader of a FIFO.
        let flags = OpenFlags::WRITE_ONLY | OpenFlags::NON_BLOCK | create;
        let file = self.open(path, flags)?;
        assert_eq!(file.write(&mut Source::kernel(text))?, text.len());
        Ok(())
    }

    pub(crate) fn append(&self, path: &str, text: &[u8]) -> Result<()> {
        let file = self.open(path, OpenFlags::WRITE_ONLY | OpenFlags::NON_BLOCK | OpenFlags::APPEND)?;
        assert_eq!(file.write(&mut Source::kernel(text))?, text.len());
        Ok(())
    }

    pub(crate) fn read(&self, path: &str) -> Result<Vec<u8>> {
        read_all(&self.open(path, OpenFlags::empty())?)
    }

    /// Names in a directory, sorted, a slash behind those of directories.
    pub(crate) fn list(&self, path: &str) -> Result<String> {
        let mut names: Vec<String> = entries(&self.open(path, OpenFlags::DIRECTORY)?)?
            .into_iter()
            .map(|(name, kind, _)| if kind == FileKind::Directory { format!("{name}/") } else { name })
            .collect();
        names.sort();
        Ok(names.join(" "))
    }
}

pub(crate) fn entries(file: &Arc<OpenFile>) -> Result<Vec<(String, FileKind, u64)>> {
    let mut listing = Listing(Vec::new());
    while file.read_directory(&mut listing)?.entries > 0 {}
    listing.0.retain(|(name, _, _)| name != "." && name != "..");
    Ok(listing.0)
}

pub(crate) fn read_all(file: &Arc<OpenFile>) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let number = file.read(&mut Sink::kernel(&mut buffer))?;
        if number == 0 {
            return Ok(text);
        }
        text.extend_from_slice(&buffer[..number]);
    }
}

pub(crate) const USUAL: &str = "lowerdir=/l1:/l2,upperdir=/u,workdir=/w";

pub(crate) fn errno<T>(result: Result<T>) -> Option<Error> {
    result.err()
}
