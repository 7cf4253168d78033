//! Images that are file systems: recognised here, read by the kernel, which gets them as a disk.

/// The superblock of ext2 and its successors, and where in it the magic number is.
const EXT_SUPERBLOCK_AT: usize = 1024;
const EXT_MAGIC_AT: usize = 56;
const EXT_MAGIC: [u8; 2] = [0x53, 0xef];
/// What squashfs begins with.
const SQUASHFS_MAGIC: &[u8] = b"hsqs";

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// ext2, ext3 or ext4.
    Ext,
    /// squashfs.
    Squashfs,
}

impl FileSystem {
    /// What begins with these bytes.
    pub(super) fn recognise(start: &[u8]) -> Option<Self> {
        let magic = EXT_SUPERBLOCK_AT + EXT_MAGIC_AT;
        if start.starts_with(SQUASHFS_MAGIC) {
            Some(Self::Squashfs)
        } else if start.get(magic..magic + EXT_MAGIC.len()) == Some(&EXT_MAGIC[..]) {
            Some(Self::Ext)
        } else {
            None
        }
    }

    /// The type that the kernel mounts it as.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ext => "ext4",
            Self::Squashfs => "squashfs",
        }
    }

    /// Whether the guest can change it.
    pub(crate) const fn can_be_written(self) -> bool {
        matches!(self, Self::Ext)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_told_by_their_magic_numbers() {
        let mut ext = vec![0; 2048];
        ext[1080..1082].copy_from_slice(&EXT_MAGIC);
        assert_eq!(FileSystem::recognise(&ext), Some(FileSystem::Ext));
        assert_eq!(FileSystem::recognise(&ext[..1081]), None, "cut off before its end");
        assert_eq!(FileSystem::recognise(b"hsqs and more"), Some(FileSystem::Squashfs));
        assert_eq!(FileSystem::recognise(b"sqsh"), None, "of the other byte order");
        assert_eq!(FileSystem::recognise(b""), None);
    }
}
