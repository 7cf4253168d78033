//! One word of a page table.
//!
//! States of a leaf entry, as the address space uses them: *empty* (zero), *present* (the processor translates
//! through it), and *hidden*: not present but not zero, keeping a frame whose pages may not be accessed now.
//! Four bits are free for software ([`EntryFlags::SOFTWARE_0`] and its neighbours), and so is a small number ([`EntryFlags::of_number`]).

use crate::address::PhysAddr;
use bitflags::bitflags;
use core::sync::atomic::{AtomicU64, Ordering};

bitflags! {
    /// The bits of an entry other than the address.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EntryFlags: u64 {
        /// The processor may use the entry.
        const PRESENT = 1 << 0;
        /// Stores are allowed.
        const WRITABLE = 1 << 1;
        /// User mode may use it.
        const USER = 1 << 2;
        /// Set by the processor when it first translates through the entry.
        const ACCESSED = 1 << 5;
        /// Set by the processor when it first stores through the entry.
        const DIRTY = 1 << 6;
        /// In a directory: the entry maps 2 MiB itself.
        const LARGE = 1 << 7;
        /// The translation survives a change of the address space.
        const GLOBAL = 1 << 8;
        /// Free for software.
        const SOFTWARE_0 = 1 << 9;
        /// Free for software.
        const SOFTWARE_1 = 1 << 10;
        /// Free for software.
        const SOFTWARE_2 = 1 << 11;
        /// Free for software.
        const SOFTWARE_3 = 1 << 52;
        /// All bits of the number that software may keep.
        const SOFTWARE_NUMBER = 0xf << NUMBER_SHIFT;
        /// Instruction fetches are forbidden.
        const NO_EXECUTE = 1 << 63;
    }
}

/// Where the number begins that software may keep.
const NUMBER_SHIFT: u32 = 53;

impl EntryFlags {
    /// The largest number that software may keep in an entry.
    pub const NUMBER_MAX: u8 = 0xf;

    /// The bits that keep a number.
    #[must_use]
    pub const fn of_number(number: u8) -> EntryFlags {
        assert!(number <= EntryFlags::NUMBER_MAX, "it has four bits");
        EntryFlags::from_bits_truncate((number as u64) << NUMBER_SHIFT)
    }
}

/// Bits 12 to 51: the physical address.
const ADDRESS_MASK: u64 = 0x000f_ffff_ffff_f000;

/// The value of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Entry(u64);

impl Entry {
    /// No translation and no frame.
    pub const EMPTY: Entry = Entry(0);

    /// An entry for the frame at `physical`.
    #[inline(always)]
    pub const fn new(physical: PhysAddr, flags: EntryFlags) -> Entry {
        debug_assert!(physical.as_u64() & !ADDRESS_MASK == 0);
        Entry(physical.as_u64() | flags.bits())
    }

    /// Whether the word is zero.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the processor may use the entry.
    #[inline(always)]
    pub const fn is_present(self) -> bool {
        self.0 & EntryFlags::PRESENT.bits() != 0
    }

    /// Whether a link leads to a leaf table: it is present, or maps a huge page, which may be hidden.
    #[inline(always)]
    pub(super) const fn leads_on(self) -> bool {
        self.0 & (EntryFlags::PRESENT.bits() | EntryFlags::LARGE.bits()) != 0
    }

    /// The physical address.
    #[inline(always)]
    pub const fn physical(self) -> PhysAddr {
        PhysAddr::new(self.0 & ADDRESS_MASK)
    }

    /// The bits other than the address.
    #[inline(always)]
    pub const fn flags(self) -> EntryFlags {
        EntryFlags::from_bits_truncate(self.0)
    }

    /// The number that software keeps.
    #[inline(always)]
    pub const fn number(self) -> u8 {
        (self.0 >> NUMBER_SHIFT) as u8 & EntryFlags::NUMBER_MAX
    }

    /// Whether all of these bits are set.
    #[inline(always)]
    pub const fn contains(self, flags: EntryFlags) -> bool {
        self.0 & flags.bits() == flags.bits()
    }

    /// The entry with these bits set.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, flags: EntryFlags) -> Entry {
        Entry(self.0 | flags.bits())
    }

    /// The entry with these bits clear.
    #[inline(always)]
    #[must_use]
    pub const fn without(self, flags: EntryFlags) -> Entry {
        Entry(self.0 & !flags.bits())
    }
}

/// An entry in its table: changed by several processors and by the hardware.
#[repr(transparent)]
pub struct EntryCell(AtomicU64);

impl EntryCell {
    /// The value now.
    #[inline(always)]
    pub fn load(&self) -> Entry {
        // Acquire: pairs with the Release half of the stores below, so that whoever sees a table's address sees
        // the table cleared.
        Entry(self.0.load(Ordering::Acquire))
    }

    /// Replaces the value whatever it was.
    #[inline(always)]
    pub fn store(&self, entry: Entry) {
        self.0.store(entry.0, Ordering::Release);
    }

    /// Replaces the value and returns the former one with the hardware's last accessed and dirty bits.
    #[inline(always)]
    pub fn swap(&self, entry: Entry) -> Entry {
        Entry(self.0.swap(entry.0, Ordering::AcqRel))
    }

    /// Replaces the value if it is still `current`.
    ///
    /// # Errors
    /// The value found instead.
    #[inline(always)]
    pub fn compare_exchange(&self, current: Entry, new: Entry) -> Result<(), Entry> {
        match self.0.compare_exchange(current.0, new.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(found) => Err(Entry(found)),
        }
    }

    /// Clears these bits and leaves the others, which the hardware may set meanwhile, as they are.
    #[inline(always)]
    pub fn remove(&self, flags: EntryFlags) {
        self.0.fetch_and(!flags.bits(), Ordering::AcqRel);
    }

    /// Replaces the value by a function of it; returns the former value if the function had one to offer.
    #[inline]
    pub fn update(&self, mut change: impl FnMut(Entry) -> Option<Entry>) -> Option<Entry> {
        let mut current = self.load();
        loop {
            let new = change(current)?;
            match self.compare_exchange(current, new) {
                Ok(()) => return Some(current),
                Err(found) => current = found,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_keeps_address_and_flags_apart() {
        let flags = EntryFlags::PRESENT | EntryFlags::USER | EntryFlags::NO_EXECUTE | EntryFlags::SOFTWARE_3;
        let entry = Entry::new(PhysAddr::new(0x000a_bcde_f012_3000), flags);
        assert_eq!(entry.physical().as_u64(), 0x000a_bcde_f012_3000);
        assert_eq!(entry.flags(), flags);
        assert!(entry.is_present());
        assert!(!entry.without(EntryFlags::PRESENT).is_present());
        assert!(!entry.without(EntryFlags::PRESENT).is_empty());
    }

    #[test]
    fn update_returns_the_former_value_or_leaves_it() {
        let cell = EntryCell(AtomicU64::new(0));
        let entry = Entry::new(PhysAddr::new(0x5000), EntryFlags::PRESENT);
        assert_eq!(cell.update(|_| Some(entry)), Some(Entry::EMPTY));
        assert_eq!(cell.update(|_| None), None);
        assert_eq!(cell.load(), entry);
    }
}
