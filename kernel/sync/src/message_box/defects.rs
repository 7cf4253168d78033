//! Historic bugs of such protocols, to be put in on purpose: a test that does not notice them tests nothing.
//!
//! Nothing here costs the usual path anything: the words are read only in the loop of a CPU that waits.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::protocol::Departure;

const ORDER_SWAPPED: u32 = 1;
const SERVES_NOBODY: u32 = 2;

/// The bugs that are in. Written by tests.
static DEFECTS: AtomicU32 = AtomicU32::new(0);
/// A `fn()` that runs between the two looks of a turn; null usually.
static BETWEEN: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Puts bugs in, named as on the command line (`order_swapped`, `no_serve_while_waiting`); an empty list takes all out. Unknown
/// names are refused.
pub fn inject_defects(names: &str) -> bool {
    let mut defects = 0;
    for name in names.split(',').filter(|name| !name.is_empty()) {
        defects |= match name {
            "order_swapped" => ORDER_SWAPPED,
            "no_serve_while_waiting" => SERVES_NOBODY,
            _ => return false,
        };
    }
    DEFECTS.store(defects, Ordering::Relaxed);
    true
}

/// Sets what runs between the two looks of a waiting CPU: a time window for tests. None: nothing.
pub fn set_between(hook: Option<fn()>) {
    let pointer = hook.map_or(core::ptr::null_mut(), |hook| hook as *mut ());
    BETWEEN.store(pointer, Ordering::Release);
}

/// Calls what [`set_between`] has set.
#[inline]
pub(super) fn between() {
    let pointer = BETWEEN.load(Ordering::Acquire);
    if !pointer.is_null() {
        // SAFETY: a non-null pointer was made from a `fn()` in `set_between`, the only writer.
        unsafe { core::mem::transmute::<*mut (), fn()>(pointer)() };
    }
}

/// The bugs as the protocol knows them.
#[inline]
pub(super) fn departure() -> Departure {
    let defects = DEFECTS.load(Ordering::Relaxed);
    Departure { order_swapped: defects & ORDER_SWAPPED != 0, serves_nobody: defects & SERVES_NOBODY != 0 }
}
