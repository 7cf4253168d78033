//! Inodes: fourteen forms of seven kinds.

use crate::cursor::Cursor;
use crate::file_system::FileSystem;
use crate::superblock::{u16_at, u32_at, u64_at};
use crate::{Error, Result, tables};

/// No fragment, no attributes.
const NONE: u32 = u32::MAX;
/// Longest symbolic link.
pub(crate) const LINK_MAX: u32 = 65535;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    Regular,
    /// A symbolic link.
    Link,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl Kind {
    /// The kind of an inode's type, or of a directory's entry, which has the basic types only.
    pub(crate) fn of(number: u16) -> Option<Self> {
        Some(match number {
            1 | 8 => Self::Directory,
            2 | 9 => Self::Regular,
            3 | 10 => Self::Link,
            4 | 11 => Self::BlockDevice,
            5 | 12 => Self::CharacterDevice,
            6 | 13 => Self::Fifo,
            7 | 14 => Self::Socket,
            _ => return None,
        })
    }
}

/// Where a file's contents are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Nowhere,
    /// A regular file: its first block, its fragment with the offset in that, and where the list of blocks is.
    Blocks {
        start: u64,
        fragment: Option<(u32, u32)>,
        list: Cursor,
    },
    /// A directory: where its listing begins, and how many entries its index has, and where.
    Listing {
        start: u64,
        offset: u16,
        index: u16,
        index_at: Cursor,
    },
    Target(Cursor),
}

/// A file, as the image has it.
#[derive(Clone, Debug)]
pub struct Inode {
    /// Where it is in the image.
    pub reference: u64,
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
    pub links: u32,
    /// Bytes.
    pub size: u64,
    /// Seconds since 1970 of the last change.
    pub modified: u32,
    /// For devices: major and minor number.
    pub special: (u32, u32),
    /// Bytes of holes.
    pub holes: u64,
    pub(crate) place: Place,
    pub(crate) attributes: Option<u32>,
}

fn device(number: u32) -> (u32, u32) {
    ((number >> 8) & 0xfff, (number & 0xff) | ((number >> 12) & 0xfff00))
}

/// The part that differs by kind.
struct Body {
    links: u32,
    size: u64,
    special: (u32, u32),
    holes: u64,
    place: Place,
    attributes: u32,
}

impl Default for Body {
    fn default() -> Self {
        Self { links: 1, size: 0, special: (0, 0), holes: 0, place: Place::Nowhere, attributes: NONE }
    }
}

impl Inode {
    pub(crate) fn read(system: &FileSystem, reference: u64) -> Result<Self> {
        let mut cursor = Cursor::of_reference(system.superblock.inode_table, reference)?;
        let head = cursor.array::<16>(system)?;
        let number = u16_at(&head, 0);
        let kind = Kind::of(number).ok_or(Error::Corrupted("the type of an inode", reference))?;
        let body = Self::read_body(system, kind, number > 7, &mut cursor)?;
        Ok(Self {
            reference,
            number: u32_at(&head, 12),
            kind,
            mode: u16_at(&head, 2) & 0o7777,
            user: tables::owner(system, u16_at(&head, 4))?,
            group: tables::owner(system, u16_at(&head, 6))?,
            links: body.links,
            size: body.size,
            modified: u32_at(&head, 8),
            special: body.special,
            holes: body.holes,
            place: body.place,
            attributes: (body.attributes != NONE).then_some(body.attributes),
        })
    }

    #[inline(never)]
    fn read_body(system: &FileSystem, kind: Kind, extended: bool, cursor: &mut Cursor) -> Result<Body> {
        let mut body = Body::default();
        match (kind, extended) {
            (Kind::Directory, false) => {
                let raw = cursor.array::<16>(system)?;
                body.links = u32_at(&raw, 4);
                body.size = u16_at(&raw, 8).into();
                let start = u64::from(u32_at(&raw, 0));
                body.place = Place::Listing { start, offset: u16_at(&raw, 10), index: 0, index_at: *cursor };
            }
            (Kind::Directory, true) => {
                let raw = cursor.array::<24>(system)?;
                body.links = u32_at(&raw, 0);
                body.size = u32_at(&raw, 4).into();
                body.attributes = u32_at(&raw, 20);
                let (start, index) = (u64::from(u32_at(&raw, 8)), u16_at(&raw, 16));
                body.place = Place::Listing { start, offset: u16_at(&raw, 18), index, index_at: *cursor };
            }
            (Kind::Regular, false) => {
                let raw = cursor.array::<16>(system)?;
                body.size = u32_at(&raw, 12).into();
                let fragment = (u32_at(&raw, 4), u32_at(&raw, 8));
                body.place = Self::blocks(u32_at(&raw, 0).into(), fragment, *cursor);
            }
            (Kind::Regular, true) => {
                let raw = cursor.array::<40>(system)?;
                body.size = u64_at(&raw, 8);
                body.holes = u64_at(&raw, 16);
                body.links = u32_at(&raw, 24);
                body.attributes = u32_at(&raw, 36);
                body.place = Self::blocks(u64_at(&raw, 0), (u32_at(&raw, 28), u32_at(&raw, 32)), *cursor);
                if body.size > i64::MAX as u64 {
                    return Err(Error::Corrupted("the size of a file", body.size));
                }
            }
            (Kind::Link, _) => {
                let raw = cursor.array::<8>(system)?;
                body.links = u32_at(&raw, 0);
                let length = u32_at(&raw, 4);
                if length == 0 || length > LINK_MAX {
                    return Err(Error::Corrupted("the length of a symbolic link", length.into()));
                }
                body.size = length.into();
                body.place = Place::Target(*cursor);
                if extended {
                    cursor.skip(system, length as usize)?;
                    body.attributes = cursor.u32(system)?;
                }
            }
            (Kind::BlockDevice | Kind::CharacterDevice, _) => {
                body.links = cursor.u32(system)?;
                body.special = device(cursor.u32(system)?);
                if extended {
                    body.attributes = cursor.u32(system)?;
                }
            }
            (Kind::Fifo | Kind::Socket, _) => {
                body.links = cursor.u32(system)?;
                if extended {
                    body.attributes = cursor.u32(system)?;
                }
            }
        }
        Ok(body)
    }

    fn blocks(start: u64, fragment: (u32, u32), list: Cursor) -> Place {
        Place::Blocks { start, fragment: (fragment.0 != NONE).then_some(fragment), list }
    }

    /// 512-byte blocks that it would take uncompressed, without its holes.
    pub fn blocks_512(&self) -> u64 {
        if self.kind == Kind::Regular { self.size.saturating_sub(self.holes).div_ceil(512) } else { 0 }
    }
}
