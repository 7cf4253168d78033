//! File handles: names of files that outlive descriptors and paths (`name_to_handle_at`).
//!
//! A handle is bytes that a file system made of an inode and can find it by again, as long as it is there. What they mean only the file system knows.

use alloc::sync::Arc;

use crate::dentry::Dentry;
use crate::inode::Inode;
use crate::superblock::Superblock;
use crate::{Error, Result};

/// Bytes of the longest handle that a file system makes.
pub const HANDLE_BYTES_MAX: usize = 16;

/// A handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHandle {
    kind: i32,
    length: u8,
    bytes: [u8; HANDLE_BYTES_MAX],
}

impl FileHandle {
    /// The handle of these bytes.
    ///
    /// # Errors
    /// `ESTALE` for more than any file system makes.
    pub fn new(kind: i32, bytes: &[u8]) -> Result<Self> {
        let mut own = [0; HANDLE_BYTES_MAX];
        own.get_mut(..bytes.len()).ok_or(Error::Stale)?.copy_from_slice(bytes);
        Ok(Self { kind, length: bytes.len() as u8, bytes: own })
    }

    /// What kind of handle it is.
    pub fn kind(&self) -> i32 {
        self.kind
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// What a file system does that has handles.
pub trait Handles: Send + Sync {
    /// The handle of an inode, found at an entry.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn encode(&self, inode: &Arc<Inode>, entry: Option<&Arc<Dentry>>) -> Result<FileHandle>;

    /// The inode that a handle is of.
    ///
    /// # Errors
    /// `ESTALE` if it is not there any more, or the handle none of this file system.
    fn decode(&self, superblock: &Superblock, handle: &FileHandle) -> Result<Arc<Inode>>;

    /// An entry that leads to the inode, if that is known.
    fn entry(&self, _inode: &Arc<Inode>) -> Option<Arc<Dentry>> {
        None
    }

    /// The directory that a directory is in, or that another file is probably in ([`noted_parent`](crate::inode::InodeHead::noted_parent));
    /// `None` if it was removed, or that is not known.
    ///
    /// # Errors
    /// What reading it meets.
    fn parent(&self, _file: &Arc<Inode>) -> Result<Option<Arc<Inode>>> {
        Ok(None)
    }
}

/// The handle of a file.
///
/// # Errors
/// `EOPNOTSUPP` where there are none, `ENOMEM`.
pub fn encode(inode: &Arc<Inode>) -> Result<FileHandle> {
    let superblock = inode.superblock().ok_or(Error::Stale)?;
    superblock.operations().handles().ok_or(Error::NotSupported)?.encode(inode, None)
}
