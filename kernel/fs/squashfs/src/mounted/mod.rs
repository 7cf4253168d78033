//! The file system as the file layer mounts it.

mod instance;
mod kind;
mod node;

pub use kind::register;
