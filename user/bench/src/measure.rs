//! How a value is found: an operation is repeated often enough to be timed, several times over, and the median counts.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Nanoseconds that one sample should take.
static SAMPLE_NS: AtomicU64 = AtomicU64::new(20_000_000);
/// The same where the clock counts instructions, so that a short sample says as much as a long one.
const SHORT_SAMPLE_NS: u64 = 4_000_000;
/// Samples of one test.
const SAMPLES: usize = 5;
/// Repetitions of one sample at most.
const MOST: u64 = 1 << 24;

/// Makes all samples short.
pub(crate) fn take_short_samples() {
    SAMPLE_NS.store(SHORT_SAMPLE_NS, Ordering::Relaxed);
}

/// A suite that is being run. Prints a line for each test.
#[derive(Debug)]
pub(crate) struct Suite {
    name: &'static str,
}

impl Suite {
    /// A suite by its name.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name }
    }

    /// Reports the time of one repetition in nanoseconds; `body` does as many repetitions as it is told to.
    pub(crate) fn time(&self, test: impl Display, mut body: impl FnMut(u64)) {
        self.time_inside(test, |count| {
            let start = Instant::now();
            body(count);
            start.elapsed()
        });
    }

    /// As [`time`](Self::time), for a body that takes the time of the part that counts by itself.
    pub(crate) fn time_inside(&self, test: impl Display, mut body: impl FnMut(u64) -> Duration) {
        // The first call is slower than all others; whoever wants to know that measures it by itself.
        body(1);
        let sample = Duration::from_nanos(SAMPLE_NS.load(Ordering::Relaxed));
        let mut count = 1;
        loop {
            let took = body(count);
            if took >= sample / 2 || count >= MOST {
                break;
            }
            let missing = sample.as_nanos() / took.as_nanos().max(1);
            count = (count * u64::try_from(missing).unwrap_or(MOST).clamp(2, 16)).min(MOST);
        }
        let mut samples: Vec<f64> =
            (0..SAMPLES).map(|_| body(count).as_secs_f64() * 1e9 / count as f64).collect();
        samples.sort_by(f64::total_cmp);
        self.report(test, "ns", samples[SAMPLES / 2]);
    }

    /// Reports a value that was found in another way.
    pub(crate) fn report(&self, test: impl Display, unit: &str, value: f64) {
        println!("bench {} {test} {unit} {value:.3}", self.name);
    }

    /// Reports that this system cannot run the test.
    pub(crate) fn unsupported(&self, test: impl Display, why: impl Display) {
        println!("bench {} {test} unsupported {why}", self.name);
    }
}
