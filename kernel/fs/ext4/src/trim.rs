//! Telling the device which blocks are free, so that it need not keep what they have (`FITRIM`).
//!
//! # Concurrency
//! A run of free blocks counts as *chosen* while the device is told ([`Running`](crate::running::Running)): nobody takes and writes it in between, and no lock
//! is held over the transfer. Whoever looks for space meanwhile has so much less of it, [`RUN_MAX`] blocks at most.
//!
//! Blocks that were freed since the last commit are not told: after a crash they are their old owner's.

use core::ops::Range;

use crate::allocate::{Place, RUN_MAX};
use crate::bitmap::find;
use crate::{Error, Result, Writer};

impl Writer {
    /// Tells the device of free runs in a range of blocks, as far as they are no shorter than `least` there. Returns how many blocks were told. `goes_on` is
    /// asked in between.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the device can't be told; the device; what reading the bitmaps may say.
    pub fn trim(&self, range: Range<u64>, least: u32, goes_on: impl Fn() -> bool) -> Result<u64> {
        if !self.system.cache.can_discard() {
            return Err(Error::NotSupported);
        }
        let geometry = &self.system.geometry;
        let end = range.end.min(geometry.blocks);
        let mut at = range.start.max(geometry.first_data_block);
        // What is left of a run that was told in part, up to here, is told however short it is.
        let (mut run_end, mut told) = (0, 0);
        while at < end && goes_on() {
            let group = geometry.group_of(at);
            let start = geometry.group_start(group);
            let limit = (end - start).min(geometry.group_blocks(group).into()) as u32;
            let least = if at < run_end { 1 } else { least };
            let Some((place, free_until)) = self.choose_free(group, (at - start) as u32..limit, least)?
            else {
                at = start + u64::from(geometry.group_blocks(group));
                continue;
            };
            let outcome = self.system.cache.discard(place.start, place.count);
            self.unchoose(place);
            outcome?;
            told += u64::from(place.count);
            at = place.start + u64::from(place.count);
            run_end = start + u64::from(free_until);
        }
        Ok(told)
    }

    /// Chooses the first blocks of a free run in a range of a group's blocks. Returns them, and where the run ends.
    fn choose_free(&self, group: u32, range: Range<u32>, least: u32) -> Result<Option<(Place, u32)>> {
        let geometry = &self.system.geometry;
        let mut handle = self.begin(true)?;
        let bits = handle.free_bits(group)?;
        let mut at = range.start;
        loop {
            let from = find(&bits, at, range.end, false);
            if from >= range.end {
                return Ok(None);
            }
            let end = find(&bits, from, range.end, true);
            if end - from >= least {
                let start = geometry.group_start(group) + u64::from(from);
                let place = Place { start, count: (end - from).min(RUN_MAX) };
                handle.running.chosen.add(geometry, place.start, place.count)?;
                handle.running.chosen_blocks += u64::from(place.count);
                return Ok(Some((place, end)));
            }
            at = end;
        }
    }
}
