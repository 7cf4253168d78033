//! The file system as the file layer mounts it.
//!
//! | module | what it is |
//! |---|---|
//! | `kind` | the types, and mounting |
//! | `instance` | a mounted tree, and its inodes in memory |
//! | `node` | an inode's operations, and what is known of it for how long |
//! | `names` | by which names an inode was found, and until when that is believed |
//! | `changes` | what changes names and attributes |
//! | `extended` | extended attributes |
//! | `handle` | files that are open at the server |
//! | `file` | open regular files |
//! | `pages` | a file's pages, to and from the server |
//! | `directory` | open directories |
//! | `notified` | what the server says by itself |

mod changes;
mod directory;
mod extended;
mod file;
mod handle;
mod instance;
mod kind;
mod names;
mod node;
mod notified;
mod pages;

pub use instance::Instance;
pub(crate) use kind::register;
