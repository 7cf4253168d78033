//! The figures as text: for a terminal, and for a page of the book.

use std::fmt::Write as _;

use super::figures::{Figures, Summary, Test};

/// One suite for a terminal: its tests, a line each, and the geometric mean.
pub(super) fn suite(figures: &Figures, suite: &str) -> String {
    let rows = rows(figures, suite);
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (number, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Names to the left, numbers to the right.
            let _ =
                if number < 2 { write!(line, "{cell:<width$}  ") } else { write!(line, "{cell:>width$}  ") };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out.push('\n');
    out
}

/// All suites as tables in Markdown.
pub(super) fn markdown(figures: &Figures) -> String {
    let mut out = String::new();
    for suite in figures.suites() {
        let rows = rows(figures, suite);
        for (number, row) in rows.iter().enumerate() {
            let cells: Vec<String> =
                row.iter().map(|cell| cell.replace('|', "\\|").replace('~', "\\~")).collect();
            let _ = writeln!(out, "| {} |", cells.join(" | "));
            if number == 0 {
                let _ = writeln!(out, "|---|---{}|", "|---:".repeat(row.len() - 2));
            }
        }
        out.push('\n');
    }
    out
}

/// The heading, a row for each test, and one for the mean.
fn rows(figures: &Figures, suite: &str) -> Vec<Vec<String>> {
    let further = figures.further(suite);
    let mut heading = vec![suite.to_owned(), "unit".into()];
    heading.extend(figures.systems.iter().cloned());
    if let Some(other) = figures.opponent() {
        heading.push(format!("{} / {other}", figures.systems[0]));
    }
    for other in &further {
        heading.push((*other).to_owned());
        heading.push(format!("{} / {other}", figures.systems[0]));
    }
    let columns = heading.len();
    let mut rows = vec![heading];
    rows.extend(
        figures.tests.iter().filter(|test| test.suite == suite).map(|test| row(figures, test, &further)),
    );
    if let Some(mean) = figures.geometric_mean(suite) {
        let mut row = vec![String::new(); columns];
        row[0] = "geometric mean".into();
        row[2 + figures.systems.len()] = format!("{mean:.3}");
        rows.push(row);
    }
    rows
}

fn row(figures: &Figures, test: &Test, further: &[&str]) -> Vec<String> {
    let scale = Scale::of(test, figures);
    let value = |system: &str| match (test.summary(system), test.unsupported.get(system)) {
        (Some(summary), _) => cell(&scale.apply(&summary)),
        (None, Some(why)) => format!("can't: {why}"),
        (None, None) => "-".into(),
    };
    let ratio = |other: &str| figures.ratio_to(test, other).map_or_else(|| "-".into(), |ratio| cell(&ratio));
    let mut row = vec![test.name.clone(), scale.unit.clone()];
    row.extend(figures.systems.iter().map(|system| value(system)));
    row.extend(figures.opponent().map(ratio));
    further.iter().for_each(|other| row.extend([value(other), ratio(other)]));
    row
}

/// The unit that a test is shown in, so that its values are neither long nor small.
#[derive(Debug)]
pub(super) struct Scale {
    /// Its name.
    pub(super) unit: String,
    divisor: f64,
}

/// Larger values are shown in the next unit.
const LONGEST: f64 = 20_000.0;

impl Scale {
    /// The scale for all systems' values of a test.
    pub(super) fn of(test: &Test, figures: &Figures) -> Self {
        let systems = figures.systems.iter().map(String::as_str).chain(figures.further(&test.suite));
        let medians = systems.filter_map(|system| Some(test.summary(system)?.median.abs()));
        Self::for_values(&test.unit, medians.fold(0.0, f64::max))
    }

    /// The scale in which the largest value is not long.
    pub(super) fn for_values(unit: &str, most: f64) -> Self {
        let steps: &[(&str, f64)] = match unit {
            "ns" => &[("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)],
            "bytes" => &[("bytes", 1.0), ("KiB", 1024.0), ("MiB", 1_048_576.0)],
            "KiB" => &[("KiB", 1.0), ("MiB", 1024.0)],
            "instructions" => &[("instructions", 1.0), ("1000 instructions", 1e3)],
            _ => return Self { unit: unit.into(), divisor: 1.0 },
        };
        let fits = steps.iter().find(|(_, divisor)| most / divisor < LONGEST);
        let (unit, divisor) = fits.or(steps.last()).copied().unwrap_or((unit, 1.0));
        Self { unit: unit.into(), divisor }
    }

    /// Values in this unit.
    pub(super) fn apply(&self, summary: &Summary) -> Summary {
        let Summary { median, min, max } = *summary;
        Summary { median: median / self.divisor, min: min / self.divisor, max: max / self.divisor }
    }
}

/// A median and how far the values go below and above it, in percent; marked when that is much.
pub(super) fn cell(summary: &Summary) -> String {
    let mark = if summary.is_unsteady() { "~" } else { "" };
    let Summary { median, min, max } = *summary;
    if summary.spread() == 0.0 {
        // One run, or the same every time.
        return number(median);
    }
    let percent = |value: f64| (value - median) / median.abs() * 100.0;
    format!("{mark}{} {:+.0}/{:+.0}%", number(median), percent(min), percent(max))
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
        let text = suite(&example(), "calls");
        let line = text.lines().find(|line| line.starts_with("getppid")).expect("a line");
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words, ["getppid", "ns", "~50.0", "-20/+20%", "100.0", "~0.500", "-20/+20%"]);
        assert!(text.lines().any(|line| line.starts_with("geometric mean") && line.ends_with("1.000")));
    }

    #[test]
    fn further_systems_have_columns_with_their_own_ratio() {
        let mut figures = example();
        figures.add("kstack=static", "calls", "getppid", "ns", 80.0);
        let text = suite(&figures, "calls");
        assert!(
            text.lines().next().is_some_and(|line| line.ends_with("kstack=static  starling / kstack=static"))
        );
        let line = text.lines().find(|line| line.starts_with("getppid")).expect("a line");
        assert!(line.ends_with("0.500"), "{line}");
    }

    #[test]
    fn what_cannot_run_says_why() {
        let mut figures = example();
        figures.add_unsupported("linux", "calls", "new_call", "ns", "Function not implemented");
        assert!(suite(&figures, "calls").contains("can't: Function not implemented"));
    }

    #[test]
    fn markdown_rows_have_as_many_cells_as_the_heading() {
        let text = markdown(&example());
        let cells: Vec<usize> =
            text.lines().filter(|line| !line.is_empty()).map(|line| line.matches('|').count()).collect();
        assert!(cells.len() > 3 && cells.iter().all(|count| *count == cells[0]), "{text}");
    }

    #[test]
    fn long_values_get_a_larger_unit() {
        assert_eq!(Scale::for_values("ns", 5_323_661.0).unit, "µs");
        assert_eq!(Scale::for_values("ns", 19_999.0).unit, "ns");
        assert_eq!(Scale::for_values("bytes", 40_000.0).unit, "KiB");
        assert_eq!(Scale::for_values("cycles", 1e9).unit, "cycles");
    }

    #[test]
    fn numbers_have_about_four_digits() {
        assert_eq!([0.0, 0.1234, 12.345, 123_456.7].map(number), ["0", "0.123", "12.3", "123457"]);
    }
}
