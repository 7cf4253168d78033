//! The way of a frame between its pool and its holders.
//!
//! Allocation: zeroed pool or list of this CPU → (empty) a batch from the pool → (below the watermark) reclaim, then
//! the out-of-memory policy, where the caller may wait. Freeing: onto this CPU's list → (full) a batch to the pool.
//!
//! Costs: the common case takes no lock and no atomic operation; interrupts are off for about twenty instructions.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use super::contents;
use super::metadata::{FOUND_BY_LOOKUP, State};
use super::number::FrameNumber;
use super::per_cpu::{BATCH, CpuFrames, READY_CAPACITY, bump};
use super::pool;
use super::purpose::Purpose;
use super::table::metadata;
use super::watermark::Urgency;
use super::{Zeroed, poison};
use crate::local::local;
use crate::oom::{self, Relief, Shortage};
use crate::{OutOfMemory, charge, fallible, huge_pool, reclaim};

/// Rounds of reclaim and out-of-memory policy before an allocation fails.
const ATTEMPTS_MAX: u32 = 16;

/// Rounds before the out-of-memory policy is asked although files have clean pages.
const PATIENCE: u32 = 12;

/// Frames that a CPU keeps at most in this machine; less than [`READY_CAPACITY`] where memory is small. Written at
/// start-up.
static READY_LIMIT: AtomicU32 = AtomicU32::new(READY_CAPACITY as u32);

/// A CPU keeps at most this part of memory.
const READY_SHARE: u64 = 256;

/// Sets what CPUs may keep in a machine with this many frames.
pub(crate) fn set_limits(frames: u64) {
    let limit = (frames / READY_SHARE).clamp(8, READY_CAPACITY as u64);
    READY_LIMIT.store(limit as u32, Relaxed);
}

/// Whether the caller may wait for memory.
pub(crate) fn may_wait() -> bool {
    machine::preempt::count() == 0 && machine::interrupt::are_enabled() && !machine::interrupt::in_interrupt()
}

/// Allocates one frame with one reference.
#[inline]
#[track_caller]
pub(crate) fn allocate(
    purpose: Purpose,
    zeroed: Zeroed,
    urgency: Urgency,
) -> Result<FrameNumber, OutOfMemory> {
    fallible::fail_point()?;
    if charge::is_charged(purpose) && machine::preempt::payer() != 0 {
        return charge::allocate_charged(purpose, zeroed, urgency);
    }
    allocate_uncharged(purpose, zeroed, urgency)
}

/// The same for nobody in particular.
#[inline]
pub(crate) fn allocate_uncharged(
    purpose: Purpose,
    zeroed: Zeroed,
    urgency: Urgency,
) -> Result<FrameNumber, OutOfMemory> {
    let (frame, is_zero) = match local(|cpu| take_cached(&cpu.frames, purpose, zeroed)) {
        Some(found) => found,
        None => (allocate_from_pool(purpose, urgency)?, false),
    };
    let known = metadata(frame);
    debug_assert_eq!(known.state(), State::Cached);
    known.set_state(State::Allocated { purpose, order: 0 });
    known.begin_references(purpose);
    match (zeroed, is_zero) {
        (Zeroed::Yes, false) => contents::zero(frame),
        (_, false) => poison::check(frame),
        (_, true) => {}
    }
    Ok(frame)
}

/// A frame that this CPU has at hand, and whether it is zeroed.
#[inline]
fn take_cached(frames: &CpuFrames, purpose: Purpose, zeroed: Zeroed) -> Option<(FrameNumber, bool)> {
    let found = match zeroed {
        Zeroed::Yes => match frames.zeroed.pop() {
            Some(frame) => {
                bump(&frames.counters.zeroed_hits, 1);
                (frame, true)
            }
            None => {
                let frame = frames.ready.pop()?;
                bump(&frames.counters.zeroed_misses, 1);
                (frame, false)
            }
        },
        Zeroed::No => (frames.ready.pop()?, false),
    };
    frames.count(purpose, 1);
    Some(found)
}

#[cold]
#[inline(never)]
fn allocate_from_pool(purpose: Purpose, urgency: Urgency) -> Result<FrameNumber, OutOfMemory> {
    with_reclaim(urgency, |urgency| {
        let found = local(|cpu| {
            let frame = refill(&cpu.frames, urgency).or_else(|| cpu.frames.zeroed.pop())?;
            cpu.frames.count(purpose, 1);
            Some(frame)
        });
        // From the pool or the zeroed ones: either way not known to hold what a freed frame should.
        found.inspect(|&frame| metadata(frame).set_state(State::Cached))
    })
}

/// Tries an allocation; between tries makes memory free, if the caller may wait. The attempt is given the urgency that it may
/// claim.
///
/// Reclaim comes first. From the second round on the out-of-memory policy is asked whatever reclaim says that it found: what
/// others take at once is no progress, and without a victim everybody would go on like this. Only while files have plenty of clean pages
/// it is asked later: what others take then are such pages.
pub(crate) fn with_reclaim<T>(
    urgency: Urgency,
    mut attempt: impl FnMut(Urgency) -> Option<T>,
) -> Result<T, OutOfMemory> {
    for round in 0..ATTEMPTS_MAX {
        if let Some(found) = attempt(urgency) {
            return Ok(found);
        }
        if urgency != Urgency::Normal || !may_wait() {
            break;
        }
        let freed = reclaim::reclaim_now(BATCH);
        if let Some(found) = attempt(urgency) {
            return Ok(found);
        }
        if freed >= BATCH && (round == 0 || round < PATIENCE && reclaim::files_have_more()) {
            continue;
        }
        match oom::invoke(Shortage::Machine) {
            Relief::Retry => {}
            Relief::UseReserve => return attempt(Urgency::Atomic).ok_or(OutOfMemory),
            Relief::Hopeless => break,
        }
    }
    reclaim::wake();
    Err(OutOfMemory)
}

/// Fetches a batch from the pool; the last frame of it is returned.
fn refill(frames: &CpuFrames, urgency: Urgency) -> Option<FrameNumber> {
    let mut pool = pool::lock();
    let first = pool.take(0, urgency)?;
    let wanted = BATCH.min(READY_LIMIT.load(Relaxed) as usize / 2);
    while frames.ready.len() < wanted
        && let Some(frame) = pool.take(0, urgency)
    {
        metadata(frame).set_state(State::Cached);
        frames.ready.push(frame);
    }
    let low = pool.is_low();
    drop(pool);
    bump(&frames.counters.refills, 1);
    if low {
        reclaim::wake();
    }
    Some(first)
}

/// Gives one reference back; frees the frame with the last one.
#[inline]
pub(crate) fn release(frame: FrameNumber) {
    let known = metadata(frame);
    debug_assert!(
        matches!(known.state(), State::Allocated { order: 0, .. })
            && known.references.load(Relaxed) & !FOUND_BY_LOOKUP > 0,
        "{frame:?} is freed twice: {:?}",
        known.state()
    );
    // The only holder needs no atomic operation, unless somebody without a reference may gain one meanwhile (then the word is not 1). Acquire
    // and Release: what other holders did to the frame happens before it is used anew.
    if known.references.load(Acquire) != 1 {
        if known.references.fetch_sub(1, Release) & !FOUND_BY_LOOKUP != 1 {
            return;
        }
        known.references.load(Acquire);
    } else {
        known.references.store(0, Relaxed);
    }
    if known.account() != 0 && huge_pool::came_home(frame, known) {
        return;
    }
    free(frame, known.purpose());
}

/// Frees an allocated frame without references.
pub(crate) fn free(frame: FrameNumber, purpose: Purpose) {
    poison::fill(frame, purpose);
    metadata(frame).set_state(State::Cached);
    local(|cpu| {
        let frames = &cpu.frames;
        frames.count(purpose, -1);
        if frames.ready.is_full() || frames.ready.len() >= READY_LIMIT.load(Relaxed) as usize {
            drain(frames, BATCH);
        }
        frames.ready.push(frame);
    });
}

/// Gives up to `count` frames of a CPU back to the pool.
#[cold]
#[inline(never)]
fn drain(frames: &CpuFrames, count: usize) {
    let mut pool = pool::lock();
    for _ in 0..count {
        let Some(frame) = frames.ready.pop() else { break };
        pool.give(frame, 0);
    }
    drop(pool);
    bump(&frames.counters.drains, 1);
}

/// Gives all frames that this CPU has at hand back to the pool.
pub(crate) fn drain_this_cpu() {
    local(|cpu| {
        let frames = &cpu.frames;
        let mut pool = pool::lock();
        while let Some(frame) = frames.ready.pop().or_else(|| frames.zeroed.pop()) {
            pool.give(frame, 0);
        }
    });
}

/// Makes one more zeroed frame for this CPU; for idle moments. False when there are enough, or memory is short.
pub fn zero_ahead() -> bool {
    let wanted = READY_LIMIT.load(Relaxed) as usize / 3;
    let frame = local(|cpu| {
        let frames = &cpu.frames;
        if frames.zeroed.is_full() || frames.zeroed.len() >= wanted {
            return None;
        }
        let frame = match frames.ready.pop() {
            Some(frame) => frame,
            None => {
                let mut pool = pool::lock();
                if pool.free() < pool.marks().high {
                    return None;
                }
                let frame = pool.take(0, Urgency::Normal)?;
                frames.zeroing.store(1, Relaxed);
                frame
            }
        };
        frames.zeroing.store(1, Relaxed);
        Some(frame)
    });
    let Some(frame) = frame else { return false };
    contents::zero(frame);
    metadata(frame).set_state(State::Cached);
    local(|cpu| {
        let frames = &cpu.frames;
        if !frames.zeroed.is_full() {
            frames.zeroed.push(frame);
            frames.zeroing.store(0, Relaxed);
        } else {
            let mut pool = pool::lock();
            pool.give(frame, 0);
            frames.zeroing.store(0, Relaxed);
        }
    });
    true
}
