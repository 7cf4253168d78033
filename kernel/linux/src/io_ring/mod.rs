//! Submission and completion rings: `io_uring(7)`.
//!
//! # Parts
//! - `ring`: what a descriptor of a ring leads to: the memory that it shares with programs, the requests that are under way, and what is
//!   registered with it.
//! - `request`: one submission on its way to its completion. Its *stage* says who may act on it; whoever moves it from `Armed`, `Ready` or
//!   `Queued` to `Running` owns it until it says what comes next.
//! - `submitter`: what a thread that submits has: the list of its requests that may go on, the queue of those that have to wait
//!   in a thread, and the workers that serve both. A worker is a thread of the process that never enters user mode.
//! - `submit`: from entries to chains of requests. `execute`: from a request to its outcome. `operations`: what the operations do.
//! - `resources`, `groups`: what is registered with a ring, and the buffers that a program provides.
//! - `register`, `calls`: the three system calls.
//!
//! # A request's way
//! ```text
//!            ┌──────────── next of a chain, after a drain ────────────┐
//! Held ──────┴─► Running ──────────────────────────────► Done         │
//!                 │   ▲ ▲                                              │
//!  would block    │   │ └── a worker took it ─── Queued ◄── must wait ──┤
//!                 ▼   │                                                 │
//!               Armed ┴─► Ready (a file or a timer fired; on the submitter's list)
//! ```
//! Each is *tried* by the thread that submits it with its attention flag set, so that a wait that would begin ends at once with `EINTR`
//! and nothing done: that is how every file, socket and terminal says that it would block, whatever its flags. What would block then has its file
//! tell when it is ready (`request::Watch`); what no file can tell of waits in a worker. A request that was told of is tried again by its submitter if that waits in
//! `io_uring_enter`, else by a worker.
//!
//! # Completions
//! There is always room: in the ring, or in a list of the kernel's whose room was made when the request was. So none is lost, and
//! nothing is allocated where a request ends. Completions of operations that have several are made one at a time; when there is no room for one that
//! is not the last, the operation ends with it.
//!
//! # Ends
//! A thread that ends or executes a program takes its requests back and waits for its workers (`submitter::Submitter::shut_down`), so none outlives
//! the memory that it works on. A ring that is closed takes back all of its requests. What can't be taken back because a worker is in the midst
//! of it is interrupted, and ends as it would by a signal.
//!
//! # Locks
//! A ring's `submission` (sleeping) is held while entries are taken, not while they are executed. All others are spin locks of one object each. With
//! interrupts off are taken: a watch's target, then the queues of a submitter, then a wait queue; files tell of being ready from anywhere. Requests and files
//! are dropped under none of them.

mod abi;
pub(crate) mod calls;
mod cancel;
mod closing;
mod completions;
mod execute;
mod groups;
mod memory;
mod operations;
mod register;
mod request;
mod resources;
mod ring;
mod submit;
mod submitter;
mod worker;

pub(crate) use closing::Closing;
pub(crate) use ring::is_ring;
pub(crate) use submitter::Submitter;
