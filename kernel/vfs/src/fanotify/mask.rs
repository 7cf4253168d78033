//! Events and flags, as in `fanotify_init(2)` and `fanotify_mark(2)`.

use bitflags::bitflags;

bitflags! {
    /// What a mark asks for, and what an event is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct FanMask: u32 {
        /// A file was read.
        const ACCESS = 0x1;
        /// It was written.
        const MODIFY = 0x2;
        /// Its attributes changed.
        const ATTRIBUTE = 0x4;
        /// A file open for writing was closed.
        const CLOSE_WRITE = 0x8;
        /// A file not open for writing was closed.
        const CLOSE_NO_WRITE = 0x10;
        /// It was opened.
        const OPEN = 0x20;
        /// A name was moved away.
        const MOVED_FROM = 0x40;
        /// A name was moved here.
        const MOVED_TO = 0x80;
        /// A name was created.
        const CREATE = 0x100;
        /// A name was deleted.
        const DELETE = 0x200;
        /// The file itself is gone.
        const DELETE_SELF = 0x400;
        /// The file itself was moved.
        const MOVE_SELF = 0x800;
        /// It was opened to be executed.
        const OPEN_EXECUTE = 0x1000;
        /// Events were lost.
        const OVERFLOW = 0x4000;
        /// May it be opened?
        const OPEN_PERMISSION = 0x1_0000;
        /// May it be read?
        const ACCESS_PERMISSION = 0x2_0000;
        /// May it be opened to be executed?
        const OPEN_EXECUTE_PERMISSION = 0x4_0000;
        /// Also events of what is in the directory.
        const ON_CHILD = 0x0800_0000;
        /// A name was moved: both directories and names at once.
        const RENAME = 0x1000_0000;
        /// Also events of directories; in an event: it is about one.
        const ON_DIRECTORY = 0x4000_0000;
    }
}

impl FanMask {
    /// Those that ask for permission.
    pub const PERMISSIONS: Self =
        Self::OPEN_PERMISSION.union(Self::ACCESS_PERMISSION).union(Self::OPEN_EXECUTE_PERMISSION);
    /// Those that are told with a descriptor of the file.
    pub const OF_FILES: Self = Self::PERMISSIONS
        .union(Self::ACCESS)
        .union(Self::MODIFY)
        .union(Self::CLOSE_WRITE)
        .union(Self::CLOSE_NO_WRITE)
        .union(Self::OPEN)
        .union(Self::OPEN_EXECUTE);
    /// Those about names in a directory.
    pub const OF_NAMES: Self =
        Self::CREATE.union(Self::DELETE).union(Self::MOVED_FROM).union(Self::MOVED_TO).union(Self::RENAME);
    /// What is no event, but says which are meant.
    pub const MODIFIERS: Self = Self::ON_CHILD.union(Self::ON_DIRECTORY);
    /// What a mark can ask for.
    pub const MARKABLE: Self = Self::all().difference(Self::OVERFLOW);
}

bitflags! {
    /// What a group is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GroupFlags: u32 {
        /// Its descriptor is closed when another program is executed.
        const CLOSE_ON_EXEC = 0x1;
        /// Its descriptor does not wait.
        const NON_BLOCK = 0x2;
        /// It may be asked, when the contents are final.
        const CLASS_CONTENT = 0x4;
        /// It may be asked, before the contents are final.
        const CLASS_PRE_CONTENT = 0x8;
        /// Any number of events may wait.
        const UNLIMITED_QUEUE = 0x10;
        /// It may have any number of marks.
        const UNLIMITED_MARKS = 0x20;
        /// Events come with a pidfd.
        const REPORT_PIDFD = 0x80;
        /// Events tell threads instead of processes.
        const REPORT_TID = 0x100;
        /// Events come with the handle of the file.
        const REPORT_FID = 0x200;
        /// Events come with the handle of the directory.
        const REPORT_DIRECTORY = 0x400;
        /// Events come with the name in the directory.
        const REPORT_NAME = 0x800;
        /// Events about names come with the handle of the file, too.
        const REPORT_TARGET = 0x1000;
        /// Its maker had no privileges: it hears of no other process's number.
        const UNPRIVILEGED = 0x8000_0000;
    }
}

impl GroupFlags {
    /// It gets handles instead of descriptors.
    pub const HANDLES: Self = Self::REPORT_FID.union(Self::REPORT_DIRECTORY);
    /// What takes privileges.
    pub const PRIVILEGED: Self = Self::CLASS_CONTENT
        .union(Self::CLASS_PRE_CONTENT)
        .union(Self::UNLIMITED_QUEUE)
        .union(Self::UNLIMITED_MARKS)
        .union(Self::REPORT_PIDFD)
        .union(Self::REPORT_TID);

    /// In which order groups are asked: the highest first.
    pub(super) fn class(self) -> u8 {
        u8::from(self.contains(Self::CLASS_CONTENT)) + 2 * u8::from(self.contains(Self::CLASS_PRE_CONTENT))
    }
}

/// The classes there are.
pub(super) const CLASSES: u8 = 3;

bitflags! {
    /// How a mark is made or taken back.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MarkFlags: u32 {
        /// Adds to what is asked for.
        const ADD = 0x1;
        /// Takes away from it.
        const REMOVE = 0x2;
        /// Does not follow a symbolic link.
        const DO_NOT_FOLLOW = 0x4;
        /// Marks directories only.
        const ONLY_DIRECTORY = 0x8;
        /// Marks the mount.
        const MOUNT = 0x10;
        /// The events are to be ignored, whatever else the mask says.
        const IGNORED_MASK = 0x20;
        /// They are ignored also after the file was modified.
        const IGNORED_SURVIVES = 0x40;
        /// Takes all marks of a kind back.
        const FLUSH = 0x80;
        /// Marks the file system.
        const FILE_SYSTEM = 0x100;
        /// The mark does not keep its inode in memory.
        const EVICTABLE = 0x200;
        /// As `IGNORED_MASK`, with the modifiers meant as they are given.
        const IGNORE = 0x400;
    }
}

/// What marks hang on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkedKind {
    /// A file or directory.
    Inode,
    /// A mount.
    Mount,
    /// A file system.
    FileSystem,
}
