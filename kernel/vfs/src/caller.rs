//! What only the personality knows or does, for the few who must ask: what descriptors of the program that the kernel works for now stand for,
//! where its root directory is, and how a file's owner is told that something happened.

use alloc::sync::Arc;
use core::any::Any;

use machine::set_once::SetOnce;

use crate::file::{FileOwner, OpenFile, ReservedDescriptor};
use crate::mount::Path;
use crate::{Error, Result};

/// The ids of who calls: real, effective and saved ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The user's.
    pub users: [u32; 3],
    /// The group's.
    pub groups: [u32; 3],
}

/// The personality's answers.
#[derive(Clone, Copy)]
pub struct Answers {
    /// What a descriptor stands for.
    pub file: fn(i32) -> Result<Arc<OpenFile>>,
    /// The root directory.
    pub root: fn() -> Option<Path>,
    /// Sends the owner of a file the signal he wants, which says the number of a descriptor.
    pub tell_owner: fn(&FileOwner, i32),
    /// The program's process, or its thread.
    pub number: fn(bool) -> i32,
    /// The ids of the program's user and group.
    pub ids: fn() -> Option<Ids>,
    /// What the program calls a process; 0 if it does not see it.
    pub shown: fn(i32) -> i32,
    /// The program's process itself.
    pub process: fn() -> Option<Arc<dyn Any + Send + Sync>>,
    /// A file that stands for such a process.
    pub open_process: fn(&Arc<dyn Any + Send + Sync>) -> Result<Arc<OpenFile>>,
    /// A descriptor of the program that nobody else gets.
    pub reserve: fn() -> Result<ReservedDescriptor>,
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

/// The ids of the calling program's user and group; None for the kernel's own threads.
#[cold]
pub fn ids() -> Option<Ids> {
    (ANSWERS.get()?.ids)()
}

/// The number of the calling program's process, or of its thread; 0 for the kernel's own threads.
pub fn number(of_thread: bool) -> i32 {
    ANSWERS.get().map_or(0, |answers| (answers.number)(of_thread))
}

/// What the calling program calls a process; 0 if it does not see it.
pub(crate) fn shown(pid: i32) -> i32 {
    ANSWERS.get().map_or(pid, |answers| (answers.shown)(pid))
}

/// The calling program's process.
pub(crate) fn process() -> Option<Arc<dyn Any + Send + Sync>> {
    (ANSWERS.get()?.process)()
}

/// A file that stands for a process.
///
/// # Errors
/// `ESRCH` if it has ended; `ENOMEM`.
pub(crate) fn open_process(process: &Arc<dyn Any + Send + Sync>) -> Result<Arc<OpenFile>> {
    ANSWERS.get().map_or(Err(Error::NoProcess), |answers| (answers.open_process)(process))
}

/// A descriptor of the calling program that nobody else gets.
///
/// # Errors
/// `EMFILE`; `EBADF` for the kernel's own threads.
pub(crate) fn reserve() -> Result<ReservedDescriptor> {
    ANSWERS.get().map_or(Err(Error::BadDescriptor), |answers| (answers.reserve)())
}
