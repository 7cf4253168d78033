//! DOS partition tables: four entries in the first sector, and a chain of further tables for logical partitions.

use super::table::{PARTITIONS_MAX, Partition, Scheme, Table};
use crate::{Result, Volume};

const TABLE_AT: usize = 446;
const ENTRY_BYTES: usize = 16;
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
const PROTECTIVE: u8 = 0xee;
/// The number of the first logical partition.
const FIRST_LOGICAL: u32 = 5;

/// What the first sector looks like.
pub(super) enum Kind {
    None,
    Dos,
    /// It only keeps others away from a GPT.
    Protective,
}

struct Entry {
    kind: u8,
    start: u64,
    sectors: u64,
}

fn entries(sector: &[u8]) -> impl Iterator<Item = Entry> {
    let table = &sector[TABLE_AT..TABLE_AT + 4 * ENTRY_BYTES];
    table.as_chunks::<ENTRY_BYTES>().0.iter().map(|entry| {
        let word = |at: usize| {
            u64::from(u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]))
        };
        Entry { kind: entry[4], start: word(8), sectors: word(12) }
    })
}

fn signed(sector: &[u8]) -> bool {
    sector[510..512] == [0x55, 0xaa]
}

/// Whether it is a table: a file system's boot sector has the same signature, but no sensible flags.
pub(super) fn kind(sector: &[u8]) -> Kind {
    let flags_sound = |index: usize| matches!(sector[TABLE_AT + index * ENTRY_BYTES], 0 | 0x80);
    if !signed(sector) || !(0..4).all(flags_sound) {
        return Kind::None;
    }
    if entries(sector).any(|entry| entry.kind == PROTECTIVE) { Kind::Protective } else { Kind::Dos }
}

fn partition(number: u32, kind: u8, start: u64, sectors: u64, signature: &[u8]) -> Partition {
    let mut partition = Partition { number, start, sectors, kind: [0; 16], identity: [0; 16], name: [0; 36] };
    partition.kind[0] = kind;
    partition.identity[..4].copy_from_slice(&signature[..4]);
    partition.identity[4..8].copy_from_slice(&number.to_le_bytes());
    partition
}

pub(super) fn read(disk: &Volume, first: &[u8]) -> Result<Table> {
    // Entries count in blocks of the device.
    let scale = u64::from(disk.queue().limits().logical_block_bytes) / 512;
    let mut table = Table { scheme: Scheme::Mbr, ..Table::empty() };
    let signature = &first[440..444];
    let mut extended = None;
    for (index, entry) in entries(first).enumerate() {
        if EXTENDED.contains(&entry.kind) {
            extended = extended.or(Some((entry.start, entry.sectors)));
        } else if entry.kind != 0 {
            let number = index as u32 + 1;
            let (start, sectors) = (entry.start * scale, entry.sectors * scale);
            table.add(disk.sectors(), partition(number, entry.kind, start, sectors, signature))?;
        }
    }
    if let Some((base, length)) = extended {
        read_chain(disk, scale, base, length, signature, &mut table)?;
    }
    Ok(table)
}

/// Follows the chain of extended tables. Each must lie behind the one before it, so the chain has an end.
fn read_chain(
    disk: &Volume,
    scale: u64,
    base: u64,
    length: u64,
    signature: &[u8],
    table: &mut Table,
) -> Result<()> {
    let mut at = base;
    let mut number = FIRST_LOGICAL;
    for _ in 0..PARTITIONS_MAX {
        if at < base || at - base >= length || (at + 1) * scale > disk.sectors() {
            return Ok(());
        }
        let sector = disk.read(at * scale, (scale * 512) as usize)?;
        if !signed(&sector) {
            return Ok(());
        }
        let mut next = None;
        for entry in entries(&sector) {
            if EXTENDED.contains(&entry.kind) {
                next = next.or(Some(base + entry.start));
            } else if entry.kind != 0 && entry.sectors != 0 {
                let (start, sectors) = ((at + entry.start) * scale, entry.sectors * scale);
                table.add(disk.sectors(), partition(number, entry.kind, start, sectors, signature))?;
                number += 1;
            }
        }
        match next {
            Some(next) if next > at => at = next,
            _ => return Ok(()),
        }
    }
    Ok(())
}
