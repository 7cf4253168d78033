//! System calls about files, grouped as in the manual.

pub mod asynchronous;
pub mod attributes;
pub mod context;
pub mod directory;
pub mod epoll;
pub mod eventfd;
pub mod extended;
pub mod fcntl;
pub mod inotify;
pub mod ioctl;
pub mod memory_file;
pub mod mount;
pub mod mount_context;
pub mod mount_tree;
pub mod names;
pub mod open;
pub mod path;
pub mod pipe;
pub mod poll;
pub mod select;
pub mod splice;
pub mod stat;
pub mod statfs;
pub mod sync;
pub mod timerfd;
pub mod transfer;
