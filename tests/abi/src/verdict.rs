//! Judging an outcome and saying what differs.
//!
//! A script's output is cut into its labelled parts (`== LABEL` lines), each a test of its own, so that one wrong
//! byte names the invocation that printed it.

use crate::cases::{Case, Kind};
use crate::known::Known;
use crate::stream::Outcome;

/// Lines of a difference that are shown before the rest is only counted.
const SHOWN_LINES: usize = 40;

/// Bytes of one line that are shown.
const SHOWN_BYTES: usize = 240;

/// How many tests passed and failed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    /// Tests that differ and are on the list of known differences.
    pub(crate) differing: u32,
    pub(crate) known: Known,
}

impl Tally {
    /// Prints one result and counts it; an empty explanation is a pass.
    pub(crate) fn record(&mut self, name: &str, label: &str, explanation: &str) {
        if explanation.is_empty() {
            self.passed += 1;
            println!("test {name} ({label}) ... ok");
        } else if let Some(reason) = self.known.reason(name) {
            self.differing += 1;
            println!("test {name} ({label}) ... differs, as known: {reason}");
        } else {
            self.failed += 1;
            println!("test {name} ({label}) ... FAILED");
            for line in explanation.lines() {
                println!("    {line}");
            }
        }
    }
}

/// Compares a case with the host's outcome.
pub(crate) fn compare(
    case: &Case,
    label: &str,
    host: Option<&Outcome>,
    found: Option<&Outcome>,
    tally: &mut Tally,
) {
    assert_eq!(case.kind, Kind::Compared);
    let Some(host) = host else {
        return tally.record(&case.name, label, "the host has no result for it");
    };
    let Some(found) = found else {
        return tally.record(&case.name, label, "no result: the VM stopped or hung while it ran");
    };
    if host.status == "timeout" {
        return tally.record(&case.name, label, "it timed out on the host");
    }
    if host.out.starts_with(b"== ") {
        return compare_parts(case, label, host, found, tally);
    }
    let mut explanation = String::new();
    if host.status != found.status {
        explanation += &format!("status: host {}, here {}\n", host.status, found.status);
    }
    explanation += &difference("stdout", &host.out, &found.out);
    explanation += &difference("stderr", &host.err, &found.err);
    tally.record(&case.name, label, &explanation);
}

/// Judges a case that decides for itself, and shows the figures it printed.
pub(crate) fn judge(case: &Case, label: &str, found: Option<&Outcome>, tally: &mut Tally) {
    let Some(found) = found else {
        return tally.record(&case.name, label, "no result: the VM stopped or hung while it ran");
    };
    let text = String::from_utf8_lossy(&found.out).into_owned() + &String::from_utf8_lossy(&found.err);
    if found.status == "exited:0" {
        tally.record(&case.name, label, "");
        for line in text.lines() {
            println!("    {line}");
        }
    } else {
        tally.record(&case.name, label, &format!("status: {}\n{text}", found.status));
    }
}

/// Each labelled part of a script's output is a test.
fn compare_parts(case: &Case, label: &str, host: &Outcome, found: &Outcome, tally: &mut Tally) {
    let expected = parts(&host.out);
    let here = parts(&found.out);
    for (name, text) in &expected {
        let full_name = format!("{}/{name}", case.name);
        match here.iter().find(|(found_name, _)| found_name == name) {
            Some((_, found_text)) => tally.record(&full_name, label, &difference("output", text, found_text)),
            None => {
                tally.record(&full_name, label, &format!("it was not reached (script: {})", found.status))
            }
        }
    }
    if host.status != found.status || host.err != found.err {
        let mut explanation = format!("status: host {}, here {}\n", host.status, found.status);
        explanation += &difference("stderr", &host.err, &found.err);
        tally.record(&case.name, label, &explanation);
    }
}

/// Cuts text at its `== LABEL` lines.
fn parts(text: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_prefix(b"== ") {
            Some(name) => found.push((String::from_utf8_lossy(name).trim().to_string(), Vec::new())),
            None => {
                if let Some((_, part)) = found.last_mut() {
                    part.extend_from_slice(line);
                }
            }
        }
    }
    found
}

/// The lines in which two texts differ, found by trimming what they share at both ends of each hunk.
fn difference(stream: &str, host: &[u8], found: &[u8]) -> String {
    if host == found {
        return String::new();
    }
    let left: Vec<&[u8]> = host.split(|byte| *byte == b'\n').collect();
    let right: Vec<&[u8]> = found.split(|byte| *byte == b'\n').collect();
    let mut shown = Vec::new();
    let (mut at_left, mut at_right) = (0, 0);
    while at_left < left.len() || at_right < right.len() {
        match (left.get(at_left), right.get(at_right)) {
            (Some(one), Some(other)) if one == other => {
                at_left += 1;
                at_right += 1;
            }
            (one, other) => {
                let (skip_left, skip_right) = resynchronise(&left[at_left..], &right[at_right..]);
                for line in &left[at_left..at_left + skip_left] {
                    shown.push(format!("- {}", printable(line)));
                }
                for line in &right[at_right..at_right + skip_right] {
                    shown.push(format!("+ {}", printable(line)));
                }
                debug_assert!(one.is_some() || other.is_some());
                at_left += skip_left;
                at_right += skip_right;
            }
        }
    }
    let mut text = format!("{stream} (- host, + here):\n");
    for line in shown.iter().take(SHOWN_LINES) {
        text += &format!("{line}\n");
    }
    if shown.len() > SHOWN_LINES {
        text += &format!("... and {} more lines\n", shown.len() - SHOWN_LINES);
    }
    text
}

/// How many lines to leave out on each side so that the next lines agree again.
fn resynchronise(left: &[&[u8]], right: &[&[u8]]) -> (usize, usize) {
    const REACH: usize = 64;
    for distance in 1..REACH {
        for skip_left in 0..=distance {
            let skip_right = distance - skip_left;
            if skip_left < left.len() && skip_right < right.len() && left[skip_left] == right[skip_right] {
                return (skip_left, skip_right);
            }
        }
    }
    (left.len(), right.len())
}

fn printable(line: &[u8]) -> String {
    let shown = &line[..line.len().min(SHOWN_BYTES)];
    shown.escape_ascii().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_line_is_shown_with_both_versions() {
        let text = difference("stdout", b"a\nb\nc\n", b"a\nx\nc\n");
        assert!(text.contains("- b\n") && text.contains("+ x\n") && !text.contains("c\n+"));
    }

    #[test]
    fn a_missing_line_does_not_shift_the_rest() {
        let text = difference("stdout", b"a\nb\nc\nd\n", b"a\nc\nd\n");
        assert_eq!(text.lines().count(), 2, "{text}");
    }

    #[test]
    fn a_script_is_cut_at_its_labels() {
        let parts = parts(b"== one\n1\n== two\n2\n3\n");
        assert_eq!(parts[1], ("two".to_string(), b"2\n3\n".to_vec()));
    }
}
