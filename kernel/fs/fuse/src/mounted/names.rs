//! By which names an inode was found, and until when that is believed.
//!
//! A name that is not among those kept is asked for again. The server can have all names of a directory asked for again: that changes the directory's *epoch*.

use alloc::vec::Vec;

use vfs::allocation;

/// Names that are kept of an inode.
const KEPT: usize = 4;

/// A name in a directory, as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// The directory's number.
    pub(super) directory: u64,
    /// Its epoch then.
    pub(super) epoch: u64,
    /// The name's hash.
    pub(super) hash: u32,
}

/// See the theory of this file.
#[derive(Default)]
pub(super) struct Names {
    known: Vec<(Name, u64)>,
}

impl Names {
    pub(super) const fn new() -> Self {
        Self { known: Vec::new() }
    }

    /// Makes room for one more, outside of the lock that guards this.
    pub(super) fn list(&mut self) -> &mut Vec<(Name, u64)> {
        &mut self.known
    }

    /// The inode was found by a name, which is believed until then. There is room.
    pub(super) fn found(&mut self, name: Name, until_ns: u64) {
        let is_same = |known: &(Name, u64)| known.0.directory == name.directory && known.0.hash == name.hash;
        self.known.retain(|known| !is_same(known));
        if self.known.len() >= KEPT {
            self.known.remove(0);
        }
        self.known.push((name, until_ns));
    }

    /// Whether the name is believed.
    pub(super) fn believes(&self, name: Name, now_ns: u64) -> bool {
        self.known.iter().any(|(known, until_ns)| *known == name && now_ns < *until_ns)
    }
}

/// Notes in a guarded list that a name was found. Without memory it is asked for again.
pub(super) fn note(names: &sync::SpinLock<Names>, name: Name, until_ns: u64) {
    if let Ok(mut names) = allocation::lock_with_room(|| names.lock(), 1, |names| names.list()) {
        names.found(name, until_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_believed_until_their_time_or_epoch_is_over() {
        let name = |directory, epoch| Name { directory, epoch, hash: 7 };
        let mut names = Names::new();
        names.found(name(1, 0), 100);
        assert!(names.believes(name(1, 0), 99) && !names.believes(name(1, 0), 100));
        assert!(!names.believes(name(1, 1), 99) && !names.believes(name(2, 0), 99));
        names.found(name(1, 1), 200);
        assert!(names.believes(name(1, 1), 150) && !names.believes(name(1, 0), 50));
        (2..10).for_each(|directory| names.found(name(directory, 0), 100));
        assert!(
            names.list().len() == KEPT && names.believes(name(9, 0), 1) && !names.believes(name(5, 0), 1)
        );
    }
}
