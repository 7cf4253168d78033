//! The regions of an address space in ascending order: a B-tree of two levels.
//!
//! Regions lie in chunks of up to [`CHUNK_REGIONS`] in ascending order and never overlap; the chunks lie in one array
//! with the end of each. A look-up is two binary searches over contiguous memory; a process of ordinary size has one
//! or two chunks. The worst case (the region limit, 65,530) shifts 2 KiB within a chunk and 64 KiB of chunk headers.
//!
//! Each chunk has an upper bound of the gaps that precede its regions. Insertions only shrink gaps and leave the bound
//! alone, removals raise it; a search that finds the bound too optimistic corrects it. So a search for free space skips
//! full chunks.
//!
//! Objects that count the regions that show them ([`FileMapping::counted`](super::FileMapping::counted)) are told here, where regions enter
//! and leave a tree: copies of regions outside of trees don't count.
//!
//! Operations that allocate do so before they change anything: they either happen or leave the tree as it was.
//! Nothing here locks; the address space does.

use super::flags::RegionFlags;
use super::model::Region;
use crate::{OutOfMemory, fallible};
use alloc::vec::Vec;

/// Regions of a chunk: 1.5 KiB.
const CHUNK_REGIONS: usize = 32;

/// Neighbouring chunks that have no more than this together become one.
const MERGE_REGIONS: usize = CHUNK_REGIONS / 2;

/// Bytes kept free below a region that grows down (`stack_guard_gap`: 256 pages).
pub(crate) const STACK_GUARD_BYTES: u64 = 256 << 12;

/// The ordered regions of one address space.
pub(crate) struct RegionTree {
    chunks: Vec<Chunk>,
    count: usize,
    pages: u64,
}

struct Chunk {
    /// End of the last region.
    end: u64,
    /// No gap before a region of this chunk is larger.
    gap_bound: u64,
    /// Never empty.
    regions: Vec<Region>,
}

/// Where a region is; valid until the tree changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    chunk: usize,
    index: usize,
}

impl RegionTree {
    pub(crate) const fn new() -> RegionTree {
        RegionTree { chunks: Vec::new(), count: 0, pages: 0 }
    }

    /// Number of regions.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Pages in all regions.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// The first region that ends beyond the address: the one that contains it, or else the next one.
    #[inline]
    pub(crate) fn locate(&self, address: u64) -> Option<Position> {
        let chunk = match self.chunks.as_slice() {
            [only] if address < only.end => 0,
            [] | [_] => return None,
            chunks => chunks.partition_point(|chunk| chunk.end <= address),
        };
        let index = self.chunks.get(chunk)?.regions.partition_point(|region| region.end <= address);
        Some(Position { chunk, index })
    }

    /// The region at a position that this tree gave.
    #[inline]
    pub(crate) fn at(&self, position: Position) -> &Region {
        &self.chunks[position.chunk].regions[position.index]
    }

    /// The region that contains the address.
    #[inline]
    pub(crate) fn find(&self, address: u64) -> Option<&Region> {
        let region = self.at(self.locate(address)?);
        (region.start <= address).then_some(region)
    }

    pub(crate) fn first(&self) -> Option<Position> {
        (!self.chunks.is_empty()).then_some(Position { chunk: 0, index: 0 })
    }

    fn last(&self) -> Option<Position> {
        let chunk = self.chunks.len().checked_sub(1)?;
        Some(Position { chunk, index: self.chunks[chunk].regions.len() - 1 })
    }

    pub(crate) fn next(&self, position: Position) -> Option<Position> {
        if position.index + 1 < self.chunks[position.chunk].regions.len() {
            return Some(Position { index: position.index + 1, ..position });
        }
        (position.chunk + 1 < self.chunks.len()).then_some(Position { chunk: position.chunk + 1, index: 0 })
    }

    pub(crate) fn previous(&self, position: Position) -> Option<Position> {
        if position.index > 0 {
            return Some(Position { index: position.index - 1, ..position });
        }
        let chunk = position.chunk.checked_sub(1)?;
        Some(Position { chunk, index: self.chunks[chunk].regions.len() - 1 })
    }

    /// The last region that ends at or before the address.
    pub(crate) fn before(&self, address: u64) -> Option<Position> {
        match self.locate(address) {
            Some(position) => self.previous(position),
            None => self.last(),
        }
    }

    /// The regions that overlap the range, in ascending order.
    pub(crate) fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = &Region> {
        let mut position = self.locate(start);
        core::iter::from_fn(move || {
            let region = self.at(position?);
            if region.start >= end {
                return None;
            }
            position = self.next(position?);
            Some(region)
        })
    }

    /// All regions in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Region> {
        self.chunks.iter().flat_map(|chunk| chunk.regions.iter())
    }

    /// Whether a region overlaps the range.
    pub(crate) fn is_used(&self, start: u64, end: u64) -> bool {
        self.overlapping(start, end).next().is_some()
    }

    /// Whether regions cover the range without a hole.
    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        let mut reached = start;
        for region in self.overlapping(start, end) {
            if region.start > reached {
                return false;
            }
            reached = region.end;
        }
        reached >= end
    }

    /// Adds a region into free space, as part of a neighbour where it can be.
    ///
    /// # Errors
    /// Gives the region back when there is no memory.
    pub(crate) fn insert(&mut self, region: Region) -> Result<(), Region> {
        debug_assert!(region.start < region.end && !self.is_used(region.start, region.end));
        let pages = region.pages();
        let next = self.locate(region.start);
        let previous = match next {
            Some(next) => self.previous(next),
            None => self.last(),
        };
        if let Some(previous) = previous.filter(|&previous| self.at(previous).merges_with(&region)) {
            self.extend_to(previous, region.end);
            self.merge_with_next(previous);
        } else if let Some(next) = next.filter(|&next| region.merges_with(self.at(next))) {
            self.chunks[next.chunk].regions[next.index].set_start(region.start);
        } else {
            self.insert_before(next, region)?;
        }
        self.pages += pages;
        Ok(())
    }

    /// Cuts the region that contains the address in its inside, so that one starts there.
    pub(crate) fn split_at(&mut self, address: u64) -> Result<(), OutOfMemory> {
        let Some(position) = self.locate(address) else { return Ok(()) };
        if self.at(position).start >= address {
            return Ok(());
        }
        let position = self.make_room(position)?;
        let upper = self.chunks[position.chunk].regions[position.index].split_off(address);
        upper.added();
        self.chunks[position.chunk].regions.insert(position.index + 1, upper);
        self.count += 1;
        self.update_end(position.chunk);
        Ok(())
    }

    /// Takes out the first region of those that lie entirely within the range.
    pub(crate) fn take_first(&mut self, start: u64, end: u64) -> Option<Region> {
        let position = self.locate(start)?;
        let region = self.at(position);
        (region.start >= start && region.end <= end).then(|| self.remove(position))
    }

    /// Changes the regions in the range, which must begin and end at region boundaries, and merges what can be merged.
    /// The change must not touch the addresses.
    pub(crate) fn change(&mut self, start: u64, end: u64, mut change: impl FnMut(&mut Region)) {
        let mut position = self.locate(start);
        while let Some(current) = position {
            let region = &mut self.chunks[current.chunk].regions[current.index];
            if region.start >= end {
                break;
            }
            debug_assert!(region.start >= start && region.end <= end);
            change(region);
            position = self.next(current);
        }
        self.merge_range(start, end);
    }

    /// Merges neighbours within the range and at its ends.
    pub(crate) fn merge_range(&mut self, start: u64, end: u64) {
        let mut position = self.before(start).or_else(|| self.first());
        while let Some(current) = position {
            if self.at(current).start >= end {
                break;
            }
            position = if self.merge_with_next(current) { Some(current) } else { self.next(current) };
        }
    }

    /// Moves the start of the region at `position` into free space below it.
    pub(crate) fn grow_down(&mut self, position: Position, start: u64) {
        let region = &mut self.chunks[position.chunk].regions[position.index];
        self.pages += (region.start - start) >> 12;
        region.set_start(start);
    }

    /// Moves the end of the region at `position` into free space above it.
    pub(crate) fn grow_up(&mut self, position: Position, end: u64) {
        self.pages += (end - self.at(position).end) >> 12;
        self.extend_to(position, end);
        self.merge_with_next(position);
    }

    /// A tree of the regions that `inherit` returns.
    pub(crate) fn try_clone(
        &self,
        inherit: impl Fn(&Region) -> Option<Region>,
    ) -> Result<RegionTree, OutOfMemory> {
        let mut copy = RegionTree { chunks: fallible::try_vec(self.chunks.len())?, ..RegionTree::new() };
        for chunk in &self.chunks {
            let mut regions = fallible::try_vec(chunk.regions.len())?;
            regions.extend(chunk.regions.iter().filter_map(&inherit));
            if let Some(last) = regions.last() {
                regions.iter().for_each(Region::added);
                copy.count += regions.len();
                copy.pages += regions.iter().map(Region::pages).sum::<u64>();
                copy.chunks.push(Chunk { end: last.end, gap_bound: u64::MAX, regions });
            }
        }
        Ok(copy)
    }

    /// Whether the space just below `address` is the guard of a region that grows down.
    pub(crate) fn guards(&self, address: u64) -> bool {
        self.locate(address).is_some_and(|above| usable_end(self.at(above)) < address)
    }

    /// The highest free place for `length` bytes between `low` and `high`.
    pub(crate) fn highest_gap(&mut self, low: u64, high: u64, length: u64) -> Option<u64> {
        let lowest_end = low.checked_add(length)?;
        let mut ceiling = high;
        let mut chunks = self.chunks.partition_point(|chunk| chunk.regions[0].start < high);
        while chunks > 0 {
            chunks -= 1;
            let chunk = &mut self.chunks[chunks];
            let above = ceiling.saturating_sub(chunk.end.max(low));
            if chunk.end <= ceiling && above >= length {
                return (ceiling >= lowest_end).then(|| ceiling - length);
            }
            if chunk.gap_bound >= length {
                let mut largest = 0;
                for index in (0..chunk.regions.len()).rev() {
                    let region = &chunk.regions[index];
                    if region.end <= ceiling && ceiling - region.end >= length && ceiling >= lowest_end {
                        return Some(ceiling - length).filter(|&start| start >= low);
                    }
                    if index + 1 < chunk.regions.len() {
                        largest = largest.max(chunk.regions[index + 1].start - region.end);
                    }
                    ceiling = ceiling.min(usable_end(region));
                }
                if chunks > 0 {
                    let before = self.chunks[chunks - 1].end;
                    let chunk = &mut self.chunks[chunks];
                    chunk.gap_bound = largest.max(chunk.regions[0].start - before);
                }
            } else {
                ceiling = ceiling.min(usable_end(&chunk.regions[0]));
            }
            if ceiling < lowest_end {
                return None;
            }
        }
        (ceiling >= lowest_end).then(|| ceiling - length)
    }

    /// The lowest free place for `length` bytes between `low` and `high`.
    pub(crate) fn lowest_gap(&self, low: u64, high: u64, length: u64) -> Option<u64> {
        let mut floor = low;
        let mut position = self.locate(low);
        while let Some(current) = position {
            let region = self.at(current);
            if usable_end(region) >= floor && usable_end(region) - floor >= length {
                break;
            }
            floor = floor.max(region.end);
            position = if current.index == 0 && self.chunks[current.chunk].gap_bound < length {
                floor = floor.max(self.chunks[current.chunk].end);
                (current.chunk + 1 < self.chunks.len())
                    .then_some(Position { chunk: current.chunk + 1, index: 0 })
            } else {
                self.next(current)
            };
        }
        floor.checked_add(length).filter(|&end| end <= high).map(|_| floor)
    }

    fn update_end(&mut self, chunk: usize) {
        let chunk = &mut self.chunks[chunk];
        chunk.end = chunk.regions[chunk.regions.len() - 1].end;
    }

    fn extend_to(&mut self, position: Position, end: u64) {
        self.chunks[position.chunk].regions[position.index].end = end;
        self.update_end(position.chunk);
    }

    /// Makes the region and the next one into one if they merge; the sum of pages stays.
    fn merge_with_next(&mut self, position: Position) -> bool {
        let Some(next) = self.next(position) else { return false };
        if !self.at(position).merges_with(self.at(next)) {
            return false;
        }
        let end = self.at(next).end;
        self.remove_entry(next);
        self.extend_to(position, end);
        true
    }

    fn remove(&mut self, position: Position) -> Region {
        let previous_end = self.previous(position).map_or(0, |previous| self.at(previous).end);
        let next_start = self.next(position).map(|next| self.at(next).start);
        let region = self.remove_entry(position);
        self.pages -= region.pages();
        if let Some(next_start) = next_start
            && let Some(next) = self.locate(next_start)
        {
            let bound = &mut self.chunks[next.chunk].gap_bound;
            *bound = (*bound).max(next_start - previous_end);
        }
        region
    }

    fn remove_entry(&mut self, position: Position) -> Region {
        let region = self.chunks[position.chunk].regions.remove(position.index);
        region.removed();
        self.count -= 1;
        if self.chunks[position.chunk].regions.is_empty() {
            self.chunks.remove(position.chunk);
        } else {
            self.update_end(position.chunk);
            self.join_chunks(position.chunk);
        }
        region
    }

    /// Joins a chunk with its successor when both are sparse. Not joining for want of memory does no harm.
    ///
    /// Only successors: positions before the removed region stay valid.
    fn join_chunks(&mut self, chunk: usize) {
        let Some(added) = self.chunks.get(chunk + 1).map(|next| next.regions.len()) else { return };
        let regions = &mut self.chunks[chunk].regions;
        if regions.len() + added > MERGE_REGIONS || regions.try_reserve(added).is_err() {
            return;
        }
        let mut next = self.chunks.remove(chunk + 1);
        let chunk = &mut self.chunks[chunk];
        chunk.regions.append(&mut next.regions);
        chunk.end = next.end;
        chunk.gap_bound = chunk.gap_bound.max(next.gap_bound);
    }

    /// Puts a region before `next`, or at the end.
    fn insert_before(&mut self, next: Option<Position>, region: Region) -> Result<(), Region> {
        let Some(last) = self.last() else {
            return self.insert_very_first(region);
        };
        let neighbour = next.unwrap_or(last);
        let Ok(neighbour) = self.make_room(neighbour) else { return Err(region) };
        let index = if next.is_some() { neighbour.index } else { neighbour.index + 1 };
        let gap = match index.checked_sub(1) {
            Some(before) => region.start - self.chunks[neighbour.chunk].regions[before].end,
            None => u64::MAX,
        };
        let chunk = &mut self.chunks[neighbour.chunk];
        chunk.gap_bound = chunk.gap_bound.max(gap);
        region.added();
        chunk.regions.insert(index, region);
        self.count += 1;
        self.update_end(neighbour.chunk);
        Ok(())
    }

    fn insert_very_first(&mut self, region: Region) -> Result<(), Region> {
        let mut regions = Vec::new();
        if fallible::try_reserve(&mut self.chunks, 1).is_err()
            || fallible::try_reserve(&mut regions, 1).is_err()
        {
            return Err(region);
        }
        let end = region.end;
        region.added();
        regions.push(region);
        self.chunks.push(Chunk { end, gap_bound: u64::MAX, regions });
        self.count = 1;
        Ok(())
    }

    /// Makes sure that the chunk of a region has room for one more; returns where the region is then.
    fn make_room(&mut self, position: Position) -> Result<Position, OutOfMemory> {
        let regions = &mut self.chunks[position.chunk].regions;
        if regions.len() < CHUNK_REGIONS {
            fallible::try_reserve(regions, 1)?;
            return Ok(position);
        }
        let half = CHUNK_REGIONS / 2;
        let mut upper = fallible::try_vec(half + half / 2)?;
        fallible::try_reserve(&mut self.chunks, 1)?;
        let chunk = &mut self.chunks[position.chunk];
        upper.extend(chunk.regions.drain(half..));
        let upper = Chunk { end: chunk.end, gap_bound: chunk.gap_bound, regions: upper };
        self.chunks.insert(position.chunk + 1, upper);
        self.update_end(position.chunk);
        Ok(match position.index.checked_sub(half) {
            Some(index) => Position { chunk: position.chunk + 1, index },
            None => position,
        })
    }
}

impl Drop for RegionTree {
    fn drop(&mut self) {
        self.iter().for_each(Region::removed);
    }
}

/// Up to where new mappings may reach below this region.
fn usable_end(region: &Region) -> u64 {
    if region.flags.contains(RegionFlags::GROWS_DOWN) {
        region.start.saturating_sub(STACK_GUARD_BYTES)
    } else {
        region.start
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
