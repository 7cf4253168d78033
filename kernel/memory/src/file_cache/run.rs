//! Neighbouring pages on their way between a cache and their home.
//!
//! A run owns what its pages need to be there: a reference of each frame, and of the cache. It ends once, by [`PageRun::complete`], or fails for want of memory when it is
//! dropped, so that nobody waits for ever for a transfer that got lost.
//!
//! | | begins | ends well | ends with an error |
//! |---|---|---|---|
//! | fill | absent → *filling* | present | absent; who asked for the page is told |
//! | write | *dirty* → *write-back* | clean | clean, and the file's error is noted; without memory: dirty |
//!
//! A page whose write failed is not tried again: the disk would refuse it for ever, and memory would fill up. Those who wrote are told ([`super::errors`]).

use super::CacheError;
use super::backing::Backing;
use super::cache::{FileCache, owned_frame, word_of};
use super::lookup::filling;
use crate::frame::Frame;
use crate::page_index::Tag;
use crate::parking;
use alloc::sync::Arc;
use arrayvec::ArrayVec;
use core::sync::atomic::{AtomicU32, Ordering};
use machine::address::{PAGE_SHIFT, PAGE_SIZE};

/// Pages of a run at most: 128 KiB.
pub const RUN_PAGES: usize = 32;

/// Which way pages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Fill {
        /// The file's size when the run began.
        size: u64,
    },
    Write,
}

/// How the pages that somebody waits for have fared.
pub(super) struct Outcome {
    /// [`PENDING`], or how it ended.
    state: AtomicU32,
}

const PENDING: u32 = 0;
const DONE: u32 = 1;
const FAILED: u32 = 2;

impl Outcome {
    pub(super) const fn new() -> Outcome {
        Outcome { state: AtomicU32::new(PENDING) }
    }

    /// Sleeps until it is known.
    pub(super) fn wait(&self) -> Result<(), CacheError> {
        parking::wait_while(self.key(), &|| self.state.load(Ordering::Acquire) == PENDING);
        match self.state.load(Ordering::Acquire) {
            DONE => Ok(()),
            state => Err(CacheError::from_code(state - FAILED)),
        }
    }

    fn tell(&self, result: Result<(), CacheError>) {
        let state = match result {
            Ok(()) => DONE,
            Err(error) => FAILED + error.code(),
        };
        // Release: who sees it sees the pages.
        self.state.store(state, Ordering::Release);
        parking::wake(self.key());
    }

    fn key(&self) -> usize {
        (&raw const self.state).addr()
    }
}

/// See the theory of this file.
pub struct PageRun {
    cache: Arc<FileCache>,
    first: u64,
    way: Way,
    /// Whom to tell of the first page's fate.
    outcome: Option<Arc<Outcome>>,
    frames: ArrayVec<Frame, RUN_PAGES>,
}

impl PageRun {
    pub(super) fn new(cache: Arc<FileCache>, first: u64, way: Way, outcome: Option<Arc<Outcome>>) -> PageRun {
        PageRun { cache, first, way, outcome, frames: ArrayVec::new_const() }
    }

    pub(super) fn push(&mut self, frame: Frame) {
        self.frames.push(frame);
    }

    pub(super) fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    /// The page behind the last one.
    pub(super) fn end(&self) -> u64 {
        self.first + self.frames.len() as u64
    }

    /// The number of the first page.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The file that the pages are of.
    #[must_use]
    pub fn cache(&self) -> &Arc<FileCache> {
        &self.cache
    }

    /// The frames, in file order.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Pages; 0 only of what is left when all were split off.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.frames.len()
    }

    /// Takes the first pages into a run of their own.
    ///
    /// # Panics
    /// When there are not that many.
    #[must_use]
    pub fn split(&mut self, pages: usize) -> PageRun {
        let front = PageRun {
            cache: self.cache.clone(),
            first: self.first,
            way: self.way,
            outcome: self.outcome.take(),
            frames: self.frames.drain(..pages).collect(),
        };
        self.first += pages as u64;
        front
    }

    /// The transfer has ended. May not be called under spin locks.
    pub fn complete(mut self, result: Result<(), CacheError>) {
        self.end_all(result);
    }

    fn end_all(&mut self, result: Result<(), CacheError>) {
        if self.frames.is_empty() {
            return;
        }
        let backing = self.cache.backing().expect("only such caches have runs");
        let frames = core::mem::take(&mut self.frames);
        match self.way {
            Way::Fill { size } => self.end_fill(size, frames, result),
            Way::Write => {
                // The index has references of its own: who finds a page clean may give it up.
                let pages = frames.len() as u64;
                drop(frames);
                self.end_write(backing, pages, result);
            }
        }
        parking::wake(self.cache.key());
        if let Some(outcome) = self.outcome.take() {
            outcome.tell(result);
        }
    }

    fn end_fill(&self, size: u64, mut frames: ArrayVec<Frame, RUN_PAGES>, result: Result<(), CacheError>) {
        if result.is_ok()
            && let Some(last) = (size >> PAGE_SHIFT).checked_sub(self.first)
            && let Some(frame) = frames.get(last as usize)
        {
            let valid = size as usize & (PAGE_SIZE - 1);
            frame.zero_range(valid, PAGE_SIZE - valid);
        }
        let mut index = self.cache.edit();
        for (page, frame) in (self.first..).zip(&frames) {
            let word = word_of(frame.physical());
            debug_assert_eq!(index.get(page), Some(filling(word)), "a page that is being filled stays");
            if result.is_ok() {
                index.replace(page, word);
            } else {
                index.remove(page);
            }
        }
        if result.is_err() {
            self.cache.count_present(-(frames.len() as i64));
        } else {
            // Who finds a page there may give it up: from here on the index alone has it.
            frames.clear();
        }
        drop(index);
        if result.is_err() {
            // The references of the index. Readers take none of a frame that is filling.
            frames.iter().for_each(|frame| drop(owned_frame(word_of(frame.physical()))));
        }
    }

    fn end_write(&self, backing: &Backing, pages: u64, result: Result<(), CacheError>) {
        let again = result == Err(CacheError::OutOfMemory);
        if let Err(error) = result
            && !again
        {
            backing.errors.note(error);
            backing.device.write_errors().note(error);
        }
        if again {
            // Release: before the pages are seen to have arrived.
            backing.starved.fetch_add(1, Ordering::Release);
        }
        let mut index = self.cache.edit();
        let mut dirty = 0;
        for page in self.first..self.first + pages {
            index.clear_tag(page, Tag::Writeback);
            if again && !index.has_tag(page, Tag::Dirty) {
                index.set_tag(page, Tag::Dirty);
                dirty += 1;
            }
        }
        backing.count(dirty, -(pages as i64));
        drop(index);
        backing.device.wrote(if again { 0 } else { pages });
        if dirty > 0 {
            backing.enqueue(&self.cache, true);
        }
    }
}

impl Drop for PageRun {
    /// Nobody could be found to take it: pages that were to be written come again.
    fn drop(&mut self) {
        self.end_all(Err(CacheError::OutOfMemory));
    }
}
