//! Inodes, as written: a new one, and the fields of a changed one.

use zerocopy::{FromBytes, FromZeros};

use block::checksum::crc32c;

use crate::blocks::{self, inode_place};
use crate::geometry::{Geometry, incompatible, read_only_compatible};
use crate::handle::Handle;
use crate::inode::{Inode, Kind, Time, checksum};
use crate::layout::{
    CHECKSUM_HIGH_AT, CHECKSUM_LOW_AT, EXTENT_MAGIC, FLAG_EXTENTS, FLAG_HUGE_FILE, FLAG_INHERIT_PROJECT,
    FLAGS_INHERITED, FLAGS_OF_DIRECTORIES, FLAGS_OF_OTHERS, INODE_BYTES_MIN, MAP_BYTES, RawExtentHeader,
    RawInode, RawInodeExtra,
};
use crate::{Error, Result};

/// Extents in an inode.
const INNER_EXTENTS: u16 = 4;

impl Kind {
    /// The upper bits of a mode.
    const fn mode_bits(self) -> u16 {
        (match self {
            Self::Fifo => 0x1,
            Self::CharacterDevice => 0x2,
            Self::Directory => 0x4,
            Self::BlockDevice => 0x6,
            Self::Regular => 0x8,
            Self::Link => 0xa,
            Self::Socket => 0xc,
        }) << 12
    }

    /// As directory entries say it.
    pub(crate) const fn entry_number(self) -> u8 {
        match self {
            Self::Regular => 1,
            Self::Directory => 2,
            Self::CharacterDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Link => 7,
        }
    }
}

impl Time {
    /// The lower 32 bits of the seconds, and the field with two more and the nanoseconds.
    fn encode(self) -> (u32, u32) {
        // What the fields cannot hold becomes the nearest that they can.
        let seconds = self.seconds.clamp(-(1 << 31), (1 << 34) - (1 << 31) - 1);
        let low = seconds as u32;
        let above = (seconds - i64::from(low.cast_signed())) >> 32;
        (low, (above & 3) as u32 | self.nanoseconds << 2)
    }
}

/// What an empty extent tree looks like in an inode.
pub(crate) fn empty_extents() -> [u8; MAP_BYTES] {
    let mut map = [0; MAP_BYTES];
    if let Ok((header, _)) = RawExtentHeader::mut_from_prefix(&mut map) {
        header.magic.set(EXTENT_MAGIC);
        header.max.set(INNER_EXTENTS);
    }
    map
}

impl Inode {
    /// A new file.
    pub(crate) fn new(geometry: &Geometry, number: u32, kind: Kind, generation: u32, now: Time) -> Self {
        let mapped = matches!(kind, Kind::Regular | Kind::Directory);
        let extents = geometry.has_incompatible(incompatible::EXTENTS) && mapped;
        let extra = new_extra_bytes(geometry);
        Self {
            number,
            kind,
            mode: 0,
            user: 0,
            group: 0,
            links: 1,
            size: 0,
            blocks: 0,
            accessed: now,
            modified: now,
            changed: now,
            born: Some(now),
            special: (0, 0),
            generation,
            deleted: 0,
            flags: if extents { FLAG_EXTENTS } else { 0 },
            project: 0,
            map: if extents { empty_extents() } else { [0; MAP_BYTES] },
            attributes: 0,
            seed: crc32c(crc32c(geometry.seed, &number.to_le_bytes()), &generation.to_le_bytes()),
            inner_attributes_at: INODE_BYTES_MIN + extra,
            has_inner_attributes: false,
        }
    }

    /// Takes what a new file has from its directory.
    pub(crate) fn inherit(&mut self, directory: &Self) {
        let allowed = match self.kind {
            Kind::Directory => FLAGS_INHERITED,
            Kind::Regular => FLAGS_INHERITED & !FLAGS_OF_DIRECTORIES,
            _ => FLAGS_INHERITED & FLAGS_OF_OTHERS,
        };
        self.flags |= directory.flags & allowed;
        if directory.flags & FLAG_INHERIT_PROJECT != 0 {
            self.project = directory.project;
        }
    }

    /// Blocks of 512 bytes more or less.
    pub(crate) fn add_blocks(&mut self, geometry: &Geometry, count: i64) {
        let unit = (geometry.block_bytes / 512) as i64;
        self.blocks = self.blocks.saturating_add_signed(count * unit);
    }

    fn encode(&self, geometry: &Geometry, bytes: &mut [u8], is_new: bool) -> Result<()> {
        let damaged = || Error::Corrupted("an inode's size", self.number.into());
        let wide = geometry.has_read_only_compatible(read_only_compatible::LARGE_FILE);
        if self.size > 0x7fff_ffff && !wide {
            return Err(Error::TooLarge);
        }
        let (raw, rest) = RawInode::mut_from_prefix(bytes).map_err(|_| damaged())?;
        raw.mode.set(self.mode | self.kind.mode_bits());
        raw.user_low.set(self.user as u16);
        raw.user_high.set((self.user >> 16) as u16);
        raw.group_low.set(self.group as u16);
        raw.group_high.set((self.group >> 16) as u16);
        raw.size_low.set(self.size as u32);
        raw.size_high.set((self.size >> 32) as u32);
        raw.deleted.set(self.deleted);
        raw.links.set(self.links);
        raw.generation.set(self.generation);
        raw.map = self.map;
        raw.attributes_low.set(self.attributes as u32);
        raw.attributes_high.set((self.attributes >> 32) as u16);
        let huge = geometry.has_read_only_compatible(read_only_compatible::HUGE_FILE);
        let large = huge && self.blocks >> 48 != 0;
        let unit = if large { geometry.block_bytes as u64 / 512 } else { 1 };
        if !huge && self.blocks >> 32 != 0 {
            return Err(Error::TooLarge);
        }
        raw.flags.set(self.flags & !FLAG_HUGE_FILE | if large { FLAG_HUGE_FILE } else { 0 });
        raw.blocks_low.set((self.blocks / unit) as u32);
        raw.blocks_high.set(((self.blocks / unit) >> 32) as u16);
        let (accessed, modified, changed) =
            (self.accessed.encode(), self.modified.encode(), self.changed.encode());
        raw.accessed.set(accessed.0);
        raw.modified.set(modified.0);
        raw.changed.set(changed.0);
        let Ok((extra, _)) = RawInodeExtra::mut_from_prefix(rest) else { return Ok(()) };
        if is_new {
            extra.extra_size.set(new_extra_bytes(geometry) as u16);
        }
        let has = |end: u16| extra.extra_size.get() >= end;
        if has(8) {
            extra.changed.set(changed.1);
        }
        if has(12) {
            extra.modified.set(modified.1);
        }
        if has(16) {
            extra.accessed.set(accessed.1);
        }
        if has(32) {
            extra.project.set(self.project);
        }
        if has(24)
            && let Some(born) = self.born
        {
            let (seconds, more) = born.encode();
            extra.born_seconds.set(seconds);
            extra.born.set(more);
        }
        Ok(())
    }
}

/// How much of the extra fields new inodes have.
fn new_extra_bytes(geometry: &Geometry) -> usize {
    if geometry.inode_bytes >= INODE_BYTES_MIN + size_of::<RawInodeExtra>() {
        size_of::<RawInodeExtra>()
    } else {
        0
    }
}

/// Sets an inode's checksum.
fn seal(geometry: &Geometry, seed: u32, bytes: &mut [u8], extra_size: usize) {
    if !geometry.metadata_checksum() {
        return;
    }
    let (sum, wide) = checksum(seed, bytes, extra_size);
    bytes[CHECKSUM_LOW_AT..CHECKSUM_LOW_AT + 2].copy_from_slice(&(sum as u16).to_le_bytes());
    if wide {
        bytes[CHECKSUM_HIGH_AT..CHECKSUM_HIGH_AT + 2].copy_from_slice(&((sum >> 16) as u16).to_le_bytes());
    }
}

impl Handle<'_> {
    /// Reads an inode as this handle sees it.
    pub(crate) fn inode(&self, number: u32) -> Result<Inode> {
        blocks::inode(self, number)
    }

    /// Writes an inode's fields.
    pub(crate) fn store(&mut self, inode: &Inode) -> Result<()> {
        self.change_raw(inode, |geometry, bytes| inode.encode(geometry, bytes, false))
    }

    /// Writes the fields of an inode of which only times have changed: `fdatasync` need not commit them.
    pub(crate) fn store_times(&mut self, inode: &Inode) -> Result<()> {
        self.change_bytes(inode, false, |geometry, bytes| inode.encode(geometry, bytes, false))
    }

    /// Writes a new inode's fields, into what was cleared.
    pub(crate) fn store_new(&mut self, inode: &Inode) -> Result<()> {
        self.change_raw(inode, |geometry, bytes| inode.encode(geometry, bytes, true))
    }

    /// Changes an inode's bytes, and its checksum.
    pub(crate) fn change_raw(
        &mut self,
        inode: &Inode,
        change: impl FnOnce(&Geometry, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        self.change_bytes(inode, true, change)
    }

    fn change_bytes(
        &mut self,
        inode: &Inode,
        more_than_times: bool,
        change: impl FnOnce(&Geometry, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        self.note_stored(inode.number, more_than_times)?;
        let (place, at) = inode_place(self, inode.number)?;
        let geometry = &self.system().geometry;
        let part = at / geometry.inode_bytes;
        let bytes = self.edit_part(place, part, geometry.inode_bytes)?;
        change(geometry, bytes)?;
        seal(geometry, inode.seed, bytes, inode.inner_attributes_at - INODE_BYTES_MIN);
        Ok(())
    }

    /// Clears what a deleted file's inode still says, but for when it was deleted.
    pub(crate) fn erase_inode(&mut self, inode: &Inode, now: Time) -> Result<()> {
        self.change_raw(inode, |_, bytes| {
            let length = bytes.len();
            bytes[..MAP_END].fill(0);
            let (raw, _) = RawInode::mut_from_prefix(bytes)
                .map_err(|_| Error::Corrupted("an inode's size", length as u64))?;
            raw.deleted.set(now.seconds as u32);
            raw.attributes_low = FromZeros::new_zeroed();
            raw.attributes_high = FromZeros::new_zeroed();
            raw.size_high = FromZeros::new_zeroed();
            raw.blocks_high = FromZeros::new_zeroed();
            Ok(())
        })
    }
}

/// Where the part of an inode ends that a deleted one has no use for.
const MAP_END: usize = 0x64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_as_they_were_or_as_the_nearest() {
        for seconds in [-(1i64 << 31), -1, 0, 1 << 31, 1 << 32, (3 << 32) + 0x7fff_ffff] {
            let (low, more) = Time { seconds, nanoseconds: 5 }.encode();
            assert_eq!(Time::decode(low, Some(more)), Time { seconds, nanoseconds: 5 });
        }
        assert_eq!(Time { seconds: i64::MAX, nanoseconds: 0 }.encode(), (0x7fff_ffff, 3));
    }
}
