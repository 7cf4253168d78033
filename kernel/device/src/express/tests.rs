//! Ports and their service devices on modelled machines.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::*;
use crate::model::{Binding, DriverError};
use crate::pci::fake::{FakeFunction, FakeMachine};
use crate::pci::registers::{CAPABILITY_MSI, CAPABILITY_POWER, EXTENDED_VIRTUAL_CHANNEL};
use crate::pci::{Address, Function, Hierarchy, Root, Windows};

/// A port with every service that its kind may have, and a message.
fn full_port(device_type: u16) -> FakeFunction {
    let mut port = FakeFunction::port(1, device_type, Some(0x4_005b));
    port.capability(CAPABILITY_POWER, 8);
    let message = port.capability(CAPABILITY_MSI, 16);
    port.allow(message + 2, 2, 1);
    port.allow(message + 4, 4, u32::MAX);
    port.allow(message + 8, 2, 0xffff);
    port.aer();
    port.extended(EXTENDED_VIRTUAL_CHANNEL, 0x180);
    port.allow(0x194, 4, 0xff);
    port
}

fn enumerate(segment: u16, port: FakeFunction) -> Arc<Function> {
    let machine = FakeMachine::new(alloc::vec![FakeFunction::endpoint(0, 0, 1, 1, 0x06_0000), port]);
    let root = Root { segment, first_bus: 0, last_bus: 255, windows: Windows::NONE };
    let hierarchy = Hierarchy::new(machine, root);
    hierarchy.enumerate();
    hierarchy.find(Address::new(segment, 0, 1, 0)).unwrap()
}

/// Names of the service devices of a segment, without the address.
fn names(segment: u16) -> Vec<String> {
    let devices = PORT_BUS.devices();
    let own = devices.iter().filter(|attached| attached.device.port.address().segment == segment);
    own.map(|attached| attached.device.name.rsplit(':').next().unwrap().into()).collect()
}

#[test]
fn all_eleven_service_devices_and_no_twelfth() {
    let mut legal = Vec::new();
    for port in PortKind::ALL {
        for service in ServiceKind::ALL {
            legal.extend(service.device_name(port, Address::new(0, 0, 1, 0)));
        }
    }
    assert_eq!(legal.len(), 11);
    assert!(legal.iter().all(|name| !name.ends_with("pcie12")));
    let expected: [(u16, &[&str]); 3] = [
        (4, &["pcie00", "pcie01", "pcie02", "pcie03"]),
        (5, &["pcie10", "pcie11", "pcie13"]),
        (6, &["pcie20", "pcie21", "pcie22", "pcie23"]),
    ];
    for (device_type, expected) in expected {
        let segment = 0x200 + device_type;
        let function = enumerate(segment, full_port(device_type));
        let binding = port::probe(&function).unwrap();
        assert_eq!(names(segment), expected);
        binding.remove();
        assert!(names(segment).is_empty());
    }
}

#[test]
fn ports_have_only_the_services_they_implement() {
    let plain = enumerate(0x210, FakeFunction::port(1, 6, Some(0)));
    assert_eq!(services_of(&plain).count(), 0);
    let root = enumerate(0x211, FakeFunction::port(1, 4, None));
    let services: Vec<_> = services_of(&root).iter().collect();
    assert_eq!(services, [ServiceKind::Pme]);
    let bridge = enumerate(0x212, FakeFunction::bridge(1, 0));
    assert!(matches!(port::probe(&bridge), Err(DriverError::NotSupported)));
}

#[test]
fn services_of_a_port_share_its_message() {
    let function = enumerate(0x213, full_port(4));
    let binding = port::probe(&function).unwrap();
    let devices = PORT_BUS.devices();
    let own: Vec<_> =
        devices.iter().filter(|attached| attached.device.port.address().segment == 0x213).collect();
    let numbers: Vec<_> =
        own.iter().filter_map(|attached| Some(attached.device.interrupt.as_ref()?.number())).collect();
    assert_eq!(numbers.len(), 4);
    assert!(numbers.iter().all(|number| *number == numbers[0]));
    assert!(own.iter().all(|attached| attached.device.mode == Some(InterruptMode::Message)));
    assert_eq!(function.interrupt(), numbers[0]);
    binding.remove();
    assert_eq!(function.message_source(), None);
}

struct Nothing;

impl Binding for Nothing {
    fn remove(&self) {}
}

#[test]
fn driver_is_probed_for_ports_before_and_after_its_registration() {
    const ID: ServiceId = ServiceId {
        vendor: 0x1b36,
        device: 0x000c,
        port: Some(PortKind::Upstream),
        service: ServiceKind::VirtualChannel,
        data: 1,
    };
    // The first entry that is for a device counts.
    static IDS: [ServiceId; 4] = [
        ServiceId { device: 0x000d, data: 4, ..ID },
        ID,
        ServiceId { port: None, data: 2, ..ID },
        ServiceId { port: None, data: 3, ..ID },
    ];
    fn probe(device: &Arc<ServiceDevice>, id: &ServiceId) -> Result<Arc<dyn Binding>, DriverError> {
        match (device.port.address().segment, id.data) {
            (0x214, 2) | (0x215, 1) => Ok(Arc::new(Nothing)),
            _ => Err(DriverError::NotSupported),
        }
    }
    let bound = |segment| {
        let devices = PORT_BUS.devices();
        let own = devices.iter().filter(|attached| attached.device.port.address().segment == segment);
        own.filter(|attached| attached.driver().is_some_and(|driver| driver.name() == "probe of a test"))
            .count()
    };
    let before = port::probe(&enumerate(0x214, full_port(6))).unwrap();
    register(ServiceDriver::new("probe of a test", &IDS, probe)).unwrap();
    let after = port::probe(&enumerate(0x215, full_port(5))).unwrap();
    assert_eq!((bound(0x214), bound(0x215)), (1, 1));
    unregister("probe of a test").unwrap();
    assert_eq!((bound(0x214), bound(0x215)), (0, 0));
    before.remove();
    after.remove();
}
