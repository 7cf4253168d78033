//! Capabilities that a program file gives: the extended attribute `security.capability` (capabilities(7), "File capabilities").
//!
//! The value is a word with the revision and the bit "effective", then permitted and inheritable sets in halves of 32 bits, the lower ones first; revision
//! 3 ends with the user who is root where the capabilities count. Revision 1 has lower halves only: it is read, never set.
//!
//! Like set-user-ID, such an attribute goes when the file is written, cut off or given away, and unlike it whoever does so. Most files have none, so each inode
//! says whether it may have one ([`InodeHead::may_have_capabilities`](crate::inode::InodeHead::may_have_capabilities)): a file system says so of what it finds stored, setting the
//! attribute does, and the first write that finds none takes it back.

use alloc::borrow::Cow;

use crate::credentials::Capabilities;
use crate::inode::{Inode, SetAttribute};
use crate::{Error, Result, allocation};

/// The attribute's name.
pub const ATTRIBUTE: &[u8] = b"security.capability";

const REVISION_MASK: u32 = 0xff00_0000;
const REVISION_1: u32 = 0x0100_0000;
const REVISION_2: u32 = 0x0200_0000;
const REVISION_3: u32 = 0x0300_0000;
const EFFECTIVE: u32 = 1;
const BYTES_1: usize = 12;
const BYTES_2: usize = 20;
const BYTES_3: usize = 24;

/// What a program file gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCapabilities {
    /// Given to whoever executes it, within the bounding set.
    pub permitted: Capabilities,
    /// Given to those who have them inheritable.
    pub inheritable: Capabilities,
    /// What is given is effective at once.
    pub effective: bool,
    /// The user who is root where they count: 0 everywhere but in name spaces of users.
    pub root: u32,
}

impl FileCapabilities {
    /// Reads a stored value.
    ///
    /// # Errors
    /// `EINVAL` if it is none.
    pub fn from_value(value: &[u8]) -> Result<FileCapabilities> {
        let word = |index: usize| {
            value.get(index * 4..index * 4 + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        };
        let (halves, root) = match (word(0) & REVISION_MASK, value.len()) {
            (REVISION_1, BYTES_1) => (1, 0),
            (REVISION_2, BYTES_2) => (2, 0),
            (REVISION_3, BYTES_3) => (2, word(5)),
            _ => return Err(Error::Invalid),
        };
        let set = |first: usize| {
            let high = if halves == 2 { u64::from(word(first + 2)) << 32 } else { 0 };
            Capabilities::from_bits_truncate(u64::from(word(first)) | high)
        };
        Ok(FileCapabilities {
            permitted: set(1),
            inheritable: set(2),
            effective: word(0) & EFFECTIVE != 0,
            root,
        })
    }

    /// Those of a file; `None` if it has none, or none that count here.
    ///
    /// # Errors
    /// `EINVAL` if the stored value is none; what the file system says.
    pub fn of(inode: &Inode) -> Result<Option<FileCapabilities>> {
        if !inode.may_have_capabilities() {
            return Ok(None);
        }
        let mut value = [0; BYTES_3];
        match inode.operations().extended_attribute(inode, ATTRIBUTE, &mut value) {
            Ok(length) => Ok(Some(Self::from_value(&value[..length])?).filter(|found| found.root == 0)),
            Err(Error::NoData | Error::NotSupported) => Ok(None),
            Err(Error::Range) => Err(Error::Invalid),
            Err(error) => Err(error),
        }
    }
}

/// Whether programs may set this value.
pub(crate) fn is_settable(value: &[u8]) -> bool {
    FileCapabilities::from_value(value).is_ok() && value.len() != BYTES_1
}

/// A stored value as programs see it: of root's capabilities nobody need know that they could be another root's.
pub(crate) fn shown(value: &[u8]) -> Result<Cow<'_, [u8]>> {
    let found = FileCapabilities::from_value(value)?;
    if value.len() != BYTES_3 || found.root != 0 {
        return Ok(Cow::Borrowed(value));
    }
    let mut shorter = allocation::filled(0, BYTES_2)?;
    shorter.copy_from_slice(&value[..BYTES_2]);
    shorter[..4].copy_from_slice(&(REVISION_2 | u32::from(found.effective)).to_le_bytes());
    Ok(Cow::Owned(shorter))
}

/// Copies the value as programs see it into `buffer`, nothing if that is empty; returns its length.
pub(crate) fn get(inode: &Inode, buffer: &mut [u8]) -> Result<usize> {
    let mut value = [0; BYTES_3];
    let length = match inode.operations().extended_attribute(inode, ATTRIBUTE, &mut value) {
        Err(Error::Range) => return Err(Error::Invalid),
        outcome => outcome?,
    };
    let shown = shown(&value[..length])?;
    if !buffer.is_empty() {
        buffer.get_mut(..shown.len()).ok_or(Error::Range)?.copy_from_slice(&shown);
    }
    Ok(shown.len())
}

/// Takes a file's capabilities away; the inode is locked exclusively.
#[cold]
#[inline(never)]
pub(crate) fn remove(inode: &Inode) -> Result<()> {
    match inode.operations().extended_attribute(inode, ATTRIBUTE, &mut []) {
        Ok(_) => inode.operations().remove_extended_attribute(inode, ATTRIBUTE)?,
        Err(Error::NoData | Error::NotSupported) => {}
        Err(error) => return Err(error),
    }
    inode.expect_capabilities(false);
    Ok(())
}

/// Sets an attribute of a file below another file system, where nobody is asked who may.
///
/// # Errors
/// What the file system says.
pub fn set_below(inode: &Inode, name: &[u8], value: &[u8], how: SetAttribute) -> Result<()> {
    if name == ATTRIBUTE {
        inode.expect_capabilities(true);
    }
    inode.operations().set_extended_attribute(inode, name, value, how)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn value(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn revisions_have_their_lengths() {
        let two = value(&[REVISION_2 | EFFECTIVE, 1 << 13, 0, 1 << 1, 1 << 2]);
        let read = FileCapabilities::from_value(&two).expect("well formed");
        assert_eq!(read.permitted, Capabilities::NET_RAW | Capabilities::MAC_ADMIN);
        assert_eq!(read.inheritable, Capabilities::SYSLOG);
        assert!(read.effective);
        let three = value(&[REVISION_3, 1, 2, 0, 0, 1000]);
        let read = FileCapabilities::from_value(&three).expect("well formed");
        assert_eq!((read.permitted, read.root), (Capabilities::CHOWN, 1000));
        let one = value(&[REVISION_1, 1, 2]);
        assert!(FileCapabilities::from_value(&one).is_ok() && !is_settable(&one));
        for wrong in [&two[..16], &three[..20], &[], &value(&[REVISION_3, 1, 2, 0, 0])[..]] {
            assert_eq!(FileCapabilities::from_value(wrong), Err(Error::Invalid));
        }
    }

    #[test]
    fn what_is_roots_is_shown_without_saying_whose() {
        let words = [REVISION_3 | EFFECTIVE, 1, 2, 3, 4, 0];
        let shorter = value(&[REVISION_2 | EFFECTIVE, 1, 2, 3, 4]);
        assert_eq!(&*shown(&value(&words)).expect("memory"), &shorter[..]);
        let others = value(&[REVISION_3, 1, 2, 3, 4, 7]);
        assert_eq!(&*shown(&others).expect("memory"), &others[..]);
    }

    #[test]
    fn unknown_capabilities_do_not_count() {
        let read =
            FileCapabilities::from_value(&value(&[REVISION_2, 0, 0, u32::MAX, 0])).expect("well formed");
        assert!(Capabilities::all().contains(read.permitted) && !read.effective);
    }
}
