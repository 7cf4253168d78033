//! Descriptor tables: small numbers for open files.
//!
//! # Structure
//! A vector of slots, and two bitmaps: descriptors in use (or reserved), and those that close on exec. All under one
//! spin lock, held for a few instructions. The lowest free descriptor is found from a hint in the bitmap, 64 at a time.
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
//! Looking a descriptor up: one lock acquisition and one reference count increment (and the decrement at the end of the
//! call); no allocation. Closing drops the file outside of the lock.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use bitflags::bitflags;
use sync::SpinLock;

use super::open_file::OpenFile;
use crate::{Error, Result, allocation};

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

#[derive(Default)]
struct Slots {
    files: Vec<Option<Arc<OpenFile>>>,
    /// Descriptors in use or reserved; as many bits as there are slots, rounded up.
    used: Vec<u64>,
    close_on_exec: Vec<u64>,
    /// No free descriptor is below this one.
    lowest_free: u32,
}

/// What a search for a free descriptor came to.
enum Taken {
    Descriptor(u32),
    /// The lowest free one is beyond the table's end.
    NoRoom(u32),
}

/// A descriptor table.
pub struct DescriptorTable {
    id: u64,
    slots: SpinLock<Slots>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

const fn word(descriptor: u32) -> usize {
    (descriptor / 64) as usize
}

const fn bit(descriptor: u32) -> u64 {
    1 << (descriptor % 64)
}

/// The slots of a table with at least `needed` of them. Programs see the number as `FDSize`, so it is Linux's.
const fn table_length(needed: usize) -> usize {
    if needed <= SLOTS_MIN { SLOTS_MIN } else { needed.next_power_of_two() }
}

impl Slots {
    /// One more than the highest descriptor in use.
    fn end(&self) -> usize {
        let last = self.used.iter().rposition(|&bits| bits != 0);
        last.map_or(0, |index| index * 64 + 64 - self.used[index].leading_zeros() as usize)
    }

    fn is_used(&self, descriptor: u32) -> bool {
        self.used.get(word(descriptor)).is_some_and(|bits| bits & bit(descriptor) != 0)
    }

    fn has_room_for(&self, descriptor: u32) -> bool {
        (descriptor as usize) < self.files.len()
    }

    /// A table without files, large enough for a descriptor.
    fn with_room_for(descriptor: u32) -> Result<Self> {
        let length = table_length(descriptor as usize + 1);
        let mut files = Vec::new();
        allocation::reserve(&mut files, length)?;
        files.resize_with(length, || None);
        let used = allocation::filled(0, length / 64)?;
        let close_on_exec = allocation::filled(0, length / 64)?;
        Ok(Self { files, used, close_on_exec, lowest_free: 0 })
    }

    /// Moves everything into a larger table. What is left in the smaller one is nothing but its memory.
    fn move_into(&mut self, larger: &mut Self) {
        larger.files[..self.files.len()].swap_with_slice(&mut self.files);
        larger.used[..self.used.len()].copy_from_slice(&self.used);
        larger.close_on_exec[..self.close_on_exec.len()].copy_from_slice(&self.close_on_exec);
        larger.lowest_free = self.lowest_free;
        core::mem::swap(self, larger);
    }

    /// The lowest free descriptor from `minimum` on.
    fn find_free(&self, minimum: u32) -> u32 {
        let start = minimum.max(self.lowest_free);
        let first = word(start);
        for (index, &bits) in self.used.iter().enumerate().skip(first) {
            let masked = if index == first { bits | (bit(start) - 1) } else { bits };
            if masked != u64::MAX {
                return index as u32 * 64 + masked.trailing_ones();
            }
        }
        start.max(self.used.len() as u32 * 64)
    }

    fn take(&mut self, minimum: u32, limit: u32) -> Result<Taken> {
        let descriptor = self.find_free(minimum);
        if descriptor >= limit.min(DESCRIPTORS_MAX) {
            return Err(Error::TooManyDescriptors);
        }
        if !self.has_room_for(descriptor) {
            return Ok(Taken::NoRoom(descriptor));
        }
        self.mark(descriptor, false);
        if minimum <= self.lowest_free {
            self.lowest_free = descriptor + 1;
        }
        Ok(Taken::Descriptor(descriptor))
    }

    fn mark(&mut self, descriptor: u32, close_on_exec: bool) {
        self.used[word(descriptor)] |= bit(descriptor);
        self.set_close_on_exec(descriptor, close_on_exec);
    }

    fn set_close_on_exec(&mut self, descriptor: u32, close_on_exec: bool) {
        let bits = &mut self.close_on_exec[word(descriptor)];
        if close_on_exec {
            *bits |= bit(descriptor);
        } else {
            *bits &= !bit(descriptor);
        }
    }

    fn clear(&mut self, descriptor: u32) {
        self.used[word(descriptor)] &= !bit(descriptor);
        self.close_on_exec[word(descriptor)] &= !bit(descriptor);
        self.lowest_free = self.lowest_free.min(descriptor);
    }

    fn remove(&mut self, descriptor: u32) -> Option<Arc<OpenFile>> {
        let file = self.files.get_mut(descriptor as usize)?.take()?;
        self.clear(descriptor);
        Some(file)
    }
}

impl DescriptorTable {
    /// An empty table.
    pub fn new() -> Result<Arc<Self>> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        allocation::arc(Self { id, slots: SpinLock::new(Slots::default()) })
    }

    /// A number of its own: the owner of record locks.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// A copy for a new process: the same files under the same numbers, in a table no larger than they need. Reserved descriptors are
    /// free in it.
    pub fn duplicate(&self) -> Result<Arc<Self>> {
        self.duplicate_range(u32::MAX)
    }

    /// A copy of the descriptors below `end` (`close_range` with `CLOSE_RANGE_UNSHARE`).
    pub fn duplicate_range(&self, end: u32) -> Result<Arc<Self>> {
        let table = Self::new()?;
        let mut copy = Slots::default();
        loop {
            let slots = self.slots.lock();
            let wanted = slots.end().min(end as usize);
            if copy.files.capacity() < wanted || copy.used.capacity() < slots.used.len() {
                let words = slots.used.len();
                drop(slots);
                allocation::reserve(&mut copy.files, table_length(wanted))?;
                allocation::reserve(&mut copy.used, words)?;
                allocation::reserve(&mut copy.close_on_exec, words)?;
                continue;
            }
            for file in &slots.files[..wanted] {
                let descriptor = copy.files.len() as u32;
                if descriptor.is_multiple_of(64) {
                    copy.used.push(0);
                    copy.close_on_exec.push(0);
                }
                copy.files.push(file.clone());
                if file.is_some() {
                    let close = slots.close_on_exec[word(descriptor)] & bit(descriptor) != 0;
                    copy.mark(descriptor, close);
                }
            }
            break;
        }
        // Slots and bitmap words always cover the same descriptors.
        let length = if copy.files.is_empty() { 0 } else { table_length(copy.files.len()) };
        allocation::reserve_total(&mut copy.used, length / 64)?;
        allocation::reserve_total(&mut copy.close_on_exec, length / 64)?;
        copy.used.resize(length / 64, 0);
        copy.close_on_exec.resize(length / 64, 0);
        allocation::reserve_total(&mut copy.files, length)?;
        copy.files.resize_with(length, || None);
        *table.slots.lock() = copy;
        Ok(table)
    }

    /// The file of a descriptor. Fails with `EBADF`.
    #[inline]
    pub fn get(&self, descriptor: Descriptor) -> Result<Arc<OpenFile>> {
        match self.slots.lock().files.get(descriptor as usize) {
            Some(Some(file)) => Ok(file.clone()),
            _ => Err(Error::BadDescriptor),
        }
    }

    /// As [`get`](Self::get), but `O_PATH` handles count as bad: for everything that needs a file's contents.
    #[inline]
    pub fn get_usable(&self, descriptor: Descriptor) -> Result<Arc<OpenFile>> {
        let file = self.get(descriptor)?;
        if file.flags().contains(crate::flags::OpenFlags::PATH) {
            Err(Error::BadDescriptor)
        } else {
            Ok(file)
        }
    }

    /// Reserves the lowest free descriptor. `limit` is `RLIMIT_NOFILE`.
    pub fn reserve(self: &Arc<Self>, limit: u64) -> Result<ReservedDescriptor> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        loop {
            let taken = self.slots.lock().take(0, limit)?;
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
        let mut larger = Slots::with_room_for(descriptor)?;
        let mut slots = self.slots.lock();
        if !slots.has_room_for(descriptor) {
            slots.move_into(&mut larger);
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
        loop {
            let mut slots = self.slots.lock();
            let taken = slots.take(minimum, limit)?;
            match taken {
                Taken::Descriptor(descriptor) => {
                    slots.set_close_on_exec(descriptor, flags.contains(DescriptorFlags::CLOSE_ON_EXEC));
                    slots.files[descriptor as usize] = Some(file);
                    return Ok(descriptor);
                }
                Taken::NoRoom(descriptor) => {
                    drop(slots);
                    self.make_room(descriptor)?;
                }
            }
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
        let mut slots = self.slots.lock();
        while !slots.has_room_for(descriptor) {
            drop(slots);
            self.make_room(descriptor)?;
            slots = self.slots.lock();
        }
        let old = slots.files[descriptor as usize].take();
        if old.is_none() && slots.is_used(descriptor) {
            return Err(Error::Busy);
        }
        slots.files[descriptor as usize] = Some(file);
        slots.mark(descriptor, flags.contains(DescriptorFlags::CLOSE_ON_EXEC));
        Ok(old)
    }

    /// Closes a descriptor: record locks of this table on the file end, and the operations are told. The file ends
    /// with its last reference.
    pub fn close(&self, descriptor: Descriptor) -> Result<()> {
        let file = self.slots.lock().remove(descriptor).ok_or(Error::BadDescriptor)?;
        file.closed_by(self.id)
    }

    /// Takes a file out without closing it as [`close`](Self::close) does.
    pub fn remove(&self, descriptor: Descriptor) -> Result<Arc<OpenFile>> {
        self.slots.lock().remove(descriptor).ok_or(Error::BadDescriptor)
    }

    /// Closes all descriptors from `first` to `last` (`close_range`).
    pub fn close_range(&self, first: Descriptor, last: Descriptor) {
        let mut next = first;
        while let Some(descriptor) = self.next_open(next).filter(|&descriptor| descriptor <= last) {
            // Somebody else may have been faster; errors of flushing have nobody to go to.
            let _ = self.close(descriptor);
            next = descriptor + 1;
        }
    }

    /// Marks all descriptors from `first` to `last` (`CLOSE_RANGE_CLOEXEC`).
    pub fn mark_range(&self, first: Descriptor, last: Descriptor) {
        let mut slots = self.slots.lock();
        let end = (slots.files.len() as u32).min(last.saturating_add(1));
        for descriptor in first..end {
            if slots.files[descriptor as usize].is_some() {
                slots.set_close_on_exec(descriptor, true);
            }
        }
    }

    /// Closes what is marked to be closed on exec.
    pub fn close_on_exec(&self) {
        let mut next = 0;
        loop {
            let file = {
                let mut slots = self.slots.lock();
                let found = (word(next)..slots.close_on_exec.len()).find_map(|index| {
                    let bits = slots.close_on_exec[index] & slots.used[index];
                    (bits != 0).then(|| index as u32 * 64 + bits.trailing_zeros())
                });
                let Some(descriptor) = found else { return };
                next = descriptor;
                let file = slots.remove(descriptor);
                if file.is_none() {
                    // Reserved by a thread that is gone by now.
                    slots.set_close_on_exec(descriptor, false);
                }
                file
            };
            if let Some(file) = file {
                let _ = file.closed_by(self.id);
            }
        }
    }

    /// Closes everything: the last user of the table is gone.
    pub fn close_all(&self) {
        self.close_range(0, u32::MAX - 1);
    }

    /// The flags of a descriptor.
    pub fn flags(&self, descriptor: Descriptor) -> Result<DescriptorFlags> {
        let slots = self.slots.lock();
        match slots.files.get(descriptor as usize) {
            Some(Some(_)) => {
                let close = slots.close_on_exec[word(descriptor)] & bit(descriptor) != 0;
                Ok(if close { DescriptorFlags::CLOSE_ON_EXEC } else { DescriptorFlags::empty() })
            }
            _ => Err(Error::BadDescriptor),
        }
    }

    /// Changes the flags of a descriptor.
    pub fn set_flags(&self, descriptor: Descriptor, flags: DescriptorFlags) -> Result<()> {
        let mut slots = self.slots.lock();
        match slots.files.get(descriptor as usize) {
            Some(Some(_)) => {
                slots.set_close_on_exec(descriptor, flags.contains(DescriptorFlags::CLOSE_ON_EXEC));
                Ok(())
            }
            _ => Err(Error::BadDescriptor),
        }
    }

    /// The lowest open descriptor from `from` on.
    pub fn next_open(&self, from: Descriptor) -> Option<Descriptor> {
        let slots = self.slots.lock();
        let mut mask = !(bit(from) - 1);
        for index in word(from)..slots.used.len() {
            let mut bits = slots.used[index] & core::mem::replace(&mut mask, u64::MAX);
            while bits != 0 {
                let descriptor = index as u32 * 64 + bits.trailing_zeros();
                // One that is only reserved has no file.
                if slots.files[descriptor as usize].is_some() {
                    return Some(descriptor);
                }
                bits &= bits - 1;
            }
        }
        None
    }

    /// The number of open descriptors.
    pub fn open_count(&self) -> usize {
        self.slots.lock().used.iter().map(|bits| bits.count_ones() as usize).sum()
    }

    /// The number of slots (`FDSize` in `/proc/PID/status`). It grows with the highest descriptor that was ever open, and a copy for a
    /// new process begins with no more than that needs.
    pub fn size(&self) -> usize {
        self.slots.lock().files.len().max(SLOTS_MIN)
    }
}

impl Drop for DescriptorTable {
    fn drop(&mut self) {
        self.close_all();
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
        let mut slots = self.table.slots.lock();
        debug_assert!(slots.files[self.descriptor as usize].is_none(), "a reserved descriptor was taken");
        slots.set_close_on_exec(self.descriptor, flags.contains(DescriptorFlags::CLOSE_ON_EXEC));
        slots.files[self.descriptor as usize] = Some(file);
        drop(slots);
        self.descriptor
    }
}

impl Drop for ReservedDescriptor {
    fn drop(&mut self) {
        if !self.used {
            self.table.slots.lock().clear(self.descriptor);
        }
    }
}
