//! Changing the tree: opening, creating, linking, removing, renaming, attributes. All are methods of
//! [`PathContext`](crate::walk::PathContext).

mod access_list;
mod attribute;
mod create;
mod extended;
pub mod layer;
mod open;
mod remove;
mod rename;

pub use attribute::change_inode;
pub(crate) use attribute::truncate_inode;
pub use extended::{VALUE_MAX, get_attribute, list_attributes, remove_attribute, set_attribute};
pub use open::{OpenHow, open_place};
