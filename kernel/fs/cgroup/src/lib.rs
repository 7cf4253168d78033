//! Control groups: what groups of processes may use, and the file system `cgroup2` that shows them.
//!
//! # Parts
//! A [`Group`] is a node of the tree, whose root is the group of everybody who was never moved. A process has a [`Membership`], which says where
//! it is. The tree is shown by a file system of which there is one instance; the files of groups are described by one table
//! (`interface.rs`). What only the personality knows (which processes there are, who calls) it says by [`Programs`] and [`Member`].
//!
//! # What it costs
//! A process in the root group has no group: its fork and its end look at one pointer, which is null. Groups count what is theirs, each
//! processor by itself while a limit is far (`memory::per_cpu::Counter`); processor time is added up when somebody reads it.
//!
//! # Locking
//! The tree is changed under one sleeping lock, which also orders migrations; neither fork nor exit takes it, unless the group is being frozen.
//! A process's group changes with the list of its threads locked, so that threads come and go in one group; the lock of a group's list
//! of members is taken in there, one at a time. Who only looks at a process's group does so under RCU.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod accounts;
mod attach;
mod controllers;
mod directory;
mod file;
mod file_system;
mod freezer;
mod group;
mod interface;
mod kill;
mod membership;
mod notice;
mod number;
mod path;
mod pids;
mod processor_time;
mod processors;
mod programs;
mod transfers;
mod tree;

pub use accounts::register_accounts;
pub use attach::{check_target, group_of_directory};
pub use controllers::controller_names;
pub use file_system::{CGROUP2, register};
pub use group::Group;
pub use membership::{Full, Joined, Member, Membership};
pub use path::write_path;
pub use programs::{Programs, set_programs};
pub use tree::{count, root};
