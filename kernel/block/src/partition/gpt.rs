//! GUID partition tables (UEFI specification, chapter 5).
//!
//! The header in block 1 and the entries have checksums. If either is wrong, the backup in the last block is tried.

use super::table::{PARTITIONS_MAX, Partition, Scheme, Table};
use crate::checksum::crc32;
use crate::{Result, Volume};

/// Bytes of a header without reserved ones.
const HEADER_BYTES: usize = 92;
/// Bytes of entries that are read at most.
const ENTRIES_BYTES_MAX: u64 = 1 << 20;
/// The smallest entry.
const ENTRY_BYTES: usize = 128;

fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].try_into().map(u32::from_le_bytes).unwrap_or(0)
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or(0)
}

/// A header that passed its own check.
struct Header {
    first_usable: u64,
    last_usable: u64,
    entries_block: u64,
    entry_count: u64,
    entry_bytes: u64,
    entries_checksum: u32,
}

impl Header {
    fn parse(block: &mut [u8], own_number: u64, disk_blocks: u64) -> Option<Self> {
        let length = le32(block, 12) as usize;
        let checksum = le32(block, 16);
        if &block[..8] != b"EFI PART" || !(HEADER_BYTES..=block.len()).contains(&length) {
            return None;
        }
        block[16..20].fill(0);
        let header = Self {
            first_usable: le64(block, 40),
            last_usable: le64(block, 48),
            entries_block: le64(block, 72),
            entry_count: u64::from(le32(block, 80)),
            entry_bytes: u64::from(le32(block, 84)),
            entries_checksum: le32(block, 88),
        };
        let entry_bytes = header.entry_bytes as usize;
        let sound = crc32(&block[..length]) == checksum
            && le64(block, 24) == own_number
            && header.first_usable <= header.last_usable
            && header.last_usable < disk_blocks
            && entry_bytes.is_power_of_two()
            && entry_bytes >= ENTRY_BYTES
            && (1..=ENTRIES_BYTES_MAX).contains(&header.entry_count.saturating_mul(header.entry_bytes));
        sound.then_some(header)
    }
}

/// The table, if a primary or backup one is intact.
pub(super) fn read(disk: &Volume) -> Result<Option<Table>> {
    let block_bytes = u64::from(disk.queue().limits().logical_block_bytes);
    let disk_blocks = disk.sectors() / (block_bytes / 512);
    for (own_number, from_backup) in [(1, false), (disk_blocks - 1, true)] {
        if let Some(table) = read_from(disk, own_number, from_backup, disk_blocks)? {
            return Ok(Some(table));
        }
        log::warn!("GPT: the {} table is damaged", if from_backup { "backup" } else { "primary" });
    }
    Ok(None)
}

fn read_from(disk: &Volume, own_number: u64, from_backup: bool, disk_blocks: u64) -> Result<Option<Table>> {
    let block_bytes = u64::from(disk.queue().limits().logical_block_bytes);
    let sectors = block_bytes / 512;
    let mut block = disk.read(own_number * sectors, block_bytes as usize)?;
    let Some(header) = Header::parse(&mut block, own_number, disk_blocks) else { return Ok(None) };
    let bytes = header.entry_count * header.entry_bytes;
    let blocks = bytes.div_ceil(block_bytes);
    if header.entries_block.checked_add(blocks).is_none_or(|end| end > disk_blocks) {
        return Ok(None);
    }
    let entries = disk.read(header.entries_block * sectors, (blocks * block_bytes) as usize)?;
    let entries = &entries[..bytes as usize];
    if crc32(entries) != header.entries_checksum {
        return Ok(None);
    }
    let mut table = Table { scheme: Scheme::Gpt { from_backup }, ..Table::empty() };
    for (index, entry) in entries.chunks_exact(header.entry_bytes as usize).enumerate().take(PARTITIONS_MAX) {
        let (first, last) = (le64(entry, 32), le64(entry, 40));
        let inside = first >= header.first_usable && last <= header.last_usable && first <= last;
        if entry[..16].iter().all(|byte| *byte == 0) || !inside {
            continue;
        }
        let mut partition = Partition {
            number: index as u32 + 1,
            start: first * sectors,
            sectors: (last - first + 1) * sectors,
            kind: [0; 16],
            identity: [0; 16],
            name: [0; 36],
        };
        partition.kind.copy_from_slice(&entry[..16]);
        partition.identity.copy_from_slice(&entry[16..32]);
        for (unit, bytes) in partition.name.iter_mut().zip(entry[56..128].as_chunks::<2>().0) {
            *unit = u16::from_le_bytes(*bytes);
        }
        table.add(disk.sectors(), partition)?;
    }
    Ok(Some(table))
}
