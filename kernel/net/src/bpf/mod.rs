//! Programs of classic BPF: the machine, and filters of sockets (socket(7), `SO_ATTACH_FILTER`).
//!
//! The machine has two registers, a few words of memory and jumps that lead forwards only. What a program reads from outside is its user's business: a
//! filter reads a message, a program of seccomp reads a call.

mod attributes;
mod filter;
pub mod machine;
mod slot;
#[cfg(test)]
mod tests;

pub use filter::{Filter, Packet};
pub use machine::Instruction;
pub use slot::Slot;
