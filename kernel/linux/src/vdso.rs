//! The vDSO: code of the kernel's that reads clocks without entering it.

use memory::address_space::AddressSpace;

use crate::errno::Errno;

/// Maps it into a new program; returns its address, 0 when there is none.
pub fn map(_space: &AddressSpace) -> Result<u64, Errno> {
    Ok(0)
}

/// Publishes changed clock parameters.
pub fn update() {}
