//! Looking into the running kernel.
//!
//! | module | what it is |
//! |---|---|
//! | [`debugger`] | the kernel debugger: all processors stop, and one of them talks over the first serial port |
#![cfg_attr(target_os = "none", no_std)]

pub mod debugger;
