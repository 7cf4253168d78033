//! The kernel debugger.
//!
//! Each processor runs an instance; exactly one of them, the *active* one, holds the dialogue over the first serial port, by polling.
//!
//! | module | what it decides |
//! |---|---|
//! | `rendezvous` | how all processors come to stand, who is active, how they go on: the state machine |
//! | `entry` | what leads here, what is handled without stopping anybody |
//! | `commands`, `words` | the dialogue |
//! | `display` | what the commands show |
//! | `session` | what an instance knows of its processor: the registers it came with |
//! | `terminal` | where lines come from and output goes: the serial port, or a test's script |
//! | `watches` | hardware breakpoints, the same on all processors |
//!
//! No lock of the kernel is waited for here: its holder may stand still.

#[cfg_attr(not(any(target_os = "none", test)), allow(dead_code, reason = "on the host it is only tested"))]
mod rendezvous;

#[cfg(target_os = "none")]
mod commands;
#[cfg(target_os = "none")]
mod display;
#[cfg(target_os = "none")]
mod entry;
#[cfg(target_os = "none")]
mod session;
#[cfg(target_os = "none")]
mod terminal;
#[cfg(target_os = "none")]
mod watches;
#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "the dialogue is the bare machine's"))]
mod words;

#[cfg(target_os = "none")]
pub use entry::{LEAVING, Statistics, enable, initialize, inject_defect, listen, statistics};
pub use rendezvous::{BARRIER_NS, LEAVE_BEHIND_NS, set_patience_ns};
#[cfg(target_os = "none")]
pub use terminal::{run_script, transcript};
#[cfg(target_os = "none")]
pub use watches::{count_hits, hits};
