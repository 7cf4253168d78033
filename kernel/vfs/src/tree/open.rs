//! `open`, `openat2`.
//!
//! # Order of checks (as Linux makes them)
//! Walk; `O_EXCL`; symbolic link (`ELOOP`); directory (`EISDIR`, `ENOTDIR`); device on a `nodev` mount (`EACCES`);
//! permissions; append-only; `O_NOATIME` ownership; read-only mount; program text busy; then the object is opened, and last the file
//! is truncated. A file that was just created is opened without a permission check.

use alloc::sync::Arc;

use crate::attributes::{DeviceNumber, FileKind, MODE_MASK};
use crate::dentry::Dentry;
use crate::fanotify;
use crate::file::{OpenFile, PreparedFile, UNWATCHED};
use crate::flags::{Access, LookupFlags, MountFlags, OpenFlags};
use crate::inode::NewFile;
use crate::inotify::{self, EventMask};
use crate::mount::Path;
use crate::name::Name;
use crate::permission::{check_access, inherit, owns};
use crate::walk::{LastName, PathContext, Walker, find_entry};
use crate::{Error, Result, file_flags, sticky};

/// How to open.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenHow {
    /// Access mode, creation and status flags.
    pub flags: OpenFlags,
    /// Permission bits of a file that is created, before the mask.
    pub mode: u32,
    /// Restrictions of the walk (`RESOLVE_*`); `FOLLOW` and `DIRECTORY` follow from `flags`.
    pub resolve: LookupFlags,
}

impl PathContext<'_> {
    /// Opens a file.
    pub fn open(&self, start: &Path, path: &[u8], how: &OpenHow) -> Result<Arc<OpenFile>> {
        let flags = how.flags;
        let mut lookup = how.resolve;
        lookup.set(LookupFlags::FOLLOW, !flags.contains(OpenFlags::NO_FOLLOW));
        lookup.set(LookupFlags::DIRECTORY, flags.contains(OpenFlags::DIRECTORY));
        if flags.contains(OpenFlags::PATH) {
            let place = self.walk(start, path, lookup)?;
            return OpenFile::at_path(place, flags, None, None);
        }
        if flags.contains(OpenFlags::TEMPORARY_FILE) {
            return self.open_temporary(start, path, how, lookup);
        }
        if flags.contains(OpenFlags::CREATE) {
            if flags.contains(OpenFlags::DIRECTORY) {
                return Err(Error::Invalid);
            }
            return self.open_or_create(start, path, how, lookup);
        }
        let place = self.walk(start, path, lookup)?;
        self.open_existing(place, flags)
    }

    /// Opens the file at a place (also for `open_by_handle`-like calls and `/proc/self/fd/N`).
    pub fn open_existing(&self, place: Path, flags: OpenFlags) -> Result<Arc<OpenFile>> {
        self.open_checked(place, flags, None)
    }

    #[inline(never)]
    fn open_or_create(
        &self,
        start: &Path,
        path: &[u8],
        how: &OpenHow,
        lookup: LookupFlags,
    ) -> Result<Arc<OpenFile>> {
        let exclusive = how.flags.contains(OpenFlags::EXCLUSIVE);
        let mut walker = Walker::new(self, start, path, lookup)?;
        loop {
            let last = walker.stop_at_parent()?;
            let LastName::Name(name) = last.name else {
                return Err(if exclusive { Error::Exists } else { Error::IsDirectory });
            };
            if last.trailing_slash || walker.wants_directory() {
                return Err(Error::IsDirectory);
            }
            let parent = walker.place().clone();
            let dentry = match find_entry(&parent.dentry, name.as_bytes()) {
                Ok(dentry) => dentry,
                Err(Error::NotFound) => match self.create_file(&parent, &name, how)? {
                    Created::New(dentry, prepared) => {
                        let place = Path::new(parent.mount, dentry);
                        return self.open_checked(place, how.flags, Some(prepared));
                    }
                    Created::Existed(dentry) => dentry,
                },
                Err(error) => return Err(error),
            };
            if exclusive {
                return Err(Error::Exists);
            }
            let place = Path::new(parent.mount, dentry).onto_mounts();
            if lookup.contains(LookupFlags::NO_CROSSING) && place.mount.id() != walker.place().mount.id() {
                return Err(Error::CrossDevice);
            }
            let inode = place.inode()?;
            if inode.kind == FileKind::SymbolicLink && lookup.contains(LookupFlags::FOLLOW) {
                walker.follow_last(&place)?;
                if let Some(target) = walker.at_end() {
                    return self.open_existing(target, how.flags);
                }
                continue;
            }
            if inode.kind == FileKind::Directory {
                return Err(Error::IsDirectory);
            }
            sticky::check_opening(walker.place().inode()?, inode, self.credentials)?;
            return self.open_existing(place, how.flags);
        }
    }

    /// Creates a regular file unless somebody else was faster.
    fn create_file(&self, parent: &Path, name: &Name, how: &OpenHow) -> Result<Created> {
        let mode = how.mode & MODE_MASK;
        let prepared = OpenFile::prepare()?;
        let no_device = DeviceNumber::default();
        match self.find_or_create_at(
            parent,
            name,
            FileKind::Regular,
            mode,
            no_device,
            &[],
            Some(how.flags),
        )? {
            (dentry, true) => Ok(Created::New(dentry, prepared)),
            (dentry, false) => Ok(Created::Existed(dentry)),
        }
    }

    fn open_temporary(
        &self,
        start: &Path,
        path: &[u8],
        how: &OpenHow,
        lookup: LookupFlags,
    ) -> Result<Arc<OpenFile>> {
        if !how.flags.writable() {
            return Err(Error::Invalid);
        }
        let directory = self.walk(start, path, lookup | LookupFlags::DIRECTORY)?;
        let inode = directory.inode()?;
        directory.mount.writable()?;
        check_access(inode, Access::WRITE | Access::EXECUTE, self.credentials)?;
        let (group, mode) = inherit(inode, FileKind::Regular, how.mode & MODE_MASK, self.credentials);
        let (lists, mode) = super::access_list::inherit(inode, FileKind::Regular, mode, self.umask)?;
        super::create::check_known(&directory, self.credentials.user, group)?;
        let new = NewFile {
            kind: FileKind::Regular,
            mode,
            access_lists: lists.as_deref(),
            user: self.credentials.user,
            group,
            special: DeviceNumber::default(),
            target: &[],
        };
        let file = inode.operations().create_unnamed(inode, &new)?;
        super::access_list::show_new(&file, new.access_lists)?;
        file.set_linkable(!how.flags.contains(OpenFlags::EXCLUSIVE));
        let mut name = crate::text::Text::new();
        let _ = core::fmt::Write::write_fmt(&mut name, format_args!("#{}", file.number));
        let dentry = Dentry::new_detached(&name.finish()?, file)?;
        dentry.set_flags(crate::dentry::DentryFlags::DELETED);
        self.open_checked(Path::new(directory.mount, dentry), how.flags, Some(OpenFile::prepare()?))
    }

    /// Opens what was found, or what the caller has just created and `prepared` for: its permissions do not matter then.
    fn open_checked(
        &self,
        place: Path,
        flags: OpenFlags,
        prepared: Option<PreparedFile>,
    ) -> Result<Arc<OpenFile>> {
        let inode = place.inode()?;
        let truncates = flags.contains(OpenFlags::TRUNCATE) && prepared.is_none();
        match inode.kind {
            FileKind::SymbolicLink => return Err(Error::Loop),
            // Access mode 3 asks for the permission to write, though it gives none.
            FileKind::Directory if flags.bits() & OpenFlags::ACCESS_MODE != 0 || truncates => {
                return Err(Error::IsDirectory);
            }
            FileKind::CharacterDevice | FileKind::BlockDevice
                if place.mount.flags().contains(MountFlags::NO_DEVICES)
                    || !place.mount.superblock().owner().is_first() =>
            {
                return Err(Error::AccessDenied);
            }
            FileKind::Socket => return Err(Error::NoDeviceAddress),
            _ => {}
        }
        if prepared.is_none() {
            self.check_open(&place, flags, truncates)?;
        }
        let truncates = truncates && inode.kind == FileKind::Regular;
        let only_truncates = truncates && !flags.writable();
        if only_truncates {
            place.mount.writable()?;
        }
        if inotify::active() {
            fanotify::ask_open(&place)?;
        }
        let file = open_prepared(place, flags, prepared)?;
        if inotify::active() {
            inotify::report_file(&file, EventMask::OPEN);
        }
        let inode = file.inode();
        if only_truncates {
            // Truncation alone needs write access while it lasts: a program may run from the file.
            inode.begin_write_access()?;
        }
        if truncates {
            let result = crate::tree::truncate_inode(inode, 0);
            if only_truncates {
                inode.end_write_access();
            }
            result?;
            if let Some(path) = file.path() {
                inotify::report_attributes(path, EventMask::MODIFY);
            }
        }
        Ok(file)
    }

    fn check_open(&self, place: &Path, flags: OpenFlags, truncates: bool) -> Result<()> {
        let inode = place.inode()?;
        let mut wanted = Access::empty();
        let access_mode = flags.bits() & OpenFlags::ACCESS_MODE;
        wanted.set(Access::READ, access_mode != 1);
        wanted.set(Access::WRITE, access_mode != 0 || truncates);
        inode.operations().refresh(inode);
        if wanted.contains(Access::WRITE) && inode.kind == FileKind::Regular {
            place.mount.writable()?;
        }
        check_access(inode, wanted, self.credentials)?;
        if truncates || access_mode != 0 && !flags.contains(OpenFlags::APPEND) {
            file_flags::check_not_append_only(inode)?;
        }
        if flags.contains(OpenFlags::NO_ACCESS_TIME) && !owns(inode, self.credentials) {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }
}

/// What [`PathContext::create_file`] found.
enum Created {
    New(Arc<Dentry>, PreparedFile),
    Existed(Arc<Dentry>),
}

/// Opens the file at a place without permission checks: by the kernel, or after them.
pub fn open_place(place: Path, flags: OpenFlags) -> Result<Arc<OpenFile>> {
    open_prepared(place, flags, None)
}

/// Opens the file at a place for a program that was allowed to execute it: asks those who want to be asked, and tells those who watch it.
pub fn open_for_execution(place: Path) -> Result<Arc<OpenFile>> {
    if !inotify::active() {
        return open_place(place, OpenFlags::empty());
    }
    fanotify::ask_execution(&place)?;
    let file = open_place(place, OpenFlags::empty())?;
    if let Some(place) = file.path() {
        inotify::report_execution(place);
    }
    Ok(file)
}

/// As [`open_place`], and nobody is told what happens through the file.
pub(crate) fn open_unwatched(place: Path, flags: OpenFlags) -> Result<Arc<OpenFile>> {
    open_prepared(place, flags | UNWATCHED, None)
}

fn open_prepared(place: Path, flags: OpenFlags, prepared: Option<PreparedFile>) -> Result<Arc<OpenFile>> {
    let inode = place.inode()?;
    let object = match inode.kind {
        FileKind::CharacterDevice | FileKind::BlockDevice => Some(crate::device::open(inode, flags)?),
        FileKind::Fifo => Some(crate::pipe::open_fifo(inode, flags)?),
        _ => inode.operations().open(inode, flags)?,
    };
    OpenFile::at_path(place, flags, object, prepared)
}
