//! What changes in the superblock: counts, the state, the head of the list of orphans.

use zerocopy::FromBytes;

use block::checksum::crc32c;

use crate::handle::Handle;
use crate::inode::Time;
use crate::layout::{RawSuperblock, SUPERBLOCK_BYTES};
use crate::{Error, FileSystem, Result};

/// It was unmounted in order.
pub(crate) const STATE_CLEAN: u16 = 1;
/// Damage was found.
pub(crate) const STATE_ERRORS: u16 = 2;

/// What to do about damage.
pub(crate) const ON_ERROR_CONTINUE: u16 = 1;

/// Where the record of damage is: how often, and the first and last time with inode and block.
const ERROR_COUNT_AT: usize = 0x194;
const FIRST_ERROR_AT: usize = 0x198;
const LAST_ERROR_AT: usize = 0x1cc;

/// Changes a superblock's bytes and its checksum.
pub(crate) fn change(
    system: &FileSystem,
    bytes: &mut [u8],
    change: impl FnOnce(&mut RawSuperblock),
) -> Result<()> {
    let (_, at) = system.superblock_place();
    let bytes = &mut bytes[at..at + SUPERBLOCK_BYTES];
    let raw = RawSuperblock::mut_from_bytes(bytes).map_err(|_| Error::Corrupted("superblock", 0))?;
    change(raw);
    if system.geometry.metadata_checksum() {
        let sum = crc32c(!0, &bytes[..SUPERBLOCK_BYTES - 4]);
        bytes[SUPERBLOCK_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    }
    Ok(())
}

/// Sets the numbers of free blocks and inodes.
pub(crate) fn set_counts(raw: &mut RawSuperblock, free_blocks: u64, free_inodes: u32) {
    raw.free_blocks_low.set(free_blocks as u32);
    if free_blocks >> 32 != 0 || raw.free_blocks_high.get() != 0 {
        raw.free_blocks_high.set((free_blocks >> 32) as u32);
    }
    raw.free_inodes.set(free_inodes);
}

/// Records damage.
pub(crate) fn note_error(raw: &mut RawSuperblock, now: Time, place: u64) {
    raw.state.set(raw.state.get() | STATE_ERRORS);
    let base = 0x180;
    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let rest = &mut raw.rest_a;
    let count = word(rest, ERROR_COUNT_AT - base).saturating_add(1);
    let mut set = |at: usize, bytes: &[u8]| rest[at - base..at - base + bytes.len()].copy_from_slice(bytes);
    set(ERROR_COUNT_AT, &count.to_le_bytes());
    let seconds = (now.seconds as u32).to_le_bytes();
    if count == 1 {
        set(FIRST_ERROR_AT, &seconds);
        set(FIRST_ERROR_AT + 8, &place.to_le_bytes());
    }
    set(LAST_ERROR_AT, &seconds);
    set(LAST_ERROR_AT + 12, &place.to_le_bytes());
}

impl Handle<'_> {
    /// Changes the superblock.
    pub(crate) fn change_superblock(&mut self, with: impl FnOnce(&mut RawSuperblock)) -> Result<()> {
        let system = self.system();
        let (block, _) = system.superblock_place();
        change(system, self.edit(block)?, with)
    }
}
