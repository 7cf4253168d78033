//! `fanotify`: being told what happens to files, by whom, and being asked before it does.
//!
//! # Parts
//! A [`Fanotify`] is what a descriptor stands for; what others refer to is its *group*: the queue, and who waits for it. *Marks* hang on inodes (beside the
//! watches of `inotify`), on mounts and on file systems, and say which events a group wants, and which it ignores. The descriptor keeps the marks, objects know them by
//! weak references: a mark ends with the descriptor, when it is taken back, or when what it hangs on goes.
//!
//! # An event
//! 1. It is looked for marks at the file system, the mount, the file and its directory (`report`). Those of one group count together.
//! 2. A group that wants it has it queued (`group`), merged with one about the same file by the same process if that still waits. When too many wait, one that
//!    says so takes the place of all others.
//! 3. A reader gets it (`instance`, `layout`) with a descriptor of the file, or with handles of the file and its directory, and the name.
//!
//! # Questions
//! Events that ask for permission wait until the reader writes the answer (`question`): *asked* → *handed out* → *answered*. Who waits can be killed. When the
//! descriptor is closed, all that is not answered is allowed. Groups are asked in the order of their classes, and the first who denies is the last who is asked.
//!
//! # Locking
//! A group's queue is under a spin lock, also what is handed out. Its list of marks is under a sleeping lock, which is taken before the spin locks of the lists at
//! objects. Nobody sleeps for an answer with a lock of this module.
//!
//! While nothing is watched in the system, an operation on a file looks at one word (`watched`).

mod event;
mod group;
mod instance;
mod layout;
mod mark;
mod mask;
mod question;
mod report;

pub use instance::{Fanotify, create_fanotify};
pub(crate) use mark::MarkList;
pub use mark::MarkRequest;
pub use mask::{FanMask, GroupFlags, MarkFlags, MarkedKind};
pub(crate) use report::{Happening, ask_access, ask_execution, ask_open, report};
