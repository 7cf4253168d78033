//! The cache of directory entries.

mod cache;
mod children;
mod entry;
mod relocate;

pub(crate) use cache::EntryCache;
pub use cache::{cached_entries, forget_child, forget_tree, set_limit, shrink};
pub use entry::{Dentry, DentryFlags};
pub use relocate::{Exchange, Relocation};
