//! Numbers that look random, and repeat with their seed.

use ::machine::cpu;

/// A generator; the seed is not 0.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below the limit.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// Spins up to so many times.
    pub(crate) fn delay(&mut self, spins: u64) {
        for _ in 0..self.below(spins) {
            cpu::relax();
        }
    }
}
