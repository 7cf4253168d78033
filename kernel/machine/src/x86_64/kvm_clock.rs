//! The paravirtual clock of KVM, read once for the frequency of the time-stamp counter.

use super::register::{cpuid, write_msr};
use super::start::image_physical_of;
use core::cell::UnsafeCell;
use core::sync::atomic::{Ordering, fence};

const LEAF_SIGNATURE: u32 = 0x4000_0000;
const LEAF_FEATURES: u32 = 0x4000_0001;
const FEATURE_CLOCK: u32 = 1 << 3;
const MSR_SYSTEM_TIME: u32 = 0x4b56_4d01;
const ENABLE: u64 = 1;

/// What the hypervisor writes: time = (cycles << shift) * multiplier / 2^32.
#[repr(C, align(32))]
struct TimeInfo {
    version: u32,
    padding: u32,
    cycles: u64,
    system_time_ns: u64,
    multiplier: u32,
    shift: i8,
    flags: u8,
    padding2: [u8; 2],
}

struct Shared(UnsafeCell<TimeInfo>);

// SAFETY: written by the hypervisor, read volatile by the boot processor only.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared(UnsafeCell::new(TimeInfo {
    version: 0,
    padding: 0,
    cycles: 0,
    system_time_ns: 0,
    multiplier: 0,
    shift: 0,
    flags: 0,
    padding2: [0; 2],
}));

/// The counter's frequency as KVM tells it; None under other hypervisors.
pub(crate) fn cycles_per_second() -> Option<u64> {
    let signature = cpuid(LEAF_SIGNATURE, 0);
    let is_kvm = [signature.ebx, signature.ecx, signature.edx] == [0x4b4d_564b, 0x564b_4d56, 0x4d];
    if !is_kvm || cpuid(LEAF_FEATURES, 0).eax & FEATURE_CLOCK == 0 {
        return None;
    }
    let info = SHARED.0.get();
    // SAFETY: the feature bit says that the register exists; it is given the structure's own memory and taken
    // back before anybody else could use it.
    let (multiplier, shift) = unsafe {
        write_msr(MSR_SYSTEM_TIME, image_physical_of(info.cast()) | ENABLE);
        fence(Ordering::SeqCst);
        let found =
            ((&raw const (*info).multiplier).read_volatile(), (&raw const (*info).shift).read_volatile());
        write_msr(MSR_SYSTEM_TIME, 0);
        found
    };
    if multiplier == 0 || !(-31..=31).contains(&shift) {
        return None;
    }
    let base = (1_000_000_000_u128 << 32) / u128::from(multiplier);
    let hertz = if shift >= 0 { base >> shift } else { base << -shift };
    u64::try_from(hertz).ok()
}
