//! What programs are told of the processor, and what of its ports they may use: nothing.

use core::arch::x86_64::__cpuid_count;

use sync::Once;

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

/// Words by which programs are told what the processor can do. They are asked for once: in a virtual machine each question to the processor leaves it.
static WORDS: Once<(u32, u32)> = Once::new();

fn words() -> (u32, u32) {
    *WORDS.call_once(|| {
        const FEATURES: u32 = 1;
        const MORE_FEATURES: u32 = 7;
        const BASE_INSTRUCTIONS: u32 = 1 << 0;
        let last = __cpuid_count(0, 0).eax;
        let more = if last >= MORE_FEATURES { __cpuid_count(MORE_FEATURES, 0).ebx } else { 0 };
        let base_instructions = if more & BASE_INSTRUCTIONS != 0 { FSGSBASE } else { 0 };
        (__cpuid_count(FEATURES, 0).edx, base_instructions)
    })
}

/// Of `AT_HWCAP2`: user programs may use the FSGSBASE instructions.
const FSGSBASE: u32 = 1 << 1;

/// `AT_HWCAP`: the feature word of CPUID leaf 1, edx.
pub fn capabilities() -> u32 {
    words().0
}

/// `AT_HWCAP2`: of these the kernel switches on what the processor has.
pub fn more_capabilities() -> u32 {
    words().1
}
