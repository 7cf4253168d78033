//! Processes that watch and change others: ptrace(2).
//!
//! A thread that is traced has a `Tracee`, which its tracer, a thread of another process, has listed in
//! [`Process::tracees`](crate::process::process::Process). The tracee *runs* until it comes to a stop, and then *stands* until the tracer lets it go on:
//!
//! ```text
//!            a signal, a call, an event, an order to stop                     resume, detach, the tracer's end
//!   runs  ────────────────────────────────────────────────►  stands  ──────────────────────────────────────────►  runs
//!    │                                                         │ SIGKILL
//!    └──────────────────────────────►  ended  ◄────────────────┘       ended: until the tracer has waited for it
//! ```
//!
//! Nobody reaches into a thread. A thread that comes to a stop publishes its registers in its tracee (`stop`), under whose lock the tracer reads and changes
//! them (`request`), and takes them back when it goes on: so there is nothing to wait for until a stopped thread has left its processor, and a
//! request that comes too late, because the tracee was killed, finds that it does not stand any more (ESRCH).
//!
//! A thread that is not traced pays nothing: whether calls are watched is a bit of the byte that says that they are filtered, and everything else happens
//! on ways that attention leads to.
//!
//! # Locking
//! A tracee's lock is the innermost of signals': it may be taken with `signals` and `threads` of its process held, or with its tracer's list, and nothing is
//! taken with it held. That a thread is traced is three entries: the thread's
//! ([`Thread::tracee`](crate::process::thread::Thread)), which says who comes first; the list's; and the tracer in the tracee, whose going ends it (`attach`).
//!
//! # What is told
//! As for children (see [`wait`](crate::wait)), a stop that the tracer can see is in the making until SIGCHLD has been sent. The end of a traced leader is
//! told the tracer first, if that is not the parent, and the parent when the tracer has waited (`end`).

pub(crate) mod attach;
pub(crate) mod calls;
mod debug;
pub(crate) mod end;
mod information;
pub(crate) mod options;
mod registers;
mod request;
pub(crate) mod scope;
pub(crate) mod stop;
pub(crate) mod tracee;
pub(crate) mod waiting;

pub use request::ptrace;
