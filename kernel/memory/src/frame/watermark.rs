//! How low free memory may fall, and for whom.
//!
//! | free frames | who still gets one |
//! |---|---|
//! | above `low` | everybody |
//! | `low` | everybody; reclaim is woken and works until `high` |
//! | `minimum` | atomic allocations (interrupts, locks held); others reclaim for themselves first |
//! | `minimum / 2` | emergencies only: the code that frees memory |
//!
//! The minimum is 4·√(memory in KiB) KiB, as Linux' `min_free_kbytes`: small machines keep a larger part.

/// Who asks for memory, and so how far it may go down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// May wait, reclaim and fail.
    Normal,
    /// Cannot wait; uses half of the reserve.
    Atomic,
    /// Frees memory by using some; uses all there is.
    Emergency,
}

/// Marks in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Ordinary allocations stop here.
    pub minimum: u64,
    /// Reclaim starts here.
    pub low: u64,
    /// Reclaim stops here.
    pub high: u64,
}

/// Limits of the minimum, in frames: 128 KiB and 256 MiB.
const MINIMUM_RANGE: core::ops::RangeInclusive<u64> = 32..=65536;

impl Watermarks {
    /// The marks for a machine with this much memory.
    pub(crate) const fn for_memory(frames: u64) -> Self {
        let kib = (frames * 4 * 16).isqrt();
        let wanted = kib / 4;
        let minimum = if wanted < *MINIMUM_RANGE.start() {
            *MINIMUM_RANGE.start()
        } else if wanted > *MINIMUM_RANGE.end() {
            *MINIMUM_RANGE.end()
        } else {
            wanted
        };
        Self { minimum, low: minimum + minimum / 4, high: minimum + minimum / 2 }
    }

    /// Frames that must remain free after an allocation of this urgency.
    pub(crate) const fn floor(&self, urgency: Urgency) -> u64 {
        match urgency {
            Urgency::Normal => self.minimum,
            Urgency::Atomic => self.minimum / 2,
            Urgency::Emergency => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_grow_with_the_root_of_memory() {
        let small = Watermarks::for_memory(32 << 8);
        let large = Watermarks::for_memory(512 << 8);
        assert_eq!(small.minimum, 181);
        assert_eq!(large.minimum, 724);
        assert!(small.minimum < small.low && small.low < small.high);
        assert_eq!(Watermarks::for_memory(1 << 28).minimum, 32768);
        assert_eq!(Watermarks::for_memory(100).minimum, 32);
    }

    #[test]
    fn the_more_urgent_may_go_lower() {
        let marks = Watermarks::for_memory(512 << 8);
        assert!(marks.floor(Urgency::Normal) > marks.floor(Urgency::Atomic));
        assert!(marks.floor(Urgency::Atomic) > marks.floor(Urgency::Emergency));
    }
}
