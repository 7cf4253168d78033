//! Files: directory entries, inodes, open files, mounts, pipes and notification.
//!
//! # The layers of an access by path
//! [`walk`] turns a path into a [`mount::Path`] (a mount and an entry of the [`dentry`] cache), reading everything it
//! can under RCU; [`tree`] opens, creates, removes and renames what it leads to; an [`inode`] holds a file's attributes
//! and its file system's part; a [`file::OpenFile`] is what descriptors refer to.
//!
//! # Who implements what
//! A file system implements [`superblock::FileSystemType`], [`superblock::SuperblockOperations`],
//! [`inode::InodeOperations`] and [`file::FileOperations`]; a driver implements [`device::DeviceDriver`] and
//! [`file::FileOperations`]. Trees whose contents are computed ([`generated`]) need only closures.
//!
//! # Notification
//! [`poll`] is the base of everything that waits for files to become ready, [`epoll`] included; [`inotify`] tells of
//! what happens to files.
//!
//! # Rules
//! Nothing here is unsafe, nothing user space can make large is allocated infallibly ([`allocation`]), no global lock is
//! on the path of an access by path or descriptor.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod access_list;
pub mod allocation;
pub mod anonymous;
pub mod attributes;
pub mod caller;
pub mod credentials;
pub mod dentry;
pub mod device;
pub mod disk;
pub mod dnotify;
pub mod epoll;
mod error;
pub mod eventfd;
pub mod fanotify;
pub mod file;
pub mod file_capabilities;
pub mod file_flags;
pub mod flags;
pub mod generated;
pub mod handle;
pub mod inode;
pub mod inotify;
pub mod lock;
pub mod mount;
pub mod name;
pub mod permission;
pub mod pipe;
pub mod poll;
pub mod signalfd;
pub mod sticky;
pub mod superblock;
pub mod text;
pub mod time;
pub mod timerfd;
pub mod tree;
pub mod user_space;
pub mod wait;
pub mod walk;
mod watch_account;
mod watched;

pub use error::{Error, Result};

/// Frames of memory for each directory entry that may be cached unused: about 2 % of the memory.
const FRAMES_PER_ENTRY: u64 = 4;

/// Sets the limits that follow from the memory's size, and lets memory reclaim shrink the entry cache. Once, at
/// start-up.
pub fn initialize() {
    static ENTRY_CACHE: dentry::EntryCache = dentry::EntryCache;
    let frames = memory::frame::total_frames();
    dentry::set_limit((frames / FRAMES_PER_ENTRY) as usize);
    epoll::set_max_user_watches(epoll::account::limit_for(frames));
    memory::reclaim::register(&ENTRY_CACHE);
    disk::initialize();
}

pub use attributes::{AttributeChange, DeviceNumber, FileKind, FileStatus, TimeChange, Timestamp};
pub use credentials::{Capabilities, Credentials};
pub use file::{
    DescriptorFlags, DescriptorTable, Descriptors, FileFeatures, FileMappingKind, FileOperations, FileOwner,
    FileRef, OpenFile, ReservedDescriptor, SeekFrom,
};
pub use flags::{Access, LookupFlags, MountFlags, OpenFlags};
pub use inode::Inode;
pub use mount::Path;
pub use poll::{PollEvents, PollList, PollTable};
pub use tree::{OpenHow, open_place};
pub use user_space::UserSpace;
pub use walk::{FileSystemContext, PathContext, Places};
pub use watch_account::{WatchAccount, fanotify_settings, inotify_settings};
