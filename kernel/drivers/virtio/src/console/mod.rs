//! Consoles: a device with ports, each a stream of bytes in both directions. Some are terminals (`/dev/hvc0`), the others files (`/dev/vport0p1`).
//!
//! | module | what it decides |
//! |---|---|
//! | `control` | messages about ports |
//! | `port` | one port: buffers, who waits, how much there is and fits in |
//! | `device` | start, control messages, removal |
//! | `file` | a port as an open file |
//! | `kept` | a port that the kernel keeps for itself |
//! | `terminal` | a port as a terminal |

mod control;
mod device;
mod file;
mod kept;
mod port;
mod terminal;

pub(crate) use device::probe;
pub use kept::{KeptPort, keep_port};

/// Registers the device nodes' drivers. At start-up.
pub(crate) fn register() {
    file::register();
    terminal::register();
}
