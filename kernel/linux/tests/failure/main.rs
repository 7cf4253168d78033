//! Every allocation behind the system calls fails once: nothing panics, nothing leaks, and what failed can be repeated.
//!
//! The whole kernel above the machine runs here as an ordinary process. [`machine_under_test`] starts it once and runs scenarios on it,
//! one after the other; [`program`] is what a scenario makes system calls with; [`children`] is what other processes and
//! threads do meanwhile. Each of the other files has the scenarios of one group of calls.
//!
//! A scenario runs as the body of process 2, once for each of its failure points and once without a failure. A call that fails
//! because of the injected failure must say ENOMEM (or what the manual page says instead), must leave no descriptor behind, and
//! must succeed when it is repeated. When the process has ended, as many frames, heap objects, threads, processes and
//! mounts must be there as before.
#![forbid(unsafe_code)]

mod children;
mod descriptors;
mod files;
mod groups;
mod machine_under_test;
mod memory_calls;
mod mounts;
mod processes;
mod program;
mod rings;
mod signals;
mod sockets;
mod supervisors;
mod terminals;
mod views;
mod watching;

#[global_allocator]
static HEAP: memory::fallible::CountingHeap = memory::fallible::CountingHeap;
