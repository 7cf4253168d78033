//! Panels one below the other: values against the same time, each with its own scale.

use std::fmt::Write as _;

/// Pixels of a panel's inner part.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 130.0;
/// Pixels around it: numbers to the left, the title above, seconds below.
const LEFT: f64 = 70.0;
const ABOVE: f64 = 26.0;
const BELOW: f64 = 24.0;
/// Lines across a panel.
const STEPS: u32 = 4;
/// Colours that can be told apart on white and on black.
const STYLE: &str = "text{font:11px system-ui,'DejaVu Sans',sans-serif;fill:#67717f}.title{font-weight:600;font-size:13px}\
    .axis{stroke:#aab3bf;stroke-width:.5}.own{stroke:#2a6fb0;fill:#2a6fb0}.other{stroke:#c05f22;fill:#c05f22}";

/// One series.
pub(super) struct Panel {
    pub(super) title: &'static str,
    /// Class of its colour.
    pub(super) class: &'static str,
    /// Seconds and values.
    pub(super) points: Vec<(f64, f64)>,
}

/// The round number of which so many steps reach at least this far.
fn round_step(highest: f64) -> f64 {
    let least = (highest / f64::from(STEPS)).max(1e-6);
    let magnitude = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|factor| factor * magnitude)
        .into_iter()
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(least)
}

/// All panels as one SVG file.
pub(super) fn stack(panels: &[Panel]) -> String {
    let last_s =
        panels.iter().flat_map(|panel| &panel.points).map(|(seconds, _)| *seconds).fold(0.0, f64::max);
    let span_s = round_step(last_s) * f64::from(STEPS);
    let each = ABOVE + HEIGHT + BELOW;
    let (width, height) = (LEFT + WIDTH + 20.0, each * panels.len() as f64);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n<style>{STYLE}</style>\n"
    );
    for (index, panel) in panels.iter().enumerate() {
        draw(&mut out, panel, span_s, each * index as f64);
    }
    out.push_str("</svg>\n");
    out
}

fn draw(out: &mut String, panel: &Panel, span_s: f64, top: f64) {
    let highest = panel.points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let step = round_step(highest);
    let bottom = ABOVE + HEIGHT;
    let y = |value: f64| bottom - HEIGHT * value / (step * f64::from(STEPS));
    let x = |seconds: f64| LEFT + WIDTH * seconds / span_s;
    let _ = writeln!(
        out,
        "<g transform=\"translate(0 {top})\"><text class=\"title\" x=\"{LEFT}\" y=\"16\">{}</text>",
        panel.title
    );
    for number in 0..=STEPS {
        let (value, seconds) = (step * f64::from(number), span_s / f64::from(STEPS) * f64::from(number));
        let _ = writeln!(
            out,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{1:.1}\" y2=\"{1:.1}\"/>\
             <text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\">{4}</text>\
             <text x=\"{5:.1}\" y=\"{6}\" text-anchor=\"middle\">{7} s</text>",
            LEFT + WIDTH,
            y(value),
            LEFT - 6.0,
            y(value) + 4.0,
            short(value),
            x(seconds),
            bottom + 16.0,
            short(seconds),
        );
    }
    if panel.points.is_empty() {
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\">nothing recorded</text>",
            LEFT + 20.0,
            bottom - HEIGHT / 2.0
        );
    } else {
        let _ = write!(out, "<path class=\"{}\" stroke-width=\"1\" fill=\"none\" d=\"", panel.class);
        for (seconds, value) in &panel.points {
            let _ = write!(out, "M{:.1} {bottom}V{:.1}", x(*seconds), y(*value));
        }
        out.push_str("\"/>\n");
    }
    out.push_str("</g>\n");
}

/// A number without needless digits.
fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_reach_the_highest_value() {
        for (highest, expected) in [(0.9, 0.25), (4.0, 1.0), (401.0, 200.0), (1e4, 2.5e3)] {
            assert!(
                (round_step(highest) - expected).abs() < 1e-9 * expected,
                "{highest}: {}",
                round_step(highest)
            );
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 2.5, 200.0, 0.0125].map(short), ["0", "2.5", "200", "0.0125"]);
    }
}
