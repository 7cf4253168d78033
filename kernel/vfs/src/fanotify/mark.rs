//! Marks: what a group wants to hear of an object.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use sync::SpinLock;

use super::group::Group;
use super::mask::{FanMask, MarkFlags, MarkedKind};
use crate::attributes::DeviceNumber;
use crate::inode::Inode;
use crate::watch_account::Charge;
use crate::watched::Share;
use crate::{Result, allocation};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct MarkRequest {
    /// How.
    pub flags: MarkFlags,
    /// On what.
    pub kind: MarkedKind,
    /// Which events.
    pub mask: FanMask,
}

/// What a mark hangs on, as far as its owner shows it.
pub(super) enum Marked {
    Inode {
        device: DeviceNumber,
        number: u64,
        /// Keeps it in memory.
        _inode: Option<Arc<Inode>>,
    },
    Mount(u64),
    FileSystem(DeviceNumber),
}

impl Marked {
    pub(super) fn kind(&self) -> MarkedKind {
        match self {
            Self::Inode { .. } => MarkedKind::Inode,
            Self::Mount(_) => MarkedKind::Mount,
            Self::FileSystem(_) => MarkedKind::FileSystem,
        }
    }
}

/// A mark.
pub(crate) struct Mark {
    pub(super) group: Arc<Group>,
    pub(super) marked: Marked,
    mask: AtomicU32,
    ignored: AtomicU32,
    /// `IGNORED_SURVIVES`, `IGNORE`, `EVICTABLE`.
    flags: AtomicU32,
    pub(super) _charge: Charge,
    pub(super) _share: Share,
}

impl Mark {
    pub(super) fn new(
        group: &Arc<Group>,
        marked: Marked,
        flags: MarkFlags,
        charge: Charge,
    ) -> Result<Arc<Self>> {
        allocation::arc(Self {
            group: group.clone(),
            marked,
            mask: AtomicU32::new(0),
            ignored: AtomicU32::new(0),
            flags: AtomicU32::new((flags & MarkFlags::EVICTABLE).bits()),
            _charge: charge,
            _share: Share::new(),
        })
    }

    // Relaxed, here and below: who changes a mark and who reports agree on no order.
    pub(super) fn mask(&self) -> FanMask {
        FanMask::from_bits_retain(self.mask.load(Ordering::Relaxed))
    }

    pub(super) fn ignored(&self) -> FanMask {
        FanMask::from_bits_retain(self.ignored.load(Ordering::Relaxed))
    }

    pub(super) fn flags(&self) -> MarkFlags {
        MarkFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Adds to what it asks for, or to what it ignores.
    pub(super) fn add(&self, mask: FanMask, flags: MarkFlags) {
        if flags.intersects(MarkFlags::IGNORED_MASK | MarkFlags::IGNORE) {
            let kept = MarkFlags::IGNORED_SURVIVES | MarkFlags::IGNORE;
            self.flags.fetch_or((flags & kept).bits(), Ordering::Relaxed);
            self.ignored.fetch_or(mask.bits(), Ordering::Relaxed);
        } else {
            self.mask.fetch_or(mask.bits(), Ordering::Relaxed);
        }
    }

    /// Takes away; returns whether nothing is left.
    pub(super) fn remove(&self, mask: FanMask, flags: MarkFlags) -> bool {
        let ignores = flags.intersects(MarkFlags::IGNORED_MASK | MarkFlags::IGNORE);
        let from = if ignores { &self.ignored } else { &self.mask };
        from.fetch_and(!mask.bits(), Ordering::Relaxed);
        (self.mask() | self.ignored()).difference(FanMask::MODIFIERS).is_empty()
    }

    /// The file was modified: what was to be ignored until then is no longer.
    pub(super) fn note_modification(&self) {
        if !self.flags().contains(MarkFlags::IGNORED_SURVIVES) && !self.ignored().is_empty() {
            self.ignored.store(0, Ordering::Relaxed);
        }
    }

    /// Nothing is told any more.
    pub(super) fn end(&self) {
        self.mask.store(0, Ordering::Relaxed);
        self.ignored.store(0, Ordering::Relaxed);
    }

    /// What it ignores of an event, which is of a directory or not, and hit the mark as that of the directory in which the file is or not.
    pub(super) fn ignores(&self, of_directory: bool, as_parent: bool) -> FanMask {
        let mut ignored = self.ignored();
        if !self.flags().contains(MarkFlags::IGNORE) {
            ignored |= FanMask::ON_DIRECTORY | self.mask() & FanMask::ON_CHILD;
        }
        let counts = (!of_directory || ignored.contains(FanMask::ON_DIRECTORY))
            && (!as_parent || ignored.contains(FanMask::ON_CHILD));
        if counts { ignored } else { FanMask::empty() }
    }
}

/// The marks on an object. A mark keeps its place in the list, since those who report go through it without holding the lock; a new one gets
/// the place of one that is gone.
pub(crate) struct MarkList(SpinLock<Vec<Weak<Mark>>>);

impl MarkList {
    pub(crate) const fn new() -> Self {
        Self(SpinLock::named("marks on an object", Vec::new()))
    }

    pub(super) fn add(&self, mark: &Arc<Mark>) -> Result<()> {
        let mut marks = allocation::lock_with_room(|| self.0.lock(), 1, |marks| marks)?;
        let new = Arc::downgrade(mark);
        match marks.iter_mut().find(|known| known.strong_count() == 0) {
            Some(gone) => *gone = new,
            None => marks.push(new),
        }
        Ok(())
    }

    /// The mark at a place, if it is there still; `None` behind the last one.
    pub(super) fn get(&self, index: usize) -> Option<Option<Arc<Mark>>> {
        self.0.lock().get(index).map(Weak::upgrade)
    }

    /// A group's mark.
    pub(super) fn of_group(&self, group: &Arc<Group>) -> Option<Arc<Mark>> {
        let mut index = 0;
        loop {
            let mark = self.get(index)?;
            if let Some(mark) = mark.filter(|mark| Arc::ptr_eq(&mark.group, group)) {
                return Some(mark);
            }
            index += 1;
        }
    }

    /// The object is gone, or nobody hears of it any more.
    pub(crate) fn end(&self) {
        let mut index = 0;
        while let Some(mark) = self.get(index) {
            if let Some(mark) = mark {
                mark.end();
            }
            index += 1;
        }
    }
}

impl Drop for MarkList {
    fn drop(&mut self) {
        for mark in self.0.get_mut().iter().filter_map(Weak::upgrade) {
            mark.end();
        }
    }
}
