//! Changing the tree: opening, creating, linking, removing, renaming, attributes. All are methods of
//! [`PathContext`](crate::walk::PathContext).

mod access_list;
mod attribute;
mod create;
mod extended;
mod handle;
pub mod layer;
mod open;
mod remove;
mod rename;

pub use attribute::change_inode;
pub(crate) use attribute::truncate_inode;
pub use extended::{VALUE_MAX, get_attribute, list_attributes, remove_attribute, set_attribute};
pub(crate) use open::open_unwatched;
pub use open::{OpenHow, open_for_execution, open_place};
