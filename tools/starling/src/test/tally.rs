//! How many tests passed and failed, read off the output of whatever ran them.

/// Tests that passed and tests that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Tests that passed.
    pub(super) passed: u64,
    /// Tests that failed.
    pub(super) failed: u64,
}

impl Tally {
    /// A single failure.
    pub(super) const FAILURE: Self = Self { passed: 0, failed: 1 };

    /// Adds another tally.
    pub(super) const fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// What did not end well counts as a failure even when no test says so.
    const fn unless_broken(self, success: bool) -> Self {
        if success || self.failed > 0 { self } else { Self { passed: self.passed, failed: 1 } }
    }
}

/// The step as a whole is one test.
pub(super) fn whole(_: &str, success: bool) -> Tally {
    if success { Tally { passed: 1, failed: 0 } } else { Tally::FAILURE }
}

/// The sum of the `test result:` lines of cargo.
pub(super) fn cargo(output: &str, success: bool) -> Tally {
    let mut sum = Tally::default();
    let results = output.lines().filter_map(|line| line.trim_start().strip_prefix("test result: "));
    for line in results {
        sum.add(counts(line.split_once(". ").map_or("", |(_, counts)| counts)).unwrap_or(Tally::FAILURE));
    }
    sum.unless_broken(success)
}

/// As [`cargo`], for tests chosen by name: a run that finds none has failed.
pub(super) fn cargo_with_tests(output: &str, success: bool) -> Tally {
    let tally = cargo(output, success);
    if tally == Tally::default() { Tally::FAILURE } else { tally }
}

/// The last line `N passed, N failed`, with or without a word and a colon before it.
pub(super) fn closing_line(output: &str, success: bool) -> Tally {
    closing(output).unwrap_or(Tally::FAILURE).unless_broken(success)
}

/// As [`closing_line`], but the line alone counts: a kernel that has run its tests has no exit status.
pub(super) fn kernel_log(output: &str, _: bool) -> Tally {
    closing(output).unwrap_or(Tally::FAILURE)
}

/// For a kernel with a bug in: the test must have failed, and the kernel have lived to say so.
pub(super) fn failing_kernel_log(output: &str, _: bool) -> Tally {
    match closing(output) {
        Some(Tally { passed: 0, failed: 1 }) => Tally { passed: 1, failed: 0 },
        _ => Tally::FAILURE,
    }
}

fn closing(output: &str) -> Option<Tally> {
    output.lines().rev().find_map(|line| {
        let line = line.trim();
        counts(line.split_once(": ").map_or(line, |(_, counts)| counts))
    })
}

/// The counts in `N passed, N failed` or `N passed; N failed`, whatever follows.
fn counts(text: &str) -> Option<Tally> {
    let mut words = text.split([' ', ',', ';']).filter(|word| !word.is_empty());
    let mut count = |what: &str| {
        let number = words.next()?.parse().ok()?;
        (words.next()? == what).then_some(number)
    };
    Some(Tally { passed: count("passed")?, failed: count("failed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn tally(passed: u64, failed: u64) -> Tally {
        Tally { passed, failed }
    }

    #[test]
    fn cargo_results_are_added_up() {
        let output = "test result: ok. 3 passed; 0 failed; 0 ignored\n\ntest result: FAILED. 4 passed; 1 failed; 0 ignored\n";
        assert_eq!(cargo(output, false), tally(7, 1));
        assert_eq!(cargo("test result: ok. 3 passed; 0 failed;", true), tally(3, 0));
        assert_eq!(cargo("error: could not compile", false), tally(0, 1));
        assert_eq!(cargo("test result: ok. 3 passed; 0 failed;\nerror: doctest crashed", false), tally(3, 1));
    }

    #[test]
    fn tests_that_are_not_found_have_failed() {
        assert_eq!(
            cargo_with_tests("test result: ok. 0 passed; 0 failed; 9 filtered out", true),
            tally(0, 1)
        );
        assert_eq!(cargo_with_tests("test result: ok. 2 passed; 0 failed;", true), tally(2, 0));
    }

    #[test]
    fn last_closing_line_counts() {
        assert_eq!(closing_line("test 1 passed, 0 failed\n5 passed, 0 failed\n", true), tally(5, 0));
        assert_eq!(closing_line("5 passed, 2 failed", false), tally(5, 2));
        assert_eq!(closing_line("5 passed, 0 failed", false), tally(5, 1));
        assert_eq!(closing_line("no such line", true), tally(0, 1));
    }

    #[test]
    fn kernel_log_needs_no_exit_status() {
        let log = "[    0.1] INFO start\r\ntest x ... ok\r\ntests: 12 passed, 0 failed\r\nstarling: ended\n";
        assert_eq!(kernel_log(log, false), tally(12, 0));
        assert_eq!(kernel_log("panic", false), tally(0, 1));
    }

    #[test]
    fn kernel_with_a_bug_must_fail_its_test_and_live() {
        assert_eq!(failing_kernel_log("tests: 0 passed, 1 failed\r\n", false), tally(1, 0));
        assert_eq!(failing_kernel_log("tests: 1 passed, 0 failed\r\n", true), tally(0, 1));
        assert_eq!(failing_kernel_log("tests: 0 passed, 0 failed\r\n", true), tally(0, 1));
        assert_eq!(failing_kernel_log("panic", false), tally(0, 1));
    }
}
