//! Numbers of threads that take part: global, and never used twice.

use core::fmt;

/// A thread's number: its control block in the lower half, a version in the upper one, so that the number of a thread that is gone
/// means nobody.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThreadId(u64);

impl ThreadId {
    /// Nobody's number.
    pub const NOBODY: ThreadId = ThreadId(0);
    /// Stands for whoever sends, where a receiver says from whom it wants to receive.
    pub(crate) const ANYBODY: ThreadId = ThreadId(u64::MAX);

    /// The number as programs pass it; any value, since it is only compared.
    pub const fn from_bits(bits: u64) -> ThreadId {
        ThreadId(bits)
    }

    /// The number as programs see it.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn new(index: u32, version: u32) -> ThreadId {
        ThreadId((version as u64) << 32 | index as u64)
    }

    /// The number of its control block.
    pub(crate) const fn index(self) -> u32 {
        self.0 as u32
    }

    pub(crate) const fn version(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl fmt::Debug for ThreadId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.index(), self.version())
    }
}
