//! Threads and everything that sleeps.
//!
//! | module | what it decides |
//! |---|---|
//! | [`thread`] | what a thread is, how it is made, ends and is looked at |
//! | `state` | the sleep/wake protocol: no wake-up is lost, none takes a lock in vain |
//! | `run_queue` | which runnable thread of a CPU is next: real-time, fair, idle |
//! | `dispatch` | the switch itself, preemption, the idle loop |
//! | `placement`, `balance`, [`Bound`] | which CPU a thread goes to |
//! | [`HandOver`] | giving the CPU to a sleeper, past the run queue |
//! | [`Urgency`] | how urgent a thread is by itself, and by what others lend it |
//! | [`timer`] | deadlines, per CPU, without a tick |
//! | [`softirq`], [`softirq_budget`], [`work`] | what is put off: to the end of the interrupt, to a thread; how much of that programs bear |
//! | [`starvation`] | processors whose threads get nothing all the same |
//! | [`WaitQueue`], [`Mutex`], [`RwLock`], [`Completion`] | waiting for conditions, locks and events |
//! | [`inspection`] | what the debugger sees while everything stands still |
//! | [`statistics`] | what `/proc/stat`, `/proc/loadavg` and `/proc/schedstat` show |
//!
//! # Contexts
//! *Thread*: preemption on; may sleep. *Atomic*: preemption off (a spin lock, RCU); may not. *Softirq*: runs with
//! preemption off, never inside an atomic section of its CPU, so plain spin locks may be shared with it. *Hard
//! interrupt*: interrupts off; takes [`sync::IrqSpinLock`]s only. Wake-ups ([`Thread::wake`], [`WaitQueue`]) work
//! everywhere.
#![cfg_attr(target_os = "none", no_std)]

extern crate alloc;

mod admission;
mod balance;
mod bound;
mod clustered_sweep;
mod completion;
pub mod control;
mod cpu;
mod deadline;
mod dispatch;
mod hand_over;
mod idle;
pub mod inspection;
pub mod io_context;
mod memory_threads;
mod mutex;
mod next_time;
mod placement;
mod policy;
mod rcu_driver;
mod run_queue;
mod rw_lock;
pub mod softirq;
pub mod softirq_budget;
mod space;
mod stack;
mod start;
pub mod starvation;
mod state;
pub mod statistics;
#[cfg(test)]
mod tests;
pub mod thread;
pub mod timer;
mod urgency;
mod wait;
mod wait_queue;
pub mod work;

pub use admission::{NoTimeLeft, wait_for_period};
pub use bound::Bound;
pub use completion::Completion;
pub use cpu::WakeBatch;
pub use dispatch::{abandon_current, exit_current, schedule, set_death_hook, yield_now};
pub use hand_over::HandOver;
pub use io_context::{IoClass, IoPriority};
pub use mutex::{Mutex, MutexGuard};
pub use policy::{Nice, Policy};
pub use run_queue::Reservation;
pub use rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use start::{enter_application_processor, initialize};
pub use state::RunState;
pub use thread::{
    Builder, Calls, Current, IoStart, NewThread, Observation, Thread, ThreadRef, UserStart, current, spawn,
};
pub use urgency::Urgency;
pub use wait::{
    Interrupted, WaitError, block_interruptible, block_interruptible_handing_over, block_uninterruptible,
};
pub use wait_queue::{Registration, WaitQueue, Waker};
