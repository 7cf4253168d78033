//! What is known of a file apart from its inode: its pages may need it when the inode has gone.
//!
//! # Numbers at the server
//! A file is known to the server by a *path fid* for each name that it was found by, as far as it has several: servers find files by their names, so a fid is of no use
//! when its name has gone. Open files have others. Those that the pages are read and written by ([`File::reader`], [`File::writer`]) are opened when they are first needed
//! and kept until nobody has the file open, or its pages.
//!
//! # Files without names
//! Servers (QEMU among them) know no attributes of a file whose last name has gone, though it can be read and written as long as it is open. So then what is here counts:
//! its size is that of the inode, and what the server has beyond it is zeroes.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use machine::address::PAGE_SIZE;
use sync::SpinLock;
use vfs::{Error, Result, allocation};

use crate::client::Client;
use crate::fid::Fid;
use crate::transport::Piece;
use crate::wire::{Request, reply};

/// Names that are kept of a file.
const PATHS_MAX: usize = 16;

const READ_ONLY: u32 = 0;
const WRITE_ONLY: u32 = 1;
const READ_WRITE: u32 = 2;

/// A file that is open at the server.
pub(super) struct OpenFid {
    pub(super) fid: Fid,
    /// Bytes that a transfer may have.
    pub(super) transfer_bytes: usize,
    pub(super) readable: bool,
}

impl OpenFid {
    /// How it went to open a fid.
    pub(super) fn new(client: &Client, fid: Fid, unit: u32, readable: bool) -> Self {
        let most = client.data_bytes();
        let transfer_bytes = if unit == 0 { most } else { unit.min(most) } as usize;
        Self { fid, transfer_bytes, readable }
    }
}

/// Those that pages travel by.
#[derive(Default)]
struct Ways {
    reader: Option<Arc<OpenFid>>,
    writer: Option<Arc<OpenFid>>,
}

/// See the theory of this file.
pub(super) struct File {
    pub(super) client: Arc<Client>,
    /// The file's number.
    pub(super) number: u64,
    paths: SpinLock<Vec<Arc<Fid>>>,
    ways: sched::Mutex<Ways>,
    /// Open files.
    pub(super) openers: AtomicUsize,
    /// Its last name has gone.
    pub(super) nameless: AtomicBool,
    /// Nobody can reach it any more: what is still dirty need not be written.
    pub(super) gone: AtomicBool,
    /// The size that the server has, of a file without names.
    server_size: AtomicU64,
}

/// A new fid: for the file itself, or for one in the directory; and which file that is.
pub(super) fn walk(
    client: &Arc<Client>,
    from: &Fid,
    name: Option<&[u8]>,
) -> Result<(Fid, Option<reply::Identity>)> {
    let fid = Fid::new(client)?;
    let request = Request::Walk { fid: from.number(), new_fid: fid.number(), name };
    let walked = client.ask(&request, |values| reply::walk(values, name.is_some().into()));
    let identity = fid.established(walked)?;
    Ok((fid, identity))
}

impl File {
    pub(super) fn new(client: &Arc<Client>, number: u64, path: Fid) -> Result<Arc<Self>> {
        let mut paths = Vec::new();
        allocation::push(&mut paths, allocation::arc(path)?)?;
        allocation::arc(Self {
            client: client.clone(),
            number,
            paths: SpinLock::named("names of a file at a server", paths),
            ways: sched::Mutex::named("open files at a server", Ways::default()),
            openers: AtomicUsize::new(0),
            nameless: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            server_size: AtomicU64::new(0),
        })
    }

    /// It was found by a name just now: of a file with one name the only one.
    pub(super) fn found_by(&self, path: Fid, links: u32) -> Result<()> {
        let path = allocation::arc(path)?;
        let former = {
            let mut paths = allocation::lock_with_room(|| self.paths.lock(), 1, |paths| paths)?;
            if links <= 1 || paths.len() >= PATHS_MAX {
                let last = paths.len() - 1;
                Some(core::mem::replace(&mut paths[last], path))
            } else {
                paths.push(path);
                None
            }
        };
        drop(former);
        Ok(())
    }

    /// The fid of a name.
    pub(super) fn path(&self) -> Arc<Fid> {
        self.paths.lock().last().expect("there is always one").clone()
    }

    /// A name has gone. False if it is the only one.
    fn forget(&self, path: &Arc<Fid>) -> bool {
        let forgotten = {
            let mut paths = self.paths.lock();
            let found = paths.iter().position(|known| Arc::ptr_eq(known, path));
            match found {
                Some(index) if paths.len() > 1 => Some(paths.swap_remove(index)),
                _ => return found.is_none(),
            }
        };
        drop(forgotten);
        true
    }

    /// Does something by a name that is still there.
    pub(super) fn by_name<R>(&self, mut what: impl FnMut(&Fid) -> Result<R>) -> Result<R> {
        loop {
            let path = self.path();
            match what(&path) {
                Err(Error::NotFound | Error::Stale) if self.forget(&path) => {}
                outcome => return outcome,
            }
        }
    }

    /// Opens it at the server.
    pub(super) fn open(&self, flags: u32) -> Result<Arc<OpenFid>> {
        let readable = flags & 3 != WRITE_ONLY;
        self.by_name(|path| {
            let (fid, _) = walk(&self.client, path, None)?;
            let (_, unit) = self.client.ask(&Request::Open { fid: fid.number(), flags }, reply::opened)?;
            allocation::arc(OpenFid::new(&self.client, fid, unit, readable))
        })
    }

    /// It was made, and is open.
    pub(super) fn set_writer(&self, writer: Arc<OpenFid>) {
        self.ways.lock().writer = Some(writer);
    }

    /// What pages are read by.
    pub(super) fn reader(&self) -> Result<Arc<OpenFid>> {
        let mut ways = self.ways.lock();
        if let Some(writer) = ways.writer.as_ref().filter(|writer| writer.readable) {
            return Ok(writer.clone());
        }
        if ways.reader.is_none() {
            ways.reader = Some(self.open(READ_ONLY)?);
        }
        ways.reader.clone().ok_or(Error::Io)
    }

    /// What pages are written by.
    pub(super) fn writer(&self) -> Result<Arc<OpenFid>> {
        let mut ways = self.ways.lock();
        if ways.writer.is_none() {
            let writer = match self.open(READ_WRITE) {
                Err(Error::AccessDenied | Error::NotPermitted) => self.open(WRITE_ONLY),
                outcome => outcome,
            };
            ways.writer = Some(writer?);
        }
        ways.writer.clone().ok_or(Error::Io)
    }

    /// Closes what pages travel by. They are opened again if that should be needed.
    pub(super) fn close(&self) {
        let ways = core::mem::take(&mut *self.ways.lock());
        drop(ways);
    }

    /// Its last name has gone, when it had so many bytes.
    pub(super) fn lose_name(&self, size: u64) {
        if !self.nameless.swap(true, Relaxed) {
            self.server_size.store(size, Relaxed);
        }
    }

    /// Whether its last name has gone.
    pub(super) fn is_nameless(&self) -> bool {
        self.nameless.load(Relaxed)
    }

    /// A file without names gets so many bytes. The inode's lock is held.
    pub(super) fn cut_nameless(&self, size: u64) -> Result<()> {
        let mut at = size;
        let end = self.server_size.load(Relaxed);
        if at < end {
            let writer = self.writer()?;
            let zeroes = crate::client::frames_for(PAGE_SIZE)?;
            zeroes[0].frame.zero();
            while at < end {
                let bytes = (end - at).min(writer.transfer_bytes as u64) as usize;
                let mut pieces = Vec::new();
                allocation::reserve(&mut pieces, bytes.div_ceil(PAGE_SIZE))?;
                for from in (0..bytes).step_by(PAGE_SIZE) {
                    let frame = zeroes[0].frame.clone();
                    pieces.push(Piece { frame, offset: 0, bytes: (bytes - from).min(PAGE_SIZE) });
                }
                match self.client.write_frames(writer.fid.number(), at, pieces)? {
                    0 => return Err(Error::Io),
                    written => at += written as u64,
                }
            }
        }
        Ok(())
    }

    /// So much was written to the server.
    pub(super) fn wrote_up_to(&self, end: u64) {
        if self.is_nameless() {
            self.server_size.fetch_max(end, Relaxed);
        }
    }
}
