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

use super::backing::Backing;
use super::device::BackingDevice;
use super::errors::WriteErrors;
use super::huge::HugePages;
use super::representative::FileRepresentative;
use crate::OutOfMemory;
use crate::fallible;
use crate::frame::{Frame, Purpose};
use crate::page_index::{MissingNodes, Place, RadixTree, Spare};
use crate::parking::SleepLock;
use crate::per_cpu::Shared;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::mem::ManuallyDrop;
use core::num::NonZeroU64;
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

/// In `flags`: since the last page's end was last cleared, a program may have written there through a mapping.
pub(super) const TAIL_MAPPED: u32 = 2;

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
    /// ENODEV: the device was pulled out.
    NoDevice,
    /// EROFS: the device refuses to be written.
    ReadOnly,
    /// EPERM: nobody may write the file.
    NotPermitted,
}

impl CacheError {
    /// All, in the order of their codes.
    const ALL: [CacheError; 8] = [
        CacheError::BadAddress,
        CacheError::OutOfMemory,
        CacheError::NoSpace,
        CacheError::TooBig,
        CacheError::InputOutput,
        CacheError::NoDevice,
        CacheError::ReadOnly,
        CacheError::NotPermitted,
    ];

    /// A small number, for where an error is kept in a word.
    pub(super) const fn code(self) -> u32 {
        self as u32
    }

    pub(super) fn from_code(code: u32) -> CacheError {
        CacheError::ALL.get(code as usize).copied().unwrap_or(CacheError::InputOutput)
    }
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

/// Where the pages of a cache come from. In two parts, so that it takes no more room than a budget.
pub(super) enum Supply {
    /// From free memory, within a budget.
    Limited(Shared<dyn PageBudget>),
    /// From free memory; or, if it is not none, from the pool of huge pages, and the index has none.
    Unlimited(Option<Box<HugePages>>),
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
    backing: Option<Box<Backing>>,
    pub(super) supply: Supply,
    /// 0 until somebody asks; see [`FileCache::id`].
    id: AtomicU64,
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
            backing: None,
            supply: Supply::Unlimited(None),
            id: AtomicU64::new(0),
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
        cache.supply = Supply::Limited(budget);
        cache
    }

    /// A cache of a file of `size` bytes whose pages have their home on a device, to which a representative leads.
    ///
    /// # Errors
    /// No memory.
    pub fn with_representative(
        size: u64,
        representative: Arc<dyn FileRepresentative>,
        device: Arc<BackingDevice>,
    ) -> Result<Arc<FileCache>, OutOfMemory> {
        let mut cache = FileCache::new(CacheKind::File);
        cache.size = AtomicU64::new(size);
        cache.backing = Some(fallible::try_box(Backing::new(representative, device))?);
        let cache = fallible::try_arc(cache)?;
        if let Some(backing) = &cache.backing {
            backing.cache.call_once(|| Arc::downgrade(&cache));
        }
        Ok(cache)
    }

    /// What there is when the pages have another home.
    #[inline]
    pub(super) fn backing(&self) -> Option<&Backing> {
        self.backing.as_deref()
    }

    /// The device where the pages live.
    #[must_use]
    pub fn device(&self) -> Option<&Arc<BackingDevice>> {
        self.backing().map(|backing| &backing.device)
    }

    /// Where errors of write-back are noted.
    #[must_use]
    pub fn write_errors(&self) -> Option<&WriteErrors> {
        self.backing().map(|backing| &backing.errors)
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
        self.backing.is_some()
    }

    /// Pages in memory.
    #[must_use]
    pub fn resident_pages(&self) -> u64 {
        self.present.load(Ordering::Relaxed)
    }

    /// A number that no other cache has, had or will have: half of a futex's name. Who waits on a futex keeps its name, not the cache,
    /// which may end before. The cache gets its number when it is first asked for it.
    #[must_use]
    pub fn id(&self) -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the number says nothing about other memory.
        match self.id.load(Ordering::Relaxed) {
            0 => {
                let fresh = LAST.fetch_add(1, Ordering::Relaxed) + 1;
                let set = self.id.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed);
                set.map_or_else(|others| others, |_| fresh)
            }
            known => known,
        }
    }

    /// Whether some address space may map pages.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.mappings.load(Ordering::Acquire) > 0
    }

    pub(crate) fn mapping_added(&self) {
        if self.has_representative() {
            self.flags.fetch_or(TAIL_MAPPED, Ordering::Relaxed);
        }
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
            if let Supply::Limited(budget) = &self.supply {
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
        if let Supply::Limited(budget) = &self.supply {
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
