//! A segment of shared memory.
//!
//! Its pages are in a file cache, like those of any shared memory; an attachment is a mapping of that cache which tells the segment how many
//! regions show it ([`FileMapping::counted`]). Linux counts so, too: a mapping that was cut in two counts twice, and a fork counts again.
//!
//! **Life.** A segment is *there* until it is removed (IPC_RMID). Removed with regions left it is *doomed*: its key is free, its id
//! still leads to it, also for those who attach it again. When the last region goes, or if there was none, it is *gone*: its id is free. The
//! count of regions says so by [`GONE`], which it becomes from 0 only and for good; whoever begins to attach counts itself first, and so either holds
//! the segment or finds it gone.
//!
//! Whoever takes the count to 0 looks whether the segment is doomed, and whoever dooms it looks whether the count is 0; both do so after
//! having had the lock of the permissions, which hold the note. So one of them sees what the other did.
//!
//! Regions are counted with spin locks of an address space held. What follows from the last one is done when its [`Attachment`] is dropped, which
//! is after those locks.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

use ::memory::address_space::Commitment;
use ::memory::file_cache::FileCache;
use ::memory::region::{FileMapping, MappedObject};
use machine::address::PAGE_SIZE;
use sync::SpinLock;
use vfs::DeviceNumber;

use super::limits::PageClaim;

use crate::abi::SharedMemoryStatus;
use crate::credentials::account::LockedMemory;
use crate::errno::Errno;
use crate::process::pid_space::Viewer;
use crate::process::table::Pid;
use crate::sysv::permissions::Permissions;
use crate::sysv::registry::Registered;
use crate::sysv::{caller, now};

/// In the mode: removed, but still attached (SHM_DEST).
const DOOMED: u32 = 0o1000;
/// In the mode: kept in memory (SHM_LOCKED).
const LOCKED: u32 = 0o2000;
/// What the count of regions becomes when the segment goes.
const GONE: i64 = i64::MIN;
/// The device that mapped segments are shown on: the first without a name.
const DEVICE: DeviceNumber = DeviceNumber::new(0, 1);

/// What changes by shmctl.
pub(super) struct State {
    pub(super) permissions: Permissions,
    /// The owner's count of what SHM_LOCK keeps in memory.
    locked: Option<LockedMemory>,
}

/// A segment. See the theory of this file.
pub(in crate::sysv) struct Segment {
    id: AtomicI32,
    /// The key that it was made with, for its name.
    first_key: i32,
    bytes: u64,
    cache: Arc<FileCache>,
    creator: Pid,
    pub(super) state: SpinLock<State>,
    /// Regions that show it, and threads that are about to attach it; or [`GONE`].
    regions: AtomicI64,
    // Seconds since 1970, and the process that attached or detached last: what is noted on the way, relaxed.
    attached: AtomicU64,
    detached: AtomicU64,
    changed: AtomicU64,
    last_process: AtomicU32,
    _commitment: Option<Commitment>,
    pages: PageClaim,
}

impl Registered for Segment {
    fn assign(&self, id: i32) {
        self.id.store(id, Ordering::Relaxed);
    }
}

impl Segment {
    /// A new one of zeros that nobody can find yet.
    pub(super) fn new(
        key: i32,
        bytes: u64,
        permissions: Permissions,
        pages: PageClaim,
        commitment: Option<Commitment>,
        cache: FileCache,
    ) -> Result<Arc<Segment>, Errno> {
        let cache = ::memory::fallible::try_arc(cache).map_err(|_| Errno::ENOMEM)?;
        let segment = Segment {
            id: AtomicI32::new(-1),
            first_key: key,
            bytes,
            cache,
            creator: caller(),
            state: SpinLock::named("state of a segment", State { permissions, locked: None }),
            regions: AtomicI64::new(0),
            attached: AtomicU64::new(0),
            detached: AtomicU64::new(0),
            changed: AtomicU64::new(now()),
            last_process: AtomicU32::new(0),
            _commitment: commitment,
            pages,
        };
        ::memory::fallible::try_arc(segment).map_err(|_| Errno::ENOMEM)
    }

    pub(super) fn id(&self) -> i32 {
        self.id.load(Ordering::Relaxed)
    }

    /// Its size as it was asked for.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Pages in memory.
    pub(super) fn resident_pages(&self) -> u64 {
        self.cache.resident_pages()
    }

    /// Its permissions as they are now.
    pub(super) fn permissions(&self) -> Permissions {
        self.state.lock().permissions
    }

    /// Notes a change by shmctl.
    pub(super) fn note_change(&self) {
        self.changed.store(now(), Ordering::Relaxed);
    }

    /// What IPC_STAT says.
    pub(super) fn status(&self, key: i32, viewer: Viewer<'_>) -> SharedMemoryStatus {
        SharedMemoryStatus {
            permissions: self.permissions().seen_in(viewer.users).to_user(key, self.id()),
            bytes: self.bytes,
            attached: self.attached.load(Ordering::Relaxed),
            detached: self.detached.load(Ordering::Relaxed),
            changed: self.changed.load(Ordering::Relaxed),
            creator: viewer.seen(self.creator),
            last_process: viewer.seen(self.last_process.load(Ordering::Relaxed)),
            attachments: self.regions.load(Ordering::Relaxed).max(0) as u64,
            ..Default::default()
        }
    }

    /// Begins to attach: the segment stays until the hold is dropped. EIDRM: it is gone.
    pub(super) fn hold(self: &Arc<Segment>) -> Result<Hold, Errno> {
        let add = |count: i64| (count != GONE).then_some(count + 1);
        match self.regions.fetch_update(Ordering::AcqRel, Ordering::Relaxed, add) {
            Ok(_) => Ok(Hold(self.clone())),
            Err(_) => Err(Errno::EIDRM),
        }
    }

    /// A new attachment.
    pub(super) fn mapping(self: &Arc<Segment>) -> Result<Arc<FileMapping>, Errno> {
        let attachment = ::memory::fallible::try_arc(Attachment(self.clone())).map_err(|_| Errno::ENOMEM)?;
        let mapping = FileMapping::counted(self.cache.clone(), attachment);
        ::memory::fallible::try_arc(mapping).map_err(|_| Errno::ENOMEM)
    }

    /// Removes the segment, or has the last one who detaches it do so.
    pub(super) fn doom(&self) {
        if let Some(space) = self.pages.space() {
            space.segments.hide(self.id());
        }
        self.state.lock().permissions.mode |= DOOMED;
        self.go_if_unused();
    }

    /// The segment goes if it is doomed and nobody shows it.
    fn go_if_unused(&self) {
        if self.state.lock().permissions.mode & DOOMED == 0 {
            return;
        }
        if self.regions.compare_exchange(0, GONE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            drop(self.pages.space().map(|space| space.segments.remove(self.id())));
            drop(self.state.lock().locked.take());
        }
    }

    /// Keeps it in memory, on a claim of its whole size. There is no swap, so counting is all there is to do.
    pub(super) fn lock(&self, claim: impl FnOnce(u64) -> Option<LockedMemory>) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.permissions.mode & LOCKED != 0 {
            return Ok(());
        }
        state.locked = Some(claim(self.bytes.div_ceil(PAGE_SIZE as u64)).ok_or(Errno::ENOMEM)?);
        state.permissions.mode |= LOCKED;
        Ok(())
    }

    /// Undoes [`Segment::lock`].
    pub(super) fn unlock(&self) {
        let mut state = self.state.lock();
        state.permissions.mode &= !LOCKED;
        let claim = state.locked.take();
        drop(state);
        drop(claim);
    }
}

/// Keeps a segment from going while it is being attached.
pub(super) struct Hold(Arc<Segment>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.regions.fetch_sub(1, Ordering::AcqRel);
        self.0.go_if_unused();
    }
}

/// One shmat: what its mapping keeps of the segment.
struct Attachment(Arc<Segment>);

impl Drop for Attachment {
    fn drop(&mut self) {
        self.0.go_if_unused();
    }
}

impl MappedObject for Attachment {
    fn write_name(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        write!(out, "/SYSV{:08x} (deleted)", self.0.first_key)
    }

    fn identity(&self) -> (u64, u64) {
        (DEVICE.encode(), self.0.id() as u64)
    }

    fn make_durable(&self, _start: u64, _end: u64) -> bool {
        true
    }

    fn region_added(&self) {
        let segment = &*self.0;
        segment.attached.store(now(), Ordering::Relaxed);
        segment.last_process.store(caller(), Ordering::Relaxed);
        let before = segment.regions.fetch_add(1, Ordering::AcqRel);
        debug_assert!(
            before > 0,
            "who attaches holds the segment, and a copy is made of a region that is there"
        );
    }

    fn region_removed(&self) {
        let segment = &*self.0;
        segment.detached.store(now(), Ordering::Relaxed);
        segment.last_process.store(caller(), Ordering::Relaxed);
        let before = segment.regions.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a region that is there was counted");
    }
}
