//! Limits of an account, in pages.

/// No limit.
pub const UNLIMITED: u64 = u64::MAX;

/// What can be set for an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Beyond it nothing is charged: its own pages are reclaimed, and if that does not help its processes are killed.
    Max,
    /// Beyond it pages are reclaimed, and its threads are held up.
    High,
    /// Up to it nothing is reclaimed as long as there is something else.
    Low,
    /// Up to it nothing is reclaimed.
    Min,
    /// What it might have outside of memory, if there were such a place.
    SwapMax,
    /// Where its threads would be held up by that.
    SwapHigh,
}

impl Limit {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();
    /// All, in the order of their numbers.
    pub const ALL: [Self; 6] = [Self::Max, Self::High, Self::Low, Self::Min, Self::SwapMax, Self::SwapHigh];

    /// Whether it keeps reclaim off.
    pub const fn protects(self) -> bool {
        matches!(self, Self::Low | Self::Min)
    }

    /// What a new account has.
    pub const fn initial(self) -> u64 {
        if self.protects() { 0 } else { UNLIMITED }
    }
}
