//! Access lists: the disk has them as values of attributes, in a form of its own. Entries that name nobody take four bytes there, the
//! others eight.

use alloc::vec::Vec;

use vfs::access_list::{AccessList, Entry, ListKind, NewLists, Who};
use vfs::inode::Inode;
use vfs::{Result, allocation};

use super::instance::{error_of, now, stamp};
use super::node::Node;
use crate::FileSystem;

/// The version of the form on the disk.
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 4;
const SHORT_BYTES: usize = 4;

/// As the disk has it.
fn encode(list: &AccessList) -> Result<Vec<u8>> {
    let mut value = Vec::new();
    allocation::extend(&mut value, &VERSION.to_le_bytes())?;
    for entry in list.entries() {
        allocation::extend(&mut value, &(entry.who as u16).to_le_bytes())?;
        allocation::extend(&mut value, &entry.access.to_le_bytes())?;
        if entry.who.is_named() {
            allocation::extend(&mut value, &entry.id.to_le_bytes())?;
        }
    }
    Ok(value)
}

/// What the disk has; `None` if that is no list.
fn decode(value: &[u8]) -> Result<Option<AccessList>> {
    let Some((version, mut rest)) = value.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    if u32::from_le_bytes(*version) != VERSION {
        return Ok(None);
    }
    let mut list = AccessList::new();
    while let Some((&[who0, who1, access0, access1], behind)) = rest.split_first_chunk::<SHORT_BYTES>() {
        let Some(who) = Who::from_number(u16::from_le_bytes([who0, who1])) else { return Ok(None) };
        let (id, behind) = if who.is_named() {
            let Some((id, behind)) = behind.split_first_chunk() else { return Ok(None) };
            (u32::from_le_bytes(*id), behind)
        } else {
            (0, behind)
        };
        list.push(Entry { who, access: u16::from_le_bytes([access0, access1]), id })?;
        rest = behind;
    }
    Ok((rest.is_empty() && list.check().is_ok()).then_some(list))
}

fn read_one(system: &FileSystem, inode: &crate::Inode, kind: ListKind) -> Result<Option<AccessList>> {
    let name = kind.attribute();
    let length = match system.attribute(inode, name, &mut []) {
        Ok(length) => length,
        Err(crate::Error::NotFound) => return Ok(None),
        Err(error) => return Err(error_of(error)),
    };
    let mut value = allocation::filled(0, length)?;
    // A buffer without room asks for the length only, and so does not fail.
    let read = system.attribute(inode, name, &mut value).map_err(error_of)?;
    let list = if read == length { decode(&value)? } else { None };
    match list {
        Some(list) => Ok(Some(list)),
        None => Err(error_of(crate::Error::Corrupted("an access list", inode.number.into()))),
    }
}

/// What an inode that enters memory has: its access list, and whether there is a default one.
pub(super) struct Found {
    access: Result<Option<AccessList>>,
    has_default: bool,
}

/// Looks for lists. Most files have no attributes at all.
pub(super) fn find(system: &FileSystem, inode: &crate::Inode) -> Found {
    if !inode.has_attributes() || inode.kind == crate::Kind::Link {
        return Found { access: Ok(None), has_default: false };
    }
    let has_default = inode.kind == crate::Kind::Directory
        && system.attribute(inode, ListKind::Default.attribute(), &mut []).is_ok();
    Found { access: read_one(system, inode, ListKind::Access), has_default }
}

impl Found {
    /// Shows them in the inode in memory, which nobody else has yet.
    pub(super) fn show(self, inode: &Inode) {
        inode.show_lists(self.access, self.has_default);
    }
}

/// The lists of a new file as the disk will have them.
pub(super) fn encode_new(lists: Option<&NewLists>) -> Result<Vec<(&'static [u8], Vec<u8>)>> {
    let mut attributes = Vec::new();
    let Some(lists) = lists else { return Ok(attributes) };
    for (kind, list) in [(ListKind::Access, &lists.access), (ListKind::Default, &lists.default)] {
        if let Some(list) = list {
            allocation::push(&mut attributes, (kind.attribute(), encode(list)?))?;
        }
    }
    Ok(attributes)
}

impl Node {
    pub(super) fn list(&self, kind: ListKind) -> Result<Option<AccessList>> {
        read_one(self.instance.system(), &self.stored()?, kind)
    }

    pub(super) fn store_list(
        &self,
        inode: &Inode,
        kind: ListKind,
        list: Option<&AccessList>,
        mode: Option<u32>,
    ) -> Result<()> {
        let value = list.map(encode).transpose()?;
        let (name, mode) = (kind.attribute(), mode.map(|mode| mode as u16));
        let privileged = self.instance.is_privileged();
        let stored = self.instance.with_space(|writer| {
            writer.set_attribute_and_mode(self.file.number, name, value.as_deref(), mode, privileged, now())
        })?;
        inode.changed().set(stamp(stored.changed));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> AccessList {
        let mut list = AccessList::new();
        let entries = [
            (Who::Owner, 7, 0),
            (Who::User, 6, 1000),
            (Who::OwningGroup, 5, 0),
            (Who::Group, 6, 50),
            (Who::Mask, 4, 0),
            (Who::Others, 1, 0),
        ];
        for (who, access, id) in entries {
            list.push(Entry { who, access, id }).unwrap();
        }
        list
    }

    #[test]
    fn lists_come_back_from_the_disk() {
        let value = encode(&sample()).unwrap();
        assert_eq!(value.len(), 4 + 4 * 4 + 2 * 8);
        assert_eq!(decode(&value), Ok(Some(sample())));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let value = encode(&sample()).unwrap();
        for length in 0..value.len() {
            assert_eq!(decode(&value[..length]), Ok(None), "{length} bytes");
        }
        for (at, byte) in [(0, 2), (4, 3), (6, 8)] {
            let mut other = value.clone();
            other[at] = byte;
            assert_eq!(decode(&other), Ok(None), "byte {at}");
        }
    }
}
