//! `F_NOTIFY`: the owner of an open directory is sent a signal when something happens in it.
//!
//! What programs had before `inotify`. A notice belongs to an open file and a descriptor table: it ends after one event unless it is to stay, and when the table closes
//! the file. It hangs on the directory, beside the watches of `inotify`, and hears of the same events.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use bitflags::bitflags;
use sync::SpinLock;

use crate::attributes::FileKind;
use crate::file::{FileOwner, OpenFile};
use crate::inode::InodeHead;
use crate::inotify::EventMask;
use crate::watched::Share;
use crate::{Error, Result, allocation};

bitflags! {
    /// What is to be told, as in `fcntl(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct NoticeMask: u32 {
        /// A file was read.
        const ACCESS = 0x1;
        /// A file was written or truncated.
        const MODIFY = 0x2;
        /// A file came in.
        const CREATE = 0x4;
        /// A file went.
        const DELETE = 0x8;
        /// A file was given another name in the directory.
        const RENAME = 0x10;
        /// A file's attributes changed.
        const ATTRIBUTE = 0x20;
        /// It is told until it is taken back, not just once.
        const MULTIPLE = 0x8000_0000;
    }
}

/// Whether there may be new ones (`/proc/sys/fs/dir-notify-enable`).
static ENABLED: AtomicBool = AtomicBool::new(true);

/// Whether there may be new ones.
pub fn enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Changes that.
pub fn set_enabled(enabled: bool) {
    ENABLED.store(enabled, Ordering::Relaxed);
}

/// Who wants to be told.
pub(crate) struct Notice {
    file: Weak<OpenFile>,
    /// The open file's number.
    id: u64,
    /// The descriptor table's number.
    table: u64,
    descriptor: AtomicI32,
    /// Nothing once it has ended.
    mask: AtomicU32,
    _share: Share,
}

impl NoticeMask {
    fn of_events(events: EventMask) -> Self {
        const PAIRS: [(EventMask, NoticeMask); 7] = [
            (EventMask::ACCESS, NoticeMask::ACCESS),
            (EventMask::MODIFY, NoticeMask::MODIFY),
            (EventMask::CREATE, NoticeMask::CREATE),
            (EventMask::MOVED_TO, NoticeMask::CREATE),
            (EventMask::DELETE, NoticeMask::DELETE),
            (EventMask::MOVED_FROM, NoticeMask::DELETE),
            (EventMask::ATTRIBUTE, NoticeMask::ATTRIBUTE),
        ];
        let wanted = PAIRS.iter().filter(|(event, _)| events.contains(*event));
        wanted.fold(Self::empty(), |all, (_, notice)| all | *notice)
    }
}

/// `F_NOTIFY`: what is to be told from now on beside what was asked for before; nothing takes all back. `owner` is told if nobody else is to be.
///
/// # Errors
/// `ENOTDIR`; `EINVAL` if there may be none; `ENOMEM`.
pub fn notify(
    file: &Arc<OpenFile>,
    table: u64,
    descriptor: i32,
    mask: NoticeMask,
    owner: FileOwner,
) -> Result<()> {
    if !enabled() {
        return Err(Error::Invalid);
    }
    if mask.difference(NoticeMask::MULTIPLE).is_empty() {
        end(file, table);
        return Ok(());
    }
    if file.inode().kind != FileKind::Directory {
        return Err(Error::NotDirectory);
    }
    let notice = allocation::arc(Notice {
        file: Arc::downgrade(file),
        id: file.id(),
        table,
        descriptor: AtomicI32::new(descriptor),
        mask: AtomicU32::new(mask.bits()),
        _share: Share::new(),
    })?;
    file.inode().watches()?.notices().add(notice)?;
    file.set_owner_if_none(owner);
    Ok(())
}

impl Notice {
    fn is_of(&self, id: u64, table: u64) -> bool {
        self.id == id && self.table == table
    }

    fn tell(&self, events: NoticeMask) {
        let wanted = |mask: u32| NoticeMask::from_bits_retain(mask);
        // Of two events at the same time one ends a notice for one.
        let told = self.mask.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |mask| {
            let stays = if wanted(mask).contains(NoticeMask::MULTIPLE) { mask } else { 0 };
            wanted(mask).intersects(events).then_some(stays)
        });
        if told.is_ok()
            && let Some(file) = self.file.upgrade()
        {
            crate::caller::tell_owner(&file.owner(), self.descriptor.load(Ordering::Relaxed));
        }
    }
}

/// The notices of a directory. A notice keeps its place in the list, since those who tell them go through it without holding the lock; a new one gets the
/// place of one that has ended.
pub(crate) struct NoticeList(SpinLock<Vec<Option<Arc<Notice>>>>);

impl NoticeList {
    pub(crate) const fn new() -> Self {
        Self(SpinLock::new(Vec::new()))
    }

    /// Adds one, or what it wants to the one that the same file and table have.
    fn add(&self, notice: Arc<Notice>) -> Result<()> {
        let mut notices = allocation::lock_with_room(|| self.0.lock(), 1, |notices| notices)?;
        if let Some(known) = notices.iter().flatten().find(|known| known.is_of(notice.id, notice.table)) {
            known.descriptor.store(notice.descriptor.load(Ordering::Relaxed), Ordering::Relaxed);
            known.mask.fetch_or(notice.mask.load(Ordering::Relaxed), Ordering::Relaxed);
            return Ok(());
        }
        match notices.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(notice),
            None => notices.push(Some(notice)),
        }
        Ok(())
    }

    /// Takes out the one of a file and a table.
    fn remove(&self, id: u64, table: u64) -> Option<Arc<Notice>> {
        let mut notices = self.0.lock();
        let is_it =
            |place: &&mut Option<Arc<Notice>>| place.as_ref().is_some_and(|known| known.is_of(id, table));
        notices.iter_mut().find(is_it)?.take()
    }

    /// Calls `each` with every notice, without the lock.
    fn for_each(&self, mut each: impl FnMut(&Notice)) {
        let mut index = 0;
        loop {
            let notice = match self.0.lock().get(index) {
                Some(notice) => notice.clone(),
                None => return,
            };
            if let Some(notice) = notice {
                each(&notice);
            }
            index += 1;
        }
    }
}

/// A table closes an open file, or wants to hear nothing more.
#[cold]
pub(crate) fn end(file: &OpenFile, table: u64) {
    let Some(watches) = file.inode().existing_watches() else { return };
    drop(watches.notices().remove(file.id(), table));
}

/// Something happened in a directory.
pub(crate) fn report(directory: &InodeHead, events: EventMask) {
    report_notices(directory, NoticeMask::of_events(events));
}

/// A file was given another name in a directory.
pub(crate) fn report_rename(directory: &InodeHead) {
    report_notices(directory, NoticeMask::RENAME);
}

fn report_notices(directory: &InodeHead, events: NoticeMask) {
    if directory.kind != FileKind::Directory || events.is_empty() {
        return;
    }
    let Some(watches) = directory.existing_watches() else { return };
    watches.notices().for_each(|notice| notice.tell(events));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ids: core::ops::Range<u64>) -> NoticeList {
        let list = NoticeList::new();
        ids.for_each(|id| list.add(notice(id)).unwrap());
        list
    }

    fn notice(id: u64) -> Arc<Notice> {
        Arc::new(Notice {
            file: Weak::new(),
            id,
            table: 1,
            descriptor: AtomicI32::new(0),
            mask: AtomicU32::new(NoticeMask::CREATE.bits()),
            _share: Share::new(),
        })
    }

    fn told(list: &NoticeList, mut meanwhile: impl FnMut(u64)) -> Vec<u64> {
        let mut told = Vec::new();
        list.for_each(|notice| {
            told.push(notice.id);
            meanwhile(notice.id);
        });
        told
    }

    #[test]
    fn a_notice_that_ends_while_others_are_told_has_nobody_passed_over() {
        let list = list(0..4);
        let heard = told(&list, |id| {
            if id == 1 {
                assert!(list.remove(0, 1).is_some());
            }
        });
        assert_eq!(heard, [0, 1, 2, 3]);
        assert_eq!(told(&list, |_| ()), [1, 2, 3]);
    }

    #[test]
    fn a_new_notice_gets_the_place_of_one_that_has_ended() {
        let list = list(0..3);
        assert!(list.remove(1, 1).is_some() && list.remove(1, 1).is_none());
        list.add(notice(7)).unwrap();
        list.add(notice(7)).unwrap();
        assert_eq!(told(&list, |_| ()), [0, 7, 2]);
    }
}
