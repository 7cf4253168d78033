//! Which of the runnable threads of one CPU is next.
//!
//! - [`entity`]: what a run queue knows of each thread.
//! - [`reservation`]: threads that are sure of so much time in each period.
//! - [`queue`]: the queue: reservations by deadline, real-time threads by priority, then fair threads by virtual runtime, then idle.

mod entity;
mod queue;
mod reservation;
#[cfg(test)]
mod tests;

pub(crate) use entity::Entity;
pub(crate) use queue::{Activation, NO_SLICE_END, RunQueue};
pub use reservation::Reservation;
