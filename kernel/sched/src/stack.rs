//! A thread's kernel stack, and the user registers at its top.
//!
//! ```text
//! top ─► user registers (user threads only) | first frame ↓
//! ```
//!
//! The stack belongs to crate `memory`, which maps its pages when they are touched. In return the dispatcher asks
//! [`admit`] before it switches to a thread, and says [`left`] after it has switched away from one.

use alloc::alloc::Layout;
use alloc::sync::Arc;

use machine::address::VirtAddr;
use machine::cpu;
use machine::user_state::UserState;
use memory::OutOfMemory;
use memory::kstack::{self, KernelStack};

/// Memory for a thread to run on.
pub(crate) struct Stack {
    memory: KernelStack,
    /// Where the first frame begins.
    start: VirtAddr,
}

impl Stack {
    /// A stack that may grow to so many pages; a pinned one has them all from the start.
    pub(crate) fn allocate(pages: usize, pinned: bool) -> Result<Self, OutOfMemory> {
        let memory = if pinned { KernelStack::allocate_pinned(pages) } else { KernelStack::allocate(pages) }?;
        let start = memory.top();
        Ok(Self { memory, start })
    }

    /// Where the first frame begins.
    pub(crate) fn start(&self) -> VirtAddr {
        self.start
    }

    /// The stack's memory.
    pub(crate) fn memory(&self) -> &KernelStack {
        &self.memory
    }

    /// Puts user registers at the top.
    pub(crate) fn place_user_state(&mut self, make: impl FnOnce() -> UserState) -> *mut UserState {
        let (place, start) = self.memory.control_block(Layout::new::<UserState>());
        self.start = start;
        let place = place.cast::<UserState>().as_ptr();
        // SAFETY: the memory is the stack's own, mapped, large enough and aligned for the state; nothing uses it yet.
        unsafe { place.write(make()) };
        place
    }
}

/// Whether this CPU can run a thread on this stack now; the switch must follow a yes. A thread without a stack of its
/// own is one that runs on its CPU's boot stack.
pub(crate) fn admit(stack: Option<&Stack>) -> bool {
    match stack {
        Some(stack) => kstack::admit(&stack.memory, cpu::current()),
        None => {
            kstack::admit_start_up_stack();
            true
        }
    }
}

/// A thread was switched away from, with this stack pointer.
pub(crate) fn left(stack: Option<&Stack>, saved_pointer: VirtAddr) {
    match stack {
        Some(stack) => kstack::left(&stack.memory, saved_pointer),
        None => kstack::left_start_up_stack(),
    }
}

/// Moves the value into a counted allocation.
pub(crate) fn try_arc<T>(value: T) -> Result<Arc<T>, OutOfMemory> {
    memory::fallible::try_arc(value)
}
