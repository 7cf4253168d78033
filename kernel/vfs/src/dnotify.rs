//! `F_NOTIFY`: the owner of an open directory is sent a signal when something happens in it.
//!
//! What programs had before `inotify`. A notice belongs to an open file and a descriptor table: it ends after one event unless it is to stay, and when the table closes
//! the file. It hangs on the directory, beside the watches of `inotify`, and hears of the same events.

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use bitflags::bitflags;

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
    {
        let watches = file.inode().watches()?;
        let mut notices = allocation::lock_with_room(|| watches.notices(), 1, |notices| notices)?;
        match notices.iter().find(|known| known.is_of(file.id(), table)) {
            None => notices.push(notice),
            Some(known) => {
                known.descriptor.store(descriptor, Ordering::Relaxed);
                known.mask.fetch_or(mask.bits(), Ordering::Relaxed);
            }
        }
    }
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

/// A table closes an open file, or wants to hear nothing more.
#[cold]
pub(crate) fn end(file: &OpenFile, table: u64) {
    let Some(watches) = file.inode().existing_watches() else { return };
    let ended = {
        let mut notices = watches.notices();
        let index = notices.iter().position(|notice| notice.is_of(file.id(), table));
        index.map(|index| notices.swap_remove(index))
    };
    drop(ended);
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
    let mut index = 0;
    loop {
        let notice = watches.notices().get(index).cloned();
        let Some(notice) = notice else { return };
        notice.tell(events);
        index += 1;
    }
}
