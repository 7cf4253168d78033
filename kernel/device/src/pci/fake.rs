//! Modelled topologies for tests: functions with registers of their own, behind bridges that route by their bus numbers.
//!
//! Each register has a mask of bits that can be written and one of bits that a written 1 clears. A read or write finds its function
//! as hardware would: bus 0 is the root's, any other bus is that of the bridge whose numbers include it, level by level.

use alloc::sync::Arc;
use alloc::vec::Vec;

use sync::SpinLock;

use super::Address;
use super::config::{ConfigAccess, Width};
use super::registers::*;

/// Bytes of a function's configuration space.
const BYTES: usize = 4096;

/// A function as the model has it.
#[derive(Clone)]
pub struct FakeFunction {
    /// The bridge it is behind, by index; None: on the root's bus.
    pub behind: Option<usize>,
    device: u8,
    function: u8,
    /// Whether it answers at all.
    pub present: bool,
    bytes: Vec<u8>,
    writable: Vec<u8>,
    write_one_clears: Vec<u8>,
    next_capability: u16,
    last_link: u16,
    last_extended: u16,
    /// Where Slot Control is: nothing behind is seen without power.
    slot_control: Option<u16>,
    /// Bits that the hardware sets right after a register is written, one entry at each write.
    late: Vec<(u16, u32)>,
}

impl FakeFunction {
    /// A function that is no bridge.
    pub fn endpoint(device: u8, function: u8, vendor: u16, id: u16, class: u32) -> Self {
        let mut new = Self {
            behind: None,
            device,
            function,
            present: true,
            bytes: alloc::vec![0; BYTES],
            writable: alloc::vec![0; BYTES],
            write_one_clears: alloc::vec![0; BYTES],
            next_capability: 0x40,
            last_link: CAPABILITIES,
            last_extended: 0,
            slot_control: None,
            late: Vec::new(),
        };
        new.set(VENDOR, 2, vendor.into());
        new.set(DEVICE, 2, id.into());
        new.set(CLASS_REVISION, 4, class << 8 | 1);
        new.allow(COMMAND, 2, 0x547);
        new.allow(INTERRUPT_LINE, 1, 0xff);
        new
    }

    /// A bridge.
    pub fn bridge(device: u8, function: u8) -> Self {
        let mut new = Self::endpoint(device, function, 0x1b36, 0x000c, 0x06_0400);
        new.set(HEADER_TYPE, 1, 1);
        new.allow(PRIMARY_BUS, 4, 0x00ff_ffff);
        new.allow(IO_BASE, 2, 0xf0f0);
        new.allow(MEMORY_BASE, 4, 0xfff0_fff0);
        new.set(PREFETCH_BASE, 4, 0x0001_0001);
        new.allow(PREFETCH_BASE, 4, 0xfff0_fff0);
        new.allow(PREFETCH_BASE_UPPER, 4, u32::MAX);
        new.allow(PREFETCH_LIMIT_UPPER, 4, u32::MAX);
        new.allow(BRIDGE_CONTROL, 2, 0x43);
        new
    }

    /// A PCI Express port of a type (4 root, 5 upstream, 6 downstream) with slot capabilities, if it has a slot.
    pub fn port(device: u8, device_type: u16, slot: Option<u32>) -> Self {
        let mut new = Self::bridge(device, 0);
        new.express(device_type, slot);
        new
    }

    /// Behind the bridge of that index.
    #[must_use]
    pub fn behind(mut self, bridge: usize) -> Self {
        self.behind = Some(bridge);
        self
    }

    /// One of several functions of its device.
    #[must_use]
    pub fn with_siblings(mut self) -> Self {
        let header = self.get(HEADER_TYPE, 1);
        self.set(HEADER_TYPE, 1, header | 0x80);
        self
    }

    /// A base address register: its low bits say the kind.
    #[must_use]
    pub fn base(mut self, index: u16, bytes: u64, low_bits: u32) -> Self {
        let offset = BASE_ADDRESS + 4 * index;
        self.set(offset, 4, low_bits);
        let mask = !(bytes - 1);
        self.allow(offset, 4, mask as u32 & !0xf);
        if low_bits & 7 == 4 {
            self.allow(offset + 4, 4, (mask >> 32) as u32);
        }
        self
    }

    /// Adds a capability with this many bytes; returns where it is.
    pub fn capability(&mut self, id: u8, bytes: u16) -> u16 {
        let offset = self.next_capability;
        self.next_capability = (offset + bytes).next_multiple_of(4);
        self.set(offset, 1, id.into());
        self.set(self.last_link, 1, offset.into());
        self.last_link = offset + 1;
        let status = self.get(STATUS, 2);
        self.set(STATUS, 2, status | u32::from(STATUS_CAPABILITIES));
        offset
    }

    /// Adds an extended capability at a place.
    pub fn extended(&mut self, id: u16, offset: u16) {
        self.set(offset, 4, u32::from(id) | 1 << 16);
        if self.last_extended != 0 {
            let last = self.get(self.last_extended, 4);
            self.set(self.last_extended, 4, last | u32::from(offset) << 20);
        }
        self.last_extended = offset;
    }

    /// Adds a PCI Express capability; returns where it is.
    pub fn express(&mut self, device_type: u16, slot: Option<u32>) -> u16 {
        let offset = self.capability(CAPABILITY_EXPRESS, 0x3c);
        let has_slot = u32::from(slot.is_some()) << 8;
        self.set(offset + 2, 2, 2 | u32::from(device_type) << 4 | has_slot);
        self.allow(offset + 8, 2, 0xf);
        if let Some(slot) = slot {
            self.set(offset + 0x14, 4, slot);
            self.allow(offset + 0x18, 2, 0x1fff);
            self.clear_by_one(offset + 0x1a, 2, 0x11f);
            self.set(offset + 0x18, 2, 0x1c0);
            self.slot_control = Some(offset + 0x18);
        }
        self.allow(offset + 0x1c, 2, 0x1f);
        self.clear_by_one(offset + 0x20, 4, 1 << 16);
        offset
    }

    /// Adds advanced error reporting; returns where it is.
    pub fn aer(&mut self) -> u16 {
        let offset = 0x100;
        self.extended(EXTENDED_AER, offset);
        self.clear_by_one(offset + 4, 4, u32::MAX);
        self.allow(offset + 8, 4, u32::MAX);
        self.set(offset + 0xc, 4, 0x0046_2030);
        self.allow(offset + 0xc, 4, u32::MAX);
        self.clear_by_one(offset + 0x10, 4, u32::MAX);
        self.set(offset + 0x14, 4, 0x2000);
        self.allow(offset + 0x14, 4, u32::MAX);
        self.allow(offset + 0x2c, 4, 7);
        self.clear_by_one(offset + 0x30, 4, 0x7f);
        offset
    }

    /// What a register holds, whoever could read it.
    pub fn get(&self, offset: u16, bytes: usize) -> u32 {
        let start = usize::from(offset);
        self.bytes[start..start + bytes].iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
    }

    /// Sets a register, as the hardware itself does.
    pub fn set(&mut self, offset: u16, bytes: usize, value: u32) {
        fill(&mut self.bytes, offset, bytes, value);
    }

    /// Lets these bits be written.
    pub fn allow(&mut self, offset: u16, bytes: usize, mask: u32) {
        fill(&mut self.writable, offset, bytes, mask);
    }

    /// Lets these bits be cleared by writing ones.
    pub fn clear_by_one(&mut self, offset: u16, bytes: usize, mask: u32) {
        fill(&mut self.write_one_clears, offset, bytes, mask);
    }

    /// Has the hardware set bits of a register after the next write to it; after a later one if others wait.
    pub fn set_after_write(&mut self, offset: u16, bits: u32) {
        self.late.push((offset, bits));
    }

    fn write(&mut self, offset: u16, bytes: usize, value: u32) {
        for index in 0..bytes {
            let place = usize::from(offset) + index;
            let byte = (value >> (8 * index)) as u8;
            let mask = self.writable[place];
            let kept = self.bytes[place] & !mask | byte & mask;
            self.bytes[place] = kept & !(byte & self.write_one_clears[place]);
        }
        if let Some(index) = self.late.iter().position(|(written, _)| *written == offset) {
            let (_, bits) = self.late.remove(index);
            let now = self.get(offset, bytes);
            self.set(offset, bytes, now | bits);
        }
    }

    fn routes(&self, bus: u8) -> bool {
        let (secondary, subordinate) = (self.get(SECONDARY_BUS, 1), self.get(SUBORDINATE_BUS, 1));
        secondary != 0 && (secondary..=subordinate).contains(&u32::from(bus))
    }
}

fn fill(bytes: &mut [u8], offset: u16, count: usize, value: u32) {
    let start = usize::from(offset);
    bytes[start..start + count].copy_from_slice(&value.to_le_bytes()[..count]);
}

/// A machine of fake functions.
pub struct FakeMachine {
    functions: SpinLock<Vec<FakeFunction>>,
    extended: bool,
}

impl FakeMachine {
    /// One with these functions, bridges before what is behind them.
    pub fn new(functions: Vec<FakeFunction>) -> Arc<Self> {
        Arc::new(Self { functions: SpinLock::new(functions), extended: true })
    }

    /// One whose extended configuration space can't be reached.
    pub fn without_extended(functions: Vec<FakeFunction>) -> Arc<Self> {
        Arc::new(Self { functions: SpinLock::new(functions), extended: false })
    }

    /// Does something with a function.
    pub fn with<R>(&self, index: usize, work: impl FnOnce(&mut FakeFunction) -> R) -> R {
        work(&mut self.functions.lock()[index])
    }

    /// Plugs a function in.
    pub fn plug(&self, function: FakeFunction) {
        self.functions.lock().push(function);
    }
}

/// The index of the function at an address, found as hardware does.
fn find(functions: &[FakeFunction], address: Address) -> Option<usize> {
    let mut behind = None;
    let mut bus = 0;
    for _ in 0..=usize::from(u8::MAX) {
        let is_on_bus = |function: &FakeFunction| function.behind == behind && function.present;
        if bus == address.bus {
            return functions.iter().position(|function| {
                let place = (function.device, function.function);
                is_on_bus(function) && place == (address.device(), address.function())
            });
        }
        let next =
            functions.iter().position(|function| is_on_bus(function) && function.routes(address.bus))?;
        bus = functions[next].get(SECONDARY_BUS, 1) as u8;
        if functions[next].slot_control.is_some_and(|control| functions[next].get(control, 2) & 0x400 != 0) {
            return None;
        }
        behind = Some(next);
    }
    None
}

impl ConfigAccess for FakeMachine {
    fn read(&self, address: Address, offset: u16, width: Width) -> u32 {
        let functions = self.functions.lock();
        find(&functions, address).map_or(u32::MAX, |index| functions[index].get(offset, width.bytes().into()))
    }

    fn write(&self, address: Address, offset: u16, width: Width, value: u32) {
        let mut functions = self.functions.lock();
        if let Some(index) = find(&functions, address) {
            functions[index].write(offset, width.bytes().into(), value);
        }
    }

    fn bytes(&self) -> u16 {
        if self.extended { BYTES as u16 } else { 256 }
    }
}
