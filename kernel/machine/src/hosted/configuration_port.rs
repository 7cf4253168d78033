//! A hosted machine has no PCI bus.

pub(crate) fn exists() -> bool {
    false
}

pub(crate) fn read(_address: u32, _offset: u16, _bytes: usize) -> u32 {
    u32::MAX
}

/// # Safety
/// None is needed: nothing happens.
pub(crate) unsafe fn write(_address: u32, _offset: u16, _bytes: usize, _value: u32) {}
