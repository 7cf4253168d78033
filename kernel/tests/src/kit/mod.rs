//! The kit for tests that hunt races, after the test framework of Fiasco's multiprocessor port (specs/fiasco-mp.md §14.1-2).
//!
//! | part | what it is for |
//! |---|---|
//! | [`spawn`], [`join`] | start one thread and wait for its end |
//! | [`Team`] | starts test threads on given CPUs and waits for their end |
//! | [`Meeting`] | the point where threads meet before each round |
//! | [`Sweep`] | modulated delays: one thread waits a fixed time, the other from nothing to twice that, so that their critical paths are shifted against each other |
//! | [`window`] | time windows: one thread does something exactly between two instructions of another |
//! | [`Watchdog`] | tells that nothing goes on any more, without a limit on how long anything takes |
//!
//! A test is chosen by `test=` on the kernel command line.

mod delay;
mod exercise;
mod meeting;
mod random;
mod team;
mod thread;
mod watchdog;
pub(crate) mod window;

pub(crate) use delay::{Sweep, delay};
pub(crate) use exercise::TESTS;
pub(crate) use meeting::Meeting;
pub(crate) use random::Random;
pub(crate) use team::Team;
pub(crate) use thread::{join, on, sleep_ns, spawn};
pub(crate) use watchdog::Watchdog;
