//! Huge pages' frames: 512 that lie one behind the other, each counted for itself.
//!
//! Nothing about such a frame is different from others, so that it may be given away, copied on write and freed alone, and whatever has a
//! reference to one keeps that one only. What makes them a huge page is an entry of a page table that maps them together. Where
//! the table is that says the same page by page, the first frame's word for its owner tells while there is such an entry.

use core::sync::atomic::Ordering::Relaxed;

use machine::address::PhysAddr;
use machine::page_table::{ENTRIES, find_tables_behind};
use sync::Once;

use super::handle::Frame;
use super::metadata::State;
use super::number::FrameNumber;
use super::purpose::Purpose;
use super::table::metadata;
use super::watermark::Urgency;
use super::{allocate, contents, poison, pool};
use crate::local::local;
use crate::{OutOfMemory, charge, fallible, reclaim};

/// The order of a block of 2 MiB.
pub(crate) const HUGE_ORDER: u8 = 9;

/// Frames of a huge page.
pub(crate) const HUGE_FRAMES: u32 = 1 << HUGE_ORDER;

const _: () = assert!(HUGE_FRAMES as usize == ENTRIES, "a huge page lies in the place of one leaf table");

/// One reference to each frame of a huge page.
pub(crate) struct HugeFrame {
    first: FrameNumber,
}

impl HugeFrame {
    /// Allocates a huge page, if one is free at once and limits permit it: nothing is reclaimed for it. Who pays, pays for each frame.
    pub(crate) fn allocate(purpose: Purpose) -> Result<Self, OutOfMemory> {
        fallible::fail_point()?;
        let (first, low) = {
            let mut pool = pool::lock();
            (pool.take(HUGE_ORDER, Urgency::Normal), pool.is_low())
        };
        if low {
            reclaim::wake();
        }
        let page = Self { first: first.ok_or(OutOfMemory)? };
        for frame in page.frames() {
            let known = metadata(frame);
            known.set_state(State::Allocated { purpose, order: 0 });
            known.begin_references(purpose);
            poison::check(frame);
        }
        local(|cpu| cpu.frames.count(purpose, i64::from(HUGE_FRAMES)));
        if let Some(account) = charge::charge_at_once(purpose, HUGE_FRAMES)? {
            page.frames().for_each(|frame| metadata(frame).set_account(account.get()));
        }
        Ok(page)
    }

    /// The address of the first byte.
    pub(crate) fn physical(&self) -> PhysAddr {
        self.first.physical()
    }

    /// Fills all frames with zeros.
    pub(crate) fn zero(&self) {
        self.frames().for_each(contents::zero);
    }

    /// Fills one of the frames with another frame's bytes, or with zeros.
    pub(crate) fn fill_one(&self, index: usize, from: Option<&Frame>) {
        assert!(index < ENTRIES, "a huge page has so many");
        let frame = self.first.add(index as u32);
        match from {
            Some(from) => contents::copy(frame, from.number()),
            None => contents::zero(frame),
        }
    }

    /// Gives the references away, to page-table entries; each is turned back by [`Frame::from_physical`].
    pub(crate) fn give_away(self) {
        core::mem::forget(self);
    }

    fn frames(&self) -> impl Iterator<Item = FrameNumber> + use<> {
        let first = self.first;
        (0..HUGE_FRAMES).map(move |index| first.add(index))
    }
}

impl Drop for HugeFrame {
    fn drop(&mut self) {
        self.frames().for_each(allocate::release);
    }
}

/// Notes the frame of the table that is behind the huge page which begins at an address. The page's frames are the caller's.
pub(crate) fn set_table_behind(first: PhysAddr, table: PhysAddr) {
    metadata(FrameNumber::of_allocated(first)).private.store(table.as_u64(), Relaxed);
}

/// Has page tables find what is noted: before there is any huge page, of whatever kind.
pub(crate) fn prepare_tables_behind() {
    static HOOK: Once<()> = Once::new();
    HOOK.call_once(|| find_tables_behind(table_behind));
}

/// What was noted. Whoever sees the entry that maps the huge page sees what was noted before.
pub(crate) fn table_behind(first: PhysAddr) -> PhysAddr {
    PhysAddr::new(metadata(FrameNumber::of_allocated(first)).private.load(Relaxed))
}
