//! What every page index can do.

use crate::OutOfMemory;
use core::num::NonZeroU64;

/// What an index says about a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Newer than what the file's representative has.
    Dirty = 0,
    /// Being written by the representative.
    Writeback = 1,
    /// Was dirty when a write-back began, and is its to write. Pages that become dirty meanwhile are not, so that the
    /// write-back of a file that is written all the time ends.
    ToWrite = 2,
}

/// How many tags there are.
pub const TAGS: usize = 3;

impl Tag {
    /// All of them.
    pub const ALL: [Tag; TAGS] = [Tag::Dirty, Tag::Writeback, Tag::ToWrite];
}

/// A map from page numbers to words. A word is not zero, and its second lowest bit is clear.
pub trait PageIndex {
    /// The word of a page.
    fn lookup(&self, page: u64) -> Option<NonZeroU64>;

    /// Puts a word for a page that has none.
    ///
    /// # Errors
    /// When there is no memory; nothing has changed then.
    fn insert(&mut self, page: u64, word: NonZeroU64) -> Result<(), OutOfMemory>;

    /// Takes a page out, with its tags.
    fn remove(&mut self, page: u64) -> Option<NonZeroU64>;

    /// Tags a page, if it is there.
    fn set_tag(&mut self, page: u64, tag: Tag);

    /// Takes the tag from a page.
    fn clear_tag(&mut self, page: u64, tag: Tag);

    /// Whether a page is there and has the tag.
    fn has_tag(&self, page: u64, tag: Tag) -> bool;

    /// Fills `into` with pages from `first` on, in ascending order; returns how many.
    fn gang(&self, first: u64, into: &mut [(u64, NonZeroU64)]) -> usize;

    /// As [`PageIndex::gang`], with the tag only.
    fn gang_tag(&self, first: u64, tag: Tag, into: &mut [(u64, NonZeroU64)]) -> usize;
}
