//! A thread's kernel stack, and the user registers at its top.
//!
//! ```text
//! top ─► user registers (user threads only) | first frame ↓
//! ```

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use alloc::sync::Arc;
use core::mem::size_of;
use core::ptr::NonNull;

use machine::address::{PAGE_SIZE, VirtAddr};
use machine::user_state::UserState;
use memory::OutOfMemory;

/// Hosted code is compiled without optimisation and runs the standard library's panic machinery on this stack.
const HOSTED_PAGES: usize = 64;

/// Memory for a thread to run on.
pub(crate) struct Stack {
    bottom: NonNull<u8>,
    layout: Layout,
    /// Bytes at the top that hold the user registers.
    reserved: usize,
}

// SAFETY: a stack is memory that its thread alone uses.
unsafe impl Send for Stack {}

impl Stack {
    pub(crate) fn allocate(pages: usize) -> Result<Self, OutOfMemory> {
        let pages = if cfg!(target_os = "none") { pages } else { pages.max(HOSTED_PAGES) };
        let layout = Layout::from_size_align(pages * PAGE_SIZE, PAGE_SIZE).map_err(|_| OutOfMemory)?;
        // SAFETY: the layout has a size.
        let bottom = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(OutOfMemory)?;
        Ok(Self { bottom, layout, reserved: 0 })
    }

    fn top(&self) -> usize {
        self.bottom.as_ptr() as usize + self.layout.size()
    }

    /// Where the first frame begins.
    pub(crate) fn start(&self) -> VirtAddr {
        VirtAddr::new((self.top() - self.reserved) as u64)
    }

    /// Puts user registers at the top.
    pub(crate) fn place_user_state(&mut self, make: impl FnOnce() -> UserState) -> *mut UserState {
        self.reserved = size_of::<UserState>().next_multiple_of(64);
        let place = (self.top() - self.reserved) as *mut UserState;
        // SAFETY: the top page is mapped and larger than the state, which fits below the top aligned to 64.
        unsafe { place.write(make()) };
        place
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: allocated in `allocate` with this layout; no thread runs on it any more.
        unsafe { dealloc(self.bottom.as_ptr(), self.layout) };
    }
}

/// Moves the value into a counted allocation.
pub(crate) fn try_arc<T>(value: T) -> Result<Arc<T>, OutOfMemory> {
    Ok(Arc::new(value))
}
