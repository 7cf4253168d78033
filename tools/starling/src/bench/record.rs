//! Instruction counts of Starling that are kept in the repository: what a call costs shows in the change that makes it dearer.
//!
//! A line is a suite, a test, its count and, where it is not [`TOLERANCE`], how much it may differ. A count that has changed on purpose is
//! accepted by recording the file anew in the same commit: `./starling bench --record`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::figures::{Figures, INSTRUCTIONS};
use crate::cache;
use crate::failure::{Context, Failure, Outcome};

/// Where the counts are, in the repository.
pub(super) const FILE: &str = "user/bench/instructions.txt";
/// How much a count may differ from the recorded one, in percent.
const TOLERANCE: f64 = 3.0;
/// Tests whose instructions are to a good part those of somebody else's program, in percent.
const WIDER: [(&str, f64); 1] = [
    // The host's BusyBox.
    ("process sh_c_true", 10.0),
];
const HEADER: &str = "\
# Instructions of each test on one processor: suite, test, count, and the percentage by which it may differ if that is not 3.
# Recorded by `./starling bench --record`, checked by `./starling test instructions`; docs/src/benchmarks.md says more.
";
/// Starts the line that says what the counts were taken with.
const TOOLS: &str = "# with ";

/// The recorded counts.
#[derive(Debug, PartialEq)]
pub(super) struct Record {
    /// Versions of the tools they were taken with.
    tools: String,
    /// By suite and test: the count and how many percent it may differ.
    counts: BTreeMap<String, (f64, f64)>,
}

/// Writes the file, whole or not at all. Suites that did not run keep their counts.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write(path: &Path, figures: &Figures) -> Outcome<()> {
    let counted = counts(figures);
    let mut all = if path.exists() { read(path)?.counts } else { BTreeMap::new() };
    all.retain(|test, _| !ran(test, &counted));
    all.extend(counted.into_iter().map(|(test, count)| {
        let tolerance = tolerance(&test);
        (test, (count, tolerance))
    }));
    cache::publish(path, text(&tools(figures), &all).as_bytes())
}

fn text(tools: &str, counts: &BTreeMap<String, (f64, f64)>) -> String {
    let mut text = format!("{HEADER}{TOOLS}{tools}\n");
    for (test, (count, tolerance)) in counts {
        let digits = if *count < 1000.0 { 1 } else { 0 };
        let _ = write!(text, "{test} {count:.digits$}");
        if (tolerance - TOLERANCE).abs() > f64::EPSILON {
            let _ = write!(text, " {tolerance}");
        }
        text.push('\n');
    }
    text
}

fn tolerance(test: &str) -> f64 {
    WIDER.iter().find(|(name, _)| *name == test).map_or(TOLERANCE, |(_, percent)| *percent)
}

/// Compares with the file, prints what differs, and returns whether nothing does.
///
/// # Errors
/// When it cannot be read.
pub(super) fn holds(path: &Path, figures: &Figures) -> Outcome<bool> {
    let record = read(path)?;
    let counted = counts(figures);
    let found = differences(&record.counts, &counted);
    found.iter().for_each(|line| println!("{line}"));
    if !found.is_empty() {
        println!(
            "If that is what the change is meant to do, record it in the same commit: ./starling bench --record"
        );
        if record.tools != tools(figures) {
            println!("Note: recorded with {}, counted with {}.", record.tools, tools(figures));
        }
    }
    let passed = counted.len().saturating_sub(found.len());
    let failed = found.len() + figures.failures.len();
    println!("tests: {passed} passed, {failed} failed");
    Ok(found.is_empty())
}

fn tools(figures: &Figures) -> String {
    let environment = &figures.environment;
    format!("rustc {} and QEMU {}", environment.rustc, environment.qemu)
}

/// The counts of Starling by suite and test.
fn counts(figures: &Figures) -> BTreeMap<String, f64> {
    let tests = figures.tests.iter().filter(|test| test.unit == INSTRUCTIONS);
    let count = |system: &str| {
        tests
            .filter_map(move |test| {
                Some((format!("{} {}", test.suite, test.name), test.summary(system)?.median))
            })
            .collect()
    };
    count(&figures.systems[0])
}

/// Reads the file.
///
/// # Errors
/// When it is not there or damaged.
pub(super) fn read(path: &Path) -> Outcome<Record> {
    let text = fs::read_to_string(path).context(|| path.display().to_string())?;
    parse(&text).ok_or_else(|| {
        Failure::ours(format!("{}: is damaged; record it anew by ./starling bench --record", path.display()))
    })
}

fn parse(text: &str) -> Option<Record> {
    let tools = text.lines().find_map(|line| line.strip_prefix(TOOLS)).unwrap_or_default().to_owned();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let counts = lines.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let (test, count, tolerance) = match words[..] {
            [suite, test, count] => (format!("{suite} {test}"), count, TOLERANCE),
            [suite, test, count, tolerance] => (format!("{suite} {test}"), count, tolerance.parse().ok()?),
            _ => return None,
        };
        Some((test, (count.parse().ok()?, tolerance)))
    });
    Some(Record { tools, counts: counts.collect::<Option<_>>()? })
}

/// Whether the suite of a test is among those that were counted.
fn ran(test: &str, counted: &BTreeMap<String, f64>) -> bool {
    let suite = test.split(' ').next();
    counted.keys().any(|other| other.split(' ').next() == suite)
}

/// A line for each test whose count differs, and for each that is only on one side. Suites that did not run are left out.
fn differences(recorded: &BTreeMap<String, (f64, f64)>, counted: &BTreeMap<String, f64>) -> Vec<String> {
    let mut lines = Vec::new();
    for (test, (before, tolerance)) in recorded.iter().filter(|(test, _)| ran(test, counted)) {
        match counted.get(test) {
            None => lines.push(format!("{test}: recorded {before:.1} instructions, not measured now")),
            Some(now) if (now - before).abs() > before * tolerance / 100.0 => {
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

    fn recorded(text: &str) -> BTreeMap<String, (f64, f64)> {
        parse(text).expect("well formed").counts
    }

    fn counted(text: &str) -> BTreeMap<String, f64> {
        recorded(text).into_iter().map(|(test, (count, _))| (test, count)).collect()
    }

    #[test]
    fn small_changes_pass_and_large_ones_do_not() {
        let before = recorded("# a comment\ncalls getppid 100.0\ncalls stat 1000.0\n");
        let same = counted("calls getppid 102.9\ncalls stat 971.0\n");
        assert_eq!(differences(&before, &same), [""; 0]);
        let slower = counted("calls getppid 103.5\ncalls stat 900\n");
        assert_eq!(
            differences(&before, &slower),
            [
                "calls getppid: recorded 100.0 instructions, now 103.5 (+3.5 %)",
                "calls stat: recorded 1000.0 instructions, now 900.0 (-10.0 %)"
            ]
        );
    }

    #[test]
    fn a_test_may_have_a_wider_band() {
        let before = recorded("process sh_c_true 1000 10\n");
        assert_eq!(differences(&before, &counted("process sh_c_true 1090\n")), [""; 0]);
        assert_eq!(differences(&before, &counted("process sh_c_true 1110\n")).len(), 1);
    }

    #[test]
    fn tests_that_come_or_go_are_differences_unless_their_suite_did_not_run() {
        let before = recorded("calls getppid 100\nmemory fault 5\n");
        let other = counted("calls stat 7\n");
        assert_eq!(
            differences(&before, &other),
            [
                "calls getppid: recorded 100.0 instructions, not measured now",
                "calls stat: not recorded, now 7.0 instructions"
            ]
        );
    }

    #[test]
    fn what_is_written_can_be_read() {
        let counts =
            [("calls stat".to_owned(), (1234.0, 3.0)), ("process sh_c_true".to_owned(), (99.5, 10.0))];
        let counts: BTreeMap<_, _> = counts.into();
        let text = text("rustc 1 and QEMU 2", &counts);
        assert_eq!(parse(&text), Some(Record { tools: "rustc 1 and QEMU 2".into(), counts }));
    }

    #[test]
    fn damaged_file_is_refused() {
        assert_eq!(parse("calls getppid"), None);
        assert_eq!(parse("calls getppid many"), None);
        assert_eq!(parse("calls getppid 1 2 3"), None);
    }
}
