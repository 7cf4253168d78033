//! Time windows: places in the code where a test can hold a processor until another one has done something.
//!
//! `time_window!(PLACE)` marks a place by a number that its crate chooses. In an ordinary boot it costs one instruction that does
//! nothing: a branch that start-up writes in only when tests were asked for (`test=` on the command line). With them, passing the place
//! calls the registered hook with its number, in whatever context the code is in.

use core::sync::atomic::{AtomicPtr, Ordering};

use crate::backend;

/// A `fn(u32)`, null while no test watches.
static HOOK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sets what is called at each marked place that a processor passes; None: nothing.
pub fn set_hook(hook: Option<fn(u32)>) {
    HOOK.store(hook.map_or(core::ptr::null_mut(), |hook| hook as *mut ()), Ordering::Release);
}

/// Whether the places are live in this boot. For [`time_window!`](crate::time_window).
#[inline(always)]
pub fn is_armed() -> bool {
    backend::window::is_armed()
}

/// A processor passes a place. For [`time_window!`](crate::time_window).
#[cold]
#[inline(never)]
pub fn pass(place: u32) {
    let pointer = HOOK.load(Ordering::Acquire);
    if !pointer.is_null() {
        // SAFETY: a non-null pointer was made from a `fn(u32)` in `set_hook`, the only writer.
        unsafe { core::mem::transmute::<*mut (), fn(u32)>(pointer)(place) };
    }
}

/// Marks a place; see [`window`](crate::window).
#[macro_export]
macro_rules! time_window {
    ($place:expr) => {
        if $crate::window::is_armed() {
            $crate::window::pass($place);
        }
    };
}
