//! Extended attributes: names and values in metadata; a value that several files have is in one place.

use alloc::vec::Vec;

use memory::fallible;

use crate::cursor::Cursor;
use crate::file_system::FileSystem;
use crate::inode::Inode;
use crate::superblock::{u32_at, u64_at};
use crate::{Error, Result, tables};

/// Longest name without its prefix, and value.
const NAME_MAX: u16 = 255;
const VALUE_MAX: u32 = 65536;
/// Attributes of one file.
const COUNT_MAX: u32 = 65536;
/// The value is elsewhere.
const ELSEWHERE: u16 = 0x100;

fn prefix(kind: u16) -> Option<&'static [u8]> {
    Some(match kind & 0xff {
        0 => b"user.",
        1 => b"trusted.",
        2 => b"security.",
        _ => return None,
    })
}

/// Calls `each` with the name of each attribute, and where its length and value are, until it says no.
fn walk(
    system: &FileSystem,
    inode: &Inode,
    mut each: impl FnMut(&[u8], Cursor) -> Result<bool>,
) -> Result<()> {
    let Some(index) = inode.attributes else { return Ok(()) };
    let (mut cursor, start, count) = tables::attributes(system, index)?;
    if count > COUNT_MAX {
        return Err(Error::Corrupted("the number of attributes", inode.reference));
    }
    let mut name = Vec::new();
    for _ in 0..count {
        let (kind, length) = (cursor.u16(system)?, cursor.u16(system)?);
        if length > NAME_MAX {
            return Err(Error::Corrupted("the name of an attribute", inode.reference));
        }
        let known = prefix(kind);
        let front = known.unwrap_or_default();
        name.clear();
        fallible::try_reserve(&mut name, front.len() + usize::from(length))?;
        name.extend_from_slice(front);
        name.resize(front.len() + usize::from(length), 0);
        cursor.read(system, &mut name[front.len()..])?;
        let here = cursor;
        let value_bytes = cursor.u32(system)?;
        if value_bytes > VALUE_MAX {
            return Err(Error::Corrupted("the value of an attribute", inode.reference));
        }
        let value = if kind & ELSEWHERE == 0 {
            here
        } else if value_bytes == 8 {
            let mut reference = here;
            let raw = reference.array::<12>(system)?;
            Cursor::of_reference(start, u64_at(&raw, 4))?
        } else {
            return Err(Error::Corrupted("the place of an attribute's value", inode.reference));
        };
        cursor.skip(system, value_bytes as usize)?;
        if known.is_some() && !each(&name, value)? {
            return Ok(());
        }
    }
    Ok(())
}

/// Calls `each` with all names.
pub(crate) fn names(
    system: &FileSystem,
    inode: &Inode,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    walk(system, inode, |name, _| each(name).map(|()| true))
}

/// Copies a value into `buffer`, unless that is empty; returns its length.
pub(crate) fn value(system: &FileSystem, inode: &Inode, wanted: &[u8], buffer: &mut [u8]) -> Result<usize> {
    let mut found = Err(Error::NotFound);
    walk(system, inode, |name, mut at| {
        if name != wanted {
            return Ok(true);
        }
        let length = u32_at(&at.array::<4>(system)?, 0);
        if length > VALUE_MAX {
            return Err(Error::Corrupted("the value of an attribute", inode.reference));
        }
        let length = length as usize;
        found = Ok(length);
        if !buffer.is_empty() {
            match buffer.get_mut(..length) {
                Some(buffer) => at.read(system, buffer)?,
                None => found = Err(Error::Range),
            }
        }
        Ok(false)
    })?;
    found
}
