//! The two ways to the machine's configuration space: a window of memory that shows all of it, or a pair of ports.

use alloc::sync::Arc;
use alloc::vec::Vec;

use sync::IrqSpinLock;

use super::Address;
use super::config::{ConfigAccess, Width};
use crate::mmio::Window;

/// Bytes of a function in the window, and of a bus.
const FUNCTION_BYTES: u64 = 4096;
const BUS_BYTES: u64 = FUNCTION_BYTES * 256;

/// A group of buses whose configuration space firmware shows in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ecam {
    /// Where bus 0 is, or would be.
    pub(crate) base: u64,
    pub(crate) segment: u16,
    pub(crate) first_bus: u8,
    pub(crate) last_bus: u8,
}

impl Ecam {
    /// The memory that it takes.
    pub(crate) fn range(&self) -> super::Range {
        let bus = |number: u64| self.base.saturating_add(number * BUS_BYTES);
        super::Range { start: bus(self.first_bus.into()), end: bus(u64::from(self.last_bus) + 1) }
    }

    /// Whether a machine can be so.
    fn makes_sense(&self) -> bool {
        let fits = self.base.checked_add(256 * BUS_BYTES).is_some_and(|end| end < 1 << 52);
        self.base != 0 && self.base.is_multiple_of(BUS_BYTES) && fits && self.first_bus <= self.last_bus
    }
}

/// The entries of ACPI's table `MCFG`.
pub(crate) fn parse_mcfg(table: &[u8]) -> Vec<Ecam> {
    const HEADER: usize = 44;
    const ENTRY: usize = 16;
    const ENTRIES_MAX: usize = 16;
    let mut found = Vec::new();
    for entry in table.get(HEADER..).unwrap_or_default().chunks_exact(ENTRY).take(ENTRIES_MAX) {
        let (base, rest) = entry.split_at(8);
        let base = base.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        let segment = u16::from(rest[0]) | u16::from(rest[1]) << 8;
        let ecam = Ecam { base, segment, first_bus: rest[2], last_bus: rest[3] };
        if ecam.makes_sense() {
            found.push(ecam);
        }
    }
    found
}

/// What `_CBA` of a host bridge says in the byte code of ACPI's table `DSDT`: where its configuration space is, on machines whose
/// firmware has no `MCFG` (QEMU's microvm). Only a name or a method that is nothing but a number is understood.
pub(crate) fn parse_base_address(dsdt: &[u8]) -> Option<Ecam> {
    const NAME: &[u8] = b"_CBA";
    const RETURN: u8 = 0xa4;
    const DWORD: u8 = 0x0c;
    const QWORD: u8 = 0x0e;
    let start = dsdt.windows(NAME.len()).position(|window| window == NAME)? + NAME.len();
    let value = match dsdt.get(start..)? {
        [_flags, RETURN, value @ ..] => value,
        value => value,
    };
    let (bytes, value) = match value {
        [DWORD, value @ ..] => (4, value),
        [QWORD, value @ ..] => (8, value),
        _ => return None,
    };
    let base = value.get(..bytes)?.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
    let ecam = Ecam { base, segment: 0, first_bus: 0, last_bus: u8::MAX };
    ecam.makes_sense().then_some(ecam)
}

/// Configuration space in memory.
struct InMemory {
    window: Window,
    ecam: Ecam,
}

/// The way through memory. None when it can't be mapped.
pub(crate) fn in_memory(ecam: Ecam) -> Option<Arc<dyn ConfigAccess>> {
    let range = ecam.range();
    let window = Window::map(range.start, range.bytes())?;
    Some(Arc::new(InMemory { window, ecam }))
}

impl InMemory {
    fn place(&self, address: Address, offset: u16) -> Option<usize> {
        let buses = self.ecam.first_bus..=self.ecam.last_bus;
        if address.segment != self.ecam.segment || !buses.contains(&address.bus) {
            return None;
        }
        let bus = u64::from(address.bus - self.ecam.first_bus) * BUS_BYTES;
        let function = u64::from(address.device_function()) * FUNCTION_BYTES;
        usize::try_from(bus + function + u64::from(offset)).ok()
    }
}

impl ConfigAccess for InMemory {
    fn read(&self, address: Address, offset: u16, width: Width) -> u32 {
        let Some(place) = self.place(address, offset) else { return width.ones() };
        match width {
            Width::Byte => self.window.read_u8(place).into(),
            Width::Word => self.window.read_u16(place).into(),
            Width::Long => self.window.read_u32(place),
        }
    }

    fn write(&self, address: Address, offset: u16, width: Width, value: u32) {
        let Some(place) = self.place(address, offset) else { return };
        match width {
            Width::Byte => self.window.write_u8(place, value as u8),
            Width::Word => self.window.write_u16(place, value as u16),
            Width::Long => self.window.write_u32(place, value),
        }
    }

    fn bytes(&self) -> u16 {
        FUNCTION_BYTES as u16
    }
}

/// Configuration space behind the pair of ports, whose users the lock keeps apart.
struct Ports(IrqSpinLock<()>);

/// The way through ports. None when they do not answer.
pub(crate) fn ports() -> Option<Arc<dyn ConfigAccess>> {
    let access = Ports(IrqSpinLock::named("PCI configuration ports", ()));
    let exists = {
        let _guard = access.0.lock();
        machine::configuration_port::exists()
    };
    exists.then(|| Arc::new(access) as Arc<dyn ConfigAccess>)
}

/// What selects a function and a register.
fn selector(address: Address, offset: u16) -> u32 {
    u32::from(address.requester()) << 8 | u32::from(offset)
}

impl ConfigAccess for Ports {
    fn read(&self, address: Address, offset: u16, width: Width) -> u32 {
        if address.segment != 0 {
            return width.ones();
        }
        let _guard = self.0.lock();
        machine::configuration_port::read(selector(address, offset), offset, width.bytes().into())
    }

    fn write(&self, address: Address, offset: u16, width: Width, value: u32) {
        if address.segment != 0 {
            return;
        }
        let _guard = self.0.lock();
        // SAFETY: functions get addresses from windows that hold neither memory nor other registers (`assign`, `machine_bus`), and a way to memory
        // only from a driver, for buffers that it owns. A privileged program that writes configuration space by hand is trusted
        // with the machine, as on any kernel.
        unsafe {
            machine::configuration_port::write(
                selector(address, offset),
                offset,
                width.bytes().into(),
                value,
            );
        }
    }

    fn bytes(&self) -> u16 {
        256
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mcfg(entries: &[[u8; 16]]) -> Vec<u8> {
        let mut table = alloc::vec![0; 44];
        entries.iter().for_each(|entry| table.extend_from_slice(entry));
        table
    }

    #[test]
    fn mcfg_gives_what_makes_sense() {
        let good = [0, 0, 0, 0xb0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0, 0];
        let askew = [1, 0, 0, 0xb0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0, 0];
        let backwards = [0, 0, 0, 0xb0, 0, 0, 0, 0, 1, 0, 9, 8, 0, 0, 0, 0];
        let huge = [0, 0, 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 255, 0, 0, 0, 0];
        let table = mcfg(&[good, askew, backwards, huge, [0; 16]]);
        let found = parse_mcfg(&table);
        assert_eq!(found, [Ecam { base: 0xb000_0000, segment: 0, first_bus: 0, last_bus: 255 }]);
        assert_eq!(found[0].range(), super::super::Range { start: 0xb000_0000, end: 0xc000_0000 });
        assert!(parse_mcfg(&table[..50]).is_empty() && parse_mcfg(&[]).is_empty());
    }

    #[test]
    fn base_address_is_read_from_byte_code() {
        let method = b"\x14\x0c_CBA\x00\xa4\x0c\x00\x00\x00\xe0\x08_CRS";
        let name = b"\x08_CBA\x0e\x00\x00\x00\x00\x01\x00\x00\x00\x08_CRS";
        let base = |dsdt: &[u8]| parse_base_address(dsdt).map(|ecam| ecam.base);
        assert_eq!((base(method), base(name)), (Some(0xe000_0000), Some(1 << 32)));
        let computed = b"\x14\x0c_CBA\x00\xa4\x72\x0a\x01\x0a\x02\x00";
        let askew = b"\x08_CBA\x0c\x01\x00\x00\xe0";
        for nothing in [&computed[..], askew, &method[..12], b"_CBA", b""] {
            assert_eq!(base(nothing), None, "{nothing:x?}");
        }
    }
}
