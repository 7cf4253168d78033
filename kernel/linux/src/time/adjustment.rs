//! adjtimex and clock_adjtime: what a program that keeps the clock right reads and sets.
//!
//! The clock is the host's, which is kept right there. So it can be set and stepped, and what is said of it (status, errors, the offset of
//! atomic time) is kept and told; but it does not run faster or slower: changes of frequency and tick, and offsets that would be made up for little by little, are refused.

use sync::SpinLock;
use vfs::Capabilities;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::clock::realtime_ns;
use crate::abi::NANOSECONDS;
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// What is to be changed.
mod change {
    pub(super) const OFFSET: u32 = 1;
    pub(super) const FREQUENCY: u32 = 2;
    pub(super) const MAXIMAL_ERROR: u32 = 4;
    pub(super) const ESTIMATED_ERROR: u32 = 8;
    pub(super) const STATUS: u32 = 0x10;
    pub(super) const TIME_CONSTANT: u32 = 0x20;
    pub(super) const ATOMIC_TIME: u32 = 0x80;
    pub(super) const STEP: u32 = 0x100;
    pub(super) const NANOSECONDS: u32 = 0x2000;
    pub(super) const MICROSECONDS: u32 = 0x1000;
    pub(super) const TICK: u32 = 0x4000;
    /// adjtime(3), and adjtime(3) that only asks.
    pub(super) const SLEW: u32 = 0x8001;
    pub(super) const SLEW_READ: u32 = 0xa001;
}

/// `STA_UNSYNC`, `STA_NANO`, and those that programs can't set.
const NOT_SYNCHRONOUS: i32 = 0x40;
const IN_NANOSECONDS: i32 = 0x2000;
const READ_ONLY: i32 = 0xff00;
/// What is returned: all is well, or nobody keeps the clock.
const OK: usize = 0;
const ERROR: usize = 5;
/// Microseconds between ticks; the greatest error that is told.
const TICK_US: i64 = 10_000;
const ERROR_MAX_US: i64 = 16_000_000;
const TOLERANCE: i64 = 32_768_000;

/// `struct timex`
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Adjustment {
    modes: u32,
    padding: u32,
    offset: i64,
    frequency: i64,
    maximal_error: i64,
    estimated_error: i64,
    status: i32,
    padding2: u32,
    constant: i64,
    precision: i64,
    tolerance: i64,
    seconds: i64,
    fraction: i64,
    tick: i64,
    pulse: [i64; 8],
    atomic_time: i32,
    reserved: [u32; 11],
}

const _: () = assert!(size_of::<Adjustment>() == 208);

/// What is said of the clock.
struct Kept {
    status: i32,
    maximal_error: i64,
    estimated_error: i64,
    constant: i64,
    atomic_time: i32,
}

static KEPT: SpinLock<Kept> = SpinLock::named(
    "adjustment of the clock",
    Kept {
        status: NOT_SYNCHRONOUS,
        maximal_error: ERROR_MAX_US,
        estimated_error: ERROR_MAX_US,
        constant: 2,
        atomic_time: 0,
    },
);

/// Reads and changes what is said of the time of day.
pub(crate) fn adjtimex(task: &mut Task, pointer: u64) -> SysResult {
    let pointer = UserPointer::<Adjustment>::new(pointer);
    let mut words = pointer.read()?;
    let modes = words.modes;
    if modes != 0 && modes != change::SLEW_READ {
        task.credentials.require(Capabilities::SYS_TIME)?;
        check(&words)?;
        apply(&words)?;
    }
    let kept = KEPT.lock();
    let status = kept.status;
    words.status = status;
    words.maximal_error = kept.maximal_error;
    words.estimated_error = kept.estimated_error;
    words.constant = kept.constant;
    words.atomic_time = kept.atomic_time;
    drop(kept);
    let now = realtime_ns();
    let per_unit = if status & IN_NANOSECONDS != 0 { 1 } else { 1000 };
    (words.offset, words.frequency, words.pulse) = (0, 0, [0; 8]);
    (words.precision, words.tolerance, words.tick) = (1, TOLERANCE, TICK_US);
    words.seconds = (now / NANOSECONDS) as i64;
    words.fraction = (now % NANOSECONDS / per_unit) as i64;
    pointer.write(&words)?;
    Ok(if status & NOT_SYNCHRONOUS != 0 { ERROR } else { OK })
}

/// The same by the number of a clock.
pub(crate) fn clock_adjtime(task: &mut Task, clock: i32, pointer: u64) -> SysResult {
    if clock == 0 {
        return adjtimex(task, pointer);
    }
    super::Clock::from_number(clock)?;
    Err(Errno::EOPNOTSUPP)
}

fn check(words: &Adjustment) -> Result<(), Errno> {
    let modes = words.modes;
    let slews = modes & change::SLEW == change::SLEW || modes & change::OFFSET != 0;
    if (slews && words.offset != 0)
        || (modes & change::FREQUENCY != 0 && words.frequency != 0)
        || (modes & change::TICK != 0 && words.tick != TICK_US)
    {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

fn apply(words: &Adjustment) -> Result<(), Errno> {
    let modes = words.modes;
    if modes & change::SLEW == change::SLEW {
        return Ok(());
    }
    if modes & change::STEP != 0 {
        step(words)?;
    }
    let mut kept = KEPT.lock();
    if modes & change::STATUS != 0 {
        kept.status = kept.status & READ_ONLY | words.status & !READ_ONLY;
    }
    if modes & change::NANOSECONDS != 0 {
        kept.status |= IN_NANOSECONDS;
    }
    if modes & change::MICROSECONDS != 0 {
        kept.status &= !IN_NANOSECONDS;
    }
    if modes & change::MAXIMAL_ERROR != 0 {
        kept.maximal_error = words.maximal_error;
    }
    if modes & change::ESTIMATED_ERROR != 0 {
        kept.estimated_error = words.estimated_error;
    }
    if modes & change::TIME_CONSTANT != 0 {
        kept.constant = words.constant.clamp(0, 10);
    }
    if modes & change::ATOMIC_TIME != 0 && (0..=1 << 16).contains(&words.constant) {
        kept.atomic_time = words.constant as i32;
    }
    Ok(())
}

/// Sets the time of day forth or back.
fn step(words: &Adjustment) -> Result<(), Errno> {
    let unit = if words.modes & change::NANOSECONDS != 0 { 1 } else { 1000 };
    let fraction = u64::try_from(words.fraction).map_err(|_| Errno::EINVAL)?;
    if fraction >= NANOSECONDS / unit {
        return Err(Errno::EINVAL);
    }
    let seconds = i128::from(words.seconds) * i128::from(NANOSECONDS);
    let wanted = i128::from(realtime_ns()) + seconds + i128::from(fraction * unit);
    super::wall_clock::set(u64::try_from(wanted).map_err(|_| Errno::EINVAL)?)
}
