//! The file system as the file layer mounts it.
//!
//! | module | what it is |
//! |---|---|
//! | `kind` | the type, and mounting |
//! | `instance` | a mounted tree, its inodes in memory, and its thread |
//! | `file` | what is known of a file apart from its inode: its numbers at the server |
//! | `node` | an inode's operations |
//! | `changes` | those that change names and attributes |
//! | `extended` | extended attributes |
//! | `pages` | a file's pages, to and from the server |
//! | `direct` | open files of a mount that keeps nothing |
//! | `listing` | directories |

mod changes;
mod direct;
mod extended;
mod file;
mod instance;
mod kind;
mod listing;
mod node;
mod pages;

pub use kind::register;
