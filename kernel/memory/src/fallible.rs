//! Allocation that reports failure instead of ending the kernel.
//!
//! What user space can make large is allocated through these functions (or a collection's own `try_reserve`) and ends
//! in ENOMEM.
//!
//! On a hosted machine every allocation through here, and every frame, passes a *failure point*. `inject` makes the
//! n-th of the running thread fail, `exhaust` runs a scenario again and again with each of its failure points failing
//! once; what it prints when the scenario panics is the number that replays it (`STARLING_FAIL_AT=n`).

use alloc::alloc::alloc;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::mem::MaybeUninit;
use sync::rcu::RcuBox;

use crate::OutOfMemory;

#[cfg(not(target_os = "none"))]
mod counting;
#[cfg(not(target_os = "none"))]
mod injection;
#[cfg(not(target_os = "none"))]
pub use counting::{CountingHeap, live_objects};
#[cfg(not(target_os = "none"))]
pub use injection::{
    Failure, Report, disarm, exhaust, exhaust_from, failed_at, inject, passed_with_preemption_off,
    stop_injection,
};

/// An allocation that can be made to fail.
///
/// # Errors
/// When this one is to fail.
#[cfg(not(target_os = "none"))]
#[track_caller]
pub fn fail_point() -> Result<(), OutOfMemory> {
    injection::fail_point()
}

/// An allocation that can be made to fail: never on the bare machine.
///
/// # Errors
/// None.
#[cfg(target_os = "none")]
#[inline(always)]
pub fn fail_point() -> Result<(), OutOfMemory> {
    Ok(())
}

/// `Box::new`, or an error.
///
/// # Errors
/// When there is no memory; the value is dropped.
#[inline]
#[track_caller]
pub fn try_box<T>(value: T) -> Result<Box<T>, OutOfMemory> {
    fail_point()?;
    let layout = Layout::new::<T>();
    if layout.size() == 0 {
        return Ok(Box::new(value));
    }
    crate::heap::prepare(layout)?;
    // SAFETY: the layout has a size.
    let pointer = unsafe { alloc(layout) }.cast::<T>();
    if pointer.is_null() {
        return Err(OutOfMemory);
    }
    // SAFETY: the memory is fresh, of the value's layout, and allocated by the global allocator, as `Box` demands.
    unsafe {
        pointer.write(value);
        Ok(Box::from_raw(pointer))
    }
}

/// `RcuBox::new`, or an error. May wait where that may.
///
/// # Errors
/// When there is no memory; the value is dropped.
#[inline]
#[track_caller]
pub fn try_rcu_box<T: Send + 'static>(value: T) -> Result<RcuBox<T>, OutOfMemory> {
    fail_point()?;
    crate::heap::prepare(RcuBox::<T>::LAYOUT)?;
    RcuBox::try_new(value).ok_or(OutOfMemory)
}

/// Bytes in front of the value in an `Arc`'s allocation: its two counts.
const ARC_COUNTS: Layout = Layout::new::<[usize; 2]>();

/// `Arc::new`, or an error.
///
/// The standard library has no fallible one. So this CPU's magazine is filled first, if it is empty, and `Arc::new` runs
/// with interrupts off: nobody else can take what it will find there.
///
/// # Errors
/// When there is no memory; the value is dropped.
#[inline]
#[track_caller]
pub fn try_arc<T>(value: T) -> Result<Arc<T>, OutOfMemory> {
    // `Arc::new` would put the value together with its counts on the stack first, and copy both from there.
    Ok(try_empty_arc()?.fill(value))
}

/// The memory of an `Arc`, allocated ahead: what must not fail any more once it has begun takes it first.
#[derive(Debug)]
pub struct EmptyArc<T>(Arc<MaybeUninit<T>>);

/// The memory of an `Arc`, or an error.
///
/// # Errors
/// When there is no memory.
#[inline]
#[track_caller]
pub fn try_empty_arc<T>() -> Result<EmptyArc<T>, OutOfMemory> {
    fail_point()?;
    let (layout, _) = ARC_COUNTS.extend(Layout::new::<T>()).map_err(|_| OutOfMemory)?;
    with_memory_at_hand(layout.pad_to_align(), Arc::<T>::new_uninit).map(EmptyArc)
}

impl<T> EmptyArc<T> {
    /// Puts the value into it.
    #[inline]
    pub fn fill(self, value: T) -> Arc<T> {
        let place = Arc::into_raw(self.0).cast::<T>().cast_mut();
        // SAFETY: the memory is an `Arc`'s that nobody else knows, large enough and aligned for a `T`, and writable as a whole.
        unsafe { place.write(value) };
        // SAFETY: `Arc::into_raw` gave the pointer away above, and the value is there now. `MaybeUninit<T>` is laid out as `T`.
        unsafe { Arc::from_raw(place) }
    }
}

/// `Arc::<str>::from`, or an error.
///
/// # Errors
/// When there is no memory, or the text is larger than what one slab object holds.
#[track_caller]
pub fn try_arc_str(text: &str) -> Result<Arc<str>, OutOfMemory> {
    try_arc_bytes(text.as_bytes())?;
    let (layout, _) = ARC_COUNTS.extend(Layout::for_value(text)).map_err(|_| OutOfMemory)?;
    with_memory_at_hand(layout.pad_to_align(), || Arc::from(text))
}

/// `Arc::<[u8]>::from`, or an error.
///
/// # Errors
/// When there is no memory, or there are more bytes than one slab object holds.
#[track_caller]
pub fn try_arc_bytes(bytes: &[u8]) -> Result<Arc<[u8]>, OutOfMemory> {
    fail_point()?;
    let (layout, _) = ARC_COUNTS.extend(Layout::for_value(bytes)).map_err(|_| OutOfMemory)?;
    with_memory_at_hand(layout.pad_to_align(), || Arc::from(bytes))
}

/// Runs `make`, whose one allocation has the given layout, when it cannot fail.
#[inline]
fn with_memory_at_hand<R>(layout: Layout, make: impl FnOnce() -> R) -> Result<R, OutOfMemory> {
    if layout.size() > crate::heap::MAX_SLAB_OBJECT {
        return Err(OutOfMemory);
    }
    for _ in 0..RACES_MAX {
        let interrupts_off = machine::interrupt::disable();
        if crate::heap::is_at_hand(layout) {
            return Ok(make());
        }
        drop(interrupts_off);
        // Fetching may reclaim memory, which needs interrupts on.
        crate::heap::put_at_hand(layout)?;
    }
    Err(OutOfMemory)
}

/// How often [`with_memory_at_hand`] tries: each try fails only if other threads of this CPU took a whole batch between
/// two instructions.
const RACES_MAX: u32 = 8;

/// An empty vector with room for `capacity` elements, or an error.
///
/// # Errors
/// When there is no memory.
#[inline]
#[track_caller]
pub fn try_vec<T>(capacity: usize) -> Result<Vec<T>, OutOfMemory> {
    fail_point()?;
    let mut vector = Vec::new();
    crate::heap::prepare(Layout::array::<T>(capacity).map_err(|_| OutOfMemory)?)?;
    vector.try_reserve_exact(capacity).map_err(|_| OutOfMemory)?;
    Ok(vector)
}

/// A vector of `length` clones of `value`, or an error.
///
/// # Errors
/// When there is no memory.
#[track_caller]
pub fn try_vec_of<T: Clone>(value: T, length: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut vector = try_vec(length)?;
    vector.resize(length, value);
    Ok(vector)
}

/// Room for `additional` more elements, or an error.
///
/// # Errors
/// When there is no memory; the vector is unchanged.
#[inline]
#[track_caller]
pub fn try_reserve<T>(vector: &mut Vec<T>, additional: usize) -> Result<(), OutOfMemory> {
    if vector.capacity() - vector.len() < additional {
        fail_point()?;
    }
    vector.try_reserve(additional).map_err(|_| OutOfMemory)
}

/// `Vec::push`, or an error.
///
/// # Errors
/// When there is no memory; the vector is unchanged.
#[inline]
#[track_caller]
pub fn try_push<T>(vector: &mut Vec<T>, value: T) -> Result<(), OutOfMemory> {
    try_reserve(vector, 1)?;
    vector.push(value);
    Ok(())
}

/// A copy of the bytes, or an error.
///
/// # Errors
/// When there is no memory.
#[inline]
#[track_caller]
pub fn try_copy(bytes: &[u8]) -> Result<Vec<u8>, OutOfMemory> {
    let mut vector = try_vec(bytes.len())?;
    vector.extend_from_slice(bytes);
    Ok(vector)
}

/// A copy of the text, or an error.
///
/// # Errors
/// When there is no memory.
#[inline]
#[track_caller]
pub fn try_string(text: &str) -> Result<String, OutOfMemory> {
    fail_point()?;
    let mut string = String::new();
    string.try_reserve_exact(text.len()).map_err(|_| OutOfMemory)?;
    string.push_str(text);
    Ok(string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arc_takes_exactly_the_memory_that_was_put_at_hand() {
        #[repr(align(64))]
        struct Aligned(u8);
        let first = try_arc([7u64; 20]).expect("nothing is injected");
        assert_eq!(first[19], 7);
        let second = try_arc(Aligned(3)).expect("nothing is injected");
        assert_eq!((&raw const *second).addr() % 64, 0);
        assert_eq!(second.0, 3);
        assert_eq!(&*try_arc_str("starling").expect("nothing is injected"), "starling");
    }

    #[test]
    fn memory_taken_ahead_is_filled_or_freed() {
        let witness = Arc::new(());
        let filled = try_empty_arc().expect("nothing is injected").fill(witness.clone());
        assert_eq!(Arc::strong_count(&witness), 2);
        drop(filled);
        assert_eq!(Arc::strong_count(&witness), 1);
        drop(try_empty_arc::<[u64; 100]>());
    }

    #[test]
    fn every_failure_point_fails_once() {
        let mut outcomes = Vec::new();
        exhaust("three allocations", || {
            let outcome = (|| {
                let one = try_box(1u8)?;
                let mut two = try_vec(2)?;
                two.push(*one);
                try_arc(two)
            })();
            outcomes.push(outcome.is_ok());
        });
        assert_eq!(outcomes, [false, false, false, true]);
    }

    #[test]
    fn zero_sized_values_need_no_memory() {
        assert!(try_box(()).is_ok());
        assert!(try_vec::<u64>(0).is_ok());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends when its host has no memory")]
    fn a_vector_too_large_for_memory_is_an_error() {
        assert_eq!(try_vec::<u64>(usize::MAX / 16).err(), Some(OutOfMemory));
    }
}
