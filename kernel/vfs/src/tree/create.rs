//! Making files, directories, nodes, symbolic and hard links.

use alloc::sync::Arc;

use super::access_list;
use crate::attributes::{DeviceNumber, FileKind, MODE_MASK, STICKY};
use crate::credentials::Capabilities;
use crate::dentry::Dentry;
use crate::flags::{Access, LookupFlags, OpenFlags};
use crate::inode::{Asked, Inode, NewFile};
use crate::inotify::{self, EventMask};
use crate::mount::Path;
use crate::name::{Name, PATH_MAX};
use crate::permission::{check_access, inherit};
use crate::walk::{LastName, PathContext, Walker, enter_created, find_entry_locked};
use crate::{Error, Result, file_flags, sticky};

impl PathContext<'_> {
    /// The directory and name for something new; `EEXIST` for paths that end in `.`, `..` or are `/`.
    fn new_name(&self, start: &Path, path: &[u8], is_directory: bool) -> Result<(Path, Name)> {
        let mut walker = Walker::new(self, start, path, LookupFlags::empty())?;
        let last = walker.stop_at_parent()?;
        let LastName::Name(name) = last.name else { return Err(Error::Exists) };
        let parent = walker.place().clone();
        if last.trailing_slash && !is_directory {
            // `mknod a/`: EEXIST when `a` exists, else there is no directory `a`.
            return Err(match crate::walk::find_entry(&parent.dentry, name.as_bytes()) {
                Ok(_) => Error::Exists,
                Err(error) => error,
            });
        }
        Ok((parent, name))
    }

    /// Creates a file in a directory, where there is none of that name. Takes the directory's lock. `mode` is what the caller asks for, before
    /// its mask.
    pub(super) fn create_at(
        &self,
        parent: &Path,
        name: &Name,
        kind: FileKind,
        mode: u32,
        special: DeviceNumber,
        target: &[u8],
    ) -> Result<Arc<Dentry>> {
        match self.find_or_create_at(parent, name, kind, mode, special, target, None)? {
            (dentry, true) => Ok(dentry),
            (_, false) => Err(Error::Exists),
        }
    }

    /// What has the name in a directory, or else a new file; and whether it is that. In one step: between a failure to create
    /// it and a look for it what was there may have been removed. `open` says how the caller will open it.
    #[expect(clippy::too_many_arguments, reason = "a file has that many properties")]
    pub(super) fn find_or_create_at(
        &self,
        parent: &Path,
        name: &Name,
        kind: FileKind,
        mode: u32,
        special: DeviceNumber,
        target: &[u8],
        open: Option<OpenFlags>,
    ) -> Result<(Arc<Dentry>, bool)> {
        let directory = parent.inode()?;
        let dentry = {
            let _exclusive = directory.lock().write();
            if let Some(existing) = self.find_for_new(parent, name)? {
                return Ok((existing, false));
            }
            let asked = Asked { mode, umask: self.umask, open };
            let (group, mode) = inherit(directory, kind, mode, self.credentials);
            let (lists, mode) = access_list::inherit(directory, kind, mode, self.umask)?;
            let access_lists = lists.as_deref();
            let user = self.credentials.user;
            check_known(parent, user, group)?;
            let new = NewFile { kind, mode, access_lists, user, group, special, target };
            create_entry(parent, name, &new, Some(&asked))?
        };
        inotify::report_child(
            parent,
            name.as_bytes(),
            EventMask::CREATE,
            kind == FileKind::Directory,
            dentry.inode(),
        );
        Ok((dentry, true))
    }

    /// Whether a name may be made in a directory whose lock is held.
    fn check_new(&self, parent: &Path, name: &Name) -> Result<()> {
        match self.find_for_new(parent, name)? {
            Some(_) => Err(Error::Exists),
            None => Ok(()),
        }
    }

    /// What has a name in a directory whose lock is held; if nothing has, it may be made.
    fn find_for_new(&self, parent: &Path, name: &Name) -> Result<Option<Arc<Dentry>>> {
        if parent.dentry.is_dead() {
            return Err(Error::NotFound);
        }
        if let Some(existing) = find_entry_locked(&parent.dentry, name.as_bytes())? {
            return Ok(Some(existing));
        }
        if parent.mount.superblock().traits().lookup_only {
            return Err(Error::NotFound);
        }
        parent.mount.writable()?;
        check_access(parent.inode()?, Access::WRITE | Access::EXECUTE, self.credentials).map(|()| None)
    }

    /// `mkdir`.
    pub fn make_directory(&self, start: &Path, path: &[u8], mode: u32) -> Result<()> {
        let (parent, name) = self.new_name(start, path, true)?;
        let mode = mode & (0o777 | STICKY);
        self.create_at(&parent, &name, FileKind::Directory, mode, DeviceNumber::default(), &[]).map(|_| ())
    }

    /// `mknod`.
    pub fn make_node(
        &self,
        start: &Path,
        path: &[u8],
        kind: FileKind,
        mode: u32,
        special: DeviceNumber,
    ) -> Result<()> {
        match kind {
            FileKind::Directory => return Err(Error::NotPermitted),
            FileKind::SymbolicLink | FileKind::Anonymous => return Err(Error::Invalid),
            _ => {}
        }
        self.make_special(start, path, kind, mode, special).map(|_| ())
    }

    /// As [`make_node`](Self::make_node); returns the place (for `bind` of a socket).
    pub fn make_special(
        &self,
        start: &Path,
        path: &[u8],
        kind: FileKind,
        mode: u32,
        special: DeviceNumber,
    ) -> Result<Path> {
        let (parent, name) = self.new_name(start, path, false)?;
        // A device 0:0 is a mark of overlays and no device.
        let is_device =
            kind.is_device() && !(kind == FileKind::CharacterDevice && special == DeviceNumber::default());
        if is_device && !self.credentials.has(Capabilities::MKNOD) {
            return Err(Error::NotPermitted);
        }
        let dentry = self.create_at(&parent, &name, kind, mode & MODE_MASK, special, &[])?;
        Ok(Path::new(parent.mount, dentry))
    }

    /// `symlink`.
    pub fn make_symbolic_link(&self, target: &[u8], start: &Path, path: &[u8]) -> Result<()> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.len() >= PATH_MAX {
            return Err(Error::NameTooLong);
        }
        let (parent, name) = self.new_name(start, path, false)?;
        self.create_at(&parent, &name, FileKind::SymbolicLink, 0o777, DeviceNumber::default(), target)
            .map(|_| ())
    }

    /// `link`, `linkat`: `flags` say whether a symbolic link at the end is followed (`AT_SYMLINK_FOLLOW`) and whether
    /// an empty path means the starting place (`AT_EMPTY_PATH`).
    pub fn make_hard_link(
        &self,
        old_start: &Path,
        old_path: &[u8],
        new_start: &Path,
        new_path: &[u8],
        flags: LookupFlags,
    ) -> Result<()> {
        let old = self.walk(old_start, old_path, flags)?;
        let (parent, name) = self.new_name(new_start, new_path, false)?;
        let inode = old.inode()?.clone();
        let directory = parent.inode()?;
        {
            let _exclusive = directory.lock().write();
            self.check_new(&parent, &name)?;
            if !memory::per_cpu::Shared::ptr_eq(&old.mount, &parent.mount)
                || !inode.same_superblock(directory)
            {
                return Err(Error::CrossDevice);
            }
            sticky::check_linking(&inode, self.credentials)?;
            file_flags::check_changeable(&inode)?;
            if inode.kind == FileKind::Directory {
                return Err(Error::NotPermitted);
            }
            // The last name does not go meanwhile.
            let _linked = inode.lock().write_nested(1);
            if inode.links() == 0 && !inode.linkable() {
                return Err(Error::NotFound);
            }
            link_entry(&parent, &name, &inode)?;
        }
        inotify::report_child(&parent, name.as_bytes(), EventMask::CREATE, false, Some(&inode));
        Ok(())
    }

    /// `readlink`: what a symbolic link says.
    pub fn read_link(&self, start: &Path, path: &[u8]) -> Result<Arc<[u8]>> {
        let place = self.walk(start, path, LookupFlags::EMPTY_PATH)?;
        let inode = place.inode()?;
        if inode.kind != FileKind::SymbolicLink {
            return Err(if path.is_empty() { Error::NotFound } else { Error::Invalid });
        }
        crate::time::accessed_at(&place, inode);
        inode.operations().link_text(inode)
    }
}

/// Whether the file system's name space of users knows who will own a new file; `EOVERFLOW`.
pub(super) fn check_known(parent: &Path, user: u32, group: u32) -> Result<()> {
    if parent.mount.superblock().owner().knows(user, group) { Ok(()) } else { Err(Error::Overflow) }
}

/// Creates a file and enters it. The directory's lock is held exclusively, the name is absent.
pub(super) fn create_entry(
    parent: &Path,
    name: &Name,
    new: &NewFile<'_>,
    asked: Option<&Asked>,
) -> Result<Arc<Dentry>> {
    let directory = parent.inode()?;
    let operations = directory.operations();
    let inode = match asked {
        Some(asked) => operations.create_asked(directory, name, new, asked)?,
        None => operations.create(directory, name, new)?,
    };
    let shown = access_list::show_new(&inode, new.access_lists);
    shown.and_then(|()| enter_created(&parent.dentry, name.as_bytes(), inode.clone())).inspect_err(|_| {
        // Nobody has seen the file: a failure to show it takes it back.
        let _ = match new.kind {
            FileKind::Directory => operations.remove_directory(directory, name.as_bytes(), &inode),
            _ => operations.unlink(directory, name.as_bytes(), &inode),
        };
    })
}

/// Gives a file another name and enters that. The directory's lock and the file's are held exclusively, the name is absent.
pub(super) fn link_entry(parent: &Path, name: &Name, inode: &Arc<Inode>) -> Result<Arc<Dentry>> {
    let directory = parent.inode()?;
    directory.operations().link(directory, name, inode)?;
    inode.set_linkable(false);
    enter_created(&parent.dentry, name.as_bytes(), inode.clone()).inspect_err(|_| {
        let _ = directory.operations().unlink(directory, name.as_bytes(), inode);
    })
}
