//! Classes of locks: order checking and counting.
//!
//! All locks of one class guard the same kind of thing and are taken in the same order relative to other classes. The class
//! of a lock is the type of what it guards, together with the kind of lock, unless the lock was given a name
//! (`SpinLock::named`), which is for types that say nothing (`()`, numbers) or that several locks guard. A lock that is
//! taken while another one of its class is held says so (`lock_nested`), and counts as a class of its own then.
//!
//! | built with | what is done | cost |
//! |---|---|---|
//! | neither | nothing: all types here are empty | none |
//! | debug assertions (profiles `dev` and `checked`) | order checking: `order` | some hundred instructions a lock |
//! | feature `lcount` (profile `counted`) | counting: `count`, `statistics` | some dozen instructions a lock |
//!
//! Who takes a lock makes an [`Attempt`], which becomes a [`Held`] when the lock is taken; dropping that says that the lock
//! is free again. Spin locks that are held are listed per CPU, sleeping locks per thread ([`ThreadLocks`]).

mod attempt;
mod class;
#[cfg(any(debug_assertions, feature = "lcount"))]
mod context;
#[cfg(feature = "lcount")]
mod count;
#[cfg(debug_assertions)]
mod edges;
#[cfg(debug_assertions)]
mod held;
#[cfg(debug_assertions)]
mod order;
#[cfg(any(debug_assertions, feature = "lcount"))]
mod registry;
mod report;
mod rules;
#[cfg(feature = "lcount")]
mod statistics;
#[cfg(all(test, debug_assertions))]
mod tests;
mod thread;

pub use attempt::{Attempt, Held, IN_TREE};
pub use class::{Class, Kind};
pub use report::{
    CHECKING, COUNTING, keep_statistics, keeps_statistics, locks_taken, reset_statistics, write_calls,
    write_order, write_statistics, write_taken,
};
pub use rules::{
    call_begins, call_ends, enter_softirq, leave_softirq, may_allocate, may_call_remotely, may_sleep,
    nothing_held, thread_switched, without_order,
};
pub use thread::{ThreadLocks, set_finder};
