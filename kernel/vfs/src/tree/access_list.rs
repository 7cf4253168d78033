//! Access lists: what calls on their extended attributes do, and how `chmod` and new files meet them.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::access_list::{AccessList, ListKind, NewLists};
use crate::attributes::{FileKind, MODE_MASK, SET_GROUP_ID};
use crate::credentials::{Capabilities, Credentials};
use crate::inode::Inode;
use crate::permission::check_owner;
use crate::{Error, Result, allocation};

/// Most that a list takes as an attribute's value.
const VALUE_MAX: usize = super::extended::VALUE_MAX;

/// Copies the value that shows a list into `buffer`, nothing if that is empty; returns its length.
pub(super) fn get(
    inode: &Inode,
    kind: ListKind,
    buffer: &mut [u8],
    credentials: &Credentials,
) -> Result<usize> {
    let mut list = stored(inode, kind)?.ok_or(Error::NoData)?;
    list.show_in(&credentials.space);
    list.to_value(buffer)
}

/// The list as the file system keeps it; `EOPNOTSUPP` where there are none.
pub(super) fn stored(inode: &Inode, kind: ListKind) -> Result<Option<AccessList>> {
    if !inode.may_have_lists() {
        return Err(Error::NotSupported);
    }
    inode.operations().access_list(inode, kind)
}

/// Sets the list that a value shows, or removes it.
pub(super) fn set(
    inode: &Arc<Inode>,
    kind: ListKind,
    value: Option<&[u8]>,
    credentials: &Credentials,
) -> Result<()> {
    if value.is_some_and(|value| value.len() > VALUE_MAX) {
        return Err(Error::TooBig);
    }
    let mut list = match value {
        Some(value) => AccessList::from_value(value)?,
        None => None,
    };
    if let Some(list) = &mut list {
        list.take_from(&credentials.space)?;
    }
    if !inode.may_have_lists() {
        return Err(Error::NotSupported);
    }
    if kind == ListKind::Default && inode.kind != FileKind::Directory {
        return if list.is_some() { Err(Error::AccessDenied) } else { Ok(()) };
    }
    let _exclusive = inode.lock().write();
    inode.operations().refresh(inode);
    check_owner(inode, credentials)?;
    if let Some(list) = &list {
        list.check()?;
    }
    if kind == ListKind::Default {
        return replace(inode, kind, list, None);
    }
    let mut mode = inode.mode() & MODE_MASK;
    if let Some((bits, says_all)) = list.as_ref().map(AccessList::mode) {
        mode = mode & !0o777 | bits;
        list = list.filter(|_| !says_all);
    }
    if !credentials.in_group(inode.group()) && !credentials.has_over(inode, Capabilities::FSETID) {
        mode &= !SET_GROUP_ID;
    }
    replace(inode, kind, list, Some(mode))
}

/// Sets or removes a list, and the mode with it, on the file system and in memory. The inode is locked exclusively.
pub(super) fn replace(
    inode: &Inode,
    kind: ListKind,
    list: Option<AccessList>,
    mode: Option<u32>,
) -> Result<()> {
    let shown = match (&list, kind) {
        (Some(list), ListKind::Access) => Some(allocation::rcu(list.try_clone()?)?),
        _ => None,
    };
    inode.operations().set_access_list(inode, kind, list.as_ref(), mode)?;
    match kind {
        ListKind::Access => inode.show_access_list(shown, mode),
        ListKind::Default => inode.show_default_list(list.is_some()),
    }
    inode.touch_changed();
    Ok(())
}

/// The access list of a file as `chmod` leaves it; `None` if it has none, or does not change it.
pub(super) fn after_chmod(inode: &Inode, mode: u32) -> Result<Option<AccessList>> {
    if inode.is_plain() || !inode.may_have_lists() {
        return Ok(None);
    }
    // One that could not be read stays as it is.
    let Ok(Some(copy)) = inode.ask_access_list(AccessList::try_clone) else { return Ok(None) };
    let mut list = copy?;
    Ok(list.change_mode(mode).then_some(list))
}

/// What a new file begins with: its mode, less what the caller's mask takes away or the directory's default list does not give, and the lists
/// that it has from that.
#[inline]
pub(super) fn inherit(
    directory: &Inode,
    kind: FileKind,
    mode: u32,
    umask: u32,
) -> Result<(Option<Box<NewLists>>, u32)> {
    if kind == FileKind::SymbolicLink {
        Ok((None, mode))
    } else if directory.has_default_list() {
        inherit_lists(directory, kind, mode, umask)
    } else {
        Ok((None, mode & !umask))
    }
}

#[cold]
#[inline(never)]
fn inherit_lists(
    directory: &Inode,
    kind: FileKind,
    mode: u32,
    umask: u32,
) -> Result<(Option<Box<NewLists>>, u32)> {
    if directory.may_have_lists()
        && let Some(default) = directory.operations().access_list(directory, ListKind::Default)?
    {
        let (lists, mode) = NewLists::inherit(default, kind == FileKind::Directory, mode)?;
        return Ok((Some(allocation::boxed(lists)?), mode));
    }
    Ok((None, mode & !umask))
}

/// Shows the lists that a file was made with.
#[inline]
pub(super) fn show_new(inode: &Inode, lists: Option<&NewLists>) -> Result<()> {
    lists.map_or(Ok(()), |lists| show_lists(inode, lists))
}

#[cold]
#[inline(never)]
fn show_lists(inode: &Inode, lists: &NewLists) -> Result<()> {
    let access = lists.access.as_ref().map(AccessList::try_clone).transpose()?;
    inode.show_lists(Ok(access), lists.default.is_some());
    Ok(())
}
