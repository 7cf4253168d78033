//! The structures of `linux/loop.h`, as programs of 64 bits have them.

use machine::address::UserAddr;
use machine::user_memory;
use vfs::{Error, Result};

/// Bytes of a name.
pub(crate) const NAME_BYTES: usize = 64;

/// `LO_FLAGS_READ_ONLY`
pub(crate) const READ_ONLY: u32 = 1;
/// `LO_FLAGS_AUTOCLEAR`: the binding ends with the last user.
pub(crate) const AUTOCLEAR: u32 = 4;
/// `LO_FLAGS_PARTSCAN`: partitions are looked for.
pub(crate) const PARTSCAN: u32 = 8;

/// What there is to say about a binding, whatever structure says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    /// The file's file system, file number, and the device it is.
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) special: u64,
    /// Where the disk begins in the file, and its bytes at most; 0: no limit.
    pub(crate) offset: u64,
    pub(crate) size_limit: u64,
    /// The device's own number.
    pub(crate) number: u32,
    pub(crate) encryption: u32,
    pub(crate) flags: u32,
    /// Ends with a zero byte.
    pub(crate) name: [u8; NAME_BYTES],
}

/// Where the fields of a structure are.
struct Fields {
    bytes: usize,
    number: usize,
    device: usize,
    inode: usize,
    special: usize,
    offset: usize,
    /// `None`: the structure has none, and its offset is of four bytes.
    size_limit: Option<usize>,
    encryption: usize,
    flags: usize,
    name: usize,
}

/// `struct loop_info64`
const WIDE: Fields = Fields {
    bytes: 232,
    number: 40,
    device: 0,
    inode: 8,
    special: 16,
    offset: 24,
    size_limit: Some(32),
    encryption: 44,
    flags: 52,
    name: 56,
};
/// `struct loop_info`
const NARROW: Fields = Fields {
    bytes: 168,
    number: 0,
    device: 8,
    inode: 16,
    special: 24,
    offset: 32,
    size_limit: None,
    encryption: 36,
    flags: 44,
    name: 48,
};

/// Which structure a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// `struct loop_info64`
    Wide,
    /// `struct loop_info`
    Narrow,
}

impl Width {
    const fn fields(self) -> &'static Fields {
        match self {
            Self::Wide => &WIDE,
            Self::Narrow => &NARROW,
        }
    }
}

/// Bytes of `struct loop_config`, and where it has its `struct loop_info64`.
const CONFIGURATION_BYTES: usize = 304;
const CONFIGURATION_STATUS: usize = 8;

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(get(bytes, at))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(get(bytes, at))
}

fn parse(bytes: &[u8], fields: &Fields) -> Status {
    let mut name: [u8; NAME_BYTES] = get(bytes, fields.name);
    name[NAME_BYTES - 1] = 0;
    let offset = match fields.size_limit {
        Some(_) => long(bytes, fields.offset),
        // Sign and all, as on Linux: what was negative is refused as too large.
        None => i64::from(word(bytes, fields.offset) as i32) as u64,
    };
    Status {
        device: long(bytes, fields.device),
        inode: long(bytes, fields.inode),
        special: long(bytes, fields.special),
        offset,
        size_limit: fields.size_limit.map_or(0, |at| long(bytes, at)),
        number: word(bytes, fields.number),
        encryption: word(bytes, fields.encryption),
        flags: word(bytes, fields.flags),
        name,
    }
}

/// Fails when the offset does not fit.
fn format(status: &Status, fields: &Fields, bytes: &mut [u8]) -> Result<()> {
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(fields.device, &status.device.to_ne_bytes());
    put(fields.inode, &status.inode.to_ne_bytes());
    put(fields.special, &status.special.to_ne_bytes());
    put(fields.number, &status.number.to_ne_bytes());
    put(fields.encryption, &status.encryption.to_ne_bytes());
    put(fields.flags, &status.flags.to_ne_bytes());
    put(fields.name, &status.name);
    match fields.size_limit {
        Some(at) => {
            put(fields.offset, &status.offset.to_ne_bytes());
            put(at, &status.size_limit.to_ne_bytes());
        }
        None => {
            let offset = i32::try_from(status.offset).map_err(|_| Error::Overflow)?;
            put(fields.offset, &offset.to_ne_bytes());
        }
    }
    Ok(())
}

/// What a program wants to be so.
pub(crate) fn read_status(from: UserAddr, width: Width) -> Result<Status> {
    let fields = width.fields();
    let mut bytes = [0; WIDE.bytes];
    let bytes = &mut bytes[..fields.bytes];
    user_memory::read(bytes, from).map_err(|_| Error::BadAddress)?;
    Ok(parse(bytes, fields))
}

/// Tells a program what is so.
pub(crate) fn write_status(to: UserAddr, width: Width, status: &Status) -> Result<()> {
    let fields = width.fields();
    let mut bytes = [0; WIDE.bytes];
    let bytes = &mut bytes[..fields.bytes];
    format(status, fields, bytes)?;
    user_memory::write(to, bytes).map_err(|_| Error::BadAddress)
}

/// `struct loop_config`: the file's descriptor, the size of blocks (0: the usual one), and the rest.
pub(crate) fn read_configuration(from: UserAddr) -> Result<(i32, u32, Status)> {
    let mut bytes = [0; CONFIGURATION_BYTES];
    user_memory::read(&mut bytes, from).map_err(|_| Error::BadAddress)?;
    let status = parse(&bytes[CONFIGURATION_STATUS..CONFIGURATION_STATUS + WIDE.bytes], &WIDE);
    Ok((word(&bytes, 0) as i32, word(&bytes, 4), status))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        let mut name = [0; NAME_BYTES];
        name[..5].copy_from_slice(b"/file");
        Status {
            device: 1,
            inode: 2,
            special: 3,
            offset: 4096,
            size_limit: 8192,
            number: 7,
            encryption: 0,
            flags: AUTOCLEAR,
            name,
        }
    }

    #[test]
    fn wide_structure_keeps_everything_and_narrow_one_all_but_the_limit() {
        let mut bytes = [0; WIDE.bytes];
        format(&status(), &WIDE, &mut bytes).unwrap();
        assert_eq!(parse(&bytes, &WIDE), status());
        let mut bytes = [0; NARROW.bytes];
        format(&status(), &NARROW, &mut bytes).unwrap();
        assert_eq!(parse(&bytes, &NARROW), Status { size_limit: 0, ..status() });
    }

    #[test]
    fn offset_that_does_not_fit_is_refused() {
        let far = Status { offset: 1 << 31, ..status() };
        assert_eq!(format(&far, &NARROW, &mut [0; NARROW.bytes]), Err(Error::Overflow));
    }

    #[test]
    fn name_always_ends() {
        let mut bytes = [b'x'; WIDE.bytes];
        assert_eq!(parse(&bytes, &WIDE).name[NAME_BYTES - 1], 0);
        bytes[WIDE.flags..WIDE.flags + 4].copy_from_slice(&PARTSCAN.to_ne_bytes());
        assert_eq!(parse(&bytes, &WIDE).flags, PARTSCAN);
    }
}
