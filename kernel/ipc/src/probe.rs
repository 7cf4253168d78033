//! Places in the remote path where a test can look in, or hold a CPU up (specs/fiasco-mp.md, item 46: time windows).
//!
//! Only where a request to another CPU is under way anyway: next to that, looking for a probe costs nothing.

use core::sync::atomic::{AtomicBool, Ordering};

use sync::SpinLock;
use sync::message_box::Kind;

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A request is ready and about to be put into its box. Interrupts are off.
    RequestReady,
    /// Its response has come and is about to be looked at. Interrupts are off.
    ResponseHere,
}

/// What is called, with the place and the type of the request; interrupts are off.
pub type Probe = fn(Point, Kind);

static ARMED: AtomicBool = AtomicBool::new(false);
static PROBE: SpinLock<Option<Probe>> = SpinLock::new(None);

/// Sets the probe, or takes it away.
pub fn set(probe: Option<Probe>) {
    *PROBE.lock() = probe;
    ARMED.store(probe.is_some(), Ordering::Release);
}

#[inline(always)]
pub(crate) fn pass(point: Point, kind: Kind) {
    if ARMED.load(Ordering::Relaxed) {
        call(point, kind);
    }
}

#[cold]
#[inline(never)]
fn call(point: Point, kind: Kind) {
    let probe = *PROBE.lock();
    if let Some(probe) = probe {
        probe(point, kind);
    }
}
