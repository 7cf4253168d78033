//! Modulated delay loops.
//!
//! Two threads leave a [`super::Meeting`] at almost the same time. One then delays by a fixed number of turns, the other by a
//! number that is swept from 0 to twice the fixed one: somewhere in between, every instruction of the one meets every instruction
//! of the other, and the imprecision of the meeting is made up for.

use core::hint::black_box;

/// Spends the time of so many turns of a loop. It neither yields nor tells the processor that it waits.
#[inline(never)]
pub(crate) fn delay(turns: u32) {
    for turn in 0..turns {
        black_box(turn);
    }
}

/// A sweep of delays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    /// The fixed delay, in turns.
    pub(crate) fixed: u32,
    /// Rounds of one sweep.
    pub(crate) rounds: u32,
}

impl Sweep {
    /// A sweep of so many rounds around a fixed delay of so many turns.
    pub(crate) const fn new(fixed: u32, rounds: u32) -> Sweep {
        assert!(rounds > 1, "a sweep has two ends");
        Sweep { fixed, rounds }
    }

    /// The swept delay of a round: 0 in the first, twice the fixed one in the last.
    pub(crate) const fn swept(self, round: u32) -> u32 {
        let round = round % self.rounds;
        (2 * self.fixed as u64 * round as u64 / (self.rounds as u64 - 1)) as u32
    }

    /// Delays by the fixed time.
    pub(crate) fn delay_fixed(self) {
        delay(self.fixed);
    }

    /// Delays by the swept time of a round.
    pub(crate) fn delay_swept(self, round: u32) {
        delay(self.swept(round));
    }
}
