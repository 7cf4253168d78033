//! User memory on the host: nothing is mapped until the address space walks its tables in software.

pub(crate) const FAULT: u64 = u64::MAX;
pub(crate) const UNTERMINATED: u64 = u64::MAX - 1;

/// # Safety
/// None: no memory is touched.
pub(crate) unsafe fn copy_in(_to: *mut u8, _from: usize, bytes: usize) -> usize {
    bytes
}

/// # Safety
/// None: no memory is touched.
pub(crate) unsafe fn copy_out(_to: usize, _from: *const u8, bytes: usize) -> usize {
    bytes
}

/// # Safety
/// None: no memory is touched.
pub(crate) unsafe fn zero(_to: usize, bytes: usize) -> usize {
    bytes
}

/// # Safety
/// None: no memory is touched.
pub(crate) unsafe fn copy_string(_to: *mut u8, _from: usize, _limit: usize) -> u64 {
    FAULT
}

/// # Safety
/// None: no memory is touched.
pub(crate) unsafe fn load_u32(_from: usize) -> u64 {
    FAULT
}

/// # Safety
/// None: no memory is touched.
pub(crate) unsafe fn compare_exchange_u32(_at: usize, _old: u32, _new: u32) -> u64 {
    FAULT
}
