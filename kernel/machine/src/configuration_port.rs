//! The ports through which PCI's configuration space is reached where it is not in memory: an address and a data register.
//!
//! The two are a pair: the caller keeps users apart, with interrupts disabled.

use crate::backend;

/// Whether the pair answers. Nobody may be using it.
pub fn exists() -> bool {
    backend::configuration_port::exists()
}

/// Reads 1, 2 or 4 bytes of the function and register that `address` selects, from the byte `offset` of that register on.
pub fn read(address: u32, offset: u16, bytes: usize) -> u32 {
    backend::configuration_port::read(address, offset & 3, bytes)
}

/// Writes 1, 2 or 4 bytes, as [`read`] reads them.
///
/// # Safety
/// What the function does then breaks no guarantee of safe code: it gets no way to memory that is not meant for it, and does not appear where
/// other registers or memory are.
pub unsafe fn write(address: u32, offset: u16, bytes: usize, value: u32) {
    // SAFETY: see the function's contract.
    unsafe { backend::configuration_port::write(address, offset & 3, bytes, value) };
}
