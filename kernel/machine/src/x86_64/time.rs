//! The clock and the deadline timer of the bare machine.
//!
//! The clock is the time-stamp counter: `base_ns + (cycles - base_cycles) * multiplier / 2^32`. The three parameters
//! are written by the boot processor: at start-up from a measurement of about a millisecond ([`super::calibration`]),
//! and once more a second later from the longer interval, without a jump at the moment of the change. Readers check a
//! sequence word, so they never mix old and new.
//!
//! The deadline timer is the local APIC's, one-shot: in TSC-deadline mode where the processor has it, else counting
//! down. A count that can't reach the deadline, or that ends early for rounding, is started again without calling
//! the handler.

use super::apic::{self, Register, VECTOR_TIMER};
use super::calibration;
use super::register::{MSR_TSC_DEADLINE, cpuid, write_msr};
use crate::time::VdsoParameters;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Scale of the multipliers.
const SHIFT: u32 = 32;
const NANOSECONDS: u64 = 1_000_000_000;
/// When the clock is calibrated again, after the start of the kernel.
const REFINE_AFTER_NS: u64 = NANOSECONDS;
/// Timer mode bits of the local vector table.
const MODE_DEADLINE: u32 = 2 << 17;
/// Divide the timer's input clock by 4.
const DIVIDE_BY_4: u32 = 1;

/// Even: the parameters are stable.
static SEQUENCE: AtomicU32 = AtomicU32::new(0);
static BASE_CYCLES: AtomicU64 = AtomicU64::new(0);
static BASE_NS: AtomicU64 = AtomicU64::new(0);
static MULTIPLIER: AtomicU64 = AtomicU64::new(1 << SHIFT);
static CYCLES_PER_SECOND: AtomicU64 = AtomicU64::new(NANOSECONDS);
/// Cycle counter at kernel entry.
static BOOT_CYCLES: AtomicU64 = AtomicU64::new(0);
/// Timer counts per nanosecond, scaled by `1 << SHIFT`. Unused in deadline mode.
static TIMER_MULTIPLIER: AtomicU64 = AtomicU64::new(0);
static DEADLINE_MODE: AtomicBool = AtomicBool::new(false);
static REFINED: AtomicBool = AtomicBool::new(false);
static WALL_CLOCK_BOOT_NS: AtomicU64 = AtomicU64::new(0);

/// The deadline of each processor; `u64::MAX` for none. Written by its own processor only.
static DEADLINES: [Deadline; crate::cpu::MAX_CPUS] =
    [const { Deadline(AtomicU64::new(!u64::MAX)) }; crate::cpu::MAX_CPUS];

/// The complement of a time, so that the table is zero at first and takes no room in the kernel's file.
#[repr(align(64))]
struct Deadline(AtomicU64);

impl Deadline {
    fn get(&self) -> u64 {
        !self.0.load(Ordering::Relaxed)
    }

    fn set(&self, deadline_ns: u64) {
        self.0.store(!deadline_ns, Ordering::Relaxed);
    }
}

fn scale(value: u64, multiplier: u64) -> u64 {
    ((u128::from(value) * u128::from(multiplier)) >> SHIFT) as u64
}

#[inline(always)]
fn parameters() -> VdsoParameters {
    loop {
        let before = SEQUENCE.load(Ordering::Acquire);
        let parameters = VdsoParameters {
            base_cycles: BASE_CYCLES.load(Ordering::Relaxed),
            base_ns: BASE_NS.load(Ordering::Relaxed),
            multiplier: MULTIPLIER.load(Ordering::Relaxed),
            shift: SHIFT,
        };
        fence(Ordering::Acquire);
        if before & 1 == 0 && SEQUENCE.load(Ordering::Relaxed) == before {
            return parameters;
        }
        core::hint::spin_loop();
    }
}

fn set_parameters(base_cycles: u64, base_ns: u64, multiplier: u64) {
    let guard = crate::interrupt::disable();
    SEQUENCE.fetch_add(1, Ordering::Relaxed);
    fence(Ordering::Release);
    BASE_CYCLES.store(base_cycles, Ordering::Relaxed);
    BASE_NS.store(base_ns, Ordering::Relaxed);
    MULTIPLIER.store(multiplier, Ordering::Relaxed);
    // Release: pairs with the Acquire at the top of `parameters`.
    SEQUENCE.fetch_add(1, Ordering::Release);
    drop(guard);
}

/// Cycles since `base`, 0 if another processor's counter lags behind it.
fn since(cycles: u64, base: u64) -> u64 {
    cycles.saturating_sub(base)
}

#[inline]
pub(crate) fn now_ns() -> u64 {
    let parameters = parameters();
    parameters.base_ns + scale(since(cycles(), parameters.base_cycles), parameters.multiplier)
}

#[inline(always)]
pub(crate) fn cycles() -> u64 {
    // SAFETY: reading the time-stamp counter has no side effect.
    unsafe { core::arch::x86_64::_rdtsc() }
}

pub(crate) fn cycles_per_second() -> u64 {
    CYCLES_PER_SECOND.load(Ordering::Relaxed)
}

/// The time of a cycle count that may lie before the clock's base.
pub(crate) fn cycles_to_ns_since_boot(cycles: u64) -> u64 {
    scale(since(cycles, BOOT_CYCLES.load(Ordering::Relaxed)), MULTIPLIER.load(Ordering::Relaxed))
}

pub(crate) fn vdso_parameters() -> Option<VdsoParameters> {
    Some(parameters())
}

pub(crate) fn wall_clock_boot_ns() -> u64 {
    WALL_CLOCK_BOOT_NS.load(Ordering::Relaxed)
}

/// The cycle counter at kernel entry: time 0.
pub(crate) fn set_boot_cycles(cycles: u64) {
    BOOT_CYCLES.store(cycles, Ordering::Relaxed);
    BASE_CYCLES.store(cycles, Ordering::Relaxed);
}

/// Sets the clock from its first calibration, and the timer; then the wall clock.
pub(crate) fn initialise(measured: calibration::Result) {
    let multiplier = (u128::from(NANOSECONDS) << SHIFT) / u128::from(measured.cycles_per_second);
    CYCLES_PER_SECOND.store(measured.cycles_per_second, Ordering::Relaxed);
    set_parameters(BOOT_CYCLES.load(Ordering::Relaxed), 0, multiplier as u64);
    REFINED.store(measured.is_exact, Ordering::Relaxed);
    let per_ns = (u128::from(measured.timer_per_second) << SHIFT) / u128::from(NANOSECONDS);
    TIMER_MULTIPLIER.store(per_ns as u64, Ordering::Relaxed);
    DEADLINE_MODE.store(cpuid(1, 0).ecx & 1 << 24 != 0, Ordering::Relaxed);
    crate::interrupt::connect_local(VECTOR_TIMER, |_| timer_interrupt(), 0);
    if let Some(now) = super::real_time_clock::read_seconds() {
        WALL_CLOCK_BOOT_NS.store((now * NANOSECONDS).saturating_sub(now_ns()), Ordering::Relaxed);
    }
}

/// Lets the timer count free for the calibration.
pub(crate) fn start_timer_for_calibration() {
    // SAFETY: the timer's vector is masked, so reaching zero raises nothing.
    unsafe {
        apic::write(Register::Divide, DIVIDE_BY_4);
        apic::write(Register::InitialCount, u32::MAX);
    }
}

/// Makes this processor's timer ready, with no deadline.
pub(crate) fn initialise_cpu() {
    let mode = if DEADLINE_MODE.load(Ordering::Relaxed) { MODE_DEADLINE } else { 0 };
    // SAFETY: the vector has its handler.
    unsafe {
        apic::write(Register::InitialCount, 0);
        apic::write(Register::Divide, DIVIDE_BY_4);
        apic::write(Register::Timer, u32::from(VECTOR_TIMER) | mode);
    }
    // In xAPIC mode the change of mode must be in effect before the deadline's first write.
    fence(Ordering::SeqCst);
}

fn own_deadline() -> &'static Deadline {
    &DEADLINES[super::cpu::current_index() as usize]
}

#[inline]
pub(crate) fn set_deadline_ns(deadline_ns: u64) {
    own_deadline().set(deadline_ns);
    arm(deadline_ns);
}

#[inline(always)]
fn arm(deadline_ns: u64) {
    let deadline_ns = crate::profile::limit(deadline_ns);
    let parameters = parameters();
    let now_cycles = cycles();
    let now = parameters.base_ns + scale(since(now_cycles, parameters.base_cycles), parameters.multiplier);
    let wait_ns = deadline_ns.saturating_sub(now);
    if DEADLINE_MODE.load(Ordering::Relaxed) {
        let wait = u128::from(wait_ns) * u128::from(cycles_per_second()) / u128::from(NANOSECONDS);
        let target = u128::from(now_cycles) + wait + 1;
        // SAFETY: the mode is only chosen where the register exists; the vector has its handler.
        unsafe { write_msr(MSR_TSC_DEADLINE, u64::try_from(target).unwrap_or(u64::MAX)) };
    } else {
        let count = scale(wait_ns, TIMER_MULTIPLIER.load(Ordering::Relaxed)) + 1;
        // SAFETY: the vector has its handler.
        unsafe { apic::write(Register::InitialCount, u32::try_from(count).unwrap_or(u32::MAX)) };
    }
}

pub(crate) fn clear_deadline() {
    own_deadline().set(u64::MAX);
    if crate::profile::counters().is_some() {
        return arm(u64::MAX);
    }
    // SAFETY: stops the timer. In deadline mode the register exists.
    unsafe {
        if DEADLINE_MODE.load(Ordering::Relaxed) {
            write_msr(MSR_TSC_DEADLINE, 0);
        } else {
            apic::write(Register::InitialCount, 0);
        }
    }
}

fn timer_interrupt() {
    let deadline = own_deadline().get();
    let counters = crate::profile::counters();
    if let Some(counters) = counters {
        crate::profile::sample(counters);
    }
    if deadline == u64::MAX {
        if counters.is_some() {
            arm(deadline);
        }
        return;
    }
    let now = now_ns();
    if now < deadline {
        arm(deadline);
        return;
    }
    if super::cpu::current_index() == 0 && now >= REFINE_AFTER_NS && !REFINED.swap(true, Ordering::Relaxed) {
        refine();
    }
    own_deadline().set(u64::MAX);
    crate::time::expired();
}

/// Calibrates again from the interval since start-up; the clock goes on from where it is.
fn refine() {
    let Some(cycles_per_second) = calibration::refine(cycles_per_second()) else { return };
    let parameters = parameters();
    let base_cycles = cycles();
    let base_ns =
        parameters.base_ns + scale(since(base_cycles, parameters.base_cycles), parameters.multiplier);
    CYCLES_PER_SECOND.store(cycles_per_second, Ordering::Relaxed);
    let multiplier = (u128::from(NANOSECONDS) << SHIFT) / u128::from(cycles_per_second);
    set_parameters(base_cycles, base_ns, multiplier as u64);
    crate::time::vdso_changed();
}
