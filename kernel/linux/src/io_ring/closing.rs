//! The end of a ring that nobody has open any more.
//!
//! A request may hold the file of another ring, whose last user it is: taking it back closes that one, and so on. So that a chain of rings takes no stack,
//! rings that are to be closed are listed, and one thread at a time takes them off the list: who finds another one at it, or is itself in the midst of it,
//! leaves his to it. What the rings' requests hold may be let go of a little later, as on Linux.

use alloc::sync::Arc;

use sync::SpinLock;

use super::cancel;
use super::ring::Ring;

#[derive(Default)]
struct Closing {
    /// The first one; each leads to the next.
    first: Option<Arc<Ring>>,
    /// Somebody takes them off.
    is_served: bool,
}

static CLOSING: SpinLock<Closing> =
    SpinLock::named("rings to close", Closing { first: None, is_served: false });

/// Ends what is under way of a ring, and lets go of what is registered with it: now, or when those before it are done.
pub(super) fn close(ring: &Arc<Ring>) {
    {
        let mut closing = CLOSING.lock();
        *ring.next_to_close.lock() = closing.first.take();
        closing.first = Some(ring.clone());
        if closing.is_served {
            return;
        }
        closing.is_served = true;
    }
    while let Some(ring) = next() {
        cancel::take_back(&ring, |_| true);
        ring.resources.clear();
    }
}

/// Takes one off the list; if there is none, the next one that is listed is another thread's to serve.
fn next() -> Option<Arc<Ring>> {
    let mut closing = CLOSING.lock();
    let ring = closing.first.take();
    match &ring {
        Some(ring) => closing.first = ring.next_to_close.lock().take(),
        None => closing.is_served = false,
    }
    ring
}
