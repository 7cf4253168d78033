//! Bringing what the journal holds to the disk, before a file system is written.
//!
//! The order makes it repeatable at any moment: copies home; flush; the journal is empty; the superblock no longer asks for recovery.
//! A crash in between only means that the same is done again.

use zerocopy::FromBytes;

use block::checksum::crc32c;
use block::{BioFlags, Volume};
use memory::fallible;

use crate::file_system::FileSystem;
use crate::geometry::incompatible;
use crate::journal::Log;
use crate::layout::{RawJournalSuperblock, RawSuperblock, SUPERBLOCK_BYTES};
use crate::{Error, Result};

/// Mounts the volume, writes what its journal holds to where it belongs, and mounts it again.
pub fn recover(volume: &Volume) -> Result<FileSystem> {
    let system = FileSystem::mount(volume)?;
    if !system.geometry.has_incompatible(incompatible::RECOVER) {
        return Ok(system);
    }
    if let Some((name, bit)) = system.geometry.read_only_because() {
        return Err(Error::UnknownFeature(name, bit));
    }
    system.cache.write_all(system.cache.pinned()?.into_iter())?;
    system.cache.flush()?;
    let log = Log::open(&system)?;
    // One more than the next: what a torn commit left in the log must not be taken for the next transaction's.
    let sequence = log.sequence.wrapping_add(system.transactions_replayed()).wrapping_add(1);
    write_journal_superblock(&system, &log, log.features, 0, sequence)?;
    set_recovery_needed(&system, false)?;
    FileSystem::mount(volume)
}

/// Writes where the log begins and with which transaction; 0: it is empty. Durable.
pub(crate) fn write_journal_superblock(
    system: &FileSystem,
    log: &Log,
    features: u32,
    start: u32,
    sequence: u32,
) -> Result<()> {
    let mut bytes = log.read(system, 0)?;
    let damaged = || Error::Corrupted("the journal's superblock", 0);
    let (raw, _) = RawJournalSuperblock::mut_from_prefix(&mut bytes).map_err(|_| damaged())?;
    raw.start.set(start);
    raw.sequence.set(sequence);
    raw.incompatible.set(features);
    raw.checksum.set(0);
    if log.has_checksums() {
        raw.checksum_type = 4;
        let sum = crc32c(!0, &bytes[..1024]);
        let (raw, _) = RawJournalSuperblock::mut_from_prefix(&mut bytes).map_err(|_| damaged())?;
        raw.checksum.set(sum);
    }
    system.cache.write(log.place(system, 0)?, fallible::try_arc(bytes)?, BioFlags::FORCE_UNIT_ACCESS)
}

/// Says in the superblock whether the journal has to be replayed at the next mount. Durable.
pub(crate) fn set_recovery_needed(system: &FileSystem, needed: bool) -> Result<()> {
    let (block, at) = system.superblock_place();
    let mut bytes = system.cache.read(block)?;
    let superblock = &mut bytes[at..at + SUPERBLOCK_BYTES];
    let damaged = || Error::Corrupted("superblock", 0);
    let raw = RawSuperblock::mut_from_bytes(superblock).map_err(|_| damaged())?;
    let others = raw.incompatible.get() & !incompatible::RECOVER;
    raw.incompatible.set(if needed { others | incompatible::RECOVER } else { others });
    if system.geometry.metadata_checksum() {
        let sum = crc32c(!0, &superblock[..SUPERBLOCK_BYTES - 4]);
        superblock[SUPERBLOCK_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    }
    system.cache.write_through(block, fallible::try_arc(bytes)?, BioFlags::FORCE_UNIT_ACCESS)
}
