//! `PR_GET_SPECULATION_CTRL` and `PR_SET_SPECULATION_CTRL`: which flaws of a processor's speculation are held off for a thread (prctl(2)).
//!
//! Nothing is, for any thread, and no thread can ask for it: the answers are those of Linux booted without the mitigations that can be had for a thread. An
//! emulator does not speculate, so what it runs is not affected; of any other processor the worse is said.

use core::arch::x86_64::__cpuid_count;

use crate::errno::{Errno, SysResult};

/// Which flaw.
mod flaw {
    pub(super) const STORE_BYPASS: u64 = 0;
    pub(super) const INDIRECT_BRANCH: u64 = 1;
    pub(super) const L1D_FLUSH: u64 = 2;
}

/// What is, or is to be done about it.
mod state {
    pub(super) const NOT_AFFECTED: usize = 0;
    pub(super) const ENABLED: usize = 1 << 1;
    pub(super) const DISABLED: usize = 1 << 2;
    pub(super) const DISABLED_FOR_GOOD: usize = 1 << 3;
}

/// What QEMU's emulator calls itself.
const EMULATOR: &[u8; 12] = b"TCGTCGTCGTCG";

/// Whether the processor is an emulated one.
fn is_emulated() -> bool {
    const IN_MACHINE: u32 = 1 << 31;
    const SIGNATURE: u32 = 0x4000_0000;
    if __cpuid_count(1, 0).ecx & IN_MACHINE == 0 {
        return false;
    }
    let answer = __cpuid_count(SIGNATURE, 0);
    let words = [answer.ebx, answer.ecx, answer.edx].map(u32::to_le_bytes);
    words.as_flattened() == EMULATOR
}

/// What is done about a flaw.
pub(super) fn get(which: u64) -> SysResult {
    match which {
        flaw::STORE_BYPASS | flaw::INDIRECT_BRANCH if is_emulated() => Ok(state::NOT_AFFECTED),
        flaw::STORE_BYPASS | flaw::INDIRECT_BRANCH => Ok(state::ENABLED),
        flaw::L1D_FLUSH => Ok(state::DISABLED_FOR_GOOD),
        _ => Err(Errno::ENODEV),
    }
}

/// Asks for something to be done: in vain, unless it is what is.
pub(super) fn set(which: u64, wanted: u64) -> SysResult {
    match (which, wanted as usize) {
        (flaw::STORE_BYPASS, _) => Err(Errno::ENXIO),
        (flaw::INDIRECT_BRANCH, state::ENABLED) => Ok(0),
        (flaw::INDIRECT_BRANCH, state::DISABLED | state::DISABLED_FOR_GOOD) => Err(Errno::EPERM),
        (flaw::INDIRECT_BRANCH, _) => Err(Errno::ERANGE),
        (flaw::L1D_FLUSH, _) => Err(Errno::EPERM),
        _ => Err(Errno::ENODEV),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_three_flaws() {
        for which in 0..3 {
            assert!(get(which).is_ok(), "{which}");
        }
        assert_eq!((get(3), set(3, 0)), (Err(Errno::ENODEV), Err(Errno::ENODEV)));
    }

    #[test]
    fn only_what_is_can_be_had() {
        assert_eq!(set(flaw::INDIRECT_BRANCH, state::ENABLED as u64), Ok(0));
        assert_eq!(set(flaw::INDIRECT_BRANCH, state::DISABLED as u64), Err(Errno::EPERM));
        assert_eq!(set(flaw::INDIRECT_BRANCH, 1 << 4), Err(Errno::ERANGE));
        assert_eq!(set(flaw::STORE_BYPASS, state::ENABLED as u64), Err(Errno::ENXIO));
    }
}
