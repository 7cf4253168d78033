//! The kernel's own page tables: finding and writing entries for 4 KiB pages.
//!
//! Only for the ranges that belong to this crate: frame metadata, kernel stacks and areas. Each range lies under one
//! entry of the top-level table, which exists from start-up on ([`reserve_top_level`]), so that every address space
//! shares it. Lower tables are made on demand, and stay unless the owner takes them away ([`take_table`]).
//!
//! Locking: the owner of a range sees to it that two processors do not make tables or write the same entry at once.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use machine::address::{PhysAddr, VirtAddr};
use machine::mmu;

use crate::frame::contents;
use crate::frame::number::FrameNumber;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const ACCESSED: u64 = 1 << 5;
/// Set by the processor when the page is written.
pub(crate) const DIRTY: u64 = 1 << 6;
const GLOBAL: u64 = 1 << 8;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Attributes of kernel data: written, not executed, shared by all address spaces. Accessed and dirty are set from the
/// start, which saves the processor from writing them.
pub(crate) const DATA: u64 = PRESENT | WRITABLE | ACCESSED | DIRTY | GLOBAL | NO_EXECUTE;

/// Like [`DATA`], but not dirty yet.
pub(crate) const CLEAN_DATA: u64 = DATA & !DIRTY;

const TABLE: u64 = PRESENT | WRITABLE | ACCESSED;
const ENTRIES: usize = 512;
const LEVELS: u32 = 4;

/// A page-table entry.
pub(crate) type Entry = &'static AtomicU64;

/// The frame that an entry maps, if any.
pub(crate) fn frame_of(value: u64) -> Option<FrameNumber> {
    if value & PRESENT == 0 { None } else { FrameNumber::containing(PhysAddr::new(value & ADDRESS)) }
}

/// Writes an entry. What it maps must have been initialised before.
pub(crate) fn set(entry: Entry, frame: FrameNumber, attributes: u64) {
    // Release: whoever finds the page through the entry finds its contents.
    entry.store(frame.physical().as_u64() | attributes, Release);
}

/// Takes a mapping away; the former value is returned. Cached translations stay until they are flushed.
pub(crate) fn clear(entry: Entry) -> u64 {
    entry.swap(0, Relaxed)
}

/// Takes away the table of the last level that maps the page of `address`, and so all that it maps: 2 MiB. Nobody has or looks for an
/// entry in this range meanwhile. The frame may be used for something else when all processors have flushed all translations.
pub(crate) fn take_table(address: u64) -> Option<FrameNumber> {
    frame_of(clear(descend(address, 1, &mut || None)?))
}

fn table_entry(table: PhysAddr, address: u64, level: u32) -> Entry {
    let index = (address >> (12 + 9 * level)) as usize & (ENTRIES - 1);
    let entries = mmu::phys_to_virt(table).cast::<AtomicU64>();
    // SAFETY: the table is one of the kernel's page tables, all of them visible in the direct map, and freed only when
    // nothing can be in its range any more ([`take_table`]); the
    // index is below the number of entries. Entries are only accessed as atomics.
    unsafe { &*entries.add(index) }
}

/// The entry for the page of `address`, if all the tables on the way exist.
pub(crate) fn find(address: u64) -> Option<Entry> {
    entry(address, &mut || None)
}

/// The entry for the page of `address`; missing tables are made from frames that `supply` gives.
pub(crate) fn entry(address: u64, supply: &mut dyn FnMut() -> Option<FrameNumber>) -> Option<Entry> {
    descend(address, 0, supply)
}

/// Makes sure that the top-level entry of `address` exists, with a table to share.
pub(crate) fn reserve_top_level(address: VirtAddr, supply: &mut dyn FnMut() -> Option<FrameNumber>) -> bool {
    descend(address.as_u64(), LEVELS - 2, supply).is_some()
}

fn descend(address: u64, to_level: u32, supply: &mut dyn FnMut() -> Option<FrameNumber>) -> Option<Entry> {
    let mut table = mmu::kernel_root();
    for level in (to_level + 1..LEVELS).rev() {
        let entry = table_entry(table, address, level);
        let mut value = entry.load(Acquire);
        if value & PRESENT == 0 {
            let frame = supply()?;
            contents::zero(frame);
            value = frame.physical().as_u64() | TABLE;
            entry.store(value, Release);
        }
        table = PhysAddr::new(value & ADDRESS);
    }
    Some(table_entry(table, address, to_level))
}
