//! What the runner inside prints, read back.
//!
//! The runner frames each case on its own standard output, so that no program's output can be mistaken for a frame:
//!
//! ```text
//! @start NAME
//! @case NAME STATUS OUT_BYTES ERR_BYTES MILLISECONDS
//! <OUT_BYTES bytes><ERR_BYTES bytes>
//! @end
//! ```
//!
//! STATUS is `exited:N`, `killed:SIGNAL` or `timeout`.

use std::collections::BTreeMap;

/// What one case did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub status: String,
    /// Its standard output.
    pub out: Vec<u8>,
    /// Its standard error.
    pub err: Vec<u8>,
    /// How long it took.
    pub milliseconds: u64,
}

/// Everything read from one run of the runner.
#[derive(Debug, Default)]
pub struct Report {
    /// What ended, by name.
    pub outcomes: BTreeMap<String, Outcome>,
    /// The case that had started and not ended when the stream stopped.
    pub unfinished: Option<String>,
    /// What the machine wrote to standard error meanwhile.
    pub log: String,
}

/// Reads as many whole frames as there are.
pub fn read(bytes: &[u8]) -> Report {
    let mut report = Report::default();
    let mut rest = bytes;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = &rest[end + 1..];
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["@start", name] => report.unfinished = Some((*name).to_string()),
            ["@case", name, status, out, err, milliseconds] => {
                let (Ok(out), Ok(err)) = (out.parse::<usize>(), err.parse::<usize>()) else { continue };
                if rest.len() < out + err {
                    break;
                }
                let outcome = Outcome {
                    status: (*status).to_string(),
                    out: rest[..out].to_vec(),
                    err: rest[out..out + err].to_vec(),
                    milliseconds: milliseconds.parse().unwrap_or(0),
                };
                rest = &rest[out + err..];
                report.outcomes.insert((*name).to_string(), outcome);
                report.unfinished = None;
            }
            _ => {}
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_by_length() {
        let report = read(b"@start a\n@case a exited:0 9 2 5\n@case b\n\nee\n@end\n@start b\n");
        let outcome = &report.outcomes["a"];
        assert_eq!(outcome.out, b"@case b\n\n");
        assert_eq!(outcome.err, b"ee");
        assert_eq!(report.unfinished.as_deref(), Some("b"));
    }

    #[test]
    fn a_frame_that_is_cut_off_is_unfinished() {
        let report = read(b"@start a\n@case a exited:0 100 0 5\nshort");
        assert!(report.outcomes.is_empty());
        assert_eq!(report.unfinished.as_deref(), Some("a"));
    }
}
