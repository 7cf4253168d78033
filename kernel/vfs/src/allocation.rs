//! Allocation that ends in `ENOMEM`.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::{Error, Result};

/// A counted object.
#[inline]
pub fn arc<T>(value: T) -> Result<Arc<T>> {
    memory::fallible::try_arc(value).map_err(|_| Error::OutOfMemory)
}

/// A boxed object.
#[inline]
pub fn boxed<T>(value: T) -> Result<Box<T>> {
    memory::fallible::try_box(value).map_err(|_| Error::OutOfMemory)
}

/// Makes room for `additional` more elements.
#[inline]
pub fn reserve<T>(vector: &mut Vec<T>, additional: usize) -> Result<()> {
    if vector.capacity() - vector.len() < additional {
        memory::fallible::check().map_err(|_| Error::OutOfMemory)?;
        vector.try_reserve(additional).map_err(|_| Error::OutOfMemory)?;
    }
    Ok(())
}

/// Appends an element.
#[inline]
pub fn push<T>(vector: &mut Vec<T>, value: T) -> Result<()> {
    reserve(vector, 1)?;
    vector.push(value);
    Ok(())
}

/// A vector of `length` copies.
pub fn filled<T: Clone>(value: T, length: usize) -> Result<Vec<T>> {
    let mut vector = Vec::new();
    reserve(&mut vector, length)?;
    vector.resize(length, value);
    Ok(vector)
}

/// A counted copy of bytes.
pub fn arc_bytes(bytes: &[u8]) -> Result<Arc<[u8]>> {
    memory::fallible::try_arc_slice(bytes).map_err(|_| Error::OutOfMemory)
}
