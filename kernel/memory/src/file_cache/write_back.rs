//! Writing dirty pages to their home, waiting for that, and giving clean pages up.
//!
//! **A page's way.** A store makes it *dirty*. Write-back gives what is dirty at its beginning the tag *to write* (what becomes dirty meanwhile
//! waits for the next time, so it ends), then takes runs of neighbours: *dirty* goes, *write-back* comes, mappings lose the permission to store, and the
//! run is the representative's. When it has ended, *write-back* goes. A store meanwhile waits for that and makes the page dirty again.
//!
//! **No store is lost.** Writers keep a reference while they copy, and look afterwards whether the page is still dirty; if a write-back came in between,
//! they make it dirty again. A fault makes the page dirty, then looks again under its region's lock, which taking the permission away needs, too.
//!
//! **Giving up.** Only a clean page goes that nobody but the index has: its word says *filling* while that is looked at, so nobody takes a reference meanwhile.

use super::backing::Backing;
use super::cache::{CacheError, FileCache, borrow_frame, drop_when_unseen, owned_frame};
use super::device::Event;
use super::lookup::filling;
use super::run::{PageRun, Way};
use crate::charge::Whose;
use crate::frame::Frame;
use crate::page_index::Tag;
use crate::{address_space, parking};
use arrayvec::ArrayVec;
use core::ops::{ControlFlow, Range};
use core::sync::atomic::{Ordering, fence};
use sync::rcu;

/// How often transfers that lack memory are begun again for somebody who waits; memory is reclaimed in between.
const ATTEMPTS_MAX: u32 = 8;

/// Pages tagged or given up under one hold of the index.
const BATCH: usize = 64;

/// What memory reclaim does with pages that page tables have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// They stay.
    Stay,
    /// They go if no access went through the page tables since the last round of this kind, by the clock algorithm.
    GoIfUnused,
}

impl FileCache {
    /// Writes all pages between two page numbers that are dirty now, and waits until they and those that were on their way are written.
    ///
    /// # Errors
    /// The latest error of the file, if there was one meanwhile; [`CacheError::OutOfMemory`] if some transfers lacked memory again and again. Then
    /// their pages are still dirty.
    pub fn write_back(&self, first: u64, end: u64) -> Result<(), CacheError> {
        let Some(backing) = self.backing() else { return Ok(()) };
        let before = backing.errors.mark();
        for _ in 0..ATTEMPTS_MAX {
            let starved = backing.starved.load(Ordering::Acquire);
            // Pages that are being written while they are dirty again must be written again.
            self.write_tagged(backing, first, end, u64::MAX, true);
            self.wait_for_write_back(first, end);
            if backing.starved.load(Ordering::Acquire) == starved {
                return backing.errors.since(before);
            }
            crate::reclaim::reclaim_now(BATCH);
        }
        Err(CacheError::OutOfMemory)
    }

    /// Begins to write pages back that are dirty now, at most about `most`; pages that are on their way already are left for
    /// later. Returns how many.
    pub fn start_write_back(&self, first: u64, end: u64, most: u64) -> u64 {
        self.backing().map_or(0, |backing| self.write_tagged(backing, first, end, most, false))
    }

    /// Waits until pages that are being written have been.
    pub fn wait_for_write_back(&self, first: u64, end: u64) {
        let Some(backing) = self.backing() else { return };
        backing.representative.submit_held();
        let mut from = first;
        loop {
            let next = self
                .index
                .gang(from, end, Some(Tag::Writeback), &rcu::read(), |page, _| ControlFlow::Break(page));
            let ControlFlow::Break(page) = next else { return };
            self.wait_written(page);
            from = page + 1;
        }
    }

    /// Waits until a page is not being written.
    pub(super) fn wait_written(&self, page: u64) {
        let is_written = || self.index.has_tag(page, Tag::Writeback, &rcu::read());
        if is_written() {
            self.submit_held();
            parking::wait_while(self.key(), &is_written);
        }
    }

    /// Has transfers get on that are held back to meet others.
    pub(super) fn submit_held(&self) {
        if let Some(backing) = self.backing() {
            backing.representative.submit_held();
        }
    }

    /// Keeps a program that makes pages dirty through a mapping waiting while too much is dirty. May sleep; no lock of the cache's or
    /// an address space's is held.
    pub(crate) fn pace_stores(&self) {
        if let Some(backing) = self.backing() {
            backing.device.tell(Event::PageStored);
        }
    }

    /// Dirty pages.
    #[must_use]
    pub fn dirty_pages(&self) -> u64 {
        self.backing().map_or(0, |backing| backing.dirty.load(Ordering::Relaxed))
    }

    /// Pages that are being written.
    #[must_use]
    pub fn pages_under_write_back(&self) -> u64 {
        self.backing().map_or(0, |backing| backing.under_write_back.load(Ordering::Relaxed))
    }

    /// Since when some page may have been dirty, ns since boot.
    #[must_use]
    pub fn dirty_since_ns(&self) -> u64 {
        self.backing().map_or(0, |backing| backing.dirty_since_ns.load(Ordering::Relaxed))
    }

    /// Enters the file into its device's queue again if it has pages that are dirty or being written, with its age: whoever waits for all of a
    /// device's files finds them there.
    pub fn requeue(&self) {
        if let Some(backing) = self.backing()
            && (backing.dirty.load(Ordering::Relaxed) > 0
                || backing.under_write_back.load(Ordering::Relaxed) > 0)
        {
            backing.enqueue(&backing.own(), true);
        }
    }

    fn write_tagged(&self, backing: &Backing, first: u64, end: u64, most: u64, wait: bool) -> u64 {
        if backing.dirty.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut next = Some(first);
        while let Some(from) = next {
            next = self.edit().tag_tagged(from, end, Tag::Dirty, Tag::ToWrite, BATCH);
        }
        let (mut from, mut begun) = (first, 0);
        while begun < most
            && let Some(run) = self.begin_write(backing, from, end, wait)
        {
            from = run.end();
            begun += run.pages() as u64;
            address_space::write_protect_file_pages(self, run.first()..run.end());
            backing.representative.write_back(run);
        }
        begun
    }

    /// Takes the next pages that are to be written: they are no longer dirty, but under write-back.
    fn begin_write(&self, backing: &Backing, first: u64, end: u64, wait: bool) -> Option<PageRun> {
        let mut from = first;
        loop {
            let mut index = self.edit();
            let mut frames: ArrayVec<(u64, Frame), { super::RUN_PAGES }> = ArrayVec::new();
            let mut busy = None;
            let looked_at = index.gang(from, end, Some(Tag::ToWrite), |page, word| {
                if frames.is_full() || frames.last().is_some_and(|&(last, _)| last + 1 != page) {
                    return ControlFlow::Break(());
                }
                if index.has_tag(page, Tag::Writeback) {
                    busy = Some(page);
                    return ControlFlow::Break(());
                }
                if let Some(frame) = borrow_frame(word) {
                    frames.push((page, Frame::clone(&frame)));
                }
                ControlFlow::Continue(())
            });
            let mut run: Option<PageRun> = None;
            for (page, frame) in frames {
                // Another write-back may have been faster.
                if index.has_tag(page, Tag::Dirty) {
                    index.clear_tag(page, Tag::Dirty);
                    index.set_tag(page, Tag::Writeback);
                    run.get_or_insert_with(|| PageRun::new(backing.own(), page, Way::Write, None))
                        .push(frame);
                } else if run.is_some() {
                    break;
                }
                index.clear_tag(page, Tag::ToWrite);
                from = page + 1;
            }
            if let Some(run) = run {
                backing.count(-(run.pages() as i64), run.pages() as i64);
                return Some(run);
            }
            if let Some(page) = busy
                && !wait
            {
                index.clear_tag(page, Tag::ToWrite);
                from = page + 1;
            }
            drop(index);
            match busy {
                Some(page) if wait => self.wait_written(page),
                None if looked_at.is_continue() => return None,
                _ => {}
            }
        }
    }

    /// Gives up clean pages between two page numbers that nobody uses, at most about `most`; returns how many. Pages that only page tables have
    /// are taken from them. May sleep.
    pub fn drop_clean(&self, first: u64, end: u64, most: usize) -> usize {
        if !self.has_representative() {
            return 0;
        }
        self.drop_unused(first, end, most, Whose::Anybodys, &|pages| {
            if self.is_mapped() {
                address_space::forget_file_pages(self, pages);
            }
        })
        .0
    }

    /// The same for memory reclaim: begins where it ended the last time, and does not sleep.
    pub fn drop_clean_from_hand(&self, most: usize, mapped: Mapped, whose: Whose) -> usize {
        let Some(backing) = self.backing() else { return 0 };
        let take = mapped == Mapped::GoIfUnused;
        if take && !self.is_mapped() {
            return 0;
        }
        let unmap = |pages: Range<u64>| {
            if take {
                address_space::forget_unused_file_pages(self, &pages);
            }
        };
        let hand = backing.hand.load(Ordering::Relaxed);
        let (mut dropped, mut next) = self.drop_unused(hand, u64::MAX, most, whose, &unmap);
        if dropped < most && hand > 0 {
            let (more, end) = self.drop_unused(0, hand, most - dropped, whose, &unmap);
            dropped += more;
            next = end;
        }
        backing.hand.store(next, Ordering::Relaxed);
        dropped
    }

    /// Returns how many were given up, and where it ended.
    fn drop_unused(
        &self,
        first: u64,
        end: u64,
        most: usize,
        whose: Whose,
        unmap: &dyn Fn(Range<u64>),
    ) -> (usize, u64) {
        let (mut from, mut dropped) = (first, 0);
        while dropped < most {
            let mut pages: ArrayVec<u64, BATCH> = ArrayVec::new();
            let _ = self.index.gang(from, end, None, &rcu::read(), |page, place| {
                if borrow_frame(place.word()).is_some_and(|frame| whose.admits(&frame)) {
                    pages.push(page);
                }
                if pages.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let Some(&last) = pages.last() else { break };
            unmap(pages[0]..last + 1);
            dropped += self.give_up(&pages);
            from = last + 1;
        }
        (dropped, from)
    }

    /// Gives up those of the pages that are clean and the index's alone.
    fn give_up(&self, pages: &[u64]) -> usize {
        let mut frames: ArrayVec<Frame, BATCH> = ArrayVec::new();
        let mut index = self.edit();
        for &page in pages {
            let clean = !index.has_tag(page, Tag::Dirty) && !index.has_tag(page, Tag::Writeback);
            let Some(word) = index.get(page).filter(|_| clean) else { continue };
            let Some(frame) = borrow_frame(word) else { continue };
            if frame.references() != 1 {
                continue;
            }
            index.replace(page, filling(word));
            // SeqCst: who took a reference before it could see that has done so visibly; who takes one later finds the page moved.
            fence(Ordering::SeqCst);
            if frame.references() == 1 {
                index.remove(page);
                frames.push(owned_frame(word));
            } else {
                index.replace(page, word);
            }
        }
        self.count_present(-(frames.len() as i64));
        drop(index);
        // Who found a page that seemed to be filling looks again.
        parking::wake(self.key());
        let dropped = frames.len();
        frames.into_iter().for_each(drop_when_unseen);
        dropped
    }
}
