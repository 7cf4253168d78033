//! In which order requests go to a device.

mod deadline;
mod interface;
mod none;

pub use deadline::Deadline;
pub use interface::Scheduler;
pub use none::First;
