//! The Linux personality: what makes a program believe that it runs on Linux.
//!
//! A user thread is a kernel thread whose body is [`task`]'s loop: run the program until it needs the kernel, serve the system
//! call or exception, deliver signals, go back. Everything a system call needs comes with its `&mut Task`; there is no
//! hidden "current process". Groups of calls have a file each, named as in the manual; `table.rs` lists all of them.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod abi;
mod accounting;
pub mod barrier;
pub mod binfmt_misc;
mod control_group;
mod core_dump;
pub mod credentials;
mod device_events;
pub mod elf;
pub mod errno;
pub mod exception;
pub mod exec;
pub mod exit;
pub mod file;
pub mod fork;
pub mod futex;
pub mod hardware;
mod helper;
pub mod identity;
pub mod io_priority;
pub mod io_ring;
pub mod ipc;
pub mod kcmp;
pub mod lock_count;
pub mod memory;
mod memory_policy;
pub mod mqueue;
pub mod name_space;
mod nowhere;
pub mod oom;
pub mod pager;
pub mod pidfd;
pub mod prctl;
pub mod proc;
pub mod process;
pub mod ptrace;
pub mod random;
pub mod reboot;
pub mod remote_advice;
pub mod rseq;
pub mod scheduling;
pub mod seccomp;
pub mod signal;
pub mod socket;
pub mod start;
pub mod syslog;
pub mod sysv;
pub mod table;
pub mod task;
pub mod terminal;
pub mod time;
pub mod timer;
pub mod user_pointer;
pub mod vdso;
pub mod wait;
