//! Allocation that ends in `ENOMEM`.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::{OutOfMemory, fallible};
use sync::rcu::RcuBox;

use crate::{Error, Result};

impl From<OutOfMemory> for Error {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// A counted object.
#[inline]
#[track_caller]
pub fn arc<T>(value: T) -> Result<Arc<T>> {
    Ok(fallible::try_arc(value)?)
}

/// A boxed object.
#[inline]
#[track_caller]
pub fn boxed<T>(value: T) -> Result<Box<T>> {
    Ok(fallible::try_box(value)?)
}

/// Makes room for `additional` more elements.
#[inline]
#[track_caller]
pub fn reserve<T>(vector: &mut Vec<T>, additional: usize) -> Result<()> {
    if vector.capacity() - vector.len() < additional {
        fallible::try_reserve(vector, additional)?;
    }
    Ok(())
}

/// Makes room for `total` elements altogether.
#[inline]
#[track_caller]
pub fn reserve_total<T>(vector: &mut Vec<T>, total: usize) -> Result<()> {
    let additional = total.saturating_sub(vector.len());
    reserve(vector, additional)
}

/// Appends an element.
#[inline]
#[track_caller]
pub fn push<T>(vector: &mut Vec<T>, value: T) -> Result<()> {
    reserve(vector, 1)?;
    vector.push(value);
    Ok(())
}

/// Locks something with a vector in it that has room for `additional` more elements. What that takes is allocated while the lock
/// is free.
#[track_caller]
pub fn lock_with_room<T, G>(
    lock: impl Fn() -> G,
    additional: usize,
    vector: impl Fn(&mut G) -> &mut Vec<T>,
) -> Result<G> {
    let mut larger = Vec::new();
    loop {
        let mut guard = lock();
        let own = vector(&mut guard);
        if own.capacity() - own.len() >= additional {
            return Ok(guard);
        }
        let wanted = own.len() + additional.max(own.len()).max(4);
        if larger.capacity() >= wanted {
            larger.append(own);
            core::mem::swap(own, &mut larger);
            return Ok(guard);
        }
        drop(guard);
        fallible::try_reserve(&mut larger, wanted)?;
    }
}

/// Appends bytes.
#[inline]
#[track_caller]
pub fn extend(vector: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    reserve(vector, bytes.len())?;
    vector.extend_from_slice(bytes);
    Ok(())
}

/// A vector of `length` copies.
#[track_caller]
pub fn filled<T: Clone>(value: T, length: usize) -> Result<Vec<T>> {
    Ok(fallible::try_vec_of(value, length)?)
}

/// A counted copy of bytes.
#[track_caller]
pub fn arc_bytes(bytes: &[u8]) -> Result<Arc<[u8]>> {
    Ok(fallible::try_arc_bytes(bytes)?)
}

/// A place where an allocation by other means may be made to fail in tests.
#[inline]
#[track_caller]
pub fn fail_point() -> Result<()> {
    Ok(fallible::fail_point()?)
}

/// A box that RCU readers may look into.
#[inline]
#[track_caller]
pub fn rcu<T: Send + 'static>(value: T) -> Result<RcuBox<T>> {
    fallible::fail_point()?;
    RcuBox::try_new(value).ok_or(Error::OutOfMemory)
}
