//! NVMe: controllers on PCI, whose namespaces are disks (NVM Express base specification 1.4).
//!
//! | module | what it decides |
//! |---|---|
//! | [`queue`] | how commands go to a controller and come back; what of that is believed |
//! | `command` | what commands look like, and what their ends mean |
//! | `transfer` | which memory a command reaches, and the lists that say so |
//! | `identity` | what a controller and its namespaces say of themselves |
//! | `registers` | switching a controller on and off, doorbells |
//! | `admin` | commands to the controller itself, one at a time |
//! | `controller` | start, completions, time-outs, removal |
//! | `recovery` | what happens to requests while the way to a controller has errors |
//! | `namespace` | a disk |
//! | `find` | which functions are driven |
//!
//! # What is believed of a controller
//! Nothing that would matter for others than its users: see [`queue`]. One that breaks the rules is switched off, and fails all that it had and gets.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod admin;
mod command;
mod controller;
mod find;
mod identity;
mod namespace;
pub mod queue;
mod recovery;
mod registers;
mod transfer;

pub use command::{Command, Ending};
pub use find::initialize;
