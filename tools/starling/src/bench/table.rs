//! The figures as text.

use std::fmt::Write as _;

use super::figures::{Figures, Summary, Test};

/// All tests, a line each, and the geometric means.
pub(super) fn text(figures: &Figures) -> String {
    let mut out = String::new();
    for suite in figures.suites() {
        heading(&mut out, figures, suite);
        for test in figures.tests.iter().filter(|test| test.suite == suite) {
            line(&mut out, figures, test);
        }
        if let Some(mean) = figures.geometric_mean(suite) {
            let _ = writeln!(out, "{:<28} {:>34} {mean:>26.3}", "geometric mean", "");
        }
        out.push('\n');
    }
    out
}

fn heading(out: &mut String, figures: &Figures, suite: &str) {
    let _ = write!(out, "{suite:<28} {:<8}", "unit");
    for system in &figures.systems {
        let _ = write!(out, " {system:>24}");
    }
    if figures.opponent().is_some() {
        let _ = write!(out, " {:>24}", "ratio");
    }
    out.push('\n');
}

fn line(out: &mut String, figures: &Figures, test: &Test) {
    let _ = write!(out, "{:<28} {:<8}", test.name, test.unit);
    for system in &figures.systems {
        let cell = match (test.summary(system), test.unsupported.get(system)) {
            (Some(summary), _) => cell(&summary),
            (None, Some(why)) => why.clone(),
            (None, None) => "-".into(),
        };
        let _ = write!(out, " {cell:>24}");
    }
    if figures.opponent().is_some() {
        let ratio = figures.ratio(test).map_or_else(|| "-".into(), |ratio| cell(&ratio));
        let _ = write!(out, " {ratio:>24}");
    }
    for system in test.further(figures) {
        if let Some(summary) = test.summary(system) {
            let _ = write!(out, "  {system}: {}", cell(&summary));
        }
    }
    out.push('\n');
}

/// A median and how far the values go below and above it, in percent; marked when that is much.
fn cell(summary: &Summary) -> String {
    let mark = if summary.is_unsteady() { "~" } else { "" };
    let percent = |value: f64| {
        if summary.median == 0.0 { 0.0 } else { (value - summary.median) / summary.median.abs() * 100.0 }
    };
    format!("{mark}{} {:+.0}/{:+.0}%", number(summary.median), percent(summary.min), percent(summary.max))
}

/// A number with about four digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size < 10.0 => format!("{value:.3}"),
        size if size < 1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::example;
    use super::*;

    #[test]
    fn table_has_all_values_and_marks_the_unsteady() {
        let text = text(&example());
        let line = text.lines().find(|line| line.starts_with("getppid")).expect("a line");
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words, ["getppid", "ns", "~50.0", "-20/+20%", "100.0", "+0/+0%", "~0.500", "-20/+20%"]);
        assert!(text.lines().any(|line| line.starts_with("geometric mean") && line.ends_with("1.000")));
    }
}
