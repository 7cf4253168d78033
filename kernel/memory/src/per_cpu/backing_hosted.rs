//! A block's memory on a hosted machine: an ordinary allocation of the process, which the operating system provides page by
//! page when it is used. All CPUs exist there.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use super::allocator::base_of;
use super::descriptor::Descriptor;
use super::geometry::{BLOCK_BYTES, MANAGEMENT_OFFSET};
use crate::{OutOfMemory, fallible};

fn layout() -> Layout {
    Layout::from_size_align(BLOCK_BYTES, BLOCK_BYTES).expect("a constant layout")
}

/// Makes a block without objects, which is the caller's alone.
#[track_caller]
pub(super) fn make() -> Result<NonNull<Descriptor>, OutOfMemory> {
    fallible::fail_point()?;
    // SAFETY: the layout has a size.
    let base = NonNull::new(unsafe { alloc_zeroed(layout()) }).ok_or(OutOfMemory)?;
    // SAFETY: the management section lies within the allocation; it is large enough for a descriptor and zeroed, which is
    // its first state. Nobody else knows it.
    unsafe {
        let mut descriptor = base.byte_add(MANAGEMENT_OFFSET).cast::<Descriptor>();
        descriptor.as_mut().prepare();
        Ok(descriptor)
    }
}

/// Gives a block's memory back.
///
/// # Safety
/// Nobody uses the block's memory any more.
pub(super) unsafe fn destroy(block: NonNull<Descriptor>) {
    // SAFETY: allocated in `make` with this layout.
    unsafe { dealloc(base_of(block).as_ptr(), layout()) };
}
