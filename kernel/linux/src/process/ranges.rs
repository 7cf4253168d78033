//! Which number comes next.
//!
//! Each processor hands out the numbers of a leaf of its own, one after the other, so that processors that fork at the same time write
//! no line in common; only once in 64 numbers it takes the next leaf, from one counter. Numbers rise, as everybody knows them to: on one processor
//! each is greater than the one before; on several, a processor whose leaf has fallen more than [`SPREAD`] behind the counter
//! leaves the rest of it and takes the next. At `kernel.pid_max` they begin again at `WRAP_START`, so that
//! early daemons keep their numbers to themselves. A number is given out again after all the others only.
//!
//! `kernel.ns_last_pid` sets the counter; a generation in it has the processors give up the leaves that they have.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use sync::{PerCpu, per_cpu, rcu};

use super::numbers::{self, LEAF};
use super::table::{PID_MAX, Pid};
use crate::errno::Errno;

/// Where numbers start again after the greatest.
const WRAP_START: Pid = 300;
/// Least that `kernel.pid_max` can be.
pub(crate) const PID_MAX_LEAST: Pid = WRAP_START + 1;
/// What a number that is given out is less than the counter at most, unless there are so many processors that two leaves for each
/// are more.
const SPREAD: Pid = 1024;

/// A generation in the upper half, a number in the lower one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Position {
    generation: u32,
    number: Pid,
}

impl Position {
    const fn of(word: u64) -> Self {
        Self { generation: (word >> 32) as u32, number: word as u32 }
    }

    const fn word(self) -> u64 {
        (self.generation as u64) << 32 | self.number as u64
    }
}

/// A processor's place. Only the processor itself writes it, with preemption off.
struct Cursor {
    /// The next number to try; 0: the processor has no leaf.
    position: AtomicU64,
    /// The number given out last.
    last: AtomicU32,
}

// Relaxed everywhere: the leaf's lock decides who gets a number.
static CURSORS: PerCpu<Cursor> = per_cpu!(Cursor { position: AtomicU64::new(0), last: AtomicU32::new(0) });
/// Where the next leaf to be taken begins, or where in it.
static NEXT: AtomicU64 = AtomicU64::new(0);
static MAXIMUM: AtomicU32 = AtomicU32::new(PID_MAX);
static SPREAD_HERE: AtomicU32 = AtomicU32::new(SPREAD);

/// One above the greatest number that is given out.
pub(crate) fn maximum() -> Pid {
    MAXIMUM.load(Ordering::Relaxed)
}

/// Sets it, between [`PID_MAX_LEAST`] and [`PID_MAX`].
pub(crate) fn set_maximum(maximum: Pid) {
    MAXIMUM.store(maximum, Ordering::Relaxed);
}

fn next() -> Position {
    Position::of(NEXT.load(Ordering::Relaxed))
}

/// The number given out last: of those that the processors gave out last the one that is least behind the counter.
pub(crate) fn last() -> Pid {
    let limit = next().number;
    let lasts = CURSORS.iter().map(|cursor| cursor.last.load(Ordering::Relaxed));
    lasts.min_by_key(|last| limit.wrapping_sub(*last) % PID_MAX).unwrap_or(0)
}

/// The next number to be given out is the one after `last`.
pub(crate) fn set_last(last: Pid) {
    let update = |word| {
        let generation = Position::of(word).generation.wrapping_add(1);
        Some(Position { generation, number: last + 1 }.word())
    };
    let _always = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    CURSORS.iter().for_each(|cursor| cursor.last.store(last, Ordering::Relaxed));
}

/// Reserves the next free number. EAGAIN when there is none.
pub(super) fn reserve() -> Result<Pid, Errno> {
    // All leaves, twice: the first may have been begun in its midst.
    let attempts = 2 * (maximum() / LEAF + 1);
    for _ in 0..=attempts {
        if let Some(pid) = reserve_from_own() {
            return Ok(pid);
        }
        take_leaf()?;
    }
    Err(Errno::EAGAIN)
}

/// Bits of the numbers of a leaf from `first` on that may be given out.
fn allowed(first: Pid) -> u64 {
    let base = first - first % LEAF;
    let below = maximum().saturating_sub(base);
    let mask = if below >= LEAF { !0 } else { (1 << below) - 1 };
    mask & !0 << (first % LEAF)
}

/// A number of the leaf that this processor has.
fn reserve_from_own() -> Option<Pid> {
    let guard = rcu::read();
    let cursor = CURSORS.this();
    let own = Position::of(cursor.position.load(Ordering::Relaxed));
    if own.number == 0 {
        return None;
    }
    let limit = next();
    let is_current = own.generation == limit.generation
        && limit.number.wrapping_sub(own.number) <= SPREAD_HERE.load(Ordering::Relaxed);
    let pid = is_current.then(|| {
        numbers::with_leaf(own.number, |_, state| {
            let bit = (!state.used & allowed(own.number)).trailing_zeros();
            (bit < LEAF).then(|| {
                state.used |= 1 << bit;
                state.reserved |= 1 << bit;
                own.number - own.number % LEAF + bit
            })
        })
    });
    // The leaf is there: this processor holds it.
    let pid = pid.and_then(|pid| pid.ok().flatten());
    let has_more = pid.is_some_and(|pid| pid % LEAF != LEAF - 1);
    let number = pid.filter(|_| has_more).map_or(0, |pid| pid + 1);
    cursor.position.store(Position { number, ..own }.word(), Ordering::Relaxed);
    if let Some(pid) = pid {
        cursor.last.store(pid, Ordering::Relaxed);
    }
    drop(guard);
    if !has_more {
        numbers::release(own.number);
    }
    pid
}

/// Takes the next leaf for this processor, unless it has got one meanwhile or there is no free number in it.
#[inline(never)]
fn take_leaf() -> Result<(), Errno> {
    let processors = memory::per_cpu::existing_cpus().count() as u32;
    SPREAD_HERE.store(SPREAD.max(2 * LEAF * processors), Ordering::Relaxed);
    let begin = |word| {
        let Position { generation, number } = Position::of(word);
        let number = if number >= maximum() { WRAP_START } else { number };
        Position { generation, number }
    };
    let beyond = |start: Position| Position { number: start.number - start.number % LEAF + LEAF, ..start };
    let update = |word| Some(beyond(begin(word)).word());
    let start = match NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update) {
        Ok(word) | Err(word) => begin(word),
    };
    // Number 0 stands for none.
    let number = start.number.max(1);
    let is_held = numbers::with_leaf(number, |_, state| {
        let has_room = !state.used & allowed(number) != 0;
        state.holders += u32::from(has_room);
        has_room
    })?;
    if !is_held {
        return Ok(());
    }
    let guard = rcu::read();
    let cursor = CURSORS.this();
    let is_free = Position::of(cursor.position.load(Ordering::Relaxed)).number == 0;
    if is_free {
        cursor.position.store(Position { number, ..start }.word(), Ordering::Relaxed);
    }
    drop(guard);
    if !is_free {
        numbers::release(number);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_below_the_maximum_are_allowed() {
        assert_eq!(allowed(64), !0);
        assert_eq!(allowed(66), !0b11);
        assert_eq!(allowed(PID_MAX - 1), 1 << 63);
        assert_eq!(allowed(PID_MAX), 0);
        assert_eq!(allowed(PID_MAX + 64), 0);
    }

    #[test]
    fn positions_keep_both_parts() {
        let position = Position { generation: 7, number: PID_MAX };
        assert_eq!(Position::of(position.word()), position);
    }
}
