//! Instruction counts of Starling that are kept in the repository: what a call costs shows in the change that makes it dearer.
//!
//! A line is a suite, a test and its count. A count that has changed on purpose is accepted by recording the file anew in the same
//! commit.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::figures::Figures;
use crate::cache;
use crate::failure::{Context, Failure, Outcome};

/// How much a count may differ from the recorded one, as a part of it.
const TOLERANCE: f64 = 0.03;
/// The unit of what is counted: the clock's nanosecond is an instruction.
const UNIT: &str = "ns";
const HEADER: &str = "\
# Instructions of each test on one processor: starling bench --icount --against none --runs 1 --record FILE
";

/// Writes the file, whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write(path: &Path, figures: &Figures) -> Outcome<()> {
    let mut text = HEADER.to_owned();
    for (test, count) in counts(figures) {
        let _ = writeln!(text, "{test} {count:.1}");
    }
    cache::replace(path, |file| std::io::Write::write_all(file, text.as_bytes()))
}

/// Compares with the file and prints what differs, and whether nothing does.
///
/// # Errors
/// When it cannot be read.
pub(super) fn holds(path: &Path, figures: &Figures) -> Outcome<bool> {
    let text = fs::read_to_string(path).context(|| path.display().to_string())?;
    let found = differences(&parse(&text)?, &counts(figures).collect());
    found.iter().for_each(|line| println!("{line}"));
    println!(
        "tests: {} passed, {} failed",
        figures.tests.len() - found.len().min(figures.tests.len()),
        found.len()
    );
    Ok(found.is_empty())
}

/// The counts of Starling by suite and test.
fn counts(figures: &Figures) -> impl Iterator<Item = (String, f64)> {
    let tests = figures.tests.iter().filter(|test| test.unit == UNIT);
    tests.filter_map(|test| {
        let count = test.summary(&figures.systems[0])?.median;
        Some((format!("{} {}", test.suite, test.name), count))
    })
}

fn parse(text: &str) -> Outcome<BTreeMap<String, f64>> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (test, count) = line.rsplit_once(' ')?;
            Some((test.to_owned(), count.parse().ok()?))
        })
        .collect::<Option<_>>()
        .ok_or_else(|| Failure::ours("the recorded counts are damaged: record them anew"))
}

/// A line for each test whose count differs, and for each that is only on one side. Suites that did not run are left out.
fn differences(recorded: &BTreeMap<String, f64>, counted: &BTreeMap<String, f64>) -> Vec<String> {
    let ran = |test: &str| {
        let suite = test.split(' ').next();
        counted.keys().any(|other| other.split(' ').next() == suite)
    };
    let mut lines = Vec::new();
    for (test, before) in recorded.iter().filter(|(test, _)| ran(test)) {
        match counted.get(test) {
            None => lines.push(format!("{test}: recorded {before:.1} instructions, not measured now")),
            Some(now) if (now - before).abs() > before * TOLERANCE => {
                let percent = (now / before - 1.0) * 100.0;
                lines.push(format!(
                    "{test}: recorded {before:.1} instructions, now {now:.1} ({percent:+.1} %)"
                ));
            }
            Some(_) => {}
        }
    }
    let new = counted.iter().filter(|(test, _)| !recorded.contains_key(*test));
    lines.extend(new.map(|(test, now)| format!("{test}: not recorded, now {now:.1} instructions")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> BTreeMap<String, f64> {
        parse(text).expect("well formed")
    }

    #[test]
    fn small_changes_pass_and_large_ones_do_not() {
        let recorded = table("# a comment\ncalls getppid 100.0\ncalls stat 1000.0\n");
        let same = table("calls getppid 102.9\ncalls stat 971.0\n");
        assert_eq!(differences(&recorded, &same), [""; 0]);
        let slower = table("calls getppid 103.5\ncalls stat 900\n");
        assert_eq!(
            differences(&recorded, &slower),
            [
                "calls getppid: recorded 100.0 instructions, now 103.5 (+3.5 %)",
                "calls stat: recorded 1000.0 instructions, now 900.0 (-10.0 %)"
            ]
        );
    }

    #[test]
    fn tests_that_come_or_go_are_differences_unless_their_suite_did_not_run() {
        let recorded = table("calls getppid 100\nmemory fault 5\n");
        let other = table("calls stat 7\n");
        assert_eq!(
            differences(&recorded, &other),
            [
                "calls getppid: recorded 100.0 instructions, not measured now",
                "calls stat: not recorded, now 7.0 instructions"
            ]
        );
    }

    #[test]
    fn damaged_file_is_refused() {
        assert!(parse("calls getppid").is_err());
        assert!(parse("calls getppid many").is_err());
    }
}
