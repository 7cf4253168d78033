//! Counting heap objects, so that a test can say that nothing leaks.
//!
//! A test program makes [`CountingHeap`] its global allocator. Each host thread counts what it allocates and frees: the
//! hosted kernel's work for one processor happens on one of them, and what the test framework does on others does not
//! disturb the count.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Objects allocated less objects freed by this host thread.
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

/// The standard library's heap, counted.
#[derive(Debug)]
pub struct CountingHeap;

/// Objects that this host thread has allocated less those it has freed.
pub fn live_objects() -> i64 {
    LIVE.get()
}

fn count(change: i64) {
    // At a host thread's end its count is gone already.
    let _ = LIVE.try_with(|live| live.set(live.get() + change));
}

// SAFETY: all calls are forwarded to the system's allocator as they are; counting allocates nothing.
unsafe impl GlobalAlloc for CountingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1);
        // SAFETY: forwarded.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-1);
        // SAFETY: forwarded.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1);
        // SAFETY: forwarded.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: forwarded.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
