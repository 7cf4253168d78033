//! PCI's configuration ports.

use super::port;

const ADDRESS: u16 = 0xcf8;
const DATA: u16 = 0xcfc;
const ENABLE: u32 = 1 << 31;

pub(crate) fn exists() -> bool {
    // SAFETY: the address register of the pair; where there is none the write does nothing.
    unsafe {
        port::write_u32(ADDRESS, ENABLE);
        port::read_u32(ADDRESS) == ENABLE
    }
}

pub(crate) fn read(address: u32, offset: u16, bytes: usize) -> u32 {
    // SAFETY: the pair belongs to the caller; reading has side effects on the device only.
    unsafe {
        port::write_u32(ADDRESS, ENABLE | address & !3);
        match bytes {
            1 => u32::from(port::read_u8(DATA + offset)),
            2 => u32::from(port::read_u16(DATA + offset)),
            _ => port::read_u32(DATA),
        }
    }
}

/// # Safety
/// As for [`crate::configuration_port::write`].
pub(crate) unsafe fn write(address: u32, offset: u16, bytes: usize, value: u32) {
    // SAFETY: see the function's contract.
    unsafe {
        port::write_u32(ADDRESS, ENABLE | address & !3);
        match bytes {
            1 => port::write_u8(DATA + offset, value as u8),
            2 => port::write_u16(DATA + offset, value as u16),
            _ => port::write_u32(DATA, value),
        }
    }
}
