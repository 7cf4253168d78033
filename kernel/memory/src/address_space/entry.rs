//! What the bits of a leaf entry mean to the address space.
//!
//! | entry | reference to the frame | counted as |
//! |---|---|---|
//! | empty | | |
//! | [`PRIVATE`] | yes | anonymous; copied on write unless it is the only reference |
//! | [`UNCOUNTED`] | no | nothing: the page of zeros |
//! | [`SHARED_MEMORY`] | yes | shared memory; also what a pager provides |
//! | none of them | yes | file |
//!
//! An entry of a region whose pages may not be accessed keeps its frame but is not present.

use crate::frame::Frame;
use crate::region::RegionFlags;
use core::mem::ManuallyDrop;
use machine::page_table::{Entry, EntryFlags};

/// The frame belongs to this address space (and to those it forked).
pub(crate) const PRIVATE: EntryFlags = EntryFlags::SOFTWARE_0;
/// The entry holds no reference.
pub(super) const UNCOUNTED: EntryFlags = EntryFlags::SOFTWARE_1;
/// The frame is a page of shared memory.
pub(crate) const SHARED_MEMORY: EntryFlags = EntryFlags::SOFTWARE_2;

/// The page was provided for stores too. What is provided also has its depth as the entry's number: see `pager`.
pub(super) const STORABLE: EntryFlags = EntryFlags::SOFTWARE_3;

/// Bits that say what is allowed.
pub(super) const PERMISSION: EntryFlags =
    EntryFlags::PRESENT.union(EntryFlags::WRITABLE).union(EntryFlags::USER).union(EntryFlags::NO_EXECUTE);

/// The bits for accesses without stores, as the region allows them.
#[inline(always)]
pub(super) fn readable(flags: RegionFlags) -> EntryFlags {
    if !flags.intersects(RegionFlags::PROTECTION) {
        return EntryFlags::NO_EXECUTE;
    }
    let present = EntryFlags::PRESENT.union(EntryFlags::USER);
    if flags.contains(RegionFlags::EXECUTE) { present } else { present.union(EntryFlags::NO_EXECUTE) }
}

/// The frame of an entry, while the entry keeps its reference.
///
/// # Safety
/// The entry is in a table and holds a reference, and cannot lose it during `'a`... which the caller ensures by holding
/// the region lock (no changer removes it) or `change`.
#[inline(always)]
pub(super) unsafe fn borrow_frame(entry: Entry) -> ManuallyDrop<Frame> {
    debug_assert!(!entry.is_empty() && !entry.contains(UNCOUNTED));
    // SAFETY: the entry's reference came from `into_physical`; it is not dropped here.
    ManuallyDrop::new(unsafe { Frame::from_physical(entry.physical()) })
}
