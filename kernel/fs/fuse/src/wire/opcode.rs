//! The kinds of requests, by their numbers, and those of notifications.
#![allow(missing_docs, reason = "the names say it")]

pub const LOOKUP: u32 = 1;
pub const FORGET: u32 = 2;
pub const GET_ATTRIBUTES: u32 = 3;
pub const SET_ATTRIBUTES: u32 = 4;
pub const READ_LINK: u32 = 5;
pub const SYMBOLIC_LINK: u32 = 6;
pub const MAKE_NODE: u32 = 8;
pub const MAKE_DIRECTORY: u32 = 9;
pub const UNLINK: u32 = 10;
pub const REMOVE_DIRECTORY: u32 = 11;
pub const RENAME: u32 = 12;
pub const LINK: u32 = 13;
pub const OPEN: u32 = 14;
pub const READ: u32 = 15;
pub const WRITE: u32 = 16;
pub const STATUS: u32 = 17;
pub const RELEASE: u32 = 18;
pub const SYNC: u32 = 20;
pub const SET_EXTENDED: u32 = 21;
pub const GET_EXTENDED: u32 = 22;
pub const LIST_EXTENDED: u32 = 23;
pub const REMOVE_EXTENDED: u32 = 24;
pub const FLUSH: u32 = 25;
pub const INIT: u32 = 26;
pub const OPEN_DIRECTORY: u32 = 27;
pub const READ_DIRECTORY: u32 = 28;
pub const RELEASE_DIRECTORY: u32 = 29;
pub const SYNC_DIRECTORY: u32 = 30;
pub const GET_LOCK: u32 = 31;
pub const SET_LOCK: u32 = 32;
pub const SET_LOCK_WAIT: u32 = 33;
pub const ACCESS: u32 = 34;
pub const CREATE: u32 = 35;
pub const INTERRUPT: u32 = 36;
pub const CONTROL: u32 = 39;
pub const POLL: u32 = 40;
pub const NOTIFY_REPLY: u32 = 41;
pub const BATCH_FORGET: u32 = 42;
pub const ALLOCATE: u32 = 43;
pub const RENAME_FLAGGED: u32 = 45;
pub const SEEK: u32 = 46;
pub const COPY_RANGE: u32 = 47;

/// Notifications: messages of the server that answer nothing.
pub mod notification {
    pub const POLL: i32 = 1;
    pub const INVALID_INODE: i32 = 2;
    pub const INVALID_ENTRY: i32 = 3;
    pub const STORE: i32 = 4;
    pub const RETRIEVE: i32 = 5;
    pub const DELETED: i32 = 6;
}
