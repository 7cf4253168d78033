//! What programs see of the host link: a terminal (`/dev/console`, `/dev/tty`) and the three streams of a command
//! that runs without one.
//!
//! | module | what it decides |
//! |---|---|
//! | [`terminal`] | the console: a [`tty::Terminal`] whose device is the link's terminal channel |
//! | [`stream`] | standard input, output and error as files that are not terminals |
//! | `drain` | who moves the console's output to the link |
//! | `nodes` | which device numbers lead to them |
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod drain;
pub mod nodes;
pub mod stream;
pub mod terminal;
