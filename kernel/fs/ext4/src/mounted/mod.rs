//! The file system as the file layer mounts it.
//!
//! | module | what it is |
//! |---|---|
//! | `kind` | the types, and mounting |
//! | `instance` | a mounted file system, and its inodes in memory |
//! | `node` | an inode's operations |
//! | `changes` | those that change names and attributes |
//! | `access_list` | access lists, from the disk's form and into it |
//! | `flags` | flags of files, and projects |
//! | `options` | mount options |
//! | `gone` | files that nobody can reach any more, and deleting them |
//! | `pages` | a file's pages, to and from the device |
//! | `holes` | where a file has data and holes, taking ranges out and putting them in |
//! | `trim` | telling the device what is free |
//! | `reclaim` | what is given back when memory is short |
//! | `transfers` | pages that are being written, and entering them when they are |
//! | `commits` | the thread that commits, and unmounting |

mod access_list;
mod changes;
mod commits;
mod flags;
mod gone;
mod handles;
mod holes;
mod instance;
mod kind;
mod node;
mod options;
mod pages;
mod reclaim;
mod transfers;
mod trim;

pub use kind::register;
