//! What the auxiliary vector says about the processor.

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
