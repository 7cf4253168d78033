//! Making allocations fail on purpose, each once.
//!
//! Each thread counts its own failure points, so tests that run side by side do not disturb each other.

use std::cell::Cell;
use std::panic::Location;

use crate::OutOfMemory;

/// No failure point has this number.
const NEVER: u64 = u64::MAX;

/// A scenario with more failure points than this does not end.
const POINTS_MAX: u64 = 1_000_000;

thread_local! {
    /// Failure points passed since the last `inject`.
    static PASSED: Cell<u64> = const { Cell::new(0) };
    /// The number of the one that fails.
    static FAILING: Cell<u64> = const { Cell::new(NEVER) };
    /// Failure points passed with preemption off: below a spin lock, where nothing should be allocated.
    static PASSED_LOCKED: Cell<u64> = const { Cell::new(0) };
    /// Where it was.
    static FAILED_AT: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
}

#[track_caller]
pub(super) fn fail_point() -> Result<(), OutOfMemory> {
    let number = PASSED.get();
    PASSED.set(number + 1);
    PASSED_LOCKED.set(PASSED_LOCKED.get() + u64::from(machine::preempt::count() > 0));
    if number == FAILING.get() {
        FAILED_AT.set(Some(Location::caller()));
        return Err(OutOfMemory);
    }
    Ok(())
}

/// Makes the `number`-th failure point from now on fail, counted from 0, in this thread.
pub fn inject(number: u64) {
    PASSED.set(0);
    FAILING.set(number);
    FAILED_AT.set(None);
}

/// Failure points that this thread ever passed with preemption off.
pub fn passed_with_preemption_off() -> u64 {
    PASSED_LOCKED.get()
}

/// Lets everything succeed again; [`failed_at`] still tells which place failed.
pub fn disarm() {
    FAILING.set(NEVER);
}

/// Lets everything succeed again; the place that failed is returned, if one did.
pub fn stop_injection() -> Option<&'static Location<'static>> {
    FAILING.set(NEVER);
    FAILED_AT.take()
}

/// The place that failed since the last `inject`, if one did.
pub fn failed_at() -> Option<&'static Location<'static>> {
    FAILED_AT.get()
}

/// A failure point that is to fail, and the scenario that shall survive it.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    scenario: &'static str,
    number: u64,
}

impl Failure {
    /// From now on the failure points are counted. The returned report names the one that failed if the thread panics
    /// before it is dropped.
    pub fn arm(self) -> Report {
        inject(self.number);
        Report(self)
    }
}

/// Names the failure point when the scenario panics.
#[derive(Debug)]
pub struct Report(Failure);

impl Drop for Report {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Failure { scenario, number } = self.0;
            let place = FAILED_AT.get().map_or_else(|| "not reached".to_owned(), ToString::to_string);
            eprintln!(
                "scenario '{scenario}' broke with failure point {number} failing ({place}); \
                 replay with STARLING_FAIL_AT={number}"
            );
            FAILING.set(NEVER);
        }
    }
}

/// Runs the scenario once for each of its failure points, with that one failing, and once more without a failure.
/// `STARLING_FAIL_AT=n` in the environment runs it with point n only.
///
/// # Panics
/// When the scenario does; or when it has no end of failure points.
pub fn exhaust(scenario: &'static str, mut run: impl FnMut()) {
    exhaust_from(scenario, |failure| {
        let _report = failure.arm();
        run();
    });
}

/// As [`exhaust`], for a scenario that begins with what must not fail: it arms the failure itself.
///
/// # Panics
/// When the scenario does; or when it has no end of failure points.
pub fn exhaust_from(scenario: &'static str, mut run: impl FnMut(Failure)) -> u64 {
    let only = std::env::var("STARLING_FAIL_AT").ok().and_then(|number| number.parse().ok());
    for number in only.unwrap_or(0)..POINTS_MAX {
        run(Failure { scenario, number });
        let reached = stop_injection().is_some();
        if !reached || only.is_some() {
            return number;
        }
    }
    panic!("scenario '{scenario}' has more than {POINTS_MAX} failure points");
}
