//! The figures as one page with charts, which needs nothing from anywhere else.
//!
//! At the top are the means of the suites. Each test is a bar of its ratio on a logarithmic scale: to the left of the middle line Starling is
//! better. The suite `scale` is drawn as curves. What is drawn is also in the tables as numbers.

use std::fmt::Write as _;
use std::path::Path;

use super::figures::{Figures, Summary, Test};
use super::table::{Scale, number};
use super::{charts, environment};
use crate::cache;
use crate::failure::Outcome;

/// The page's style. Colours are for light and dark surroundings; wide tables scroll by themselves.
const STYLE: &str = include_str!("report.css");

/// Writes the page, whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write(path: &Path, figures: &Figures) -> Outcome<()> {
    cache::publish(path, page(figures).as_bytes())
}

fn page(figures: &Figures) -> String {
    let own = escape(&figures.systems[0]);
    let title =
        figures.opponent().map_or_else(|| own.clone(), |other| format!("{own} against {}", escape(other)));
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n<main>\n<h1>{title}</h1>\n<p class=\"note\">{}</p>\n",
        escape(&environment::sentence(figures))
    );
    if let Some(other) = figures.opponent() {
        introduction(&mut out, figures, &own, &escape(other));
    }
    if !figures.failures.is_empty() {
        out.push_str("<h2>Failed</h2>\n<ul>");
        figures.failures.iter().for_each(|failure| _ = write!(out, "<li>{}</li>", escape(failure)));
        out.push_str("</ul>\n");
    }
    for suite in figures.suites() {
        section(&mut out, figures, suite);
    }
    out.push_str("</main></body></html>\n");
    out
}

/// How to read it, and the means.
fn introduction(out: &mut String, figures: &Figures, own: &str, other: &str) {
    let _ = writeln!(
        out,
        "<p>All values are turned so that smaller is better. A value is the median over the runs, with its extremes in percent; a ratio is \
         {own} by {other}, taken run by run. <span class=\"mark\">~</span> marks what varied by more than 15 %. Bars are on a \
         logarithmic scale: <span class=\"swatch own\"></span> {own} is better, <span class=\"swatch other\"></span> {other} is \
         better; the thin line is the spread.</p>"
    );
    let means: Vec<(&str, f64)> = figures
        .suites()
        .into_iter()
        .filter_map(|suite| Some((suite, figures.geometric_mean(suite)?)))
        .collect();
    if means.is_empty() {
        return;
    }
    out.push_str("<div class=\"scroll\"><table><tr><th>suite</th><th>geometric mean of ratios</th>");
    let _ = writeln!(out, "<th class=\"bar\">{}</th></tr>", charts::scale());
    for (suite, mean) in means {
        let bar = charts::bar(&Summary { median: mean, min: mean, max: mean });
        let name = escape(suite);
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#{name}\">{name}</a></td><td>{mean:.3}</td><td class=\"bar\">{bar}</td></tr>"
        );
    }
    out.push_str("</table></div>\n");
}

fn section(out: &mut String, figures: &Figures, suite: &str) {
    let mean = figures
        .geometric_mean(suite)
        .map_or_else(String::new, |mean| format!(" <span class=\"note\">geometric mean {mean:.3}</span>"));
    let name = escape(suite);
    let _ = writeln!(out, "<h2 id=\"{name}\">{name}{mean}</h2>");
    let tests: Vec<&Test> = figures.tests.iter().filter(|test| test.suite == suite).collect();
    if suite == "scale" {
        charts::curves(out, figures, &tests);
    }
    let further = figures.further(suite);
    out.push_str("<div class=\"scroll\"><table><tr><th>test</th><th class=\"unit\">unit</th>");
    let mut head = |text: &str| _ = write!(out, "<th>{}</th>", escape(text));
    figures.systems.iter().for_each(|system| head(system));
    for system in &further {
        head(system);
        head(&format!("{} / {system}", figures.systems[0]));
    }
    if let Some(other) = figures.opponent() {
        head(&format!("{} / {other}", figures.systems[0]));
        let _ = write!(out, "<th class=\"bar\">{}</th>", charts::scale());
    }
    out.push_str("</tr>\n");
    tests.iter().for_each(|test| row(out, figures, test, &further));
    out.push_str("</table></div>\n");
}

fn row(out: &mut String, figures: &Figures, test: &Test, further: &[&str]) {
    let scale = Scale::of(test, figures);
    let value = |system: &str| match (test.summary(system), test.unsupported.get(system)) {
        (Some(summary), _) => cell(&scale.apply(&summary)),
        (None, Some(why)) => format!("<span class=\"note\">{}</span>", escape(why)),
        (None, None) => "–".into(),
    };
    let ratio = |other: &str| figures.ratio_to(test, other);
    let shown = |ratio: Option<Summary>| ratio.map_or_else(|| "–".into(), |ratio| cell(&ratio));
    let _ = write!(out, "<tr><td>{}</td><td class=\"unit\">{}</td>", escape(&test.name), escape(&scale.unit));
    figures.systems.iter().for_each(|system| _ = write!(out, "<td>{}</td>", value(system)));
    further.iter().for_each(|other| {
        let _ = write!(out, "<td>{}</td><td>{}</td>", value(other), shown(ratio(other)));
    });
    if let Some(other) = figures.opponent() {
        let ratio = ratio(other);
        let bar = ratio.as_ref().map_or_else(String::new, charts::bar);
        let _ = write!(out, "<td>{}</td><td class=\"bar\">{bar}</td>", shown(ratio));
    }
    out.push_str("</tr>\n");
}

fn cell(summary: &Summary) -> String {
    let Summary { median, min, max } = *summary;
    let mark = if summary.is_unsteady() { "<span class=\"mark\">~</span>" } else { "" };
    if summary.spread() == 0.0 {
        return number(median);
    }
    let percent = |value: f64| (value - median) / median.abs() * 100.0;
    format!("{mark}{} <small>{:+.0}/{:+.0}%</small>", number(median), percent(min), percent(max))
}

/// Text as it may stand in a page.
pub(super) fn escape(text: &str) -> String {
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
    fn failures_are_on_the_page() {
        let mut figures = example();
        figures.add_failure("linux: files: it <stopped>".into());
        assert!(page(&figures).contains("<li>linux: files: it &lt;stopped&gt;</li>"));
    }

    #[test]
    fn names_cannot_break_the_page() {
        assert_eq!(escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }
}
