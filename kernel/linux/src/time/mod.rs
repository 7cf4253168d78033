//! Clocks, sleeping, and times used.

pub(crate) mod adjustment;
pub mod clock;
pub mod sleep;
pub mod usage;
pub mod wall_clock;

pub use clock::Clock;
pub use wall_clock::Until;

/// Nanoseconds of a clock tick as programs see it (USER_HZ = 100).
pub const NS_PER_TICK: u64 = 10_000_000;
