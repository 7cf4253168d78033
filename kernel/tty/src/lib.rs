//! Terminals: the line discipline, pseudo-terminals and job control.
//!
//! | module | what it decides |
//! |---|---|
//! | [`termios`] | the attributes and their ABI form |
//! | [`line_discipline`] | what typed bytes turn into, as a pure state machine |
//! | [`job_control`] | who may read and write, and who is signalled; the personality implements the process side |
//! | `terminal` | one terminal: queues, waiting, attributes, hang-up |
//! | `file`, `control` | a terminal as an open file; its ioctls |
//! | [`pseudo`] | the master side of pseudo-terminals and their numbers |
//!
//! A [`Terminal`] stands between a program (reads, writes, ioctls) and a device (a [`Device`]: the
//! host link's console, a serial line, the master side of a pseudo-terminal). It guarantees the
//! semantics of termios(3) and POSIX job control; it does not know processes, and asks the
//! personality through [`job_control::JobControl`].
//!
//! Locking: each terminal has one spin lock for its state, held for bounded work only (at most one
//! chunk of bytes) and never across a call to the device, to job control or to user memory.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod control;
mod file;
pub mod job_control;
pub mod line_discipline;
pub mod pseudo;
mod ring;
mod terminal;
pub mod termios;

pub use file::{MasterFile, TerminalFile};
pub use terminal::{Device, Name, Notice, Terminal, WindowSize};
