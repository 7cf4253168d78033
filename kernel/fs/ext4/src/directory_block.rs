//! Blocks of directories, changed: entries put in, taken out, pointed elsewhere; and their checksums.

use alloc::vec::Vec;
use core::ops::Range;

use zerocopy::IntoBytes;

use block::checksum::{crc32c, crc32c_changed};

use crate::blocks::Blocks;
use crate::directory::record_bytes;
use crate::geometry::{Geometry, incompatible};
use crate::handle::Handle;
use crate::inode::{Inode, Kind};
use crate::layout::{DIRECTORY_TAIL_BYTES, DIRECTORY_TAIL_KIND, ENTRY_HEAD_BYTES, RawEntry};
use crate::{Error, Result};

/// Bytes that an entry with a name of that length takes.
pub(crate) const fn entry_bytes(name: usize) -> usize {
    (ENTRY_HEAD_BYTES + name).next_multiple_of(4)
}

/// Where the entries of a block end: its checksum comes behind them.
pub(crate) fn entries_end(geometry: &Geometry) -> usize {
    let tail = if geometry.metadata_checksum() { DIRECTORY_TAIL_BYTES } else { 0 };
    geometry.block_bytes - tail
}

/// Where the checksum of a block is, if it has one.
fn tail(geometry: &Geometry) -> Range<usize> {
    entries_end(geometry)..geometry.block_bytes
}

fn length_field(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

/// A name to be entered.
#[derive(Clone, Copy)]
pub(crate) struct NewEntry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) inode: u32,
    pub(crate) kind: Kind,
}

impl NewEntry<'_> {
    /// Writes the entry as a record of that length.
    fn write(&self, geometry: &Geometry, bytes: &mut [u8], length: usize) {
        let kinds = geometry.has_incompatible(incompatible::FILE_TYPE);
        let head = RawEntry {
            inode: self.inode.into(),
            length: length_field(length).into(),
            name_length: self.name.len() as u8,
            kind: if kinds { self.kind.entry_number() } else { 0 },
        };
        bytes[..ENTRY_HEAD_BYTES].copy_from_slice(head.as_bytes());
        bytes[ENTRY_HEAD_BYTES..ENTRY_HEAD_BYTES + self.name.len()].copy_from_slice(self.name);
    }
}

/// A record of a block: where, how long, and the length of its name (0: it is empty).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    at: usize,
    length: usize,
    name_length: usize,
    pub(crate) inode: u32,
}

/// Reads the record at `at`, whose head is read as one number: a name is looked for among hundreds.
#[inline]
fn record(bytes: &[u8], at: usize, end: usize) -> Result<Record> {
    let damaged = || Error::Corrupted("a directory's entry", at as u64);
    let head = bytes[at..end].first_chunk::<ENTRY_HEAD_BYTES>().ok_or_else(damaged)?;
    // The fields of `RawEntry`.
    let head = u64::from_le_bytes(*head);
    let inode = head as u32;
    let length = record_bytes((head >> 32) as u16, bytes.len());
    let name_length = usize::from((head >> 48) as u8);
    let fits = length >= ENTRY_HEAD_BYTES && length.is_multiple_of(4) && at + length <= end;
    if !fits || (inode != 0 && ENTRY_HEAD_BYTES + name_length > length) {
        return Err(damaged());
    }
    Ok(Record { at, length, name_length, inode })
}

fn set_length(bytes: &mut [u8], at: usize, length: usize) {
    bytes[at + 4..at + 6].copy_from_slice(&length_field(length).to_le_bytes());
}

/// A record behind whose own entry there is room for another one.
pub(crate) struct Room {
    at: usize,
    /// Bytes that its own entry takes.
    used: usize,
    length: usize,
}

/// Where an entry with a name of that length would go in a block.
pub(crate) fn room_for(geometry: &Geometry, bytes: &[u8], name_length: usize) -> Result<Option<Room>> {
    let end = entries_end(geometry);
    let needed = entry_bytes(name_length);
    let mut at = 0;
    while at < end {
        let Record { length, name_length, inode, .. } = record(bytes, at, end)?;
        // Most records are too short for two, whatever they hold.
        if length >= needed {
            let used = if inode == 0 { 0 } else { entry_bytes(name_length) };
            if length >= used + needed {
                return Ok(Some(Room { at, used, length }));
            }
        }
        at += length;
    }
    Ok(None)
}

/// Puts an entry there.
fn insert(geometry: &Geometry, bytes: &mut [u8], room: &Room, new: NewEntry<'_>) {
    let Room { at, used, length } = *room;
    if used > 0 {
        set_length(bytes, at, used);
    }
    new.write(geometry, &mut bytes[at + used..], length - used);
}

/// The record with a name, and the one before it.
pub(crate) fn find(bytes: &[u8], end: usize, name: &[u8]) -> Result<Option<(Record, Option<Record>)>> {
    let Some(last) = name.last() else { return Ok(None) };
    let mut before = None;
    let mut at = 0;
    while at < end {
        let here = record(bytes, at, end)?;
        let begin = at + ENTRY_HEAD_BYTES;
        // Names of one directory are alike at their beginnings.
        if here.inode != 0
            && here.name_length == name.len()
            && bytes[begin + name.len() - 1] == *last
            && bytes[begin..begin + name.len()] == *name
        {
            return Ok(Some((here, before)));
        }
        at += here.length;
        before = Some(here);
    }
    Ok(None)
}

/// Takes an entry out: the one before it becomes longer.
fn remove(bytes: &mut [u8], here: Record, before: Option<Record>) {
    bytes[here.at..here.at + 4].fill(0);
    match before {
        Some(before) => set_length(bytes, before.at, before.length + here.length),
        None => bytes[here.at + 6..here.at + 8].fill(0),
    }
}

/// Changes a part of a sealed block of entries, and its checksum.
fn change_part(geometry: &Geometry, bytes: &mut [u8], part: Range<usize>, change: impl FnOnce(&mut [u8])) {
    if !geometry.metadata_checksum() {
        return change(bytes);
    }
    let end = entries_end(geometry);
    let (behind, sum_at) = (end - part.end, end + 8);
    let before = crc32c(0, &bytes[part.clone()]);
    change(bytes);
    let after = crc32c(0, &bytes[part]);
    let mut sum = [0; 4];
    sum.copy_from_slice(&bytes[sum_at..]);
    let sum = crc32c_changed(u32::from_le_bytes(sum), before, after, behind);
    bytes[sum_at..].copy_from_slice(&sum.to_le_bytes());
}

/// A block with one empty entry over all of it.
pub(crate) fn make_empty(geometry: &Geometry, bytes: &mut [u8]) {
    bytes.fill(0);
    set_length(bytes, 0, entries_end(geometry));
}

/// A block with these entries, packed, the rest of it the last one's. They fit.
pub(crate) fn pack(geometry: &Geometry, bytes: &mut [u8], entries: &[NewEntry<'_>]) {
    make_empty(geometry, bytes);
    let end = entries_end(geometry);
    let mut at = 0;
    for (index, entry) in entries.iter().enumerate() {
        let length = if index + 1 == entries.len() { end - at } else { entry_bytes(entry.name.len()) };
        entry.write(geometry, &mut bytes[at..], length);
        at += length;
    }
}

/// A block with these entries packed at its end, and what is free before them. They fit.
pub(crate) fn pack_at_end(geometry: &Geometry, bytes: &mut [u8], entries: &[NewEntry<'_>]) {
    make_empty(geometry, bytes);
    let taken: usize = entries.iter().map(|entry| entry_bytes(entry.name.len())).sum();
    let free = entries_end(geometry) - taken;
    if free < ENTRY_HEAD_BYTES {
        return pack(geometry, bytes, entries);
    }
    set_length(bytes, 0, free);
    let mut at = free;
    for entry in entries {
        let length = entry_bytes(entry.name.len());
        entry.write(geometry, &mut bytes[at..], length);
        at += length;
    }
}

/// Sets the checksum of a block of entries.
pub(crate) fn seal(geometry: &Geometry, directory: &Inode, bytes: &mut [u8]) {
    if !geometry.metadata_checksum() {
        return;
    }
    let at = bytes.len() - DIRECTORY_TAIL_BYTES;
    let sum = crc32c(directory.seed, &bytes[..at]);
    let tail = &mut bytes[at..];
    tail[..8].copy_from_slice(&[0, 0, 0, 0, DIRECTORY_TAIL_BYTES as u8, 0, 0, DIRECTORY_TAIL_KIND]);
    tail[8..].copy_from_slice(&sum.to_le_bytes());
}

/// Sets the checksum of a node of the index whose entries begin at `entries_at`.
///
/// # Errors
/// A damaged node: its checksum lies behind its end.
pub(crate) fn seal_node(
    geometry: &Geometry,
    directory: &Inode,
    bytes: &mut [u8],
    entries_at: usize,
) -> Result<()> {
    if !geometry.metadata_checksum() {
        return Ok(());
    }
    let field = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (limit, count) = (field(entries_at), field(entries_at + 2));
    let (tail, used) = (entries_at + limit * 8, entries_at + count * 8);
    if tail + 8 > bytes.len() || used > tail {
        return Err(Error::Corrupted("a directory's index", directory.number.into()));
    }
    let sum = crc32c(crc32c(crc32c(directory.seed, &bytes[..used]), &bytes[tail..tail + 4]), &[0; 4]);
    bytes[tail + 4..tail + 8].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

impl Handle<'_> {
    /// Adds a name to a block of entries, where there is room for it.
    pub(crate) fn add_entry(&mut self, place: u64, room: &Room, new: NewEntry<'_>) -> Result<()> {
        let geometry = &self.system().geometry;
        let changed = room.at..room.at + room.used + ENTRY_HEAD_BYTES + new.name.len();
        let bytes = self.edit_ranges(place, &[changed.clone(), tail(geometry)])?;
        change_part(geometry, bytes, changed, |bytes| insert(geometry, bytes, room, new));
        Ok(())
    }

    /// Takes a name out of a block of entries, in which [`find`] has just found it.
    pub(crate) fn remove_entry(&mut self, place: u64, here: Record, before: Option<Record>) -> Result<()> {
        let geometry = &self.system().geometry;
        // It was looked for up to the end of the block, where only a damaged one has entries.
        if here.at + here.length > entries_end(geometry) {
            return Err(Error::Corrupted("a directory's entry", here.at as u64));
        }
        let from = before.map_or(here.at, |before| before.at);
        let changed = from..here.at + ENTRY_HEAD_BYTES;
        let bytes = self.edit_ranges(place, &[changed.clone(), tail(geometry)])?;
        debug_assert!(record(bytes, here.at, entries_end(geometry)) == Ok(here), "nothing was changed since");
        change_part(geometry, bytes, changed, |bytes| remove(bytes, here, before));
        Ok(())
    }

    /// Has a name in a block of entries mean another file. False: it is not there.
    pub(crate) fn point_entry(&mut self, place: u64, new: NewEntry<'_>) -> Result<bool> {
        let geometry = &self.system().geometry;
        let found = find(&self.block(place, |_| Ok(()))?, entries_end(geometry), new.name)?;
        let Some((here, _)) = found else { return Ok(false) };
        let changed = here.at..here.at + ENTRY_HEAD_BYTES + new.name.len();
        let bytes = self.edit_ranges(place, &[changed.clone(), tail(geometry)])?;
        change_part(geometry, bytes, changed, |bytes| {
            new.write(geometry, &mut bytes[here.at..], here.length);
        });
        Ok(true)
    }

    /// The same in the first block of an indexed directory, whose checksum is `seal`'s to set: there `..` goes on over the index.
    pub(crate) fn point_in_root(
        &mut self,
        place: u64,
        new: NewEntry<'_>,
        seal: impl FnOnce(&Geometry, &mut [u8]) -> Result<()>,
    ) -> Result<bool> {
        let geometry = &self.system().geometry;
        let bytes = self.edit(place)?;
        let Some((here, _)) = find(bytes, bytes.len(), new.name)? else { return Ok(false) };
        new.write(geometry, &mut bytes[here.at..], here.length);
        seal(geometry, bytes)?;
        Ok(true)
    }

    /// Adds a block to a directory, which the caller stores. Returns the block's number in the directory and its place.
    pub(crate) fn append_block(&mut self, directory: &mut Inode, bytes: Vec<u8>) -> Result<(u64, u64)> {
        let unit = self.geometry().block_bytes as u64;
        let logical = directory.size / unit;
        if (directory.size + unit) >> 31 != 0 {
            return Err(Error::NoSpace);
        }
        let goal = crate::map_change::goal_for(self, directory, logical)?;
        let place = self.allocate(goal, 1)?;
        crate::map_change::enter(self, directory, logical, place.start, 1, false)?;
        directory.size += unit;
        self.put(place.start, bytes)?;
        Ok((logical, place.start))
    }
}
