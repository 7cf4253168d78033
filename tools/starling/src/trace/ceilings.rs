//! How many locks and atomic operations calls may take: a file beside the benchmark program, so that more are noticed.

use std::collections::BTreeMap;
use std::fs;

use crate::failure::{Context, Failure, Outcome};
use crate::machine::Repository;

/// The file, from the top of the repository.
const FILE: &str = "user/bench/locks.txt";

/// The most locks of each operation of `bench locks`, and atomic read-modify-writes of each system call on average.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ceilings {
    pub(super) locks: BTreeMap<String, u64>,
    pub(super) atomics: BTreeMap<String, u64>,
}

/// Reads the file.
///
/// # Errors
/// When it is not there, or makes no sense.
pub(super) fn read(repository: &Repository) -> Outcome<Ceilings> {
    let path = repository.root().join(FILE);
    let text = fs::read_to_string(&path).context(|| path.display().to_string())?;
    parse(&text).map_err(|line| Failure::ours(format!("{FILE}: what is {line}?")))
}

/// Lines `lock NAME NUMBER` and `atomic NAME NUMBER`; those that start with `#` are comments.
fn parse(text: &str) -> Result<Ceilings, String> {
    let mut ceilings = Ceilings::default();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<_> = line.split_whitespace().collect();
        let [kind, name, number] = words[..] else { return Err(line.into()) };
        let number = number.parse().map_err(|_| line.to_owned())?;
        match kind {
            "lock" => ceilings.locks.insert(name.into(), number),
            "atomic" => ceilings.atomics.insert(name.into(), number),
            _ => return Err(line.into()),
        };
    }
    Ok(ceilings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_read_and_nonsense_is_refused() {
        let ceilings = parse("# x\nlock pwrite_4k 2\natomic getppid 0\n").expect("good");
        assert_eq!((ceilings.locks["pwrite_4k"], ceilings.atomics["getppid"]), (2, 0));
        assert!(parse("lock x").is_err() && parse("other x 1").is_err());
    }
}
