//! Synchronous messages between threads, after L4 (specs/fiasco-mp.md).
//!
//! Two threads meet: the sender waits until the receiver receives, the receiver until somebody sends; then [`WORDS`] words go from the one to
//! the other, with no buffer in between. An [`Operation`] sends, receives, or does both in one step (*call*, *reply and wait*); each half
//! has a time-out of its own. Threads have global numbers ([`ThreadId`]); the same operation works whether the partner is on this CPU or
//! on another one.
//!
//! | module | what it decides |
//! |---|---|
//! | [`endpoint`] | the operation: its halves and the step between them, the end of a thread |
//! | `sending`, `receiving` | the halves |
//! | [`state`] | the states and their transitions, pure |
//! | `block` | control blocks, and who may touch what of them |
//! | `queue` | the order of senders that wait for one receiver |
//! | `mail`, `handler` | the requests between CPUs, and what they do |
//! | `registry` | numbers and blocks |
//! | [`statistics`] | what can be seen from outside |
//! | [`defects`] | bugs and delays, for tests |
//!
//! # Why it holds
//! There are no locks: each block is written by one CPU only, with interrupts off, and what another CPU wants of it is asked for by message
//! box. A sender stays asleep, and its message unchanged, until the receiver's CPU says what became of it; the one way out, the cancellation, is
//! decided on the receiver's CPU too. So a message is taken exactly once, and the sender learns of it if and only if it was taken.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod block;
pub mod defects;
pub mod endpoint;
mod handler;
mod id;
mod mail;
pub mod operation;
mod queue;
mod receiving;
mod registry;
mod sending;
pub mod state;
pub mod statistics;
#[cfg(test)]
mod tests;

pub use endpoint::{
    Endpoint, Options, cancel, check_reach, cpu_of, end_abandoned, initialize, partition_all, thread_of,
};
pub use id::ThreadId;
pub use operation::{
    Caller, Error, Failure, Message, Operation, Receive, Received, Refusal, Send, Timeout, WORDS,
};
pub use registry::range_of;
