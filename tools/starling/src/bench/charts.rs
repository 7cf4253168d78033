//! The drawings of the report: bars of ratios and curves over the number of processors, as SVG.

use std::fmt::Write as _;

use super::figures::{Figures, Summary, Test};
use super::report::escape;
use super::table::{Scale, number};

/// Pixels of a bar chart's half: a ratio of [`WIDEST`] to one.
const HALF: f64 = 150.0;
/// Larger and smaller ratios end at the chart's edge.
const WIDEST: f64 = 10.0;
/// Ratios that have a line of their own.
const TICKS: [f64; 7] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
/// Pixels on both sides of a bar chart, for the numbers at its ends.
const EDGE: f64 = 12.0;
/// Pixels of a curve chart's inner part.
const CHART: (f64, f64) = (240.0, 130.0);
/// Pixels to its left, for numbers.
const MARGIN: f64 = 56.0;

/// Pixels from the left edge for a ratio.
fn place(ratio: f64) -> f64 {
    EDGE + HALF + HALF * (ratio.ln() / WIDEST.ln()).clamp(-1.0, 1.0)
}

fn canvas(height: f64, label: &str) -> String {
    let width = 2.0 * (EDGE + HALF);
    format!("<svg width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{label}\">")
}

/// The numbers above a column of bars.
pub(super) fn scale() -> String {
    let mut out = canvas(16.0, "a logarithmic scale");
    for tick in TICKS {
        let _ = write!(out, "<text x=\"{:.1}\" y=\"12\" text-anchor=\"middle\">{tick}</text>", place(tick));
    }
    out.push_str("</svg>");
    out
}

/// A ratio as a bar from the middle.
pub(super) fn bar(ratio: &Summary) -> String {
    let (middle, end) = (place(1.0), place(ratio.median));
    let class = if ratio.median <= 1.0 { "own" } else { "other" };
    let mut out = canvas(18.0, &number(ratio.median));
    for tick in TICKS {
        let class = if (tick - 1.0).abs() < f64::EPSILON { "middle" } else { "axis" };
        let _ = write!(
            out,
            "<line class=\"{class}\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"0\" y2=\"18\"/>",
            place(tick)
        );
    }
    let _ = write!(
        out,
        "<rect class=\"{class}\" x=\"{:.1}\" y=\"4\" width=\"{:.1}\" height=\"10\" rx=\"1\"/>\
         <line class=\"spread\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"9\" y2=\"9\"/></svg>",
        middle.min(end),
        (middle - end).abs(),
        place(ratio.min),
        place(ratio.max),
    );
    out
}

/// The kind of work and the number of processors in a test's name.
fn split(test: &Test) -> Option<(&str, u32)> {
    let (kind, processors) = test.name.split_once('@')?;
    Some((kind, processors.parse().ok()?))
}

/// A chart for each kind of work.
pub(super) fn curves(out: &mut String, figures: &Figures, tests: &[&Test]) {
    let mut kinds: Vec<&str> = tests.iter().filter_map(|test| Some(split(test)?.0)).collect();
    kinds.dedup();
    let names = ["own", "other"].into_iter().zip(&figures.systems);
    let legend: Vec<String> = names
        .map(|(class, system)| format!("<span class=\"swatch {class}\"></span> {}", escape(system)))
        .collect();
    let _ = writeln!(
        out,
        "<p>Time of one operation on each of so many processors at the same time; a flat line is perfect scaling. {}</p>\n<div class=\"curves\">",
        legend.join(" ")
    );
    for kind in kinds {
        let points = |system: &String| -> Vec<(u32, Summary)> {
            let of_kind = tests.iter().filter_map(|test| Some((split(test)?, test.summary(system)?)));
            of_kind
                .filter(|((name, _), _)| *name == kind)
                .map(|((_, count), summary)| (count, summary))
                .collect()
        };
        let mut lines: Vec<_> = figures.systems.iter().map(points).collect();
        let highest = lines.iter().flatten().map(|(_, summary)| summary.max).fold(0.0, f64::max);
        let shown = Scale::for_values("ns", highest);
        lines.iter_mut().flatten().for_each(|(_, summary)| *summary = shown.apply(summary));
        let _ = writeln!(
            out,
            "<figure><figcaption>{} <small>{} by processors</small></figcaption>{}</figure>",
            escape(kind),
            shown.unit,
            chart(&lines)
        );
    }
    out.push_str("</div>\n");
}

fn chart(lines: &[Vec<(u32, Summary)>]) -> String {
    let all = || lines.iter().flatten();
    let widest = all().map(|(count, _)| *count).max().unwrap_or(1);
    let step = step(all().map(|(_, summary)| summary.max).fold(1.0, f64::max));
    let highest = step * f64::from(STEPS);
    let bottom = CHART.1 + 10.0;
    let x = |count: u32| {
        // A single number of processors stands in the middle.
        let part = if widest == 1 { 0.5 } else { f64::from(count - 1) / f64::from(widest - 1) };
        MARGIN + 12.0 + (CHART.0 - 24.0) * part
    };
    let y = |value: f64| bottom - CHART.1 * value / highest;
    let mut out = format!(
        "<svg width=\"{}\" height=\"{}\" viewBox=\"0 0 {0} {1}\" role=\"img\">",
        MARGIN + CHART.0 + 8.0,
        bottom + 22.0
    );
    for number in 0..=STEPS {
        let value = step * f64::from(number);
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{MARGIN}\" x2=\"{}\" y1=\"{1:.1}\" y2=\"{1:.1}\"/>\
             <text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\">{value}</text>",
            MARGIN + CHART.0,
            y(value),
            MARGIN - 6.0,
            y(value) + 4.0
        );
    }
    let mut counts: Vec<u32> = all().map(|(count, _)| *count).collect();
    counts.sort_unstable();
    counts.dedup();
    for count in counts {
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{count}</text>",
            x(count),
            bottom + 16.0
        );
    }
    for (line, class) in lines.iter().zip(["own", "other"]) {
        let points: Vec<String> = line
            .iter()
            .map(|(count, summary)| format!("{:.1},{:.1}", x(*count), y(summary.median)))
            .collect();
        let _ = write!(out, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
        for (count, summary) in line {
            let _ = write!(
                out,
                "<line class=\"spread\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{1:.1}\" y2=\"{2:.1}\"/>\
                 <circle class=\"{class}\" cx=\"{0:.1}\" cy=\"{3:.1}\" r=\"3\"/>",
                x(*count),
                y(summary.min),
                y(summary.max),
                y(summary.median)
            );
        }
    }
    out.push_str("</svg>");
    out
}

/// Lines across a chart.
const STEPS: u32 = 4;

/// The round number between two lines, so that all values fit.
fn step(highest: f64) -> f64 {
    let least = highest / f64::from(STEPS);
    let magnitude = 10_f64.powf(least.log10().floor());
    let round = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|factor| factor * magnitude);
    round.into_iter().find(|step| *step >= least).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::example;
    use super::*;

    #[test]
    fn bars_stay_in_the_chart() {
        assert!((place(1.0) - HALF - EDGE).abs() < 1e-9);
        assert!(place(1e9) <= 2.0 * (HALF + EDGE) && place(1e-9) >= 0.0);
    }

    #[test]
    fn axis_has_round_numbers_above_all_values() {
        for (highest, expected) in [(1.0, 0.25), (90.0, 25.0), (401.0, 200.0), (4000.0, 1000.0)] {
            assert!((step(highest) - expected).abs() < 1e-9, "{highest}: {}", step(highest));
        }
    }

    #[test]
    fn each_kind_of_work_has_a_chart_with_a_curve_for_each_system() {
        let mut figures = example();
        for (name, value) in [("pipe@1", 100.0), ("pipe@2", 120.0), ("signal@1", 300.0)] {
            figures.add("starling", "scale", name, "ns", value);
            figures.add("linux", "scale", name, "ns", 2.0 * value);
        }
        let tests: Vec<&Test> = figures.tests.iter().filter(|test| test.suite == "scale").collect();
        let mut out = String::new();
        curves(&mut out, &figures, &tests);
        assert_eq!(out.matches("<figure>").count(), 2);
        assert_eq!(out.matches("<polyline").count(), 4);
    }
}
