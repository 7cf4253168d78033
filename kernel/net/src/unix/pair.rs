//! Two sockets connected to each other.
//!
//! Both sockets hold the pair, and the pair holds no socket: there is no cycle of references, and an end outlives its socket
//! as long as the other one may look at it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use vfs::attributes::FileKind;
use vfs::flags::OpenFlags;
use vfs::{OpenFile, Result, allocation, anonymous};

use super::end::End;
use super::identity::Identity;
use super::socket::{Kind, UnixSocket};

/// What is known of who made a pair.
#[derive(Clone, Copy, Debug)]
pub struct Ownership {
    /// What `SO_PEERCRED` shows.
    pub identity: Identity,
    /// The owner of the sockets' inodes.
    pub user: u32,
    /// Their group.
    pub group: u32,
}

/// What two connected sockets share.
pub(super) struct Pair {
    pub(super) kind: Kind,
    pub(super) ends: [End; 2],
    /// Who made it.
    pub(super) maker: Identity,
    /// Of the first socket; the second has the next one.
    pub(super) first_id: u64,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(2);

/// Permissions that `fstat` shows of a socket.
const MODE: u32 = 0o777;

/// Makes two sockets connected to each other. Of the flags `O_NONBLOCK` counts.
///
/// # Errors
/// `ENOMEM`, `ENFILE`.
pub fn create_pair(kind: Kind, flags: OpenFlags, owner: Ownership) -> Result<(Arc<OpenFile>, Arc<OpenFile>)> {
    // Relaxed: only uniqueness matters.
    let first_id = NEXT_ID.fetch_add(2, Ordering::Relaxed);
    let pair =
        allocation::arc(Pair { kind, ends: [const { End::new() }; 2], maker: owner.identity, first_id })?;
    let make = |side: usize| {
        let inode = anonymous::new_inode(FileKind::Socket, MODE, owner.user, owner.group)?;
        let socket = allocation::arc(UnixSocket::new(pair.clone(), side))?;
        OpenFile::anonymous(inode, socket, (flags & OpenFlags::NON_BLOCK) | OpenFlags::READ_WRITE)
    };
    Ok((make(0)?, make(1)?))
}
