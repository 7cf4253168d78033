//! An event that waits to be read.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;

use super::mask::FanMask;
use super::question::Question;
use crate::handle::FileHandle;
use crate::mount::Path;
use crate::name::Name;

/// A directory, and a name in it if that is told.
#[derive(Clone, PartialEq)]
pub(super) struct NamedDirectory {
    pub(super) handle: FileHandle,
    pub(super) name: Option<Name>,
}

/// What groups get that want handles.
#[derive(Clone, PartialEq)]
pub(super) struct Records {
    /// The file system.
    pub(super) file_system: u64,
    pub(super) directory: Option<NamedDirectory>,
    /// Where a file was moved to.
    pub(super) new_directory: Option<NamedDirectory>,
    pub(super) object: Option<FileHandle>,
}

/// What the event is about.
pub(super) enum About {
    /// Events were lost.
    Nothing,
    Place(Path),
    Handles(Box<Records>),
}

/// The event.
pub(super) struct Event {
    pub(super) mask: FanMask,
    /// The process that did it, or its thread.
    pub(super) pid: i32,
    /// The process itself, for groups that get pidfds.
    pub(super) process: Option<Arc<dyn Any + Send + Sync>>,
    pub(super) about: About,
    pub(super) question: Option<Arc<Question>>,
}

/// Events that are not merged with others, and what tells events apart that are about the same.
const APART: FanMask = FanMask::RENAME.union(FanMask::ON_DIRECTORY);

impl Event {
    /// Whether both can be told as one.
    pub(super) fn merges_with(&self, other: &Self) -> bool {
        let same = match (&self.about, &other.about) {
            (About::Place(own), About::Place(others)) => own.same(others),
            (About::Handles(own), About::Handles(others)) => own == others,
            _ => false,
        };
        same && self.question.is_none()
            && other.question.is_none()
            && self.pid == other.pid
            && (self.mask & APART) == (other.mask & APART)
    }
}
