//! What a server answers, as far as it makes sense.

use vfs::{FileKind, Timestamp};

use super::{Decoder, Malformed, kind_of};

/// Bytes of a file's attributes.
pub const ATTRIBUTES_BYTES: usize = 88;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 40 + ATTRIBUTES_BYTES;
/// Bytes of the answer to a question for attributes.
pub const TIMED_ATTRIBUTES_BYTES: usize = 16 + ATTRIBUTES_BYTES;
/// Bytes of what says how a file was opened.
pub const OPENED_BYTES: usize = 16;
/// Bytes of what is told of the file system.
pub const STATUS_BYTES: usize = 80;
/// The latest end of a validity, ns: servers say "for ever" with numbers that can't be added.
const NEVER: u64 = u64::MAX;

/// A file's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The number that programs see.
    pub number: u64,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub accessed: Timestamp,
    /// Last modification.
    pub modified: Timestamp,
    /// Last change.
    pub changed: Timestamp,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner, as the server calls him.
    pub user: u32,
    /// Group, likewise.
    pub group: u32,
    /// Which device, for nodes of devices.
    pub special: u32,
}

/// A file found by a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The server's number for it; 0: there is none of that name.
    pub node: u64,
    /// Tells it from others that had the number before.
    pub generation: u64,
    /// How long the name is believed, ns.
    pub name_ns: u64,
    /// How long the attributes are believed, ns.
    pub attributes_ns: u64,
}

/// How a file was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The server's number for the open file.
    pub handle: u64,
    /// See [`open_flag`](super::open_flag).
    pub flags: u32,
}

fn duration(seconds: u64, nanoseconds: u32) -> u64 {
    let nanoseconds = u64::from(nanoseconds.min(999_999_999));
    seconds.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(nanoseconds)).unwrap_or(NEVER)
}

fn stamp(seconds: u64, nanoseconds: u32) -> Timestamp {
    Timestamp {
        seconds: seconds.cast_signed().clamp(Timestamp::MINIMUM.seconds, Timestamp::MAXIMUM.seconds),
        nanoseconds: nanoseconds.min(999_999_999),
    }
}

/// Attributes.
///
/// # Errors
/// [`Malformed`], also for kinds that there are none of and sizes that no file has.
pub fn attributes(values: &mut Decoder<'_>) -> Result<Attributes, Malformed> {
    let (number, size, blocks) = (values.u64()?, values.u64()?, values.u64()?);
    let seconds = [values.u64()?, values.u64()?, values.u64()?];
    let parts = [values.u32()?, values.u32()?, values.u32()?];
    let (mode, links, user, group, special) =
        (values.u32()?, values.u32()?, values.u32()?, values.u32()?, values.u32()?);
    let (_block_bytes, _flags) = (values.u32()?, values.u32()?);
    let kind = kind_of(mode).ok_or(Malformed)?;
    if i64::try_from(size).is_err() {
        return Err(Malformed);
    }
    Ok(Attributes {
        number,
        size,
        blocks,
        accessed: stamp(seconds[0], parts[0]),
        modified: stamp(seconds[1], parts[1]),
        changed: stamp(seconds[2], parts[2]),
        kind,
        mode: mode & vfs::attributes::MODE_MASK,
        links,
        user,
        group,
        special,
    })
}

/// An entry, without the attributes that follow.
///
/// # Errors
/// [`Malformed`].
pub fn entry(values: &mut Decoder<'_>) -> Result<Entry, Malformed> {
    let (node, generation) = (values.u64()?, values.u64()?);
    let (name, attributes) = (values.u64()?, values.u64()?);
    let (name_part, attributes_part) = (values.u32()?, values.u32()?);
    Ok(Entry {
        node,
        generation,
        name_ns: duration(name, name_part),
        attributes_ns: duration(attributes, attributes_part),
    })
}

/// Attributes, and how long they are believed, ns.
///
/// # Errors
/// [`Malformed`].
pub fn timed_attributes(values: &mut Decoder<'_>) -> Result<(Attributes, u64), Malformed> {
    let (seconds, part, _) = (values.u64()?, values.u32()?, values.u32()?);
    Ok((attributes(values)?, duration(seconds, part)))
}

/// How a file was opened.
///
/// # Errors
/// [`Malformed`].
pub fn opened(values: &mut Decoder<'_>) -> Result<Opened, Malformed> {
    let (handle, flags, _) = (values.u64()?, values.u32()?, values.u32()?);
    Ok(Opened { handle, flags })
}

/// An entry of a list of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The number that programs see.
    pub number: u64,
    /// Where listing goes on behind it.
    pub next: u64,
    /// What it is, as far as the server says.
    pub kind: FileKind,
    /// Its name.
    pub name: &'a [u8],
}

/// The next entry of a list; None at its end, and where it was cut off.
///
/// # Errors
/// [`Malformed`] for a name that is none.
pub fn listed<'a>(values: &mut Decoder<'a>) -> Result<Option<Listed<'a>>, Malformed> {
    const HEADER_BYTES: usize = 24;
    if values.rest().len() < HEADER_BYTES {
        return Ok(None);
    }
    let mut ahead = *values;
    let (number, next, length, kind) = (ahead.u64()?, ahead.u64()?, ahead.u32()? as usize, ahead.u32()?);
    if length == 0 || length > vfs::name::NAME_MAX {
        return Err(Malformed);
    }
    let padded = length.next_multiple_of(8);
    if ahead.rest().len() < padded {
        return Ok(None);
    }
    let name = &ahead.bytes(padded)?[..length];
    if name.contains(&b'/') || name.contains(&0) {
        return Err(Malformed);
    }
    *values = ahead;
    let kind = kind_of((kind & 0xf) << 12).unwrap_or(FileKind::Anonymous);
    Ok(Some(Listed { number, next, kind, name }))
}

#[cfg(test)]
mod tests {
    use super::super::Body;
    use super::*;

    fn body(mode: u32, size: u64) -> alloc::vec::Vec<u8> {
        let numbers = Body::new().u64s(&[5, size, 1, 2, 3, 4]).u32s(&[6, 7, 2_000_000_000, mode]);
        numbers.u32s(&[1, 1000, 1000, 0, 4096, 0]).finish().expect("memory")
    }

    #[test]
    fn attributes_that_make_sense_are_believed() {
        let bytes = body(0o100_644, 77);
        assert_eq!(bytes.len(), ATTRIBUTES_BYTES);
        let found = attributes(&mut Decoder::new(&bytes)).expect("whole");
        assert_eq!((found.kind, found.mode, found.size), (FileKind::Regular, 0o644, 77));
        assert_eq!((found.modified.seconds, found.changed.nanoseconds), (3, 999_999_999));
        for (mode, size) in [(0o644, 1), (0o170_000, 1), (0o100_644, 1 << 63)] {
            assert_eq!(attributes(&mut Decoder::new(&body(mode, size))), Err(Malformed), "{mode:o} {size}");
        }
        assert_eq!(attributes(&mut Decoder::new(&bytes[..80])), Err(Malformed));
    }

    #[test]
    fn for_ever_does_not_overflow() {
        let bytes = Body::new().u64s(&[2, 0, u64::MAX, 1]).u32s(&[0, 5]).finish().expect("memory");
        let found = entry(&mut Decoder::new(&bytes)).expect("whole");
        assert_eq!((found.name_ns, found.attributes_ns), (u64::MAX, 1_000_000_005));
    }

    #[test]
    fn lists_end_where_they_were_cut_off() {
        let one = |name: &[u8], length: u32| {
            Body::new().u64s(&[9, 1]).u32s(&[length, 4]).bytes(name).finish().expect("memory")
        };
        let whole = one(b"abc\0\0\0\0\0", 3);
        let mut values = Decoder::new(&whole);
        let found = listed(&mut values).expect("whole").expect("an entry");
        assert_eq!((found.name, found.kind, found.number), (&b"abc"[..], FileKind::Directory, 9));
        assert_eq!(listed(&mut values), Ok(None));
        assert_eq!(listed(&mut Decoder::new(&whole[..28])), Ok(None));
        for (name, length) in
            [(&b"a/c\0\0\0\0\0"[..], 3), (b"a\0c\0\0\0\0\0", 3), (b"", 0), (b"", 256), (b"", u32::MAX)]
        {
            assert_eq!(listed(&mut Decoder::new(&one(name, length))), Err(Malformed));
        }
    }
}
