//! The flag words of file system calls, with their values on x86-64.

use bitflags::bitflags;

bitflags! {
    /// Flags of `open(2)` and the status flags of an open file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct OpenFlags: u32 {
        /// Open for writing only.
        const WRITE_ONLY = 0o1;
        /// Open for reading and writing.
        const READ_WRITE = 0o2;
        /// Create the file when it does not exist.
        const CREATE = 0o100;
        /// Fail when it exists.
        const EXCLUSIVE = 0o200;
        /// Do not make a terminal the controlling one.
        const NO_CONTROLLING_TERMINAL = 0o400;
        /// Truncate to length 0.
        const TRUNCATE = 0o1000;
        /// Every write goes to the end.
        const APPEND = 0o2000;
        /// Do not wait.
        const NON_BLOCK = 0o4000;
        /// Writes wait for the data (and what is needed to read it back) to be stored.
        const DATA_SYNC = 0o10000;
        /// Signal-driven input and output.
        const ASYNC = 0o20000;
        /// Bypass the page cache where the file system can.
        const DIRECT = 0o40000;
        /// Accepted, no meaning on a 64-bit machine.
        const LARGE_FILE = 0o100000;
        /// Fail unless it is a directory.
        const DIRECTORY = 0o200000;
        /// Fail when the last component is a symbolic link.
        const NO_FOLLOW = 0o400000;
        /// Do not update the access time.
        const NO_ACCESS_TIME = 0o1000000;
        /// Close on exec.
        const CLOSE_ON_EXEC = 0o2000000;
        /// The part of `O_SYNC` beyond `O_DSYNC`.
        const FILE_SYNC = 0o4000000;
        /// A handle for a place in the tree only.
        const PATH = 0o10000000;
        /// The part of `O_TMPFILE` beyond `O_DIRECTORY`.
        const TEMPORARY_FILE = 0o20000000;
    }
}

impl OpenFlags {
    /// The bits of the access mode.
    pub const ACCESS_MODE: u32 = 3;
    /// Flags that `fcntl(F_SETFL)` may change.
    pub const SETTABLE: Self = Self::APPEND
        .union(Self::NON_BLOCK)
        .union(Self::ASYNC)
        .union(Self::DIRECT)
        .union(Self::NO_ACCESS_TIME);
    /// Flags that only matter while opening and are not shown by `F_GETFL`.
    pub const CREATION: Self = Self::CREATE
        .union(Self::EXCLUSIVE)
        .union(Self::NO_CONTROLLING_TERMINAL)
        .union(Self::TRUNCATE)
        .union(Self::CLOSE_ON_EXEC);

    /// Whether the access mode allows reading.
    #[inline]
    pub const fn readable(self) -> bool {
        !matches!(self.bits() & Self::ACCESS_MODE, 1 | 3) && !self.contains(Self::PATH)
    }

    /// Whether the access mode allows writing.
    #[inline]
    pub const fn writable(self) -> bool {
        matches!(self.bits() & Self::ACCESS_MODE, 1 | 2) && !self.contains(Self::PATH)
    }
}

bitflags! {
    /// How a path is to be walked.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct LookupFlags: u32 {
        /// Follow a symbolic link in the last component.
        const FOLLOW = 1;
        /// The result must be a directory (also asked for by a trailing slash).
        const DIRECTORY = 2;
        /// An empty path means the starting point itself (`AT_EMPTY_PATH`).
        const EMPTY_PATH = 4;
        /// Do not cross mounts (`RESOLVE_NO_XDEV`).
        const NO_CROSSING = 8;
        /// No magic links (`RESOLVE_NO_MAGICLINKS`).
        const NO_MAGIC_LINKS = 16;
        /// No symbolic links at all (`RESOLVE_NO_SYMLINKS`).
        const NO_LINKS = 32;
        /// Never leave the starting directory (`RESOLVE_BENEATH`).
        const BENEATH = 64;
        /// The starting directory is the root (`RESOLVE_IN_ROOT`).
        const IN_ROOT = 128;
        /// Only what is cached (`RESOLVE_CACHED`).
        const CACHED = 256;
        /// Do not step onto what is mounted on the last component (`umount`, `UMOUNT_NOFOLLOW` is separate).
        const NO_MOUNT_POINT = 512;
    }
}

bitflags! {
    /// Flags of `renameat2(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct RenameFlags: u32 {
        /// Fail when the target exists.
        const NO_REPLACE = 1;
        /// Swap the two names.
        const EXCHANGE = 2;
        /// Leave a whiteout behind: a character device 0:0, by which an overlay hides what lies below.
        const WHITEOUT = 4;
    }
}

bitflags! {
    /// Properties of one mount. The values are those of `mount(2)` where there is one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct MountFlags: u32 {
        /// Nothing may be changed through this mount.
        const READ_ONLY = 1;
        /// Set-user-id and set-group-id bits are ignored.
        const NO_SET_ID = 2;
        /// Device nodes can't be opened.
        const NO_DEVICES = 4;
        /// Programs can't be executed.
        const NO_EXECUTE = 8;
        /// Writes are synchronous.
        const SYNCHRONOUS = 16;
        /// Symbolic links are not followed.
        const NO_LINKS = 256;
        /// Access times are never updated.
        const NO_ACCESS_TIME = 1024;
        /// Access times of directories are never updated.
        const NO_DIRECTORY_ACCESS_TIME = 2048;
        /// Access times are updated when older than a change, or than a day.
        const RELATIVE_ACCESS_TIME = 1 << 21;
        /// Access times are always updated.
        const STRICT_ACCESS_TIME = 1 << 24;
    }
}

impl MountFlags {
    /// What a bind remount may change.
    pub const CHANGEABLE: Self = Self::all().difference(Self::SYNCHRONOUS);
}

bitflags! {
    /// Flags of `umount2(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct UnmountFlags: u32 {
        /// Abort what is under way.
        const FORCE = 1;
        /// Detach now, clean up when no longer busy.
        const DETACH = 2;
        /// Only mark as expired.
        const EXPIRE = 4;
        /// Do not follow a symbolic link in the target.
        const NO_FOLLOW = 8;
    }
}

bitflags! {
    /// What an access check asks for; the values are those of `access(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Access: u32 {
        /// Execute, or search of a directory.
        const EXECUTE = 1;
        /// Write.
        const WRITE = 2;
        /// Read.
        const READ = 4;
    }
}

bitflags! {
    /// Modes of `fallocate(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct AllocateMode: u32 {
        /// Do not change the file's size.
        const KEEP_SIZE = 1;
        /// Free the range.
        const PUNCH_HOLE = 2;
        /// Remove the range and close up.
        const COLLAPSE_RANGE = 8;
        /// Make the range read as zeroes.
        const ZERO_RANGE = 16;
        /// Insert a hole and move the rest up.
        const INSERT_RANGE = 32;
    }
}

impl AllocateMode {
    /// Modes by which what is behind the range gets another place: the file system sets the size.
    pub const MOVES: Self = Self::COLLAPSE_RANGE.union(Self::INSERT_RANGE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_modes_decide_readability() {
        assert!(OpenFlags::empty().readable() && !OpenFlags::empty().writable());
        assert!(OpenFlags::WRITE_ONLY.writable() && !OpenFlags::WRITE_ONLY.readable());
        assert!(OpenFlags::READ_WRITE.writable() && OpenFlags::READ_WRITE.readable());
        let ioctl_only = OpenFlags::from_bits_retain(3);
        assert!(!ioctl_only.readable() && !ioctl_only.writable());
        assert!(!OpenFlags::PATH.readable());
    }
}
