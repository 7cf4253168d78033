//! Reporting what happened. While nothing is watched in the system, each report is one load.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use super::event::{Event, EventMask};
use crate::attributes::FileKind;
use crate::dnotify;
use crate::file::OpenFile;
use crate::inode::Inode;
use crate::mount::Path;
use crate::name::Name;
use crate::watched;

/// Ties the two events of a rename together.
static NEXT_COOKIE: AtomicU32 = AtomicU32::new(1);

/// Whether anything is watched at all.
#[inline]
pub fn active() -> bool {
    watched::anything()
}

/// Tells the watches on an inode; `name` when it is about an entry of the directory.
fn tell(inode: &Inode, mask: EventMask, name: Option<&[u8]>, cookie: u32) {
    let Some(watches) = inode.existing_watches() else { return };
    dnotify::report(inode, mask);
    watches.for_each(|watch| {
        let wanted = watch.mask();
        if !wanted.intersects(mask & EventMask::EVENTS) {
            return;
        }
        // An event without its name would mislead: one that does not fit in memory is dropped.
        let name = match name.map(Name::new).transpose() {
            Ok(name) => name,
            Err(_) => return,
        };
        // Of two events at the same time one ends a watch for one.
        let is_last = wanted.contains(EventMask::ONE_SHOT);
        if is_last && watch.mask.swap(0, Ordering::AcqRel) == 0 {
            return;
        }
        watch.queue.push(Event { watch: watch.descriptor, mask, cookie, name });
        if is_last {
            let ignored = Event { watch: watch.descriptor, mask: EventMask::IGNORED, cookie: 0, name: None };
            watch.queue.push(ignored);
        }
    });
}

/// Something happened to the file at a place: its own watches and those on its directory are told.
#[inline]
pub fn report(place: &Path, mask: EventMask) {
    if watched::anything() {
        report_watched(place, mask);
    }
}

#[inline(never)]
fn report_watched(place: &Path, mask: EventMask) {
    let Ok(inode) = place.inode() else { return };
    let mask = if inode.kind == FileKind::Directory { mask | EventMask::IS_DIRECTORY } else { mask };
    if let Some(parent) = place.dentry.parent()
        && let Some(directory) = parent.inode()
        && let Ok(name) = place.dentry.name()
    {
        tell(directory, mask, Some(name.as_bytes()), 0);
    }
    tell(inode, mask, None, 0);
}

/// A file's contents have changed by themselves: the watches on the file are told.
pub fn report_changed_contents(inode: &Inode) {
    if watched::anything() {
        tell(inode, EventMask::MODIFY, None, 0);
    }
}

/// Something happened through an open file.
#[inline]
pub fn report_file(file: &OpenFile, mask: EventMask) {
    if let Some(path) = file.path() {
        report(path, mask);
    }
}

/// A name in a directory was created or deleted.
#[inline]
pub fn report_child(parent: &Path, name: &[u8], mask: EventMask, is_directory: bool) {
    if watched::anything()
        && let Ok(directory) = parent.inode()
    {
        let mask = if is_directory { mask | EventMask::IS_DIRECTORY } else { mask };
        tell(directory, mask, Some(name), 0);
    }
}

/// A name was moved.
pub fn report_rename(old: (&Path, &[u8]), new: (&Path, &[u8]), inode: &Inode, is_directory: bool) {
    if !watched::anything() {
        return;
    }
    let cookie = NEXT_COOKIE.fetch_add(1, Ordering::Relaxed);
    if let (Ok(from), Ok(to)) = (old.0.inode(), new.0.inode())
        && Arc::ptr_eq(from, to)
    {
        dnotify::report_rename(from);
    }
    let directory = if is_directory { EventMask::IS_DIRECTORY } else { EventMask::empty() };
    if let Ok(parent) = old.0.inode() {
        tell(parent, EventMask::MOVED_FROM | directory, Some(old.1), cookie);
    }
    if let Ok(parent) = new.0.inode() {
        tell(parent, EventMask::MOVED_TO | directory, Some(new.1), cookie);
    }
    tell(inode, EventMask::MOVE_SELF | directory, None, 0);
}

/// A name of the file was removed.
pub fn report_unlinked(inode: &Arc<Inode>) {
    if !watched::anything() {
        return;
    }
    if inode.kind != FileKind::Directory {
        tell(inode, EventMask::ATTRIBUTE, None, 0);
    }
    report_gone(inode);
}

/// A name or an open file was the last one, perhaps: if the file is gone, its watches end.
#[inline]
pub fn report_gone(inode: &Inode) {
    if watched::anything() && inode.is_gone() {
        end_watches(inode);
    }
}

#[inline(never)]
fn end_watches(inode: &Inode) {
    let Some(watches) = inode.existing_watches() else { return };
    tell(inode, EventMask::DELETE_SELF, None, 0);
    watches.for_each(|watch| {
        if watch.mask.swap(0, Ordering::AcqRel) != 0 {
            let ignored = Event { watch: watch.descriptor, mask: EventMask::IGNORED, cookie: 0, name: None };
            watch.queue.push(ignored);
        }
    });
}
