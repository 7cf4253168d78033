//! Errors of write-back, told once to each who has the file open.
//!
//! Writing back happens long after the write, in somebody else's time. What went wrong is noted at the file: a number that grows with each error, and the
//! latest error. A device notes the errors of all its files in the same way, for those who ask about a file system. Each open file keeps the number that it has seen; when it asks ([`WriteErrors::check`]) it is told of the latest error if there is a newer number. An error that nobody
//! has been told of yet is also told to the next who opens the file.

use super::CacheError;
use core::sync::atomic::{AtomicU64, Ordering};

/// The low bits: the error's code, and whether somebody has been told.
const CODE_MASK: u64 = 0xf;
const SEEN: u64 = 0x10;
const STEP: u64 = 0x20;

/// The errors of a file, or of all files of a device. See the theory of this file.
#[derive(Debug, Default)]
pub struct WriteErrors(AtomicU64);

/// How far an open file knows them.
#[derive(Debug, Default)]
pub struct SeenErrors(AtomicU64);

/// A moment in the history of a file's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorMark(u64);

impl WriteErrors {
    /// No errors.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A page could not be written.
    pub fn note(&self, error: CacheError) {
        let next =
            |known: u64| Some((known & !(CODE_MASK | SEEN)).wrapping_add(STEP) | u64::from(error.code()));
        // AcqRel: orders the error with the pages' new state.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// What somebody knows who opens the file now.
    pub fn sample(&self) -> SeenErrors {
        let known = self.0.load(Ordering::Acquire);
        SeenErrors(AtomicU64::new(if known & SEEN != 0 { known } else { 0 }))
    }

    /// Tells of errors since `seen`, once.
    ///
    /// # Errors
    /// The latest one.
    pub fn check(&self, seen: &SeenErrors) -> Result<(), CacheError> {
        let known = self.0.load(Ordering::Acquire);
        if known == 0 || seen.0.load(Ordering::Relaxed) == known {
            return Ok(());
        }
        let told = self.0.fetch_or(SEEN, Ordering::AcqRel) | SEEN;
        // Of two who ask with one open file, one is told.
        let former = seen.0.swap(told, Ordering::AcqRel);
        if former == told { Ok(()) } else { Err(CacheError::from_code((told & CODE_MASK) as u32)) }
    }

    /// Where the errors are now, for who wants to know only what comes.
    pub fn mark(&self) -> ErrorMark {
        ErrorMark(self.0.load(Ordering::Acquire) & !SEEN)
    }

    /// Tells of errors since a mark. Who has the file open is told of them all the same.
    ///
    /// # Errors
    /// The latest one.
    pub fn since(&self, mark: ErrorMark) -> Result<(), CacheError> {
        let now = self.mark();
        if now == mark { Ok(()) } else { Err(CacheError::from_code((now.0 & CODE_MASK) as u32)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_who_has_the_file_open_is_told_once() {
        let errors = WriteErrors::default();
        let (one, two) = (errors.sample(), errors.sample());
        assert_eq!(errors.check(&one), Ok(()));
        errors.note(CacheError::InputOutput);
        assert_eq!(errors.check(&one), Err(CacheError::InputOutput));
        assert_eq!(errors.check(&one), Ok(()));
        assert_eq!(errors.check(&two), Err(CacheError::InputOutput));
        assert_eq!(errors.check(&two), Ok(()));
        errors.note(CacheError::NoSpace);
        assert_eq!(errors.check(&two), Err(CacheError::NoSpace));
        assert_eq!(errors.check(&one), Err(CacheError::NoSpace));
    }

    #[test]
    fn an_error_that_nobody_saw_is_told_to_who_opens_later_and_no_older_one() {
        let errors = WriteErrors::default();
        errors.note(CacheError::InputOutput);
        let late = errors.sample();
        assert_eq!(errors.check(&late), Err(CacheError::InputOutput));
        let later = errors.sample();
        assert_eq!(errors.check(&later), Ok(()));
    }
}
