//! The hash tree of a directory, changed: made, filled, its leaves and nodes split.
//!
//! A leaf without room is split in two at the middle of its hashes; names with one hash stay together if they can, else the key of the right
//! half gets its lowest bit set. A node without room is split likewise, the root goes down a level. Each step leaves a sound
//! tree in the handle, so that an insertion simply begins again after a step.

use alloc::vec::Vec;

use memory::fallible;

use crate::blocks::Blocks;
use crate::cache::BlockBytes;
use crate::directory::{self, IndexHead, block_at, index_entries, key};
use crate::directory_block::{self as leaf, NewEntry};
use crate::geometry::Geometry;
use crate::handle::Handle;
use crate::inode::{Inode, Kind};
use crate::layout::{FLAG_INDEX, HASH_NODE_AT, HASH_ROOT_AT};
use crate::{Error, Result};

/// Where the root's entries begin, and its number of levels is.
const ROOT_ENTRIES_AT: usize = HASH_ROOT_AT + 8;
const LEVELS_AT: usize = HASH_ROOT_AT + 6;
/// Splits on the way to one insertion: one a level and one of a leaf.
const STEPS_MAX: usize = 8;

/// Entries that a node has room for.
fn limit_of(geometry: &Geometry, entries_at: usize) -> usize {
    let tail = if geometry.metadata_checksum() { 8 } else { 0 };
    (geometry.block_bytes - entries_at - tail) / 8
}

fn damaged(directory: &Inode) -> Error {
    Error::Corrupted("a directory's index", directory.number.into())
}

/// A node on the way to a leaf.
struct Step {
    place: u64,
    bytes: BlockBytes,
    entries_at: usize,
    /// Which entry was taken.
    at: usize,
}

impl Step {
    fn entries<'a>(&'a self, directory: &Inode) -> Result<&'a [[u8; 8]]> {
        index_entries(&self.bytes, self.entries_at).ok_or_else(|| damaged(directory))
    }

    fn is_full(&self, geometry: &Geometry, directory: &Inode) -> Result<bool> {
        Ok(self.entries(directory)?.len() >= limit_of(geometry, self.entries_at))
    }
}

/// Writes a node's entries. The first one's place for a hash has limit and count.
fn store_node(
    handle: &mut Handle<'_>,
    directory: &Inode,
    place: u64,
    mut bytes: Vec<u8>,
    entries_at: usize,
    entries: &[[u8; 8]],
) -> Result<()> {
    let geometry = &handle.system().geometry;
    let limit = limit_of(geometry, entries_at);
    if entries.is_empty() || entries.len() > limit {
        return Err(damaged(directory));
    }
    let end = entries_at + limit * 8;
    bytes[entries_at..end].fill(0);
    bytes[entries_at..entries_at + entries.len() * 8].copy_from_slice(entries.as_flattened());
    bytes[entries_at..entries_at + 2].copy_from_slice(&(limit as u16).to_le_bytes());
    bytes[entries_at + 2..entries_at + 4].copy_from_slice(&(entries.len() as u16).to_le_bytes());
    leaf::seal_node(geometry, directory, &mut bytes, entries_at)?;
    handle.put(place, bytes)
}

fn index_entry(hash: u32, logical: u64) -> [u8; 8] {
    let mut entry = [0; 8];
    entry[..4].copy_from_slice(&hash.to_le_bytes());
    entry[4..].copy_from_slice(&(logical as u32).to_le_bytes());
    entry
}

/// A new node's bytes: an entry over all of it for those who don't know the index.
fn new_node(handle: &Handle<'_>) -> Result<Vec<u8>> {
    let mut bytes = handle.empty_block()?;
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    bytes[4..6].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// The nodes on the way to the leaf for a hash, and the leaf's number in the directory.
fn descend(handle: &Handle<'_>, directory: &Inode, name: &[u8]) -> Result<(Vec<Step>, IndexHead, u64)> {
    let (mut place, mut bytes) = block_at(handle, directory, 0)?;
    let head = IndexHead::parse(handle, directory, &bytes)?;
    let hash = head.hash(name);
    let mut steps = fallible::try_vec(usize::from(head.levels) + 1)?;
    let mut entries_at = ROOT_ENTRIES_AT;
    loop {
        let mut step = Step { place, bytes, entries_at, at: 0 };
        let entries = step.entries(directory)?;
        let at = entries[1..].partition_point(|entry| key(entry).0 <= hash);
        let child = key(&entries[at]).1;
        step.at = at;
        steps.push(step);
        let blocks = directory.size / handle.geometry().block_bytes as u64;
        if child == 0 || child >= blocks {
            return Err(damaged(directory));
        }
        if steps.len() > usize::from(head.levels) {
            return Ok((steps, head, child));
        }
        (place, bytes) = block_at(handle, directory, child)?;
        entries_at = HASH_NODE_AT;
    }
}

/// Makes an index for a directory of one block without room.
pub(crate) fn make(handle: &mut Handle<'_>, directory: &mut Inode) -> Result<()> {
    let system = handle.system();
    let geometry = &system.geometry;
    let (place, shared) = block_at(handle, directory, 0)?;
    let mut parent = None;
    let mut entries = Vec::new();
    for entry in directory::entries(handle, directory, &shared, 0) {
        let (_, entry) = entry?;
        match entry.name {
            b"." => {}
            b".." => parent = Some(entry.inode),
            name => {
                let kind = entry.kind.unwrap_or(Kind::Regular);
                fallible::try_push(&mut entries, NewEntry { name, inode: entry.inode, kind })?;
            }
        }
    }
    let parent = parent.ok_or_else(|| damaged(directory))?;
    let mut bytes = handle.empty_block()?;
    leaf::pack(geometry, &mut bytes, &entries);
    leaf::seal(geometry, directory, &mut bytes);
    let (logical, _) = handle.append_block(directory, bytes)?;
    let mut root = handle.empty_block()?;
    let dot = |name, inode| NewEntry { name, inode, kind: Kind::Directory };
    leaf::pack(geometry, &mut root, &[dot(b".", directory.number), dot(b"..", parent)]);
    // `..` goes on to the end of the block, over the index.
    let whole = (geometry.block_bytes - 12) as u16;
    root[12 + 4..12 + 6].copy_from_slice(&whole.to_le_bytes());
    root[HASH_ROOT_AT..ROOT_ENTRIES_AT].fill(0);
    root[HASH_ROOT_AT + 4] = geometry.raw.default_hash.min(2);
    root[HASH_ROOT_AT + 5] = 8;
    directory.flags |= FLAG_INDEX;
    store_node(handle, directory, place, root, ROOT_ENTRIES_AT, &[index_entry(0, logical)])
}

/// Adds a name to an indexed directory.
pub(crate) fn insert(handle: &mut Handle<'_>, directory: &mut Inode, new: NewEntry<'_>) -> Result<()> {
    let system = handle.system();
    for _ in 0..STEPS_MAX {
        let (steps, head, logical) = descend(handle, directory, new.name)?;
        let (place, shared) = block_at(handle, directory, logical)?;
        if let Some(room) = leaf::room_for(&system.geometry, &shared, new.name.len())? {
            drop(shared);
            return handle.add_entry(place, &room, new);
        }
        let last = steps.last().ok_or_else(|| damaged(directory))?;
        if last.is_full(&system.geometry, directory)? {
            make_room(handle, directory, &steps, &head)?;
        } else {
            split_leaf(handle, directory, &steps, &head, place, &shared)?;
        }
    }
    Err(Error::NoSpace)
}

/// Splits the highest of the full nodes at the end of the way.
fn make_room(handle: &mut Handle<'_>, directory: &mut Inode, steps: &[Step], head: &IndexHead) -> Result<()> {
    let system = handle.system();
    let mut full = steps.len();
    while full > 0 && steps[full - 1].is_full(&system.geometry, directory)? {
        full -= 1;
    }
    let step = &steps[full.min(steps.len() - 1)];
    let entries = step.entries(directory)?;
    if full == 0 {
        if head.levels >= head.levels_max {
            return Err(Error::NoSpace);
        }
        // The root's entries go into a node of their own.
        let (logical, place) = handle.append_block(directory, new_node(handle)?)?;
        store_node(handle, directory, place, new_node(handle)?, HASH_NODE_AT, entries)?;
        let mut root = fallible::try_copy(&step.bytes)?;
        root[LEVELS_AT] += 1;
        return store_node(handle, directory, step.place, root, ROOT_ENTRIES_AT, &[index_entry(0, logical)]);
    }
    let (left, right) = entries.split_at(entries.len() / 2);
    let (logical, place) = handle.append_block(directory, new_node(handle)?)?;
    store_node(handle, directory, place, new_node(handle)?, HASH_NODE_AT, right)?;
    store_node(handle, directory, step.place, new_node(handle)?, HASH_NODE_AT, left)?;
    add_key(handle, directory, &steps[full - 1], key(&right[0]).0, logical)
}

/// Adds a key behind the entry that was taken, where there is room.
fn add_key(handle: &mut Handle<'_>, directory: &Inode, step: &Step, hash: u32, logical: u64) -> Result<()> {
    let old = step.entries(directory)?;
    let mut entries = fallible::try_vec(old.len() + 1)?;
    entries.extend_from_slice(&old[..=step.at]);
    entries.push(index_entry(hash, logical));
    entries.extend_from_slice(&old[step.at + 1..]);
    store_node(handle, directory, step.place, fallible::try_copy(&step.bytes)?, step.entries_at, &entries)
}

/// Splits a leaf without room. What stays in it keeps its order and moves towards the leaf's end, what leaves it goes behind all others: a listing
/// that stands anywhere comes to whatever it had not come to yet. What it had may come again.
fn split_leaf(
    handle: &mut Handle<'_>,
    directory: &mut Inode,
    steps: &[Step],
    head: &IndexHead,
    place: u64,
    shared: &BlockBytes,
) -> Result<()> {
    let system = handle.system();
    let geometry = &system.geometry;
    // By hash, and where they are.
    let mut sorted: Vec<((u32, usize), NewEntry<'_>)> = Vec::new();
    for entry in directory::entries(handle, directory, shared, 0) {
        let (behind, entry) = entry?;
        let kind = entry.kind.unwrap_or(Kind::Regular);
        let entry = NewEntry { name: entry.name, inode: entry.inode, kind };
        fallible::try_push(&mut sorted, ((head.hash(entry.name), behind), entry))?;
    }
    sorting::sort_by_key(&mut sorted, |(key, _)| *key);
    let total: usize = sorted.iter().map(|(_, entry)| leaf::entry_bytes(entry.name.len())).sum();
    let mut left = 0;
    let middle = sorted.iter().position(|(_, entry)| {
        left += leaf::entry_bytes(entry.name.len());
        left * 2 > total
    });
    let middle = middle.unwrap_or(0).max(1);
    if middle >= sorted.len() {
        return Err(Error::NoSpace);
    }
    let hash = sorted[middle].0.0;
    let continued = u32::from(sorted[middle - 1].0.0 == hash);
    sorting::sort_by_key(&mut sorted[..middle], |((_, behind), _)| *behind);
    let mut all = fallible::try_vec(sorted.len())?;
    all.extend(sorted.iter().map(|(_, entry)| *entry));
    let mut bytes = handle.empty_block()?;
    leaf::pack(geometry, &mut bytes, &all[middle..]);
    leaf::seal(geometry, directory, &mut bytes);
    let (logical, _) = handle.append_block(directory, bytes)?;
    let mut bytes = handle.empty_block()?;
    leaf::pack_at_end(geometry, &mut bytes, &all[..middle]);
    leaf::seal(geometry, directory, &mut bytes);
    handle.put(place, bytes)?;
    let last = steps.last().ok_or_else(|| damaged(directory))?;
    add_key(handle, directory, last, hash | continued, logical)
}
