//! futex(2): waiting on words of user memory.
//!
//! `key` names the word, `queue` holds who waits for it, `calls` are the operations, `inheritance` those of locks whose owner inherits the
//! priority of who waits, `robust` the lists a dead thread leaves.

mod calls;
pub(crate) mod inheritance;
pub mod key;
mod queue;
pub mod robust;
mod vector;

pub use calls::{futex, resume, wake_address};
pub use queue::Waiter;
pub use vector::futex_waitv;
