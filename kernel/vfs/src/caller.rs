//! What only the personality knows or does, for the few who must ask: what descriptors of the program that the kernel works for now stand for,
//! where its root directory is, and how a file's owner is told that something happened.

use alloc::sync::Arc;

use machine::set_once::SetOnce;

use crate::file::{FileOwner, OpenFile};
use crate::mount::Path;
use crate::{Error, Result};

/// The personality's answers.
#[derive(Clone, Copy)]
pub struct Answers {
    /// What a descriptor stands for.
    pub file: fn(i32) -> Result<Arc<OpenFile>>,
    /// The root directory.
    pub root: fn() -> Option<Path>,
    /// Sends the owner of a file the signal he wants, which says the number of a descriptor.
    pub tell_owner: fn(&FileOwner, i32),
}

static ANSWERS: SetOnce<Answers> = SetOnce::new();

/// Registers them. Once, at start-up.
pub fn register(answers: Answers) {
    ANSWERS.set(answers);
}

/// What a descriptor stands for that the calling program gave to a driver.
///
/// # Errors
/// `EBADF`, also for the kernel's own threads.
#[cold]
pub fn file(descriptor: i32) -> Result<Arc<OpenFile>> {
    ANSWERS.get().map_or(Err(Error::BadDescriptor), |answers| (answers.file)(descriptor))
}

/// The root directory of the calling program; None for the kernel's own threads.
#[cold]
pub fn root() -> Option<Path> {
    (ANSWERS.get()?.root)()
}

/// Tells a file's owner that something happened to it.
#[cold]
pub fn tell_owner(owner: &FileOwner, descriptor: i32) {
    if let Some(answers) = ANSWERS.get()
        && owner.owner != 0
    {
        (answers.tell_owner)(owner, descriptor);
    }
}
