//! Memory that nobody has needed yet.
//!
//! The boot memory map hands over ranges of usable memory. They stay untouched, without metadata, until the buddy
//! allocator runs dry; then one chunk (4 MiB) at a time is *brought up*: its metadata is mapped and zeroed, and its
//! usable part given to the buddy allocator. So start-up costs the same however large the machine is, and a program
//! that needs 10 MiB leaves the rest as the hypervisor made it.
//!
//! The pages of metadata come from the end of the last range, up to a section's worth (1 MiB) at once, so that they
//! do not break up the chunks. Only the first few come from the start of the first range, low memory, which is in use anyway: a
//! small system touches no memory for them that it would not touch else, and a hypervisor with large pages provides 2 MiB less.
//!
//! States of a chunk: *untouched* → `next_piece` → *brought up*, for ever. A chunk with frames outside the ranges
//! (the initramfs) may get its metadata early by `ensure_metadata`.
//!
//! Locking: part of the pool, under its lock.

use machine::boot::PhysRange;

use super::number::{CHUNK_FRAMES, FrameNumber};
use super::table::{self, CHUNK_METADATA_PAGES};

/// Upper bound of page-table pages that mapping one chunk's metadata takes.
const TABLE_PAGES_MAX: u32 = 3;
/// Metadata pages taken from the end of memory at once: what a section needs, and its tables.
const SUPPLY_PAGES: u32 = 32 * CHUNK_METADATA_PAGES + TABLE_PAGES_MAX;

/// Metadata pages of the first chunks: what a small system needs on a machine of any size (it lies at both ends of memory).
const FIRST_SUPPLY_PAGES: u32 = 5 * CHUNK_METADATA_PAGES + TABLE_PAGES_MAX;

/// A range of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: FrameNumber,
    pub(crate) frames: u32,
}

/// See the theory of this file.
pub(crate) struct Untouched {
    ranges: &'static [PhysRange],
    /// Index of the range that the next piece comes from, and the frame in it, once started.
    first: usize,
    first_start: u32,
    /// Number of ranges that are left, and the end of the last one.
    count: usize,
    last_end: u32,
    /// Frames in the ranges that are left.
    frames: u64,
    /// Frames set aside for metadata.
    supply: Piece,
    /// Frames that hold metadata or map it.
    metadata_frames: u64,
}

/// First and last-plus-one frame of a range, as far as the kernel manages memory.
fn bounds(range: &PhysRange) -> (u32, u32) {
    let number =
        |address| FrameNumber::containing(address).map_or(super::number::MAX_FRAMES, FrameNumber::index);
    (number(range.start).max(1), number(range.end))
}

impl Untouched {
    pub(crate) const fn new() -> Self {
        Self {
            ranges: &[],
            first: 0,
            first_start: 0,
            count: 0,
            last_end: 0,
            frames: 0,
            supply: Piece { start: FrameNumber::new(0), frames: 0 },
            metadata_frames: 0,
        }
    }

    /// Takes over the ranges of the boot memory map.
    pub(crate) fn fill(&mut self, ranges: &'static [PhysRange]) {
        assert!(self.ranges.is_empty(), "memory is handed over once");
        self.ranges = ranges;
        self.count = ranges.len();
        self.frames =
            ranges.iter().map(bounds).map(|(start, end)| u64::from(end.saturating_sub(start))).sum();
        self.first_start = ranges.first().map_or(0, |range| bounds(range).0);
        self.last_end = ranges.last().map_or(0, |range| bounds(range).1);
    }

    /// Frames that have not been brought up, without those that their metadata will need.
    pub(crate) fn usable_frames(&self) -> u64 {
        let metadata = self.frames / u64::from(CHUNK_FRAMES) * u64::from(CHUNK_METADATA_PAGES);
        self.frames.saturating_sub(metadata) + u64::from(self.supply.frames)
    }

    /// Frames spent on metadata so far.
    pub(crate) const fn metadata_frames(&self) -> u64 {
        self.metadata_frames
    }

    /// The range that the next piece comes from, skipping empty ones.
    fn current(&mut self) -> Option<(u32, u32)> {
        while self.first < self.count {
            let end =
                if self.first + 1 == self.count { self.last_end } else { bounds(&self.ranges[self.first]).1 };
            if self.first_start < end {
                return Some((self.first_start, end));
            }
            self.first += 1;
            self.first_start = self.ranges.get(self.first).map_or(0, |range| bounds(range).0);
        }
        None
    }

    /// Brings up the next chunk and returns its usable part; `None` when all memory is in use.
    pub(crate) fn next_piece(&mut self) -> Option<Piece> {
        let (start, _) = self.current()?;
        if !self.ensure_metadata(FrameNumber::new(start)) {
            // A last scrap too small to hold its own metadata.
            self.frames = 0;
            self.count = self.first;
            return None;
        }
        // The supply may have been taken from the end of this very range.
        let (start, end) = self.current()?;
        let chunk_end = (start / CHUNK_FRAMES + 1) * CHUNK_FRAMES;
        let frames = end.min(chunk_end) - start;
        self.first_start = start + frames;
        self.frames -= u64::from(frames);
        Some(Piece { start: FrameNumber::new(start), frames })
    }

    /// Makes sure that the chunk of the frame has metadata.
    pub(crate) fn ensure_metadata(&mut self, frame: FrameNumber) -> bool {
        let chunk = frame.chunk();
        if table::chunk_is_present(chunk) {
            return true;
        }
        if self.supply.frames < CHUNK_METADATA_PAGES + TABLE_PAGES_MAX && !self.replenish_supply() {
            return false;
        }
        map_chunk_metadata(chunk, &mut || self.take_supply());
        table::set_chunk_present(chunk);
        true
    }

    fn take_supply(&mut self) -> FrameNumber {
        assert!(self.supply.frames > 0, "the supply was checked for a whole chunk");
        self.supply.frames -= 1;
        self.metadata_frames += 1;
        self.supply.start.add(self.supply.frames)
    }

    /// Takes the first frames for metadata from the start of the first range, unless that would use up most of it. What is
    /// left begins in the same chunk, which is about to get its metadata.
    fn take_first_supply(&mut self) -> bool {
        let Some((start, end)) = self.current() else { return false };
        let same_chunk = (start + FIRST_SUPPLY_PAGES) / CHUNK_FRAMES == start / CHUNK_FRAMES;
        if end - start < 2 * FIRST_SUPPLY_PAGES || !same_chunk {
            return false;
        }
        self.supply = Piece { start: FrameNumber::new(start), frames: FIRST_SUPPLY_PAGES };
        self.first_start = start + FIRST_SUPPLY_PAGES;
        self.frames -= u64::from(FIRST_SUPPLY_PAGES);
        true
    }

    /// Takes frames for metadata from the end of the last range. What is left of the former supply lies just above,
    /// unless that was the last of another range; then it is given up (at most 10 frames).
    fn replenish_supply(&mut self) -> bool {
        if self.metadata_frames == 0 && self.take_first_supply() {
            return true;
        }
        let needed = (self.frames / u64::from(CHUNK_FRAMES) + 2) * u64::from(CHUNK_METADATA_PAGES);
        let wanted = SUPPLY_PAGES.min(needed as u32 + TABLE_PAGES_MAX);
        while self.first < self.count {
            let last = self.count - 1;
            let start = if last == self.first { self.first_start } else { bounds(&self.ranges[last]).0 };
            let frames = wanted.min(self.last_end.saturating_sub(start));
            if frames >= CHUNK_METADATA_PAGES + TABLE_PAGES_MAX {
                self.last_end -= frames;
                self.frames -= u64::from(frames);
                let left = self.supply;
                self.supply = Piece { start: FrameNumber::new(self.last_end), frames };
                if left.start.index() == self.last_end + frames {
                    self.supply.frames += left.frames;
                } else {
                    self.metadata_frames += u64::from(left.frames);
                }
                return true;
            }
            // Too small a range to be of use: it is dropped.
            self.frames -= u64::from(self.last_end.saturating_sub(start));
            self.count = last;
            self.last_end = last.checked_sub(1).map_or(0, |previous| bounds(&self.ranges[previous]).1);
        }
        false
    }
}

/// Maps and zeroes the metadata of a chunk.
#[cfg(target_os = "none")]
fn map_chunk_metadata(chunk: u32, supply: &mut dyn FnMut() -> FrameNumber) {
    use super::metadata::Metadata;
    use crate::kernel_map;
    let bytes = u64::from(CHUNK_FRAMES) * size_of::<Metadata>() as u64;
    let base = machine::address::FRAME_METADATA_BASE as u64 + u64::from(chunk) * bytes;
    for page in 0..u64::from(CHUNK_METADATA_PAGES) {
        let frame = supply();
        super::contents::zero(frame);
        let entry = kernel_map::entry(base + page * 4096, &mut || Some(supply()))
            .expect("the supply of page-table pages was checked");
        kernel_map::set(entry, frame, kernel_map::DATA);
    }
}

/// The metadata of a hosted machine exists as a whole, zeroed by the operating system.
#[cfg(not(target_os = "none"))]
fn map_chunk_metadata(_chunk: u32, supply: &mut dyn FnMut() -> FrameNumber) {
    for _ in 0..CHUNK_METADATA_PAGES {
        supply();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::address::{PAGE_SIZE, PhysAddr};

    fn with_ranges(ranges: &[(u32, u32)]) -> Untouched {
        let address = |frame: u32| PhysAddr::new(u64::from(frame) * PAGE_SIZE as u64);
        let ranges: std::vec::Vec<_> = ranges
            .iter()
            .map(|&(start, end)| PhysRange { start: address(start), end: address(end) })
            .collect();
        let mut untouched = Untouched::new();
        untouched.fill(std::boxed::Box::leak(ranges.into_boxed_slice()));
        untouched
    }

    #[test]
    fn first_metadata_lies_in_low_memory_and_later_at_the_end() {
        let mut untouched = with_ranges(&[(1, 160), (1100, 100_000)]);
        let frames = untouched.frames;
        assert!(untouched.replenish_supply());
        assert_eq!(untouched.supply, Piece { start: FrameNumber::new(1), frames: FIRST_SUPPLY_PAGES });
        assert_eq!(untouched.frames, frames - u64::from(FIRST_SUPPLY_PAGES));
        assert_eq!(untouched.current(), Some((1 + FIRST_SUPPLY_PAGES, 160)));
        while untouched.supply.frames > 0 {
            untouched.take_supply();
        }
        assert!(untouched.replenish_supply());
        assert_eq!(untouched.supply.start.index() + untouched.supply.frames, 100_000);
    }

    #[test]
    fn first_metadata_comes_from_the_end_where_the_start_has_no_room() {
        for ranges in [&[(1, 40), (1100, 100_000)], &[(CHUNK_FRAMES - 20, 3000), (4000, 100_000)]] {
            let mut untouched = with_ranges(ranges);
            assert!(untouched.replenish_supply());
            assert_eq!(untouched.supply.start.index() + untouched.supply.frames, 100_000);
            assert_eq!(untouched.current(), Some(ranges[0]));
        }
    }
}
