//! Names of local sockets (unix(7)): files, and names of the abstract space, which begin with a zero byte.
//!
//! Names in use are in a table in shards by hash; of a file its inode counts, so that links to it and renames of it lead to the socket. A
//! bound file's place is kept as long as the socket is: its file system can't be unmounted.
//!
//! # Locking
//! A socket's link, then a shard. Nothing is dropped with a shard locked.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use vfs::inode::Inode;
use vfs::mount::Path;
use vfs::{Error, Result, allocation};

use super::endpoint::Endpoint;
use super::socket::{Kind, UnixSocket};

/// Most bytes of a name.
pub const NAME_MAX: usize = 108;

/// A socket's name.
#[derive(Debug)]
pub struct Name {
    bytes: Vec<u8>,
}

impl Name {
    /// As it stands in an address: a path with its terminator, or a zero byte and an abstract name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn is_abstract(&self) -> bool {
        self.bytes.first() == Some(&0)
    }
}

/// A name in use.
struct Bound {
    hash: u64,
    name: Arc<Name>,
    /// The socket's file; none of an abstract name.
    place: Option<Path>,
    at: Endpoint,
}

impl Bound {
    fn is_abstract(&self, bytes: &[u8], kind: Kind, network: u64) -> bool {
        self.name.is_abstract()
            && self.name.bytes == bytes
            && self.at.kind() == kind
            && self.at.pair.network == network
    }
}

const SHARDS: usize = 32;
/// By ascending hash.
static TABLE: [sched::Mutex<Vec<Bound>>; SHARDS] =
    [const { sched::Mutex::named("names of sockets", Vec::new()) }; SHARDS];

/// Names that are given on demand have five hexadecimal digits.
const AUTOMATIC_NAMES: u32 = 1 << 20;
/// The next of them.
static NEXT_AUTOMATIC: AtomicU32 = AtomicU32::new(0);

fn shard_of(hash: u64) -> &'static sched::Mutex<Vec<Bound>> {
    &TABLE[(hash >> 32) as usize % SHARDS]
}

/// FNV-1a, with the bits mixed for the shard.
fn hash_of(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn hash_of_inode(inode: &Arc<Inode>) -> u64 {
    hash_of(&(Arc::as_ptr(inode).cast::<u8>() as usize).to_ne_bytes())
}

/// The index of the first name with such a hash, or where it would be; and those that have it.
fn with_hash(table: &[Bound], hash: u64) -> (usize, impl Iterator<Item = &Bound>) {
    let first = table.partition_point(|bound| bound.hash < hash);
    (first, table[first..].iter().take_while(move |bound| bound.hash == hash))
}

fn is_of_inode(bound: &Bound, inode: &Arc<Inode>) -> bool {
    let own = bound.place.as_ref().and_then(|place| place.inode().ok());
    own.is_some_and(|own| Arc::ptr_eq(own, inode))
}

/// The socket of a kind that has an abstract name. Each kind, and each name space of networks, has names of its own.
///
/// # Errors
/// `ECONNREFUSED`.
pub fn find_abstract(bytes: &[u8], kind: Kind, network: u64) -> Result<Endpoint> {
    let hash = hash_of(bytes);
    let table = shard_of(hash).lock();
    let (_, mut candidates) = with_hash(&table, hash);
    let found = candidates.find(|bound| bound.is_abstract(bytes, kind, network));
    found.map(|bound| bound.at.clone()).ok_or(Error::ConnectionRefused)
}

/// The socket of a kind that a file is the name of.
///
/// # Errors
/// `ECONNREFUSED`; `EPROTOTYPE` when it is of another kind.
pub fn find_file(inode: &Arc<Inode>, kind: Kind) -> Result<Endpoint> {
    let hash = hash_of_inode(inode);
    let table = shard_of(hash).lock();
    let (_, mut candidates) = with_hash(&table, hash);
    let found = candidates.find(|bound| is_of_inode(bound, inode)).ok_or(Error::ConnectionRefused)?;
    if found.at.kind() == kind { Ok(found.at.clone()) } else { Err(Error::WrongSocketType) }
}

/// Takes a socket's name out of use.
pub(super) fn unbind(at: &Endpoint) {
    let Some(name) = at.end().name.get() else { return };
    let hash = at.end().bound_hash.load(Ordering::Acquire);
    let removed = {
        let mut table = shard_of(hash).lock();
        let (first, candidates) = with_hash(&table, hash);
        // Of an accepted connection the name is the listener's.
        let index = { candidates }.position(|bound| Arc::ptr_eq(&bound.name, name) && bound.at.is(at));
        index.map(|index| table.remove(first + index))
    };
    drop(removed);
}

impl UnixSocket {
    /// Whether it has a name.
    pub fn is_bound(&self) -> bool {
        self.own().name.get().is_some()
    }

    /// Its own name.
    pub fn name(&self) -> Option<&Arc<Name>> {
        self.own().name.get()
    }

    /// The peer's name; `None`: it has none.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn peer_name(&self) -> Result<Option<Arc<Name>>> {
        if self.kind().is_connection() {
            return match self.is_connected() {
                true => Ok(self.peer().name.get().cloned()),
                false => Err(Error::NotConnected),
            };
        }
        let remote = self.at.remote().ok_or(Error::NotConnected)?;
        Ok(remote.end().name.get().cloned())
    }

    /// The number of the name space of networks that it was made in.
    pub fn network(&self) -> u64 {
        self.at.pair.network
    }

    /// Gives it an abstract name, the first byte of which is zero.
    ///
    /// # Errors
    /// `EINVAL` if it has a name, `EADDRINUSE`, `ENOMEM`.
    pub fn bind_abstract(&self, bytes: &[u8]) -> Result<()> {
        debug_assert!(bytes.first() == Some(&0));
        self.bind(bytes, None)
    }

    /// Gives it the name of a socket file that was made for it. `bytes` are the path and its terminator.
    ///
    /// # Errors
    /// `EINVAL` if it has a name, `ENOMEM`.
    pub fn bind_file(&self, bytes: &[u8], place: Path) -> Result<()> {
        self.bind(bytes, Some(place))
    }

    /// Gives it an abstract name that nobody has, unless it has a name.
    ///
    /// # Errors
    /// `ENOSPC`, `ENOMEM`.
    pub fn bind_automatically(&self) -> Result<()> {
        for _ in 0..AUTOMATIC_NAMES {
            if self.is_bound() {
                return Ok(());
            }
            let number = NEXT_AUTOMATIC.fetch_add(1, Ordering::Relaxed) % AUTOMATIC_NAMES;
            let digit = |place: u32| b"0123456789abcdef"[(number >> (4 * place) & 0xf) as usize];
            match self.bind(&[0, digit(4), digit(3), digit(2), digit(1), digit(0)], None) {
                Err(Error::AddressInUse) => {}
                // Somebody else has given it one meanwhile.
                Err(Error::Invalid) => return Ok(()),
                outcome => return outcome,
            }
        }
        Err(Error::NoSpace)
    }

    fn bind(&self, bytes: &[u8], place: Option<Path>) -> Result<()> {
        let mut copy = Vec::new();
        allocation::extend(&mut copy, bytes)?;
        let name = allocation::arc(Name { bytes: copy })?;
        let hash = match &place {
            Some(place) => hash_of_inode(place.inode()?),
            None => hash_of(bytes),
        };
        let _link = self.own().link.lock();
        if self.is_bound() {
            return Err(Error::Invalid);
        }
        let mut table = shard_of(hash).lock();
        let first = {
            let (first, mut others) = with_hash(&table, hash);
            if place.is_none()
                && others.any(|bound| bound.is_abstract(bytes, self.kind(), self.at.pair.network))
            {
                return Err(Error::AddressInUse);
            }
            first
        };
        allocation::reserve(&mut table, 1)?;
        table.insert(first, Bound { hash, name: name.clone(), place, at: self.at.clone() });
        // Release: pairs with the Acquire in `unbind`.
        self.own().bound_hash.store(hash, Ordering::Release);
        self.own().name.call_once(|| name);
        Ok(())
    }
}
