//! Blocks: choosing, taking and giving back.
//!
//! # Choosing
//! From the goal on if that is free, so that a file that grows stays in one piece; else the first run in the goal's group that is long
//! enough, or the longest there is; else in the groups behind it. Blocks held back or chosen by others are not free (see
//! [`Running`](crate::running::Running)).

use memory::fallible;

use crate::bitmap::{self, find, is_set};
use crate::blocks::Blocks;
use crate::cache::BlockBytes;
use crate::group::Group;
use crate::handle::Handle;
use crate::inode::{Inode, Kind};
use crate::{Error, Result};

/// Blocks allocated at once.
pub(crate) const RUN_MAX: u32 = 2048;

/// A run of neighbouring blocks on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) start: u64,
    pub(crate) count: u32,
}

impl Handle<'_> {
    /// Finds free blocks near `goal`, at most `wanted`, at least one. They are not taken by that.
    pub(crate) fn choose(&self, goal: u64, wanted: u32) -> Result<Place> {
        let geometry = self.geometry();
        let chosen =
            self.running.chosen_blocks.saturating_sub(self.entering.map_or(0, |place| place.count.into()));
        let available = self.free_blocks_now().saturating_sub(self.left_for_others() + chosen);
        let wanted = wanted.min(RUN_MAX).min(u32::try_from(available).unwrap_or(u32::MAX));
        if wanted == 0 {
            return Err(Error::NoSpace);
        }
        let goal = if geometry.contains(goal, 1) { goal } else { geometry.first_data_block.max(1) };
        let first = geometry.group_of(goal);
        // Once around and the first group again, whose part before the goal was not looked at when the goal was free.
        for distance in 0..=geometry.groups {
            let number = ((u64::from(first) + u64::from(distance)) % u64::from(geometry.groups)) as u32;
            if self.running.group_free.get(number as usize).is_none_or(|free| *free == 0) {
                continue;
            }
            let from = if distance == 0 { (goal - geometry.group_start(number)) as u32 } else { 0 };
            if let Some((index, count)) = self.choose_in(number, from, wanted)? {
                return Ok(Place { start: geometry.group_start(number) + u64::from(index), count });
            }
        }
        Err(Error::NoSpace)
    }

    fn choose_in(&self, number: u32, from: u32, wanted: u32) -> Result<Option<(u32, u32)>> {
        let bits = self.free_bits(number)?;
        Ok(search(&bits, from, self.geometry().group_blocks(number), wanted))
    }

    /// A group's bitmap, in which all that can't be chosen now is in use.
    pub(crate) fn free_bits(&self, number: u32) -> Result<BlockBytes> {
        let geometry = self.geometry();
        let group = Group::read(self, number)?;
        let shared = bitmap::of_blocks(self, number, &group)?;
        let running = &self.running;
        let mine = |range: &&(u64, u32)| geometry.group_of(range.0) == number;
        let held = [&running.held, &running.held_committing, &running.chosen];
        let busy = held.iter().any(|ranges| !ranges.of(number).is_empty())
            || self.freed.iter().any(|range| mine(&range));
        if !busy {
            return Ok(shared);
        }
        let mut bits = fallible::try_copy(&shared)?;
        for (start, count) in held.iter().flat_map(|ranges| ranges.of(number)) {
            bitmap::set_range(&mut bits, *start, *count);
        }
        for (start, count) in self.freed.iter().filter(mine) {
            bitmap::set_range(&mut bits, (start - geometry.group_start(number)) as u32, *count);
        }
        Ok(fallible::try_arc(bits)?)
    }

    /// Marks chosen blocks as used.
    pub(crate) fn take(&mut self, place: Place) -> Result<()> {
        let Place { start, count } = place;
        let geometry = &self.system().geometry;
        let number = geometry.group_of(start);
        let first = (start - geometry.group_start(number)) as u32;
        let mut group = Group::read(self, number)?;
        if !self.system().is_data(start, count.into()) || group.free_blocks < count {
            return Err(Error::Corrupted("a bitmap has blocks free that are not", start));
        }
        let mut free = true;
        bitmap::change_blocks(self, number, &mut group, first..first + count, |bits| {
            free = find(bits, first, first + count, true) == first + count;
            bitmap::set_range(bits, first, count);
        })?;
        if !free {
            return Err(Error::Corrupted("chosen blocks are in use", start));
        }
        group.free_blocks -= count;
        group.store(self, number)?;
        self.free_blocks -= i64::from(count);
        fallible::try_push(&mut self.group_free, (number, group.free_blocks))?;
        Ok(())
    }

    /// Chooses and takes blocks.
    pub(crate) fn allocate(&mut self, goal: u64, wanted: u32) -> Result<Place> {
        let place = self.choose(goal, wanted)?;
        self.take(place)?;
        Ok(place)
    }

    /// Gives blocks back; they may be used again when this transaction is committed. Blocks of metadata are
    /// to be forgotten too.
    pub(crate) fn free(&mut self, start: u64, count: u64) -> Result<()> {
        let geometry = &self.system().geometry;
        if !self.system().is_data(start, count) {
            return Err(Error::Corrupted("blocks to be freed are the file system's own", start));
        }
        let (mut start, mut left) = (start, count);
        while left > 0 {
            let number = geometry.group_of(start);
            let first = (start - geometry.group_start(number)) as u32;
            let count = left.min(u64::from(geometry.group_blocks(number) - first)) as u32;
            let mut group = Group::read(self, number)?;
            let mut used = true;
            bitmap::change_blocks(self, number, &mut group, first..first + count, |bits| {
                used = find(bits, first, first + count, false) == first + count;
                bitmap::clear_range(bits, first, count);
            })?;
            if !used {
                return Err(Error::Corrupted("blocks to be freed are free", start));
            }
            group.free_blocks += count;
            group.store(self, number)?;
            self.free_blocks += i64::from(count);
            fallible::try_push(&mut self.group_free, (number, group.free_blocks))?;
            fallible::try_push(&mut self.freed, (start, count))?;
            start += u64::from(count);
            left -= u64::from(count);
        }
        Ok(())
    }

    /// Gives back blocks of a file: those of directories and links are metadata.
    pub(crate) fn free_contents(&mut self, inode: &Inode, start: u64, count: u64) -> Result<()> {
        self.free(start, count)?;
        if inode.kind != Kind::Regular {
            (start..start + count).try_for_each(|block| self.forget(block))?;
        }
        Ok(())
    }

    /// Gives back a block of metadata.
    pub(crate) fn free_metadata(&mut self, block: u64) -> Result<()> {
        self.free(block, 1)?;
        self.forget(block)
    }
}

/// A run of free bits: at `from` if that is free, else the first that is long enough, else the longest.
fn search(bits: &[u8], from: u32, end: u32, wanted: u32) -> Option<(u32, u32)> {
    let run_at = |start: u32| find(bits, start, end.min(start.saturating_add(wanted)), true) - start;
    if from > 0 && from < end && !is_set(bits, from) {
        return Some((from, run_at(from)));
    }
    let mut best: Option<(u32, u32)> = None;
    for (begin, limit) in [(from.min(end), end), (0, from.min(end))] {
        let mut at = begin;
        loop {
            at = find(bits, at, limit, false);
            if at >= limit {
                break;
            }
            let count = run_at(at);
            if count >= wanted {
                return Some((at, count));
            }
            if best.is_none_or(|(_, most)| count > most) {
                best = Some((at, count));
            }
            at += count;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_goal_comes_first_then_what_is_long_enough_then_the_longest() {
        let mut bits = [0xff; 64];
        bitmap::clear_range(&mut bits, 10, 3);
        bitmap::clear_range(&mut bits, 50, 8);
        bitmap::clear_range(&mut bits, 100, 5);
        assert_eq!(search(&bits, 11, 512, 8), Some((11, 2)));
        assert_eq!(search(&bits, 60, 512, 5), Some((100, 5)));
        assert_eq!(search(&bits, 60, 512, 8), Some((50, 8)));
        assert_eq!(search(&bits, 0, 512, 100), Some((50, 8)));
        assert_eq!(search(&[0xff; 64], 0, 512, 1), None);
    }
}
