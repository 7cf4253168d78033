//! Read-copy-update: readers of shared structures neither lock nor write.
//!
//! | part | what it decides |
//! |---|---|
//! | [`flavour`](Flavour) | what readers hold, and which flavour a pointer is of |
//! | `tree`, `protocol` | who owes a quiescent state; when a grace period starts and ends |
//! | `grace_period` | where CPUs report, and how silent ones are urged |
//! | `callback`, `segments`, `queue` | what waits for that, per CPU, without allocating; floods |
//! | `bulk` | many drops in one callback |
//! | `pressure` | slowing who makes garbage too fast |
//! | `pointer`, `arc_slot` | a pointer that readers follow while writers replace what it points to; a reference that they can take |
//! | `stall`, `statistics`, `trace`, `report` | what can be seen of all this |
//! | [`parameters`] | what the command line decides |
//!
//! A read section is a section with preemption off ([`read`]): it costs one increment and one
//! decrement of a per-CPU word, and forbids sleeping. A CPU is *quiescent* at a context switch, in the idle loop, in user
//! mode, and wherever an interrupt finds its preemption count zero.

mod arc_slot;
mod bulk;
mod callback;
#[cfg(test)]
mod counts_drop;
mod flavour;
mod grace_period;
mod histogram;
pub mod parameters;
mod pointer;
mod pressure;
mod protocol;
mod queue;
mod report;
mod segments;
mod stall;
mod statistics;
pub mod trace;
mod tree;

pub use arc_slot::{ArcSlot, Replaced};
pub use bulk::{Deferred, drop_later, try_drop_later};
pub use callback::{RcuBox, call};
pub use flavour::{Bh, Classic, Flavour, Kind, RcuBhGuard, RcuReadGuard, read, read_bh};
pub use grace_period::{
    WaitHook, completed, force, idle_enter, idle_exit, quiescent, set_wait_hook, softirq_exit, stalls,
    synchronize, synchronize_bh, synchronize_expedited,
};
pub use histogram::Summary;
pub use pointer::Pointer;
pub use pressure::{bytes_limit, pace, relieve, set_bytes_limit, set_may_wait_hook};
pub use queue::{
    Counts, Rest, barrier, barrier_expedited, counts, invoke, pending, pending_bytes, pending_on, serve,
    serve_in_thread, set_request_hook,
};
pub use report::write_report;
pub use stall::{Stall, find_stall, stall_is_due, wants_own_stack};
pub use statistics::{WINDOW_NS, batches, grace_periods, softirqs_ran, windows};
