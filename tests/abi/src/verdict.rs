//! Judging an outcome and saying what differs.
//!
//! A script's output is cut into its labelled parts (`== LABEL` lines), each a test of its own, so that one wrong
//! byte names the invocation that printed it.

use abi_tests::difference::difference;
use abi_tests::stream::Outcome;
use abi_tests::tally::Tally;

use crate::cases::{Case, Kind};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_cut_at_its_labels() {
        let parts = parts(b"== one\n1\n== two\n2\n3\n");
        assert_eq!(parts[1], ("two".to_string(), b"2\n3\n".to_vec()));
    }
}
