//! What the kernel knows about each stack: 64 bytes in a table indexed by slot (specs/kernel-stacks.md §M3).
//!
//! States of a stack, in `state`:
//!
//! ```text
//! FREE → (allocate) OFF → (admit) RUNNING on a CPU → (left) OFF → (release) FREE
//!                   OFF → (trim) BUSY → (trim ends) OFF
//!                                BUSY → (release) DYING → (trim ends) FREE
//! ```
//!
//! Releasing a stack that is being trimmed leaves the rest to the trim: its end may depend on this CPU's answer to an
//! interrupt, so waiting for it with interrupts off would be for ever.
//!
//! A stack is described by the entry of its first slot; the entries of further slots stay FREE. While RUNNING, the
//! fields belong to that CPU; while BUSY to whoever trims; otherwise to the holder of the [`super::KernelStack`].

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use super::super::geometry::{Layout, TABLE_BASE, Window};
use super::super::per_cpu::NO_SLOT;

const FREE: u32 = 0;
const OFF: u32 = 1;
const BUSY: u32 = 2;
const DYING: u32 = 3;
/// Plus the CPU's number.
const RUNNING: u32 = 0x100;

/// Flag: the stack was made with all pages mapped, for good.
pub(crate) const PINNED: u32 = 1;
/// Flag: the stack overflowed.
pub(crate) const OVERFLOWED: u32 = 2;
/// Flag: the thread waits for a frame; `parked` tells where its registers are.
pub(crate) const PARKED: u32 = 4;
/// Flag: all pages are to be mapped when the thread next runs, and to stay, because it is a real-time thread.
pub(crate) const PINNED_REALTIME: u32 = 8;
/// Flag: likewise, because its process locked its memory.
pub(crate) const PINNED_LOCKED: u32 = 16;
/// Flag: an overflow of this stack is a test's, whose report goes to the test rather than to the console.
pub(crate) const EXPECTED: u32 = 32;
/// Flag: how deep the thread used its stack is measured when it ends.
pub(crate) const MEASURED: u32 = 64;
/// Flag: likewise, because others wait for what the thread does to make memory free.
pub(crate) const PINNED_FREEING: u32 = 128;
/// The flags each of which keeps all pages.
pub(crate) const ANY_PIN: u32 = PINNED | PINNED_REALTIME | PINNED_LOCKED | PINNED_FREEING;

/// See the theory of this file.
#[repr(C, align(64))]
pub(crate) struct Descriptor {
    state: AtomicU32,
    /// Pages, order and layout, packed.
    geometry: AtomicU32,
    /// Pages mapped from the top on, lent ones included.
    pub(crate) mapped: AtomicU32,
    /// The last of them that are lent by the CPU.
    pub(crate) lent: AtomicU32,
    /// The most that were ever mapped for this thread.
    pub(crate) high_water: AtomicU32,
    pub(crate) flags: AtomicU32,
    pub(crate) faults: AtomicU32,
    pub(crate) trims: AtomicU32,
    /// The thread, as the scheduler numbers it.
    pub(crate) owner: AtomicU64,
    /// Stack pointer when the thread was last switched away from.
    pub(crate) saved_pointer: AtomicU64,
    /// Where the scheduler keeps the thread.
    pub(crate) control: AtomicU64,
    /// The next stack of the list that this one is on.
    pub(crate) next: AtomicU32,
    /// Where the registers are while PARKED.
    pub(crate) parked: AtomicU32,
}

const _: () = assert!(size_of::<Descriptor>() == 64);

/// Descriptors in a page of the table.
pub(crate) const DESCRIPTORS_IN_PAGE: u32 = 4096 / size_of::<Descriptor>() as u32;

/// Where the descriptor of a slot lies.
pub(crate) const fn address(slot: u32) -> u64 {
    TABLE_BASE + slot as u64 * size_of::<Descriptor>() as u64
}

/// The descriptor of a slot that is not vacant, or whose chunk stays equipped for another reason: see [`super::chunks`].
#[inline]
pub(crate) fn at(slot: u32) -> &'static Descriptor {
    debug_assert!(super::chunks::is_equipped(slot / DESCRIPTORS_IN_PAGE), "slot {slot} has no descriptor");
    seen(slot)
}

/// The same for who found the chunk equipped and has had interrupts off since: it may be declared gone meanwhile, but is there.
#[inline]
pub(super) fn seen(slot: u32) -> &'static Descriptor {
    let pointer: *const Descriptor = core::ptr::with_exposed_provenance(address(slot) as usize);
    // SAFETY: the table's page is mapped, was zeroed before, and consists of atomics. It goes only when all its slots are vacant:
    // not while a stack is in one (the caller has it, or runs on it); else the caller holds the lock under which pages go, or has
    // interrupts off since it found the chunk equipped, and the page goes after all CPUs have answered an interrupt.
    unsafe { &*pointer }
}

impl Descriptor {
    /// Gives a free stack its form. It stays FREE.
    pub(crate) fn set_form(&self, pages: u32, order: u8, layout: Layout) {
        self.geometry.store(pages | u32::from(order) << 16 | u32::from(layout as u8) << 24, Relaxed);
    }

    /// The window, given the slot that this is the descriptor of.
    #[inline]
    pub(crate) fn window(&self, slot: u32) -> Window {
        let geometry = self.geometry.load(Relaxed);
        Window {
            slot,
            order: (geometry >> 16) as u8,
            pages: geometry & 0xffff,
            mapped: self.mapped.load(Relaxed),
            layout: if geometry >> 24 == Layout::A as u32 { Layout::A } else { Layout::B },
        }
    }

    /// FREE → OFF.
    pub(crate) fn set_in_use(&self) {
        debug_assert_eq!(self.state.load(Relaxed), FREE);
        self.owner.store(0, Relaxed);
        self.control.store(0, Relaxed);
        self.flags.store(0, Relaxed);
        self.faults.store(0, Relaxed);
        self.trims.store(0, Relaxed);
        self.saved_pointer.store(0, Relaxed);
        self.high_water.store(self.mapped.load(Relaxed), Relaxed);
        self.next.store(NO_SLOT, Relaxed);
        // Release: who finds the stack OFF finds its fields.
        self.state.store(OFF, Release);
    }

    /// OFF → FREE, or BUSY → DYING; false in the second case.
    pub(crate) fn set_free(&self) -> bool {
        let mut result = self.state.compare_exchange(OFF, FREE, AcqRel, Acquire);
        while let Err(state) = result {
            assert!(state < RUNNING, "a stack is freed while its thread runs");
            if state == BUSY && self.state.compare_exchange(BUSY, DYING, AcqRel, Acquire).is_ok() {
                return false;
            }
            result = self.state.compare_exchange(OFF, FREE, AcqRel, Acquire);
        }
        true
    }

    /// OFF → RUNNING; false when the stack is being trimmed.
    #[inline]
    pub(crate) fn start_running(&self, cpu: usize) -> bool {
        self.state.compare_exchange(OFF, RUNNING + cpu as u32, AcqRel, Relaxed).is_ok()
    }

    /// RUNNING → OFF.
    #[inline]
    pub(crate) fn stop_running(&self) {
        debug_assert!(self.state.load(Relaxed) >= RUNNING);
        // Release: pairs with the Acquire of the next CPU that runs or trims the stack.
        self.state.store(OFF, Release);
    }

    /// OFF → BUSY.
    pub(crate) fn start_trim(&self) -> bool {
        self.state.compare_exchange(OFF, BUSY, AcqRel, Relaxed).is_ok()
    }

    /// BUSY → OFF, or DYING → FREE; false in the second case.
    pub(crate) fn end_trim(&self) -> bool {
        if self.state.compare_exchange(BUSY, OFF, AcqRel, Acquire).is_ok() {
            return true;
        }
        debug_assert_eq!(self.state.load(Relaxed), DYING);
        self.state.store(FREE, Release);
        false
    }

    /// Whether a thread has the stack.
    pub(crate) fn is_in_use(&self) -> bool {
        self.state.load(Acquire) != FREE
    }

    /// The CPU that runs the thread.
    pub(crate) fn running_on(&self) -> Option<usize> {
        (self.state.load(Relaxed) as usize).checked_sub(RUNNING as usize)
    }

    /// Whether no thread has the stack and nobody trims it.
    pub(crate) fn is_off(&self) -> bool {
        self.state.load(Acquire) == OFF
    }

    pub(crate) fn has_flag(&self, flag: u32) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    pub(crate) fn set_flag(&self, flag: u32, to: bool) {
        if to {
            self.flags.fetch_or(flag, Relaxed);
        } else {
            self.flags.fetch_and(!flag, Relaxed);
        }
    }

    /// Notes `pages` mapped pages.
    #[inline]
    pub(crate) fn set_mapped(&self, pages: u32) {
        self.mapped.store(pages, Relaxed);
        if self.high_water.load(Relaxed) < pages {
            self.high_water.store(pages, Relaxed);
        }
    }
}
