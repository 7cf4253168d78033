//! What is registered with a ring: files, buffers, personalities, and buffers that are provided in groups.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use ::memory::buffer::UserRange;
use sync::SpinLock;
use vfs::OpenFile;

use super::groups::Groups;
use crate::credentials::identity::Credentials;
use crate::errno::Errno;

/// Files that a ring can have registered.
pub(super) const FILES_MAX: usize = 1 << 15;
/// Buffers that a ring can have registered.
pub(super) const BUFFERS_MAX: usize = 1 << 14;
/// Personalities that a ring can have.
const PERSONALITIES_MAX: usize = 1 << 10;
/// In a place for an operation that opens: the first that is free.
pub(super) const ANY_PLACE: u32 = u32::MAX;

/// The table of files.
struct Files {
    places: Vec<Option<Arc<OpenFile>>>,
    /// From where places are given out.
    given_out: Range<usize>,
}

/// See the theory of this file. Each table has a lock of its own; nothing is dropped under one.
pub(super) struct Resources {
    files: SpinLock<Option<Files>>,
    buffers: SpinLock<Option<Vec<UserRange>>>,
    personalities: SpinLock<Vec<(u16, Arc<Credentials>)>>,
    pub(super) groups: Groups,
}

impl Resources {
    pub(super) const fn new() -> Self {
        Self {
            files: SpinLock::named("files of a ring", None),
            buffers: SpinLock::named("buffers of a ring", None),
            personalities: SpinLock::named("personalities of a ring", Vec::new()),
            groups: Groups::new(),
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
        let given_out = 0..new.len();
        *files = Some(Files { places: new, given_out });
        Ok(())
    }

    /// Places of the table of files, if there is one.
    pub(super) fn files(&self) -> Option<usize> {
        self.files.lock().as_ref().map(|files| files.places.len())
    }

    /// # Errors
    /// ENXIO.
    pub(super) fn forget_files(&self) -> Result<(), Errno> {
        let files = self.files.lock().take();
        if files.is_none() { Err(Errno::ENXIO) } else { Ok(()) }
    }

    /// The file that is registered in a place.
    pub(super) fn file(&self, place: u32) -> Option<Arc<OpenFile>> {
        self.files.lock().as_ref()?.places.get(place as usize)?.clone()
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
        let outcome = match files.as_mut().map(|files| files.places.get_mut(place as usize)) {
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
        let Files { places, given_out } = table;
        let free = given_out.clone().find(|place| places[*place].is_none()).ok_or(Errno::ENFILE)?;
        places[free] = Some(file);
        Ok(free)
    }

    /// Says from where places are given out.
    ///
    /// # Errors
    /// EINVAL for a part that the table has not, EOVERFLOW.
    pub(super) fn give_out(&self, first: u32, count: u32) -> Result<(), Errno> {
        let end = first.checked_add(count).ok_or(Errno::EOVERFLOW)? as usize;
        match self.files.lock().as_mut() {
            Some(files) if end <= files.places.len() => files.given_out = first as usize..end,
            None if end == 0 => {}
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
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
}
