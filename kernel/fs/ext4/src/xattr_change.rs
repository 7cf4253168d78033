//! Extended attributes, changed: all of a file's are taken out as a list, and put back as a whole.
//!
//! New values go into the inode if they fit there, else into the file's block of attributes. Such a block may belong to several
//! files; it is copied before it is changed then.

use alloc::vec::Vec;

use zerocopy::IntoBytes;

use block::checksum::crc32c;
use memory::fallible;

use crate::blocks::{Blocks, raw_inode};
use crate::handle::Handle;
use crate::inode::{Inode, Time};
use crate::layout::{RawXattrEntry, RawXattrHeader, XATTR_CHECKSUM_AT, XATTR_MAGIC};
use crate::writer::Writer;
use crate::xattr::{PREFIXES, attribute_block, for_each_in};
use crate::{Error, Result};

const HEADER_BYTES: usize = size_of::<RawXattrHeader>();
const ENTRY_BYTES: usize = size_of::<RawXattrEntry>();
/// Longest name behind its prefix.
const NAME_MAX: usize = 255;
/// Files that may share a block of attributes.
const REFERENCES_MAX: u32 = 1024;

/// Whether an attribute must or must not be there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetAttribute {
    /// Either.
    Any,
    /// It must not.
    Create,
    /// It must.
    Replace,
}

struct Attribute {
    prefix: u8,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Attribute {
    fn new(prefix: u8, name: &[u8], value: &[u8]) -> Result<Self> {
        Ok(Self { prefix, name: fallible::try_copy(name)?, value: fallible::try_copy(value)? })
    }

    fn is(&self, prefix: u8, name: &[u8]) -> bool {
        self.prefix == prefix && self.name == name
    }

    fn entry_bytes(&self) -> usize {
        (ENTRY_BYTES + self.name.len()).next_multiple_of(4)
    }

    fn hash(&self) -> u32 {
        let name = self.name.iter().fold(0u32, |hash, byte| hash.rotate_left(5) ^ u32::from(*byte));
        self.value.chunks(4).fold(name, |hash, chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            hash.rotate_left(16) ^ u32::from_le_bytes(word)
        })
    }
}

/// The number of a name's prefix, and the rest of it.
fn split_name(name: &[u8]) -> Result<(u8, &[u8])> {
    for (number, prefix) in PREFIXES.iter().enumerate().filter(|(_, prefix)| !prefix.is_empty()) {
        let whole = !prefix.ends_with(b".");
        match name.strip_prefix(*prefix) {
            Some(rest) if rest.is_empty() == whole && rest.len() <= NAME_MAX => {
                return Ok((number as u8, rest));
            }
            _ => {}
        }
    }
    Err(Error::NotSupported)
}

/// What a list takes, without header: entries, the mark of their end, and values.
fn bytes_of(list: &[Attribute]) -> usize {
    list.iter().map(|one| one.entry_bytes() + one.value.len().next_multiple_of(4)).sum::<usize>() + 4
}

fn collect(inode: &Inode, entries: &[u8], values: &[u8]) -> Result<Vec<Attribute>> {
    let mut list = Vec::new();
    for_each_in(inode, entries, values, |prefix, name, value| {
        fallible::try_push(&mut list, Attribute::new(prefix, name, value)?)?;
        Ok(true)
    })?;
    // Values of a sound list do not overlap. The mark of its end may be missing where there is no room.
    if bytes_of(&list) > entries.len() + 4 {
        return Err(Error::Corrupted("extended attributes that share bytes", inode.number.into()));
    }
    Ok(list)
}

/// Writes a list: entries from `entries_at` on, values from the end, whose offsets count from `base`. It fits.
fn fill(bytes: &mut [u8], entries_at: usize, base: usize, list: &[Attribute]) {
    bytes[entries_at..].fill(0);
    let (mut at, mut end) = (entries_at, bytes.len());
    for one in list {
        let padded = one.value.len().next_multiple_of(4);
        end -= padded;
        bytes[end..end + one.value.len()].copy_from_slice(&one.value);
        let entry = RawXattrEntry {
            name_length: one.name.len() as u8,
            prefix: one.prefix,
            value_offset: (if padded == 0 { 0 } else { (end - base) as u16 }).into(),
            value_inode: 0.into(),
            value_length: (one.value.len() as u32).into(),
            hash: one.hash().into(),
        };
        bytes[at..at + ENTRY_BYTES].copy_from_slice(entry.as_bytes());
        bytes[at + ENTRY_BYTES..at + ENTRY_BYTES + one.name.len()].copy_from_slice(&one.name);
        at += one.entry_bytes();
    }
    debug_assert!(at + 4 <= end, "it was checked that the list fits");
}

/// Sets a block's checksum.
fn seal(handle: &Handle<'_>, place: u64, bytes: &mut [u8]) {
    let geometry = handle.geometry();
    if geometry.metadata_checksum() {
        bytes[XATTR_CHECKSUM_AT..XATTR_CHECKSUM_AT + 4].fill(0);
        let sum = crc32c(crc32c(geometry.seed, &place.to_le_bytes()), bytes);
        bytes[XATTR_CHECKSUM_AT..XATTR_CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

fn references(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])
}

impl Handle<'_> {
    /// Gives up a file's block of attributes, which others may go on using. The caller stores the inode.
    pub(crate) fn release_attribute_block(&mut self, inode: &mut Inode) -> Result<()> {
        let Some(bytes) = attribute_block(self, inode)? else { return Ok(()) };
        let place = inode.attributes;
        let count = references(&bytes);
        if (2..=REFERENCES_MAX).contains(&count) {
            let mut bytes = fallible::try_copy(&bytes)?;
            bytes[4..8].copy_from_slice(&(count - 1).to_le_bytes());
            seal(self, place, &mut bytes);
            self.put(place, bytes)?;
        } else {
            self.free_metadata(place)?;
        }
        inode.attributes = 0;
        inode.add_blocks(self.geometry(), -1);
        Ok(())
    }

    fn store_attribute_block(&mut self, inode: &mut Inode, list: &mut [Attribute]) -> Result<()> {
        let shared = attribute_block(self, inode)?.is_some_and(|bytes| references(&bytes) > 1);
        if list.is_empty() || shared {
            self.release_attribute_block(inode)?;
        }
        if list.is_empty() {
            return Ok(());
        }
        if inode.attributes == 0 {
            let goal = self.goal_of_inode(inode.number);
            inode.attributes = self.allocate(goal, 1)?.start;
            inode.add_blocks(self.geometry(), 1);
        }
        sorting::sort_by(list, |one, other| {
            let key = |one: &Attribute| (one.prefix, one.name.len());
            key(one).cmp(&key(other)).then_with(|| one.name.cmp(&other.name)).is_lt()
        });
        let mut bytes = self.empty_block()?;
        let mut hash = 0u32;
        for one in list.iter() {
            match one.hash() {
                0 => {
                    hash = 0;
                    break;
                }
                other => hash = hash.rotate_left(16) ^ other,
            }
        }
        let header = RawXattrHeader {
            magic: XATTR_MAGIC.into(),
            references: 1.into(),
            blocks: 1.into(),
            hash: hash.into(),
            checksum: 0.into(),
            reserved: [0.into(); 3],
        };
        bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        fill(&mut bytes, HEADER_BYTES, 0, list);
        seal(self, inode.attributes, &mut bytes);
        self.put(inode.attributes, bytes)
    }

    /// Sets or removes an attribute. Stores the inode.
    pub(crate) fn set_attribute(
        &mut self,
        inode: &mut Inode,
        name: &[u8],
        value: Option<&[u8]>,
        how: SetAttribute,
    ) -> Result<()> {
        let (prefix, rest) = split_name(name)?;
        let inner_bytes = self.geometry().inode_bytes.saturating_sub(inode.inner_attributes_at + 4);
        let mut inner = {
            let raw = raw_inode(self, inode.number)?;
            match raw.bytes().get(inode.inner_attributes_at..) {
                Some(part) if part.len() > 4 && part[..4] == XATTR_MAGIC.to_le_bytes() => {
                    collect(inode, &part[4..], &part[4..])?
                }
                _ => Vec::new(),
            }
        };
        let mut outer = match attribute_block(self, inode)? {
            Some(bytes) => collect(inode, &bytes[HEADER_BYTES..], &bytes)?,
            None => Vec::new(),
        };
        let counts = (inner.len(), outer.len());
        inner.retain(|one| !one.is(prefix, rest));
        outer.retain(|one| !one.is(prefix, rest));
        let existed = counts != (inner.len(), outer.len());
        let mut outer_changed = counts.1 != outer.len();
        match how {
            SetAttribute::Create if existed => return Err(Error::Exists),
            SetAttribute::Replace if !existed => return Err(Error::NotFound),
            _ => {}
        }
        if let Some(value) = value {
            let limit = self.geometry().block_bytes;
            if value.len() > limit {
                return Err(Error::NoSpace);
            }
            let new = Attribute::new(prefix, rest, value)?;
            let takes =
                |list: &[Attribute]| bytes_of(list) + new.entry_bytes() + new.value.len().next_multiple_of(4);
            if takes(&inner) <= inner_bytes {
                fallible::try_push(&mut inner, new)?;
            } else if takes(&outer) <= limit - HEADER_BYTES {
                fallible::try_push(&mut outer, new)?;
                outer_changed = true;
            } else {
                return Err(Error::NoSpace);
            }
        }
        let outer_bytes = self.geometry().block_bytes - HEADER_BYTES;
        if !inner.is_empty() && bytes_of(&inner) > inner_bytes || bytes_of(&outer) > outer_bytes {
            return Err(Error::Corrupted("extended attributes without an end", inode.number.into()));
        }
        if outer_changed {
            self.store_attribute_block(inode, &mut outer)?;
        }
        self.store(inode)?;
        let at = inode.inner_attributes_at;
        self.change_raw(inode, |_, bytes| {
            if !inner.is_empty() || counts.0 > 0 {
                let part = &mut bytes[at..];
                part[..4].copy_from_slice(&XATTR_MAGIC.to_le_bytes());
                if inner.is_empty() {
                    part.fill(0);
                } else {
                    fill(part, 4, 4, &inner);
                }
            }
            Ok(())
        })
    }
}

impl Writer {
    /// Sets an extended attribute. `privileged`: its block may be one of those kept for the superuser.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for names with a prefix that no attribute has, [`Error::NoSpace`] when neither inode nor block has room.
    pub fn set_attribute(
        &self,
        number: u32,
        name: &[u8],
        value: &[u8],
        how: SetAttribute,
        privileged: bool,
        now: Time,
    ) -> Result<Inode> {
        self.change(privileged, |handle| {
            let mut inode = handle.inode(number)?;
            inode.changed = now;
            handle.set_attribute(&mut inode, name, Some(value), how)?;
            Ok(inode)
        })
    }

    /// Sets an extended attribute or removes it, if it is there, and in the same step the permission bits.
    ///
    /// # Errors
    /// Those of [`set_attribute`](Self::set_attribute).
    pub fn set_attribute_and_mode(
        &self,
        number: u32,
        name: &[u8],
        value: Option<&[u8]>,
        mode: Option<u16>,
        privileged: bool,
        now: Time,
    ) -> Result<Inode> {
        self.change(privileged, |handle| {
            let mut inode = handle.inode(number)?;
            inode.changed = now;
            inode.mode = mode.map_or(inode.mode, |mode| mode & 0o7777);
            handle.set_attribute(&mut inode, name, value, SetAttribute::Any)?;
            Ok(inode)
        })
    }

    /// Removes an extended attribute.
    pub fn remove_attribute(&self, number: u32, name: &[u8], now: Time) -> Result<Inode> {
        self.change(true, |handle| {
            let mut inode = handle.inode(number)?;
            inode.changed = now;
            handle.set_attribute(&mut inode, name, None, SetAttribute::Replace)?;
            Ok(inode)
        })
    }
}
