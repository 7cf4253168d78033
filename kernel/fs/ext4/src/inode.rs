//! Inodes, as read: checked once, then a value of its own.

use zerocopy::FromBytes;

use block::checksum::crc32c;

use crate::geometry::{Geometry, read_only_compatible};
use crate::layout::{
    CHECKSUM_HIGH_AT, CHECKSUM_LOW_AT, FLAG_ENCRYPTED, FLAG_EXTENTS, FLAG_HUGE_FILE, FLAG_INHERIT_PROJECT,
    FLAG_INLINE_DATA, INODE_BYTES_MIN, MAP_BYTES, RawInode, RawInodeExtra, XATTR_MAGIC,
};
use crate::{Error, Result};

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A local socket.
    Socket,
}

impl Kind {
    const fn of_mode(mode: u16) -> Option<Self> {
        Some(match mode >> 12 {
            0x1 => Self::Fifo,
            0x2 => Self::CharacterDevice,
            0x4 => Self::Directory,
            0x6 => Self::BlockDevice,
            0x8 => Self::Regular,
            0xa => Self::Link,
            0xc => Self::Socket,
            _ => return None,
        })
    }

    /// As directory entries say it; `None` where they do not.
    pub(crate) const fn of_entry(kind: u8) -> Option<Self> {
        Some(match kind {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharacterDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Link,
            _ => return None,
        })
    }
}

/// A point in time: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Below 10⁹.
    pub nanoseconds: u32,
}

impl Time {
    /// 32 bits of seconds with a sign, two more bits above them, and 30 bits of nanoseconds.
    pub(crate) fn decode(seconds: u32, extra: Option<u32>) -> Self {
        let seconds = i64::from(seconds.cast_signed());
        match extra {
            None => Self { seconds, nanoseconds: 0 },
            Some(extra) => Self {
                seconds: seconds + (i64::from(extra & 3) << 32),
                nanoseconds: (extra >> 2).min(999_999_999),
            },
        }
    }
}

/// See the theory of this file.
#[derive(Clone, Debug)]
pub struct Inode {
    /// Its number.
    pub number: u32,
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Names.
    pub links: u16,
    /// Bytes.
    pub size: u64,
    /// 512-byte blocks in use.
    pub blocks: u64,
    /// Last access.
    pub accessed: Time,
    /// Last modification of the contents.
    pub modified: Time,
    /// Last change.
    pub changed: Time,
    /// Creation, where it is recorded.
    pub born: Option<Time>,
    /// For devices: major and minor.
    pub special: (u32, u32),
    /// What tells files apart that had the same inode one after the other.
    pub generation: u32,
    /// When it was deleted; while it is in the list of orphans, the next one's number.
    pub(crate) deleted: u32,
    pub(crate) flags: u32,
    /// The project it belongs to; 0 where there are none.
    pub(crate) project: u32,
    pub(crate) map: [u8; MAP_BYTES],
    /// The block with extended attributes; 0: none.
    pub(crate) attributes: u64,
    /// What the checksums of its blocks begin with.
    pub(crate) seed: u32,
    /// Where attributes inside the inode begin.
    pub(crate) inner_attributes_at: usize,
    /// Whether there were any when it was read.
    pub(crate) has_inner_attributes: bool,
}

impl Inode {
    /// Checks the checksum of an inode's bytes.
    pub(crate) fn verify(geometry: &Geometry, number: u32, bytes: &[u8]) -> Result<()> {
        if !geometry.metadata_checksum() {
            return Ok(());
        }
        let damaged = |what| Error::Corrupted(what, number.into());
        let (raw, rest) = RawInode::ref_from_prefix(bytes).map_err(|_| damaged("an inode's size"))?;
        let extra_size = extra_size_of(number, rest)?;
        if !checksum_fits(seed_of(geometry, number, raw), bytes, extra_size) {
            return Err(damaged("an inode's checksum"));
        }
        Ok(())
    }

    /// Parses an inode's bytes, whose checksum was [verified](Self::verify).
    pub(crate) fn parse(geometry: &Geometry, number: u32, bytes: &[u8]) -> Result<Self> {
        let damaged = |what| Error::Corrupted(what, number.into());
        let (raw, rest) = RawInode::ref_from_prefix(bytes).map_err(|_| damaged("an inode's size"))?;
        let extra_size = extra_size_of(number, rest)?;
        let seed = seed_of(geometry, number, raw);
        let mut shown = [0; size_of::<RawInodeExtra>()];
        let present = extra_size.min(shown.len());
        shown[..present].copy_from_slice(&rest[..present]);
        let extra = RawInodeExtra::read_from_bytes(&shown).unwrap_or_default();
        let has = |end: usize| extra_size >= end;
        let mode = raw.mode.get();
        let kind = Kind::of_mode(mode).ok_or_else(|| damaged("an inode's mode"))?;
        let flags = raw.flags.get();
        if flags & (FLAG_ENCRYPTED | FLAG_INLINE_DATA) != 0 {
            return Err(damaged("an inode's flags"));
        }
        let size = u64::from(raw.size_high.get()) << 32 | u64::from(raw.size_low.get());
        if size > i64::MAX as u64 || (kind == Kind::Directory && size >> 32 != 0) {
            return Err(damaged("an inode's size"));
        }
        let huge = geometry.has_read_only_compatible(read_only_compatible::HUGE_FILE);
        let blocks_high = if huge { u64::from(raw.blocks_high.get()) << 32 } else { 0 };
        let unit = if huge && flags & FLAG_HUGE_FILE != 0 { geometry.block_bytes as u64 / 512 } else { 1 };
        Ok(Self {
            number,
            kind,
            mode: mode & 0o7777,
            user: u32::from(raw.user_high.get()) << 16 | u32::from(raw.user_low.get()),
            group: u32::from(raw.group_high.get()) << 16 | u32::from(raw.group_low.get()),
            links: raw.links.get(),
            size,
            blocks: (blocks_high | u64::from(raw.blocks_low.get())).saturating_mul(unit),
            changed: Time::decode(raw.changed.get(), has(8).then(|| extra.changed.get())),
            modified: Time::decode(raw.modified.get(), has(12).then(|| extra.modified.get())),
            accessed: Time::decode(raw.accessed.get(), has(16).then(|| extra.accessed.get())),
            born: has(24).then(|| Time::decode(extra.born_seconds.get(), Some(extra.born.get()))),
            special: device_number(&raw.map),
            generation: raw.generation.get(),
            deleted: raw.deleted.get(),
            flags,
            project: if has(32) { extra.project.get() } else { 0 },
            map: raw.map,
            attributes: u64::from(raw.attributes_high.get()) << 32 | u64::from(raw.attributes_low.get()),
            seed,
            inner_attributes_at: INODE_BYTES_MIN + extra_size,
            has_inner_attributes: bytes
                .get(INODE_BYTES_MIN + extra_size..)
                .is_some_and(|inner| inner.starts_with(&XATTR_MAGIC.to_le_bytes())),
        })
    }

    /// Whether there were extended attributes when it was read.
    pub fn has_attributes(&self) -> bool {
        self.has_inner_attributes || self.attributes != 0
    }

    /// Whether its extra fields reach as far as the project.
    pub(crate) fn has_project_field(&self) -> bool {
        self.inner_attributes_at >= INODE_BYTES_MIN + size_of::<RawInodeExtra>()
    }

    /// Whether a directory takes a name for the file.
    pub(crate) fn takes_project_of(&self, file: &Self) -> bool {
        self.flags & FLAG_INHERIT_PROJECT == 0 || self.project == file.project
    }

    pub(crate) fn has_extents(&self) -> bool {
        self.flags & FLAG_EXTENTS != 0
    }
}

/// How much of the extra fields an inode has; `rest` is what comes behind the old part.
fn extra_size_of(number: u32, rest: &[u8]) -> Result<usize> {
    let size = match RawInodeExtra::ref_from_prefix(rest) {
        Ok((extra, _)) => usize::from(extra.extra_size.get()),
        Err(_) => 0,
    };
    if size > rest.len() || !size.is_multiple_of(4) {
        return Err(Error::Corrupted("an inode's extra size", number.into()));
    }
    Ok(size)
}

/// What the checksums of the inode and its blocks begin with.
fn seed_of(geometry: &Geometry, number: u32, raw: &RawInode) -> u32 {
    crc32c(crc32c(geometry.seed, &number.to_le_bytes()), &raw.generation.get().to_le_bytes())
}

fn checksum_fits(seed: u32, bytes: &[u8], extra_size: usize) -> bool {
    let field = |at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    match checksum(seed, bytes, extra_size) {
        (sum, true) => sum == field(CHECKSUM_HIGH_AT) << 16 | field(CHECKSUM_LOW_AT),
        (sum, false) => sum & 0xffff == field(CHECKSUM_LOW_AT),
    }
}

/// Two bytes of the checksum are in the old part, two in the extra part if that is long enough: whether it is.
pub(crate) fn checksum(seed: u32, bytes: &[u8], extra_size: usize) -> (u32, bool) {
    let wide = bytes.len() > INODE_BYTES_MIN && extra_size >= 4;
    let mut sum = crc32c(seed, &bytes[..CHECKSUM_LOW_AT]);
    sum = crc32c(sum, &[0; 2]);
    if wide {
        sum = crc32c(sum, &bytes[CHECKSUM_LOW_AT + 2..CHECKSUM_HIGH_AT]);
        sum = crc32c(sum, &[0; 2]);
        sum = crc32c(sum, &bytes[CHECKSUM_HIGH_AT + 2..]);
    } else {
        sum = crc32c(sum, &bytes[CHECKSUM_LOW_AT + 2..]);
    }
    (sum, wide)
}

/// Old numbers are in the first word, new ones in the second.
fn device_number(map: &[u8; MAP_BYTES]) -> (u32, u32) {
    let word = |at: usize| u32::from_le_bytes([map[at], map[at + 1], map[at + 2], map[at + 3]]);
    match word(0) {
        0 => (word(4) >> 8 & 0xfff, word(4) & 0xff | word(4) >> 12 & 0xf_ff00),
        old => (old >> 8 & 0xff, old & 0xff),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_reach_from_1901_to_2446() {
        let time = |seconds, extra| Time::decode(seconds, extra).seconds;
        assert_eq!(time(0x8000_0000, None), -(1 << 31));
        assert_eq!(time(0x8000_0000, Some(1)), 1 << 31);
        assert_eq!(time(0x7fff_ffff, Some(3)), (3 << 32) + 0x7fff_ffff);
        assert_eq!(Time::decode(0, Some(999_999_999 << 2)).nanoseconds, 999_999_999);
    }
}
