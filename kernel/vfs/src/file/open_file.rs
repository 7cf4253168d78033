//! An open file: what descriptors refer to.
//!
//! # Position
//! The position is an atomic; whether calls on it must exclude each other depends on whether anybody else can use the
//! file: while the caller's reference and the descriptor table's are the only ones, a plain load and store do. With
//! more references (`dup`, `fork`, other threads) the position's lock is held over the transfer.
//!
//! # End
//! The last reference releases the file: `epoll` interests, `flock` locks and locks of the open file description end,
//! write access is given back, and the operations are told.
//!
//! # Cost
//! `read` of a seekable file that is not shared: no lock and no atomic read-modify-write of this layer.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use machine::cpu::MAX_CPUS;
use memory::fallible::EmptyArc;
use memory::file_cache::{SeenErrors, WriteErrors};
use memory::per_cpu::{Kept, Shared};
use sync::{PerCpu, PerCpuCounter, SpinLock, per_cpu};

use super::operations::{FileFeatures, FileOperations};
use crate::attributes::{FileKind, FileStatus};
use crate::dentry::Dentry;
use crate::epoll::EpollItem;
use crate::file_flags::FileFlags;
use crate::flags::{MountFlags, OpenFlags};
use crate::inode::{Inode, Question};
use crate::lock::lease;
use crate::mount::{Mount, Path};
use crate::poll::{PollEvents, PollTable};
use crate::{Error, Result, allocation, watched};

/// Where a seek is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFrom {
    /// An absolute position.
    Start(i64),
    /// Relative to the current position.
    Current(i64),
    /// Relative to the end.
    End(i64),
    /// The next data at or after a position.
    Data(i64),
    /// The next hole at or after a position.
    Hole(i64),
}

/// Who gets signals about the file (`F_SETOWN`, `F_SETSIG`), and who said so; the personality acts on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileOwner {
    /// A process (positive), a process group (negative), or nobody (0).
    pub owner: i32,
    /// The signal, 0 for `SIGIO`.
    pub signal: u32,
    /// The real user of who made it the owner.
    pub user: u32,
    /// The effective one.
    pub effective_user: u32,
}

/// An open file description.
pub struct OpenFile {
    path: Option<Path>,
    /// Kept by the entry's handle, if it has one.
    inode: Kept<Inode, Dentry>,
    object: Option<Arc<dyn FileOperations>>,
    flags: AtomicU32,
    features: FileFeatures,
    position: AtomicU64,
    position_lock: sched::Mutex<()>,
    owner: SpinLock<FileOwner>,
    holds_write_access: bool,
    /// What it knows of the errors of its file system, for `syncfs`.
    pub(super) seen_errors: SeenErrors,
    id: u64,
    interests: SpinLock<Vec<Weak<EpollItem>>>,
}

/// Among the flags of an opening: the file gets [`FileFeatures::UNWATCHED`]. No program can say so.
pub(crate) const UNWATCHED: OpenFlags = OpenFlags::from_bits_retain(1 << 26);

/// The memory of an open file, and the promise that there may be one more.
pub(crate) struct PreparedFile(EmptyArc<OpenFile>);

/// Files opened so far on each CPU.
static OPENED: PerCpu<AtomicU64> = per_cpu!(AtomicU64::new(0));
/// Open files altogether.
static OPEN_FILES: PerCpuCounter = PerCpuCounter::new();
/// How many there may be (`/proc/sys/fs/file-max`).
static OPEN_FILES_MAX: AtomicU64 = AtomicU64::new(1 << 20);
/// Openings on a CPU after which the number of all open files is looked at: it may exceed the limit by that many.
const CHECK_INTERVAL: u64 = 32;

/// References of a file that nobody but the caller can reach: that of one descriptor table of one task, which has lent it. A caller with a
/// reference of its own got that because others may use the file too.
const UNSHARED_REFERENCES: usize = 1;

impl OpenFile {
    /// An open file at a place in the tree. Counts write access to mount and inode when it is writable.
    pub(crate) fn at_path(
        path: Path,
        flags: OpenFlags,
        object: Option<Arc<dyn FileOperations>>,
        prepared: Option<PreparedFile>,
    ) -> Result<Arc<Self>> {
        let inode = Kept::project(&path.dentry, Dentry::inode).ok_or(Error::NotFound)?;
        let prepared = prepared.map_or_else(Self::prepare, Ok)?;
        let counts = flags.writable() && matches!(inode.kind, FileKind::Regular);
        if counts {
            path.mount.begin_write()?;
            if let Err(error) = inode.begin_write_access() {
                path.mount.end_write();
                return Err(error);
            }
        }
        if !flags.contains(OpenFlags::PATH) {
            inode.add_opener();
            if watched::anything()
                && let Err(error) = lease::break_for_opener(&inode, flags)
            {
                if inode.remove_opener() {
                    crate::inotify::report_gone(&inode);
                }
                if counts {
                    inode.end_write_access();
                    path.mount.end_write();
                }
                return Err(error);
            }
        }
        Ok(Self::build(Some(path), inode, object, flags, counts, prepared))
    }

    /// An open file without a place in the tree: a pipe's end, an eventfd.
    pub fn anonymous(
        inode: Arc<Inode>,
        object: Arc<dyn FileOperations>,
        flags: OpenFlags,
    ) -> Result<Arc<Self>> {
        let prepared = Self::prepare()?;
        Ok(Self::build(None, inode.into(), Some(object), flags, false, prepared))
    }

    /// From here on the value's `Drop` undoes what was done for it.
    fn build(
        path: Option<Path>,
        inode: Kept<Inode, Dentry>,
        object: Option<Arc<dyn FileOperations>>,
        flags: OpenFlags,
        holds_write_access: bool,
        prepared: PreparedFile,
    ) -> Arc<Self> {
        let mut features = match &object {
            Some(object) => object.features(),
            None => inode.operations().file_operations().features(),
        };
        if holds_write_access
            && (inode.file_flags().contains(FileFlags::SYNCHRONOUS)
                || path.as_ref().is_some_and(|path| path.mount.flags().contains(MountFlags::SYNCHRONOUS)))
        {
            features |= FileFeatures::SYNCHRONOUS;
        }
        if flags.contains(UNWATCHED) {
            features |= FileFeatures::UNWATCHED;
        }
        // No line that other CPUs write: a number that is unique by its CPU, and a counter of its own.
        let cpu = machine::cpu::current();
        let opened = OPENED.of(cpu).fetch_add(1, Ordering::Relaxed);
        OPEN_FILES.increment();
        let errors = path.as_ref().and_then(|path| path.mount.superblock().write_errors());
        let seen_errors = errors.map(WriteErrors::sample).unwrap_or_default();
        prepared.0.fill(Self {
            path,
            inode,
            object,
            flags: AtomicU32::new(flags.difference(OpenFlags::CREATION).difference(UNWATCHED).bits()),
            features,
            position: AtomicU64::new(0),
            position_lock: sched::Mutex::named("file position", ()),
            owner: SpinLock::new(FileOwner { owner: 0, signal: 0, user: 0, effective_user: 0 }),
            holds_write_access,
            seen_errors,
            id: (opened + 1) * MAX_CPUS as u64 + cpu.index() as u64,
            interests: SpinLock::new(Vec::new()),
        })
    }

    /// What an opening needs. The opening of a file that does not exist yet takes it before the file is made, so that none is left behind
    /// when it is missing. Now and then it is looked whether too many files are open.
    pub(crate) fn prepare() -> Result<PreparedFile> {
        let opened = OPENED.of(machine::cpu::current()).load(Ordering::Relaxed);
        if opened.is_multiple_of(CHECK_INTERVAL)
            && Self::open_files() >= OPEN_FILES_MAX.load(Ordering::Relaxed)
        {
            return Err(Error::FileTableFull);
        }
        Ok(PreparedFile(memory::fallible::try_empty_arc()?))
    }

    /// Open files in the system, and how many there may be (`/proc/sys/fs/file-nr`).
    pub fn statistics() -> (u64, u64) {
        (Self::open_files(), OPEN_FILES_MAX.load(Ordering::Relaxed))
    }

    fn open_files() -> u64 {
        OPEN_FILES.sum().max(0).cast_unsigned()
    }

    /// Sets how many files may be open.
    pub fn set_maximum(maximum: u64) {
        OPEN_FILES_MAX.store(maximum, Ordering::Relaxed);
    }

    /// The file.
    #[inline]
    pub fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// A number of its own, for `kcmp`, locks and watches.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The place it was opened at; `None` for pipes, sockets and anonymous files.
    #[inline]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_ref()
    }

    /// A place for it in any case: files without one get a detached entry in an internal mount (`/proc/self/fd/N`).
    pub fn path_or_detached(&self) -> Result<Path> {
        match &self.path {
            Some(path) => Ok(path.clone()),
            None => {
                let mut name = Vec::new();
                self.write_name(&mut name)?;
                let mount: Shared<Mount> = crate::anonymous::internal_mount()?;
                let name = &name[..name.len().min(crate::name::NAME_MAX)];
                Ok(Path::new(mount, Dentry::new_detached(name, Arc::clone(&self.inode))?))
            }
        }
    }

    /// Appends what `describe` says about a file without a path.
    pub fn write_name(&self, out: &mut Vec<u8>) -> Result<()> {
        let mut text = crate::text::Text::new();
        let _ = self.operations().describe(self, &mut text);
        allocation::extend(out, text.finish()?.as_slice())
    }

    /// What it does.
    #[inline]
    pub fn operations(&self) -> &dyn FileOperations {
        match &self.object {
            Some(object) => &**object,
            None => self.inode.operations().file_operations(),
        }
    }

    /// The object behind it as its own type (`Epoll`, a socket, …).
    pub fn object<T: FileOperations>(&self) -> Option<&T> {
        let any: &dyn core::any::Any = self.operations();
        any.downcast_ref()
    }

    /// A counted handle of the object behind it.
    pub fn object_handle(&self) -> Option<&Arc<dyn FileOperations>> {
        self.object.as_ref()
    }

    /// Its features.
    #[inline]
    pub fn features(&self) -> FileFeatures {
        self.features
    }

    /// Whether those who watch the file are told what happens through it.
    pub(crate) fn is_watched(&self) -> bool {
        !self.features.contains(FileFeatures::UNWATCHED)
    }

    /// Access mode and status flags.
    #[inline]
    pub fn flags(&self) -> OpenFlags {
        // Relaxed: a word of its own.
        OpenFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Changes the flags that `F_SETFL` can change.
    pub fn set_flags(&self, flags: OpenFlags) -> Result<()> {
        let wanted = flags & OpenFlags::SETTABLE;
        self.operations().set_flags(self, wanted)?;
        let _ = self.flags.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
            Some((OpenFlags::from_bits_retain(old).difference(OpenFlags::SETTABLE) | wanted).bits())
        });
        Ok(())
    }

    /// Sets or clears `O_NONBLOCK` (`FIONBIO`).
    pub fn set_non_block(&self, non_block: bool) {
        let bit = OpenFlags::NON_BLOCK.bits();
        if non_block {
            self.flags.fetch_or(bit, Ordering::AcqRel);
        } else {
            self.flags.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    /// Whether calls must not wait.
    #[inline]
    pub fn non_block(&self) -> bool {
        self.flags().contains(OpenFlags::NON_BLOCK)
    }

    /// Fails with `EBADF` unless it is open for reading.
    #[inline]
    pub fn check_readable(&self) -> Result<()> {
        if self.flags().readable() { Ok(()) } else { Err(Error::BadDescriptor) }
    }

    /// Fails with `EBADF` unless it is open for writing.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        if self.flags().writable() { Ok(()) } else { Err(Error::BadDescriptor) }
    }

    /// Who gets signals about it.
    pub fn owner(&self) -> FileOwner {
        *self.owner.lock()
    }

    /// Changes who gets signals about it.
    pub fn set_owner(&self, owner: FileOwner) {
        *self.owner.lock() = owner;
    }

    /// Makes somebody the owner unless there is one; the signal stays.
    pub fn set_owner_if_none(&self, owner: FileOwner) {
        let mut current = self.owner.lock();
        if current.owner == 0 {
            *current = FileOwner { signal: current.signal, ..owner };
        }
    }

    /// The position.
    #[inline]
    pub fn position(&self) -> u64 {
        // Relaxed: ordered by the position's lock where it matters.
        self.position.load(Ordering::Relaxed)
    }

    pub(crate) fn store_position(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }

    /// Runs `transfer` on the position, excluding others when there can be others and the file is a regular one or a directory: those
    /// promise that two transfers don't begin at one position.
    #[inline]
    pub(crate) fn with_position<R>(self: &Arc<Self>, transfer: impl FnOnce(&mut u64) -> R) -> R {
        let _exclusive = if Arc::strong_count(self) > UNSHARED_REFERENCES
            && matches!(self.inode.kind, FileKind::Regular | FileKind::Directory)
        {
            Some(self.position_lock.lock())
        } else {
            None
        };
        let mut position = self.position();
        let result = transfer(&mut position);
        self.store_position(position);
        result
    }

    /// What is ready; registers for changes with a table.
    #[inline]
    pub fn poll(&self, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if !self.features.contains(FileFeatures::POLLABLE) {
            return PollEvents::INPUT | PollEvents::OUTPUT;
        }
        self.operations().poll(self, table)
    }

    /// To be called before [`status`](Self::status) for a program: a file that is left to its file system may have to be asked for.
    ///
    /// # Errors
    /// What the file system says.
    #[inline]
    pub fn before_status(&self) -> Result<()> {
        self.inode.ask(Question::Status)
    }

    /// What `fstat` shows: about twenty loads.
    #[inline(always)]
    pub fn status(&self) -> FileStatus {
        let mut status = self.inode.status();
        if let Some(path) = &self.path {
            status.mount_id = path.mount.id();
            status.mount_root = path.is_mount_root();
        }
        status
    }

    /// A descriptor was closed: the owner's record locks on the file end, and the operations are told.
    pub fn closed_by(&self, lock_owner: u64) -> Result<()> {
        if let Some(locks) = self.inode.existing_locks() {
            locks.release_owner(lock_owner);
        }
        if watched::anything() {
            crate::dnotify::end(self, lock_owner);
        }
        self.operations().flush(self)
    }

    /// Notes an `epoll` interest, so that it ends with the file.
    pub(crate) fn add_interest(&self, item: Weak<EpollItem>) -> Result<()> {
        let mut interests = self.interests.lock();
        if interests.len() == interests.capacity() {
            interests.retain(|known| known.strong_count() > 0);
            let living = interests.len();
            // Without memory for that there may be room for one.
            let _ = allocation::reserve(&mut interests, living);
        }
        allocation::push(&mut interests, item)
    }

    /// Forgets one.
    pub(crate) fn forget_interest(&self, item: &Arc<EpollItem>) {
        let forgotten = {
            let mut interests = self.interests.lock();
            let index = interests.iter().rposition(|known| known.as_ptr() == Arc::as_ptr(item));
            index.map(|index| interests.swap_remove(index))
        };
        drop(forgotten);
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        OPEN_FILES.decrement();
        for interest in core::mem::take(self.interests.get_mut()) {
            if let Some(item) = interest.upgrade() {
                item.file_closed();
            }
        }
        if let Some(locks) = self.inode.existing_locks() {
            locks.release_file(self.id);
        }
        self.operations().release(self);
        if self.holds_write_access {
            self.inode.end_write_access();
            if let Some(path) = &self.path {
                path.mount.end_write();
            }
        }
        let event = if self.flags().writable() {
            crate::inotify::EventMask::CLOSE_WRITE
        } else {
            crate::inotify::EventMask::CLOSE_NO_WRITE
        };
        if !self.flags().contains(OpenFlags::PATH)
            && let Some(path) = &self.path
        {
            if self.is_watched() {
                crate::inotify::report(path, event);
            }
            if self.inode.remove_opener() {
                crate::inotify::report_gone(&self.inode);
            }
        }
    }
}
