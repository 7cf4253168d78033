//! A bridge's windows: which addresses it passes on to the bus behind it.

use alloc::vec::Vec;

use super::config::Config;
use super::registers::{
    IO_BASE, IO_BASE_UPPER, MEMORY_BASE, PREFETCH_BASE, PREFETCH_BASE_UPPER, PREFETCH_LIMIT_UPPER,
};

/// Kinds of windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowKind {
    /// Ports.
    Io,
    /// Memory below 4 GiB.
    Memory,
    /// Prefetchable memory, anywhere if the bridge can.
    Prefetch,
}

impl WindowKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Io, Self::Memory, Self::Prefetch];

    /// Bounds of windows are multiples of this.
    pub const fn granularity(self) -> u64 {
        match self {
            Self::Io => 0x1000,
            Self::Memory | Self::Prefetch => 0x10_0000,
        }
    }
}

/// A range of addresses; `end` exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Range {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
}

impl Range {
    /// How many addresses.
    pub fn bytes(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether it holds all of another one.
    pub fn contains(&self, start: u64, end: u64) -> bool {
        self.start <= start && end <= self.end
    }
}

/// The windows of a bridge, or of the root, by kind; empty ones pass nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Windows([Range; 3]);

impl Windows {
    /// None open.
    pub const NONE: Self = Self([Range { start: 0, end: 0 }; 3]);

    /// The one of a kind.
    pub fn get(&self, kind: WindowKind) -> Range {
        self.0[kind as usize]
    }

    /// Sets the one of a kind.
    pub fn set(&mut self, kind: WindowKind, range: Range) {
        self.0[kind as usize] = range;
    }

    /// What a bridge's registers say.
    pub(crate) fn read(config: &Config) -> Self {
        let mut windows = Self::NONE;
        let word = |offset| u64::from(config.read_u16(offset));
        let io = config.read_u16(IO_BASE);
        let upper = |offset: u16| if io & 1 == 1 { word(offset) << 16 } else { 0 };
        let base = u64::from(io & 0xf0) << 8 | upper(IO_BASE_UPPER);
        let limit = u64::from(io >> 8 & 0xf0) << 8 | upper(IO_BASE_UPPER + 2);
        windows.set(WindowKind::Io, bounds(base, limit, 0xfff));
        let (base, limit) = (word(MEMORY_BASE), word(MEMORY_BASE + 2));
        windows.set(WindowKind::Memory, bounds((base & 0xfff0) << 16, (limit & 0xfff0) << 16, 0xf_ffff));
        let (base, limit) = (word(PREFETCH_BASE), word(PREFETCH_BASE + 2));
        let is_wide = base & 1 == 1;
        let upper = |offset| if is_wide { u64::from(config.read_u32(offset)) << 32 } else { 0 };
        let start = (base & 0xfff0) << 16 | upper(PREFETCH_BASE_UPPER);
        let limit = (limit & 0xfff0) << 16 | upper(PREFETCH_LIMIT_UPPER);
        windows.set(WindowKind::Prefetch, bounds(start, limit, 0xf_ffff));
        windows
    }

    /// Writes all into a bridge's registers. An empty window gets a base above its limit.
    pub(crate) fn write(&self, config: &Config) {
        let io = self.get(WindowKind::Io);
        let (base, limit) = encode(io, 0x1000, 0xf000);
        config.write_u8(IO_BASE, (base >> 8) as u8 & 0xf0);
        config.write_u8(IO_BASE + 1, (limit >> 8) as u8 & 0xf0);
        config.write_u32(IO_BASE_UPPER, (base >> 16) as u32 | (limit & 0xffff_0000) as u32);
        let (base, limit) = encode(self.get(WindowKind::Memory), 0x10_0000, 0xfff0_0000);
        config.write_u16(MEMORY_BASE, (base >> 16) as u16);
        config.write_u16(MEMORY_BASE + 2, (limit >> 16) as u16);
        let (base, limit) = encode(self.get(WindowKind::Prefetch), 0x10_0000, 0xfff0_0000);
        config.write_u16(PREFETCH_BASE, (base >> 16) as u16 & 0xfff0);
        config.write_u16(PREFETCH_BASE + 2, (limit >> 16) as u16 & 0xfff0);
        config.write_u32(PREFETCH_BASE_UPPER, (base >> 32) as u32);
        config.write_u32(PREFETCH_LIMIT_UPPER, (limit >> 32) as u32);
    }
}

/// A window by its first and the start of its last granule.
fn bounds(base: u64, limit: u64, granule: u64) -> Range {
    // A base and limit of 0 is what a bridge has after reset: nobody means the addresses from 0 on.
    if base > limit || base == 0 {
        Range::default()
    } else {
        Range { start: base, end: (limit | granule) + 1 }
    }
}

/// Base and limit as registers take them.
fn encode(range: Range, granule: u64, empty_base: u64) -> (u64, u64) {
    if range.bytes() == 0 { (empty_base, 0) } else { (range.start, range.end - granule) }
}

/// Addresses that are still free, in ascending order.
#[derive(Debug, Default)]
pub(crate) struct FreeRanges(Vec<Range>);

impl FreeRanges {
    pub(crate) fn new(range: Range) -> Self {
        Self(if range.bytes() == 0 { Vec::new() } else { alloc::vec![range] })
    }

    /// Takes the lowest place for `bytes` at a multiple of `align`, which is a power of two.
    pub(crate) fn allocate(&mut self, bytes: u64, align: u64) -> Option<Range> {
        let found = self.0.iter().find_map(|free| {
            let start = free.start.checked_next_multiple_of(align)?;
            let end = start.checked_add(bytes)?;
            (end <= free.end).then_some(Range { start, end })
        })?;
        self.take(found);
        Some(found)
    }

    /// The largest range.
    pub(crate) fn largest(&self) -> Range {
        self.0.iter().copied().max_by_key(Range::bytes).unwrap_or_default()
    }

    /// Takes a range, as far as it is free.
    pub(crate) fn take(&mut self, taken: Range) {
        let mut rest = Vec::with_capacity(self.0.len() + 1);
        for free in self.0.drain(..) {
            let below = Range { start: free.start, end: free.end.min(taken.start) };
            let above = Range { start: free.start.max(taken.end), end: free.end };
            rest.extend([below, above].into_iter().filter(|part| part.bytes() > 0 && part.end <= free.end));
        }
        self.0 = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ranges_give_aligned_places_and_split() {
        let mut free = FreeRanges::new(Range { start: 0x1000, end: 0x9000 });
        assert_eq!(free.allocate(0x2000, 0x2000), Some(Range { start: 0x2000, end: 0x4000 }));
        assert_eq!(free.allocate(0x1000, 0x1000), Some(Range { start: 0x1000, end: 0x2000 }));
        free.take(Range { start: 0x5000, end: 0x6000 });
        assert_eq!(free.allocate(0x4000, 0x1000), None);
        assert_eq!(free.allocate(0x3000, 0x1000), Some(Range { start: 0x6000, end: 0x9000 }));
        assert_eq!(free.allocate(0x1000, 0x1000), Some(Range { start: 0x4000, end: 0x5000 }));
        assert_eq!(free.allocate(1, 1), None);
        assert_eq!(FreeRanges::new(Range { start: u64::MAX - 2, end: u64::MAX }).allocate(1, 1 << 40), None);
    }
}
