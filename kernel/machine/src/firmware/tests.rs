//! Tables built byte by byte, and damaged ones.

use super::*;
use std::vec::Vec;

/// Memory that consists of one piece.
struct Piece {
    start: u64,
    bytes: Vec<u8>,
}

impl Memory for Piece {
    fn bytes(&self, physical: u64, length: usize) -> Option<&[u8]> {
        let offset = usize::try_from(physical.checked_sub(self.start)?).ok()?;
        self.bytes.get(offset..offset.checked_add(length)?)
    }
}

fn fix_checksum(bytes: &mut [u8], at: usize) {
    bytes[at] = 0;
    let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    bytes[at] = 0_u8.wrapping_sub(sum);
}

fn acpi_table(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut table = Vec::new();
    table.extend_from_slice(signature);
    table.extend_from_slice(&(36 + body.len() as u32).to_le_bytes());
    table.resize(36, 0);
    table.extend_from_slice(body);
    fix_checksum(&mut table, 9);
    table
}

fn madt() -> Vec<u8> {
    let mut body = 0xfee0_0000_u32.to_le_bytes().to_vec();
    body.extend_from_slice(&[0; 4]);
    for (id, enabled) in [(0_u8, 1_u8), (5, 1), (6, 0)] {
        body.extend_from_slice(&[0, 8, id, id, enabled, 0, 0, 0]);
    }
    body.extend_from_slice(&[9, 16, 0, 0, 0x2c, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    body.extend_from_slice(&[1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0]);
    body.extend_from_slice(&[2, 10, 0, 0, 2, 0, 0, 0, 0, 0]);
    body.extend_from_slice(&[2, 10, 0, 9, 9, 0, 0, 0, 0xf, 0]);
    acpi_table(b"APIC", &body)
}

/// RSDP at 0xe0000, RSDT at +0x40, MADT at +0x100.
fn acpi_memory() -> Piece {
    let start = 0xe_0000_u64;
    let mut bytes = std::vec![0; 0x2_0000];
    let mut rsdp = b"RSD PTR \0BOCHS \0".to_vec();
    rsdp.extend_from_slice(&(start as u32 + 0x40).to_le_bytes());
    fix_checksum(&mut rsdp, 8);
    bytes[..20].copy_from_slice(&rsdp);
    let rsdt = acpi_table(b"RSDT", &(start as u32 + 0x100).to_le_bytes());
    bytes[0x40..0x40 + rsdt.len()].copy_from_slice(&rsdt);
    let madt = madt();
    bytes[0x100..0x100 + madt.len()].copy_from_slice(&madt);
    Piece { start, bytes }
}

#[test]
fn enabled_processors_and_controllers_come_from_the_madt() {
    let platform = discover(&acpi_memory(), None);
    assert_eq!(platform.processors(), [0, 5, 0x12c]);
    assert_eq!(platform.io_apics(), [IoApic { address: 0xfec0_0000, first_line: 0 }]);
    assert_eq!(platform.local_apic, Some(0xfee0_0000));
}

#[test]
fn isa_lines_follow_overrides_and_else_their_number() {
    let platform = discover(&acpi_memory(), Some(0xe_0000));
    assert_eq!(platform.isa_line(0).line, 2);
    assert_eq!(platform.isa_line(9).trigger, Trigger::Level);
    assert_eq!(platform.isa_line(9).polarity, Polarity::ActiveLow);
    assert_eq!(platform.isa_line(4).line, 4);
    assert_eq!(platform.isa_line(4).trigger, Trigger::Edge);
}

#[test]
fn every_truncation_and_every_flipped_byte_is_survived() {
    let whole = acpi_memory();
    for length in 0..0x200 {
        let piece = Piece { start: whole.start, bytes: whole.bytes[..length].to_vec() };
        discover(&piece, Some(whole.start));
    }
    for offset in 0..0x200 {
        let mut bytes = whole.bytes[..0x400].to_vec();
        bytes[offset] ^= 0xff;
        discover(&Piece { start: whole.start, bytes }, Some(whole.start));
    }
}

#[test]
fn mp_table_serves_where_there_is_no_acpi() {
    let start = 0xf_0000_u64;
    let mut entries = Vec::new();
    for id in [0_u8, 1] {
        let mut entry = std::vec![0, id, 0x14, 1];
        entry.resize(20, 0);
        entries.extend(entry);
    }
    entries.extend_from_slice(&[1, 0, b'I', b'S', b'A', b' ', b' ', b' ']);
    entries.extend_from_slice(&[2, 2, 0x11, 1, 0, 0, 0xc0, 0xfe]);
    entries.extend_from_slice(&[3, 0, 0, 0, 0, 0, 2, 2]);
    let mut table = b"PCMP".to_vec();
    table.extend_from_slice(&(44 + entries.len() as u16).to_le_bytes());
    table.resize(36, 0);
    table.extend_from_slice(&0xfee0_0000_u32.to_le_bytes());
    table.resize(44, 0);
    table.extend_from_slice(&entries);
    fix_checksum(&mut table, 7);
    let mut pointer = b"_MP_".to_vec();
    pointer.extend_from_slice(&(start as u32 + 0x100).to_le_bytes());
    pointer.extend_from_slice(&[1, 4, 0, 0, 0, 0, 0, 0]);
    fix_checksum(&mut pointer, 10);
    let mut bytes = std::vec![0; 0x1_0000];
    bytes[0x20..0x30].copy_from_slice(&pointer);
    bytes[0x100..0x100 + table.len()].copy_from_slice(&table);
    let platform = discover(&Piece { start, bytes }, None);
    assert_eq!(platform.processors(), [0, 1]);
    assert_eq!(platform.io_apics().len(), 1);
    assert_eq!(platform.isa_line(2).line, 2);
}

#[test]
fn more_processors_than_we_support_are_counted_not_kept() {
    let mut platform = Platform::new();
    for id in 0..100 {
        platform.add_processor(id);
    }
    assert_eq!(platform.processors().len(), crate::cpu::MAX_CPUS);
    assert_eq!(platform.processors_ignored, 100 - crate::cpu::MAX_CPUS);
}
