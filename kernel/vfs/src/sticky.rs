//! What somebody else has put into a directory that everybody may write, and that is sticky, such as `/tmp`: programs that expect it to be theirs are not
//! misled (proc(5), `/proc/sys/fs/protected_*`).
//!
//! | setting | refuses |
//! |---|---|
//! | symbolic links | to follow, as the last name of a path, a link that belongs neither to who follows it nor to the directory's owner: `EACCES` |
//! | hard links | a further name for a file that one may not write, or that gives privileges, and that is somebody else's: `EPERM` |
//! | FIFOs, regular files | to open with `O_CREAT` what is there already and belongs neither to who opens it nor to the directory's owner: `EACCES`; with 2 also where only the directory's group may write |
//!
//! They hold for everybody, the superuser first of all: it is his programs that are misled. What they are at first is what Debian's kernel has.

use core::sync::atomic::{AtomicU8, Ordering};

use crate::attributes::{FileKind, SET_GROUP_ID, SET_USER_ID, STICKY};
use crate::credentials::Credentials;
use crate::flags::Access;
use crate::inode::{Inode, InodeHead};
use crate::permission::{check_access, owns};
use crate::{Error, Result};

/// A setting.
pub struct Protection(AtomicU8);

/// Of symbolic links.
pub static SYMBOLIC_LINKS: Protection = Protection(AtomicU8::new(1));
/// Of hard links.
pub static HARD_LINKS: Protection = Protection(AtomicU8::new(1));
/// Of FIFOs.
pub static FIFOS: Protection = Protection(AtomicU8::new(0));
/// Of regular files.
pub static REGULAR_FILES: Protection = Protection(AtomicU8::new(0));

const OTHERS_WRITE: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;

impl Protection {
    /// How far it goes; 0 is off.
    pub fn get(&self) -> u8 {
        // Relaxed: a setting.
        self.0.load(Ordering::Relaxed)
    }

    /// Sets how far it goes.
    pub fn set(&self, level: u8) {
        self.0.store(level, Ordering::Relaxed);
    }
}

/// Whether a link may be followed that is the last name of a path.
///
/// # Errors
/// `EACCES`.
pub(crate) fn check_following(directory: &InodeHead, link: &InodeHead, who: &Credentials) -> Result<()> {
    let is_shared = directory.mode() & (STICKY | OTHERS_WRITE) == STICKY | OTHERS_WRITE;
    if SYMBOLIC_LINKS.get() == 0 || !is_shared || link.user() == who.user || link.user() == directory.user() {
        return Ok(());
    }
    Err(Error::AccessDenied)
}

/// Whether a file may get a further name.
///
/// # Errors
/// `EPERM`.
pub(crate) fn check_linking(file: &Inode, who: &Credentials) -> Result<()> {
    const GROUP_PROGRAM: u32 = SET_GROUP_ID | 0o010;
    if HARD_LINKS.get() == 0 || owns(file, who) {
        return Ok(());
    }
    let gives_privileges = file.mode() & SET_USER_ID != 0 || file.mode() & GROUP_PROGRAM == GROUP_PROGRAM;
    let is_safe = file.kind == FileKind::Regular
        && !gives_privileges
        && check_access(file, Access::READ | Access::WRITE, who).is_ok();
    if is_safe { Ok(()) } else { Err(Error::NotPermitted) }
}

/// Whether somebody who would have made a file may open the one that is there.
///
/// # Errors
/// `EACCES`.
pub(crate) fn check_opening(directory: &InodeHead, file: &InodeHead, who: &Credentials) -> Result<()> {
    let level = match file.kind {
        FileKind::Fifo => FIFOS.get(),
        FileKind::Regular => REGULAR_FILES.get(),
        _ => 0,
    };
    let mode = directory.mode();
    if level == 0 || mode & STICKY == 0 || file.user() == directory.user() || file.user() == who.user {
        return Ok(());
    }
    let is_shared = mode & OTHERS_WRITE != 0 || (level > 1 && mode & GROUP_WRITES != 0);
    if is_shared { Err(Error::AccessDenied) } else { Ok(()) }
}
