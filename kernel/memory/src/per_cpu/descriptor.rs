//! What is known of a block: which units are taken, by which objects.
//!
//! The descriptor lies in the block's own management section, so that describing objects allocates nothing. It holds the
//! bitmap (one bit a unit, 1 = taken; the same for every chunk), and a fixed array of object descriptors that are linked
//! by their index, either on the list of free ones or on that of objects.
//!
//! Allocation is best fit: all free runs of units are collected and sorted by length; the first in which the object finds
//! room at its alignment is taken.
//!
//! Invariants, checked by `check`: objects do not overlap; a unit's bit is set exactly if an object covers it; `used_bytes`
//! is the sum of the objects' sizes. Everything is under the allocator's lock.

use core::ptr::NonNull;

use machine::cpu::MAX_CPUS;

use super::geometry::{CHUNK_BYTES, MANAGEMENT_BYTES, UNIT_BYTES, UNITS};

const WORD_BITS: usize = 64;
const WORDS: usize = UNITS / WORD_BITS;

/// Frames of a chunk and of the management section.
pub(super) const SECTION_PAGES: usize = 2;
/// Frames of a block, if all CPUs exist.
pub(super) const FRAMES: usize = (MAX_CPUS + 1) * SECTION_PAGES;

/// Free runs of units that a bitmap can have at most.
const REGIONS_MAX: usize = UNITS / 2;

/// Ends a list of object descriptors.
const NONE: u16 = u16::MAX;

/// A run of free units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Region {
    /// How many; first, so that regions sort by length.
    pub(super) units: u16,
    pub(super) start: u16,
}

/// Which regions will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Those of the object's very length.
    Exact,
    /// Those that hold it.
    Any,
}

/// Room for the free regions of one block.
pub(super) type Regions = [Region; REGIONS_MAX];

/// No regions.
pub(super) const NO_REGIONS: Regions = [Region { units: 0, start: 0 }; REGIONS_MAX];

/// An object: its first unit and its length. Means something while it is on the list of objects.
#[derive(Clone, Copy)]
struct Control {
    start: u16,
    units: u16,
}

/// See the theory of this file. All zeros is a descriptor that waits for [`Descriptor::prepare`].
pub(super) struct Descriptor {
    /// The neighbours in the allocator's list.
    pub(super) next: Option<NonNull<Descriptor>>,
    pub(super) previous: Option<NonNull<Descriptor>>,
    used_bytes: u32,
    free_controls: u16,
    objects: u16,
    bitmap: [u64; WORDS],
    /// Frame numbers, 0 where there is none: two for each CPU's chunk, then those of the management section.
    pub(super) frames: [u32; FRAMES],
    links: [u16; UNITS],
    controls: [Control; UNITS],
}

const _: () =
    assert!(size_of::<Descriptor>() <= MANAGEMENT_BYTES, "the management section holds the descriptor");

impl Descriptor {
    /// Makes zeroed memory the descriptor of an empty block.
    pub(super) fn prepare(&mut self) {
        for (index, link) in self.links.iter_mut().enumerate() {
            *link = if index + 1 < UNITS { index as u16 + 1 } else { NONE };
        }
        self.free_controls = 0;
        self.objects = NONE;
    }

    /// Bytes of objects in one chunk.
    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes as usize
    }

    /// Whether no unit is free.
    pub(super) fn is_full(&self) -> bool {
        self.used_bytes() == CHUNK_BYTES
    }

    /// The bitmap.
    pub(super) fn bitmap(&self) -> &[u64] {
        &self.bitmap
    }

    /// The objects: first unit and length.
    pub(super) fn objects(&self) -> impl Iterator<Item = (usize, usize)> {
        let mut next = self.objects;
        core::iter::from_fn(move || {
            let control = self.controls.get(usize::from(next))?;
            next = self.links[usize::from(next)];
            Some((usize::from(control.start), usize::from(control.units)))
        })
    }

    /// The first unit from `from` on that is free (or taken).
    fn find(&self, from: usize, free: bool) -> Option<usize> {
        let mut word = from / WORD_BITS;
        let mut mask = u64::MAX << (from % WORD_BITS);
        while word < WORDS {
            let bits = if free { !self.bitmap[word] } else { self.bitmap[word] } & mask;
            if bits != 0 {
                return Some(word * WORD_BITS + bits.trailing_zeros() as usize);
            }
            word += 1;
            mask = u64::MAX;
        }
        None
    }

    /// Collects the free runs, in the order of their addresses; returns how many.
    fn collect(&self, regions: &mut Regions) -> usize {
        let (mut count, mut from) = (0, 0);
        while from < UNITS
            && let Some(start) = self.find(from, true)
        {
            let end = self.find(start, false).unwrap_or(UNITS);
            regions[count] = Region { units: (end - start) as u16, start: start as u16 };
            count += 1;
            from = end;
        }
        count
    }

    /// The best fit for an object: its first unit. An exact one leaves nothing of the region.
    fn best_fit(&self, units: usize, align_units: usize, fit: Fit, regions: &mut Regions) -> Option<usize> {
        let count = self.collect(regions);
        let found = &mut regions[..count];
        sorting::sort(found);
        let fits = |region: &&Region| fit == Fit::Any || usize::from(region.units) == units;
        found.iter().filter(fits).find_map(|region| {
            let start = usize::from(region.start).next_multiple_of(align_units);
            let end = usize::from(region.start) + usize::from(region.units);
            (start + units <= end).then_some(start)
        })
    }

    fn mark(&mut self, start: usize, units: usize, taken: bool) {
        let (mut unit, end) = (start, start + units);
        while unit < end {
            let bit = unit % WORD_BITS;
            let count = (WORD_BITS - bit).min(end - unit);
            let mask = (u64::MAX >> (WORD_BITS - count)) << bit;
            let word = &mut self.bitmap[unit / WORD_BITS];
            debug_assert_eq!(
                *word & mask,
                if taken { 0 } else { mask },
                "units {start}+{units} change state"
            );
            if taken {
                *word |= mask;
            } else {
                *word &= !mask;
            }
            unit += count;
        }
    }

    /// Takes units for an object; returns the first.
    pub(super) fn take(
        &mut self,
        units: usize,
        align_units: usize,
        fit: Fit,
        regions: &mut Regions,
    ) -> Option<usize> {
        debug_assert!(units > 0 && align_units.is_power_of_two());
        if self.used_bytes() + units * UNIT_BYTES > CHUNK_BYTES {
            return None;
        }
        let start = self.best_fit(units, align_units, fit, regions)?;
        let index = self.free_controls;
        let slot = usize::from(index);
        // There are as many as units, so one is left when a unit is.
        self.free_controls = self.links[slot];
        self.links[slot] = self.objects;
        self.objects = index;
        self.controls[slot] = Control { start: start as u16, units: units as u16 };
        self.mark(start, units, true);
        self.used_bytes += (units * UNIT_BYTES) as u32;
        Some(start)
    }

    /// Gives the units of the object back that begins at a unit; returns how many, `None` if no object begins there.
    pub(super) fn give(&mut self, start: usize) -> Option<usize> {
        let (mut before, mut index) = (NONE, self.objects);
        while index != NONE && usize::from(self.controls[usize::from(index)].start) != start {
            before = index;
            index = self.links[usize::from(index)];
        }
        let units = usize::from(self.controls.get(usize::from(index))?.units);
        let next = self.links[usize::from(index)];
        match self.links.get_mut(usize::from(before)) {
            Some(link) => *link = next,
            None => self.objects = next,
        }
        self.links[usize::from(index)] = self.free_controls;
        self.free_controls = index;
        self.mark(start, units, false);
        self.used_bytes -= (units * UNIT_BYTES) as u32;
        Some(units)
    }

    /// Checks the invariants; for tests.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let mut covered = [0_u64; WORDS];
        let mut units = 0;
        for (start, length) in self.objects() {
            for unit in start..start + length {
                let (word, bit) = (unit / WORD_BITS, 1 << (unit % WORD_BITS));
                let Some(word) = covered.get_mut(word) else { return Err("an object is beyond the chunk") };
                if *word & bit != 0 {
                    return Err("two objects overlap");
                }
                *word |= bit;
            }
            units += length;
        }
        if covered != self.bitmap {
            return Err("the bitmap is not what the objects cover");
        }
        if units * UNIT_BYTES != self.used_bytes() {
            return Err("the used bytes are not the objects'");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Box<Descriptor> {
        // SAFETY: all zeros is a value of each field: numbers, and pointers that may be null.
        let mut descriptor: Box<Descriptor> = unsafe { Box::new_zeroed().assume_init() };
        descriptor.prepare();
        descriptor
    }

    fn regions() -> Box<Regions> {
        Box::new(NO_REGIONS)
    }

    #[test]
    fn objects_lie_one_behind_the_other() {
        let (mut block, mut regions) = (empty(), regions());
        assert_eq!(block.take(5, 1, Fit::Any, &mut regions), Some(0));
        assert_eq!(block.take(1, 1, Fit::Any, &mut regions), Some(5));
        assert_eq!(block.bitmap()[0], 0b11_1111);
        assert_eq!(block.used_bytes(), 48);
        block.check().unwrap();
    }

    #[test]
    fn the_smallest_region_that_fits_is_taken() {
        let (mut block, mut regions) = (empty(), regions());
        for units in [4, 1, 2, 1, 3, 1] {
            block.take(units, 1, Fit::Any, &mut regions).unwrap();
        }
        for start in [0, 5, 8] {
            block.give(start).unwrap();
        }
        // Free: 4 units at 0, 2 at 5, 3 at 8, the rest behind 12.
        assert_eq!(block.take(2, 1, Fit::Any, &mut regions), Some(5));
        assert_eq!(block.take(3, 1, Fit::Any, &mut regions), Some(8));
        assert_eq!(block.take(3, 1, Fit::Any, &mut regions), Some(0));
        assert_eq!(block.take(5, 1, Fit::Any, &mut regions), Some(12));
        block.check().unwrap();
    }

    #[test]
    fn an_aligned_object_skips_regions_where_it_does_not_fit() {
        let (mut block, mut regions) = (empty(), regions());
        for units in [1, 8, 1] {
            block.take(units, 1, Fit::Any, &mut regions).unwrap();
        }
        block.give(1).unwrap();
        // 8 units are free at 1, but only one of them is aligned with room for 2 behind it: 8.
        assert_eq!(block.take(2, 8, Fit::Any, &mut regions), Some(16));
        assert_eq!(block.take(1, 8, Fit::Any, &mut regions), Some(8));
        block.check().unwrap();
    }

    #[test]
    fn a_chunk_is_one_object_or_as_many_as_it_has_units() {
        let (mut block, mut regions) = (empty(), regions());
        assert_eq!(block.take(UNITS, 8, Fit::Any, &mut regions), Some(0));
        assert!(block.is_full() && block.take(1, 1, Fit::Any, &mut regions).is_none());
        assert_eq!(block.give(0), Some(UNITS));
        for unit in 0..UNITS {
            assert_eq!(block.take(1, 1, Fit::Any, &mut regions), Some(unit));
        }
        assert!(block.is_full());
        block.check().unwrap();
        for unit in (0..UNITS).step_by(2) {
            assert_eq!(block.give(unit), Some(1));
        }
        assert_eq!(block.collect(&mut regions), REGIONS_MAX);
        assert_eq!(block.take(2, 1, Fit::Any, &mut regions), None);
    }

    #[test]
    fn what_is_no_object_is_not_given_back() {
        let (mut block, mut regions) = (empty(), regions());
        block.take(4, 1, Fit::Any, &mut regions).unwrap();
        assert_eq!(block.give(1), None);
        assert_eq!(block.give(0), Some(4));
        assert_eq!(block.give(0), None);
        assert_eq!(block.used_bytes(), 0);
    }
}
