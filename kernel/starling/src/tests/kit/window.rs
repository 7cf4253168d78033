//! Time windows: what one thread does falls exactly between two instructions of another.
//!
//! The code under test marks a place with `machine::time_window!(PLACE)`. A test arms the place for one CPU ([`arm`]). The next time
//! that CPU passes it, the window opens and the CPU stays there, in whatever context it is, until the other thread has done its part
//! ([`pass_through`] or [`close`]), or until what the test waits for is the case. Each arming opens the window once.
//!
//! States: DISARMED → (arm) ARMED → (that CPU passes the place) OPEN → (the other thread, or the condition) CLOSED.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ::machine::cpu::{self, CpuId};
use ::machine::{time, window};
use ::sync::SpinLock;

use crate::tests::HANG_NS;

const DISARMED: u32 = 0;
const ARMED: u32 = 1;
const OPEN: u32 = 2;
const CLOSED: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(DISARMED);
/// Upper half: the place; lower half: the CPU.
static WHERE: AtomicU64 = AtomicU64::new(0);
/// What closes the window by being the case.
static UNTIL: SpinLock<Option<fn() -> bool>> = SpinLock::new(None);

/// Arms a place for a CPU. `until` closes the window as well, for what the other thread can't tell itself (a request that is in its
/// box while its sender waits).
pub(crate) fn arm(place: u32, cpu: CpuId, until: Option<fn() -> bool>) {
    *UNTIL.lock() = until;
    WHERE.store(u64::from(place) << 32 | cpu.index() as u64, Ordering::SeqCst);
    STATE.store(ARMED, Ordering::SeqCst);
    window::set_hook(Some(passed));
}

/// Disarms; says whether the window had been open.
pub(crate) fn disarm() -> bool {
    window::set_hook(None);
    STATE.swap(DISARMED, Ordering::SeqCst) == CLOSED
}

/// Whether the window is open now.
pub(crate) fn is_open() -> bool {
    STATE.load(Ordering::SeqCst) == OPEN
}

/// Whether the window is open now, and at that place.
pub(crate) fn is_open_at(place: u32) -> bool {
    // In this order: whoever arms another place while this window is open closes it first.
    let armed = (WHERE.load(Ordering::SeqCst) >> 32) as u32;
    armed == place && is_open()
}

/// Closes the window.
pub(crate) fn close() {
    let _ = STATE.compare_exchange(OPEN, CLOSED, Ordering::SeqCst, Ordering::SeqCst);
}

/// Waits for the window, does the operation in it and closes it. False if `give_up` said so before it opened.
pub(crate) fn pass_through(operation: impl FnOnce(), give_up: impl Fn() -> bool) -> bool {
    while !is_open() {
        if give_up() {
            return false;
        }
        cpu::relax();
    }
    operation();
    close();
    true
}

/// A CPU passes a place.
fn passed(place: u32) {
    let here = u64::from(place) << 32 | cpu::current().index() as u64;
    if WHERE.load(Ordering::SeqCst) != here
        || STATE.compare_exchange(ARMED, OPEN, Ordering::SeqCst, Ordering::SeqCst).is_err()
    {
        return;
    }
    let until = *UNTIL.lock();
    let limit = time::now_ns() + HANG_NS;
    while is_open() && !until.is_some_and(|until| until()) && time::now_ns() < limit {
        cpu::relax();
    }
    close();
}
