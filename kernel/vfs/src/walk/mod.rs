//! Walking paths.

mod context;
mod entry;
mod fast;
mod walker;

pub use context::{
    CurrentPlaces, FileSystemContext, FileSystemUse, PathContext, Places, may_execute, status_of,
};
pub use entry::find_entry;
pub(crate) use entry::{enter_created, find_entry_locked};
pub(crate) use walker::{Last, LastName, Walker};
