//! Disks of virtual machines.
//!
//! | module | what it decides |
//! |---|---|
//! | `layout` | what the device's configuration says, and what follows for requests |
//! | `lane` | a queue of the device: requests in it, and their memory |
//! | `disk` | the driver: start, completions, time-outs, removal |

mod disk;
mod lane;
mod layout;
mod recovery;

pub(crate) use disk::probe;
