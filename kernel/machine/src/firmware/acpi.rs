//! ACPI: the root pointer, the list of tables, and the fixed tables start-up needs.

use super::bytes::{array, checksum_is_right, u8_at, u32_at, u64_at};
use super::platform::{Platform, Register};
use super::{Memory, madt};

/// Bytes of every table's header.
const HEADER_BYTES: usize = 36;
/// Longest table read; DSDTs reach some 100 KiB.
const TABLE_BYTES_MAX: usize = 1 << 20;
/// Most tables looked at.
const TABLES_MAX: usize = 64;
/// Fixed-table flag: no PM1 registers, sleep control registers instead.
const HARDWARE_REDUCED: u32 = 1 << 20;
/// Fixed-table flag: the reset register is there.
const RESET_SUPPORTED: u32 = 1 << 10;
/// Where firmware without a better way to tell puts the root pointer.
const SEARCH: (u64, usize) = (0xe_0000, 0x2_0000);

/// Looks for the root pointer in the BIOS area.
pub(super) fn find_root_pointer(memory: &impl Memory) -> Option<u64> {
    let area = memory.bytes(SEARCH.0, SEARCH.1)?;
    let is_root = |chunk: &[u8]| chunk.starts_with(b"RSD PTR ");
    let index = area.chunks(16).position(is_root)?;
    Some(SEARCH.0 + (index * 16) as u64)
}

/// Reads the tables behind a root pointer.
pub(super) fn read(memory: &impl Memory, rsdp: u64, platform: &mut Platform) -> Option<()> {
    for_each(memory, rsdp, |table| {
        // A table that lacks a field leaves what depends on it unset.
        let _ = match &table[..4] {
            b"APIC" => madt::read(table, platform),
            b"FACP" => read_fixed(memory, table, platform),
            b"HPET" => read_hpet(table, platform),
            _ => None,
        };
    })
}

/// Shows all whole tables behind a root pointer.
fn for_each<'a, M: Memory>(memory: &'a M, rsdp: u64, mut visit: impl FnMut(&'a [u8])) -> Option<()> {
    let pointer = memory.bytes(rsdp, 20)?;
    if !pointer.starts_with(b"RSD PTR ") || !checksum_is_right(pointer) {
        return None;
    }
    let extended = u8_at(pointer, 15)? >= 2;
    let xsdt = if extended { u64_at(memory.bytes(rsdp, 36)?, 24)? } else { 0 };
    let (list, entry_bytes) = match xsdt {
        0 => (table(memory, u64::from(u32_at(pointer, 16)?))?, 4),
        address => (table(memory, address)?, 8),
    };
    for entry in list[HEADER_BYTES..].chunks_exact(entry_bytes).take(TABLES_MAX) {
        let address = if entry_bytes == 8 { u64_at(entry, 0)? } else { u64::from(u32_at(entry, 0)?) };
        if let Some(table) = table(memory, address) {
            visit(table);
        }
    }
    Some(())
}

/// The first table with this signature. The DSDT is in no list: the fixed description names it.
pub(super) fn find<M: Memory>(memory: &M, rsdp: u64, signature: [u8; 4]) -> Option<&[u8]> {
    if signature == *b"DSDT" {
        return table(memory, dsdt_address(find(memory, rsdp, *b"FACP")?)?);
    }
    let mut found = None;
    for_each(memory, rsdp, |table| {
        if found.is_none() && table.starts_with(&signature) {
            found = Some(table);
        }
    })?;
    found
}

/// A whole table with a right checksum.
fn table(memory: &impl Memory, address: u64) -> Option<&[u8]> {
    let length = u32_at(memory.bytes(address, HEADER_BYTES)?, 4)? as usize;
    if !(HEADER_BYTES..=TABLE_BYTES_MAX).contains(&length) {
        return None;
    }
    memory.bytes(address, length).filter(|table| checksum_is_right(table))
}

fn read_hpet(table: &[u8], platform: &mut Platform) -> Option<()> {
    platform.hpet = Some(u64_at(table, 44)?).filter(|address| *address != 0);
    Some(())
}

/// A generic address structure that names a port or memory.
fn generic_register(table: &[u8], offset: usize) -> Option<Register> {
    let address = u64_at(table, offset + 4)?;
    match u8_at(table, offset)? {
        _ if address == 0 => None,
        0 => Some(Register::Memory(address)),
        1 => u16::try_from(address).ok().map(Register::Port),
        _ => None,
    }
}

fn read_fixed(memory: &impl Memory, table: &[u8], platform: &mut Platform) -> Option<()> {
    let flags = u32_at(table, 112)?;
    if flags & RESET_SUPPORTED != 0 {
        platform.reset = generic_register(table, 116).zip(u8_at(table, 128));
    }
    if flags & HARDWARE_REDUCED != 0 {
        platform.sleep_control = generic_register(table, 244);
    } else {
        let port = |offset| u32_at(table, offset).and_then(|port| u16::try_from(port).ok());
        platform.pm1_control = port(64).filter(|port| *port != 0);
        platform.pm_timer = port(76).filter(|port| *port != 0).map(Register::Port);
    }
    platform.soft_off =
        dsdt_address(table).and_then(|address| soft_off(self::table_unchecked(memory, address)?));
    Some(())
}

/// The DSDT is big; its checksum is not worth start-up time for one byte.
fn table_unchecked(memory: &impl Memory, address: u64) -> Option<&[u8]> {
    let length = u32_at(memory.bytes(address, HEADER_BYTES)?, 4)? as usize;
    memory.bytes(address, length.min(TABLE_BYTES_MAX))
}

fn dsdt_address(fixed: &[u8]) -> Option<u64> {
    let wide = u64_at(fixed, 140).filter(|address| *address != 0);
    wide.or_else(|| u32_at(fixed, 40).map(u64::from))
}

/// The sleep type in `Name (_S5_, Package () { type, ... })`, found by its byte code.
fn soft_off(dsdt: &[u8]) -> Option<u8> {
    const PACKAGE: u8 = 0x12;
    const BYTE_PREFIX: u8 = 0x0a;
    let name = dsdt.windows(5).rposition(|window| window[..4] == *b"_S5_" && window[4] == PACKAGE)?;
    let package = dsdt.get(name + 5..)?;
    // The package length takes one byte and as many more as its two top bits say; the element count follows.
    let length_bytes = 1 + usize::from(u8_at(package, 0)? >> 6);
    let [first, second] = array(package, length_bytes + 1)?;
    match first {
        BYTE_PREFIX => Some(second),
        0 | 1 => Some(first),
        _ => None,
    }
}
