//! Files whose pages are huge ones of the pool: those of `hugetlbfs`, and shared memory that asks for them.
//!
//! Such a cache has its size, its number and its mappings like any other, and nothing in its index. Its pages are in a list by number, where a page that the
//! pool has promised and nobody has touched stands, too. A page is made by the first access through a mapping, or by `fallocate`, and never by `write`.
//!
//! **Locks.** `change` as ever. The list's lock is held while a page is made, so that each is made once; a fault takes it with its space's `change` held.
//!
//! **Pages that go.** First they leave the list, or the size says that they are gone; then mappings are undone, with each space's `change`. A fault holds that from the look into
//! the list to the mapping. So it either sees the new state, or what it has mapped is undone.

use super::cache::{CacheError, CacheKind, FileCache, Supply, within_page};
use crate::address_space;
use crate::buffer::Sink;
use crate::fallible;
use crate::huge_pool::{self, HUGE_PAGE_BYTES, HUGE_PAGE_FRAMES, HugeQuota, Kind, PooledPage};
use crate::parking::{SleepGuard, SleepLock};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;
use machine::address::{PAGE_SHIFT, PAGE_SIZE};

/// What a cache has more when its pages are huge ones.
pub(super) struct HugePages {
    list: SleepLock<Vec<Place>>,
    quota: Option<Arc<HugeQuota>>,
}

/// A page that the file has, or was promised.
struct Place {
    number: u64,
    page: Option<PooledPage>,
}

impl FileCache {
    /// A cache of huge pages for a file of `size` bytes, a multiple of theirs.
    ///
    /// # Errors
    /// The size is too big, or no memory.
    pub fn of_huge_pages(size: u64, quota: Option<Arc<HugeQuota>>) -> Result<FileCache, CacheError> {
        debug_assert!(size.is_multiple_of(HUGE_PAGE_BYTES));
        let mut cache = FileCache::with_size(CacheKind::SharedMemory, size)?;
        let pages = HugePages { list: SleepLock::named("huge pages of a file", Vec::new()), quota };
        cache.supply = Supply::Unlimited(Some(fallible::try_box(pages)?));
        Ok(cache)
    }

    /// Whether the pages are huge ones.
    #[inline]
    pub fn is_huge(&self) -> bool {
        matches!(self.supply, Supply::Unlimited(Some(_)))
    }

    fn huge(&self) -> &HugePages {
        match &self.supply {
            Supply::Unlimited(Some(huge)) => huge,
            _ => unreachable!("who asks for huge pages knows that the file has them"),
        }
    }

    /// Promises the pages of a range, given by their numbers, that the file neither has nor was promised.
    ///
    /// # Errors
    /// The pool or the mount has not so many.
    pub(crate) fn promise_huge(&self, numbers: Range<u64>) -> Result<(), CacheError> {
        let huge = self.huge();
        let mut list = huge.list.lock();
        let first = list.partition_point(|place| place.number < numbers.start);
        let known = list[first..].partition_point(|place| place.number < numbers.end);
        let missing = (numbers.end - numbers.start) - known as u64;
        // Nobody is promised more than there is, so the list is no longer than the pool; but a range can be.
        if missing > huge_pool::counts().total + huge_pool::overcommit_limit() {
            return Err(CacheError::OutOfMemory);
        }
        fallible::try_reserve(&mut list, missing as usize)?;
        let promised = huge.quota.as_ref().map_or(Some(missing), |quota| quota.count(missing));
        let promised = promised.ok_or(CacheError::NoSpace)?;
        if huge_pool::promise(promised).is_err() {
            // What the mount kept for itself it keeps on.
            huge.quota.as_ref().map(|quota| quota.forget(missing));
            return Err(CacheError::OutOfMemory);
        }
        for (at, number) in (first..).zip(numbers) {
            if list.get(at).is_none_or(|place| place.number != number) {
                list.insert(at, Place { number, page: None });
            }
        }
        Ok(())
    }

    /// Promises all pages that the file neither has nor was promised.
    ///
    /// # Errors
    /// As `FileCache::promise_huge`.
    pub fn promise_all(&self) -> Result<(), CacheError> {
        self.promise_huge(0..self.size() / HUGE_PAGE_BYTES)
    }

    /// The page with a number; one that is not there is made, or is none.
    ///
    /// # Errors
    /// [`CacheError::NoSpace`]: it can't be made.
    pub(crate) fn huge_page(&self, number: u64, make: bool) -> Result<Option<PooledPage>, CacheError> {
        let mut list = self.huge().list.lock();
        if number >= self.size() / HUGE_PAGE_BYTES {
            return Ok(None);
        }
        self.listed(&mut list, number, make)
    }

    /// The same, whatever the size.
    fn listed(
        &self,
        list: &mut SleepGuard<'_, Vec<Place>>,
        number: u64,
        make: bool,
    ) -> Result<Option<PooledPage>, CacheError> {
        let at = list.partition_point(|place| place.number < number);
        let known = list.get(at).is_some_and(|place| place.number == number);
        if known && let Some(page) = &list[at].page {
            return Ok(Some(page.clone()));
        }
        if !make {
            return Ok(None);
        }
        let page = match known {
            true => huge_pool::take(Kind::Shared, true).map_err(CacheError::from),
            false => self.huge().take_unpromised(list),
        };
        let page = page.map_err(|_| CacheError::NoSpace)?;
        page.zero();
        match known {
            true => list[at].page = Some(page.clone()),
            false => list.insert(at, Place { number, page: Some(page.clone()) }),
        }
        self.present.fetch_add(HUGE_PAGE_FRAMES, Ordering::Relaxed);
        Ok(Some(page))
    }

    /// Makes the file at least so long: who maps it for stores, beyond its end, does that.
    pub(crate) fn extend_huge(&self, size: u64) {
        self.size.fetch_max(size.next_multiple_of(HUGE_PAGE_BYTES), Ordering::AcqRel);
    }

    /// [`FileCache::truncate`], to a multiple of a huge page.
    pub(super) fn truncate_huge(&self, size: u64) {
        let _change = self.change.lock();
        let former = self.size.swap(size, Ordering::AcqRel);
        if size < former {
            self.remove_huge(size.div_ceil(HUGE_PAGE_BYTES)..u64::MAX);
        }
    }

    /// [`FileCache::punch_hole`]: huge pages that lie in the range as a whole are given back, of others the part becomes zeros.
    pub(super) fn punch_huge(&self, range: Range<u64>) {
        let _change = self.change.lock();
        let end = range.end.min(self.size());
        if range.start >= end {
            return;
        }
        let (first, last) = (range.start.div_ceil(HUGE_PAGE_BYTES), end / HUGE_PAGE_BYTES);
        if first > last {
            self.zero_huge(range.start..end);
            return;
        }
        self.zero_huge(range.start..first * HUGE_PAGE_BYTES);
        self.zero_huge(last * HUGE_PAGE_BYTES..end);
        if first < last {
            self.remove_huge(first..last);
        }
    }

    /// Zeroes bytes of one page; a hole stays one.
    fn zero_huge(&self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // It is not made, so nothing can fail.
        let Ok(Some(page)) = self.huge_page(range.start / HUGE_PAGE_BYTES, false) else { return };
        let mut position = range.start;
        while position < range.end {
            let count = (PAGE_SIZE - within_page(position)).min((range.end - position) as usize);
            page.frame(frame_of(position)).zero_range(within_page(position), count);
            position += count as u64;
        }
    }

    /// [`FileCache::allocate`]: makes all huge pages that lie partly in the range.
    pub(super) fn allocate_huge(&self, range: Range<u64>) -> Result<(), CacheError> {
        (range.start / HUGE_PAGE_BYTES..range.end.div_ceil(HUGE_PAGE_BYTES))
            .try_for_each(|number| self.listed(&mut self.huge().list.lock(), number, true).map(drop))
    }

    /// Takes pages out of the list and out of all mappings. `change` is held.
    fn remove_huge(&self, numbers: Range<u64>) {
        let huge = self.huge();
        let mut removed = 0;
        loop {
            let place = {
                let mut list = huge.list.lock();
                let end = list.partition_point(|place| place.number < numbers.end);
                let last = end.checked_sub(1).filter(|&last| list[last].number >= numbers.start);
                last.map(|last| list.remove(last))
            };
            let Some(place) = place else { break };
            huge.give_back(place, &mut removed);
        }
        self.present.fetch_sub(removed * HUGE_PAGE_FRAMES, Ordering::Relaxed);
        if self.is_mapped() {
            let frames = |number: u64| number.saturating_mul(HUGE_PAGE_FRAMES);
            address_space::unmap_file_pages(self, frames(numbers.start)..frames(numbers.end));
        }
        huge.keep_least(removed);
    }

    /// Reads from `offset` until the sink is full or the file ends; returns the bytes read. Holes read as zeros.
    ///
    /// # Errors
    /// Only when nothing was read: the reason why.
    pub fn read_huge(&self, offset: u64, sink: &mut Sink<'_>) -> Result<usize, CacheError> {
        let mut done = 0;
        loop {
            let position = offset.saturating_add(done as u64);
            let left = self.size().saturating_sub(position).min(sink.remaining() as u64);
            if left == 0 {
                return Ok(done);
            }
            let count = (PAGE_SIZE - within_page(position)).min(left as usize);
            let page = self.huge_page(position / HUGE_PAGE_BYTES, false)?;
            let copied = match page.map(|page| page.frame(frame_of(position))) {
                Some(frame) => sink.write_frame(&frame, within_page(position), count),
                None => sink.write_zeros(count),
            };
            match copied {
                Ok(bytes) if bytes == count => done += bytes,
                Ok(bytes) => return Ok(done + bytes),
                Err(error) => return if done > 0 { Ok(done) } else { Err(error.into()) },
            }
        }
    }
}

/// Which of its huge page's frames has the byte at `offset`.
fn frame_of(offset: u64) -> usize {
    ((offset % HUGE_PAGE_BYTES) >> PAGE_SHIFT) as usize
}

impl HugePages {
    /// A page that nobody promised to the file. There is room for it in the list then.
    fn take_unpromised(&self, list: &mut SleepGuard<'_, Vec<Place>>) -> Result<PooledPage, CacheError> {
        fallible::try_reserve(list, 1)?;
        let unpromised = self.quota.as_ref().map_or(Some(1), |quota| quota.count(1));
        let promised = unpromised.ok_or(CacheError::NoSpace)? == 0;
        huge_pool::take(Kind::Shared, promised).map_err(|_| {
            self.quota.as_ref().map(|quota| quota.forget(1));
            CacheError::NoSpace
        })
    }

    /// The file has a page no more, or is promised it no more; what it had is counted.
    fn give_back(&self, place: Place, had: &mut u64) {
        match place.page {
            Some(_) => *had += 1,
            None => {
                let kept = self.quota.as_ref().map_or(0, |quota| quota.forget(1));
                huge_pool::unpromise(1 - kept);
            }
        }
    }

    /// So many pages that the file had are home, or on their way: the mount keeps what is its least.
    fn keep_least(&self, pages: u64) {
        let Some(quota) = self.quota.as_ref().filter(|_| pages > 0) else { return };
        let kept = quota.forget(pages);
        if kept > 0 && huge_pool::promise(kept).is_err() {
            quota.lower_least(kept);
        }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let mut removed = 0;
        let list = core::mem::take(self.list.get_mut());
        for place in list {
            self.give_back(place, &mut removed);
        }
        self.keep_least(removed);
    }
}
