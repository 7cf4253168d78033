//! Extended attributes: in the inode behind its fields, and in a block of their own. Access control lists are attributes too.

use alloc::vec::Vec;

use zerocopy::FromBytes;

use block::checksum::crc32c;
use memory::fallible;

use crate::blocks::{Blocks, raw_inode};
use crate::cache::BlockBytes;
use crate::inode::Inode;
use crate::layout::{RawXattrEntry, RawXattrHeader, XATTR_CHECKSUM_AT, XATTR_MAGIC};
use crate::{Error, Result};

/// What the numbers of prefixes stand for.
pub(crate) const PREFIXES: [&[u8]; 9] = [
    b"",
    b"user.",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"trusted.",
    b"",
    b"security.",
    b"system.",
    b"system.richacl",
];

/// The whole name of an attribute.
fn full_name(prefix: u8, name: &[u8]) -> Option<Result<Vec<u8>>> {
    let prefix = PREFIXES.get(usize::from(prefix))?;
    let whole = || {
        let mut whole = fallible::try_vec(prefix.len() + name.len())?;
        whole.extend_from_slice(prefix);
        whole.extend_from_slice(name);
        Ok(whole)
    };
    (!(prefix.is_empty() && name.is_empty())).then(whole)
}

fn is_named(prefix: u8, name: &[u8], wanted: &[u8]) -> bool {
    PREFIXES.get(usize::from(prefix)).is_some_and(|prefix| wanted.strip_prefix(*prefix) == Some(name))
}

/// Calls `each` with prefix, name and value of each entry. `values` is what offsets count from.
pub(crate) fn for_each_in(
    inode: &Inode,
    entries: &[u8],
    values: &[u8],
    mut each: impl FnMut(u8, &[u8], &[u8]) -> Result<bool>,
) -> Result<()> {
    let damaged = || Error::Corrupted("an extended attribute", inode.number.into());
    let mut rest = entries;
    while rest.len() >= 4 && rest[..4] != [0; 4] {
        let (entry, behind) = RawXattrEntry::read_from_prefix(rest).map_err(|_| damaged())?;
        let name_length = usize::from(entry.name_length);
        let name = behind.get(..name_length).ok_or_else(damaged)?;
        let (offset, length) = (usize::from(entry.value_offset.get()), entry.value_length.get() as usize);
        if entry.value_inode.get() != 0 {
            return Err(damaged());
        }
        let end = offset.checked_add(length).ok_or_else(damaged)?;
        let value = if length == 0 { &[][..] } else { values.get(offset..end).ok_or_else(damaged)? };
        if !each(entry.prefix, name, value)? {
            return Ok(());
        }
        rest = behind.get(name_length.next_multiple_of(4)..).ok_or_else(damaged)?;
    }
    Ok(())
}

pub(crate) fn attribute_block(system: &impl Blocks, inode: &Inode) -> Result<Option<BlockBytes>> {
    let place = inode.attributes;
    if place == 0 {
        return Ok(None);
    }
    let damaged = || Error::Corrupted("a block of extended attributes", inode.number.into());
    if !system.geometry().contains(place, 1) {
        return Err(damaged());
    }
    let verify = |bytes: &[u8]| {
        let (header, _) = RawXattrHeader::read_from_prefix(bytes).map_err(|_| damaged())?;
        if header.magic.get() != XATTR_MAGIC || header.blocks.get() != 1 {
            return Err(damaged());
        }
        if system.geometry().metadata_checksum() {
            let sum = crc32c(system.geometry().seed, &place.to_le_bytes());
            let sum = crc32c(crc32c(sum, &bytes[..XATTR_CHECKSUM_AT]), &[0; 4]);
            if crc32c(sum, &bytes[XATTR_CHECKSUM_AT + 4..]) != header.checksum.get() {
                return Err(Error::Corrupted("the checksum of extended attributes", place));
            }
        }
        Ok(())
    };
    system.block(place, verify).map(Some)
}

/// Calls `each` with prefix, name and value of all attributes until it says no.
fn for_each(
    system: &impl Blocks,
    inode: &Inode,
    mut each: impl FnMut(u8, &[u8], &[u8]) -> Result<bool>,
) -> Result<()> {
    let mut go_on = true;
    let raw = raw_inode(system, inode.number)?;
    if let Some(inner) = raw.bytes().get(inode.inner_attributes_at..)
        && inner.len() > 4
        && inner[..4] == XATTR_MAGIC.to_le_bytes()
    {
        for_each_in(inode, &inner[4..], &inner[4..], |prefix, name, value| {
            go_on = each(prefix, name, value)?;
            Ok(go_on)
        })?;
    }
    if go_on && let Some(bytes) = attribute_block(system, inode)? {
        for_each_in(inode, &bytes[size_of::<RawXattrHeader>()..], &bytes, each)?;
    }
    Ok(())
}

/// Copies an attribute's value into `buffer`, nothing if that is empty, and returns its length.
pub(crate) fn get(system: &impl Blocks, inode: &Inode, wanted: &[u8], buffer: &mut [u8]) -> Result<usize> {
    let mut found = Err(Error::NotFound);
    for_each(system, inode, |prefix, name, value| {
        if !is_named(prefix, name, wanted) {
            return Ok(true);
        }
        found = Ok(value.len());
        if !buffer.is_empty() {
            buffer.get_mut(..value.len()).ok_or(Error::Range)?.copy_from_slice(value);
        }
        Ok(false)
    })?;
    found
}

/// Calls `each` with the names of all attributes.
pub(crate) fn list(
    system: &impl Blocks,
    inode: &Inode,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    for_each(system, inode, |prefix, name, _| {
        if let Some(name) = full_name(prefix, name) {
            each(&name?)?;
        }
        Ok(true)
    })
}
