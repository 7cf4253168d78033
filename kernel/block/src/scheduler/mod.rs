//! In which order requests go to a device.

mod deadline;
mod interface;
mod none;
mod waiting;

use alloc::boxed::Box;

use memory::fallible;

pub use deadline::Deadline;
pub use interface::{Scheduler, Setting};
pub use none::First;

use crate::{Error, Result};

/// What can be chosen for a device. With the first, each CPU has a lane of its own.
pub const NAMES: [&str; 2] = ["none", "mq-deadline"];

/// A new scheduler of that name.
///
/// # Errors
/// [`Error::Invalid`] if there is none, or no memory.
pub(crate) fn make(name: &str) -> Result<Box<dyn Scheduler>> {
    match name {
        "none" => Ok(fallible::try_box(First::default())?),
        "mq-deadline" => Ok(fallible::try_box(Deadline::default())?),
        _ => Err(Error::Invalid),
    }
}
