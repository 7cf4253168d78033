//! The file cache: state, size, creation and end.
//!
//! **A page** is absent, *filling* (in the index with [`FILLING`] set; one thread fills it, others wait) or present.
//! The index owns one reference of each frame. It is read under RCU, and so are frames: a reference that leaves the index is dropped a
//! grace period later. So whoever holds an RCU guard may copy bytes of a frame that it found, and takes a reference of its own only to
//! keep the frame for longer.
//!
//! **Locks**, in this order:
//! 1. `change` (sleeps): held by whoever changes the size or needs it constant: writes, truncation, holes.
//! 2. that of the index (spins): held for the moment of an edit, never while bytes are copied, memory is allocated or a
//!    representative is called.
//!
//! **Look-ups beside edits.** A look-up may find a page that leaves the index at that moment. Readers copy what the page had then, as if they
//! had come a little earlier. Who takes a reference looks again whether the page is still there, and so does who tags it. A fault
//! looks up and installs under its region lock; pages are unmapped after they have left the index, so one of both finds the other.
//!
//! **Size.** The size changes under `change`; a reader takes it once for each batch. Bytes of the last page beyond
//! the size are zero, with two exceptions: pages adopted from the boot archive may have the archive's next bytes there
//! until the page is first shown whole ([`TAIL_UNCLEAN`]), and programs may write there through a mapping.
//!
//! **Mappings.** `mappings` counts the [`crate::region::FileMapping`]s. While it is zero nobody maps a page, so that
//! truncation looks for mapped pages only where there can be any.

use super::representative::FileRepresentative;
use crate::OutOfMemory;
use crate::frame::{Frame, Purpose};
use crate::page_index::{MissingNodes, Place, RadixTree, Spare, Tag};
use crate::parking::SleepLock;
use crate::per_cpu::Shared;
use alloc::sync::Arc;
use core::mem::ManuallyDrop;
use core::num::NonZeroU64;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use machine::address::{PAGE_SHIFT, PAGE_SIZE, PhysAddr};
use machine::fault::Fault;
use sync::rcu;

/// The largest size of a file.
pub const MAX_FILE_BYTES: u64 = i64::MAX as u64;

/// In an index word: the frame is being filled.
pub(super) const FILLING: u64 = 1;

/// In `flags`: the last page has foreign bytes beyond the size.
pub(super) const TAIL_UNCLEAN: u32 = 1;

/// Why an operation on a file cache fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheError {
    /// EFAULT: the program's buffer can't be accessed.
    BadAddress,
    /// ENOMEM.
    OutOfMemory,
    /// ENOSPC: the file system's budget is used up.
    NoSpace,
    /// EFBIG: beyond the largest size.
    TooBig,
    /// EIO.
    InputOutput,
}

impl From<OutOfMemory> for CacheError {
    fn from(_: OutOfMemory) -> CacheError {
        CacheError::OutOfMemory
    }
}

impl From<Fault> for CacheError {
    fn from(_: Fault) -> CacheError {
        CacheError::BadAddress
    }
}

/// What kind of pages a cache has; decides how they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKind {
    /// Pages of files.
    File,
    /// Pages of tmpfs files and of shared anonymous memory, which have no other home.
    SharedMemory,
}

/// A limit on pages that several caches share (the size of a tmpfs).
pub trait PageBudget: Send + Sync {
    /// Takes pages from the budget; false when there are not that many.
    fn charge(&self, pages: u64) -> bool;

    /// Takes pages that are there already, even beyond the limit; it may grow by them.
    fn charge_regardless(&self, pages: u64);

    /// Gives pages back.
    fn release(&self, pages: u64);
}

/// The pages of one file. See the theory of this file.
pub struct FileCache {
    pub(super) index: RadixTree,
    /// Bytes; written under `change`.
    pub(super) size: AtomicU64,
    /// Pages in the index; written under its lock.
    pub(super) present: AtomicU64,
    /// File mappings that exist.
    mappings: AtomicU32,
    pub(super) flags: AtomicU32,
    pub(super) change: SleepLock<()>,
    kind: CacheKind,
    pub(super) representative: Option<Arc<dyn FileRepresentative>>,
    pub(super) budget: Option<Shared<dyn PageBudget>>,
}

const _: () =
    assert!(size_of::<FileCache>() <= 128 || sync::classes::COUNTING, "every file in memory has one");

impl FileCache {
    /// An empty cache whose pages have no other home.
    #[must_use]
    pub const fn new(kind: CacheKind) -> FileCache {
        FileCache {
            index: RadixTree::new(),
            size: AtomicU64::new(0),
            present: AtomicU64::new(0),
            mappings: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            change: SleepLock::named("changes of a file cache", ()),
            kind,
            representative: None,
            budget: None,
        }
    }

    /// The same with a hole of `size` bytes in it.
    ///
    /// # Errors
    /// [`CacheError::TooBig`].
    pub fn with_size(kind: CacheKind, size: u64) -> Result<FileCache, CacheError> {
        if size > MAX_FILE_BYTES {
            return Err(CacheError::TooBig);
        }
        let mut cache = FileCache::new(kind);
        cache.size = AtomicU64::new(size);
        Ok(cache)
    }

    /// The same, limited by a budget.
    #[must_use]
    pub fn with_budget(kind: CacheKind, budget: Shared<dyn PageBudget>) -> FileCache {
        let mut cache = FileCache::new(kind);
        cache.budget = Some(budget);
        cache
    }

    /// A cache of a file of `size` bytes whose pages a representative brings.
    #[must_use]
    pub fn with_representative(size: u64, representative: Arc<dyn FileRepresentative>) -> FileCache {
        let mut cache = FileCache::new(CacheKind::File);
        cache.size = AtomicU64::new(size);
        cache.representative = Some(representative);
        cache
    }

    /// The size in bytes.
    #[inline]
    #[must_use]
    pub fn size(&self) -> u64 {
        // Acquire: pairs with the Release of whoever grew the file after filling its pages.
        self.size.load(Ordering::Acquire)
    }

    /// Pages up to the size.
    #[inline]
    pub(crate) fn size_in_pages(&self) -> u64 {
        self.size().div_ceil(PAGE_SIZE as u64)
    }

    /// How the pages are counted.
    #[must_use]
    pub fn kind(&self) -> CacheKind {
        self.kind
    }

    pub(super) fn purpose(&self) -> Purpose {
        match self.kind {
            CacheKind::File => Purpose::FileCache,
            CacheKind::SharedMemory => Purpose::Shmem,
        }
    }

    /// Whether stores must be noticed, because somebody will want the bytes.
    #[inline]
    pub(crate) fn has_representative(&self) -> bool {
        self.representative.is_some()
    }

    /// Pages in memory.
    #[must_use]
    pub fn resident_pages(&self) -> u64 {
        self.present.load(Ordering::Relaxed)
    }

    /// A number that no other living cache has: half of a futex's name.
    #[must_use]
    pub fn id(&self) -> u64 {
        core::ptr::from_ref(self).addr() as u64
    }

    /// Whether some address space may map pages.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.mappings.load(Ordering::Acquire) > 0
    }

    pub(crate) fn mapping_added(&self) {
        self.mappings.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn mapping_removed(&self) {
        let former = self.mappings.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(former > 0);
    }

    /// Gives a new cache its first pages without copying: frames of the boot archive. The file's size becomes `size`;
    /// what the last frame has beyond it may be in use until the file is first mapped or made larger, which must not
    /// happen before the archive has been unpacked. Frames beyond the size are dropped, missing ones are holes.
    /// They count against the budget, though it does not limit them.
    ///
    /// # Errors
    /// When there is no memory for the index.
    pub fn adopt(&self, size: u64, frames: impl IntoIterator<Item = Frame>) -> Result<(), OutOfMemory> {
        let _change = self.change.lock();
        debug_assert!(self.size() == 0 && self.resident_pages() == 0);
        for (page, frame) in (0..size.div_ceil(PAGE_SIZE as u64)).zip(frames) {
            frame.set_purpose(self.purpose());
            self.insert_frame(page, frame)?;
            if let Some(budget) = &self.budget {
                budget.charge_regardless(1);
            }
        }
        if size & (PAGE_SIZE as u64 - 1) != 0 {
            self.flags.fetch_or(TAIL_UNCLEAN, Ordering::Relaxed);
        }
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    /// Puts a frame in the place of an absent page. The index owns it then.
    pub(super) fn insert_frame(&self, page: u64, frame: Frame) -> Result<(), OutOfMemory> {
        let entered = self.insert_word(page, word_of(frame.physical()))?;
        assert!(entered, "the page is absent");
        let _ = frame.into_physical();
        Ok(())
    }

    /// Puts a word into the index unless the page has one; says whether. What the word names is the index's then.
    pub(super) fn insert_word(&self, page: u64, word: NonZeroU64) -> Result<bool, OutOfMemory> {
        let mut spare = Spare::new();
        loop {
            let missing = {
                let mut index = self.edit();
                if index.get(page).is_some() {
                    return Ok(false);
                }
                match index.insert(page, word, &mut spare) {
                    Ok(()) => {
                        self.count_present(1);
                        return Ok(true);
                    }
                    Err(MissingNodes(count)) => count,
                }
            };
            spare.fill(missing)?;
        }
    }

    /// Counts pages that were put into the index or taken out. Its lock is held.
    pub(super) fn count_present(&self, change: i64) {
        let present = self.present.load(Ordering::Relaxed);
        self.present.store(present.wrapping_add_signed(change), Ordering::Relaxed);
    }

    /// Writes all pages between two page numbers back that are dirty now, in file order.
    ///
    /// # Errors
    /// The first error of the representative; that page stays dirty, and those after it.
    pub fn write_back(&self, first: u64, end: u64) -> Result<(), CacheError> {
        /// Pages tagged under one hold of the index.
        const TAG_PAGES: usize = 64;
        let Some(representative) = &self.representative else { return Ok(()) };
        let mut next = Some(first);
        while let Some(from) = next {
            next = self.edit().tag_tagged(from, end, Tag::Dirty, Tag::ToWrite, TAG_PAGES);
        }
        let mut from = first;
        while let Some((page, frame)) = self.begin_write(from, end) {
            crate::address_space::write_protect_file_page(self, page);
            let result = representative.write_back(page, &frame);
            let mut index = self.edit();
            index.clear_tag(page, Tag::Writeback);
            if result.is_err() {
                index.set_tag(page, Tag::Dirty);
            }
            drop(index);
            result?;
            from = page + 1;
        }
        Ok(())
    }

    /// Takes the next page that is to be written: it is no longer dirty, but under write-back.
    fn begin_write(&self, first: u64, end: u64) -> Option<(u64, Frame)> {
        let mut from = first;
        loop {
            let mut index = self.edit();
            let next =
                index.gang(from, end, Some(Tag::ToWrite), |page, word| ControlFlow::Break((page, word)));
            let ControlFlow::Break((page, word)) = next else { return None };
            index.clear_tag(page, Tag::ToWrite);
            // Another write-back may have been faster.
            if index.has_tag(page, Tag::Dirty)
                && let Some(frame) = borrow_frame(word)
            {
                index.clear_tag(page, Tag::Dirty);
                index.set_tag(page, Tag::Writeback);
                return Some((page, Frame::clone(&frame)));
            }
            from = page + 1;
        }
    }
}

/// The index word of a frame.
pub(super) fn word_of(frame: PhysAddr) -> NonZeroU64 {
    NonZeroU64::new(frame.as_u64()).expect("frame 0 is never handed out")
}

/// The frame of an index word; None while it is filling. For who holds the index's lock or the RCU guard under which the word was
/// found, as long as that is held.
#[inline(always)]
pub(super) fn borrow_frame(word: NonZeroU64) -> Option<ManuallyDrop<Frame>> {
    if word.get() & FILLING != 0 {
        return None;
    }
    // SAFETY: the index owns a reference of the frame, or did when the guard was taken, and then it is dropped after the guard; so the
    // frame is alive. That reference stays where it is: what is returned is not dropped.
    Some(ManuallyDrop::new(unsafe { Frame::from_physical(PhysAddr::new(word.get())) }))
}

/// A reference to the frame at a place; None while it is filling, `Err` when the page is no longer there.
#[inline(always)]
pub(super) fn take_frame(place: &Place<'_>) -> Result<Option<Frame>, Moved> {
    let Some(frame) = borrow_frame(place.word()) else { return Ok(None) };
    let frame = Frame::clone(&frame);
    if place.is_current() { Ok(Some(frame)) } else { Err(Moved) }
}

/// A page left its place between being found and being taken.
pub(super) struct Moved;

/// The reference that the index owned: call once, after taking the word out.
pub(super) fn owned_frame(word: NonZeroU64) -> Frame {
    debug_assert!(word.get() & FILLING == 0);
    // SAFETY: the word has left the index, so its reference is ours now.
    unsafe { Frame::from_physical(PhysAddr::new(word.get())) }
}

/// Drops the reference that the index owned when all readers have gone that may have found it there.
pub(super) fn drop_when_unseen(frame: Frame) {
    rcu::drop_later(frame);
}

impl Drop for FileCache {
    fn drop(&mut self) {
        let mut pages = 0;
        // Nobody reads a cache that nobody has.
        self.index.clear(|_, word| {
            pages += 1;
            drop(owned_frame(word));
        });
        if let Some(budget) = &self.budget {
            budget.release(pages);
        }
    }
}

/// The page that contains the byte at `offset`.
#[inline]
pub(super) fn page_of(offset: u64) -> u64 {
    offset >> PAGE_SHIFT
}

/// Where in its page the byte at `offset` is.
#[inline]
pub(super) fn within_page(offset: u64) -> usize {
    offset as usize & (PAGE_SIZE - 1)
}
