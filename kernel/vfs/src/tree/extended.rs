//! Extended attributes: `getxattr`, `setxattr`, `listxattr`, `removexattr`.
//!
//! Name spaces: `user.` (regular files and directories, by their permissions), `trusted.` (`CAP_SYS_ADMIN`, invisible
//! without), `security.` (readable by all, changed with `CAP_SYS_ADMIN`; [capabilities](crate::file_capabilities) with `CAP_SETFCAP`), `system.` for
//! [access lists](crate::access_list). Others are not supported.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::access_list;
use crate::access_list::ListKind;
use crate::attributes::{FileKind, STICKY};
use crate::credentials::{Capabilities, Credentials};
use crate::flags::Access;
use crate::inode::{Inode, Question, SetAttribute};
use crate::permission::{check_access, owns};
use crate::{Error, Result, allocation, file_capabilities, file_flags};

/// Longest name of an extended attribute.
const NAME_MAX: usize = 255;
/// Largest value of an extended attribute.
pub const VALUE_MAX: usize = 65536;
/// Largest list of names.
const LIST_MAX: usize = 65536;

fn check_name(inode: &Inode, name: &[u8], access: Access, credentials: &Credentials) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Error::Range);
    }
    let writes = access.contains(Access::WRITE);
    if name.starts_with(b"trusted.") {
        if !credentials.has(Capabilities::SYS_ADMIN) {
            return Err(if writes { Error::NotPermitted } else { Error::NoData });
        }
    } else if name.starts_with(b"security.") {
        let needed = match name {
            file_capabilities::ATTRIBUTE => Capabilities::SETFCAP,
            _ => Capabilities::SYS_ADMIN,
        };
        if writes && !credentials.has(needed) {
            return Err(Error::NotPermitted);
        }
    } else if let Some(rest) = name.strip_prefix(b"user.") {
        if rest.is_empty() {
            return Err(Error::Invalid);
        }
        if !matches!(inode.kind, FileKind::Regular | FileKind::Directory) {
            return Err(if writes { Error::NotPermitted } else { Error::NoData });
        }
        let sticky = inode.kind == FileKind::Directory && inode.mode() & STICKY != 0;
        if sticky && writes && !owns(inode, credentials) {
            return Err(Error::NotPermitted);
        }
        check_access(inode, access, credentials)?;
    } else {
        return Err(Error::NotSupported);
    }
    Ok(())
}

/// Whether an attribute is one whose meaning only the file system knows; the file system of a file that is left to it is asked.
fn is_passed_on(inode: &Inode, name: &[u8]) -> Result<bool> {
    inode.ask(Question::Other)?;
    Ok(inode.is_left_to_file_system() && name.starts_with(b"system.") && name.len() <= NAME_MAX)
}

/// Copies a value into `buffer` (nothing when it is empty); returns its length. `ERANGE` when it does not fit.
pub fn get_attribute(
    inode: &Arc<Inode>,
    name: &[u8],
    buffer: &mut [u8],
    credentials: &Credentials,
) -> Result<usize> {
    if is_passed_on(inode, name)? {
        return inode.operations().extended_attribute(inode, name, buffer);
    }
    if let Some(kind) = ListKind::of_attribute(name) {
        return access_list::get(inode, kind, buffer, credentials);
    }
    check_name(inode, name, Access::READ, credentials)?;
    if name == file_capabilities::ATTRIBUTE {
        return file_capabilities::get(inode, buffer);
    }
    inode.operations().extended_attribute(inode, name, buffer)
}

/// Sets a value. The caller has checked that the mount is writable.
pub fn set_attribute(
    inode: &Arc<Inode>,
    name: &[u8],
    value: &[u8],
    how: SetAttribute,
    credentials: &Credentials,
) -> Result<()> {
    file_flags::check_changeable(inode)?;
    if is_passed_on(inode, name)? {
        return inode.operations().set_extended_attribute(inode, name, value, how);
    }
    if let Some(kind) = ListKind::of_attribute(name) {
        return access_list::set(inode, kind, (!value.is_empty()).then_some(value), credentials);
    }
    let gives_capabilities = name == file_capabilities::ATTRIBUTE;
    if gives_capabilities && !file_capabilities::is_settable(value) {
        return Err(Error::Invalid);
    }
    check_name(inode, name, Access::WRITE, credentials)?;
    if value.len() > VALUE_MAX {
        return Err(Error::TooBig);
    }
    let _exclusive = inode.lock().write();
    if gives_capabilities {
        inode.expect_capabilities(true);
    }
    inode.operations().set_extended_attribute(inode, name, value, how)?;
    inode.touch_changed();
    Ok(())
}

/// Removes an attribute. The caller has checked that the mount is writable.
pub fn remove_attribute(inode: &Arc<Inode>, name: &[u8], credentials: &Credentials) -> Result<()> {
    file_flags::check_changeable(inode)?;
    if is_passed_on(inode, name)? {
        return inode.operations().remove_extended_attribute(inode, name);
    }
    if let Some(kind) = ListKind::of_attribute(name) {
        return access_list::set(inode, kind, None, credentials);
    }
    check_name(inode, name, Access::WRITE, credentials)?;
    let _exclusive = inode.lock().write();
    inode.operations().remove_extended_attribute(inode, name)?;
    inode.touch_changed();
    Ok(())
}

/// The names of all attributes that the caller may know of, each followed by a NUL byte.
pub fn list_attributes(inode: &Arc<Inode>, credentials: &Credentials) -> Result<Vec<u8>> {
    inode.ask(Question::Other)?;
    let mut list = Vec::new();
    let administrator = credentials.has(Capabilities::SYS_ADMIN);
    inode.operations().list_extended_attributes(inode, &mut |name| {
        if name.starts_with(b"trusted.") && !administrator
            || ListKind::of_attribute(name).is_some()
                && !inode.may_have_lists()
                && !inode.is_left_to_file_system()
        {
            return Ok(());
        }
        if list.len() + name.len() + 1 > LIST_MAX {
            return Err(Error::TooBig);
        }
        allocation::extend(&mut list, name)?;
        allocation::push(&mut list, 0)
    })?;
    Ok(list)
}
