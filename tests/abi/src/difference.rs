//! What differs between two texts, line by line.

/// Lines of a difference that are shown before the rest is only counted.
const SHOWN_LINES: usize = 40;

/// Bytes of one line that are shown.
const SHOWN_BYTES: usize = 240;

/// The lines in which two texts differ, found by trimming what they share at both ends of each hunk.
pub fn difference(stream: &str, host: &[u8], found: &[u8]) -> String {
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
}
