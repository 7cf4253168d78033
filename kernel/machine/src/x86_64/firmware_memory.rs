//! Physical memory for the readers of firmware tables: through the direct map, or mapped for the occasion.

use super::{mmu, paging};
use crate::address::PhysAddr;
use crate::firmware::Memory;

/// Longest table mapped outside of the direct map.
const BYTES_MAX: usize = 256 * 1024;

/// All of physical memory that the kernel can show.
pub(crate) struct FirmwareMemory;

impl Memory for FirmwareMemory {
    fn bytes(&self, physical: u64, length: usize) -> Option<&[u8]> {
        let end = physical.checked_add(length as u64)?;
        let pointer = if paging::direct_map_shows(physical, length) {
            mmu::phys_to_virt(PhysAddr::new(physical))
        } else if length <= BYTES_MAX && end < 1 << 52 {
            mmu::map_device(PhysAddr::new(physical), length)?
        } else {
            return None;
        };
        // SAFETY: the range is mapped for good. It is the firmware's: the kernel does not write it during
        // start-up, when the tables are read.
        Some(unsafe { core::slice::from_raw_parts(pointer, length) })
    }
}
