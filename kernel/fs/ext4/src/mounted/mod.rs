//! The file system as the file layer mounts it: to be read.

mod instance;
mod kind;
mod node;
mod pages;

pub use kind::register;
