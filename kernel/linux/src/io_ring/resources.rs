//! What is registered with a ring: files, buffers, personalities, and buffers that are provided in groups.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ::memory::buffer::UserRange;
use ::memory::fallible;
use sync::SpinLock;
use vfs::OpenFile;

use crate::credentials::identity::Credentials;
use crate::errno::Errno;

/// Files that a ring can have registered.
pub(super) const FILES_MAX: usize = 1 << 15;
/// Buffers that a ring can have registered.
pub(super) const BUFFERS_MAX: usize = 1 << 14;
/// Personalities that a ring can have.
const PERSONALITIES_MAX: usize = 1 << 10;
/// Groups of provided buffers, and buffers of a group.
const GROUPS_MAX: usize = 1 << 10;
const PROVIDED_MAX: usize = 1 << 16;
/// Buffers that all groups of a ring have room for: what the kernel keeps of them is nobody's memory.
const ALL_PROVIDED_MAX: usize = 1 << 20;
/// In a place for an operation that opens: the first that is free.
pub(super) const ANY_PLACE: u32 = u32::MAX;

/// A buffer of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Provided {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) number: u16,
}

struct Group {
    number: u16,
    buffers: VecDeque<Provided>,
}

type Files = Option<Vec<Option<Arc<OpenFile>>>>;

/// See the theory of this file. Each table has a lock of its own; nothing is dropped under one.
pub(super) struct Resources {
    files: SpinLock<Files>,
    buffers: SpinLock<Option<Vec<UserRange>>>,
    personalities: SpinLock<Vec<(u16, Arc<Credentials>)>>,
    groups: SpinLock<Vec<Group>>,
}

impl Resources {
    pub(super) const fn new() -> Self {
        Self {
            files: SpinLock::named("files of a ring", None),
            buffers: SpinLock::named("buffers of a ring", None),
            personalities: SpinLock::named("personalities of a ring", Vec::new()),
            groups: SpinLock::named("provided buffers of a ring", Vec::new()),
        }
    }

    /// Nobody has the ring open any more.
    pub(super) fn clear(&self) {
        let files = self.files.lock().take();
        drop(files);
    }

    /// Registers files.
    ///
    /// # Errors
    /// EBUSY.
    pub(super) fn set_files(&self, new: Vec<Option<Arc<OpenFile>>>) -> Result<(), Errno> {
        let mut files = self.files.lock();
        if files.is_some() {
            drop(files);
            return Err(Errno::EBUSY);
        }
        *files = Some(new);
        Ok(())
    }

    /// Places of the table of files, if there is one.
    pub(super) fn files(&self) -> Option<usize> {
        self.files.lock().as_ref().map(Vec::len)
    }

    /// # Errors
    /// ENXIO.
    pub(super) fn forget_files(&self) -> Result<(), Errno> {
        let files = self.files.lock().take();
        if files.is_none() { Err(Errno::ENXIO) } else { Ok(()) }
    }

    /// The file that is registered in a place.
    pub(super) fn file(&self, place: u32) -> Option<Arc<OpenFile>> {
        self.files.lock().as_ref()?.get(place as usize)?.clone()
    }

    /// Replaces the file in a place, and returns the former one.
    ///
    /// # Errors
    /// ENXIO without a table, EINVAL beyond it.
    pub(super) fn replace_file(
        &self,
        place: u32,
        file: Option<Arc<OpenFile>>,
    ) -> Result<Option<Arc<OpenFile>>, Errno> {
        let mut files = self.files.lock();
        let outcome = match files.as_mut().map(|files| files.get_mut(place as usize)) {
            None => Err(Errno::ENXIO),
            Some(None) => Err(Errno::EINVAL),
            Some(Some(slot)) => {
                return Ok(core::mem::replace(slot, file));
            }
        };
        drop(files);
        drop(file);
        outcome
    }

    /// Puts an opened file into a place, as the entry says it: one more than its number, or [`ANY_PLACE`]. What the
    /// operation returns.
    ///
    /// # Errors
    /// ENXIO, EINVAL; ENFILE when there is no place.
    pub(super) fn install(&self, place: u32, file: Arc<OpenFile>) -> Result<usize, Errno> {
        if place != ANY_PLACE {
            let former = self.replace_file(place - 1, Some(file))?;
            drop(former);
            return Ok(0);
        }
        let mut files = self.files.lock();
        let Some(table) = files.as_mut() else { return Err(Errno::ENXIO) };
        let Some(free) = table.iter().position(Option::is_none) else { return Err(Errno::ENFILE) };
        table[free] = Some(file);
        Ok(free)
    }

    /// Registers buffers.
    ///
    /// # Errors
    /// EBUSY.
    pub(super) fn set_buffers(&self, new: Vec<UserRange>) -> Result<(), Errno> {
        let mut buffers = self.buffers.lock();
        if buffers.is_some() {
            drop(buffers);
            return Err(Errno::EBUSY);
        }
        *buffers = Some(new);
        Ok(())
    }

    /// # Errors
    /// ENXIO.
    pub(super) fn forget_buffers(&self) -> Result<(), Errno> {
        let buffers = self.buffers.lock().take();
        if buffers.is_none() { Err(Errno::ENXIO) } else { Ok(()) }
    }

    /// Checks that a range lies within a registered buffer.
    ///
    /// # Errors
    /// EFAULT.
    pub(super) fn check_range(&self, buffer: u16, address: u64, length: u32) -> Result<(), Errno> {
        let buffers = self.buffers.lock();
        let range = buffers.as_ref().and_then(|buffers| buffers.get(usize::from(buffer)));
        let range = range.ok_or(Errno::EFAULT)?;
        let start = range.address.as_u64();
        let end = start + range.length as u64;
        let wanted_end = address.checked_add(length.into()).ok_or(Errno::EFAULT)?;
        if address < start || wanted_end > end || range.length == 0 { Err(Errno::EFAULT) } else { Ok(()) }
    }

    /// Registers credentials; the number of the personality.
    ///
    /// # Errors
    /// ENOMEM, EBUSY.
    pub(super) fn add_personality(&self, credentials: &Arc<Credentials>) -> Result<usize, Errno> {
        let mut personalities =
            vfs::allocation::lock_with_room(|| self.personalities.lock(), 1, |list| list)?;
        if personalities.len() >= PERSONALITIES_MAX {
            return Err(Errno::EBUSY);
        }
        let free = (1..).find(|number| personalities.iter().all(|(used, _)| used != number));
        let number = free.ok_or(Errno::EBUSY)?;
        personalities.push((number, credentials.clone()));
        Ok(number.into())
    }

    /// # Errors
    /// EINVAL.
    pub(super) fn remove_personality(&self, number: u16) -> Result<(), Errno> {
        let mut personalities = self.personalities.lock();
        let found = personalities.iter().position(|(used, _)| *used == number).ok_or(Errno::EINVAL)?;
        let former = personalities.swap_remove(found);
        drop(personalities);
        drop(former);
        Ok(())
    }

    pub(super) fn personality(&self, number: u16) -> Option<Arc<Credentials>> {
        let personalities = self.personalities.lock();
        personalities.iter().find(|(used, _)| *used == number).map(|(_, credentials)| credentials.clone())
    }

    /// Adds buffers to a group, which is made if it is not there.
    ///
    /// # Errors
    /// ENOMEM, EOVERFLOW.
    pub(super) fn provide(&self, group: u16, first: Provided, count: usize) -> Result<(), Errno> {
        let mut room: VecDeque<Provided> = VecDeque::new();
        loop {
            let mut groups = vfs::allocation::lock_with_room(|| self.groups.lock(), 1, |list| list)?;
            let known = groups.iter_mut().position(|known| known.number == group);
            let at = match known {
                Some(at) => at,
                None if groups.len() >= GROUPS_MAX => {
                    // One that is used up leaves its place.
                    let empty = groups.iter().position(|known| known.buffers.is_empty());
                    let at = empty.ok_or(Errno::ENOMEM)?;
                    groups[at].number = group;
                    at
                }
                None => {
                    groups.push(Group { number: group, buffers: VecDeque::new() });
                    groups.len() - 1
                }
            };
            let all: usize = groups.iter().map(|known| known.buffers.capacity()).sum();
            if all + count > ALL_PROVIDED_MAX {
                return Err(Errno::ENOMEM);
            }
            let buffers = &mut groups[at].buffers;
            let total = buffers.len() + count;
            if total > PROVIDED_MAX {
                return Err(Errno::EOVERFLOW);
            }
            if buffers.capacity() < total && room.capacity() >= total {
                room.extend(buffers.drain(..));
                core::mem::swap(buffers, &mut room);
            }
            if buffers.capacity() >= total {
                for index in 0..count {
                    buffers.push_back(Provided {
                        address: first.address + index as u64 * u64::from(first.length),
                        length: first.length,
                        number: first.number + index as u16,
                    });
                }
                return Ok(());
            }
            drop(groups);
            fallible::fail_point().map_err(|_| Errno::ENOMEM)?;
            room.try_reserve(2 * total).map_err(|_| Errno::ENOMEM)?;
        }
    }

    /// Takes buffers of a group away; how many.
    ///
    /// # Errors
    /// ENOENT.
    pub(super) fn remove_provided(&self, group: u16, count: usize) -> Result<usize, Errno> {
        let mut groups = self.groups.lock();
        let group = groups.iter_mut().find(|known| known.number == group).ok_or(Errno::ENOENT)?;
        let removed = count.min(group.buffers.len());
        group.buffers.drain(..removed);
        Ok(removed)
    }

    /// The next buffer of a group.
    ///
    /// # Errors
    /// ENOBUFS.
    pub(super) fn take_provided(&self, group: u16) -> Result<Provided, Errno> {
        let mut groups = self.groups.lock();
        let group = groups.iter_mut().find(|known| known.number == group).ok_or(Errno::ENOBUFS)?;
        group.buffers.pop_front().ok_or(Errno::ENOBUFS)
    }

    /// A buffer that was taken was not used.
    pub(super) fn give_back(&self, group: u16, buffer: Provided) {
        let mut groups = self.groups.lock();
        if let Some(group) = groups.iter_mut().find(|known| known.number == group)
            && group.buffers.len() < group.buffers.capacity()
        {
            group.buffers.push_front(buffer);
        }
    }
}
