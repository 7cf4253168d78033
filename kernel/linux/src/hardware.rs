//! What programs are told of the processor, and what of its ports they may use: nothing.

use crate::errno::{Errno, SysResult};
use crate::task::Task;

/// Ports that there are.
const PORTS: u64 = 1 << 16;

/// Access to ports: as on a Linux that is locked down nobody gets it.
pub fn ioperm(_task: &mut Task, from: u64, count: u64, allowed: i32) -> SysResult {
    let end = from.checked_add(count).filter(|end| *end > from && *end <= PORTS);
    match end {
        None => Err(Errno::EINVAL),
        Some(_) if allowed != 0 => Err(Errno::EPERM),
        Some(_) => Ok(0),
    }
}

/// Access to all ports.
pub fn iopl(_task: &mut Task, level: u32) -> SysResult {
    match level {
        0 => Ok(0),
        1..=3 => Err(Errno::EPERM),
        _ => Err(Errno::EINVAL),
    }
}

/// AT_HWCAP: the feature word of CPUID leaf 1, edx.
pub fn capabilities() -> u32 {
    0
}

/// AT_HWCAP2: bit 1 says that user programs may use the FSGSBASE instructions.
pub fn more_capabilities() -> u32 {
    const FSGSBASE: u32 = 2;
    let _ = FSGSBASE;
    0
}
