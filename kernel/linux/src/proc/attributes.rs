//! `attr`: what a security module says of a thread, and is told. There is none, so there is nothing to read, and nothing can be written (`EINVAL`), as on a Linux
//! without one.

use alloc::sync::Arc;

use vfs::generated::{Directory, Node, knob};
use vfs::inode::{DirectorySink, FIRST_POSITION};
use vfs::{Error, FileKind, Result};

use super::process::Subject;

/// The names of Linux, and who may open them.
const NAMES: [(&str, u32); 6] = [
    ("current", 0o666),
    ("prev", 0o444),
    ("exec", 0o666),
    ("fscreate", 0o666),
    ("keycreate", 0o666),
    ("sockcreate", 0o666),
];

struct Attributes(Subject);

/// `attr`
pub(super) fn directory(subject: &Subject) -> Result<Arc<dyn Directory>> {
    let directory: Arc<dyn Directory> = vfs::allocation::arc(Attributes(subject.clone()))?;
    Ok(directory)
}

impl Directory for Attributes {
    fn lookup(&self, name: &[u8]) -> Result<Node> {
        let index = NAMES.iter().position(|entry| entry.0.as_bytes() == name).ok_or(Error::NotFound)?;
        let file = knob(|_| Err(Error::Invalid), |_| Err(Error::Invalid))?;
        let (user, group) = self.0.owner();
        Ok(Node::file(NAMES[index].1, file).owned(self.0.part_number("attr", index as u64)?, user, group))
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let mut next = position;
        for (index, (name, _)) in NAMES.iter().enumerate().skip((position - FIRST_POSITION) as usize) {
            let number = self.0.part_number("attr", index as u64)?;
            if !sink.entry(name.as_bytes(), number, FileKind::Regular, next + 1) {
                break;
            }
            next += 1;
        }
        Ok(next)
    }

    fn still_valid(&self, _name: &[u8], _number: u64) -> bool {
        self.0.process().is_ok()
    }
}
