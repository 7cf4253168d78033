//! Differences from Linux that are known and not mended yet.
//!
//! The list is `tests/abi/known_differences.txt`: one test a line, its name and the reason; a `!` before the name says that
//! the case is not even run by default, because it hangs. A test on the list that differs is reported with its reason
//! and counted apart, so that everything *not* on the list must agree. A case that is asked for by name, and all of
//! them with `--long`, run and fail as any other.

use std::path::Path;

/// One line of the list.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    hangs: bool,
    reason: String,
}

/// The list.
#[derive(Debug, Default)]
pub struct Known {
    entries: Vec<Entry>,
}

impl Known {
    /// Reads the list; an absent one is empty.
    pub fn load(path: &Path) -> Result<Self, String> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut entries = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, reason) = line
                .split_once(char::is_whitespace)
                .ok_or(format!("a known difference needs a reason: {line}"))?;
            let (name, hangs) = name.strip_prefix('!').map_or((name, false), |name| (name, true));
            entries.push(Entry { name: name.to_string(), hangs, reason: reason.trim().to_string() });
        }
        Ok(Self { entries })
    }

    /// Why the test is known to differ, if it is.
    pub fn reason(&self, name: &str) -> Option<&str> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| entry.reason.as_str())
    }

    /// Whether the case is known to hang.
    pub fn hangs(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.hangs && entry.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_reasons_and_hangs_are_read() {
        let known = Known::parse("# comment\n\npipe flags differ\n!tar it hangs\n").unwrap();
        assert_eq!(known.reason("pipe"), Some("flags differ"));
        assert!(known.hangs("tar") && !known.hangs("pipe"));
        assert_eq!(known.reason("other"), None);
    }

    #[test]
    fn a_difference_without_a_reason_is_refused() {
        assert!(Known::parse("pipe\n").is_err());
    }
}
