//! Historic bugs of such paths (specs/fiasco-mp.md, item 51), to be put in on purpose: a test that does not notice them tests nothing. And
//! the places where tests hold a CPU up to hit a race.
//!
//! Both are looked at only in a boot that runs tests; see `machine::window`.

use core::sync::atomic::{AtomicU32, Ordering};

use machine::window;

/// A request to another CPU is about to be put into its box. Interrupts are off.
pub const BEFORE_REQUEST: u32 = 0x4000;
/// A sender that slept has been woken, and has not looked why yet. Interrupts are on.
pub const SENDER_WOKEN: u32 = 0x4001;
/// The deadline of a receiver, or a signal, has woken it, and it has not looked whether a message came first. Interrupts are on.
pub const RECEIVER_WOKEN: u32 = 0x4002;

/// Bug 1a, `pp_enqueue`: the deadline of a send is looked at before the state: a message that was taken at the last moment counts as not taken.
pub(crate) const TIMEOUT_FIRST: u32 = 1;
/// Bug 1b, `pp_timeout` or `no_timeout_reset`: the deadline of a send outlives it: it ends the receive that follows.
pub(crate) const TIMEOUT_OUTLIVES: u32 = 2;
/// The thread itself begins the receive that follows a send, when it runs again.
pub(crate) const LATE_RECEIVE: u32 = 4;
/// A cancellation that came too late counts.
pub(crate) const LATE_CANCEL: u32 = 8;
/// A thread that ends forgets who waits for it.
pub(crate) const FORGETS_QUEUE: u32 = 16;

static DEFECTS: AtomicU32 = AtomicU32::new(0);

/// Puts bugs in, named as on the command line; an empty list takes all out. Unknown names are refused.
pub fn inject_defects(names: &str) -> bool {
    let mut defects = 0;
    for name in names.split(',').filter(|name| !name.is_empty()) {
        defects |= match name {
            "pp_enqueue" => TIMEOUT_FIRST,
            "pp_timeout" | "no_timeout_reset" => TIMEOUT_OUTLIVES,
            "late_receive" => LATE_RECEIVE,
            "late_cancel" => LATE_CANCEL,
            "kill_forgets_queue" => FORGETS_QUEUE,
            _ => return false,
        };
    }
    DEFECTS.store(defects, Ordering::Relaxed);
    true
}

/// Whether a bug is in.
#[inline(always)]
pub(crate) fn has(defect: u32) -> bool {
    window::is_armed() && DEFECTS.load(Ordering::Relaxed) & defect != 0
}
