//! What Debian's kernel makes of an invocation. It is asked once: the answer is kept, by the disk's packages and the script, until one of them changes.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use abi_tests::stream::{self, Outcome};

use crate::disk::{self, Disk, text};
use crate::list::Invocation;
use crate::machine::Machine;

/// Processors of the machine that is asked.
const CPUS: u32 = 2;

/// The outcomes of these, by name. What is missing stopped or hung the machine, or timed out.
pub(crate) fn of(
    starling: &Path,
    disk: &Disk,
    invocations: &[&Invocation],
    again: bool,
) -> Result<BTreeMap<String, Outcome>, String> {
    let directory = disk::directory()?.join("linux");
    fs::create_dir_all(&directory).map_err(text)?;
    let mut outcomes = BTreeMap::new();
    let mut unknown = Vec::new();
    for one in invocations {
        match fs::read(place(&directory, disk, one)).ok().filter(|_| !again) {
            Some(kept) => outcomes.extend(stream::read(&kept).outcomes),
            None => unknown.push(*one),
        }
    }
    let machine = Machine { starling, disk: &disk.file, linux: true, cpus: CPUS };
    for topic in unknown.chunk_by(|one, other| one.topic == other.topic) {
        eprintln!("debian-tests: asking Debian's kernel about {} of {}", topic.len(), topic[0].topic);
        let mut failure = None;
        machine.run(topic, |one, outcome| {
            let Some(outcome) = outcome.filter(|outcome| outcome.status != "timeout") else { return };
            outcomes.insert(one.name.clone(), outcome.clone());
            if !again {
                failure = fs::write(place(&directory, disk, one), frame(&one.name, outcome))
                    .err()
                    .or(failure.take());
            }
        })?;
        if let Some(error) = failure {
            return Err(text(error));
        }
    }
    Ok(outcomes)
}

fn place(directory: &Path, disk: &Disk, one: &Invocation) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (disk.mark, &one.script).hash(&mut hasher);
    directory.join(format!("{}-{:016x}", one.name, hasher.finish()))
}

/// An outcome as the runner prints it.
fn frame(name: &str, outcome: &Outcome) -> Vec<u8> {
    let Outcome { status, out, err, milliseconds } = outcome;
    let head = format!("@case {name} {status} {} {} {milliseconds}\n", out.len(), err.len());
    [head.as_bytes(), out, err, b"@end\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_as_it_was() {
        let outcome =
            Outcome { status: "exited:3".into(), out: b"@end\n".into(), err: b"e".into(), milliseconds: 7 };
        assert_eq!(stream::read(&frame("x", &outcome)).outcomes["x"], outcome);
    }
}
