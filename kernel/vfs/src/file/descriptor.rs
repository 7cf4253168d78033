//! Descriptor tables: small numbers for open files.
//!
//! # Structure
//! A table of files that is read without a lock ([`sync::arc_table`]), and beside it, under its writers' lock, two bitmaps: descriptors in
//! use (or reserved), and those that close on exec. The lock is held for a few instructions. The lowest free descriptor is found from
//! a hint in the bitmap, 64 at a time.
//!
//! # Who may do what
//! A task has [`Descriptors`]: the table and the right to take files out of it. While no other task has that right too (the table
//! isn't shared, `CLONE_FILES`), a look-up borrows the file with neither an atomic operation nor a reference; the borrow cannot outlive
//! that of the task's table, and a file that the same call closes in spite of it stays until it is given back. Tasks that share
//! a table look up under RCU and take references. Everybody else (`/proc/PID/fd`, `pidfd_getfd`) has but the [`DescriptorTable`]: looking
//! into it takes the writers' lock, and takes references.
//!
//! # Growth
//! Who finds the table too small lets go of the lock, makes a larger one, and moves the files over under the lock; what was there
//! before is freed after it. When another thread has made the table as large meanwhile, the new one goes unused. Either way the
//! search for a free descriptor begins again.
//!
//! # Reservation
//! A call that makes a file reserves the descriptor first, so that it fails with `EMFILE` before it has done anything;
//! an unused reservation is given back when dropped.
//!
//! # Cost
//! Looking a descriptor up: neither lock nor atomic operation in a table of one task; in a shared one no lock, one
//! compare-and-exchange, and the decrement at the end of the call. No allocation. Closing drops the file outside of the lock; in a shared
//! table its memory waits for a grace period.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;

use bitflags::bitflags;
use sync::arc_table::{ArcTable, Owner, OwnerDied, Reference, Room, Taken as TakenOut, Writer};

use super::open_file::OpenFile;
use crate::{Error, PollEvents, Result, allocation};

/// A descriptor number, not negative.
pub type Descriptor = u32;

/// Descriptors that a table may ever have, whatever the limit says (`/proc/sys/fs/nr_open`).
pub const DESCRIPTORS_MAX: u32 = 1 << 20;

/// The slots of the smallest table.
const SLOTS_MIN: usize = 64;

bitflags! {
    /// Flags of a descriptor.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct DescriptorFlags: u32 {
        /// Close it when a program is executed.
        const CLOSE_ON_EXEC = 1;
    }
}

/// What is known of 64 descriptors.
#[derive(Clone, Copy, Default)]
struct Word {
    /// In use or reserved.
    used: u64,
    close_on_exec: u64,
}

#[derive(Default)]
struct Slots {
    /// As many bits as there are slots, rounded up.
    words: Vec<Word>,
    /// No free descriptor is below this one.
    lowest_free: u32,
}

/// What a search for a free descriptor came to.
enum Taken {
    Descriptor(u32),
    /// The lowest free one is beyond the table's end.
    NoRoom(u32),
}

/// A descriptor table, as those see it who may not take anything out of it.
pub struct DescriptorTable {
    files: ArcTable<OpenFile, Slots>,
    /// With its counts it fills cache lines: those of two processes never lie in one.
    _fill: [u64; FILL],
}

/// Bytes of a cache line.
const LINE: usize = 64;
/// Words between the end of a table with its two counts and that of a cache line.
const FILL: usize = {
    let bytes = size_of::<ArcTable<OpenFile, Slots>>() + 2 * size_of::<usize>();
    (bytes.next_multiple_of(LINE) - bytes) / size_of::<u64>()
};

/// A task's descriptors: a table, and the right to take files out of it.
pub struct Descriptors {
    table: Arc<DescriptorTable>,
    owner: Owner,
}

/// A file that was looked up: borrowed, or a reference of its own.
pub type FileRef<'a> = Reference<'a, OpenFile>;

/// The lock of a table, held.
type Locked<'a> = Writer<'a, OpenFile, Slots>;

const fn word(descriptor: u32) -> usize {
    (descriptor / 64) as usize
}

const fn bit(descriptor: u32) -> u64 {
    1 << (descriptor % 64)
}

/// Words of a cache line: the least that bitmaps take, so that two processes never write to one line.
const LINE_WORDS: usize = LINE / size_of::<Word>();

/// The slots of a table with at least `needed` of them. Programs see the number as `FDSize`, so it is Linux's.
const fn table_length(needed: usize) -> usize {
    if needed <= SLOTS_MIN { SLOTS_MIN } else { needed.next_power_of_two() }
}

impl Slots {
    /// One more than the highest descriptor in use.
    fn end(&self) -> usize {
        let last = self.words.iter().rposition(|word| word.used != 0);
        last.map_or(0, |index| index * 64 + 64 - self.words[index].used.leading_zeros() as usize)
    }

    fn is_used(&self, descriptor: u32) -> bool {
        self.words.get(word(descriptor)).is_some_and(|word| word.used & bit(descriptor) != 0)
    }

    fn closes_on_exec(&self, descriptor: u32) -> bool {
        self.words[word(descriptor)].close_on_exec & bit(descriptor) != 0
    }

    fn has_room_for(&self, descriptor: u32) -> bool {
        word(descriptor) < self.words.len()
    }

    /// Bitmaps without anything in use, for so many descriptors.
    fn with_length(length: usize) -> Result<Self> {
        let mut words = Vec::new();
        allocation::reserve(&mut words, (length / 64).max(LINE_WORDS))?;
        words.resize(length / 64, Word::default());
        Ok(Self { words, lowest_free: 0 })
    }

    /// Moves everything into larger bitmaps. What is left in the smaller ones is nothing but their memory.
    fn move_into(&mut self, larger: &mut Self) {
        larger.words[..self.words.len()].copy_from_slice(&self.words);
        larger.lowest_free = self.lowest_free;
        core::mem::swap(self, larger);
    }

    /// The lowest free descriptor from `minimum` on.
    fn find_free(&self, minimum: u32) -> u32 {
        let start = minimum.max(self.lowest_free);
        let first = word(start);
        let mut below = bit(start) - 1;
        for (index, word) in self.words.iter().enumerate().skip(first) {
            let taken = word.used | core::mem::take(&mut below);
            if taken != u64::MAX {
                return index as u32 * 64 + taken.trailing_ones();
            }
        }
        start.max(self.words.len() as u32 * 64)
    }

    fn take(&mut self, minimum: u32, limit: u32, close_on_exec: bool) -> Result<Taken> {
        let descriptor = self.find_free(minimum);
        if descriptor >= limit.min(DESCRIPTORS_MAX) {
            return Err(Error::TooManyDescriptors);
        }
        if !self.has_room_for(descriptor) {
            return Ok(Taken::NoRoom(descriptor));
        }
        self.mark(descriptor, close_on_exec);
        if minimum <= self.lowest_free {
            self.lowest_free = descriptor + 1;
        }
        Ok(Taken::Descriptor(descriptor))
    }

    fn mark(&mut self, descriptor: u32, close_on_exec: bool) {
        let word = &mut self.words[word(descriptor)];
        word.used |= bit(descriptor);
        word.set_close_on_exec(descriptor, close_on_exec);
    }

    fn set_close_on_exec(&mut self, descriptor: u32, close_on_exec: bool) {
        self.words[word(descriptor)].set_close_on_exec(descriptor, close_on_exec);
    }

    fn clear(&mut self, descriptor: u32) {
        let word = &mut self.words[word(descriptor)];
        word.used &= !bit(descriptor);
        word.close_on_exec &= !bit(descriptor);
        self.lowest_free = self.lowest_free.min(descriptor);
    }
}

impl Word {
    fn set_close_on_exec(&mut self, descriptor: u32, close_on_exec: bool) {
        if close_on_exec {
            self.close_on_exec |= bit(descriptor);
        } else {
            self.close_on_exec &= !bit(descriptor);
        }
    }
}

/// Room for so many files.
fn room(length: usize) -> Result<Room<OpenFile>> {
    memory::fallible::fail_point()?;
    Room::try_new(length).ok_or(Error::OutOfMemory)
}

impl DescriptorTable {
    /// A number of its own: the owner of record locks.
    pub fn id(&self) -> u64 {
        self.files.id()
    }

    /// The file of a descriptor of another task. Fails with `EBADF`.
    pub fn get(&self, descriptor: Descriptor) -> Result<Arc<OpenFile>> {
        self.files.get_foreign(descriptor as usize).ok_or(Error::BadDescriptor)
    }

    /// Reserves the lowest free descriptor. `limit` is `RLIMIT_NOFILE`.
    pub fn reserve(self: &Arc<Self>, limit: u64) -> Result<ReservedDescriptor> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        loop {
            let taken = self.files.write().take(0, limit, false)?;
            match taken {
                Taken::Descriptor(descriptor) => {
                    return Ok(ReservedDescriptor { table: self.clone(), descriptor, used: false });
                }
                Taken::NoRoom(descriptor) => self.make_room(descriptor)?,
            }
        }
    }

    /// Makes the table large enough for a descriptor. The lock is held only while the files are moved.
    #[cold]
    #[inline(never)]
    fn make_room(&self, descriptor: u32) -> Result<()> {
        let length = table_length(descriptor as usize + 1);
        let (mut larger, room) = (Slots::with_length(length)?, room(length)?);
        let mut slots = self.files.write();
        if !slots.has_room_for(descriptor) {
            slots.move_into(&mut larger);
            slots.grow(room);
        }
        drop(slots);
        Ok(())
    }

    /// Gives a file the lowest free descriptor from `minimum` on (`F_DUPFD`, `dup`).
    pub fn install(
        &self,
        file: Arc<OpenFile>,
        flags: DescriptorFlags,
        minimum: Descriptor,
        limit: u64,
    ) -> Result<Descriptor> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        if minimum >= limit {
            return Err(Error::Invalid);
        }
        let close_on_exec = flags.contains(DescriptorFlags::CLOSE_ON_EXEC);
        loop {
            let mut slots = self.files.write();
            let taken = slots.take(minimum, limit, close_on_exec)?;
            match taken {
                Taken::Descriptor(descriptor) => {
                    return put(&mut slots, descriptor, file).map(|()| descriptor);
                }
                Taken::NoRoom(descriptor) => {
                    drop(slots);
                    self.make_room(descriptor)?;
                }
            }
        }
    }

    /// Marks all descriptors from `first` to `last` (`CLOSE_RANGE_CLOEXEC`).
    pub fn mark_range(&self, first: Descriptor, last: Descriptor) {
        let mut slots = self.files.write();
        let end = (slots.length() as u32).min(last.saturating_add(1));
        for descriptor in first..end {
            if slots.is_filled(descriptor as usize) {
                slots.set_close_on_exec(descriptor, true);
            }
        }
    }

    /// The flags of a descriptor.
    pub fn flags(&self, descriptor: Descriptor) -> Result<DescriptorFlags> {
        let slots = self.files.write();
        if !slots.is_filled(descriptor as usize) {
            return Err(Error::BadDescriptor);
        }
        Ok(if slots.closes_on_exec(descriptor) {
            DescriptorFlags::CLOSE_ON_EXEC
        } else {
            DescriptorFlags::empty()
        })
    }

    /// Changes the flags of a descriptor.
    pub fn set_flags(&self, descriptor: Descriptor, flags: DescriptorFlags) -> Result<()> {
        let mut slots = self.files.write();
        if !slots.is_filled(descriptor as usize) {
            return Err(Error::BadDescriptor);
        }
        slots.set_close_on_exec(descriptor, flags.contains(DescriptorFlags::CLOSE_ON_EXEC));
        Ok(())
    }

    /// The lowest open descriptor from `from` on.
    pub fn next_open(&self, from: Descriptor) -> Option<Descriptor> {
        next_filled(&self.files.write(), from)
    }

    /// The number of open descriptors.
    pub fn open_count(&self) -> usize {
        self.files.write().words.iter().map(|word| word.used.count_ones() as usize).sum()
    }

    /// The number of slots (`FDSize` in `/proc/PID/status`). It grows with the highest descriptor that was ever open, and a copy for a
    /// new process begins with no more than that needs.
    pub fn size(&self) -> usize {
        self.files.write().length().max(SLOTS_MIN)
    }
}

/// The lowest descriptor with a file, from `from` on.
fn next_filled(slots: &Locked<'_>, from: Descriptor) -> Option<Descriptor> {
    let mut mask = !(bit(from) - 1);
    for index in word(from)..slots.words.len() {
        let mut bits = slots.words[index].used & core::mem::replace(&mut mask, u64::MAX);
        while bits != 0 {
            let descriptor = index as u32 * 64 + bits.trailing_zeros();
            // One that is only reserved has no file.
            if slots.is_filled(descriptor as usize) {
                return Some(descriptor);
            }
            bits &= bits - 1;
        }
    }
    None
}

/// Puts a file where a descriptor was taken for it.
fn put(slots: &mut Locked<'_>, descriptor: Descriptor, file: Arc<OpenFile>) -> Result<()> {
    let filled = slots.fill(descriptor as usize, file);
    debug_assert!(filled.is_ok(), "a descriptor that was taken is in use");
    filled.map_err(|_| Error::Busy)
}

impl Deref for Descriptors {
    type Target = Arc<DescriptorTable>;
    fn deref(&self) -> &Arc<DescriptorTable> {
        &self.table
    }
}

impl Descriptors {
    /// Descriptors in an empty table.
    pub fn new() -> Result<Self> {
        Self::with(Slots::default(), None)
    }

    fn with(slots: Slots, room: Option<Room<OpenFile>>) -> Result<Self> {
        let table = allocation::arc(DescriptorTable { files: ArcTable::new(slots), _fill: [0; FILL] })?;
        if let Some(room) = room {
            table.files.write().grow(room);
        }
        let owner = table.files.first_owner().expect("a new table has no owner");
        Ok(Self { table, owner })
    }

    /// For a task that shares the table (`CLONE_FILES`).
    pub fn share(&self) -> Self {
        Self { table: self.table.clone(), owner: self.table.files.share(&self.owner) }
    }

    /// Whether another task has the table too.
    pub fn is_shared(&self) -> bool {
        self.table.files.owners() > 1
    }

    /// The descriptors that a thread had which died in the kernel, if no other one has them.
    pub fn inherit(table: Arc<DescriptorTable>, died: &OwnerDied) -> Option<Self> {
        if table.files.owners() > 1 {
            return None;
        }
        let owner = table.files.inherit(died);
        Some(Self { table, owner })
    }

    /// A copy for a new process: the same files under the same numbers, in a table no larger than they need. Reserved descriptors are
    /// free in it.
    pub fn duplicate(&self) -> Result<Self> {
        self.duplicate_range(u32::MAX)
    }

    /// A copy of the descriptors below `end` (`close_range` with `CLOSE_RANGE_UNSHARE`).
    pub fn duplicate_range(&self, end: u32) -> Result<Self> {
        let files = &self.table.files;
        let needed = |slots: &Locked<'_>| match slots.end().min(end as usize) {
            0 => 0,
            wanted => table_length(wanted),
        };
        loop {
            let length = needed(&files.write());
            if length == 0 {
                return Self::new();
            }
            let (mut copy, mut room) = (Slots::with_length(length)?, room(length)?);
            let slots = files.write();
            if needed(&slots) > length {
                // Another thread was faster.
                continue;
            }
            for descriptor in 0..slots.end().min(end as usize) {
                if let Some(file) = slots.get(descriptor) {
                    room.put(descriptor, file);
                    let descriptor = descriptor as u32;
                    copy.mark(descriptor, slots.closes_on_exec(descriptor));
                }
            }
            drop(slots);
            return Self::with(copy, Some(room));
        }
    }

    /// The file of a descriptor, for this call. Fails with `EBADF`.
    #[inline(always)]
    pub fn look_up(&self, descriptor: Descriptor) -> Result<FileRef<'_>> {
        self.table.files.look_up(&self.owner, descriptor as usize).ok_or(Error::BadDescriptor)
    }

    /// As [`look_up`](Self::look_up), but `O_PATH` handles count as bad: for everything that needs a file's contents.
    #[inline(always)]
    pub fn look_up_usable(&self, descriptor: Descriptor) -> Result<FileRef<'_>> {
        let file = self.look_up(descriptor)?;
        if file.flags().contains(crate::flags::OpenFlags::PATH) {
            Err(Error::BadDescriptor)
        } else {
            Ok(file)
        }
    }

    /// What a descriptor's file is ready for now. Fails with `EBADF` as [`look_up_usable`](Self::look_up_usable) does.
    pub fn ready(&self, descriptor: Descriptor) -> Result<PollEvents> {
        Ok(self.look_up_usable(descriptor)?.poll(None))
    }

    /// A reference to the file of a descriptor, for what outlives the call. Fails with `EBADF`.
    #[inline]
    pub fn get(&self, descriptor: Descriptor) -> Result<Arc<OpenFile>> {
        self.table.files.get(&self.owner, descriptor as usize).ok_or(Error::BadDescriptor)
    }

    /// As [`get`](Self::get), but `O_PATH` handles count as bad.
    #[inline]
    pub fn get_usable(&self, descriptor: Descriptor) -> Result<Arc<OpenFile>> {
        let file = self.get(descriptor)?;
        if file.flags().contains(crate::flags::OpenFlags::PATH) {
            Err(Error::BadDescriptor)
        } else {
            Ok(file)
        }
    }

    /// Gives a file a certain descriptor (`dup2`, `dup3`); returns the file that had it. The caller closes that with
    /// [`OpenFile::closed_by`]. `EBUSY` when another thread is about to open the descriptor, `EBADF` beyond the limit.
    pub fn replace(
        &self,
        file: Arc<OpenFile>,
        flags: DescriptorFlags,
        descriptor: Descriptor,
        limit: u64,
    ) -> Result<Option<Arc<OpenFile>>> {
        if u64::from(descriptor) >= limit || descriptor >= DESCRIPTORS_MAX {
            return Err(Error::BadDescriptor);
        }
        let mut slots = self.table.files.write();
        while !slots.has_room_for(descriptor) {
            drop(slots);
            self.make_room(descriptor)?;
            slots = self.table.files.write();
        }
        if !slots.is_filled(descriptor as usize) && slots.is_used(descriptor) {
            return Err(Error::Busy);
        }
        // In one step: others see the old file or the new one.
        let old = slots.replace(&self.owner, descriptor as usize, Some(file));
        slots.mark(descriptor, flags.contains(DescriptorFlags::CLOSE_ON_EXEC));
        drop(slots);
        Ok(old.map(|old| old.finish(&self.table.files)))
    }

    /// Closes a descriptor: record locks of this table on the file end, and the operations are told. The file ends
    /// with its last reference.
    pub fn close(&self, descriptor: Descriptor) -> Result<()> {
        self.remove(descriptor)?.closed_by(self.id())
    }

    /// Takes a file out without closing it as [`close`](Self::close) does.
    pub fn remove(&self, descriptor: Descriptor) -> Result<Arc<OpenFile>> {
        let mut slots = self.table.files.write();
        let file = self.take_out(&mut slots, descriptor);
        drop(slots);
        Ok(file.ok_or(Error::BadDescriptor)?.finish(&self.table.files))
    }

    #[inline(always)]
    fn take_out(&self, slots: &mut Locked<'_>, descriptor: Descriptor) -> Option<TakenOut<OpenFile>> {
        let file = slots.replace(&self.owner, descriptor as usize, None)?;
        slots.clear(descriptor);
        Some(file)
    }

    /// Closes all descriptors from `first` to `last` (`close_range`).
    pub fn close_range(&self, first: Descriptor, last: Descriptor) {
        let mut next = first;
        while let Some((descriptor, file)) = self.take_out_next(next, last) {
            // Errors of flushing have nobody to go to.
            let _ = file.finish(&self.table.files).closed_by(self.id());
            next = descriptor + 1;
        }
    }

    /// Takes out the file with the lowest descriptor from `first` to `last`.
    fn take_out_next(&self, first: Descriptor, last: Descriptor) -> Option<(Descriptor, TakenOut<OpenFile>)> {
        let mut slots = self.table.files.write();
        let descriptor = next_filled(&slots, first).filter(|&descriptor| descriptor <= last)?;
        Some((descriptor, self.take_out(&mut slots, descriptor)?))
    }

    /// Closes what is marked to be closed on exec.
    pub fn close_on_exec(&self) {
        let mut next = 0;
        loop {
            let file = {
                let mut slots = self.table.files.write();
                let found = (word(next)..slots.words.len()).find_map(|index| {
                    let bits = slots.words[index].close_on_exec & slots.words[index].used;
                    (bits != 0).then(|| index as u32 * 64 + bits.trailing_zeros())
                });
                let Some(descriptor) = found else { return };
                next = descriptor;
                let file = self.take_out(&mut slots, descriptor);
                if file.is_none() {
                    // Reserved by a thread that is gone by now.
                    slots.set_close_on_exec(descriptor, false);
                }
                file
            };
            if let Some(file) = file {
                let _ = file.finish(&self.table.files).closed_by(self.id());
            }
        }
    }

    /// Closes everything: the last user of the table is gone.
    pub fn close_all(&self) {
        self.close_range(0, u32::MAX - 1);
    }
}

impl Drop for Descriptors {
    /// The last one closes everything.
    fn drop(&mut self) {
        if self.table.files.release(&mut self.owner)
            && let Some(owner) = self.table.files.first_owner()
        {
            self.owner = owner;
            self.close_all();
        }
    }
}

/// A descriptor that nobody else gets; given back unless a file is put there.
pub struct ReservedDescriptor {
    table: Arc<DescriptorTable>,
    descriptor: Descriptor,
    used: bool,
}

impl ReservedDescriptor {
    /// The number.
    pub fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    /// Puts the file there.
    pub fn install(mut self, file: Arc<OpenFile>, flags: DescriptorFlags) -> Descriptor {
        self.used = true;
        let mut slots = self.table.files.write();
        slots.set_close_on_exec(self.descriptor, flags.contains(DescriptorFlags::CLOSE_ON_EXEC));
        let put = put(&mut slots, self.descriptor, file);
        drop(slots);
        debug_assert!(put.is_ok(), "a reserved descriptor was taken");
        self.descriptor
    }
}

impl Drop for ReservedDescriptor {
    fn drop(&mut self) {
        if !self.used {
            self.table.files.write().clear(self.descriptor);
        }
    }
}
