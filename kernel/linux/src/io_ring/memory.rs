//! The memory that a ring shares with programs.
//!
//! Two regions, each a file cache whose pages the kernel holds as well: the rings (heads, tails, flags, completions, and the array of
//! submissions), and the entries of submissions. A program maps them with `mmap` at the offsets of the manual. Whatever stands there is
//! the program's to change at any moment: a word is read once, atomically, and what it says is checked before it is used. Mappings may
//! be cut and their pages thrown away; the kernel's own references to the frames stay.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;

use ::memory::fallible;
use ::memory::file_cache::{CacheKind, FileCache};
use ::memory::frame::{Frame, Purpose, Zeroed};
use machine::address::PAGE_SIZE;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::abi::{Completion, CompletionOffsets, Entry, SubmissionOffsets};
use crate::errno::Errno;

/// Offsets for `mmap`.
const RINGS_OFFSET: u64 = 0;
const COMPLETIONS_OFFSET: u64 = 0x800_0000;
const ENTRIES_OFFSET: u64 = 0x1000_0000;

/// Where the words of the rings are. What one side writes is on a line of its own.
pub(super) mod word {
    pub(crate) const SUBMISSION_HEAD: usize = 0;
    pub(crate) const SUBMISSION_TAIL: usize = 64;
    pub(crate) const COMPLETION_HEAD: usize = 128;
    pub(crate) const COMPLETION_TAIL: usize = 192;
    pub(crate) const SUBMISSION_MASK: usize = 256;
    pub(crate) const SUBMISSION_ENTRIES: usize = 260;
    pub(crate) const COMPLETION_MASK: usize = 264;
    pub(crate) const COMPLETION_ENTRIES: usize = 268;
    pub(crate) const SUBMISSION_DROPPED: usize = 272;
    pub(crate) const SUBMISSION_FLAGS: usize = 276;
    pub(crate) const COMPLETION_FLAGS: usize = 280;
    pub(crate) const COMPLETION_OVERFLOW: usize = 284;
}
/// Where the completions begin.
const COMPLETIONS_AT: usize = 320;

/// Frames that programs can map.
struct Region {
    frames: Vec<Frame>,
    cache: Arc<FileCache>,
}

impl Region {
    fn new(bytes: usize) -> Result<Self, Errno> {
        let pages = bytes.div_ceil(PAGE_SIZE);
        let mut frames = fallible::try_vec(pages).map_err(|_| Errno::ENOMEM)?;
        for _ in 0..pages {
            frames.push(Frame::allocate(Purpose::Shmem, Zeroed::Yes).map_err(|_| Errno::ENOMEM)?);
        }
        let cache = fallible::try_arc(FileCache::new(CacheKind::SharedMemory)).map_err(|_| Errno::ENOMEM)?;
        cache.adopt((pages * PAGE_SIZE) as u64, frames.iter().cloned()).map_err(|_| Errno::ENOMEM)?;
        Ok(Self { frames, cache })
    }

    fn bytes(&self) -> u64 {
        (self.frames.len() * PAGE_SIZE) as u64
    }

    /// What begins there; it never crosses a page, because sizes divide a page's.
    fn read<T: FromBytes + IntoBytes>(&self, at: usize) -> T {
        let mut value = T::new_zeroed();
        self.frames[at / PAGE_SIZE].read(at % PAGE_SIZE, value.as_mut_bytes());
        value
    }

    fn write<T: IntoBytes + Immutable>(&self, at: usize, value: &T) {
        self.frames[at / PAGE_SIZE].write(at % PAGE_SIZE, value.as_bytes());
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        self.frames[at / PAGE_SIZE].word(at % PAGE_SIZE)
    }
}

/// Both regions of a ring.
pub(super) struct RingMemory {
    rings: Region,
    entries: Region,
    /// Powers of two, as are all numbers of places.
    pub(super) submission_entries: u32,
    pub(super) completion_entries: u32,
}

impl RingMemory {
    /// Pages that rings of those sizes take.
    pub(super) fn pages(submission_entries: u32, completion_entries: u32) -> u64 {
        let rings = Self::array_at(completion_entries) + submission_entries as usize * size_of::<u32>();
        let entries = submission_entries as usize * size_of::<Entry>();
        (rings.div_ceil(PAGE_SIZE) + entries.div_ceil(PAGE_SIZE)) as u64
    }

    pub(super) fn new(submission_entries: u32, completion_entries: u32) -> Result<Self, Errno> {
        assert!(submission_entries.is_power_of_two() && completion_entries.is_power_of_two());
        let array_end = Self::array_at(completion_entries) + submission_entries as usize * size_of::<u32>();
        let memory = Self {
            rings: Region::new(array_end)?,
            entries: Region::new(submission_entries as usize * size_of::<Entry>())?,
            submission_entries,
            completion_entries,
        };
        for (at, value) in [
            (word::SUBMISSION_MASK, submission_entries - 1),
            (word::SUBMISSION_ENTRIES, submission_entries),
            (word::COMPLETION_MASK, completion_entries - 1),
            (word::COMPLETION_ENTRIES, completion_entries),
        ] {
            memory.rings.write(at, &value);
        }
        Ok(memory)
    }

    fn array_at(completion_entries: u32) -> usize {
        (COMPLETIONS_AT + completion_entries as usize * size_of::<Completion>()).next_multiple_of(64)
    }

    /// What the program is told of where things are.
    pub(super) fn offsets(&self) -> (SubmissionOffsets, CompletionOffsets) {
        let submission = SubmissionOffsets {
            head: word::SUBMISSION_HEAD as u32,
            tail: word::SUBMISSION_TAIL as u32,
            mask: word::SUBMISSION_MASK as u32,
            entries: word::SUBMISSION_ENTRIES as u32,
            flags: word::SUBMISSION_FLAGS as u32,
            dropped: word::SUBMISSION_DROPPED as u32,
            array: Self::array_at(self.completion_entries) as u32,
            reserved: [0; 3],
        };
        let completion = CompletionOffsets {
            head: word::COMPLETION_HEAD as u32,
            tail: word::COMPLETION_TAIL as u32,
            mask: word::COMPLETION_MASK as u32,
            entries: word::COMPLETION_ENTRIES as u32,
            overflow: word::COMPLETION_OVERFLOW as u32,
            completions: COMPLETIONS_AT as u32,
            flags: word::COMPLETION_FLAGS as u32,
            reserved: [0; 3],
        };
        (submission, completion)
    }

    /// A word of the first page.
    pub(super) fn word(&self, at: usize) -> &AtomicU32 {
        self.rings.word(at)
    }

    /// Entries that the program has put in behind those that were taken. More than there are places means nothing.
    pub(super) fn waiting_entries(&self, taken: u32) -> u32 {
        // Acquire: entries were written before the tail.
        let tail = self.word(word::SUBMISSION_TAIL).load(core::sync::atomic::Ordering::Acquire);
        tail.wrapping_sub(taken).min(self.submission_entries)
    }

    /// The number of the entry that is submitted at a position of the ring. It may be any number.
    pub(super) fn submitted(&self, position: u32) -> u32 {
        let index = (position & (self.submission_entries - 1)) as usize;
        let at = Self::array_at(self.completion_entries) + index * size_of::<u32>();
        // Relaxed: the tail's load has ordered it.
        self.rings.word(at).load(core::sync::atomic::Ordering::Relaxed)
    }

    /// A copy of an entry, made once.
    pub(super) fn entry(&self, number: u32) -> Option<Entry> {
        (number < self.submission_entries).then(|| self.entries.read(number as usize * size_of::<Entry>()))
    }

    /// Stores a completion at a position of the ring.
    pub(super) fn store(&self, position: u32, completion: &Completion) {
        let index = (position & (self.completion_entries - 1)) as usize;
        self.rings.write(COMPLETIONS_AT + index * size_of::<Completion>(), completion);
    }

    /// The pages at an offset for `mmap`, and where in them it begins. As on Linux both rings are one region.
    pub(super) fn mapping(&self, offset: u64, length: u64) -> Option<Arc<FileCache>> {
        let region = match offset {
            RINGS_OFFSET | COMPLETIONS_OFFSET => &self.rings,
            ENTRIES_OFFSET => &self.entries,
            _ => return None,
        };
        (length <= region.bytes()).then(|| region.cache.clone())
    }
}

const _: () = assert!(PAGE_SIZE.is_multiple_of(size_of::<Entry>()));
const _: () = assert!(COMPLETIONS_AT.is_multiple_of(size_of::<Completion>()));
