//! The figures as one page with charts, which needs nothing from anywhere else.
//!
//! Each test is a bar of its ratio on a logarithmic scale: to the left of the middle line Starling is better. The suite `scale` is
//! drawn as curves: nanoseconds of one operation by the number of processors that do it.

use std::fmt::Write as _;
use std::path::Path;

use super::figures::{Figures, Summary, Test};
use super::table::number;
use crate::cache;
use crate::failure::Outcome;

/// Pixels of a bar chart's half: a ratio of [`WIDEST`] to one.
const HALF: f64 = 180.0;
/// Larger and smaller ratios end at the chart's edge.
const WIDEST: f64 = 8.0;
/// Pixels of a curve chart.
const CHART: (f64, f64) = (300.0, 170.0);
/// Pixels beside a chart's curves, for numbers.
const MARGIN: f64 = 44.0;

const STYLE: &str = "\
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:68em;padding:0 1em;color:#1c2430;background:#fff}\
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}table{border-collapse:collapse;width:100%}\
td,th{padding:.15em .6em;text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
td:first-child,th:first-child{text-align:left}tr:nth-child(even){background:#f4f6f9}\
.own{fill:#2a6fb0}.other{fill:#c4703b}.lines .own{fill:none;stroke:#2a6fb0;stroke-width:2}\
.lines .other{fill:none;stroke:#c4703b;stroke-width:2}.axis{stroke:#9aa4b2;stroke-width:1}\
.spread{stroke:#1c2430;stroke-width:1}text{font-size:11px;fill:#1c2430}.note{color:#5a6675}figure{display:inline-block;margin:.5em}\
.bar{padding:0}";

/// Writes the page, whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write(path: &Path, figures: &Figures) -> Outcome<()> {
    let page = page(figures);
    cache::replace(path, |file| std::io::Write::write_all(file, page.as_bytes()))
}

fn page(figures: &Figures) -> String {
    let own = escape(&figures.systems[0]);
    let other = figures.opponent().map_or_else(String::new, escape);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{own} and {other}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{own} and {other}</h1>\n"
    );
    let boot = figures.boot;
    let _ = writeln!(
        out,
        "<p class=\"note\">{} with {} processors and {} MiB, {}; {} runs of each in turns. A value is the median, with its \
         extremes in percent; a ratio is {own} by {other}, so that smaller is better for {own}. <b>~</b> marks values that vary \
         by more than 15 %. Bars are on a logarithmic scale and end at a factor of {WIDEST}.</p>",
        boot.machine.name(),
        boot.cpus,
        boot.memory >> 20,
        boot.accelerator.name(),
        figures.runs
    );
    for suite in figures.suites() {
        section(&mut out, figures, suite);
    }
    out.push_str("</body></html>\n");
    out
}

fn section(out: &mut String, figures: &Figures, suite: &str) {
    let mean = figures.geometric_mean(suite).map_or_else(String::new, |mean| format!(": {mean:.3}"));
    let _ = writeln!(out, "<h2>{}{mean}</h2>", escape(suite));
    let tests: Vec<&Test> = figures.tests.iter().filter(|test| test.suite == suite).collect();
    if suite == "scale" {
        curves(out, figures, &tests);
    }
    out.push_str("<table><tr><th>test</th><th>unit</th>");
    figures.systems.iter().for_each(|system| {
        let _ = write!(out, "<th>{}</th>", escape(system));
    });
    out.push_str("<th>ratio</th><th></th></tr>\n");
    for test in tests {
        row(out, figures, test);
    }
    out.push_str("</table>\n");
}

fn row(out: &mut String, figures: &Figures, test: &Test) {
    let mut name = escape(&test.name);
    for system in test.further(figures) {
        if let Some(summary) = test.summary(system) {
            let _ =
                write!(name, " <span class=\"note\">({}: {})</span>", escape(system), number(summary.median));
        }
    }
    let _ = write!(out, "<tr><td>{name}</td><td>{}</td>", escape(&test.unit));
    for system in &figures.systems {
        let cell = match (test.summary(system), test.unsupported.get(system)) {
            (Some(summary), _) => cell(&summary),
            (None, Some(why)) => escape(why),
            (None, None) => "–".into(),
        };
        let _ = write!(out, "<td>{cell}</td>");
    }
    match figures.ratio(test) {
        Some(ratio) => {
            let _ = writeln!(out, "<td>{}</td><td class=\"bar\">{}</td></tr>", cell(&ratio), bar(&ratio));
        }
        None => out.push_str("<td>–</td><td></td></tr>\n"),
    }
}

fn cell(summary: &Summary) -> String {
    let mark = if summary.is_unsteady() { "~" } else { "" };
    format!("{mark}{} <span class=\"note\">±{:.0}%</span>", number(summary.median), summary.spread() * 50.0)
}

/// Pixels from the left edge for a ratio.
fn place(ratio: f64) -> f64 {
    HALF + HALF * (ratio.ln() / WIDEST.ln()).clamp(-1.0, 1.0)
}

fn bar(ratio: &Summary) -> String {
    let (middle, end) = (HALF, place(ratio.median));
    let (start, width) = (middle.min(end), (middle - end).abs());
    let class = if ratio.median <= 1.0 { "own" } else { "other" };
    format!(
        "<svg width=\"{full}\" height=\"14\" role=\"img\" aria-label=\"{median:.2}\">\
         <rect class=\"{class}\" x=\"{start:.1}\" y=\"2\" width=\"{width:.1}\" height=\"10\"/>\
         <line class=\"spread\" x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"7\" y2=\"7\"/>\
         <line class=\"axis\" x1=\"{middle}\" x2=\"{middle}\" y1=\"0\" y2=\"14\"/></svg>",
        full = 2.0 * HALF,
        median = ratio.median,
        low = place(ratio.min),
        high = place(ratio.max),
    )
}

/// A chart for each kind of work.
fn curves(out: &mut String, figures: &Figures, tests: &[&Test]) {
    let mut kinds: Vec<&str> = Vec::new();
    for test in tests {
        let kind = test.name.split('@').next().unwrap_or_default();
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for kind in kinds {
        let points = |system: &str| -> Vec<(f64, f64)> {
            let of_kind = tests.iter().filter(|test| test.name.split('@').next() == Some(kind));
            of_kind
                .filter_map(|test| {
                    let processors = test.name.split('@').nth(1)?.parse().ok()?;
                    Some((processors, test.summary(system)?.median))
                })
                .collect()
        };
        let lines: Vec<_> = figures.systems.iter().map(|system| points(system)).collect();
        let _ = writeln!(out, "<figure>{}<figcaption>{}</figcaption></figure>", chart(&lines), escape(kind));
    }
}

fn chart(lines: &[Vec<(f64, f64)>]) -> String {
    let all = || lines.iter().flatten();
    let most = |value: fn(&(f64, f64)) -> f64| all().map(value).fold(1.0, f64::max);
    let (widest, highest) = (most(|point| point.0), most(|point| point.1));
    let x = |processors: f64| MARGIN + (CHART.0 - MARGIN) * (processors - 1.0) / (widest - 1.0).max(1.0);
    let y = |value: f64| 10.0 + (CHART.1 - 30.0) * (1.0 - value / highest);
    let mut out = format!("<svg class=\"lines\" width=\"{}\" height=\"{}\">", CHART.0 + 20.0, CHART.1);
    let bottom = y(0.0);
    let _ = write!(
        out,
        "<line class=\"axis\" x1=\"{MARGIN}\" x2=\"{MARGIN}\" y1=\"10\" y2=\"{bottom}\"/>\
         <line class=\"axis\" x1=\"{MARGIN}\" x2=\"{}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\
         <text x=\"0\" y=\"16\">{} ns</text><text x=\"{MARGIN}\" y=\"{2}\">1</text>\
         <text x=\"{0}\" y=\"{2}\">{widest}</text>",
        CHART.0,
        number(highest),
        CHART.1 - 4.0
    );
    for (line, class) in lines.iter().zip(["own", "other"]) {
        let points: Vec<String> =
            line.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
        let _ = write!(out, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
    }
    out.push_str("</svg>");
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::example;
    use super::*;

    #[test]
    fn page_has_every_test_and_no_outside_reference() {
        let page = page(&example());
        for word in ["getppid", "stat", "<svg", "0.500", "</html>"] {
            assert!(page.contains(word), "{word}");
        }
        assert!(!page.contains("http"), "the page needs nothing from elsewhere");
    }

    #[test]
    fn names_cannot_break_the_page() {
        assert_eq!(escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }

    #[test]
    fn bars_stay_in_the_chart() {
        assert!((place(1.0) - HALF).abs() < 1e-9);
        assert!(place(1e9) <= 2.0 * HALF && place(1e-9) >= 0.0);
    }
}
