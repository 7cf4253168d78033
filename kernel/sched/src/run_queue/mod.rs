//! Which of the runnable threads of one CPU is next.
//!
//! - [`entity`]: what a run queue knows of each thread.
//! - [`queue`]: the queue: real-time threads by priority, then fair threads by virtual runtime, then idle.

mod entity;
mod queue;
#[cfg(test)]
mod tests;

pub(crate) use entity::Entity;
pub(crate) use queue::{Activation, NO_SLICE_END, RunQueue};
