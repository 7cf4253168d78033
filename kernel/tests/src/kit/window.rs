//! Time windows: what one thread does falls exactly between two instructions of another.
//!
//! The code under test marks a place with `machine::time_window!(PLACE)`. A test arms the place for one CPU ([`arm`]). The next time
//! that CPU passes it, the window opens and the CPU stays there, in whatever context it is, until the other thread has done its part
//! ([`pass_through`] or [`close`]), or until what the test waits for is the case. Each arming opens the window once.
//!
//! States: DISARMED → (arm) ARMED → (that CPU passes the place) OPEN → (the other thread, or the condition) CLOSED.

use core::sync::atomic::{AtomicU64, Ordering};

use ::machine::cpu::{self, CpuId};
use ::machine::{time, window};
use ::sync::SpinLock;

use crate::HANG_NS;

const DISARMED: u64 = 0;
const ARMED: u64 = 1;
const OPEN: u64 = 2;
const CLOSED: u64 = 3;
/// The bits of the state.
const STATE: u64 = 3;

/// One word, so that who sees a window open sees where: the state; above it the CPU, and the place in the upper half.
static WINDOW: AtomicU64 = AtomicU64::new(DISARMED);
/// What closes the window by being the case.
static UNTIL: SpinLock<Option<fn() -> bool>> = SpinLock::new(None);

fn at(place: u32, cpu: CpuId) -> u64 {
    u64::from(place) << 32 | (cpu.index() as u64) << 2
}

/// Arms a place for a CPU. `until` closes the window as well, for what the other thread can't tell itself (a request that is in its
/// box while its sender waits).
pub(crate) fn arm(place: u32, cpu: CpuId, until: Option<fn() -> bool>) {
    *UNTIL.lock() = until;
    WINDOW.store(at(place, cpu) | ARMED, Ordering::SeqCst);
    window::set_hook(Some(passed));
}

/// Disarms; says whether the window had been open.
pub(crate) fn disarm() -> bool {
    window::set_hook(None);
    WINDOW.swap(DISARMED, Ordering::SeqCst) & STATE == CLOSED
}

/// Whether the window is open now.
pub(crate) fn is_open() -> bool {
    WINDOW.load(Ordering::SeqCst) & STATE == OPEN
}

/// Whether the window is open now, and at that place.
pub(crate) fn is_open_at(place: u32) -> bool {
    let window = WINDOW.load(Ordering::SeqCst);
    window & STATE == OPEN && (window >> 32) as u32 == place
}

/// Closes the window.
pub(crate) fn close() {
    let window = WINDOW.load(Ordering::SeqCst);
    if window & STATE == OPEN {
        close_this(window);
    }
}

/// Closes this window, if it is still the one that is open.
fn close_this(open: u64) {
    let closed = open & !STATE | CLOSED;
    let _ = WINDOW.compare_exchange(open, closed, Ordering::SeqCst, Ordering::SeqCst);
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
    let here = at(place, cpu::current());
    let open = here | OPEN;
    if WINDOW.compare_exchange(here | ARMED, open, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        return;
    }
    let until = *UNTIL.lock();
    let limit = time::now_ns() + HANG_NS;
    while WINDOW.load(Ordering::SeqCst) == open
        && !until.is_some_and(|until| until())
        && time::now_ns() < limit
    {
        cpu::relax();
    }
    close_this(open);
}
