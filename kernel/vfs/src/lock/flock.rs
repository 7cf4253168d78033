//! `flock`: whole-file locks that belong to open files.

/// How a file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlockKind {
    /// Several may hold it.
    Shared,
    /// One may hold it.
    Exclusive,
}

/// A lock that is held.
pub(super) struct Flock {
    pub(super) file: u64,
    pub(super) kind: FlockKind,
}

/// Whether another file's lock is in the way.
pub(super) fn conflicts(held: &[Flock], file: u64, kind: FlockKind) -> bool {
    held.iter()
        .any(|lock| lock.file != file && (lock.kind == FlockKind::Exclusive || kind == FlockKind::Exclusive))
}
