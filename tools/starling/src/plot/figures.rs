//! The two figures: grace periods and batches of callbacks over time; softirqs in windows of 4 ms and the longest grace
//! period of the same window.

use std::fmt::Write as _;

use super::events::{Event, Kind};
use super::panel::{self, Panel};

/// Length of a window of softirqs.
const WINDOW_NS: u64 = 4_000_000;

/// Points of one kind: seconds since the first record, value times a factor.
fn series(events: &[Event], kind: Kind, factor: f64) -> Vec<(f64, f64)> {
    let start_ns = events.first().map_or(0, |event| event.time_ns);
    let chosen = events.iter().filter(|event| event.kind == kind);
    chosen
        .map(|event| (event.time_ns.saturating_sub(start_ns) as f64 / 1e9, event.value as f64 * factor))
        .collect()
}

/// The longest grace period that ended in each window, in milliseconds, at the window's end.
fn longest_by_window(events: &[Event]) -> Vec<(f64, f64)> {
    let start_ns = events.first().map_or(0, |event| event.time_ns);
    let mut windows: Vec<(u64, u64)> = Vec::new();
    for event in events.iter().filter(|event| event.kind == Kind::GracePeriodEnd) {
        let window = event.time_ns / WINDOW_NS;
        match windows.last_mut() {
            Some((last, longest)) if *last == window => *longest = event.value.max(*longest),
            _ => windows.push((window, event.value)),
        }
    }
    let end_s = |window: u64| ((window + 1) * WINDOW_NS).saturating_sub(start_ns) as f64 / 1e9;
    windows.into_iter().map(|(window, longest)| (end_s(window), longest as f64 / 1e6)).collect()
}

/// The whole drawing.
pub(super) fn draw(events: &[Event]) -> String {
    let panels = [
        Panel {
            title: "Grace periods, ms",
            class: "own",
            points: series(events, Kind::GracePeriodEnd, 1e-6),
        },
        Panel { title: "Callbacks run in one go", class: "other", points: series(events, Kind::Batch, 1.0) },
        Panel {
            title: "Softirqs of a CPU in 4 ms",
            class: "other",
            points: series(events, Kind::SoftirqWindow, 1.0),
        },
        Panel { title: "Longest grace period in 4 ms, ms", class: "own", points: longest_by_window(events) },
    ];
    panel::stack(&panels)
}

/// A line for each kind of record: how many, and the largest.
pub(super) fn summary(events: &[Event]) -> String {
    let mut out = String::new();
    let kinds = [
        (Kind::GracePeriodEnd, "grace periods", 1e-6, " ms"),
        (Kind::Batch, "batches of callbacks", 1.0, ""),
        (Kind::SoftirqWindow, "windows with softirqs", 1.0, ""),
    ];
    for (kind, name, factor, unit) in kinds {
        let points = series(events, kind, factor);
        let largest = points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        let _ = writeln!(out, "{} {name}, the largest {largest:.3}{unit}", points.len());
    }
    let mut cpus: Vec<u32> = events.iter().map(|event| event.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let _ =
        write!(out, "{} started on {} CPUs", series(events, Kind::GracePeriodStart, 1.0).len(), cpus.len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Vec<Event> {
        let event = |time_ns, kind, value| Event { time_ns, cpu: 0, kind, value };
        vec![
            event(1_000_000, Kind::GracePeriodStart, 1),
            event(2_000_000, Kind::GracePeriodEnd, 1_000_000),
            event(3_000_000, Kind::GracePeriodEnd, 2_500_000),
            event(5_000_000, Kind::Batch, 10),
            event(9_000_000, Kind::SoftirqWindow, 7),
        ]
    }

    #[test]
    fn a_window_shows_its_longest_grace_period() {
        assert_eq!(longest_by_window(&example()), [(0.003, 2.5)]);
    }

    #[test]
    fn each_series_has_a_panel() {
        let drawing = draw(&example());
        assert_eq!(drawing.matches("<g ").count(), 4);
        assert!(drawing.starts_with("<svg ") && drawing.ends_with("</svg>\n"));
        assert!(summary(&example()).contains("2 grace periods, the largest 2.500 ms"));
        assert!(draw(&[]).contains("nothing recorded"));
    }
}
