//! Two sockets connected to each other, and one that may come to be.
//!
//! Both sockets hold the pair, and the pair holds no socket: there is no cycle of references, and an end outlives its socket
//! as long as the other one may look at it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use vfs::attributes::FileKind;
use vfs::flags::OpenFlags;
use vfs::{OpenFile, Result, allocation, anonymous};

use super::end::{End, state};
use super::endpoint::Endpoint;
use super::identity::Principal;
use super::options::settings;
use super::socket::{Kind, UnixSocket};

/// What is known of who made a pair.
#[derive(Clone, Debug)]
pub struct Ownership {
    /// What `SO_PEERCRED` and `SO_PEERGROUPS` show.
    pub maker: Principal,
    /// The owner of the sockets' inodes.
    pub user: u32,
    /// Their group.
    pub group: u32,
    /// The number of the name space of networks that they are in.
    pub network: u64,
}

/// What two connected sockets share.
pub(super) struct Pair {
    pub(super) kind: Kind,
    pub(super) ends: [End; 2],
    /// Who made both sides.
    pub(super) maker: Option<Principal>,
    /// Of the first socket; the second has the next one.
    pub(super) first_id: u64,
    /// The number of the name space of networks in which it was made: abstract names of each are its own.
    pub(super) network: u64,
}

/// With its count of references a pair takes a kilobyte of the heap; one more byte than that would take a quarter more. Where locks are
/// counted each of them is larger.
#[cfg(all(target_os = "none", not(debug_assertions)))]
const _: () = assert!(sync::classes::COUNTING || size_of::<Pair>() + 2 * size_of::<usize>() <= 1024);

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
    let ends = [const { End::new(state::CONNECTED) }; 2];
    let Ownership { maker, user, group, network } = owner;
    let pair = allocation::arc(Pair { kind, ends, maker: Some(maker), first_id, network })?;
    let make = |side: usize| open(Endpoint { pair: pair.clone(), side }, flags, user, group);
    Ok((make(0)?, make(1)?))
}

/// Makes a socket that is connected to nobody, in a name space of networks. Of the flags `O_NONBLOCK` counts.
///
/// # Errors
/// `ENOMEM`, `ENFILE`.
pub fn create(
    kind: Kind,
    flags: OpenFlags,
    (user, group): (u32, u32),
    network: u64,
) -> Result<Arc<OpenFile>> {
    let first_id = NEXT_ID.fetch_add(2, Ordering::Relaxed);
    // The second end is the one that whom it connects to will accept.
    let ends = [const { End::new(0) }; 2];
    let pair = allocation::arc(Pair { kind, ends, maker: None, first_id, network })?;
    let end = &pair.ends[0];
    end.backlog.store(settings::datagrams(), Ordering::Release);
    if kind == Kind::Datagram {
        end.enter(state::REDIRECTED);
    }
    open(Endpoint { pair, side: 0 }, flags, user, group)
}

/// Makes the open file of a side.
pub(super) fn open(at: Endpoint, flags: OpenFlags, user: u32, group: u32) -> Result<Arc<OpenFile>> {
    let inode = anonymous::new_inode(FileKind::Socket, MODE, user, group)?;
    let socket = allocation::arc(UnixSocket { at: at.clone() })?;
    let file = OpenFile::anonymous(inode, socket, (flags & OpenFlags::NON_BLOCK) | OpenFlags::READ_WRITE)?;
    if at.kind() == Kind::Stream {
        at.end().file.call_once(|| Arc::downgrade(&file));
    }
    Ok(file)
}
