//! MP tables (Intel MultiProcessor Specification 1.4), for machines without ACPI.

use super::Memory;
use super::bytes::{checksum_is_right, u8_at, u16_at, u32_at};
use super::platform::{IoApic, Override, Platform, line_flags};

/// Where the floating pointer can be: the last KiB of base memory, and the BIOS area.
const SEARCH: [(u64, usize); 2] = [(0x9_fc00, 0x400), (0xf_0000, 0x1_0000)];
/// Length of the configuration table's header.
const HEADER_BYTES: usize = 44;
/// Most entries and buses looked at.
const ENTRIES_MAX: usize = 512;
const BUSES_MAX: usize = 32;
/// Lines of an I/O APIC that do not say how many they have.
const LINES_PER_IO_APIC: u32 = 24;

/// Reads the tables if there are any.
pub(super) fn read(memory: &impl Memory, platform: &mut Platform) -> Option<()> {
    let pointer = find_pointer(memory)?;
    let address = u64::from(u32_at(pointer, 4)?);
    let header = memory.bytes(address, HEADER_BYTES)?;
    let length = usize::from(u16_at(header, 4)?);
    let table = memory.bytes(address, length)?;
    if !table.starts_with(b"PCMP") || !checksum_is_right(table) {
        return None;
    }
    platform.local_apic = u32_at(table, 36).map(u64::from);
    read_entries(table.get(HEADER_BYTES..)?, platform)
}

fn find_pointer(memory: &impl Memory) -> Option<&[u8]> {
    SEARCH.iter().find_map(|(start, length)| {
        let area = memory.bytes(*start, *length)?;
        area.chunks_exact(16).find(|chunk| chunk.starts_with(b"_MP_") && checksum_is_right(chunk))
    })
}

fn read_entries(mut rest: &[u8], platform: &mut Platform) -> Option<()> {
    let mut is_isa = [false; BUSES_MAX];
    for _ in 0..ENTRIES_MAX {
        let Some(kind) = u8_at(rest, 0) else { break };
        let length = if kind == 0 { 20 } else { 8 };
        let Some(entry) = rest.get(..length) else { break };
        match kind {
            // Bit 0 of the flags: usable.
            0 if entry[3] & 1 != 0 => platform.add_processor(u32::from(entry[1])),
            1 => {
                if let Some(bus) = is_isa.get_mut(usize::from(entry[1])) {
                    *bus = entry[2..].starts_with(b"ISA");
                }
            }
            2 if entry[3] & 1 != 0 => {
                let first_line = platform.io_apics().len() as u32 * LINES_PER_IO_APIC;
                let address = u64::from(u32_at(entry, 4)?);
                platform.add_io_apic(IoApic { address, first_line });
            }
            // An ordinary interrupt (type 0) of an ISA bus.
            3 if entry[1] == 0 && is_isa.get(usize::from(entry[4])) == Some(&true) => {
                let (polarity, trigger) = line_flags(u16_at(entry, 2)?);
                platform.add_override(Override {
                    irq: entry[5],
                    line: u32::from(entry[7]),
                    polarity,
                    trigger,
                });
            }
            _ => {}
        }
        rest = &rest[length..];
    }
    Some(())
}
