//! `inotify`: being told what happens to files.

mod event;
mod instance;
mod report;
mod watch;

pub use event::EventMask;
pub use instance::{Inotify, create_inotify};
pub(crate) use report::report_execution;
pub use report::{
    active, report, report_attributes, report_changed_contents, report_child, report_file, report_gone,
    report_rename, report_unlinked,
};
pub use watch::WatchList;
