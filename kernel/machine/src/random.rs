//! Entropy from the hardware, to seed the kernel's generator with.

/// 32 bytes that an outsider can't predict, from the processor's generator and from timing jitter.
pub fn seed() -> [u8; 32] {
    crate::backend::random::seed()
}
