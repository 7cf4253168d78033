//! What a server says without having been asked.
//!
//! Each kind of notification has a length, and names have theirs: what does not fit is refused with `EINVAL`, and nothing is done.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::buffer::Source;
use vfs::{Error, Result, allocation};

use super::Connection;
use crate::wire::opcode::notification;
use crate::wire::{Decoder, Malformed};

/// What the server says at a time at most.
const STORE_BYTES_MAX: usize = 1 << 20;

/// A notification about files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Notification<'a> {
    /// Attributes are not true any more, and pages from `offset` on; a length of 0 or less: all of them. No pages if the offset is negative.
    InvalidInode { node: u64, offset: i64, length: i64 },
    /// A name is not true any more; or the file that has it was removed.
    InvalidEntry { directory: u64, name: &'a [u8] },
    /// These bytes are in the file.
    Store { node: u64, offset: u64, bytes: &'a [u8] },
    /// The server wants what is in memory of a file.
    Retrieve { unique: u64, node: u64, offset: u64, bytes: u32 },
    /// A file that is polled may be ready.
    Poll { watch: u64 },
}

fn name<'a>(values: &mut Decoder<'a>, length: usize) -> Result<&'a [u8]> {
    if length > vfs::name::NAME_MAX {
        return Err(Error::NameTooLong);
    }
    let name = values.bytes(length).map_err(invalid)?;
    match values.rest() {
        [0] if !name.is_empty() => Ok(name),
        _ => Err(Error::Invalid),
    }
}

fn invalid(_: Malformed) -> Error {
    Error::Invalid
}

impl<'a> Notification<'a> {
    /// Reads one.
    ///
    /// # Errors
    /// `EINVAL`, `ENAMETOOLONG`.
    pub(crate) fn read(code: i32, bytes: &'a [u8]) -> Result<Self> {
        let mut values = Decoder::new(bytes);
        let found = Self::read_parts(code, &mut values)?;
        let is_open = matches!(found, Self::InvalidEntry { .. });
        if is_open || values.rest().is_empty() { Ok(found) } else { Err(Error::Invalid) }
    }

    fn read_parts(code: i32, values: &mut Decoder<'a>) -> Result<Self> {
        let number = |values: &mut Decoder<'a>| values.u64().map_err(invalid);
        Ok(match code {
            notification::POLL => Self::Poll { watch: number(values)? },
            notification::INVALID_INODE => Self::InvalidInode {
                node: number(values)?,
                offset: number(values)?.cast_signed(),
                length: number(values)?.cast_signed(),
            },
            notification::INVALID_ENTRY => {
                let directory = number(values)?;
                let length = values.u32().map_err(invalid)?;
                values.u32().map_err(invalid)?;
                Self::InvalidEntry { directory, name: name(values, length as usize)? }
            }
            notification::DELETED => {
                let directory = number(values)?;
                number(values)?;
                let length = values.u32().map_err(invalid)?;
                values.u32().map_err(invalid)?;
                Self::InvalidEntry { directory, name: name(values, length as usize)? }
            }
            notification::STORE => {
                let (node, offset) = (number(values)?, number(values)?);
                let length = values.u32().map_err(invalid)?;
                values.u32().map_err(invalid)?;
                Self::Store { node, offset, bytes: values.bytes(length as usize).map_err(invalid)? }
            }
            notification::RETRIEVE => {
                let (unique, node, offset) = (number(values)?, number(values)?, number(values)?);
                let bytes = values.u32().map_err(invalid)?;
                values.u32().map_err(invalid)?;
                Self::Retrieve { unique, node, offset, bytes }
            }
            _ => return Err(Error::Invalid),
        })
    }
}

impl Connection {
    /// The server says something by itself.
    ///
    /// # Errors
    /// `EINVAL`, `ENAMETOOLONG`; `ENOENT` for a file that is not known.
    pub(crate) fn notify(self: &Arc<Self>, code: i32, source: &mut Source<'_>) -> Result<()> {
        if source.remaining() > STORE_BYTES_MAX {
            return Err(Error::Invalid);
        }
        let mut bytes: Vec<u8> = allocation::filled(0, source.remaining())?;
        if source.read(&mut bytes)? < bytes.len() {
            return Err(Error::BadAddress);
        }
        let found = Notification::read(code, &bytes)?;
        self.instance().ok_or(Error::NotFound)?.hear(&found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Body;

    fn bytes(body: Body) -> Vec<u8> {
        body.finish().expect("memory")
    }

    #[test]
    fn notifications_have_the_length_that_they_say() {
        let inode = bytes(Body::new().u64s(&[5, 0, 10]));
        let expected = Notification::InvalidInode { node: 5, offset: 0, length: 10 };
        assert_eq!(Notification::read(notification::INVALID_INODE, &inode), Ok(expected));
        for wrong in [&inode[..23], &[0; 25]] {
            assert_eq!(Notification::read(notification::INVALID_INODE, wrong), Err(Error::Invalid));
        }
        let store = bytes(Body::new().u64s(&[5, 4096]).u32s(&[3, 0]).bytes(b"abc"));
        let expected = Notification::Store { node: 5, offset: 4096, bytes: b"abc" };
        assert_eq!(Notification::read(notification::STORE, &store), Ok(expected));
        assert_eq!(Notification::read(notification::STORE, &store[..26]), Err(Error::Invalid));
        assert_eq!(Notification::read(77, &store), Err(Error::Invalid));
    }

    #[test]
    fn names_end_with_a_zero_byte_and_are_no_longer_than_names() {
        let entry = |length: u32, name: &[u8]| bytes(Body::new().u64s(&[1]).u32s(&[length, 0]).bytes(name));
        let read = |bytes: &[u8]| match Notification::read(notification::INVALID_ENTRY, bytes) {
            Ok(Notification::InvalidEntry { name, .. }) => Ok(Vec::from(name)),
            Ok(_) => panic!("another notification"),
            Err(error) => Err(error),
        };
        assert_eq!(read(&entry(1, b"a\0")), Ok(Vec::from(b"a")));
        for (length, name) in [(1, &b"a"[..]), (1, b"ab"), (2, b"a\0"), (0, b"\0"), (1, b"a\0\0")] {
            assert_eq!(read(&entry(length, name)), Err(Error::Invalid), "{length} {name:?}");
        }
        assert_eq!(read(&entry(u32::MAX, b"a\0")), Err(Error::NameTooLong));
    }
}
