//! When something happens next, as the processors keep it side by side.

use core::sync::atomic::{AtomicU64, Ordering};

/// The time of what does not happen.
pub(crate) const NEVER_NS: u64 = u64::MAX;

/// A time in nanoseconds since the start. Kept as its complement: a table of such that never happen is zero, so it takes no room in the
/// kernel's file.
pub(crate) struct NextTime(AtomicU64);

impl NextTime {
    /// [`NEVER_NS`].
    pub(crate) const fn never() -> Self {
        Self(AtomicU64::new(!NEVER_NS))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        // Relaxed: it says nothing about other data.
        !self.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set(&self, time_ns: u64) {
        self.0.store(!time_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_happens_is_zero_in_memory() {
        let time = NextTime::never();
        assert_eq!((time.get(), time.0.load(Ordering::Relaxed)), (NEVER_NS, 0));
        time.set(5);
        assert_eq!(time.get(), 5);
    }
}
