//! How a value is found: an operation is repeated often enough to be timed, many times over. What a busy host does meanwhile makes
//! samples longer and never shorter, so it is not the median that counts but the value below which a fifth of the samples are.
//!
//! A test that fails, by an error or a panic, costs itself and those of its group that come after it, and is reported with the
//! reason: see [`Suite::group`].

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whether the clock counts instructions, so that a short sample says as much as a long one.
static SHORT: AtomicBool = AtomicBool::new(false);
/// What one sample should take: less than a busy host lets a processor go on for.
const SAMPLE: Duration = Duration::from_millis(8);
/// The same of short samples.
const SHORT_SAMPLE: Duration = Duration::from_millis(4);
/// A multiple of the periods of all timers that kernels use.
const SETTLING: Duration = Duration::from_millis(20);
/// Samples of one test.
const SAMPLES: usize = 16;
/// Samples of one test where they are short.
const SHORT_SAMPLES: usize = 5;
/// Samples of a test that takes seconds.
const SLOW_SAMPLES: usize = 3;
/// Repetitions of one sample at most.
const MOST: u64 = 1 << 24;

thread_local! {
    /// Tests of the running suite that have a value or a reason for having none.
    static REPORTED: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// Makes all samples short, and starts each at the same moment of a timer's period.
pub fn take_short_samples() {
    SHORT.store(true, Ordering::Relaxed);
}

/// Whether the clock counts instructions, those of all processors.
pub fn counts_instructions() -> bool {
    SHORT.load(Ordering::Relaxed)
}

/// Before a short sample, or a part of it that counts alone: sleeps until the clock shows whole periods. Then the kernel has done what it had put off, and its timers
/// come at the same places in every run. Where the clock counts instructions, sleep takes no time.
pub fn settle() {
    if counts_instructions() {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let since_boot = now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned();
        let period = SETTLING.as_nanos() as u64;
        std::thread::sleep(Duration::from_nanos(since_boot.next_multiple_of(period) + period - since_boot));
    }
}

/// A suite that is being run. Prints a line for each test.
#[derive(Debug)]
pub struct Suite {
    name: &'static str,
}

impl Suite {
    /// A suite by its name.
    pub const fn new(name: &'static str) -> Self {
        Self { name }
    }

    /// Runs `body`, which reports these tests. If it does not come to its end, those that are missing are reported with the reason.
    pub fn group<T: Display>(
        &self,
        tests: impl IntoIterator<Item = T>,
        body: impl FnOnce() -> io::Result<()>,
    ) {
        let why = match catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(())) => "it was not run".into(),
            Ok(Err(error)) => error.to_string(),
            Err(cause) => reason(cause.as_ref()),
        };
        for test in tests {
            let test = test.to_string();
            if !REPORTED.with_borrow(|reported| reported.contains(&test)) {
                // One line, as the reader expects.
                self.unsupported(test, why.replace('\n', " "));
            }
        }
    }

    /// As [`group`](Self::group), for a single test.
    pub fn single(&self, test: impl Display, body: impl FnOnce() -> io::Result<()>) {
        self.group([test], body);
    }

    /// Reports the time of one repetition in nanoseconds; `body` does as many repetitions as it is told to.
    pub fn time(&self, test: impl Display, mut body: impl FnMut(u64)) {
        self.time_inside(test, |count| {
            let start = Instant::now();
            body(count);
            start.elapsed()
        });
    }

    /// As [`time`](Self::time), for a body that takes the time of the part that counts by itself.
    pub fn time_inside(&self, test: impl Display, mut body: impl FnMut(u64) -> Duration) {
        let short = counts_instructions();
        let (sample, samples) = if short { (SHORT_SAMPLE, SHORT_SAMPLES) } else { (SAMPLE, SAMPLES) };
        // The first call is slower than all others; whoever wants to know that measures it by itself.
        body(1);
        let mut count = 1;
        loop {
            settle();
            let took = body(count);
            if took >= sample / 2 || count >= MOST {
                break;
            }
            let missing = sample.as_nanos() / took.as_nanos().max(1);
            // Powers of two: a small change of what is measured rarely changes how often it is done.
            count <<= u64::try_from(missing).unwrap_or(MOST).clamp(2, 16).ilog2();
        }
        let samples = (0..samples).map(|_| {
            settle();
            nanoseconds(body(count)) / count as f64
        });
        self.report(test, "ns", undisturbed(samples.collect()));
    }

    /// Reports several values of something that takes seconds.
    ///
    /// # Errors
    /// Those of `body`.
    pub fn time_slow(
        &self,
        tests: &[&str],
        mut body: impl FnMut() -> io::Result<Vec<Duration>>,
    ) -> io::Result<()> {
        let samples = if counts_instructions() { 1 } else { SLOW_SAMPLES };
        let rounds = (0..samples).map(|_| {
            settle();
            body()
        });
        let rounds = rounds.collect::<io::Result<Vec<_>>>()?;
        for (number, test) in tests.iter().enumerate() {
            let values = rounds.iter().filter_map(|round| round.get(number).copied().map(nanoseconds));
            self.report(test, "ns", undisturbed(values.collect()));
        }
        Ok(())
    }

    /// Reports a value that was found in another way.
    pub fn report(&self, test: impl Display, unit: &str, value: f64) {
        println!("bench {} {test} {unit} {value:.3}", self.name);
        REPORTED.with_borrow_mut(|reported| reported.insert(test.to_string()));
    }

    /// Reports that this system cannot run the test.
    pub fn unsupported(&self, test: impl Display, why: impl Display) {
        println!("bench {} {test} unsupported {why}", self.name);
        REPORTED.with_borrow_mut(|reported| reported.insert(test.to_string()));
    }
}

/// A new suite begins.
pub fn forget_reports() {
    REPORTED.with_borrow_mut(BTreeSet::clear);
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

/// The value below which a fifth of them are; of less than five, the smallest.
pub fn undisturbed(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 5).copied().unwrap_or(f64::NAN)
}

/// What a panic said.
fn reason(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbed_samples_do_not_count() {
        assert!((undisturbed(vec![3.0, 1.0, 2.0]) - 1.0).abs() < 1e-9);
        assert!((undisturbed(vec![9.0, 1.0, 2.0, 3.0, 9.0, 9.0]) - 2.0).abs() < 1e-9);
        assert!(undisturbed(Vec::new()).is_nan());
    }

    #[test]
    fn failing_test_costs_only_the_rest_of_its_group() {
        let suite = Suite::new("example");
        suite.group(["first", "second"], || {
            suite.report("first", "ns", 1.0);
            Err(io::Error::other("no second one"))
        });
        suite.single("third", || panic!("on purpose"));
        let reported = REPORTED.with_borrow(Clone::clone);
        assert_eq!(reported, ["first", "second", "third"].map(String::from).into());
    }

    #[test]
    fn time_of_one_repetition_is_what_a_sample_took_by_its_repetitions() {
        let suite = Suite::new("example");
        let mut calls = Vec::new();
        suite.time_inside("constant", |count| {
            calls.push(count);
            Duration::from_nanos(100 * count)
        });
        // The last samples have the same count, and are as long as wanted.
        let last = calls[calls.len() - 1];
        assert_eq!(calls[calls.len() - SAMPLES..], [last; SAMPLES]);
        assert!(Duration::from_nanos(100 * last) >= SAMPLE / 2);
    }
}
