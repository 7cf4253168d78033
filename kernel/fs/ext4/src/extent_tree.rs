//! Changing extent trees.
//!
//! A change goes down to a leaf, takes its entries out as a list, edits the list, and puts it back: [`ExtentPath::replace`] splits a node whose list has
//! become too long, deepens the tree when the root is full, removes nodes that have become empty, and keeps each index's key equal to
//! its child's first. A file that grows at its end leaves full nodes behind.

use alloc::vec::Vec;

use zerocopy::{FromBytes, IntoBytes};

use block::checksum::crc32c;
use memory::fallible;

use crate::blocks::Blocks;
use crate::geometry::Geometry;
use crate::handle::Handle;
use crate::inode::{Inode, Kind};
use crate::layout::{
    EXTENT_DEPTH_MAX, EXTENT_ENTRY_BYTES, EXTENT_LENGTH_MAX, EXTENT_MAGIC, RawExtent, RawExtentHeader,
    RawExtentIndex,
};
use crate::map::Node;
use crate::{Error, Result};

type Entry = [u8; EXTENT_ENTRY_BYTES];
const HEADER_BYTES: usize = size_of::<RawExtentHeader>();

/// An extent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) logical: u32,
    pub(crate) count: u32,
    pub(crate) start: u64,
    pub(crate) unwritten: bool,
}

impl Extent {
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.count)
    }

    fn longest(&self) -> u32 {
        u32::from(EXTENT_LENGTH_MAX) - u32::from(self.unwritten)
    }

    fn decode(entry: &Entry) -> Result<Self> {
        let raw = RawExtent::read_from_bytes(entry).map_err(|_| Error::Corrupted("an extent", 0))?;
        let length = raw.length.get();
        let unwritten = length > EXTENT_LENGTH_MAX;
        let extent = Self {
            logical: raw.logical.get(),
            count: u32::from(if unwritten { length - EXTENT_LENGTH_MAX } else { length }),
            start: u64::from(raw.start_high.get()) << 32 | u64::from(raw.start_low.get()),
            unwritten,
        };
        if extent.count == 0 || extent.end() > 1 << 32 {
            return Err(Error::Corrupted("an extent", extent.logical.into()));
        }
        Ok(extent)
    }

    fn encode(&self) -> Entry {
        debug_assert!((1..=self.longest()).contains(&self.count), "an extent has a limited length");
        let more = if self.unwritten { EXTENT_LENGTH_MAX } else { 0 };
        let raw = RawExtent {
            logical: self.logical.into(),
            length: (self.count as u16 + more).into(),
            start_high: ((self.start >> 32) as u16).into(),
            start_low: (self.start as u32).into(),
        };
        let mut entry = [0; EXTENT_ENTRY_BYTES];
        entry.copy_from_slice(raw.as_bytes());
        entry
    }

    /// The part from `from` up to `to`, both counted as the file's blocks.
    fn part(&self, from: u64, to: u64) -> Option<Self> {
        let (from, to) = (from.max(self.logical.into()), to.min(self.end()));
        let inside = from.checked_sub(self.logical.into())?;
        (from < to).then(|| Self {
            logical: from as u32,
            count: (to - from) as u32,
            start: self.start + inside,
            ..*self
        })
    }

    /// Appends to a list, as one with the last if they are neighbours in both senses.
    fn push_merged(self, list: &mut Vec<Self>) -> Result<()> {
        if let Some(last) = list.last_mut()
            && last.end() == u64::from(self.logical)
            && last.start + u64::from(last.count) == self.start
            && last.unwritten == self.unwritten
            && last.count + self.count <= self.longest()
        {
            last.count += self.count;
            return Ok(());
        }
        Ok(fallible::try_push(list, self)?)
    }
}

fn index_entry(key: u32, child: u64) -> Entry {
    let raw = RawExtentIndex {
        logical: key.into(),
        child_low: (child as u32).into(),
        child_high: ((child >> 32) as u16).into(),
        unused: 0.into(),
    };
    let mut entry = [0; EXTENT_ENTRY_BYTES];
    entry.copy_from_slice(raw.as_bytes());
    entry
}

fn child_of(entry: &Entry) -> Result<u64> {
    let raw = RawExtentIndex::read_from_bytes(entry).map_err(|_| Error::Corrupted("an extent tree", 0))?;
    Ok(u64::from(raw.child_high.get()) << 32 | u64::from(raw.child_low.get()))
}

struct Level {
    /// `None`: the root, in the inode.
    block: Option<u64>,
    entries: Vec<Entry>,
    /// Which child was taken.
    at: usize,
    depth: u16,
    max: usize,
}

/// The way from the root to a leaf.
pub(crate) struct ExtentPath {
    levels: Vec<Level>,
}

impl ExtentPath {
    /// Goes to the leaf that has a block of the file, or should have it.
    fn find(handle: &Handle<'_>, inode: &Inode, logical: u32) -> Result<Self> {
        let mut levels = fallible::try_vec(usize::from(EXTENT_DEPTH_MAX) + 2)?;
        let mut node = Node::parse(inode, &inode.map, None)?;
        let mut block = None;
        let mut bytes;
        loop {
            let mut entries = fallible::try_vec(node.entries.len() + 2)?;
            entries.extend_from_slice(node.entries);
            let at = entries.partition_point(|entry| Node::key(entry) <= logical).saturating_sub(1);
            let depth = node.depth;
            let child = if depth == 0 { None } else { entries.get(at).map(child_of).transpose()? };
            levels.push(Level { block, entries, at, depth, max: node.max });
            let Some(child) = child else { break };
            if !handle.system().is_data(child, 1) {
                return Err(Error::Corrupted("an extent tree's child", inode.number.into()));
            }
            bytes = handle.block(child, |bytes| Node::verify(handle, inode, bytes))?;
            node = Node::parse(inode, &bytes, Some(depth))?;
            block = Some(child);
        }
        if levels.last().is_none_or(|leaf: &Level| leaf.depth != 0) {
            return Err(Error::Corrupted("an extent tree without leaves", inode.number.into()));
        }
        Ok(Self { levels })
    }

    fn leaf(&self) -> usize {
        self.levels.len() - 1
    }

    fn extents(&self) -> Result<Vec<Extent>> {
        let entries = &self.levels[self.leaf()].entries;
        let mut extents = fallible::try_vec(entries.len() + 2)?;
        for entry in entries {
            let extent = Extent::decode(entry)?;
            if extents.last().is_some_and(|last: &Extent| last.end() > extent.logical.into()) {
                return Err(Error::Corrupted("extents in the wrong order", extent.logical.into()));
            }
            extents.push(extent);
        }
        Ok(extents)
    }

    /// Takes one of the leaf's extents out of the tree, as far as it is from a block on.
    fn take(
        mut self,
        handle: &mut Handle<'_>,
        inode: &mut Inode,
        extents: &[Extent],
        index: usize,
        from: u64,
    ) -> Result<Extent> {
        let extent = extents[index];
        let taken = extent.part(from, 1 << 32).ok_or(Error::Corrupted("an extent", inode.number.into()))?;
        let mut list = fallible::try_vec(extents.len())?;
        list.extend_from_slice(&extents[..index]);
        list.extend(extent.part(0, from));
        list.extend_from_slice(&extents[index + 1..]);
        self.set_extents(handle, inode, &list, index)?;
        Ok(taken)
    }

    /// The first block of the file that is not in this leaf.
    fn bound(&self) -> u64 {
        let above = &self.levels[..self.leaf()];
        let next = above.iter().rev().find_map(|level| level.entries.get(level.at + 1));
        next.map_or(1 << 32, |entry| u64::from(Node::key(entry)))
    }

    fn set_extents(
        &mut self,
        handle: &mut Handle<'_>,
        inode: &mut Inode,
        extents: &[Extent],
        at: usize,
    ) -> Result<()> {
        let mut entries = fallible::try_vec(extents.len() + 1)?;
        entries.extend(extents.iter().map(Extent::encode));
        self.replace(handle, inode, self.leaf(), entries, at)
    }

    /// Gives a node other entries; `at` is the last one that changed. The inode is stored by the caller.
    fn replace(
        &mut self,
        handle: &mut Handle<'_>,
        inode: &mut Inode,
        level: usize,
        mut entries: Vec<Entry>,
        at: usize,
    ) -> Result<()> {
        if level > 0 && entries.is_empty() {
            if let Some(block) = self.levels[level].block {
                handle.free_metadata(block)?;
                inode.add_blocks(handle.geometry(), -1);
            }
            let parent = &mut self.levels[level - 1];
            let (mut above, at) = (core::mem::take(&mut parent.entries), parent.at);
            above.remove(at);
            return self.replace(handle, inode, level - 1, above, at);
        }
        let max = self.levels[level].max;
        if entries.len() <= max {
            return self.settle(handle, inode, level, entries);
        }
        if level == 0 {
            self.deepen(handle, inode)?;
            return self.replace(handle, inode, 1, entries, at);
        }
        let last = entries.len() - 1;
        let middle = if at + 1 >= last { max.min(last) } else { entries.len() / 2 };
        let mut right = fallible::try_vec(entries.len() - middle)?;
        right.extend(entries.drain(middle..));
        let goal = self.levels[level].block.unwrap_or(0);
        let place = handle.allocate(goal, 1)?;
        inode.add_blocks(handle.geometry(), 1);
        let key = Node::key(&right[0]);
        let sibling =
            Level { block: Some(place.start), entries: right, at: 0, depth: self.levels[level].depth, max };
        sibling.store(handle, inode)?;
        let left_key = Node::key(&entries[0]);
        self.levels[level].entries = entries;
        self.levels[level].store(handle, inode)?;
        let parent = &mut self.levels[level - 1];
        let (mut above, at) = (core::mem::take(&mut parent.entries), parent.at);
        set_key(&mut above[at], left_key);
        fallible::try_reserve(&mut above, 1)?;
        above.insert(at + 1, index_entry(key, place.start));
        self.replace(handle, inode, level - 1, above, at + 1)
    }

    /// Stores entries that fit, and tells the parents if the first key changed.
    fn settle(
        &mut self,
        handle: &mut Handle<'_>,
        inode: &mut Inode,
        level: usize,
        entries: Vec<Entry>,
    ) -> Result<()> {
        let key = entries.first().map(Node::key);
        let node = &mut self.levels[level];
        node.entries = entries;
        if node.entries.is_empty() {
            // Only the root gets here: an empty tree has no levels.
            node.depth = 0;
        }
        node.store(handle, inode)?;
        let Some((parent, key)) = level.checked_sub(1).zip(key) else { return Ok(()) };
        let parent_at = self.levels[parent].at;
        let above = &mut self.levels[parent].entries;
        if above.get(parent_at).is_none_or(|entry| Node::key(entry) == key) {
            return Ok(());
        }
        set_key(&mut above[parent_at], key);
        let above = core::mem::take(above);
        self.settle(handle, inode, parent, above)
    }

    /// Puts a level between the root and what is below it. The new node's contents follow.
    fn deepen(&mut self, handle: &mut Handle<'_>, inode: &mut Inode) -> Result<()> {
        let root = &self.levels[0];
        if root.depth >= EXTENT_DEPTH_MAX {
            return Err(Error::TooLarge);
        }
        let goal = handle.goal_of_inode(inode.number);
        let place = handle.allocate(goal, 1)?;
        inode.add_blocks(handle.geometry(), 1);
        let key = root.entries.first().map_or(0, Node::key);
        let max = (handle.geometry().block_bytes - HEADER_BYTES) / EXTENT_ENTRY_BYTES;
        let mut entries = fallible::try_vec(2)?;
        entries.push(index_entry(key, place.start));
        let new_root = Level { block: None, entries, at: 0, depth: root.depth + 1, max: root.max };
        fallible::try_reserve(&mut self.levels, 1)?;
        self.levels[0].block = Some(place.start);
        self.levels[0].max = max;
        new_root.store(handle, inode)?;
        self.levels.insert(0, new_root);
        Ok(())
    }
}

fn set_key(entry: &mut Entry, key: u32) {
    entry[..4].copy_from_slice(&key.to_le_bytes());
}

impl Level {
    fn store(&self, handle: &mut Handle<'_>, inode: &mut Inode) -> Result<()> {
        let header = RawExtentHeader {
            magic: EXTENT_MAGIC.into(),
            entries: (self.entries.len() as u16).into(),
            max: (self.max as u16).into(),
            depth: self.depth.into(),
            generation: 0.into(),
        };
        let fill = |bytes: &mut [u8]| {
            bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
            let all = bytes[HEADER_BYTES..].as_chunks_mut::<EXTENT_ENTRY_BYTES>().0;
            let (used, rest) = all.split_at_mut(self.entries.len());
            used.copy_from_slice(&self.entries);
            rest.fill([0; EXTENT_ENTRY_BYTES]);
        };
        let Some(block) = self.block else {
            fill(&mut inode.map);
            return Ok(());
        };
        let mut bytes = handle.empty_block()?;
        fill(&mut bytes);
        if handle.geometry().metadata_checksum() {
            let end = EXTENT_ENTRY_BYTES * (self.max + 1);
            let sum = crc32c(inode.seed, &bytes[..end]);
            let tail = bytes.get_mut(end..end + 4);
            let tail = tail.ok_or(Error::Corrupted("an extent block", inode.number.into()))?;
            tail.copy_from_slice(&sum.to_le_bytes());
        }
        handle.put(block, bytes)
    }
}

/// Enters an extent where the file has a hole.
pub(crate) fn insert(handle: &mut Handle<'_>, inode: &mut Inode, new: Extent) -> Result<()> {
    let mut path = ExtentPath::find(handle, inode, new.logical)?;
    let old = path.extents()?;
    let at = old.partition_point(|extent| extent.logical < new.logical);
    let overlaps = at.checked_sub(1).is_some_and(|before| old[before].end() > new.logical.into())
        || old.get(at).is_some_and(|next| u64::from(next.logical) < new.end());
    if overlaps || new.end() > path.bound() {
        return Err(Error::Corrupted("extents overlap", inode.number.into()));
    }
    let mut list = fallible::try_vec(old.len() + 1)?;
    list.extend_from_slice(&old[..at]);
    new.push_merged(&mut list)?;
    let changed = list.len() - 1;
    for (index, extent) in old[at..].iter().enumerate() {
        if index == 0 { extent.push_merged(&mut list)? } else { fallible::try_push(&mut list, *extent)? }
    }
    path.set_extents(handle, inode, &list, changed)
}

/// Takes the first extent that reaches behind a block out of the tree, as far as it does. Its blocks stay the file's.
pub(crate) fn take_first(handle: &mut Handle<'_>, inode: &mut Inode, from: u64) -> Result<Option<Extent>> {
    let mut at = from;
    while let Ok(logical) = u32::try_from(at) {
        let path = ExtentPath::find(handle, inode, logical)?;
        let extents = path.extents()?;
        if let Some(index) = extents.iter().position(|extent| extent.end() > from) {
            return path.take(handle, inode, &extents, index, from).map(Some);
        }
        at = path.bound();
    }
    Ok(None)
}

/// The same for the last extent that begins before `limit`, if it reaches behind `from`.
pub(crate) fn take_last(
    handle: &mut Handle<'_>,
    inode: &mut Inode,
    from: u64,
    limit: u64,
) -> Result<Option<Extent>> {
    let Some(last) = limit.checked_sub(1).and_then(|last| u32::try_from(last).ok()) else { return Ok(None) };
    let path = ExtentPath::find(handle, inode, last)?;
    let extents = path.extents()?;
    let behind = extents.partition_point(|extent| u64::from(extent.logical) < limit);
    match behind.checked_sub(1) {
        Some(index) if extents[index].end() > from => {
            path.take(handle, inode, &extents, index, from).map(Some)
        }
        _ => Ok(None),
    }
}

/// Blocks of an unwritten extent have been written.
pub(crate) fn mark_written(handle: &mut Handle<'_>, inode: &mut Inode, from: u32, count: u32) -> Result<()> {
    let mut path = ExtentPath::find(handle, inode, from)?;
    let end = u64::from(from) + u64::from(count);
    let mut list = Vec::new();
    let mut changed = 0;
    for extent in path.extents()? {
        let Some(written) = extent.part(from.into(), end).filter(|_| extent.unwritten) else {
            extent.push_merged(&mut list)?;
            continue;
        };
        if let Some(before) = extent.part(0, from.into()) {
            before.push_merged(&mut list)?;
        }
        Extent { unwritten: false, ..written }.push_merged(&mut list)?;
        changed = list.len() - 1;
        if let Some(behind) = extent.part(end, 1 << 32) {
            behind.push_merged(&mut list)?;
        }
    }
    path.set_extents(handle, inode, &list, changed)
}

/// Blocks that must be left in a handle for one more extent to be removed.
const ROOM_FOR_ONE: usize = 24;

/// Groups that have blocks of one extent and give them back at once: bitmap and descriptor of each, and the way to the extent, are no more than
/// [`ROOM_FOR_ONE`]. Where groups have the usual size an extent lies in two at most.
const GROUPS_AT_ONCE: u32 = 8;

/// Blocks of metadata, of which the log tells that each is given up, that go at once.
const FORGOTTEN_AT_ONCE: u64 = 1024;

/// Where the part of an extent ends, as a block of the file, that lies in its first groups.
fn end_in_first_groups(geometry: &Geometry, extent: Extent) -> u64 {
    if !geometry.contains(extent.start, extent.count.into()) {
        // Whoever frees it refuses.
        return extent.end();
    }
    let last = geometry.group_of(extent.start).saturating_add(GROUPS_AT_ONCE - 1).min(geometry.groups - 1);
    let behind = geometry.group_start(last) + u64::from(geometry.group_blocks(last));
    extent.end().min(u64::from(extent.logical) + behind.saturating_sub(extent.start))
}

/// Frees blocks of the file from `from` up to `to`, those of one leaf at most. Returns where to go on, if there is more.
pub(crate) fn remove_some(
    handle: &mut Handle<'_>,
    inode: &mut Inode,
    from: u64,
    to: u64,
) -> Result<Option<u64>> {
    let to = to.min(1 << 32);
    let Some(first) = u32::try_from(from).ok().filter(|_| from < to) else { return Ok(None) };
    let mut path = ExtentPath::find(handle, inode, first)?;
    let mut keep = Vec::new();
    let mut go_on = None;
    let mut freed = 0;
    for extent in path.extents()? {
        let gone = extent.part(from, to).filter(|_| go_on.is_none());
        let Some(gone) = gone else {
            fallible::try_push(&mut keep, extent)?;
            continue;
        };
        if freed > 0 && !handle.has_room(ROOM_FOR_ONE) {
            go_on = Some(u64::from(gone.logical));
            fallible::try_push(&mut keep, extent)?;
            continue;
        }
        let mut end = end_in_first_groups(handle.geometry(), gone);
        if inode.kind != Kind::Regular {
            end = end.min(u64::from(gone.logical) + FORGOTTEN_AT_ONCE);
        }
        if end < gone.end() {
            go_on = Some(end);
        }
        let gone = gone.part(from, end).unwrap_or(gone);
        for kept in [extent.part(0, from), extent.part(end, 1 << 32)].into_iter().flatten() {
            fallible::try_push(&mut keep, kept)?;
        }
        handle.free_contents(inode, gone.start, gone.count.into())?;
        inode.add_blocks(handle.geometry(), -i64::from(gone.count));
        freed += gone.count;
    }
    let bound = path.bound();
    if freed > 0 {
        let at = keep.len();
        path.set_extents(handle, inode, &keep, at)?;
    }
    Ok(go_on.or((bound < to).then_some(bound)))
}
