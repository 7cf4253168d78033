//! The end of a ring that nobody has open any more.
//!
//! A request may hold the file of another ring, whose last user it is: taking it back closes that one, and so on. So that a chain of rings takes no stack,
//! each thread lists the rings that it is to close, and takes them off the list where it is not in the midst of that already. So it closes what it caused
//! itself, and that before the first of its closings returns.

use alloc::sync::Arc;

use sync::SpinLock;

use super::cancel;
use super::ring::Ring;

/// The rings that a thread is to close.
#[derive(Default)]
pub(crate) struct Closing {
    /// The first one; each leads to the next.
    first: Option<Arc<Ring>>,
    /// It takes them off.
    is_served: bool,
}

/// That of the kernel's own threads, one of which serves the others.
static OF_THE_KERNEL: SpinLock<Closing> =
    SpinLock::named("rings to close", Closing { first: None, is_served: false });

/// Ends what is under way of a ring, and lets go of what is registered with it: now, or when those before it are done.
pub(super) fn close(ring: &Arc<Ring>) {
    let serves = of_caller(|closing| {
        *ring.next_to_close.lock() = closing.first.take();
        closing.first = Some(ring.clone());
        !core::mem::replace(&mut closing.is_served, true)
    });
    if !serves {
        return;
    }
    while let Some(ring) = of_caller(next) {
        cancel::take_back(&ring, |_| true);
        ring.resources.clear();
    }
}

/// Takes one off the list; if there is none, who lists the next one serves it.
fn next(closing: &mut Closing) -> Option<Arc<Ring>> {
    let ring = closing.first.take();
    match &ring {
        Some(ring) => closing.first = ring.next_to_close.lock().take(),
        None => closing.is_served = false,
    }
    ring
}

fn of_caller<R>(change: impl FnOnce(&mut Closing) -> R) -> R {
    match crate::terminal::calling_thread() {
        Some(thread) => change(&mut thread.shared.lock().closing),
        None => change(&mut OF_THE_KERNEL.lock()),
    }
}
