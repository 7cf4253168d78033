//! Advanced error reporting (specs/pcie-port-bus.md, features 14 to 16).
//!
//! An agent sends a message to its root port, which notes kind and sender and interrupts. The root service takes the note, gathers what
//! the agent itself has noted, reports, counts, clears, and has the hierarchy recover. The service of a switch's ports only sees to it that
//! they pass messages on.
//!
//! | file | what is in it |
//! |---|---|
//! | `error` | the bits, their names, how they are reported, counters |
//! | `agent` | a function's error registers |
//! | `root` | the service of root ports |

mod agent;
mod error;
mod root;
#[cfg(test)]
mod tests;

pub use agent::enable_reporting;
pub use error::{ErrorCounters, Severity, names};
pub use root::{Injection, inject, root_totals};

use alloc::sync::Arc;

use super::kind::{PortKind, ServiceKind};
use super::service::{ServiceDevice, ServiceDriver, ServiceId, register as register_service};
use crate::model::{Binding, DriverError};

/// The name of the driver for root ports.
pub const NAME: &str = "aer";
static ROOT_IDS: [ServiceId; 1] = [ServiceId::new(Some(PortKind::Root), ServiceKind::Aer)];
static SWITCH_IDS: [ServiceId; 2] = [
    ServiceId::new(Some(PortKind::Upstream), ServiceKind::Aer),
    ServiceId::new(Some(PortKind::Downstream), ServiceKind::Aer),
];

/// The hold on a port of a switch.
struct Switch(Arc<ServiceDevice>);

fn probe_switch(device: &Arc<ServiceDevice>, _: &ServiceId) -> Result<Arc<dyn Binding>, DriverError> {
    enable_reporting(&device.port);
    Ok(Arc::new(Switch(device.clone())))
}

impl Binding for Switch {
    fn remove(&self) {}

    fn resume(&self) {
        enable_reporting(&self.0.port);
    }
}

/// Registers both drivers.
pub(super) fn register() -> Result<(), DriverError> {
    register_service(ServiceDriver::new(NAME, &ROOT_IDS, root::probe))?;
    register_service(ServiceDriver::new("aer_switch", &SWITCH_IDS, probe_switch))
}
