//! Alternative A: an extendible hash table (specs/page-cache.md 13).
//!
//! A *directory* of 2^depth numbers of *buckets* is indexed by the highest bits of a page's hash; two steps lead to any page. A bucket
//! knows its own depth: 2^(depth − own depth) places of the directory lead to it. A full bucket is split in two, each with half of these
//! places; when only one leads to it, the directory is doubled first. It does not get
//! smaller on removals. There is no order, so a gang look-up looks at every page.

use super::{PageIndex, Tag};
use crate::{OutOfMemory, fallible};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU64;

/// Pages of a bucket.
const SLOTS: usize = 32;

#[derive(Clone, Copy)]
struct Entry {
    page: u64,
    word: Option<NonZeroU64>,
    tags: u8,
}

const VACANT: Entry = Entry { page: 0, word: None, tags: 0 };

struct Bucket {
    depth: u32,
    used: u32,
    entries: Box<[Entry; SLOTS]>,
}

/// See the theory of this file.
pub struct ExtendibleHash {
    /// Numbers of buckets.
    directory: Vec<u32>,
    depth: u32,
    buckets: Vec<Bucket>,
}

fn hash(page: u64) -> u64 {
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl ExtendibleHash {
    /// An empty one.
    ///
    /// # Errors
    /// When there is no memory for its first bucket.
    pub fn new() -> Result<Self, OutOfMemory> {
        let mut buckets = fallible::try_vec(1)?;
        buckets.push(Self::bucket(0)?);
        let mut directory = fallible::try_vec(1)?;
        directory.push(0);
        Ok(Self { directory, depth: 0, buckets })
    }

    fn bucket(depth: u32) -> Result<Bucket, OutOfMemory> {
        Ok(Bucket { depth, used: 0, entries: fallible::try_box([VACANT; SLOTS])? })
    }

    fn place(&self, hash: u64) -> usize {
        if self.depth == 0 { 0 } else { (hash >> (u64::BITS - self.depth)) as usize }
    }

    fn bucket_of(&self, page: u64) -> u32 {
        self.directory[self.place(hash(page))]
    }

    fn find(&self, page: u64) -> Option<(usize, usize)> {
        let number = self.bucket_of(page) as usize;
        let entries = &self.buckets[number].entries;
        let slot = entries.iter().position(|entry| entry.page == page && entry.word.is_some())?;
        Some((number, slot))
    }

    fn split(&mut self, number: u32) -> Result<(), OutOfMemory> {
        let depth = self.buckets[number as usize].depth;
        if depth == self.depth {
            let mut doubled = fallible::try_vec(2 * self.directory.len())?;
            doubled.extend(self.directory.iter().flat_map(|&bucket| [bucket, bucket]));
            self.directory = doubled;
            self.depth += 1;
        }
        let second = Self::bucket(depth + 1)?;
        fallible::try_push(&mut self.buckets, second)?;
        let new = self.buckets.len() - 1;
        self.buckets[number as usize].depth = depth + 1;
        // The bit that tells the two apart.
        let bit = u64::BITS - 1 - depth;
        let entries = core::mem::replace(&mut *self.buckets[number as usize].entries, [VACANT; SLOTS]);
        self.buckets[number as usize].used = 0;
        for entry in entries.into_iter().filter(|entry| entry.word.is_some()) {
            let to = if hash(entry.page) >> bit & 1 == 0 { number as usize } else { new };
            Self::put(&mut self.buckets[to], entry);
        }
        let upper = self.depth - depth - 1;
        for (place, bucket) in self.directory.iter_mut().enumerate() {
            if *bucket == number && place >> upper & 1 == 1 {
                *bucket = new as u32;
            }
        }
        Ok(())
    }

    fn put(bucket: &mut Bucket, entry: Entry) {
        let slot = bucket.entries.iter().position(|entry| entry.word.is_none()).expect("there is room");
        bucket.entries[slot] = entry;
        bucket.used += 1;
    }
}

impl PageIndex for ExtendibleHash {
    fn lookup(&self, page: u64) -> Option<NonZeroU64> {
        self.find(page).and_then(|(bucket, slot)| self.buckets[bucket].entries[slot].word)
    }

    fn insert(&mut self, page: u64, word: NonZeroU64) -> Result<(), OutOfMemory> {
        loop {
            let number = self.bucket_of(page);
            let bucket = &mut self.buckets[number as usize];
            if (bucket.used as usize) < SLOTS {
                Self::put(bucket, Entry { page, word: Some(word), tags: 0 });
                return Ok(());
            }
            self.split(number)?;
        }
    }

    fn remove(&mut self, page: u64) -> Option<NonZeroU64> {
        let (bucket, slot) = self.find(page)?;
        let bucket = &mut self.buckets[bucket];
        bucket.used -= 1;
        core::mem::replace(&mut bucket.entries[slot], VACANT).word
    }

    fn set_tag(&mut self, page: u64, tag: Tag) {
        if let Some((bucket, slot)) = self.find(page) {
            self.buckets[bucket].entries[slot].tags |= 1 << tag as u8;
        }
    }

    fn clear_tag(&mut self, page: u64, tag: Tag) {
        if let Some((bucket, slot)) = self.find(page) {
            self.buckets[bucket].entries[slot].tags &= !(1 << tag as u8);
        }
    }

    fn has_tag(&self, page: u64, tag: Tag) -> bool {
        self.find(page)
            .is_some_and(|(bucket, slot)| self.buckets[bucket].entries[slot].tags & (1 << tag as u8) != 0)
    }

    fn gang(&self, first: u64, into: &mut [(u64, NonZeroU64)]) -> usize {
        self.smallest(first, None, into)
    }

    fn gang_tag(&self, first: u64, tag: Tag, into: &mut [(u64, NonZeroU64)]) -> usize {
        self.smallest(first, Some(tag), into)
    }
}

impl ExtendibleHash {
    /// The smallest pages from `first` on, of all there are.
    fn smallest(&self, first: u64, tag: Option<Tag>, into: &mut [(u64, NonZeroU64)]) -> usize {
        let mut filled = 0;
        for entry in self.buckets.iter().flat_map(|bucket| bucket.entries.iter()) {
            let Some(word) = entry.word else { continue };
            if entry.page < first || tag.is_some_and(|tag| entry.tags & (1 << tag as u8) == 0) {
                continue;
            }
            let at = into[..filled].partition_point(|&(page, _)| page < entry.page);
            if at < into.len() {
                filled = (filled + 1).min(into.len());
                into[at..filled].rotate_right(1);
                into[at] = (entry.page, word);
            }
        }
        filled
    }
}
