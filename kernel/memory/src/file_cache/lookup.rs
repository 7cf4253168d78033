//! Finding and making pages. Look-ups take no lock; see the theory of [`FileCache`].

use super::cache::{
    CacheError, FILLING, FileCache, Moved, TAIL_UNCLEAN, page_of, take_frame, within_page, word_of,
};
use super::variant;
use crate::frame::{Frame, Zeroed};
use crate::page_index::Tag;
use crate::parking;
use arrayvec::ArrayVec;
use core::num::NonZeroU64;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;
use machine::address::PAGE_SIZE;
use sync::rcu;

/// Pages looked up in one walk.
pub(crate) const BATCH_PAGES: usize = 16;

/// What a page is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Its bytes.
    Read,
    /// To change it: it becomes dirty.
    Write,
}

/// What a look-up found.
pub(super) enum Found {
    Present(Frame),
    Filling,
    Absent,
}

impl FileCache {
    pub(super) fn look_up(&self, page: u64) -> Found {
        let guard = rcu::read();
        loop {
            let Some(place) = self.index.find(page, &guard) else { return Found::Absent };
            match take_frame(&place) {
                Ok(Some(frame)) => {
                    variant::count(1, 1);
                    return Found::Present(frame);
                }
                Ok(None) => return Found::Filling,
                // Each time round an editor has changed this page.
                Err(Moved) => {}
            }
        }
    }

    /// The frame of a page that is in memory; nothing is brought in.
    #[must_use]
    pub fn cached(&self, page: u64) -> Option<Frame> {
        match self.look_up(page) {
            Found::Present(frame) => Some(frame),
            Found::Filling | Found::Absent => None,
        }
    }

    /// Whether a page is in memory.
    #[must_use]
    pub fn is_resident(&self, page: u64) -> bool {
        self.index.get(page, &rcu::read()).is_some_and(|word| word.get() & FILLING == 0)
    }

    /// The frame of a page that may be shown whole to a program right away, for a fault that holds a spin lock.
    #[inline]
    pub(crate) fn mappable(&self, page: u64) -> Option<Frame> {
        if self.tail_is_unclean(page) {
            return None;
        }
        self.cached(page)
    }

    /// The frames in memory from `first` up to `end` that are wanted, as many as fit.
    pub(crate) fn mappable_batch(
        &self,
        first: u64,
        end: u64,
        wanted: impl Fn(u64) -> bool,
        into: &mut ArrayVec<(u64, Frame), BATCH_PAGES>,
    ) {
        let guard = rcu::read();
        let _ = self.index.gang(first, end, None, &guard, |page, place| {
            // A page that has just gone is left out.
            if wanted(page)
                && let Ok(Some(frame)) = take_frame(&place)
                && !self.tail_is_unclean(page)
            {
                into.push((page, frame));
            }
            if into.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }

    #[inline]
    fn tail_is_unclean(&self, page: u64) -> bool {
        self.flags.load(Ordering::Acquire) & TAIL_UNCLEAN != 0 && page == page_of(self.size())
    }

    /// Whether growing the file would show bytes of its last page that must not be seen: the boot archive's, or, where the
    /// pages have another home, which doesn't know them, those that a mapping put there. Without one, what a program
    /// wrote beyond the end is kept, as Linux' tmpfs does.
    pub(super) fn tail_may_show(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & TAIL_UNCLEAN != 0
            || self.is_mapped() && self.has_representative()
    }

    /// Clears what the last page has beyond the size, if foreign bytes are there or a mapping may have put some. Call
    /// before the bytes become visible.
    pub(super) fn clean_tail(&self) {
        let size = self.size();
        if within_page(size) != 0
            && let Some(frame) = self.cached(page_of(size))
        {
            frame.zero_range(within_page(size), PAGE_SIZE - within_page(size));
        }
        // Release: pairs with the Acquire in `tail_is_unclean`: the bytes are zero before the flag is gone.
        self.flags.fetch_and(!TAIL_UNCLEAN, Ordering::Release);
    }

    /// The frame of a page, brought in or made if need be; None beyond the size. May sleep.
    ///
    /// # Errors
    /// What the representative or the budget says, or no memory.
    pub fn frame(&self, page: u64, intent: Intent) -> Result<Option<Frame>, CacheError> {
        if page >= self.size_in_pages() {
            return Ok(None);
        }
        if self.tail_is_unclean(page) {
            let _change = self.change.lock();
            if self.tail_is_unclean(page) {
                self.clean_tail();
            }
        }
        self.page(page, intent, true).map(Some)
    }

    /// The frame of a page whatever the size. With `bring` false an absent page begins as zeros even if the representative
    /// has bytes for it.
    pub(super) fn page(&self, page: u64, intent: Intent, bring: bool) -> Result<Frame, CacheError> {
        loop {
            let frame = match self.look_up(page) {
                Found::Present(frame) => frame,
                Found::Filling => {
                    parking::wait_while(self.key(), &|| matches!(self.look_up(page), Found::Filling));
                    continue;
                }
                Found::Absent => match self.make(page, bring)? {
                    Some(frame) => frame,
                    None => continue,
                },
            };
            if intent == Intent::Write && !self.mark_dirty(page, &frame)? {
                continue;
            }
            return Ok(frame);
        }
    }

    fn key(&self) -> usize {
        (&raw const self.index).addr()
    }

    /// A page that was absent; None when somebody else made one first.
    fn make(&self, page: u64, bring: bool) -> Result<Option<Frame>, CacheError> {
        let fill = self.representative.as_ref().filter(|_| bring && page < self.size_in_pages());
        let zeroed = if fill.is_some() { Zeroed::No } else { Zeroed::Yes };
        let frame = Frame::allocate(self.purpose(), zeroed)?;
        let word = word_of(frame.physical());
        let first = if fill.is_some() { filling(word) } else { word };
        if !self.enter(page, first, &frame)? {
            return Ok(None);
        }
        if let Some(representative) = fill {
            let filled = representative.fill(page, &frame);
            let mut index = self.edit();
            if filled.is_ok() {
                index.replace(page, word);
            } else {
                index.remove(page);
                self.count_present(-1);
            }
            drop(index);
            parking::wake(self.key());
            if let Err(error) = filled {
                // The index's reference was handed over by `enter`. Readers take none of a frame that is filling.
                drop(super::cache::owned_frame(word));
                if let Some(budget) = &self.budget {
                    budget.release(1);
                }
                return Err(error);
            }
        }
        Ok(Some(frame))
    }

    /// Puts a word into the index if the page is absent, with a reference of its own and within the budget.
    fn enter(&self, page: u64, word: NonZeroU64, frame: &Frame) -> Result<bool, CacheError> {
        if self.budget.as_ref().is_some_and(|budget| !budget.charge(1)) {
            return Err(CacheError::NoSpace);
        }
        let of_index = frame.clone();
        let entered = self.insert_word(page, word);
        if entered == Ok(true) {
            let _ = of_index.into_physical();
        } else if let Some(budget) = &self.budget {
            budget.release(1);
        }
        Ok(entered?)
    }

    /// Enters a frame that the caller has filled in the place of an absent page; false when there is one by now.
    pub(super) fn offer(&self, page: u64, frame: &Frame) -> Result<bool, CacheError> {
        self.enter(page, word_of(frame.physical()), frame)
    }

    /// Notes that a page is about to be newer than what the representative has; false when the page has gone from the cache by now.
    pub(crate) fn mark_dirty(&self, page: u64, frame: &Frame) -> Result<bool, CacheError> {
        let Some(representative) = &self.representative else { return Ok(true) };
        if self.is_dirty(page) {
            return Ok(true);
        }
        representative.prepare_write(page)?;
        let mut index = self.edit();
        let is_there = index.get(page) == Some(word_of(frame.physical()));
        if is_there {
            index.set_tag(page, Tag::Dirty);
        }
        Ok(is_there)
    }

    /// Whether a page awaits being written back.
    #[must_use]
    pub fn is_dirty(&self, page: u64) -> bool {
        self.index.has_tag(page, Tag::Dirty, &rcu::read())
    }
}

fn filling(word: NonZeroU64) -> NonZeroU64 {
    word | FILLING
}
