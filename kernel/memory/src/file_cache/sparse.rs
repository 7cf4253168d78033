//! Size and holes: truncation, punching, allocating ahead, seeking data and holes.
//!
//! Order when pages go: first the size says they are gone, then they leave the index, then mappings of them are undone.
//! A fault that saw the page before is caught by the last step, one that comes later finds the new state.

use super::cache::{
    CacheError, FILLING, FileCache, MAX_FILE_BYTES, Supply, drop_when_unseen, owned_frame, page_of,
    within_page,
};
use super::lookup::Intent;
use super::variant::CacheEdit;
use crate::address_space;
use crate::frame::Frame;
use crate::page_index::Tag;
use crate::parking;
use arrayvec::ArrayVec;
use core::num::NonZeroU64;
use core::ops::{ControlFlow, Range};
use core::sync::atomic::{Ordering, fence};
use machine::address::{PAGE_SHIFT, PAGE_SIZE};
use sync::rcu;

/// Pages taken out under one hold of the index.
const REMOVE_PAGES: usize = 16;

impl FileCache {
    /// Makes the file this long: cuts it off, or adds a hole.
    ///
    /// # Errors
    /// [`CacheError::TooBig`].
    pub fn truncate(&self, size: u64) -> Result<(), CacheError> {
        if size > MAX_FILE_BYTES {
            return Err(CacheError::TooBig);
        }
        if self.is_huge() {
            self.truncate_huge(size);
            return Ok(());
        }
        let _change = self.change.lock();
        if size >= self.size() {
            if size > self.size() {
                self.prepare_growth()?;
            }
            self.size.store(size, Ordering::Release);
            return Ok(());
        }
        // With a representative, the kept part of the last page must be in memory to be cut.
        let cut = if within_page(size) != 0 && self.has_representative() {
            Some(self.page(page_of(size), Intent::Write, true)?)
        } else {
            None
        };
        self.size.store(size, Ordering::Release);
        self.clean_tail();
        if let Some(frame) = cut {
            self.mark_changed(page_of(size), &frame);
        }
        self.remove_pages(size.div_ceil(PAGE_SIZE as u64)..u64::MAX);
        Ok(())
    }

    /// The file's home says that it has so many bytes now. Pages from the smaller end on are given up, dirty or not: what they have is not what is
    /// there any more. Nothing becomes dirty by this.
    pub fn adopt_size(&self, size: u64) {
        let size = size.min(MAX_FILE_BYTES);
        let _change = self.change.lock();
        let kept = size.min(self.size());
        self.size.store(size, Ordering::Release);
        self.remove_pages(page_of(kept)..u64::MAX);
    }

    /// Makes a range read as zeros, giving whole pages back. The size stays.
    ///
    /// # Errors
    /// What bringing in a page that is only partly affected may say.
    pub fn punch_hole(&self, range: Range<u64>) -> Result<(), CacheError> {
        if self.is_huge() {
            self.punch_huge(range);
            return Ok(());
        }
        let _change = self.change.lock();
        let end = range.end.min(self.size().next_multiple_of(PAGE_SIZE as u64));
        if range.start >= end {
            return Ok(());
        }
        let (first, last) = (range.start.div_ceil(PAGE_SIZE as u64), page_of(end));
        if page_of(range.start) == last && within_page(range.start) != 0 {
            return self.zero_part(range.start, end);
        }
        if within_page(range.start) != 0 {
            self.zero_part(range.start, first << PAGE_SHIFT)?;
        }
        if within_page(end) != 0 && last >= first {
            self.zero_part(last << PAGE_SHIFT, end)?;
        }
        if first < last {
            self.remove_pages(first..last);
        }
        Ok(())
    }

    /// Zeroes bytes of one page; a hole stays one.
    fn zero_part(&self, start: u64, end: u64) -> Result<(), CacheError> {
        let page = page_of(start);
        if !self.has_representative() && !self.is_resident(page) {
            return Ok(());
        }
        let frame = self.page(page, Intent::Write, true)?;
        frame.zero_range(within_page(start), (end - start) as usize);
        self.mark_changed(page, &frame);
        Ok(())
    }

    /// Makes the pages of a range present, so that writing to them can't fail for want of space. Does not change the size.
    ///
    /// # Errors
    /// [`CacheError::NoSpace`] or [`CacheError::OutOfMemory`]; pages made before stay.
    pub fn allocate(&self, range: Range<u64>) -> Result<(), CacheError> {
        if range.end > MAX_FILE_BYTES {
            return Err(CacheError::TooBig);
        }
        if self.is_huge() {
            return self.allocate_huge(range);
        }
        for page in page_of(range.start)..range.end.div_ceil(PAGE_SIZE as u64) {
            self.page(page, Intent::Write, true)?;
        }
        Ok(())
    }

    /// Takes pages out of the index and out of all mappings. `change` is held.
    fn remove_pages(&self, pages: Range<u64>) {
        let mut next = pages.start;
        while next < pages.end {
            let mut frames: ArrayVec<Frame, REMOVE_PAGES> = ArrayVec::new();
            let mut numbers: ArrayVec<u64, REMOVE_PAGES> = ArrayVec::new();
            let mut dirty: ArrayVec<u64, REMOVE_PAGES> = ArrayVec::new();
            let mut busy = None;
            {
                let mut index = self.edit();
                let _ = index.gang(next, pages.end, None, |page, word| {
                    if self.is_busy(&index, page, word) {
                        busy = Some(page);
                        return ControlFlow::Break(());
                    }
                    numbers.push(page);
                    if numbers.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                if let Some(backing) = self.backing() {
                    dirty.extend(numbers.iter().copied().filter(|&page| index.has_tag(page, Tag::Dirty)));
                    backing.count(-(dirty.len() as i64), 0);
                }
                frames.extend(numbers.iter().filter_map(|&page| index.remove(page)).map(owned_frame));
                self.count_present(-(frames.len() as i64));
            }
            let removed = frames.len() as u64;
            if let Supply::Limited(budget) = &self.supply {
                budget.release(removed);
            }
            match (numbers.last(), busy) {
                (_, Some(page)) => {
                    next = page;
                    self.submit_held();
                    parking::wait_while(self.key(), &|| {
                        let index = self.edit();
                        index.get(page).is_some_and(|word| self.is_busy(&index, page, word))
                    });
                }
                (Some(&last), None) => next = last + 1,
                (None, None) => break,
            }
            if let Some(backing) = self.backing() {
                dirty.iter().for_each(|&page| backing.representative.forget_write(page));
            }
            frames.into_iter().for_each(drop_when_unseen);
        }
        // SeqCst: a mapping that was counted too late to be seen here looks up too late to find the pages.
        fence(Ordering::SeqCst);
        if self.is_mapped() {
            address_space::unmap_file_pages(self, pages);
        }
    }

    /// Whether a page is on its way from or to its home: it can't go before it has arrived.
    pub(super) fn is_busy(&self, index: &CacheEdit<'_>, page: u64, word: NonZeroU64) -> bool {
        word.get() & FILLING != 0 || self.has_representative() && index.has_tag(page, Tag::Writeback)
    }

    /// Where data begins at or after `offset`; None when there is none before the end of the file.
    #[must_use]
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let size = self.size();
        if offset >= size {
            return None;
        }
        if self.has_representative() {
            return Some(offset);
        }
        let page = self.index.next(page_of(offset), &rcu::read())?;
        Some(offset.max(page << PAGE_SHIFT)).filter(|&data| data < size)
    }

    /// Where a hole begins at or after `offset` (the end of the file is one); None beyond the end.
    #[must_use]
    pub fn next_hole(&self, offset: u64) -> Option<u64> {
        let size = self.size();
        if offset >= size {
            return None;
        }
        if self.has_representative() {
            return Some(size);
        }
        let page = self.index.next_absent(page_of(offset), &rcu::read());
        Some(offset.max(page << PAGE_SHIFT).min(size))
    }
}
