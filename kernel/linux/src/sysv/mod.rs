//! System V interprocess communication: objects that programs find by keys and use by ids.
//!
//! An object lives until somebody removes it, whoever made it and whether or not a process has it in use. What all kinds have in common is
//! here: ids and keys (`registry`), owners and modes (`permissions`). There is one name space of them.

pub mod permissions;
pub mod registry;
pub mod shm;
