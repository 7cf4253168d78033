//! A thread's kernel stack, the user registers at its top, and what the dispatcher does with stacks.
//!
//! ```text
//! top ─► user registers (user threads only) | first frame ↓
//! ```
//!
//! Start-up code runs on stacks of its own, which are no [`KernelStack`]s: threads made of it (`Thread::adopt_current`) have none.

use core::alloc::Layout;

use machine::address::VirtAddr;
use machine::context::KernelContext;
use machine::cpu::CpuId;
use machine::user_state::UserState;
use memory::OutOfMemory;
use memory::kstack::{self, KernelStack, PinReason};

pub(crate) use memory::fallible::try_arc;

/// A stack on its way to a thread.
pub(crate) struct Stack {
    memory: KernelStack,
    start: VirtAddr,
}

impl Stack {
    /// A stack that may grow to `pages` pages, or has all of them from the start.
    pub(crate) fn allocate(pages: usize, pinned: bool) -> Result<Self, OutOfMemory> {
        let memory =
            if pinned { KernelStack::allocate_pinned(pages)? } else { KernelStack::allocate(pages)? };
        let start = memory.top();
        Ok(Self { memory, start })
    }

    /// Has all pages mapped when the thread first runs.
    pub(crate) fn pin(&mut self, reason: PinReason) {
        self.memory.set_pinned(reason, true);
    }

    /// Where the first frame begins.
    pub(crate) fn start(&self) -> VirtAddr {
        self.start
    }

    /// Puts a copy of the user registers at the top.
    pub(crate) fn place_user_state(&mut self, state: &UserState) -> *mut UserState {
        let (place, start) = self.memory.control_block(Layout::new::<UserState>());
        self.start = start;
        let place = place.cast::<UserState>().as_ptr();
        // SAFETY: the control block is room of this layout in a mapped page that nobody else knows of yet; the state owns
        // nothing, so a copy of its bytes is a copy of it. Copied in place, because it would fill a third of the caller's
        // stack page.
        unsafe { core::ptr::copy_nonoverlapping(state, place, 1) };
        place
    }

    /// The stack for good, of the thread of that number at that place.
    pub(crate) fn into_memory(self, owner: u64, control: u64) -> KernelStack {
        self.memory.set_owner(owner, control);
        self.memory
    }
}

/// Whether this CPU can run a thread with that stack now; after a yes the switch must follow. Interrupts are off.
#[inline]
pub(crate) fn admit(stack: Option<&KernelStack>, cpu: CpuId, frees_memory: bool) -> bool {
    match stack {
        Some(stack) => kstack::admit(stack, cpu, frees_memory),
        None => {
            kstack::admit_start_up_stack();
            true
        }
    }
}

/// A stack has been left, where the context says: its thread may run on any CPU now.
///
/// # Safety
/// The context is that thread's, and this CPU has just switched away from it.
#[inline]
pub(crate) unsafe fn left(stack: Option<&KernelStack>, context: &mut KernelContext) {
    match stack {
        // SAFETY: as the caller says.
        Some(stack) => unsafe { kstack::left(stack, context) },
        None => kstack::left_start_up_stack(),
    }
}
