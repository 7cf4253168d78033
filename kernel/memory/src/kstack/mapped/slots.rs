//! Which slots are free, and mapping pages into them.
//!
//! The lowest vacant slots are given out first. What they need of page tables and descriptors is the matter of [`super::chunks`].
//!
//! Two kinds of free stacks: *bare* ones, without pages, whose slots are vacant, and *retired* ones that still have theirs and
//! are reused as they are; [`super::release`] makes bare ones of them, many at a time, because that takes a flush on all CPUs.
//!
//! Locking: one lock for the bare; a leaf but for the pool's lock.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use sync::IrqSpinLock;

use super::super::geometry::PAGE_BYTES;
use super::super::per_cpu::NO_SLOT;
use super::super::vacancy::{ALL_VACANT, CHUNK_SLOTS, Chunks, lowest_run, run_mask};
use super::{chunks, descriptor};
use crate::frame::number::FrameNumber;
use crate::frame::{Frame, Purpose, Zeroed};
use crate::kernel_map;

/// Chunks without a stack that stay equipped.
const EMPTY_KEPT: u32 = 8;

/// Chunks with vacant slots that are looked at for a run of several: beyond, a new chunk serves.
const CHUNKS_TRIED: usize = 64;

/// Where vacant slots are. All zero at first: it takes no room in the kernel's file.
struct Bare {
    /// Chunks that have vacant slots.
    vacant: Chunks,
    /// Of them, those that are equipped and have no stack.
    empty: u32,
}

static BARE: IrqSpinLock<Bare> = IrqSpinLock::new(Bare { vacant: Chunks::new(), empty: 0 });

struct Retired {
    /// First retired stack.
    first: u32,
    /// Pages of all retired stacks.
    pages: u32,
}

static RETIRED: IrqSpinLock<Retired> = IrqSpinLock::new(Retired { first: NO_SLOT, pages: 0 });

/// Pages of stacks that wait to be unmapped.
static RETIRED_PAGES: AtomicU32 = AtomicU32::new(0);

/// Pages of retired stacks.
pub(crate) fn retired_pages() -> u32 {
    RETIRED_PAGES.load(Relaxed)
}

/// A run of 2^`order` slots without pages whose page tables and descriptors exist.
pub(crate) fn take_bare(order: u8) -> Option<u32> {
    let mut bare = BARE.lock();
    let (chunk, first) = match bare.lowest_vacant(order) {
        Some(found) => found,
        None => {
            let chunk = chunks::make()?;
            bare.vacant.insert(chunk);
            (chunk, 0)
        }
    };
    let slot = chunk * CHUNK_SLOTS + first;
    let had_descriptors = chunks::is_equipped(chunk);
    let equipped = chunks::equip(slot);
    let vacant = &chunks::record(chunk).vacant;
    let before = vacant.load(Relaxed);
    // Without memory the chunk may have got a part of what it needs, with no stack in it.
    bare.empty += u32::from(!had_descriptors && chunks::is_equipped(chunk));
    equipped?;
    bare.empty -= u32::from(before == ALL_VACANT);
    let after = before & !run_mask(first, order);
    vacant.store(after, Relaxed);
    if after == 0 {
        bare.vacant.remove(chunk);
    }
    Some(slot)
}

impl Bare {
    /// A chunk, and where in it the wanted run begins.
    fn lowest_vacant(&self, order: u8) -> Option<(u32, u32)> {
        let members =
            core::iter::successors(self.vacant.lowest_from(0), |chunk| self.vacant.lowest_from(chunk + 1));
        members
            .take(CHUNKS_TRIED)
            .find_map(|chunk| Some((chunk, lowest_run(chunks::record(chunk).vacant.load(Relaxed), order)?)))
    }
}

/// Gives a run of slots back that has no pages any more. If enough chunks are without a stack, this one is taken from
/// them and returned: the caller is to give it back ([`chunks::give_back`]), then to add it again ([`add_vacant`]).
#[must_use]
pub(crate) fn put_bare(slot: u32, order: u8) -> Option<u32> {
    let mut bare = BARE.lock();
    let chunk = slot / CHUNK_SLOTS;
    let vacant = &chunks::record(chunk).vacant;
    let after = vacant.load(Relaxed) | run_mask(slot % CHUNK_SLOTS, order);
    vacant.store(after, Relaxed);
    if after == ALL_VACANT && bare.empty >= EMPTY_KEPT {
        bare.vacant.remove(chunk);
        return Some(chunk);
    }
    bare.empty += u32::from(after == ALL_VACANT);
    bare.vacant.insert(chunk);
    None
}

/// Adds a chunk without a stack that is not equipped.
pub(crate) fn add_vacant(chunk: u32) {
    BARE.lock().vacant.insert(chunk);
}

/// Puts a free stack with its pages aside.
pub(crate) fn retire(slot: u32) {
    let known = descriptor::at(slot);
    let mut retired = RETIRED.lock();
    known.next.store(retired.first, Relaxed);
    retired.first = slot;
    retired.pages += known.mapped.load(Relaxed);
    RETIRED_PAGES.store(retired.pages, Relaxed);
}

/// The stack retired last, if it has the wanted form.
pub(crate) fn take_retired(pages: u32) -> Option<u32> {
    let mut retired = RETIRED.lock();
    let slot = retired.first;
    if slot == NO_SLOT {
        return None;
    }
    let known = descriptor::at(slot);
    if known.window(slot).pages != pages {
        return None;
    }
    retired.first = known.next.load(Relaxed);
    retired.pages -= known.mapped.load(Relaxed);
    RETIRED_PAGES.store(retired.pages, Relaxed);
    Some(slot)
}

/// Takes all retired stacks: the first of the list.
pub(crate) fn take_all_retired() -> u32 {
    let mut retired = RETIRED.lock();
    retired.pages = 0;
    RETIRED_PAGES.store(0, Relaxed);
    core::mem::replace(&mut retired.first, NO_SLOT)
}

/// Maps a zeroed frame at a page of a slot whose tables exist. The page had none.
#[inline]
pub(crate) fn map_page(address: u64, frame: FrameNumber, attributes: u64) -> u64 {
    let entry = kernel_map::find(address).expect("a slot that was given out has its page tables");
    debug_assert!(kernel_map::frame_of(entry.load(Relaxed)).is_none(), "{address:#x} is mapped already");
    kernel_map::set(entry, frame, attributes);
    entry.load(Relaxed)
}

/// Takes the frame from a page of a slot. It may be reused only when all CPUs have flushed the page.
pub(crate) fn unmap_page(address: u64) -> Option<FrameNumber> {
    debug_assert_eq!(address % PAGE_BYTES, 0);
    kernel_map::frame_of(kernel_map::clear(kernel_map::find(address)?))
}

/// The page-table entry of a page, 0 if there is none.
pub(crate) fn entry_value(address: u64) -> u64 {
    kernel_map::find(address).map_or(0, |entry| entry.load(Relaxed))
}

/// A frame for a stack. The caller may wait, or not: it is tried accordingly.
pub(crate) fn stack_frame() -> Result<FrameNumber, crate::OutOfMemory> {
    let frame = Frame::allocate(Purpose::KernelStack, Zeroed::Yes)?;
    Ok(FrameNumber::containing(frame.into_physical()).expect("a frame lies in managed memory"))
}
