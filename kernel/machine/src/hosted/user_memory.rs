//! User memory on the host: software walks the page tables as the hardware would, and asks the address space to resolve
//! faults under the same conditions.
//!
//! A walk and the access it is for happen with interrupts masked: a processor that takes a page away waits until this one
//! has answered, so the page is still there when it is accessed.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::address::{PAGE_SIZE, UserAddr};
use crate::fault::{self, Access};
use crate::{interrupt, mmu, page_table, preempt};

pub(crate) const FAULT: u64 = u64::MAX;
pub(crate) const UNTERMINATED: u64 = u64::MAX - 1;

/// Faults on one page before the access is given up: each may be undone by another processor.
const MAX_FAULTS: usize = 1000;

/// Calls `use_it` with where the byte at a user address is in this process' memory.
fn with_byte<R>(address: usize, write: bool, mut use_it: impl FnMut(*mut u8) -> R) -> Option<R> {
    for _ in 0..MAX_FAULTS {
        let may_sleep = preempt::count() == 0 && interrupt::are_enabled() && !interrupt::in_interrupt();
        {
            let _interrupts = interrupt::disable();
            // SAFETY: the tables stay while this processor, which has them loaded, does not answer interrupts.
            let place = unsafe { page_table::translate(mmu::active_root(), address as u64, write) };
            if let Some(physical) = place {
                return Some(use_it(mmu::phys_to_virt(physical)));
            }
        }
        let access = if write { Access::Write } else { Access::Read };
        if !may_sleep || fault::resolve_user_fault(UserAddr::new(address as u64), access).is_err() {
            return None;
        }
    }
    None
}

/// Calls `piece` for each page's part of a range, with where it is, how far in the range and how long. Returns the bytes
/// that were left when a page could not be accessed.
fn for_each_page(
    start: usize,
    bytes: usize,
    write: bool,
    mut piece: impl FnMut(*mut u8, usize, usize),
) -> usize {
    let mut done = 0;
    while done < bytes {
        let address = start + done;
        let count = (PAGE_SIZE - address % PAGE_SIZE).min(bytes - done);
        if with_byte(address, write, |place| piece(place, done, count)).is_none() {
            break;
        }
        done += count;
    }
    bytes - done
}

/// # Safety
/// `to` is writable for `bytes`.
pub(crate) unsafe fn copy_in(to: *mut u8, from: usize, bytes: usize) -> usize {
    // SAFETY: `place` shows the rest of a mapped page; the caller vouches for `to`.
    for_each_page(from, bytes, false, |place, done, count| unsafe { place.copy_to(to.add(done), count) })
}

/// # Safety
/// `from` is readable for `bytes`.
pub(crate) unsafe fn copy_out(to: usize, from: *const u8, bytes: usize) -> usize {
    // SAFETY: `place` shows the rest of a mapped page; the caller vouches for `from`.
    for_each_page(to, bytes, true, |place, done, count| unsafe { place.copy_from(from.add(done), count) })
}

/// # Safety
/// None.
pub(crate) unsafe fn zero(to: usize, bytes: usize) -> usize {
    // SAFETY: `place` shows the rest of a mapped page.
    for_each_page(to, bytes, true, |place, _, count| unsafe { place.write_bytes(0, count) })
}

/// # Safety
/// `to` is writable for `limit`.
pub(crate) unsafe fn copy_string(to: *mut u8, from: usize, limit: usize) -> u64 {
    for done in 0..limit {
        // SAFETY: `place` shows a byte of a mapped page.
        let Some(byte) = with_byte(from + done, false, |place| unsafe { place.read() }) else { return FAULT };
        // SAFETY: the caller vouches for `limit` bytes.
        unsafe { to.add(done).write(byte) };
        if byte == 0 {
            return done as u64;
        }
    }
    UNTERMINATED
}

/// There are no vector registers: what is stored is the image of fresh ones.
///
/// # Safety
/// None.
pub(crate) unsafe fn save_registers(to: usize, _components: u32) -> u64 {
    let fresh = crate::user_state::UserState::new();
    let image = fresh.image();
    // SAFETY: the image is readable.
    u64::from(unsafe { copy_out(to, image.as_ptr(), image.len()) } != 0)
}

/// Reads the image for nobody.
///
/// # Safety
/// None.
pub(crate) unsafe fn load_registers(from: usize, _components: u32) -> u64 {
    let mut image = [0; crate::user_state::IMAGE_BYTES];
    // SAFETY: the array is writable.
    u64::from(unsafe { copy_in(image.as_mut_ptr(), from, image.len()) } != 0)
}

/// # Safety
/// The address is aligned.
pub(crate) unsafe fn load_u32(from: usize) -> u64 {
    // SAFETY: the caller passes an aligned address, so the word lies within the mapped page.
    with_byte(from, false, |place| unsafe { AtomicU32::from_ptr(place.cast()) }.load(Ordering::SeqCst))
        .map_or(FAULT, u64::from)
}

/// # Safety
/// The address is aligned.
pub(crate) unsafe fn compare_exchange_u32(at: usize, old: u32, new: u32) -> u64 {
    with_byte(at, true, |place| {
        // SAFETY: as in `load_u32`.
        let word = unsafe { AtomicU32::from_ptr(place.cast()) };
        word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).unwrap_or_else(|found| found)
    })
    .map_or(FAULT, u64::from)
}
