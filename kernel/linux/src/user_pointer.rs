//! Typed pointers into user memory.
//!
//! What a program passes is a claim: a [`UserPointer`] can hold any value, and only reading or writing through it finds out whether
//! there is memory (EFAULT if not). Values move as bytes, so `T` must be plain data (zerocopy's traits).

use alloc::vec::Vec;
use core::marker::PhantomData;

use machine::address::UserAddr;
use machine::user_memory::{self, StringError};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::errno::Errno;

/// A claimed address of a `T` in the program's memory.
pub struct UserPointer<T> {
    address: u64,
    target: PhantomData<fn() -> T>,
}

impl<T> Clone for UserPointer<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for UserPointer<T> {}

impl<T> UserPointer<T> {
    /// The pointer as the program gave it.
    pub const fn new(address: u64) -> Self {
        UserPointer { address, target: PhantomData }
    }

    /// Whether it is the null pointer, which many calls take for "not given".
    pub const fn is_null(self) -> bool {
        self.address == 0
    }

    /// The address.
    pub const fn address(self) -> u64 {
        self.address
    }

    /// The pointer to the element `count` further on.
    pub const fn add(self, count: usize) -> Self {
        Self::new(self.address.wrapping_add((count * size_of::<T>()) as u64))
    }

    /// The pointer, or `None` when null.
    pub fn given(self) -> Option<Self> {
        if self.is_null() { None } else { Some(self) }
    }
}

/// Reads a string up to its NUL; returns its length. ENAMETOOLONG when the buffer is full before the NUL.
pub fn read_string(address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    user_memory::read_string(buffer, UserAddr::new(address)).map_err(|error| match error {
        StringError::TooLong => Errno::ENAMETOOLONG,
        StringError::Fault => Errno::EFAULT,
    })
}

/// Reads bytes of user memory.
pub fn read_bytes(address: u64, bytes: &mut [u8]) -> Result<(), Errno> {
    // Nothing to move: no address is bad.
    if bytes.is_empty() {
        return Ok(());
    }
    user_memory::read(bytes, UserAddr::new(address)).map_err(|_| Errno::EFAULT)
}

/// Writes bytes of user memory.
pub fn write_bytes(address: u64, bytes: &[u8]) -> Result<(), Errno> {
    if bytes.is_empty() {
        return Ok(());
    }
    user_memory::write(UserAddr::new(address), bytes).map_err(|_| Errno::EFAULT)
}

impl<T: FromBytes + IntoBytes> UserPointer<T> {
    /// Reads the value.
    pub fn read(self) -> Result<T, Errno> {
        user_memory::read_value(UserAddr::new(self.address)).map_err(|_| Errno::EFAULT)
    }

    /// Reads `count` values.
    pub fn read_vector(self, count: usize) -> Result<Vec<T>, Errno>
    where
        T: Clone,
    {
        let mut values = Vec::new();
        memory::fallible::try_reserve(&mut values, count).map_err(|_| Errno::ENOMEM)?;
        values.resize(count, T::new_zeroed());
        read_bytes(self.address, values.as_mut_slice().as_mut_bytes())?;
        Ok(values)
    }
}

impl<T: IntoBytes + Immutable> UserPointer<T> {
    /// Writes the value.
    pub fn write(self, value: &T) -> Result<(), Errno> {
        write_bytes(self.address, value.as_bytes())
    }

    /// Writes the value unless the pointer is null.
    pub fn write_if_given(self, value: &T) -> Result<(), Errno> {
        if self.is_null() { Ok(()) } else { self.write(value) }
    }

    /// Writes the values one after the other.
    pub fn write_slice(self, values: &[T]) -> Result<(), Errno> {
        write_bytes(self.address, values.as_bytes())
    }
}
