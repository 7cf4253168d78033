//! `flock`: whole-file locks that belong to open files.
//!
//! One holds the file exclusively, or any number share it; so a conflict shows without a look at each.
//! Who locked is only known for those who ask (`/proc/locks`).

use super::chunks::Chunks;
use crate::Result;

/// How a file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlockKind {
    /// Several may hold it.
    Shared,
    /// One may hold it.
    Exclusive,
}

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlockHolder {
    /// The open file's number.
    pub file: u64,
    /// The process that locked.
    pub pid: i32,
}

/// The locks of a file. Never both kinds at a time.
#[derive(Default)]
pub(super) struct Flocks {
    exclusive: Option<FlockHolder>,
    /// Open files that share it, by number.
    shared: Chunks<FlockHolder>,
}

impl Flocks {
    pub(super) const fn new() -> Self {
        Self { exclusive: None, shared: Chunks::new() }
    }

    fn shares(&self, file: u64) -> bool {
        self.shared
            .get(self.shared.seek(|holder| holder.file < file))
            .is_some_and(|holder| holder.file == file)
    }

    /// The first holder behind an open file's number.
    pub(super) fn after(&self, file: u64) -> Option<(FlockHolder, FlockKind)> {
        if let Some(holder) = self.exclusive {
            return (holder.file > file).then_some((holder, FlockKind::Exclusive));
        }
        let place = self.shared.seek(|holder| holder.file <= file);
        self.shared.get(place).map(|&holder| (holder, FlockKind::Shared))
    }

    /// How an open file holds it.
    pub(super) fn held_by(&self, file: u64) -> Option<FlockKind> {
        if self.exclusive.is_some_and(|holder| holder.file == file) {
            Some(FlockKind::Exclusive)
        } else {
            self.shares(file).then_some(FlockKind::Shared)
        }
    }

    /// Whether another file's lock is in the way.
    pub(super) fn conflicts(&self, file: u64, kind: FlockKind) -> bool {
        let excluded = self.exclusive.is_some_and(|holder| holder.file != file);
        excluded || kind == FlockKind::Exclusive && self.shared.len() > usize::from(self.shares(file))
    }

    /// Gives an open file, which has none, a lock that nobody's is in the way of.
    pub(super) fn add(&mut self, new: FlockHolder, kind: FlockKind) -> Result<()> {
        debug_assert!(self.held_by(new.file).is_none() && !self.conflicts(new.file, kind));
        match kind {
            FlockKind::Exclusive => self.exclusive = Some(new),
            FlockKind::Shared => {
                let place = self.shared.make_room(self.shared.seek(|holder| holder.file < new.file))?;
                self.shared.replace(place, 0, core::iter::once(new));
            }
        }
        Ok(())
    }

    /// Takes an open file's lock away; returns whether it had one.
    pub(super) fn remove(&mut self, file: u64) -> bool {
        let held = self.held_by(file);
        match held {
            None => {}
            Some(FlockKind::Exclusive) => self.exclusive = None,
            Some(FlockKind::Shared) => {
                let place = self.shared.seek(|holder| holder.file < file);
                self.shared.replace(place, 1, core::iter::empty());
            }
        }
        held.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(file: u64) -> FlockHolder {
        FlockHolder { file, pid: 1 }
    }

    #[test]
    fn one_excludes_and_many_share() {
        let mut flocks = Flocks::new();
        flocks.add(holder(1), FlockKind::Exclusive).unwrap();
        assert!(flocks.conflicts(2, FlockKind::Shared) && flocks.conflicts(2, FlockKind::Exclusive));
        assert!(!flocks.conflicts(1, FlockKind::Shared));
        assert!(flocks.remove(1) && !flocks.remove(1));
        flocks.add(holder(3), FlockKind::Shared).unwrap();
        assert!(!flocks.conflicts(3, FlockKind::Exclusive));
        flocks.add(holder(2), FlockKind::Shared).unwrap();
        assert!(flocks.conflicts(3, FlockKind::Exclusive) && !flocks.conflicts(4, FlockKind::Shared));
        assert_eq!((flocks.held_by(2), flocks.held_by(1)), (Some(FlockKind::Shared), None));
    }

    #[test]
    fn any_number_of_files_share() {
        /// What takes a number of steps in proportion to the square of this does not end while somebody waits for it.
        const MANY: u64 = 100_000;
        let mut flocks = Flocks::new();
        for index in 0..MANY {
            let file = index * 7919 % MANY;
            assert!(!flocks.conflicts(file, FlockKind::Shared));
            flocks.add(holder(file), FlockKind::Shared).unwrap();
            assert_eq!(flocks.conflicts(file, FlockKind::Exclusive), index > 0);
        }
        assert!((0..MANY).all(|file| flocks.remove(file)));
        assert!(!flocks.conflicts(0, FlockKind::Exclusive));
    }
}
