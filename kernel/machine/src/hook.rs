//! Calls upwards: a function that a crate above registers once and this crate calls from then on.
//!
//! A hook starts as a function that does nothing, so callers need no test. It is set during start-up, before the
//! events it is about can happen, and may be replaced; a caller sees the old or the new function, never neither.

use core::sync::atomic::{AtomicPtr, Ordering};

/// A replaceable `fn()`.
pub(crate) struct Hook(AtomicPtr<()>);

fn nothing() {}

impl Hook {
    /// A hook that does nothing yet.
    pub(crate) const fn new() -> Hook {
        Hook(AtomicPtr::new(nothing as fn() as *mut ()))
    }

    /// Sets the function to call.
    pub(crate) fn set(&self, function: fn()) {
        // Release: what the registering crate initialised before is seen by the Acquire in `call`.
        self.0.store(function as *mut (), Ordering::Release);
    }

    /// Calls the function.
    #[inline]
    pub(crate) fn call(&self) {
        let pointer = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer was made from a `fn()` in `new` or `set`, the only writers of the field.
        let function = unsafe { core::mem::transmute::<*mut (), fn()>(pointer) };
        function();
    }
}
