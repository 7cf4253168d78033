//! `chmod`, `chown`, `utimensat`, `truncate`, `fallocate`.

use alloc::sync::Arc;

use super::access_list;
use crate::access_list::ListKind;
use crate::attributes::{
    AttributeChange, FileKind, MODE_MASK, SET_GROUP_ID, SET_USER_ID, TimeChange, Timestamp,
};
use crate::credentials::{Capabilities, Credentials};
use crate::file::OpenFile;
use crate::file_flags::FileFlags;
use crate::flags::{Access, AllocateMode, LookupFlags};
use crate::inode::{Identity, Inode, Question};
use crate::inotify::{self, EventMask};
use crate::lock::lease;
use crate::mount::Path;
use crate::permission::{check_access, check_owner, owns};
use crate::walk::PathContext;
use crate::{Error, Result, file_flags, watched};

impl PathContext<'_> {
    /// Changes mode, owner or times of the file at a place.
    pub fn change_attributes(&self, place: &Path, change: &AttributeChange) -> Result<()> {
        place.mount.writable()?;
        let inode = place.inode()?;
        change_inode(inode, change, self.credentials)?;
        inotify::report_attributes(place, EventMask::ATTRIBUTE);
        Ok(())
    }

    /// `truncate`: by path.
    pub fn truncate(&self, start: &Path, path: &[u8], size: i64) -> Result<()> {
        let size = u64::try_from(size).map_err(|_| Error::Invalid)?;
        let place = self.walk(start, path, LookupFlags::FOLLOW)?;
        let inode = place.inode()?;
        match inode.kind {
            FileKind::Directory => return Err(Error::IsDirectory),
            FileKind::Regular => {}
            _ => return Err(Error::Invalid),
        }
        place.mount.writable()?;
        check_access(inode, Access::WRITE, self.credentials)?;
        file_flags::check_not_append_only(inode)?;
        inode.begin_write_access()?;
        let leases = if watched::anything() { lease::break_leases(inode, true, true) } else { Ok(()) };
        let result = leases.and_then(|()| truncate_inode(inode, size));
        inode.end_write_access();
        result?;
        inotify::report_attributes(&place, EventMask::MODIFY);
        Ok(())
    }
}

/// Changes mode, owner or times of a file without a place (`fchmod` of a pipe). What the file is, what the caller may, and the change in both
/// places where attributes are kept are one step for other changes, and for writes, which take set-user-id away.
pub fn change_inode(inode: &Arc<Inode>, change: &AttributeChange, credentials: &Credentials) -> Result<()> {
    let _exclusive = inode.lock().write();
    inode.operations().refresh(inode);
    let mut change = permitted(inode, change, credentials)?;
    if let Some(mode) = change.mode
        && let Some(list) = access_list::after_chmod(inode, mode)?
    {
        access_list::replace(inode, ListKind::Access, Some(list), Some(mode))?;
        change.mode = None;
        if change == AttributeChange::default() {
            return Ok(());
        }
    }
    let changes_owner = change.user.is_some() || change.group.is_some();
    if inode.may_have_capabilities() && (changes_owner || change == AttributeChange::default()) {
        crate::file_capabilities::remove(inode)?;
    }
    inode.operations().change_attributes(inode, &change)?;
    if inode.is_left_to_file_system() {
        // What came of it the file system shows.
        return Ok(());
    }
    if change.user.is_some() || change.group.is_some() || change.mode.is_some() {
        let before = inode.identity();
        inode.set_identity(Identity {
            mode: change.mode.unwrap_or(before.mode),
            user: change.user.unwrap_or(before.user),
            group: change.group.unwrap_or(before.group),
        });
    }
    let now = Timestamp::coarse();
    let time = |wanted: TimeChange| match wanted {
        TimeChange::Now => now,
        TimeChange::To(time) => time,
    };
    if let Some(accessed) = change.accessed {
        inode.accessed().set(time(accessed));
    }
    if let Some(modified) = change.modified {
        inode.modified().set(time(modified));
    }
    inode.changed().set(now);
    Ok(())
}

/// The change as it may be made; `EPERM` or `EACCES` when it may not.
fn permitted(inode: &Inode, change: &AttributeChange, credentials: &Credentials) -> Result<AttributeChange> {
    let wanted_mode = change.mode;
    let mut change = *change;
    if inode.is_left_to_file_system() {
        inode.ask(Question::Change)?;
        if !inode.operations().goes_by_attributes() {
            return Ok(change);
        }
    }
    check_flags(inode, &change)?;
    check_chown(inode, &mut change, credentials)?;
    if let Some(mode) = wanted_mode
        && change.user.is_none()
        && change.group.is_none()
    {
        check_owner(inode, credentials)?;
        let mut mode = mode & MODE_MASK;
        if !credentials.in_group(inode.group()) && !credentials.has_over(inode, Capabilities::FSETID) {
            mode &= !SET_GROUP_ID;
        }
        change.mode = Some(mode);
    }
    let times = [change.accessed, change.modified];
    if times.iter().flatten().any(|time| matches!(time, TimeChange::To(_))) {
        check_owner(inode, credentials)?;
    } else if times.iter().all(Option::is_some) && !owns(inode, credentials) {
        check_access(inode, Access::WRITE, credentials)?;
    } else if times.iter().any(Option::is_some) {
        check_owner(inode, credentials)?;
    }
    Ok(change)
}

/// Whether the file's flags refuse the change to everybody: an append-only file's times may still be set to now.
fn check_flags(inode: &Inode, change: &AttributeChange) -> Result<()> {
    let only_touches = change.user.is_none()
        && change.group.is_none()
        && change.mode.is_none()
        && (change.accessed, change.modified) == (Some(TimeChange::Now), Some(TimeChange::Now));
    match *change == AttributeChange::default() {
        true => Ok(()),
        false if only_touches && !inode.file_flags().contains(FileFlags::IMMUTABLE) => Ok(()),
        false => file_flags::check_changeable(inode),
    }
}

/// `chown`: who may, and which mode bits it takes away.
fn check_chown(inode: &Inode, change: &mut AttributeChange, credentials: &Credentials) -> Result<()> {
    let changes_owner = change.user.is_some() || change.group.is_some();
    if !changes_owner && *change != AttributeChange::default() {
        return Ok(());
    }
    let privileged = credentials.has_over(inode, Capabilities::CHOWN);
    let is_owner = credentials.user == inode.user();
    if let Some(user) = change.user
        && !privileged
        && !(is_owner && user == inode.user())
    {
        return Err(Error::NotPermitted);
    }
    if let Some(group) = change.group
        && !privileged
        && !(is_owner && (group == inode.group() || credentials.in_group(group)))
    {
        return Err(Error::NotPermitted);
    }
    let mode = inode.mode() & MODE_MASK;
    if inode.kind != FileKind::Directory && mode & (SET_USER_ID | SET_GROUP_ID) != 0 {
        if !changes_owner {
            // `chown` to nobody: all it does is to take these bits away, which is a change of the mode.
            check_owner(inode, credentials)?;
        }
        let mut stripped = mode & !SET_USER_ID;
        if mode & 0o010 != 0 {
            stripped &= !SET_GROUP_ID;
        }
        change.mode = Some(stripped);
    }
    Ok(())
}

/// Sets the size of a regular file.
pub(crate) fn truncate_inode(inode: &Arc<Inode>, size: u64) -> Result<()> {
    if size > crate::file::SIZE_MAX {
        return Err(Error::FileTooLarge);
    }
    let _exclusive = inode.lock().write();
    crate::file::take_privileges(inode)?;
    // First the size, then the pages: a write beside this one compares the two when it has written, and mends the size.
    let before = inode.size();
    inode.set_size(size);
    inode.operations().truncate(inode, size).inspect_err(|_| inode.set_size(before))?;
    inode.touch_modified();
    Ok(())
}

impl OpenFile {
    /// `ftruncate`.
    pub fn truncate(&self, size: i64) -> Result<()> {
        let size = u64::try_from(size).map_err(|_| Error::Invalid)?;
        if self.flags().contains(crate::flags::OpenFlags::PATH) {
            return Err(Error::BadDescriptor);
        }
        if self.inode().kind != FileKind::Regular || !self.flags().writable() {
            return Err(Error::Invalid);
        }
        file_flags::check_not_append_only(self.inode())?;
        truncate_inode(self.inode(), size)?;
        if let Some(path) = self.path() {
            inotify::report_attributes(path, EventMask::MODIFY);
        }
        Ok(())
    }

    /// `fallocate`.
    pub fn allocate(&self, mode: AllocateMode, offset: i64, length: i64) -> Result<()> {
        let (Ok(offset), Ok(length)) = (u64::try_from(offset), u64::try_from(length)) else {
            return Err(Error::Invalid);
        };
        if length == 0 {
            return Err(Error::Invalid);
        }
        check_allocate_mode(mode)?;
        self.check_writable()?;
        let flags = self.inode().file_flags();
        // What only adds blocks takes nothing from an append-only file.
        let takes = !mode.difference(AllocateMode::KEEP_SIZE).is_empty();
        if flags.contains(FileFlags::IMMUTABLE) || takes && flags.contains(FileFlags::APPEND_ONLY) {
            return Err(Error::NotPermitted);
        }
        match self.inode().kind {
            FileKind::Fifo => return Err(Error::IllegalSeek),
            FileKind::Directory => return Err(Error::IsDirectory),
            FileKind::Regular => {}
            _ => return Err(Error::NoDevice),
        }
        let end = offset
            .checked_add(length)
            .filter(|&end| end <= crate::file::SIZE_MAX)
            .ok_or(Error::FileTooLarge)?;
        allocate_inode(self.inode(), mode, offset, length, end)
    }
}

/// `fallocate` after all checks; `end` is that of the range.
pub(crate) fn allocate_inode(
    inode: &Arc<Inode>,
    mode: AllocateMode,
    offset: u64,
    length: u64,
    end: u64,
) -> Result<()> {
    let _exclusive = inode.lock().write();
    crate::file::take_privileges(inode)?;
    inode.operations().allocate(inode, mode, offset, length)?;
    let grows = !mode.intersects(AllocateMode::KEEP_SIZE | AllocateMode::MOVES);
    if grows && end > inode.size() {
        inode.operations().truncate(inode, end)?;
        inode.set_size(end);
    }
    inode.touch_modified();
    Ok(())
}

fn check_allocate_mode(mode: AllocateMode) -> Result<()> {
    if AllocateMode::from_bits(mode.bits()).is_none() {
        return Err(Error::NotSupported);
    }
    if mode.contains(AllocateMode::PUNCH_HOLE) && !mode.contains(AllocateMode::KEEP_SIZE) {
        return Err(Error::NotSupported);
    }
    if mode.contains(AllocateMode::PUNCH_HOLE | AllocateMode::ZERO_RANGE) {
        return Err(Error::NotSupported);
    }
    // Moving the rest goes with nothing else.
    if mode.intersects(AllocateMode::MOVES)
        && mode != AllocateMode::COLLAPSE_RANGE
        && mode != AllocateMode::INSERT_RANGE
    {
        return Err(Error::Invalid);
    }
    Ok(())
}
