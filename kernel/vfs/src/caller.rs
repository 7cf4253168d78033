//! What only the personality knows of the program that the kernel works for now, for the few drivers that must ask: what its descriptors stand for,
//! and where its root directory is.

use alloc::sync::Arc;

use machine::set_once::SetOnce;

use crate::file::OpenFile;
use crate::mount::Path;
use crate::{Error, Result};

/// The personality's answers.
#[derive(Clone, Copy)]
pub struct Answers {
    /// What a descriptor stands for.
    pub file: fn(i32) -> Result<Arc<OpenFile>>,
    /// The root directory.
    pub root: fn() -> Option<Path>,
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
