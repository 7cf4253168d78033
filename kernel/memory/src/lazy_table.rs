//! A table whose entries' addresses follow from their numbers, and of which only the used pages exist (specs/fiasco-mp.md, items
//! 30-33 and limit 9).
//!
//! The table has a window of kernel addresses; entry `n` is at base + n × size, so finding it is arithmetic. A page gets its
//! frame when the first of its entries is wanted, and keeps it: its page-table entry goes from absent to present once and
//! never changes again, so no processor ever has to flush anything, and an entry, once there, is there for ever. Which pages
//! exist stands in a bitmap that is written only when a page comes: looking for an entry that nobody has made reads
//! one bit and touches no page, so nobody can fill memory by asking for numbers at random.
//!
//! Locking: [`LazyTable::make`] takes the table's lock (it allocates, so it may wait: call it from threads); [`LazyTable::get`]
//! takes none. A page is initialised before its bit is set (Release), and read after the bit was seen (Acquire).

use core::marker::PhantomData;
use core::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use machine::address::PAGE_SIZE;
use sync::Once;

use crate::OutOfMemory;

/// Most pages of a table.
const PAGES_MAX: usize = 2048;

/// See the theory of this file.
pub struct LazyTable<T: Sync + 'static> {
    /// Address of entry 0; 0 until the first page is made. Written once, before the first bit of `present`.
    base: AtomicUsize,
    /// A bit for each page that exists. Set under the lock.
    present: [AtomicU64; PAGES_MAX / 64],
    window: Once<Option<usize>>,
    making: sync::SpinLock<()>,
    entries: PhantomData<&'static T>,
}

impl<T: Sync + 'static> LazyTable<T> {
    const ENTRY_BYTES: usize = {
        assert!(
            size_of::<T>().is_power_of_two() && size_of::<T>() <= PAGE_SIZE,
            "entries fill pages exactly"
        );
        assert!(align_of::<T>() <= size_of::<T>(), "entries are aligned to their size");
        size_of::<T>()
    };
    /// Entries in a page.
    pub const PER_PAGE: usize = PAGE_SIZE / Self::ENTRY_BYTES;
    /// Entries that the table may have.
    pub const ENTRIES: usize = PAGES_MAX * Self::PER_PAGE;

    /// A table without pages.
    #[expect(clippy::new_without_default, reason = "tables are statics")]
    pub const fn new() -> Self {
        Self {
            base: AtomicUsize::new(0),
            present: [const { AtomicU64::new(0) }; PAGES_MAX / 64],
            window: Once::new(),
            making: sync::SpinLock::new(()),
            entries: PhantomData,
        }
    }

    /// The entry of that number, if its page exists.
    #[inline(always)]
    pub fn get(&self, number: usize) -> Option<&'static T> {
        let page = number / Self::PER_PAGE;
        // Acquire: pairs with the Release in `make`; the page is initialised.
        if self.present.get(page / 64)?.load(Acquire) >> (page % 64) & 1 == 0 {
            return None;
        }
        let address = self.base.load(Relaxed) + number * Self::ENTRY_BYTES;
        // SAFETY: the page of the entry is mapped and initialised with values of `T`, as its bit says, and stays so for ever;
        // `number` is below `ENTRIES`, or the bitmap would have no such word.
        Some(unsafe { &*core::ptr::with_exposed_provenance::<T>(address) })
    }

    /// The entry of that number; its page is made, with each entry as `entry` makes it, if it does not exist.
    ///
    /// # Errors
    /// [`OutOfMemory`], also for numbers that the table does not have.
    pub fn make(&self, number: usize, entry: fn() -> T) -> Result<&'static T, OutOfMemory> {
        if let Some(found) = self.get(number) {
            return Ok(found);
        }
        let page = number / Self::PER_PAGE;
        let word = self.present.get(page / 64).ok_or(OutOfMemory)?;
        crate::fallible::fail_point()?;
        let base = self.window.call_once(window::reserve).ok_or(OutOfMemory)?;
        let address = base + page * PAGE_SIZE;
        let prepared = window::prepare_page()?;
        {
            let _making = self.making.lock();
            if word.load(Relaxed) >> (page % 64) & 1 == 0 {
                window::map_page(address, prepared)?;
                let first = core::ptr::with_exposed_provenance_mut::<T>(address);
                for index in 0..Self::PER_PAGE {
                    // SAFETY: the page has just been mapped, is as large as that many entries, and nobody knows of it yet.
                    unsafe { first.add(index).write(entry()) };
                }
                self.base.store(base, Relaxed);
                // Release: pairs with the Acquire in `get`.
                word.fetch_or(1 << (page % 64), Release);
            }
        }
        self.get(number).ok_or(OutOfMemory)
    }

    /// Pages that exist.
    pub fn pages(&self) -> usize {
        self.present.iter().map(|word| word.load(Relaxed).count_ones() as usize).sum()
    }
}

#[cfg(target_os = "none")]
mod window {
    //! Addresses of the region of areas, with frames of their own.

    use super::PAGES_MAX;
    use crate::OutOfMemory;
    use crate::frame::{Frame, Purpose, Zeroed};

    pub(super) type Page = Frame;

    pub(super) fn reserve() -> Option<usize> {
        crate::heap::reserve_addresses(PAGES_MAX)
    }

    pub(super) fn prepare_page() -> Result<Page, OutOfMemory> {
        Frame::allocate(Purpose::Kernel, Zeroed::Yes)
    }

    /// The page is dropped if it can't be mapped.
    pub(super) fn map_page(address: usize, page: Page) -> Result<(), OutOfMemory> {
        crate::heap::map_reserved(address, page)
    }
}

#[cfg(not(target_os = "none"))]
mod window {
    //! Memory of the host, which it backs when it is touched.

    use super::PAGES_MAX;
    use crate::OutOfMemory;
    use machine::address::PAGE_SIZE;

    pub(super) struct Page;

    pub(super) fn reserve() -> Option<usize> {
        let layout = core::alloc::Layout::from_size_align(PAGES_MAX * PAGE_SIZE, PAGE_SIZE).ok()?;
        // SAFETY: the layout has a size.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        (!memory.is_null()).then(|| memory.expose_provenance())
    }

    pub(super) fn prepare_page() -> Result<Page, OutOfMemory> {
        Ok(Page)
    }

    pub(super) fn map_page(_address: usize, _page: Page) -> Result<(), OutOfMemory> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::LazyTable;
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[repr(align(64))]
    struct Entry(AtomicU64);

    static TABLE: LazyTable<Entry> = LazyTable::new();

    #[test]
    fn entries_exist_by_pages_and_lie_where_their_numbers_say() {
        const SECOND_PAGE: usize = LazyTable::<Entry>::PER_PAGE;
        let make = || Entry(AtomicU64::new(7));
        assert!(TABLE.get(SECOND_PAGE + 1).is_none());
        let entry = TABLE.make(SECOND_PAGE + 1, make).unwrap();
        entry.0.store(8, Relaxed);
        assert!(TABLE.get(0).is_none(), "the page before is not made");
        assert_eq!(TABLE.pages(), 1);
        let next = TABLE.get(SECOND_PAGE + 2).unwrap();
        assert_eq!((&raw const *next).addr() - (&raw const *entry).addr(), size_of::<Entry>());
        assert_eq!((next.0.load(Relaxed), TABLE.get(SECOND_PAGE + 1).unwrap().0.load(Relaxed)), (7, 8));
        assert!(TABLE.get(usize::MAX).is_none());
        assert!(TABLE.make(LazyTable::<Entry>::ENTRIES, make).is_err());
        assert!(TABLE.make(LazyTable::<Entry>::ENTRIES - 1, make).is_ok());
    }
}
