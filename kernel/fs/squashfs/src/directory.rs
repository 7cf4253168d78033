//! Directories: names in the order of their bytes, in groups with a head. A large one has an index, which says where names begin.

use alloc::vec::Vec;

use crate::cursor::Cursor;
use crate::file_system::FileSystem;
use crate::inode::{Inode, Kind, Place};
use crate::store::METADATA_BYTES;
use crate::superblock::{u16_at, u32_at};
use crate::{Error, Result};

/// Longest name.
const NAME_MAX: usize = 256;
/// Entries behind one head.
const GROUP_MAX: u32 = 256;
/// What a directory's size counts beside its listing: `.` and `..`.
const DOTS: u64 = 3;
/// Bytes of a group's head, and of an entry without its name.
const HEAD_BYTES: u64 = 12;
const ENTRY_BYTES: u64 = 8;

/// A name in a directory.
pub struct Entry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The file's number.
    pub number: u32,
    /// What it is.
    pub kind: Kind,
    /// Where its inode is.
    pub reference: u64,
    /// The position behind it.
    pub next: u64,
}

/// A listing that is walked.
struct Listing {
    cursor: Cursor,
    position: u64,
    length: u64,
}

fn listing(system: &FileSystem, inode: &Inode) -> Result<Listing> {
    let Place::Listing { start, offset, .. } = inode.place else { return Err(Error::WrongKind) };
    let block = system.superblock.directory_table + start;
    Ok(Listing {
        cursor: Cursor::new(block, offset.into()),
        position: 0,
        length: inode.size.saturating_sub(DOTS),
    })
}

/// The listing from the last indexed place on for which `before` holds, of a place's position and name.
fn indexed(system: &FileSystem, inode: &Inode, before: impl Fn(u64, &[u8]) -> bool) -> Result<Listing> {
    let mut best = listing(system, inode)?;
    let Place::Listing { offset, index, index_at, .. } = inode.place else { return Ok(best) };
    let mut cursor = index_at;
    let mut name = [0; NAME_MAX];
    for _ in 0..index {
        let raw = cursor.array::<12>(system)?;
        let (position, block, length) = (u32_at(&raw, 0), u32_at(&raw, 4), u32_at(&raw, 8) as usize + 1);
        let name = name.get_mut(..length).ok_or(Error::Corrupted("a name in an index", inode.reference))?;
        cursor.read(system, name)?;
        let position = u64::from(position);
        if position >= best.length || !before(position, name) {
            break;
        }
        let block = system.superblock.directory_table + u64::from(block);
        let offset = (position as usize + usize::from(offset)) % METADATA_BYTES;
        best.cursor = Cursor::new(block, offset);
        best.position = position;
    }
    Ok(best)
}

impl Listing {
    /// Calls `each` with all entries until it says no.
    fn walk(&mut self, system: &FileSystem, mut each: impl FnMut(&Entry<'_>) -> bool) -> Result<()> {
        let damaged = |position| Error::Corrupted("a directory", position);
        let mut bytes = [0; NAME_MAX];
        while self.length - self.position >= HEAD_BYTES {
            let head = self.cursor.array::<12>(system)?;
            self.position += HEAD_BYTES;
            let (count, block, number) = (u32_at(&head, 0), u32_at(&head, 4), u32_at(&head, 8));
            if count >= GROUP_MAX {
                return Err(damaged(self.position));
            }
            for _ in 0..=count {
                let raw = self.cursor.array::<8>(system)?;
                let length = usize::from(u16_at(&raw, 6)) + 1;
                self.position += ENTRY_BYTES + length as u64;
                if length > NAME_MAX || self.position > self.length {
                    return Err(damaged(self.position));
                }
                let name = &mut bytes[..length];
                self.cursor.read(system, name)?;
                let entry = Entry {
                    name,
                    number: number.wrapping_add_signed(i32::from(u16_at(&raw, 2).cast_signed())),
                    kind: Kind::of(u16_at(&raw, 4)).ok_or(damaged(self.position))?,
                    reference: u64::from(block) << 16 | u64::from(u16_at(&raw, 0)),
                    next: self.position,
                };
                if entry.name.iter().any(|byte| matches!(byte, 0 | b'/')) {
                    return Err(damaged(self.position));
                }
                if !each(&entry) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Finds a name.
pub(crate) fn lookup(system: &FileSystem, inode: &Inode, name: &[u8]) -> Result<u64> {
    let mut found = None;
    indexed(system, inode, |_, first| first <= name)?.walk(system, |entry| {
        if entry.name == name {
            found = Some(entry.reference);
        }
        entry.name < name
    })?;
    found.ok_or(Error::NotFound)
}

/// Lists from a position (0, or one that an entry named) until `each` says no.
pub(crate) fn list(
    system: &FileSystem,
    inode: &Inode,
    position: u64,
    mut each: impl FnMut(&Entry<'_>) -> bool,
) -> Result<()> {
    indexed(system, inode, |place, _| place <= position)?
        .walk(system, |entry| entry.next <= position || each(entry))
}

/// The target of a symbolic link.
pub(crate) fn target(system: &FileSystem, inode: &Inode) -> Result<Vec<u8>> {
    let Place::Target(mut cursor) = inode.place else { return Err(Error::WrongKind) };
    let mut bytes = memory::fallible::try_vec_of(0, inode.size as usize)?;
    cursor.read(system, &mut bytes)?;
    Ok(bytes)
}
