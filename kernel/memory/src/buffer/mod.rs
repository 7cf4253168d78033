//! Where the bytes of a read go and the bytes of a write come from.
//!
//! Files, pipes and terminals produce into a [`Sink`] and consume from a [`Source`]; neither side knows whether the
//! other end is a kernel buffer, a range of user memory or a list of ranges. Both count down what remains, so a partial
//! transfer is visible in [`Sink::remaining`]. User memory is copied directly from and to page frames.
//!
//! A transfer stops at the first byte that can't be accessed. What was moved before counts: the call that moved
//! something succeeds with the number of bytes, the next one reports the fault.

mod ranges;
mod sink;
mod source;

pub use ranges::UserRange;
pub use sink::Sink;
pub use source::Source;
