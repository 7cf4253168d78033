//! Historic bugs of such protocols, to be put in on purpose: a test that does not notice them tests nothing.
//!
//! Nothing here costs the usual path anything: the words are read only in the loop of a CPU that waits.

use core::sync::atomic::{AtomicU32, Ordering};

use super::protocol::Departure;

const ORDER_SWAPPED: u32 = 1;
const SERVES_NOBODY: u32 = 2;

/// The bugs that are in. Written by tests.
static DEFECTS: AtomicU32 = AtomicU32::new(0);

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

/// Whether any bug is in.
#[inline(always)]
pub(super) fn are_in() -> bool {
    DEFECTS.load(Ordering::Relaxed) != 0
}

/// The bugs as the protocol knows them.
#[inline]
pub(super) fn departure() -> Departure {
    let defects = DEFECTS.load(Ordering::Relaxed);
    Departure { order_swapped: defects & ORDER_SWAPPED != 0, serves_nobody: defects & SERVES_NOBODY != 0 }
}
