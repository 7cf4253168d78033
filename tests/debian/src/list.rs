//! The list of invocations: `tests/debian/list/TOPIC.txt`.
//!
//! A line `[NAME]` or `[NAME SECONDS]` begins an invocation, and the lines up to the next are its script. What the script prints must be the same in
//! each run: no times, process numbers or addresses. Seconds are what it may take on an idle machine.

use std::fs;
use std::path::Path;

/// Seconds that an invocation may take which does not say.
const USUAL_SECONDS: u32 = 60;
/// A busy host may take so many times as long.
const PATIENCE: u32 = 4;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    /// Its file's name. Those of a topic share a machine.
    pub(crate) topic: String,
    pub(crate) name: String,
    pub(crate) script: String,
    seconds: u32,
}

impl Invocation {
    /// When the runner gives it up.
    pub(crate) const fn limit_seconds(&self) -> u32 {
        self.seconds * PATIENCE
    }
}

/// All invocations, in the order of the files' names.
pub(crate) fn load(directory: &Path) -> Result<Vec<Invocation>, String> {
    let text = |error: std::io::Error| format!("{}: {error}", directory.display());
    let entries = fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(text)?;
    let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let topic = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        parse(&topic, &fs::read_to_string(&path).map_err(text)?, &mut all)?;
    }
    Ok(all)
}

/// Adds what a topic's file says.
pub(crate) fn parse(topic: &str, text: &str, all: &mut Vec<Invocation>) -> Result<(), String> {
    let mut begun = false;
    for line in text.lines() {
        if let Some((name, seconds)) = header(line) {
            if all.iter().any(|other| other.name == name) {
                return Err(format!("{topic}: {name} is there twice"));
            }
            let (topic, name) = (topic.to_owned(), name.to_owned());
            all.push(Invocation { topic, name, script: String::new(), seconds });
            begun = true;
        } else if begun && let Some(invocation) = all.last_mut() {
            invocation.script += line;
            invocation.script.push('\n');
        } else if !line.is_empty() && !line.starts_with('#') {
            return Err(format!("{topic}: before the first invocation: {line}"));
        }
    }
    Ok(())
}

/// Name and seconds, if the line begins an invocation.
fn header(line: &str) -> Option<(&str, u32)> {
    let inner = line.strip_prefix('[')?.strip_suffix(']')?;
    let (name, seconds) = match inner.split_once(' ') {
        Some((name, seconds)) => (name, seconds.parse().ok()?),
        None => (inner, USUAL_SECONDS),
    };
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (!name.is_empty() && name.bytes().all(is_name)).then_some((name, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_reach_to_the_next_name() {
        let mut all = Vec::new();
        parse("topic", "# about\n\n[one]\necho 1\n[ 1 = 1 ]\n\n[two 90]\necho 2\n", &mut all)
            .expect("a list");
        assert_eq!(all[0].script, "echo 1\n[ 1 = 1 ]\n\n");
        assert_eq!((all[1].name.as_str(), all[1].seconds), ("two", 90));
        assert!(parse("again", "[one]\n", &mut all).is_err());
        assert!(parse("early", "echo\n[x]\n", &mut all).is_err());
    }

    #[test]
    fn the_list_has_three_hundred_invocations() {
        let all = load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/list"))).expect("the list");
        assert!(all.len() >= 300, "{}", all.len());
        assert!(all.iter().all(|invocation| !invocation.script.trim().is_empty()));
    }
}
