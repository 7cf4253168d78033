//! A file system mounted for writing: transactions, their commits, and the mount's and unmount's marks in the superblock.
//!
//! # Transactions
//! Handles publish into the *running* transaction. [`Writer::commit`] closes it: from then on it is the *committing* one, a set of immutable
//! blocks that go to the journal while the next one runs. There is one commit at a time.
//!
//! # Locks, in this order
//! 1. The *log*: a commit or checkpoint under way. Held while it transfers.
//! 2. The *change lock*: the running transaction. Held by handles and, for a moment, when a transaction is closed.
//! 3. The cache's spin lock.
//!
//! Files' own locks (those of whoever calls this crate) come before all of them. Reading takes none of the first two.
//!
//! # Errors
//! A failed transfer of a commit stops the file system: what was not committed does not exist, nothing more can be changed, reading goes on.
//! A commit that has no memory is tried again a few times; only then it has failed.
//! Damage that a handle meets is recorded; whether changes go on is what the superblock says
//! (`continue`; `remount-ro` and `panic` both mean reading only).
//!
//! # Without a journal
//! A commit writes the blocks home, and the file system says that it is not clean as long as it is mounted.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use block::Volume;
use memory::fallible;
use sched::Mutex;

use crate::cache::{BlockBytes, CheckedParts};
use crate::file_system::{FileSystem, Status};
use crate::geometry::compatible;
use crate::group::Group;
use crate::handle::{HANDLE_BLOCKS_MAX, Handle};
use crate::inode::Time;
use crate::log_writer::LogWriter;
use crate::orphan::Orphans;
use crate::promise::Promises;
use crate::recovery::{recover, set_recovery_needed};
use crate::running::{Closed, Running};
use crate::superblock::{self, ON_ERROR_CONTINUE, STATE_CLEAN, STATE_ERRORS};
use crate::{Error, Result};

/// Revoked blocks with which a transaction ends.
const REVOKED_MAX: usize = 4096;
/// Changed blocks with which a transaction without a journal ends.
const DIRECT_BLOCKS_MAX: usize = 2048;

/// How often memory is looked for when a commit has none.
const MEMORY_ATTEMPTS: u32 = 8;

const WORKING: u8 = 0;
/// Everything is where it belongs, as after an unmount, until changes are wanted again.
const PAUSED: u8 = 1;
/// Damage was found: no more changes, but what was published is committed.
const READ_ONLY: u8 = 2;
/// A commit failed.
const STOPPED: u8 = 3;

/// Where commits go.
enum Home {
    Journal(Box<LogWriter>),
    Direct,
}

/// See the theory of this file.
pub struct Writer {
    pub(crate) system: FileSystem,
    log: Mutex<Home>,
    pub(crate) running: Mutex<Running>,
    state: AtomicU8,
    blocks_max: usize,
    pub(crate) promises: Promises,
    /// It was clean when it was mounted, and nothing was found since.
    was_clean: bool,
}

impl Writer {
    /// Mounts for writing: replays the journal, and deletes what nobody can name.
    ///
    /// # Errors
    /// Those of [`FileSystem::mount`]; features that forbid writing ([`Error::UnknownFeature`]): it may still be mounted for reading.
    pub fn mount(volume: &Volume, mounted_on: &[u8], now: Time) -> Result<Self> {
        let system = recover(volume)?;
        let geometry = &system.geometry;
        if let Some((name, bit)) = geometry.read_only_because() {
            return Err(Error::UnknownFeature(name, bit));
        }
        if geometry.has_compatible(compatible::SPARSE_SUPERBLOCKS_2) {
            return Err(Error::UnknownFeature("sparse_super2", compatible::SPARSE_SUPERBLOCKS_2));
        }
        let state = geometry.raw.state.get();
        if state & STATE_ERRORS != 0 || state & STATE_CLEAN == 0 {
            log::warn!("ext4: it was not unmounted in order or has errors: e2fsck should look at it");
        }
        let running = Self::count(&system)?;
        let journal = geometry.has_compatible(compatible::JOURNAL);
        let home =
            if journal { Home::Journal(fallible::try_box(LogWriter::open(&system)?)?) } else { Home::Direct };
        let blocks_max = match &home {
            Home::Journal(log) => log.blocks_max(),
            Home::Direct => DIRECT_BLOCKS_MAX,
        };
        // One more for the superblock, which joins when a transaction is closed.
        if blocks_max < HANDLE_BLOCKS_MAX + 1 {
            return Err(Error::Corrupted("a journal too small to be used", blocks_max as u64));
        }
        let was_clean = state & STATE_CLEAN != 0 && state & STATE_ERRORS == 0;
        let writer = Self {
            log: Mutex::named("ext4 log", home),
            running: Mutex::named("ext4 changes", running),
            system,
            state: AtomicU8::new(WORKING),
            blocks_max,
            promises: Promises::default(),
            was_clean,
        };
        writer.mark_mounted(mounted_on, now, journal)?;
        match writer.delete_orphans(now, &|_| true) {
            Err(error @ (Error::Device(_) | Error::OutOfMemory)) => return Err(error),
            Err(error) => log::warn!("ext4: orphans stay: {error}; e2fsck should look at it"),
            Ok(()) => {}
        }
        if writer.is_dirty() {
            writer.commit()?;
        }
        Ok(writer)
    }

    fn count(system: &FileSystem) -> Result<Running> {
        let groups = system.geometry.groups;
        let mut running = Running { id: 1, orphans: Orphans::read(system)?, ..Running::default() };
        running.group_free = fallible::try_vec(groups as usize)?;
        for number in 0..groups {
            let group = Group::read(system, number)?;
            running.group_free.push(group.free_blocks);
            running.free_blocks = running.free_blocks.saturating_add(group.free_blocks.into());
            running.free_inodes = running.free_inodes.saturating_add(group.free_inodes);
        }
        Ok(running)
    }

    fn mark_mounted(&self, mounted_on: &[u8], now: Time, journal: bool) -> Result<()> {
        self.change(true, |handle| {
            handle.change_superblock(|raw| {
                raw.mount_time.set(now.seconds as u32);
                raw.write_time.set(now.seconds as u32);
                raw.mount_count.set(raw.mount_count.get().saturating_add(1));
                if !journal {
                    raw.state.set(raw.state.get() & !STATE_CLEAN);
                }
                raw.last_mounted.fill(0);
                let length = mounted_on.len().min(raw.last_mounted.len() - 1);
                raw.last_mounted[..length].copy_from_slice(&mounted_on[..length]);
            })
        })?;
        self.commit()
    }

    /// What is read.
    pub fn system(&self) -> &FileSystem {
        &self.system
    }

    /// Whether changes are no longer possible.
    pub fn is_read_only(&self) -> bool {
        self.state.load(Relaxed) != WORKING
    }

    /// Whether what was changed can still become durable.
    pub fn is_stopped(&self) -> bool {
        self.state.load(Relaxed) == STOPPED
    }

    /// What `statfs` shows.
    pub fn status(&self) -> Status {
        let (free, chosen, inodes) = {
            let running = self.running.lock();
            (running.free_blocks, running.chosen_blocks, running.free_inodes)
        };
        let free = free.saturating_sub(chosen);
        Status {
            blocks_free: free,
            blocks_available: free.saturating_sub(self.system.geometry.reserved_blocks()),
            inodes_free: inodes.into(),
            ..self.system.status()
        }
    }

    /// A handle with room in the running transaction; commits first if there is none.
    pub(crate) fn begin(&self, privileged: bool) -> Result<Handle<'_>> {
        loop {
            if self.is_read_only() {
                return Err(Error::ReadOnly);
            }
            let running = self.running.lock();
            // Who ends changes has the lock.
            if self.is_read_only() {
                return Err(Error::ReadOnly);
            }
            let roomy = running.closed.blocks.len() + HANDLE_BLOCKS_MAX < self.blocks_max
                && running.closed.revoked.len() < REVOKED_MAX;
            if roomy {
                return Ok(Handle::new(&self.system, running, &self.promises, privileged));
            }
            drop(running);
            self.commit()?;
        }
    }

    /// Runs an operation in a handle and publishes it; nothing of it remains on an error. When there is no space but some
    /// will be free after a commit, that is made, and the operation tried again.
    pub(crate) fn change<T>(
        &self,
        privileged: bool,
        mut operation: impl FnMut(&mut Handle<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut again = true;
        loop {
            let mut handle = self.begin(privileged)?;
            match operation(&mut handle) {
                Ok(value) => {
                    handle.publish()?;
                    return Ok(value);
                }
                Err(Error::NoSpace) if again && self.frees_when_committed(&handle) => {
                    drop(handle);
                    self.commit()?;
                    again = false;
                }
                Err(error) => {
                    drop(handle);
                    return Err(self.judge(error));
                }
            }
        }
    }

    pub(crate) fn frees_when_committed(&self, handle: &Handle<'_>) -> bool {
        !handle.running.held.is_empty() || !handle.running.held_committing.is_empty()
    }

    /// What an error of an operation means for the whole.
    pub(crate) fn judge(&self, error: Error) -> Error {
        if let Error::Corrupted(what, place) = error {
            let goes_on = self.system.geometry.raw.errors.get() == ON_ERROR_CONTINUE;
            log::error!(
                "ext4: damaged: {what} ({place}){}",
                if goes_on { "" } else { ": only to be read now" }
            );
            // The record is worth an attempt only: the disk may be what is damaged.
            let noted = self.begin(true).and_then(|mut handle| {
                handle.change_superblock(|raw| superblock::note_error(raw, Time::default(), place))?;
                handle.publish()
            });
            if let Err(error) = noted {
                log::error!("ext4: the damage could not be recorded: {error}");
            }
            if !goes_on {
                self.state.fetch_max(READ_ONLY, Relaxed);
            }
        }
        error
    }

    /// Makes everything that was changed so far durable.
    ///
    /// # Errors
    /// The device: the file system is stopped then.
    pub fn commit(&self) -> Result<()> {
        let mut log = self.log.lock();
        if self.state.load(Relaxed) == STOPPED {
            return Err(Error::ReadOnly);
        }
        let Some(closed) = self.close_transaction()? else { return self.system.cache.flush() };
        let mut committed = self.write_out(&mut log, &closed);
        for _ in 0..MEMORY_ATTEMPTS {
            if committed != Err(Error::OutOfMemory) {
                break;
            }
            memory::reclaim::reclaim_now(closed.blocks.len());
            committed = self.write_out(&mut log, &closed);
        }
        if let Err(error) = &committed {
            self.state.fetch_max(STOPPED, Relaxed);
            log::error!("ext4: a commit failed: {error}; only to be read now");
        }
        self.running.lock().held_committing.clear();
        committed
    }

    /// Makes a regular file's contents and what is needed to find them durable, and unless `data_only` all that is known of it. What was written to it is on its
    /// way no longer. Where no transaction holds a change of the file any more, the device needs to be flushed only.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn commit_file(&self, number: u32, data_only: bool) -> Result<()> {
        {
            // A commit under way may have the file's changes: this waits for it.
            let _log = self.log.lock();
            if self.state.load(Relaxed) == STOPPED {
                return Err(Error::ReadOnly);
            }
            let stored = self.running.lock().stored.get(&u64::from(number)).copied();
            if !stored.is_some_and(|more| more || !data_only) {
                return self.system.cache.flush();
            }
        }
        self.commit()
    }

    /// Begins a new transaction; the old one, unless it is empty.
    fn close_transaction(&self) -> Result<Option<Closed>> {
        let mut running = self.running.lock();
        debug_assert!(running.held_committing.is_empty(), "there is one commit at a time");
        if running.is_empty() {
            return Ok(None);
        }
        let (block, _) = self.system.superblock_place();
        let newest = self.system.cache.get(block, |_| Ok(()))?;
        let mut bytes = fallible::try_copy(&newest)?;
        let (free_blocks, free_inodes) = (running.free_blocks, running.free_inodes);
        let first_orphan = running.orphans.first();
        superblock::change(&self.system, &mut bytes, |raw| {
            superblock::set_counts(raw, free_blocks, free_inodes);
            raw.last_orphan.set(first_orphan);
        })?;
        let bytes: BlockBytes = fallible::try_arc(bytes)?;
        running.closed.blocks.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        self.system.cache.reserve(1)?;
        let mut replaced = None;
        let changed = core::iter::once((block, &bytes, CheckedParts::default(), &mut replaced));
        self.system.cache.publish(changed, core::iter::empty());
        running.closed.blocks.insert(block, bytes);
        running.held_committing = core::mem::take(&mut running.held);
        running.id += 1;
        running.stored.clear();
        running.spares.clear();
        Ok(Some(core::mem::take(&mut running.closed)))
    }

    /// Writes a transaction. Without memory nothing has happened, and it may be tried again.
    fn write_out(&self, home: &mut Home, closed: &Closed) -> Result<()> {
        let mut blocks: Vec<(u64, BlockBytes)> = fallible::try_vec(closed.blocks.len())?;
        blocks.extend(closed.blocks.iter().map(|(block, bytes)| (*block, bytes.clone())));
        sorting::sort_by_key(&mut blocks, |(block, _)| *block);
        let cache = &self.system.cache;
        match home {
            Home::Journal(log) => {
                let mut revoked = fallible::try_vec(closed.revoked.len())?;
                revoked.extend(closed.revoked.keys().copied());
                log.commit(&self.system, &blocks, &revoked)
            }
            Home::Direct => {
                cache.write_all(blocks.iter().cloned())?;
                cache.flush()?;
                blocks.iter().for_each(|(block, bytes)| cache.unpin(*block, bytes));
                Ok(())
            }
        }
    }

    /// Whether there is something to commit.
    pub fn is_dirty(&self) -> bool {
        !self.running.lock().is_empty()
    }

    /// Deletes all files without names that `may_go`: nobody has them open. Shortens to their size those that were being shortened. One
    /// that is damaged stays in the list, and does not keep the others there.
    ///
    /// # Errors
    /// The first of those that kept files in the list.
    pub fn delete_orphans(&self, now: Time, may_go: &dyn Fn(u32) -> bool) -> Result<()> {
        let (mut stays, mut outcome) = (0, Ok(()));
        loop {
            let number = self.running.lock().orphans.after(stays);
            if number == 0 {
                return outcome;
            }
            if !may_go(number) {
                stays = number;
                continue;
            }
            match self.delete_orphan(number, now) {
                Ok(()) => {}
                Err(error @ (Error::Corrupted(..) | Error::TooLarge | Error::NoSpace)) => {
                    stays = number;
                    outcome = outcome.and(Err(error));
                }
                // It would be the same with all others.
                Err(error) => return Err(error),
            }
        }
    }

    fn delete_orphan(&self, number: u32, now: Time) -> Result<()> {
        match self.system.inode(number) {
            Ok(inode) if inode.links == 0 => self.delete(number, now),
            Ok(_) => self.finish_truncation(number),
            Err(error) => Err(self.judge(error)),
        }
    }

    /// Unmounts in order: everything is where it belongs, the journal is empty, and the superblock says so. Nothing can be changed any more.
    pub fn unmount(&self) -> Result<()> {
        self.settle(READ_ONLY)
    }

    /// The same until [`resume`](Self::resume).
    pub fn pause(&self) -> Result<()> {
        self.settle(PAUSED)
    }

    fn settle(&self, state: u8) -> Result<()> {
        if self.was_clean && !self.is_read_only() {
            self.change(true, |handle| {
                handle.change_superblock(|raw| raw.state.set(raw.state.get() | STATE_CLEAN))
            })?;
        }
        {
            let _no_handle = self.running.lock();
            self.state.fetch_max(state, Relaxed);
        }
        self.commit()?;
        match &mut *self.log.lock() {
            Home::Journal(log) => log.close(&self.system),
            Home::Direct => Ok(()),
        }
    }

    /// Allows changes again.
    ///
    /// # Errors
    /// The device; [`Error::ReadOnly`] if something else than [`pause`](Self::pause) forbids them.
    pub fn resume(&self, now: Time) -> Result<()> {
        let journal = {
            let log = self.log.lock();
            if self.state.load(Relaxed) != PAUSED {
                return Err(Error::ReadOnly);
            }
            let journal = matches!(*log, Home::Journal(_));
            if journal {
                set_recovery_needed(&self.system, true)?;
            }
            self.state.store(WORKING, Relaxed);
            journal
        };
        self.mark_mounted(b"", now, journal)
    }
}
