//! Directories: entries in blocks, and the hash tree that finds a name's block.
//!
//! An indexed directory looks like a plain one to those who don't know the index: its nodes are blocks with one empty entry. So reading
//! goes through all blocks in order, and only looking a name up uses the tree; if the tree is damaged, looking up goes
//! through all blocks too, as Linux does.

use zerocopy::FromBytes;

use block::checksum::crc32c;

use crate::blocks::Blocks;
use crate::cache::BlockBytes;
use crate::directory_block::{self, Record};
use crate::geometry::incompatible;
use crate::hash::Function;
use crate::inode::{Inode, Kind};
use crate::layout::{
    DIRECTORY_TAIL_BYTES, DIRECTORY_TAIL_KIND, ENTRY_HEAD_BYTES, FLAG_INDEX, HASH_NODE_AT, HASH_ROOT_AT,
    RawEntry, RawHashEntry, RawHashRoot,
};
use crate::map::map;
use crate::{Error, Result};

/// Longest name.
pub const NAME_MAX: usize = 255;

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The name, without `/` and NUL.
    pub name: &'a [u8],
    /// The file's inode.
    pub inode: u32,
    /// What it is, where the file system says so here.
    pub kind: Option<Kind>,
}

/// Goes through the entries of a block.
struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
    /// What begins before this is left out.
    start: usize,
    directory: u32,
    kinds: bool,
    inodes: u32,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(usize, Entry<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.bytes.len() {
            match self.step() {
                Ok(None) => {}
                Ok(Some(found)) => return Some(Ok(found)),
                Err(error) => {
                    self.at = self.bytes.len();
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl<'a> Entries<'a> {
    /// The next record; `None`: it is empty.
    fn step(&mut self) -> Result<Option<(usize, Entry<'a>)>> {
        let damaged = || Error::Corrupted("a directory's entry", self.directory.into());
        let rest = self.bytes.get(self.at..).ok_or_else(damaged)?;
        let (head, body) = RawEntry::read_from_prefix(rest).map_err(|_| damaged())?;
        let length = record_bytes(head.length.get(), self.bytes.len());
        let name_length = usize::from(head.name_length);
        if length < ENTRY_HEAD_BYTES || !length.is_multiple_of(4) || length > rest.len() {
            return Err(damaged());
        }
        let begin = self.at;
        self.at += length;
        if head.inode.get() == 0 || begin < self.start {
            return Ok(None);
        }
        let name = body.get(..name_length).ok_or_else(damaged)?;
        if name_length == 0
            || ENTRY_HEAD_BYTES + name_length > length
            || head.inode.get() > self.inodes
            || name.iter().any(|byte| matches!(byte, 0 | b'/'))
        {
            return Err(damaged());
        }
        let kind = if self.kinds { Kind::of_entry(head.kind) } else { None };
        Ok(Some((self.at, Entry { name, inode: head.inode.get(), kind })))
    }
}

/// 64 KiB does not fit into the field: it is written as 65535 or 0.
#[inline]
pub(crate) fn record_bytes(field: u16, block_bytes: usize) -> usize {
    match usize::from(field) {
        0 | 0xffff if block_bytes == 1 << 16 => 1 << 16,
        length => length,
    }
}

/// A name of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The file's inode.
    pub(crate) inode: u32,
    /// Which block of the directory names it.
    pub(crate) logical: u64,
    /// Where in that block.
    pub(crate) here: Record,
    /// The record before that one, if it is not the first.
    pub(crate) before: Option<Record>,
}

/// Looks for a directory's file of that name.
pub(crate) fn locate(system: &impl Blocks, directory: &Inode, name: &[u8]) -> Result<Found> {
    if name.len() > NAME_MAX || name.is_empty() {
        return Err(Error::NotFound);
    }
    let dot = matches!(name, b"." | b"..");
    if directory.flags & FLAG_INDEX != 0 && !dot {
        match lookup_indexed(system, directory, name) {
            Err(Error::Corrupted(what, place)) => {
                log::warn!("ext4: the index of directory {} is damaged: {what} ({place})", directory.number);
            }
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(error) => return Err(error),
        }
    }
    let blocks = directory.size / system.geometry().block_bytes as u64;
    let mut logical = 0;
    while logical < blocks {
        match block(system, directory, logical)? {
            Block::Hole(count) => logical = logical.saturating_add(count),
            Block::Here(bytes) => {
                if let Some(found) = find_in_block(system, directory, logical, &bytes, name)? {
                    return Ok(found);
                }
                logical += 1;
            }
        }
    }
    Err(Error::NotFound)
}

/// Of the other entries only what leads on is looked at.
fn find_in_block(
    system: &impl Blocks,
    directory: &Inode,
    logical: u64,
    bytes: &[u8],
    name: &[u8],
) -> Result<Option<Found>> {
    let damaged = || Error::Corrupted("a directory's entry", directory.number.into());
    match directory_block::find(bytes, bytes.len(), name).map_err(|_| damaged())? {
        Some((here, _)) if here.inode > system.geometry().inodes => Err(damaged()),
        found => Ok(found.map(|(here, before)| Found { inode: here.inode, logical, here, before })),
    }
}

/// Lists a directory from `position` on: calls `each` with an entry and the position behind it until it says no.
/// Returns where to go on.
pub(crate) fn list(
    system: &impl Blocks,
    directory: &Inode,
    position: u64,
    mut each: impl FnMut(Entry<'_>, u64) -> bool,
) -> Result<u64> {
    let block_bytes = system.geometry().block_bytes as u64;
    let mut position = position;
    while position < directory.size {
        let logical = position / block_bytes;
        let start = (position % block_bytes) as usize;
        let bytes = match block(system, directory, logical)? {
            Block::Here(bytes) => bytes,
            Block::Hole(count) => {
                position = logical.saturating_add(count).saturating_mul(block_bytes).min(directory.size);
                continue;
            }
        };
        for entry in entries(system, directory, &bytes, start) {
            let (next, entry) = entry?;
            let next = logical * block_bytes + next as u64;
            if !each(entry, next) {
                return Ok(position);
            }
            position = next;
        }
        position = (logical + 1) * block_bytes;
    }
    Ok(position)
}

/// The entries that begin at `start` or behind it: one that has grown over its neighbour since was there before.
pub(crate) fn entries<'a>(
    system: &impl Blocks,
    directory: &Inode,
    bytes: &'a [u8],
    start: usize,
) -> impl Iterator<Item = Result<(usize, Entry<'a>)>> {
    Entries {
        bytes,
        at: 0,
        start,
        directory: directory.number,
        kinds: system.geometry().has_incompatible(incompatible::FILE_TYPE),
        inodes: system.geometry().inodes,
    }
}

/// A part of a directory.
enum Block {
    /// A block, checked.
    Here(BlockBytes),
    /// So many blocks that are not there. Only damaged directories have them.
    Hole(u64),
}

impl Block {
    fn here(self) -> Option<BlockBytes> {
        match self {
            Self::Here(bytes) => Some(bytes),
            Self::Hole(_) => None,
        }
    }
}

/// A block of a directory that must be there, and its place.
pub(crate) fn block_at(system: &impl Blocks, directory: &Inode, logical: u64) -> Result<(u64, BlockBytes)> {
    let damaged = || Error::Corrupted("a hole in a directory", directory.number.into());
    let place = map(system, directory, logical, 1)?.place.ok_or_else(damaged)?;
    let bytes = system.block(place, |bytes| verify(system, directory, logical, bytes))?;
    Ok((place, bytes))
}

fn block(system: &impl Blocks, directory: &Inode, logical: u64) -> Result<Block> {
    let run = map(system, directory, logical, u64::MAX)?;
    let Some(place) = run.place else { return Ok(Block::Hole(run.count)) };
    system.block(place, |bytes| verify(system, directory, logical, bytes)).map(Block::Here)
}

/// The checksum of a leaf is in a last entry that is no entry; that of an index node behind its entries.
fn verify(system: &impl Blocks, directory: &Inode, logical: u64, bytes: &[u8]) -> Result<()> {
    if !system.geometry().metadata_checksum() {
        return Ok(());
    }
    let damaged = || Error::Corrupted("a directory block's checksum", directory.number.into());
    let tail_at = bytes.len() - DIRECTORY_TAIL_BYTES;
    let tail = &bytes[tail_at..];
    if tail[..8] == [0, 0, 0, 0, DIRECTORY_TAIL_BYTES as u8, 0, 0, DIRECTORY_TAIL_KIND] {
        let fits = crc32c(directory.seed, &bytes[..tail_at]).to_le_bytes() == tail[8..];
        return if fits { Ok(()) } else { Err(damaged()) };
    }
    let entries_at = if logical == 0 { HASH_ROOT_AT + size_of::<RawHashRoot>() } else { HASH_NODE_AT };
    let field = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (limit, count) = (field(entries_at), field(entries_at + 2));
    let tail_at = entries_at + limit * 8;
    let used = entries_at + count * 8;
    if count > limit || tail_at + 8 > bytes.len() {
        return Err(damaged());
    }
    let sum = crc32c(directory.seed, &bytes[..used]);
    let sum = crc32c(crc32c(sum, &bytes[tail_at..tail_at + 4]), &[0; 4]);
    if sum.to_le_bytes() == bytes[tail_at + 4..tail_at + 8] { Ok(()) } else { Err(damaged()) }
}

/// The entries of a node of the index: `entries_at` is where they begin.
pub(crate) fn index_entries(bytes: &[u8], entries_at: usize) -> Option<&[[u8; size_of::<RawHashEntry>()]]> {
    let all = bytes.get(entries_at..)?.as_chunks::<8>().0;
    let field = |at: usize| Some(usize::from(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?])));
    let (limit, count) = (field(entries_at)?, field(entries_at + 2)?);
    (count >= 1 && count <= limit).then(|| all.get(..count)).flatten()
}

pub(crate) fn key(entry: &[u8; 8]) -> (u32, u64) {
    let hash = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
    let block = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
    (hash, u64::from(block & 0x0fff_ffff))
}

/// What the first block of an indexed directory says about the index.
pub(crate) struct IndexHead {
    pub(crate) levels: u8,
    /// Levels that there may be, the root not counted.
    pub(crate) levels_max: u8,
    function: Function,
    unsigned: bool,
    seed: [u32; 4],
}

impl IndexHead {
    pub(crate) fn parse(system: &impl Blocks, directory: &Inode, root: &[u8]) -> Result<Self> {
        let damaged = || Error::Corrupted("a directory's index", directory.number.into());
        let (info, _) = RawHashRoot::read_from_prefix(&root[HASH_ROOT_AT..]).map_err(|_| damaged())?;
        let geometry = system.geometry();
        let levels_max = if geometry.has_incompatible(incompatible::LARGE_DIRECTORIES) { 2 } else { 1 };
        let function = Function::of_version(info.version).ok_or_else(damaged)?;
        if info.reserved.get() != 0
            || usize::from(info.info_length) != size_of::<RawHashRoot>()
            || info.levels > levels_max
        {
            return Err(damaged());
        }
        Ok(Self {
            levels: info.levels,
            levels_max,
            function,
            unsigned: info.version > 2 || geometry.unsigned_hash(),
            seed: geometry.raw.hash_seed.map(|word| word.get()),
        })
    }

    pub(crate) fn hash(&self, name: &[u8]) -> u32 {
        self.function.hash(name, self.unsigned, self.seed)
    }
}

/// Finds a name's leaf by the tree. `None`: the tree cannot tell, all leaves must be looked at.
fn lookup_indexed(system: &impl Blocks, directory: &Inode, name: &[u8]) -> Result<Option<Found>> {
    let damaged = || Error::Corrupted("a directory's index", directory.number.into());
    let root = block(system, directory, 0)?.here().ok_or_else(damaged)?;
    let index = IndexHead::parse(system, directory, &root)?;
    let hash = index.hash(name);
    let (logical, next_hash) = descend(system, directory, &root, index.levels, hash)?;
    let leaf = block(system, directory, logical)?.here().ok_or_else(damaged)?;
    match find_in_block(system, directory, logical, &leaf, name)? {
        Some(found) => Ok(Some(found)),
        // An odd key says that the next leaf goes on with the same hash: names collide over the end of a leaf once in
        // millions of directories, so they are looked for in all of it.
        None if next_hash == Some(hash | 1) => Ok(None),
        None => Err(Error::NotFound),
    }
}

/// The leaf for a hash, and the hash that the leaf behind it begins with.
fn descend(
    system: &impl Blocks,
    directory: &Inode,
    root: &[u8],
    levels: u8,
    hash: u32,
) -> Result<(u64, Option<u32>)> {
    let damaged = || Error::Corrupted("a directory's index", directory.number.into());
    let mut bytes: BlockBytes;
    let mut node = root;
    let mut entries_at = HASH_ROOT_AT + size_of::<RawHashRoot>();
    let mut bound = None;
    for level in 0..=levels {
        let all = index_entries(node, entries_at).ok_or_else(damaged)?;
        // The first entry has no key: it stands for everything below the second.
        let index = all[1..].partition_point(|entry| key(entry).0 <= hash);
        bound = all.get(index + 1).map(|entry| key(entry).0).or(bound);
        let child = key(&all[index]).1;
        if child == 0 || child >= directory.size / system.geometry().block_bytes as u64 {
            return Err(damaged());
        }
        if level == levels {
            return Ok((child, bound));
        }
        bytes = block(system, directory, child)?.here().ok_or_else(damaged)?;
        node = &bytes;
        entries_at = HASH_NODE_AT;
    }
    Err(damaged())
}
