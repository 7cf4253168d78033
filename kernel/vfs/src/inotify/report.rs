//! Reporting what happened. While nothing is watched in the system, each report is one load.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use super::event::{Event, EventMask};
use crate::attributes::FileKind;
use crate::dnotify;
use crate::fanotify::{self, FanMask, Happening};
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
        report_watched(place, mask, true);
    }
}

/// The size or the attributes of the file at a place changed: who gets descriptors of files hears nothing of it.
#[inline]
pub fn report_attributes(place: &Path, mask: EventMask) {
    if watched::anything() {
        report_watched(place, mask, false);
    }
}

#[inline(never)]
fn report_watched(place: &Path, mask: EventMask, is_opened: bool) {
    let Ok(inode) = place.inode() else { return };
    let mask = if inode.kind == FileKind::Directory { mask | EventMask::IS_DIRECTORY } else { mask };
    tell_place(place, inode, mask, FanMask::empty(), is_opened);
}

/// Tells all who watch the file at a place or its directory; of some events they hear by `fanotify` only.
fn tell_place(place: &Path, inode: &Arc<Inode>, mask: EventMask, also: FanMask, is_opened: bool) {
    let (parent, name) = (place.dentry.parent(), place.dentry.name());
    let directory = match (parent.as_ref().and_then(|parent| parent.inode()), &name) {
        (Some(directory), Ok(name)) => Some((directory, name.as_bytes())),
        _ => None,
    };
    if let Some((directory, name)) = directory {
        tell(directory, mask, Some(name), 0);
    }
    tell(inode, mask, None, 0);
    let (mask, place) = (shared_mask(mask) | also, is_opened.then_some(place));
    let happening = Happening { mask, inode: Some(inode), place, directory, new_directory: None };
    fanotify::report(&happening);
}

/// A file was opened to be executed.
pub(crate) fn report_execution(place: &Path) {
    if watched::anything()
        && let Ok(inode) = place.inode()
    {
        tell_place(place, inode, EventMask::OPEN, FanMask::OPEN_EXECUTE, true);
    }
}

/// The events that both ways of watching know, which have the same numbers.
fn shared_mask(mask: EventMask) -> FanMask {
    FanMask::from_bits_truncate((mask & (EventMask::EVENTS | EventMask::IS_DIRECTORY)).bits())
}

/// Something happened to a file, whatever its names are.
fn tell_inode(inode: &Arc<Inode>, mask: EventMask) {
    tell(inode, mask, None, 0);
    let is_directory = inode.kind == FileKind::Directory;
    let also = if is_directory { FanMask::ON_DIRECTORY } else { FanMask::empty() };
    let mask = shared_mask(mask) | also;
    let happening = Happening { mask, inode: Some(inode), place: None, directory: None, new_directory: None };
    fanotify::report(&happening);
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
    if let Some(path) = file.path()
        && file.is_watched()
    {
        report(path, mask);
    }
}

/// A name in a directory was created or deleted.
#[inline]
pub fn report_child(
    parent: &Path,
    name: &[u8],
    mask: EventMask,
    is_directory: bool,
    inode: Option<&Arc<Inode>>,
) {
    if watched::anything()
        && let Ok(directory) = parent.inode()
    {
        let mask = if is_directory { mask | EventMask::IS_DIRECTORY } else { mask };
        tell(directory, mask, Some(name), 0);
        let (mask, directory) = (shared_mask(mask), Some((directory, name)));
        fanotify::report(&Happening { mask, inode, place: None, directory, new_directory: None });
    }
}

/// A name was moved.
pub fn report_rename(old: (&Path, &[u8]), new: (&Path, &[u8]), inode: &Arc<Inode>, is_directory: bool) {
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
    if let (Ok(from), Ok(to)) = (old.0.inode(), new.0.inode()) {
        let event = |mask, place, new_directory| {
            let mask = mask | shared_mask(directory);
            Happening { mask, inode: Some(inode), place: None, directory: Some(place), new_directory }
        };
        let (from, to) = ((from, old.1), (to, new.1));
        fanotify::report(&event(FanMask::RENAME, from, Some(to)));
        fanotify::report(&event(FanMask::MOVED_FROM, from, None));
        fanotify::report(&event(FanMask::MOVED_TO, to, None));
    }
    if let Ok(parent) = old.0.inode() {
        tell(parent, EventMask::MOVED_FROM | directory, Some(old.1), cookie);
    }
    if let Ok(parent) = new.0.inode() {
        tell(parent, EventMask::MOVED_TO | directory, Some(new.1), cookie);
    }
    tell_inode(inode, EventMask::MOVE_SELF | directory);
}

/// A name of the file was removed.
pub fn report_unlinked(inode: &Arc<Inode>) {
    if !watched::anything() {
        return;
    }
    if inode.kind != FileKind::Directory {
        tell_inode(inode, EventMask::ATTRIBUTE);
    }
    report_gone(inode);
}

/// A name or an open file was the last one, perhaps: if the file is gone, its watches end.
#[inline]
pub fn report_gone(inode: &Arc<Inode>) {
    if watched::anything() && inode.is_gone() {
        end_watches(inode);
    }
}

#[inline(never)]
fn end_watches(inode: &Arc<Inode>) {
    tell_inode(inode, EventMask::DELETE_SELF);
    let Some(watches) = inode.existing_watches() else { return };
    watches.marks().end();
    watches.for_each(|watch| {
        if watch.mask.swap(0, Ordering::AcqRel) != 0 {
            let ignored = Event { watch: watch.descriptor, mask: EventMask::IGNORED, cookie: 0, name: None };
            watch.queue.push(ignored);
        }
    });
}
