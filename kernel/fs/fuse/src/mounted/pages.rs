//! Pages of a file: their way to and from the server.
//!
//! # In
//! A read asks the server for bytes and keeps them ([`Contents::keep`]): it puts them where [`fill`](FileRepresentative::fill) finds them, and has the cache ask for its pages. A
//! fault of a mapping asks the server itself, in the thread that faults.
//!
//! # Out
//! Pages that programs have stored to by mappings are copied into a request, and count as written then: neither `sync` nor reclaim nor an unmount waits for a server. What is on
//! its way is limited, and two writes of one page never are; pages beyond that stay dirty until one of those writes is over. A file that was closed before all of it was
//! written stays open at the server as long. Who wants to know that everything is written (`fsync`, `close`) waits for the
//! requests, and can be killed.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use machine::address::{PAGE_SHIFT, PAGE_SIZE};
use memory::file_cache::{CacheError, FileCache, FileRepresentative, PageRun};
use sched::WaitQueue;
use sync::{Once, SpinLock};
use vfs::{Error, Result, allocation};

use super::handle::Handle;
use crate::connection::{Call, Connection, Ending, Room, killable};
use crate::wire::{Decoder, opcode};

/// Writes of pages under way for a file at most: two megabytes of copies.
const WRITES_MAX: usize = 16;
/// Says of a write that it comes from pages.
const FROM_PAGES: u32 = 1;
/// How often somebody who waits for all pages has those begun that were beyond the limit. Who goes on making pages dirty does not keep him.
const ROUNDS_MAX: usize = 1 << 16;

/// How often pages are asked for that are changed while the server reads them. Who changes a file without pause does not keep others for ever.
const FILLS_MAX: u32 = 64;

/// Bytes that a read has brought.
struct Staged {
    first: u64,
    pages: usize,
    bytes: Vec<u8>,
}

/// An open file, and what it is open for.
struct Known {
    handle: Weak<Handle>,
    reads: bool,
    writes: bool,
}

/// What is needed to read and write a file: its number, its open files, and what is on its way.
pub(super) struct Contents {
    connection: Arc<Connection>,
    number: u64,
    handles: SpinLock<Vec<Known>>,
    /// Held while bytes are staged.
    keeping: sched::Mutex<()>,
    staged: SpinLock<Option<Arc<Staged>>>,
    /// First and last page of each write under way.
    writes: SpinLock<Vec<(u64, u64)>>,
    writes_end: WaitQueue,
    /// The pages.
    cache: Once<Weak<FileCache>>,
    /// Open until all pages are written.
    kept: SpinLock<Option<Arc<Handle>>>,
    /// Somebody begins what is left to be written.
    goes_on: AtomicBool,
    /// A write has failed that nobody was told of.
    has_failed: AtomicBool,
    /// Changes under way that no write of pages is to overtake; changed with `writes` held.
    halts: AtomicU32,
    /// When something was changed here last: see [`Connection::moment`].
    changed_at: AtomicU64,
    /// Held while a change is noted, and while pages from before none was become visible.
    showing: sched::Mutex<()>,
}

impl Contents {
    pub(super) fn new(connection: &Arc<Connection>, number: u64) -> Result<Arc<Self>> {
        allocation::arc(Self {
            connection: connection.clone(),
            number,
            handles: SpinLock::named("open files of a server", Vec::new()),
            keeping: sched::Mutex::named("bytes that become pages", ()),
            staged: SpinLock::named("bytes that become pages now", None),
            writes: SpinLock::named("writes of pages to a server", Vec::new()),
            writes_end: WaitQueue::new(),
            cache: Once::new(),
            kept: SpinLock::named("file that is written after its end", None),
            goes_on: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            halts: AtomicU32::new(0),
            changed_at: AtomicU64::new(0),
            showing: sched::Mutex::named("pages that are shown", ()),
        })
    }

    /// These are its pages.
    pub(super) fn set_cache(&self, cache: &Arc<FileCache>) {
        self.cache.call_once(|| Arc::downgrade(cache));
    }

    /// Something was changed here. Pages that are being brought in from before are asked for again; those that are there are the caller's to change.
    pub(super) fn changed(&self) {
        let _showing = self.showing.lock();
        self.changed_at.store(self.connection.next_moment(), SeqCst);
    }

    /// Whether something was changed here after a moment.
    pub(super) fn is_changed_since(&self, moment: u64) -> bool {
        moment < self.changed_at.load(SeqCst)
    }

    /// Does something while no write of pages is under way and none begins.
    ///
    /// # Errors
    /// `EINTR` if the thread is to end; what is done.
    pub(super) fn without_writes(&self, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let count = |change: i32| {
            let _writes = self.writes.lock();
            self.halts.fetch_add(change.cast_unsigned(), SeqCst);
        };
        count(1);
        let waited = killable(&self.writes_end, || self.writes.lock().is_empty(), || ());
        let outcome = waited.and_then(|()| act());
        count(-1);
        self.writes_end.wake_all();
        if self.kept.lock().is_some() {
            self.go_on();
        }
        outcome
    }

    /// Whether no write is under way, and one may begin.
    fn is_quiet(&self) -> bool {
        self.writes.lock().is_empty() && self.halts.load(SeqCst) == 0
    }

    /// An open file is closed: what programs have stored by mappings is written by it. Does not wait.
    pub(super) fn closed(&self, handle: &Arc<Handle>) {
        let Some(cache) = self.cache.get().and_then(Weak::upgrade) else { return };
        if cache.dirty_pages() == 0 || !handle.opened.writable() {
            return;
        }
        let before = self.kept.lock().replace(handle.clone());
        drop(before);
        cache.start_write_back(0, u64::MAX, u64::MAX);
        self.go_on();
    }

    /// A write is over, or may be: pages that are still dirty are written, and a file that is not needed for that any more is closed.
    fn go_on(&self) {
        // One at a time: a write that can't begin is over at once.
        if !self.writes.lock().is_empty() || self.goes_on.swap(true, SeqCst) {
            return;
        }
        let cache = self.cache.get().and_then(Weak::upgrade);
        match cache.filter(|cache| cache.dirty_pages() > 0 && !self.connection.is_over()) {
            Some(cache) => {
                cache.start_write_back(0, u64::MAX, u64::MAX);
            }
            None => {
                let kept = self.kept.lock().take();
                drop(kept);
            }
        }
        self.goes_on.store(false, SeqCst);
    }

    /// Notes an open file.
    pub(super) fn add_handle(&self, handle: &Arc<Handle>) -> Result<()> {
        let mut handles = allocation::lock_with_room(|| self.handles.lock(), 1, |handles| &mut *handles)?;
        handles.retain(|known| known.handle.strong_count() > 0);
        handles.push(Known {
            handle: Arc::downgrade(handle),
            reads: handle.opened.readable(),
            writes: handle.opened.writable(),
        });
        Ok(())
    }

    /// An open file that can be read, or written.
    pub(super) fn handle(&self, writes: bool) -> Option<Arc<Handle>> {
        let handles = self.handles.lock();
        let mut fitting = handles.iter().filter(|known| if writes { known.writes } else { known.reads });
        fitting.find_map(|known| known.handle.upgrade())
    }

    /// Makes pages of bytes that were read, as far as none are there.
    pub(super) fn keep(&self, cache: &FileCache, first: u64, pages: usize, bytes: Vec<u8>) {
        let _keeping = self.keeping.lock();
        // Without memory they are read again.
        let Ok(staged) = allocation::arc(Staged { first, pages, bytes }) else { return };
        *self.staged.lock() = Some(staged);
        cache.read_ahead(first, first + pages as u64);
        let staged = self.staged.lock().take();
        drop(staged);
    }

    /// Fills pages from bytes that were read just now.
    fn fill_from(staged: &Staged, run: &PageRun) -> bool {
        let end = staged.first + staged.pages as u64;
        if run.first() < staged.first || run.first() + run.pages() as u64 > end {
            return false;
        }
        let skipped = (run.first() - staged.first) as usize * PAGE_SIZE;
        put(run, staged.bytes.get(skipped..).unwrap_or_default());
        true
    }

    fn fill_from_server(&self, run: &PageRun) -> Result<()> {
        let handle = self.handle(false).ok_or(Error::Io)?;
        let (_, most) = self.connection.transfer_bytes();
        let (start, end) = (run.first() << PAGE_SHIFT, run.pages() * PAGE_SIZE);
        let mut bytes = Vec::new();
        while bytes.len() < end {
            let asked = (end - bytes.len()).min(most);
            let part = handle.read(start + bytes.len() as u64, asked)?;
            allocation::extend(&mut bytes, &part)?;
            if part.len() < asked {
                break;
            }
        }
        put(run, &bytes);
        Ok(())
    }

    /// Whether a write of these pages may begin; it is noted then.
    fn begin_write(&self, first: u64, last: u64) -> bool {
        let Ok(mut writes) = allocation::lock_with_room(|| self.writes.lock(), 1, |writes| &mut *writes)
        else {
            return false;
        };
        let is_free = self.halts.load(SeqCst) == 0
            && writes.len() < WRITES_MAX
            && writes.iter().all(|&(from, to)| last < from || to < first)
            && self.connection.write_begins();
        if is_free {
            writes.push((first, last));
        }
        is_free
    }

    /// Begins to write the first `bytes` of a run, which are copied.
    fn write_run(self: &Arc<Self>, run: &PageRun, bytes: usize) -> Result<(), CacheError> {
        let (first, last) = (run.first(), run.first() + run.pages() as u64 - 1);
        let handle = self.handle(true).ok_or(CacheError::InputOutput)?;
        let mut data = allocation::filled(0, bytes).map_err(|_| CacheError::OutOfMemory)?;
        for (frame, part) in run.frames().iter().zip(data.chunks_mut(PAGE_SIZE)) {
            frame.read(0, part);
        }
        if !self.begin_write(first, last) {
            return Err(CacheError::OutOfMemory);
        }
        self.send_write(&handle, first, &data).map_err(|error| match error {
            Error::OutOfMemory => CacheError::OutOfMemory,
            _ => CacheError::InputOutput,
        })
    }

    /// Writes bytes in as many requests as the server wants. The last one that is over ends the write.
    fn send_write(self: &Arc<Self>, handle: &Arc<Handle>, first: u64, data: &[u8]) -> Result<()> {
        let (most, _) = self.connection.transfer_bytes();
        let write = Write { contents: self.clone(), first, _handle: handle.clone() };
        // Without memory it is dropped, which ends the write.
        let write = allocation::arc(write)?;
        let mut offset = first << PAGE_SHIFT;
        for part in data.chunks(most) {
            let room = Room::exactly(8);
            let body = handle.write_body(offset, part, FROM_PAGES);
            let (own, bytes) = (write.clone(), part.len());
            let ending: Ending = allocation::boxed(move |answer: Result<Vec<u8>>| {
                let written = answer.and_then(|answer| Ok(Decoder::new(&answer).u32()? as usize));
                if written != Ok(bytes) {
                    own.contents.has_failed.store(true, Relaxed);
                }
            })?;
            self.connection.send(Call::new(opcode::WRITE, self.number, body, room), Some(ending))?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Writes what programs have stored by mappings, and waits until the server has it.
    ///
    /// # Errors
    /// `EINTR` if the thread is to end; `EIO` if that, or an earlier write, has failed.
    pub(super) fn write_pages(&self, cache: &FileCache) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            let begun =
                if cache.dirty_pages() > 0 { cache.start_write_back(0, u64::MAX, u64::MAX) } else { 0 };
            killable(&self.writes_end, || self.is_quiet(), || ())?;
            self.connection.await_write_room()?;
            if begun == 0 || cache.dirty_pages() == 0 || self.connection.is_over() {
                break;
            }
        }
        if self.has_failed.swap(false, Relaxed) { Err(Error::Io) } else { Ok(()) }
    }
}

/// A write of pages; its end is that of the last of its requests.
struct Write {
    contents: Arc<Contents>,
    first: u64,
    /// Open as long as it is written to.
    _handle: Arc<Handle>,
}

impl Drop for Write {
    fn drop(&mut self) {
        self.contents.writes.lock().retain(|&(from, _)| from != self.first);
        self.contents.go_on();
        self.contents.connection.write_ends();
        self.contents.writes_end.wake_all();
    }
}

/// Puts bytes into the pages of a run; what is beyond them is zeroes.
fn put(run: &PageRun, bytes: &[u8]) {
    let mut parts = bytes.chunks(PAGE_SIZE);
    for frame in run.frames() {
        let part = parts.next().unwrap_or_default();
        frame.write(0, part);
        frame.zero_range(part.len(), PAGE_SIZE - part.len());
    }
}

/// The representative of a file's pages.
pub(super) struct Pages(pub(super) Arc<Contents>);

impl FileRepresentative for Pages {
    fn fill(&self, pages: PageRun) {
        let staged = self.0.staged.lock().clone();
        if staged.is_some_and(|staged| Contents::fill_from(&staged, &pages)) {
            return pages.complete(Ok(()));
        }
        for round in 1.. {
            let moment = self.0.connection.moment();
            let filled = self.0.fill_from_server(&pages);
            let _showing = self.0.showing.lock();
            // Who has changed the file meanwhile has not found these pages.
            if filled.is_ok() && round < FILLS_MAX && self.0.is_changed_since(moment) {
                continue;
            }
            return pages.complete(filled.map_err(|error| match error {
                Error::OutOfMemory => CacheError::OutOfMemory,
                _ => CacheError::InputOutput,
            }));
        }
    }

    fn write_back(&self, pages: PageRun) {
        let left = pages.cache().size().saturating_sub(pages.first() << PAGE_SHIFT);
        let bytes = (pages.pages() * PAGE_SIZE).min(usize::try_from(left).unwrap_or(usize::MAX));
        let begun = if bytes == 0 { Ok(()) } else { self.0.write_run(&pages, bytes) };
        pages.complete(begun);
    }
}
