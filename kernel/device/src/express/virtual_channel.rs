//! The service for virtual channels: leaves one channel, which carries everything.
//!
//! Firmware may have left others on, with traffic classes mapped to them. Nothing here would arbitrate between them, so all classes are mapped to
//! channel 0, which is always on. Removal leaves that so.

use alloc::sync::Arc;

use super::kind::ServiceKind;
use super::service::{Registers, ServiceDevice, ServiceDriver, ServiceId};
use crate::model::{Binding, DriverError};

/// How many channels there are beyond the first, in the low three bits.
const CAPABILITY: u16 = 0x04;
/// Control of channel 0: a bit for each traffic class in the low byte.
const CHANNEL_CONTROL: u16 = 0x14;
const ALL_CLASSES: u32 = 0xff;

static IDS: [ServiceId; 1] = [ServiceId::new(None, ServiceKind::VirtualChannel)];

struct Held(Registers);

/// Maps all classes to the first channel.
fn use_first_channel(registers: &Registers) {
    let control = registers.read_u32(CHANNEL_CONTROL);
    if control & ALL_CLASSES != ALL_CLASSES {
        registers.write_u32(CHANNEL_CONTROL, control | ALL_CLASSES);
    }
}

fn probe(device: &Arc<ServiceDevice>, _: &ServiceId) -> Result<Arc<dyn Binding>, DriverError> {
    let more = device.registers.read_u32(CAPABILITY) & 7;
    log::debug!("{}: {} virtual channels; the first carries everything", device.port.address(), more + 1);
    use_first_channel(&device.registers);
    Ok(Arc::new(Held(device.registers.clone())))
}

impl Binding for Held {
    fn remove(&self) {}

    fn resume(&self) {
        use_first_channel(&self.0);
    }
}

/// Registers the driver.
pub(super) fn register() -> Result<(), DriverError> {
    super::service::register(ServiceDriver::new("pcie_vc", &IDS, probe))
}
