//! Flags of files, beside their mode: what `chattr` sets and `lsattr` shows (ioctl_iflags(2)).
//!
//! | flag | who keeps it up |
//! |---|---|
//! | immutable | the file layer: no writing ([`check_access`](crate::permission::check_access) refuses it, whoever asks), no other name, none removed, no change of attributes |
//! | append-only | the file layer: opened for writing with `O_APPEND` only, not cut off, no name of it removed; nothing removed from such a directory |
//! | no access time | the file layer |
//! | synchronous | the file layer, from the next opening on; directories the file system |
//! | not to be dumped, and others | nobody: they are kept for programs |
//!
//! A file system keeps the flags, and says which ones a file may have. Those that the file layer acts on are in the inode's head too, beside the permission
//! bits ([`InodeHead::show_file_flags`](crate::inode::InodeHead::show_file_flags)), where who asks for permissions looks anyway.
//!
//! Descriptors that were opened before keep what they may, unless the file system refuses it: ext4 does, tmpfs does not.

use alloc::sync::Arc;

use bitflags::bitflags;

use crate::credentials::{Capabilities, Credentials};
use crate::inode::Inode;
use crate::mount::Path;
use crate::permission::check_owner;
use crate::{Error, FileKind, Result};

bitflags! {
    /// The flags, as `FS_IOC_GETFLAGS` tells them and as ext4 stores them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct FileFlags: u32 {
        /// Compressed.
        const COMPRESSED = 0x4;
        /// Writes last when they return.
        const SYNCHRONOUS = 0x8;
        /// Nothing of it may be changed.
        const IMMUTABLE = 0x10;
        /// It may only be appended to.
        const APPEND_ONLY = 0x20;
        /// `dump` leaves it out.
        const NO_DUMP = 0x40;
        /// Its access time is not updated.
        const NO_ACCESS_TIME = 0x80;
        /// Encrypted.
        const ENCRYPTED = 0x800;
        /// Changes of the directory last when they return.
        const DIRECTORY_SYNCHRONOUS = 0x1_0000;
        /// Its pages may be those of the device.
        const DIRECT_ACCESS = 0x200_0000;
        /// What is made in the directory belongs to its project.
        const INHERIT_PROJECT = 0x2000_0000;
        // All others are the file system's own.
        const _ = !0;
    }
}

impl FileFlags {
    /// Those that the file layer acts on, or keeps for file systems that have no place for them.
    pub const KNOWN: Self = Self::COMPRESSED
        .union(Self::SYNCHRONOUS)
        .union(Self::IMMUTABLE)
        .union(Self::APPEND_ONLY)
        .union(Self::NO_DUMP)
        .union(Self::NO_ACCESS_TIME);
    /// Those that need `CAP_LINUX_IMMUTABLE` to be changed.
    const GUARDED: Self = Self::IMMUTABLE.union(Self::APPEND_ONLY);
    /// Those that `FS_IOC_FSSETXATTR` knows, too.
    const EXTENDED: Self =
        Self::KNOWN.difference(Self::COMPRESSED).union(Self::DIRECT_ACCESS).union(Self::INHERIT_PROJECT);
    /// Those that `statx` shows, which numbers them so, too.
    pub const SHOWN: Self = Self::IMMUTABLE.union(Self::APPEND_ONLY).union(Self::NO_DUMP);
}

/// Flags that both requests know, and how `FS_IOC_FSGETXATTR` calls them.
const NAMES: [(FileFlags, u32); 7] = [
    (FileFlags::IMMUTABLE, 0x8),
    (FileFlags::APPEND_ONLY, 0x10),
    (FileFlags::SYNCHRONOUS, 0x20),
    (FileFlags::NO_ACCESS_TIME, 0x40),
    (FileFlags::NO_DUMP, 0x80),
    (FileFlags::INHERIT_PROJECT, 0x200),
    (FileFlags::DIRECT_ACCESS, 0x8000),
];
/// A hint of the size of extents is given, for the file, for what is made in the directory, for copies of the file.
const HINT: u32 = 0x800;
const HINT_INHERITED: u32 = 0x1000;
const HINT_OF_COPIES: u32 = 0x1_0000;
/// What is told only, and nothing when it is set: space was allocated, there are attributes.
const ONLY_TOLD: u32 = 0x8000_0002;
/// All that has a meaning for some file system.
const EXTENDED_KNOWN: u32 = 0x8001_fffb;

/// What a file system keeps of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSettings {
    /// Its flags.
    pub flags: FileFlags,
    /// The project it belongs to.
    pub project: u32,
    /// A request has set something that few file systems have.
    pub has_more: bool,
}

/// What `FS_IOC_FSGETXATTR` tells and `FS_IOC_FSSETXATTR` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtendedFlags {
    /// Flags, of another numbering.
    pub flags: u32,
    /// Hint of the size of extents.
    pub extent_bytes: u32,
    /// The project it belongs to.
    pub project: u32,
    /// Hint of the size of extents of copies.
    pub copy_extent_bytes: u32,
}

impl From<FileSettings> for ExtendedFlags {
    fn from(settings: FileSettings) -> Self {
        let shown = NAMES.iter().filter(|(flag, _)| settings.flags.contains(*flag));
        let flags = shown.map(|(_, extended)| extended).sum();
        Self { flags, project: settings.project, ..Self::default() }
    }
}

/// What a request wants a file to have.
#[derive(Clone, Copy, Debug)]
pub enum FlagChange {
    /// Just these flags.
    Flags(u32),
    /// These, and the project.
    Extended(ExtendedFlags),
}

impl FlagChange {
    /// What the file has then; `EINVAL` for what such a file can't have.
    fn settings(self, before: FileSettings, kind: FileKind) -> Result<FileSettings> {
        let wanted = match self {
            Self::Flags(flags) => {
                return Ok(FileSettings { flags: FileFlags::from_bits_retain(flags), ..before });
            }
            Self::Extended(wanted) => wanted,
        };
        if wanted.flags & !EXTENDED_KNOWN != 0 {
            return Err(Error::NotSupported);
        }
        let is_directory = kind == FileKind::Directory;
        if wanted.flags & HINT != 0 && is_directory || wanted.flags & HINT_INHERITED != 0 && !is_directory {
            return Err(Error::Invalid);
        }
        // Hints of no size are none.
        let mut more = wanted.flags & !ONLY_TOLD;
        if wanted.extent_bytes == 0 {
            more &= !(HINT | HINT_INHERITED);
        }
        if wanted.copy_extent_bytes == 0 {
            more &= !HINT_OF_COPIES;
        }
        let mut flags = before.flags.difference(FileFlags::EXTENDED);
        for (flag, extended) in NAMES {
            flags.set(flag, wanted.flags & extended != 0);
            more &= !extended;
        }
        let has_more =
            more != 0 || wanted.extent_bytes != 0 || wanted.project != 0 || wanted.copy_extent_bytes != 0;
        Ok(FileSettings { flags, project: wanted.project, has_more })
    }
}

/// What a file has.
///
/// # Errors
/// `ENOTTY` where there are no flags.
pub fn settings(inode: &Inode) -> Result<FileSettings> {
    inode.operations().settings(inode)
}

/// Changes flags of the file at a place.
///
/// # Errors
/// `EROFS`; `ENOTTY` where there are none; `EPERM` for who may not; `EOPNOTSUPP` for what such a file can't have.
pub fn change(
    place: Option<&Path>,
    inode: &Arc<Inode>,
    wanted: FlagChange,
    credentials: &Credentials,
) -> Result<()> {
    if let Some(place) = place {
        place.mount.writable()?;
    }
    settings(inode)?;
    check_owner(inode, credentials)?;
    let _exclusive = inode.lock().write();
    let before = settings(inode)?;
    let after = wanted.settings(before, inode.kind)?;
    let differs = before.flags.symmetric_difference(after.flags);
    if differs.intersects(FileFlags::GUARDED) && !credentials.has(Capabilities::LINUX_IMMUTABLE) {
        return Err(Error::NotPermitted);
    }
    let changes_project = before.project != after.project || differs.contains(FileFlags::INHERIT_PROJECT);
    if changes_project && !credentials.space.is_first() || after.project == u32::MAX {
        return Err(Error::Invalid);
    }
    inode.operations().change_settings(inode, &after)?;
    inode.show_file_flags(after.flags);
    inode.touch_changed();
    Ok(())
}

/// Whether something other than appending is refused for everybody.
///
/// # Errors
/// `EPERM`.
pub(crate) fn check_changeable(inode: &Inode) -> Result<()> {
    let refuses = FileFlags::IMMUTABLE | FileFlags::APPEND_ONLY;
    if inode.file_flags().intersects(refuses) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Whether what only an append-only file refuses is refused: to write elsewhere than at its end, or to cut it off.
///
/// # Errors
/// `EPERM`.
pub(crate) fn check_not_append_only(inode: &Inode) -> Result<()> {
    if inode.file_flags().contains(FileFlags::APPEND_ONLY) { Err(Error::NotPermitted) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: FileSettings = FileSettings { flags: FileFlags::empty(), project: 0, has_more: false };

    fn extended(flags: u32) -> ExtendedFlags {
        ExtendedFlags { flags, ..ExtendedFlags::default() }
    }

    #[test]
    fn both_numberings_say_the_same() {
        for (flag, number) in NAMES {
            let kind = FileKind::Directory;
            let set = FlagChange::Extended(extended(number)).settings(NOTHING, kind);
            assert_eq!(set, Ok(FileSettings { flags: flag, ..NOTHING }));
            assert_eq!(ExtendedFlags::from(FileSettings { flags: flag, ..NOTHING }), extended(number));
        }
    }

    #[test]
    fn what_the_other_request_does_not_know_stays() {
        let own = FileFlags::from_bits_retain(0x8_0000);
        let before = FileSettings { flags: own | FileFlags::NO_DUMP, ..NOTHING };
        let set = FlagChange::Extended(extended(0)).settings(before, FileKind::Regular);
        assert_eq!(set, Ok(FileSettings { flags: own, ..NOTHING }));
    }

    #[test]
    fn hints_without_a_size_are_none_and_others_are_more() {
        let set = |wanted| FlagChange::Extended(wanted).settings(NOTHING, FileKind::Regular);
        assert_eq!(set(extended(HINT)), Ok(NOTHING));
        assert_eq!(set(extended(HINT_INHERITED)), Err(Error::Invalid));
        assert_eq!(set(extended(0x4)), Err(Error::NotSupported));
        let sized = ExtendedFlags { flags: HINT, extent_bytes: 4096, ..ExtendedFlags::default() };
        assert_eq!(set(sized), Ok(FileSettings { has_more: true, ..NOTHING }));
    }
}
