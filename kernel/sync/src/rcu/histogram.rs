//! Counts of values by powers of two.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Classes: 0, then up to 1, 3, 7, … the last is for all that is larger.
pub(super) const CLASSES: usize = 28;

/// How often values of each class were seen.
pub(super) struct Histogram {
    classes: [AtomicU64; CLASSES],
    largest: AtomicU64,
    sum: AtomicU64,
}

impl Histogram {
    pub(super) const fn new() -> Self {
        Self {
            classes: [const { AtomicU64::new(0) }; CLASSES],
            largest: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }

    /// Counts a value; by any CPU.
    pub(super) fn add(&self, value: u64) {
        self.classes[class_of(value)].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
        self.largest.fetch_max(value, Relaxed);
    }

    /// Adds what this one has seen to the sums.
    pub(super) fn collect(&self, into: &mut Summary) {
        for (sum, class) in into.classes.iter_mut().zip(&self.classes) {
            *sum += class.load(Relaxed);
        }
        into.largest = into.largest.max(self.largest.load(Relaxed));
        into.sum += self.sum.load(Relaxed);
    }
}

/// The class of a value: how many bits it has.
fn class_of(value: u64) -> usize {
    ((u64::BITS - value.leading_zeros()) as usize).min(CLASSES - 1)
}

/// Sums of histograms.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// How many values were in each class.
    pub classes: [u64; CLASSES],
    /// The largest value.
    pub largest: u64,
    /// Sum of all values.
    pub sum: u64,
}

impl Summary {
    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }
}

impl fmt::Display for Summary {
    /// `count=… mean=… max=…` and the classes that are not empty as `≤bound:count`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count();
        write!(formatter, "count={count} mean={} max={}", self.sum / count.max(1), self.largest)?;
        for (class, count) in self.classes.iter().enumerate().filter(|(_, count)| **count > 0) {
            match class {
                _ if class == CLASSES - 1 => write!(formatter, " more:{count}")?,
                _ => write!(formatter, " <={}:{count}", (1_u64 << class) - 1)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_by_their_bits() {
        let histogram = Histogram::new();
        [0, 1, 2, 3, 4, 1000, u64::MAX / 2].into_iter().for_each(|value| histogram.add(value));
        let mut summary = Summary::default();
        histogram.collect(&mut summary);
        assert_eq!(summary.count(), 7);
        assert_eq!(&summary.classes[..4], &[1, 1, 2, 1]);
        let text = summary.to_string();
        assert!(text.contains("<=0:1 <=1:1 <=3:2 <=7:1 <=1023:1 more:1"), "{text}");
    }
}
