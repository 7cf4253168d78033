//! Who may do what with a file.

use crate::attributes::{FileKind, SET_GROUP_ID, STICKY};
use crate::credentials::{Capabilities, Credentials};
use crate::file_flags::FileFlags;
use crate::flags::Access;
use crate::inode::{Inode, InodeHead, Question};
use crate::{Error, Result};

/// Whether `credentials` may access the file in all of the ways asked for; `EACCES`. Plain loads only.
///
/// The owner's bits count for the owner, the group's for members of the group, the others' for the rest; a file's access list, if it has one, counts
/// for all but the owner. Without the bits, `CAP_DAC_OVERRIDE` allows everything but executing a file that nobody may execute, and `CAP_DAC_READ_SEARCH`
/// allows reading files, and reading and searching directories. Nobody may write an immutable file; `EPERM`.
#[inline]
pub fn check_access(inode: &Inode, access: Access, credentials: &Credentials) -> Result<()> {
    // What everybody may do needs no look at who asks: true for almost every directory on a path.
    if inode.everybody_may(access.bits()) {
        return Ok(());
    }
    check_closely(inode, access, credentials)
}

#[inline(never)]
fn check_closely(inode: &Inode, access: Access, credentials: &Credentials) -> Result<()> {
    if inode.is_left_to_file_system() {
        return inode.operations().permit(inode, Question::Access(access, credentials));
    }
    check_attributes(inode, access, credentials)
}

/// What a file's access list says of somebody who is not its owner. `None` if there is no list, or if it gives nothing to
/// anybody it names: then the mode alone counts.
#[cold]
#[inline(never)]
fn check_list(inode: &InodeHead, wanted: u32, credentials: &Credentials) -> Option<Result<()>> {
    if inode.mode() & 0o070 == 0 || !inode.may_have_lists() {
        return None;
    }
    inode
        .ask_access_list(|list| list.grants(wanted, inode.group(), credentials))
        .transpose()
        .map(Result::flatten)
}

/// The same by the file's attributes alone, for file systems that were asked and go by them.
///
/// # Errors
/// `EACCES`, `EPERM`.
pub fn check_attributes(inode: &InodeHead, access: Access, credentials: &Credentials) -> Result<()> {
    let (mode, wanted) = (inode.mode(), access.bits());
    if access.contains(Access::WRITE) && inode.file_flags().contains(FileFlags::IMMUTABLE) {
        return Err(Error::NotPermitted);
    }
    let granted = if credentials.user == inode.user() {
        mode >> 6
    } else if !inode.is_plain()
        && let Some(outcome) = check_list(inode, wanted, credentials)
    {
        match outcome {
            Err(Error::AccessDenied) => 0,
            decided => return decided,
        }
    } else if credentials.in_group(inode.group()) {
        mode >> 3
    } else {
        mode
    };
    if granted & wanted == wanted {
        return Ok(());
    }
    let overridden = if inode.kind == FileKind::Directory {
        credentials.has_over(inode, Capabilities::DAC_OVERRIDE)
            || (credentials.has_over(inode, Capabilities::DAC_READ_SEARCH) && !access.contains(Access::WRITE))
    } else {
        (credentials.has_over(inode, Capabilities::DAC_OVERRIDE)
            && (!access.contains(Access::EXECUTE) || mode & 0o111 != 0))
            || (credentials.has_over(inode, Capabilities::DAC_READ_SEARCH) && access == Access::READ)
    };
    if overridden { Ok(()) } else { Err(Error::AccessDenied) }
}

/// Whether `credentials` own the file or may act as if they did; `EPERM`.
#[inline]
pub fn check_owner(inode: &InodeHead, credentials: &Credentials) -> Result<()> {
    if owns(inode, credentials) { Ok(()) } else { Err(Error::NotPermitted) }
}

/// Whether `credentials` own the file or may act as if they did.
#[inline]
pub fn owns(inode: &InodeHead, credentials: &Credentials) -> bool {
    credentials.user == inode.user() || credentials.has_over(inode, Capabilities::FOWNER)
}

/// Whether a name may be removed from a directory: it must be writable and searchable, and if it is sticky, the file
/// or the directory must belong to the caller. Neither may refuse it to everybody.
pub fn check_removal(directory: &Inode, victim: &InodeHead, credentials: &Credentials) -> Result<()> {
    check_access(directory, Access::WRITE | Access::EXECUTE, credentials)?;
    if directory.file_flags().contains(FileFlags::APPEND_ONLY)
        || victim.file_flags().intersects(FileFlags::APPEND_ONLY | FileFlags::IMMUTABLE)
    {
        return Err(Error::NotPermitted);
    }
    let sticky = directory.mode() & STICKY != 0;
    let mine = credentials.user == victim.user() || credentials.user == directory.user();
    if sticky && !mine && !credentials.has_over(victim, Capabilities::FOWNER) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Group and mode of a new file: in a set-group-id directory it gets the directory's group, and a new directory the
/// bit too. Other files lose the bit when the creator is not in the group.
pub fn inherit(directory: &InodeHead, kind: FileKind, mode: u32, credentials: &Credentials) -> (u32, u32) {
    if directory.mode() & SET_GROUP_ID == 0 {
        return (credentials.group, mode);
    }
    let group = directory.group();
    if kind == FileKind::Directory {
        return (group, mode | SET_GROUP_ID);
    }
    let executable = mode & (SET_GROUP_ID | 0o010) == SET_GROUP_ID | 0o010;
    if executable && !credentials.in_group(group) && !credentials.has_over(directory, Capabilities::FSETID) {
        return (group, mode & !SET_GROUP_ID);
    }
    (group, mode)
}
