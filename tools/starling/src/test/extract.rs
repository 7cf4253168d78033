//! What matters of a failing step's output: the lines that name what failed, each with what is said about it.

/// Lines about one failure that are kept.
const LINES_OF_A_FAILURE: usize = 24;
/// Lines that are kept in all.
const LINES: usize = 200;
/// Lines of the end that are kept when no line names a failure.
const LINES_OF_THE_END: usize = 24;

/// The failures in an output, each line indented: a line with `FAILED`, `panicked` or `error` and the indented lines below it.
/// If there is none, the output's last lines.
pub(super) fn extract(output: &str) -> String {
    let lines: Vec<_> = output.lines().collect();
    let mut kept = Vec::new();
    let mut left_of_failure = 0;
    for line in &lines {
        if names_failure(line) {
            left_of_failure = LINES_OF_A_FAILURE;
        } else if !line.starts_with("    ") {
            left_of_failure = 0;
        }
        if left_of_failure > 0 && kept.len() < LINES {
            kept.push(*line);
            left_of_failure -= 1;
        }
    }
    if kept.is_empty() {
        kept.extend(&lines[lines.len().saturating_sub(LINES_OF_THE_END)..]);
    }
    kept.iter().map(|line| format!("    {line}\n")).collect()
}

fn names_failure(line: &str) -> bool {
    line.contains("FAILED") || line.contains("panicked at") || line.starts_with("error")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_among_many_that_passed_is_found_with_its_reasons() {
        let passed: String = (0..500).map(|number| format!("test {number} ... ok\n    a figure\n")).collect();
        let output = format!(
            "{passed}test wrong (cpus 4) ... FAILED\n    stdout line 3\n{passed}499 passed, 1 failed\n"
        );
        assert_eq!(extract(&output), "    test wrong (cpus 4) ... FAILED\n        stdout line 3\n");
    }

    #[test]
    fn an_output_that_names_no_failure_is_shown_by_its_end() {
        let output: String = (0..100).map(|number| format!("line {number}\n")).collect();
        let kept = extract(&output);
        assert_eq!(kept.lines().count(), LINES_OF_THE_END);
        assert!(kept.ends_with("    line 99\n"), "{kept}");
        assert_eq!(extract(""), "");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let one = format!("test x ... FAILED\n{}", "    more\n".repeat(1000));
        assert_eq!(extract(&one).lines().count(), LINES_OF_A_FAILURE);
        assert_eq!(extract(&"test x ... FAILED\n".repeat(1000)).lines().count(), LINES);
    }
}
