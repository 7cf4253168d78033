//! How fast the time-stamp counter and the local timer count.
//!
//! The best sources cost nothing: CPUID says the frequency, or the hypervisor does (its timing leaf, or the kvm-clock
//! structure). Otherwise both counters are read against a reference (HPET, ACPI power-management timer, or the
//! 8254) at the start of the platform's set-up and again at its end, so that the measurement overlaps with work; only
//! if that took less than [`WINDOW_MIN_NS`] does it wait. A reading is taken between two of the cycle counter, the
//! tightest of three tries counts. One microsecond of error in a millisecond makes 0.1 %; the second calibration,
//! from an interval of a second, leaves about one part in a million.
//!
//! A busy host may take the processor away in the midst of a reading. Then the reading is known to be bad, and the measurement goes on
//! until it is so long that this does not matter.

use super::apic::{self, Register};
use super::register::cpuid;
use super::{mmu, port, time};
use crate::address::PhysAddr;
use crate::firmware::{Platform, Register as FirmwareRegister};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

const NANOSECONDS: u64 = 1_000_000_000;
/// Shortest measurement.
const WINDOW_MIN_NS: u64 = 1_000_000;
/// Readings of the reference, of which the tightest counts.
const TRIES: usize = 3;
/// The widths of the two readings may make this part of the interval.
const WIDTH_SHARE_MAX: u64 = 50;
/// Most polls of the reference; a reference that stands still must not hang the boot.
const POLLS_MAX: u32 = 10_000_000;

const PM_TIMER_HERTZ: u64 = 3_579_545;
const PM_TIMER_BITS: u32 = 24;
const PIT_HERTZ: u64 = 1_193_182;
const PIT_CHANNEL_0: u16 = 0x40;
const PIT_COMMAND: u16 = 0x43;
const HPET_CAPABILITIES: usize = 0;
const HPET_CONFIGURATION: usize = 0x10;
const HPET_COUNTER: usize = 0xf0;
const HPET_ENABLE: u32 = 1;
const FEMTOSECONDS: u64 = 1_000_000_000_000_000;

/// What was found.
pub(crate) struct Result {
    pub(crate) cycles_per_second: u64,
    /// Counts of the local timer, divided as [`super::time`] divides it.
    pub(crate) timer_per_second: u64,
    /// Whether the first figure needs no refinement.
    pub(crate) is_exact: bool,
}

/// A counter of known frequency.
#[derive(Clone, Copy)]
enum Reference {
    Hpet(usize),
    PmTimer(u16),
    Pit,
}

#[derive(Clone, Copy)]
struct Reading {
    ticks: u32,
    cycles: u64,
    timer: u32,
    /// Cycles that the reading took: what it may be wrong by.
    width: u64,
}

/// A measurement that has begun.
pub(crate) struct Measurement {
    reference: Reference,
    hertz: u64,
    start: Reading,
}

/// The reference and its first reading, for [`refine`]: kind (0 none, 1 HPET, 2 PM timer, 3 PIT), address or port,
/// ticks, cycles, and frequency.
static KIND: AtomicU32 = AtomicU32::new(0);
static PLACE: AtomicUsize = AtomicUsize::new(0);
static START_TICKS: AtomicU32 = AtomicU32::new(0);
static START_CYCLES: AtomicU64 = AtomicU64::new(0);
static HERTZ: AtomicU64 = AtomicU64::new(0);

impl Reference {
    /// The best reference of the machine, made ready to count.
    fn find(platform: &Platform) -> (Reference, u64) {
        if let Some(found) = platform.hpet.and_then(Reference::hpet) {
            return found;
        }
        if let Some(FirmwareRegister::Port(port)) = platform.pm_timer {
            return (Reference::PmTimer(port), PM_TIMER_HERTZ);
        }
        // Mode 0 from 65536: one change of the output at the end of the first round, then it counts on silently.
        // SAFETY: the timer's interrupt line is masked.
        unsafe {
            port::write_u8(PIT_COMMAND, 0x30);
            port::write_u8(PIT_CHANNEL_0, 0);
            port::write_u8(PIT_CHANNEL_0, 0);
        }
        (Reference::Pit, PIT_HERTZ)
    }

    fn hpet(address: u64) -> Option<(Reference, u64)> {
        let base = mmu::map_device(PhysAddr::new(address), 0x400)?.expose_provenance();
        let period_femtoseconds = u64::from(hpet_read(base, HPET_CAPABILITIES + 4));
        if !(1_000_000..=100_000_000).contains(&period_femtoseconds) {
            return None;
        }
        let configuration = core::ptr::with_exposed_provenance_mut::<u32>(base + HPET_CONFIGURATION);
        // SAFETY: mapped registers of the timer block, which nobody else uses.
        unsafe { configuration.write_volatile(hpet_read(base, HPET_CONFIGURATION) | HPET_ENABLE) };
        Some((Reference::Hpet(base), FEMTOSECONDS / period_femtoseconds))
    }

    fn ticks(self) -> u32 {
        match self {
            Reference::Hpet(base) => hpet_read(base, HPET_COUNTER),
            // SAFETY: reading the timer has no side effect.
            Reference::PmTimer(port) => unsafe { port::read_u32(port) },
            // SAFETY: latches and reads channel 0, which nobody else uses.
            Reference::Pit => unsafe {
                port::write_u8(PIT_COMMAND, 0);
                let low = port::read_u8(PIT_CHANNEL_0);
                let high = port::read_u8(PIT_CHANNEL_0);
                // It counts down.
                u32::from(u16::from_le_bytes([low, high])).wrapping_neg()
            },
        }
    }

    /// Bits after which the counter starts over.
    fn bits(self) -> u32 {
        match self {
            Reference::Hpet(_) => 32,
            Reference::PmTimer(_) => PM_TIMER_BITS,
            Reference::Pit => 16,
        }
    }

    /// The longest interval to be measured: a quarter of a second, and well below the counter's round.
    fn ticks_max(self) -> u64 {
        match self {
            Reference::Hpet(_) => 1 << 22,
            Reference::PmTimer(_) => PM_TIMER_HERTZ / 4,
            Reference::Pit => 1 << 15,
        }
    }

    fn difference(self, later: u32, earlier: u32) -> u64 {
        u64::from(later.wrapping_sub(earlier)) & ((1 << self.bits()) - 1)
    }

    fn read(self) -> Reading {
        let mut best = Reading { ticks: 0, cycles: 0, timer: 0, width: u64::MAX };
        for _ in 0..TRIES {
            let before = time::cycles();
            let ticks = self.ticks();
            let timer = apic::read(Register::CurrentCount);
            let width = time::cycles().wrapping_sub(before);
            if width < best.width {
                best = Reading { ticks, cycles: before + width / 2, timer, width };
            }
        }
        best
    }
}

fn hpet_read(base: usize, offset: usize) -> u32 {
    // SAFETY: mapped registers of the timer block; reading has no side effect.
    unsafe { core::ptr::with_exposed_provenance::<u32>(base + offset).read_volatile() }
}

/// Starts the local timer and takes the first reading.
pub(crate) fn begin(platform: &Platform) -> Measurement {
    let (reference, hertz) = Reference::find(platform);
    time::start_timer_for_calibration();
    let start = reference.read();
    let (kind, place) = match reference {
        Reference::Hpet(base) => (1, base),
        Reference::PmTimer(port) => (2, usize::from(port)),
        Reference::Pit => (3, 0),
    };
    KIND.store(kind, Ordering::Relaxed);
    PLACE.store(place, Ordering::Relaxed);
    START_TICKS.store(start.ticks, Ordering::Relaxed);
    START_CYCLES.store(start.cycles, Ordering::Relaxed);
    HERTZ.store(hertz, Ordering::Relaxed);
    Measurement { reference, hertz, start }
}

/// Takes the second reading, waiting for the shortest window to pass if need be.
pub(crate) fn finish(measurement: &Measurement) -> Result {
    let Measurement { reference, hertz, start } = *measurement;
    let mut ticks_min = (WINDOW_MIN_NS * hertz / NANOSECONDS).max(1);
    let end = loop {
        for _ in 0..POLLS_MAX {
            if reference.difference(reference.ticks(), start.ticks) >= ticks_min {
                break;
            }
        }
        let end = reference.read();
        let interval = end.cycles.wrapping_sub(start.cycles);
        ticks_min *= 2;
        let is_good = (start.width + end.width) * WIDTH_SHARE_MAX <= interval;
        if is_good || ticks_min > reference.ticks_max() {
            break end;
        }
    };
    let ticks = u128::from(reference.difference(end.ticks, start.ticks).max(1));
    let cycles = u128::from(end.cycles.wrapping_sub(start.cycles));
    let counts = u128::from(start.timer.wrapping_sub(end.timer));
    let told = told_by_processor().or_else(told_by_hypervisor);
    let measured = (cycles * u128::from(hertz) / ticks) as u64;
    Result {
        cycles_per_second: told.unwrap_or(measured).max(1_000_000),
        timer_per_second: (counts * u128::from(hertz) / ticks) as u64,
        is_exact: told.is_some(),
    }
}

/// The counter's frequency from the interval since [`begin`], given a figure that is right within 5 %.
pub(crate) fn refine(cycles_per_second: u64) -> Option<u64> {
    let place = PLACE.load(Ordering::Relaxed);
    let reference = match KIND.load(Ordering::Relaxed) {
        1 => Reference::Hpet(place),
        2 => Reference::PmTimer(place as u16),
        3 => Reference::Pit,
        _ => return None,
    };
    let hertz = HERTZ.load(Ordering::Relaxed);
    let now = reference.read();
    let cycles = now.cycles.wrapping_sub(START_CYCLES.load(Ordering::Relaxed));
    let rest = reference.difference(now.ticks, START_TICKS.load(Ordering::Relaxed));
    // The counter may have started over several times; what we know already tells how often.
    let round = 1_u64 << reference.bits();
    let expected = (u128::from(cycles) * u128::from(hertz) / u128::from(cycles_per_second)) as u64;
    let rounds = (expected + round / 2).saturating_sub(rest) / round;
    let ticks = rounds * round + rest;
    let refined = (u128::from(cycles) * u128::from(hertz) / u128::from(ticks.max(1))) as u64;
    (refined.abs_diff(cycles_per_second) < cycles_per_second / 20).then_some(refined)
}

/// CPUID leaf 15h: the crystal's frequency and the counter's ratio to it.
fn told_by_processor() -> Option<u64> {
    let leaf = cpuid(0x15, 0);
    let (denominator, numerator, crystal) = (u64::from(leaf.eax), u64::from(leaf.ebx), u64::from(leaf.ecx));
    (denominator != 0 && numerator != 0 && crystal != 0).then(|| crystal * numerator / denominator)
}

/// The hypervisor's timing leaf: kHz.
fn told_by_hypervisor() -> Option<u64> {
    const HYPERVISOR_PRESENT: u32 = 1 << 31;
    const TIMING_LEAF: u32 = 0x4000_0010;
    if cpuid(1, 0).ecx & HYPERVISOR_PRESENT == 0 {
        return None;
    }
    let kilohertz = u64::from(cpuid(TIMING_LEAF, 0).eax);
    (kilohertz != 0).then(|| kilohertz * 1000).or_else(super::kvm_clock::cycles_per_second)
}
