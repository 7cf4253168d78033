//! Objects larger than the largest size class: whole frames.
//!
//! Up to [`CONTIGUOUS_MAX`] bytes a contiguous block is tried first: it costs no page-table work. Else, and if there is
//! no such block, the object goes into an [`super::area`]: single frames mapped one behind the other. What an object is
//! can be told from its address.

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use machine::address::{PAGE_SIZE, VirtAddr};

use super::area;
use crate::frame::allocate::may_wait;
use crate::frame::number::FrameNumber;
use crate::frame::{Block, Purpose, Urgency, Zeroed, block_of_frames};

/// Larger objects are not looked for in one piece.
const CONTIGUOUS_MAX: usize = 64 << 10;

static OBJECTS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Large objects, and the bytes of their frames.
pub(crate) fn counts() -> (u64, u64) {
    (OBJECTS.load(Relaxed), BYTES.load(Relaxed))
}

fn frames_of(layout: Layout) -> usize {
    layout.size().div_ceil(PAGE_SIZE)
}

/// Allocates a large object.
pub(crate) fn allocate(layout: Layout, zeroed: Zeroed) -> Option<NonNull<u8>> {
    let frames = frames_of(layout);
    let urgency = if may_wait() { Urgency::Normal } else { Urgency::Atomic };
    let contiguous = if layout.size() <= CONTIGUOUS_MAX && layout.align() <= frames * PAGE_SIZE {
        // Without reclaim: fragmentation is no reason to throw caches away when single frames will do.
        Block::allocate_urgent(frames, Purpose::Slab, zeroed, Urgency::Atomic).ok()
    } else {
        None
    };
    let object = match contiguous {
        Some(block) => Some(block.into_pointer()),
        None => area::allocate(frames, layout.align(), zeroed, urgency),
    }?;
    OBJECTS.fetch_add(1, Relaxed);
    BYTES.fetch_add((frames * PAGE_SIZE) as u64, Relaxed);
    Some(object)
}

/// Frees a large object.
///
/// # Safety
/// The object was allocated by [`allocate`] with a layout of this size, and is not used any more.
pub(crate) unsafe fn free(object: NonNull<u8>, layout: Layout) {
    let frames = frames_of(layout);
    OBJECTS.fetch_sub(1, Relaxed);
    BYTES.fetch_sub((frames * PAGE_SIZE) as u64, Relaxed);
    let address = VirtAddr::new(object.as_ptr().expose_provenance() as u64);
    if area::contains(address) {
        // SAFETY: forwarded from the caller.
        return unsafe { area::free(address, frames) };
    }
    let physical = machine::mmu::virt_to_phys(address).expect("a contiguous object lies in the direct map");
    let first = FrameNumber::containing(physical).expect("heap objects lie in frames");
    drop(block_of_frames(first, frames as u32));
}
