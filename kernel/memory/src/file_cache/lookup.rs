//! Finding and making pages. Look-ups take no lock; see the theory of [`FileCache`].

use super::backing::Backing;
use super::cache::{
    CacheError, FILLING, FileCache, Moved, Supply, TAIL_MAPPED, TAIL_UNCLEAN, page_of, take_frame,
    within_page, word_of,
};
use super::run::{Outcome, PageRun, Way};
use super::variant;
use crate::fallible;
use crate::frame::{Frame, Zeroed};
use crate::page_index::Tag;
use crate::parking;
use core::num::NonZeroU64;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;
use machine::address::PAGE_SIZE;
use sync::rcu;

/// Pages that are counted while nothing may be freed.
const CENSUS_STEP: usize = 512;

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

    /// Whether a page is in memory or on its way there.
    #[must_use]
    pub fn is_known(&self, page: u64) -> bool {
        self.index.get(page, &rcu::read()).is_some()
    }

    /// The frame of a page that may be shown whole to a program right away, for a fault that holds a spin lock.
    #[inline]
    pub(crate) fn mappable(&self, page: u64) -> Option<Frame> {
        if self.tail_is_unclean(page) {
            return None;
        }
        self.cached(page)
    }

    /// Calls `map` with the frames in memory from `first` up to `end` that are wanted and may be shown whole to a program, for a fault that holds
    /// a spin lock.
    #[inline]
    pub(crate) fn for_each_mappable(
        &self,
        first: u64,
        end: u64,
        wanted: impl Fn(u64) -> bool,
        mut map: impl FnMut(u64, Frame),
    ) {
        // It is set only before there are pages.
        let tail_may_be_unclean = self.flags.load(Ordering::Acquire) & TAIL_UNCLEAN != 0;
        let guard = rcu::read();
        let _ = self.index.gang(first, end, None, &guard, |page, place| {
            // A page that has just gone is left out.
            if wanted(page)
                && !(tail_may_be_unclean && self.tail_is_unclean(page))
                && let Ok(Some(frame)) = take_frame(&place)
            {
                map(page, frame);
            }
            ControlFlow::<()>::Continue(())
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
        self.flags.load(Ordering::Relaxed) & (TAIL_UNCLEAN | TAIL_MAPPED) != 0
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
        if !self.is_mapped() {
            self.flags.fetch_and(!TAIL_MAPPED, Ordering::Relaxed);
        }
    }

    /// Prepares for the file to become longer: what the last page has beyond the present size becomes visible. Where pages have another
    /// home, that must get the zeros, too. `change` is held.
    pub(super) fn prepare_growth(&self) -> Result<(), CacheError> {
        let size = self.size();
        if self.has_representative() && within_page(size) != 0 {
            let last = self.page(page_of(size), Intent::Write, true)?;
            if self.tail_may_show() {
                self.clean_tail();
            }
            self.mark_changed(page_of(size), &last);
        } else if self.tail_may_show() {
            self.clean_tail();
        }
        Ok(())
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

    /// What those wait for who wait for a page.
    pub(super) fn key(&self) -> usize {
        (&raw const self.index).addr()
    }

    /// A page that was absent; None when somebody else made one first.
    fn make(&self, page: u64, bring: bool) -> Result<Option<Frame>, CacheError> {
        if let Some(backing) = self.backing()
            && bring
            && page < self.size_in_pages()
        {
            return self.bring(backing, page);
        }
        let frame = Frame::allocate(self.purpose(), Zeroed::Yes)?;
        let entered = self.enter(page, word_of(frame.physical()), &frame)?;
        Ok(entered.then_some(frame))
    }

    /// Has the representative bring a page in; None when somebody else does it already.
    #[inline(never)]
    fn bring(&self, backing: &Backing, page: u64) -> Result<Option<Frame>, CacheError> {
        let outcome = fallible::try_arc(Outcome::new())?;
        let frame = Frame::allocate(self.purpose(), Zeroed::No)?;
        let size = self.size();
        if !self.enter(page, filling(word_of(frame.physical())), &frame)? {
            return Ok(None);
        }
        let mut run = PageRun::new(backing.own(), page, Way::Fill { size }, Some(outcome.clone()));
        run.push(frame.clone());
        if self.size() < size {
            // Cut off meanwhile, and who did so may not have seen the page: it begins again.
            return Ok(None);
        }
        backing.representative.fill(run);
        outcome.wait()?;
        Ok(Some(frame))
    }

    /// Begins to bring pages in from `first` up to `end`, those that are absent, as far as there is memory. Does not wait for
    /// them. Returns how many.
    pub fn read_ahead(&self, first: u64, end: u64) -> usize {
        let Some(backing) = self.backing() else { return 0 };
        let size = self.size();
        let end = end.min(size.div_ceil(PAGE_SIZE as u64));
        let mut begun = 0;
        let mut run = None;
        for page in first..end {
            if self.index.get(page, &rcu::read()).is_none()
                && let Ok(frame) = Frame::allocate(self.purpose(), Zeroed::No)
                && self.enter(page, filling(word_of(frame.physical())), &frame) == Ok(true)
            {
                let run =
                    run.get_or_insert_with(|| PageRun::new(backing.own(), page, Way::Fill { size }, None));
                run.push(frame);
                if self.size() < size {
                    break;
                }
                begun += 1;
                if !run.is_full() {
                    continue;
                }
            }
            if let Some(run) = run.take() {
                backing.representative.fill(run);
            }
        }
        // What was cut off while pages were entered was perhaps done by somebody who has not seen them.
        if let Some(run) = run
            && self.size() >= size
        {
            backing.representative.fill(run);
        }
        begun
    }

    /// Puts a word into the index if the page is absent, with a reference of its own and within the budget.
    fn enter(&self, page: u64, word: NonZeroU64, frame: &Frame) -> Result<bool, CacheError> {
        if matches!(&self.supply, Supply::Limited(budget) if !budget.charge(1)) {
            return Err(CacheError::NoSpace);
        }
        let of_index = frame.clone();
        let entered = self.insert_word(page, word);
        if entered == Ok(true) {
            let _ = of_index.into_physical();
        } else if let Supply::Limited(budget) = &self.supply {
            budget.release(1);
        }
        Ok(entered?)
    }

    /// Enters a frame that the caller has filled in the place of an absent page; false when there is one by now.
    pub(super) fn offer(&self, page: u64, frame: &Frame) -> Result<bool, CacheError> {
        self.enter(page, word_of(frame.physical()), frame)
    }

    /// Notes that a page is about to be newer than what the representative has; false when the page has gone from the cache by now.
    /// A page that is being written is waited for, so that the device gets the bytes of one moment.
    pub(crate) fn mark_dirty(&self, page: u64, frame: &Frame) -> Result<bool, CacheError> {
        let Some(backing) = self.backing() else { return Ok(true) };
        if self.is_dirty(page) {
            return Ok(true);
        }
        self.wait_written(page);
        let reserved = Reserved::new(backing, page)?;
        Ok(match self.tag_dirty(backing, page, frame) {
            Tagged::Now => {
                reserved.keep();
                true
            }
            Tagged::Before => true,
            Tagged::Absent => false,
        })
    }

    /// A mapping gives the right to store to a dirty page.
    pub(crate) fn note_stores(&self) {
        if let Some(backing) = self.backing() {
            backing.representative.note_stores();
        }
    }

    /// The bytes of a page were changed: if it was written back meanwhile, it is dirty again. The caller has kept a reference since before
    /// [`FileCache::mark_dirty`], so the page has not been given up.
    pub(super) fn mark_changed(&self, page: u64, frame: &Frame) {
        if let Some(backing) = self.backing()
            && !self.is_dirty(page)
        {
            self.tag_dirty(backing, page, frame);
        }
    }

    /// Tags a page.
    pub(super) fn tag_dirty(&self, backing: &Backing, page: u64, frame: &Frame) -> Tagged {
        let mut index = self.edit();
        if index.get(page) != Some(word_of(frame.physical())) {
            return Tagged::Absent;
        }
        if index.has_tag(page, Tag::Dirty) {
            return Tagged::Before;
        }
        index.set_tag(page, Tag::Dirty);
        backing.count(1, 0);
        drop(index);
        backing.enqueue(&backing.own(), false);
        Tagged::Now
    }

    /// How many pages from `first` up to, not including, `end` are in memory, and in which state.
    #[must_use]
    pub fn census(&self, first: u64, end: u64) -> Census {
        let mut census = Census::default();
        let mut from = Some(first);
        while let Some(first) = from {
            let guard = rcu::read();
            let mut left = CENSUS_STEP;
            from = match self.index.gang(first, end, None, &guard, |page, place| {
                census.cached += u64::from(place.word().get() & FILLING == 0);
                left -= 1;
                if left == 0 { ControlFlow::Break(page) } else { ControlFlow::Continue(()) }
            }) {
                ControlFlow::Break(page) => page.checked_add(1),
                ControlFlow::Continue(()) => None,
            };
            let end = from.unwrap_or(end);
            for (tag, count) in [(Tag::Dirty, &mut census.dirty), (Tag::Writeback, &mut census.write_back)] {
                let _ = self.index.gang(first, end, Some(tag), &guard, |_, _| {
                    *count += 1;
                    ControlFlow::<()>::Continue(())
                });
            }
        }
        census
    }

    /// The first page in a range that has what its home has not: that awaits being written back, or is just being written. With `any` all
    /// pages in memory count.
    #[must_use]
    pub fn next_kept(&self, first: u64, end: u64, any: bool) -> Option<u64> {
        let guard = rcu::read();
        let find = |tag| match self.index.gang(first, end, tag, &guard, |page, place| {
            if place.word().get() & FILLING == 0 {
                ControlFlow::Break(page)
            } else {
                ControlFlow::Continue(())
            }
        }) {
            ControlFlow::Break(page) => Some(page),
            ControlFlow::Continue(()) => None,
        };
        if any {
            return find(None);
        }
        let (dirty, written) = (find(Some(Tag::Dirty)), find(Some(Tag::Writeback)));
        dirty.into_iter().chain(written).min()
    }

    /// Whether a page awaits being written back.
    #[must_use]
    pub fn is_dirty(&self, page: u64) -> bool {
        self.index.has_tag(page, Tag::Dirty, &rcu::read())
    }
}

/// Pages of a part of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Those in memory.
    pub cached: u64,
    /// Those of them that await being written back.
    pub dirty: u64,
    /// Those that are just being written.
    pub write_back: u64,
}

/// What tagging a page as dirty came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tagged {
    /// It became dirty by this.
    Now,
    /// It was dirty.
    Before,
    /// It is not in the cache.
    Absent,
}

/// What the representative has reserved for a page that is to become dirty. Given back unless it is kept.
pub(super) struct Reserved<'a> {
    backing: &'a Backing,
    page: u64,
    held: bool,
}

impl<'a> Reserved<'a> {
    pub(super) fn new(backing: &'a Backing, page: u64) -> Result<Self, CacheError> {
        let held = backing.representative.prepare_write(page)?;
        Ok(Self { backing, page, held })
    }

    /// The page is dirty now: who writes it back, or cuts it off, has it from here on.
    pub(super) fn keep(mut self) {
        self.held = false;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.held {
            self.backing.representative.forget_write(self.page);
        }
    }
}

pub(super) fn filling(word: NonZeroU64) -> NonZeroU64 {
    word | FILLING
}
