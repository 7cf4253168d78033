//! Enumeration, addresses and capabilities on modelled machines.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::fake::{FakeFunction, FakeMachine};
use super::registers::*;
use super::*;

/// Hot-plug capable, with attention button, power controller and indicators, and a number.
fn slot(number: u32) -> Option<u32> {
    Some(0x5b | number << 19)
}

fn root() -> Root {
    let mut windows = Windows::NONE;
    windows.set(WindowKind::Io, Range { start: 0x1000, end: 0x1_0000 });
    windows.set(WindowKind::Memory, Range { start: 0xc000_0000, end: 0xe000_0000 });
    windows.set(WindowKind::Prefetch, Range { start: 1 << 38, end: 1 << 39 });
    Root { segment: 0, first_bus: 0, last_bus: 255, windows }
}

fn hierarchy(machine: &Arc<FakeMachine>) -> Hierarchy {
    Hierarchy::new(machine.clone(), root())
}

fn host() -> FakeFunction {
    FakeFunction::endpoint(0, 0, 0x8086, 0x29c0, 0x06_0000)
}

/// A network device with a register window and a prefetchable one.
fn network(device: u8) -> FakeFunction {
    FakeFunction::endpoint(device, 0, 0x1af4, 0x1041, 0x02_0000).base(1, 4096, 0).base(4, 16384, 0xc)
}

/// The machine of the sheet's figure 5, with a device behind the first downstream port.
fn figure_5() -> Vec<FakeFunction> {
    alloc::vec![
        host(),
        FakeFunction::port(1, 4, slot(1)),
        FakeFunction::port(2, 4, slot(2)),
        FakeFunction::port(0, 5, None).behind(2),
        FakeFunction::port(0, 6, slot(3)).behind(3),
        FakeFunction::port(1, 6, slot(4)).behind(3),
        network(0).behind(4),
    ]
}

fn places(functions: &[Arc<Function>]) -> Vec<alloc::string::String> {
    functions.iter().map(|function| alloc::format!("{}", function.address())).collect()
}

/// Every region lies in the windows of all bridges above it, no two overlap, and each is aligned.
fn check_addresses(hierarchy: &Hierarchy) {
    let functions = hierarchy.functions();
    let mut taken: Vec<(u64, u64)> = Vec::new();
    for function in &functions {
        for region in function.regions().iter().flatten().filter(|region| region.start != 0) {
            assert!(region.start.is_multiple_of(region.bytes), "{function:?} {region:?}");
            assert!(taken.iter().all(|(start, end)| region.end() <= *start || *end <= region.start));
            taken.push((region.start, region.end()));
            let mut above = function.upstream;
            while let Some(bridge) = above.and_then(|address| hierarchy.find(address)) {
                let windows = bridge.windows();
                let passes = WindowKind::ALL
                    .iter()
                    .any(|kind| windows.get(*kind).contains(region.start, region.end()));
                assert!(passes, "{function:?} {region:?} is not reached through {bridge:?}");
                above = bridge.upstream;
            }
        }
        if function.is_bridge() {
            assert_eq!(Windows::read(&function.config), function.windows(), "{function:?}");
        }
    }
}

#[test]
fn figure_5_is_enumerated_and_gets_addresses() {
    let machine = FakeMachine::new(figure_5());
    let hierarchy = hierarchy(&machine);
    let functions = hierarchy.enumerate();
    let seen = places(&functions);
    assert_eq!(
        seen,
        [
            "0000:00:00.0",
            "0000:00:01.0",
            "0000:00:02.0",
            "0000:06:00.0",
            "0000:07:00.0",
            "0000:08:00.0",
            "0000:07:01.0"
        ]
    );
    check_addresses(&hierarchy);
    let network = hierarchy.find(Address::new(0, 8, 0, 0)).unwrap();
    assert!(network.region(1).is_some());
    assert!(network.region(4).unwrap().start >= 1 << 38);
    // A hot-plug port has room for what comes.
    let empty = hierarchy.find(Address::new(0, 1, 0, 0));
    assert!(empty.is_none());
    let port = hierarchy.find(Address::new(0, 0, 1, 0)).unwrap();
    assert!(port.windows().get(WindowKind::Memory).bytes() >= RESERVED[1]);
    assert!(port.windows().get(WindowKind::Prefetch).bytes() >= RESERVED[2]);
}

#[test]
fn what_firmware_has_numbered_and_placed_stays() {
    let machine = FakeMachine::new(figure_5());
    hierarchy(&machine).enumerate();
    let again = hierarchy(&machine);
    let before: Vec<_> = (0..7).map(|index| machine.with(index, |function| function.get(0x10, 48))).collect();
    let numbers = |machine: &FakeMachine| -> Vec<u32> {
        (0..7).map(|index| machine.with(index, |function| function.get(PRIMARY_BUS, 4))).collect()
    };
    let numbers_before = numbers(&machine);
    again.enumerate();
    let after: Vec<_> = (0..7).map(|index| machine.with(index, |function| function.get(0x10, 48))).collect();
    assert_eq!((before, numbers_before), (after, numbers(&machine)));
    check_addresses(&again);
}

#[test]
fn bus_numbers_that_firmware_has_given_from_the_last_device_to_the_first_stay() {
    let mut functions = figure_5();
    for (index, numbers) in
        [(1, 0x05_05_00), (2, 0x04_01_00), (3, 0x04_02_01), (4, 0x04_04_02), (5, 0x03_03_02)]
    {
        functions[index].set(PRIMARY_BUS, 4, numbers);
    }
    let machine = FakeMachine::new(functions);
    let hierarchy = hierarchy(&machine);
    let buses: Vec<_> = hierarchy.enumerate().iter().filter_map(|function| function.buses()).collect();
    assert_eq!(buses, [(5, 5), (1, 4), (2, 4), (4, 4), (3, 3)]);
    check_addresses(&hierarchy);
}

#[test]
fn nonsense_bus_numbers_are_replaced() {
    let mut functions = figure_5();
    // Two bridges with the same numbers, and one that leads back to its own bus.
    functions[1].set(PRIMARY_BUS, 4, 0x00_05_05_00);
    functions[2].set(PRIMARY_BUS, 4, 0x00_05_05_00);
    functions[3].set(PRIMARY_BUS, 4, 0x00_ff_00_05);
    let machine = FakeMachine::new(functions);
    let hierarchy = hierarchy(&machine);
    assert_eq!(hierarchy.enumerate().len(), 7);
    check_addresses(&hierarchy);
}

#[test]
fn forty_bridges_behind_each_other_are_walked() {
    let mut functions = alloc::vec![host()];
    for depth in 0..40 {
        let bridge = FakeFunction::bridge(1, 0);
        functions.push(if depth == 0 { bridge } else { bridge.behind(depth) });
    }
    functions.push(network(3).behind(40));
    let machine = FakeMachine::new(functions);
    let hierarchy = hierarchy(&machine);
    let found = hierarchy.enumerate();
    assert_eq!(found.len(), 42);
    assert_eq!(found[41].address(), Address::new(0, 40, 3, 0));
    check_addresses(&hierarchy);
    assert!(found[41].region(1).is_some() && found[41].region(4).is_some());
}

#[test]
fn more_bridges_than_bus_numbers_end_without_harm() {
    let mut functions = alloc::vec![host()];
    functions.extend((0..300).map(|depth| {
        let bridge = FakeFunction::bridge(0, 0);
        if depth == 0 { FakeFunction::bridge(1, 0) } else { bridge.behind(depth) }
    }));
    let machine = FakeMachine::new(functions);
    let found = hierarchy(&machine).enumerate();
    assert_eq!(found.len(), 257);
    assert!(found[256].buses().is_none());
}

#[test]
fn functions_beyond_the_first_are_found_only_where_announced() {
    let several = |function| FakeFunction::endpoint(4, function, 1, 2, 0x01_0000);
    let functions =
        alloc::vec![host(), several(0).with_siblings(), several(3), FakeFunction::endpoint(5, 2, 1, 2, 0)];
    let machine = FakeMachine::new(functions);
    assert_eq!(places(&hierarchy(&machine).enumerate()), ["0000:00:00.0", "0000:00:04.0", "0000:00:04.3"]);
}

#[test]
fn regions_that_do_not_fit_stay_without_address() {
    let huge = FakeFunction::endpoint(3, 0, 1, 2, 0).base(0, 1 << 31, 0).base(1, 4096, 0);
    let machine = FakeMachine::new(alloc::vec![host(), huge, network(4)]);
    let hierarchy = hierarchy(&machine);
    let found = hierarchy.enumerate();
    assert_eq!(found[1].region(0), None);
    assert!(found[1].region(1).is_some() && found[2].region(1).is_some());
    check_addresses(&hierarchy);
}

#[test]
fn sizes_and_kinds_of_regions_are_measured() {
    let mut device = FakeFunction::endpoint(3, 0, 1, 2, 0)
        .base(0, 32, 1)
        .base(1, 0x1000, 0)
        .base(2, 1 << 33, 0xc)
        .base(4, 0x10_0000, 8);
    // Only 16 bits of a port's address need be there, and a register may have nonsense in it.
    device.allow(BASE_ADDRESS, 4, 0xffe0);
    device.allow(BASE_ADDRESS + 20, 4, 0x0a0a_0a0a);
    device.allow(ROM, 4, 0xffff_0001);
    let machine = FakeMachine::new(alloc::vec![host(), device]);
    let found = hierarchy(&machine).enumerate();
    let regions = found[1].regions();
    let seen: Vec<_> = regions
        .iter()
        .map(|region| region.map(|region| (region.space, region.prefetchable, region.bytes)))
        .collect();
    assert_eq!(
        seen,
        [
            Some((Space::Io, false, 32)),
            Some((Space::Memory32, false, 0x1000)),
            Some((Space::Memory64, true, 1 << 33)),
            None,
            Some((Space::Memory32, true, 0x10_0000)),
            None,
            Some((Space::Memory32, true, 0x1_0000)),
        ]
    );
}

#[test]
fn what_is_plugged_in_gets_addresses_beside_the_rest() {
    let machine = FakeMachine::new(figure_5());
    let hierarchy = hierarchy(&machine);
    hierarchy.enumerate();
    let port = hierarchy.find(Address::new(0, 0, 1, 0)).unwrap();
    assert!(hierarchy.rescan(Some(&port)).is_empty());
    for round in 0..50 {
        machine.plug(network(0).behind(1));
        let new = hierarchy.rescan(Some(&port));
        assert_eq!(places(&new), ["0000:01:00.0"], "round {round}");
        assert!(new[0].region(1).is_some() && new[0].region(4).is_some());
        check_addresses(&hierarchy);
        let gone = hierarchy.behind(&port);
        hierarchy.forget(&gone);
        machine.with(7 + round, |function| function.present = false);
        assert!(new[0].config.is_gone());
        assert_eq!(new[0].config.read_u32(VENDOR), u32::MAX);
        assert_eq!(hierarchy.functions().len(), 7);
    }
}

#[test]
fn switch_that_is_plugged_in_finds_bus_numbers_and_addresses() {
    let machine = FakeMachine::new(figure_5());
    let hierarchy = hierarchy(&machine);
    hierarchy.enumerate();
    let port = hierarchy.find(Address::new(0, 0, 1, 0)).unwrap();
    machine.plug(FakeFunction::port(0, 5, None).behind(1));
    machine.plug(FakeFunction::port(0, 6, None).behind(7));
    machine.plug(network(0).behind(8));
    let new = hierarchy.rescan(Some(&port));
    assert_eq!(places(&new), ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]);
    check_addresses(&hierarchy);
    assert!(new[2].region(1).is_some());
    let gone = hierarchy.behind(&port);
    assert_eq!(places(&gone), ["0000:03:00.0", "0000:02:00.0", "0000:01:00.0"]);
}

#[test]
fn rescan_everywhere_finds_new_functions_on_any_bus() {
    let machine = FakeMachine::new(figure_5());
    let hierarchy = hierarchy(&machine);
    hierarchy.enumerate();
    assert!(hierarchy.rescan(None).is_empty());
    machine.plug(network(9));
    machine.plug(network(0).behind(5));
    let mut new = places(&hierarchy.rescan(None));
    new.sort();
    assert_eq!(new.len(), 2);
    assert_eq!(new[0], "0000:00:09.0");
    check_addresses(&hierarchy);
}

#[test]
fn what_is_known_is_not_touched_when_something_new_is_looked_for() {
    let machine = FakeMachine::new(figure_5());
    let hierarchy = hierarchy(&machine);
    hierarchy.enumerate();
    let port = hierarchy.find(Address::new(0, 7, 0, 0)).unwrap();
    // Any write to the registers of the device at work would leave its mark.
    let watched = [COMMAND, BASE_ADDRESS + 4, BASE_ADDRESS + 16];
    machine.with(6, |device| watched.iter().for_each(|register| device.set_after_write(*register, 0x80)));
    let before: Vec<_> = watched.iter().map(|at| machine.with(6, |device| device.get(*at, 2))).collect();
    assert!(hierarchy.rescan(Some(&port)).is_empty() && hierarchy.rescan(None).is_empty());
    let after: Vec<_> = watched.iter().map(|at| machine.with(6, |device| device.get(*at, 2))).collect();
    assert_eq!(after, before);
    // Its siblings are still found.
    machine.with(6, |device| device.set(HEADER_TYPE, 1, 0x80));
    machine.plug(FakeFunction::endpoint(0, 3, 1, 2, 0x01_0000).behind(4));
    assert_eq!(places(&hierarchy.rescan(Some(&port))), ["0000:08:00.3"]);
}

#[test]
fn handle_of_what_was_taken_out_reaches_nothing_that_has_its_place() {
    let machine = FakeMachine::new(figure_5());
    let hierarchy = hierarchy(&machine);
    hierarchy.enumerate();
    let old = hierarchy.find(Address::new(0, 0, 1, 0)).unwrap();
    hierarchy.forget(&hierarchy.subtree(&old));
    // Who waited to look behind the port comes too late.
    machine.plug(network(0).behind(1));
    assert!(hierarchy.rescan(Some(&old)).is_empty());
    assert_eq!(places(&hierarchy.rescan(None)), ["0000:00:01.0", "0000:01:00.0"]);
    assert!(hierarchy.subtree(&old).is_empty() && hierarchy.behind(&old).is_empty());
    assert!(hierarchy.rescan(Some(&old)).is_empty());
    let new = hierarchy.find(old.address()).unwrap();
    assert_eq!((hierarchy.has(&old), hierarchy.has(&new), hierarchy.behind(&new).len()), (false, true, 1));
}

#[test]
fn circles_and_wild_pointers_end_the_lists() {
    let mut device = FakeFunction::endpoint(3, 0, 1, 2, 0);
    let first = device.capability(CAPABILITY_POWER, 8);
    let second = device.capability(CAPABILITY_MSI, 24);
    // Back to the first one.
    device.set(second + 1, 1, first.into());
    device.extended(EXTENDED_AER, 0x100);
    device.set(0x100, 4, 0x1001_0001);
    let machine = FakeMachine::new(alloc::vec![host(), device]);
    let found = hierarchy(&machine).enumerate();
    let config = &found[1].config;
    assert_eq!(capability::find(config, CAPABILITY_MSI), Some(second));
    assert_eq!(capability::find(config, CAPABILITY_MSIX), None);
    assert!(capability::capabilities(config).count() <= 48);
    assert!(capability::extended_capabilities(config).count() <= 480);
    assert_eq!(capability::find_extended(config, EXTENDED_VIRTUAL_CHANNEL), None);
    for wild in [0x00, 0x3c, 0xfd, 0xff] {
        machine.with(1, |function| function.set(CAPABILITIES, 1, wild));
        assert!(capability::capabilities(config).count() <= 48, "{wild:#x}");
    }
}

#[test]
fn extended_capabilities_are_not_looked_for_behind_ports() {
    let mut device = FakeFunction::endpoint(3, 0, 1, 2, 0);
    device.aer();
    let machine = FakeMachine::without_extended(alloc::vec![host(), device]);
    let found = hierarchy(&machine).enumerate();
    assert_eq!(capability::find_extended(&found[1].config, EXTENDED_AER), None);
    assert_eq!(found[1].config.read_u32(0x100), u32::MAX);
}

#[test]
fn random_configuration_space_ends_enumeration_somewhere() {
    // A generator that repeats exactly.
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..200 {
        let mut functions = alloc::vec![host()];
        for index in 0..6 {
            let mut function = if next().is_multiple_of(2) {
                FakeFunction::bridge(index + 1, 0)
            } else {
                network(index + 1)
            };
            for _ in 0..64 {
                let offset = (next() % 256) as u16;
                function.set(offset, 1, next() as u32 & 0xff);
                function.allow(offset, 1, next() as u32 & 0xff);
            }
            for _ in 0..64 {
                function.set(0x100 + (next() % 0xf00) as u16, 1, next() as u32 & 0xff);
            }
            functions.push(function);
        }
        let machine = FakeMachine::new(functions);
        let hierarchy = hierarchy(&machine);
        for function in hierarchy.enumerate() {
            assert!(capability::capabilities(&function.config).count() <= 48);
            assert!(capability::extended_capabilities(&function.config).count() <= 480);
            let _ = crate::express::services_of(&function);
        }
        hierarchy.rescan(None);
    }
}
