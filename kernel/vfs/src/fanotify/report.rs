//! Looking for the groups that want to hear of an event, and telling them.

use alloc::boxed::Box;
use alloc::sync::Arc;

use smallvec::SmallVec;

use super::event::{About, Event, NamedDirectory, Records};
use super::group::Group;
use super::mark::MarkList;
use super::mask::{CLASSES, FanMask, GroupFlags};
use super::question::Question;
use crate::attributes::FileKind;
use crate::file::OpenFile;
use crate::handle;
use crate::inode::Inode;
use crate::mount::Path;
use crate::name::Name;
use crate::{Error, Result, allocation, caller};

/// Something that happens.
#[derive(Clone, Copy)]
pub(crate) struct Happening<'a> {
    /// The event, and `ON_DIRECTORY` if it is about one.
    pub(crate) mask: FanMask,
    /// The file: the one with the name in an event about names, if that is known.
    pub(crate) inode: Option<&'a Arc<Inode>>,
    /// Where it was opened.
    pub(crate) place: Option<&'a Path>,
    /// The directory that it is in, and its name there.
    pub(crate) directory: Option<(&'a Arc<Inode>, &'a [u8])>,
    /// Where it is moved to.
    pub(crate) new_directory: Option<(&'a Arc<Inode>, &'a [u8])>,
}

/// Lists of marks that an event meets: of the file system, the mount, the file (or the directory, if it is about a name there), where it is moved to, and
/// the directory that the file is in.
const LISTS: usize = 5;
const FILE_SYSTEM: usize = 0;
const OWN: usize = 2;
const NEW: usize = 3;
const PARENT: usize = 4;

/// Groups that are remembered without memory: there are seldom more.
const MET_IN_PLACE: usize = 4;

impl<'a> Happening<'a> {
    fn is_of_name(&self) -> bool {
        self.mask.intersects(FanMask::OF_NAMES)
    }

    fn is_of_directory(&self) -> bool {
        self.mask.contains(FanMask::ON_DIRECTORY)
    }

    /// What the event is about for who knows files by handles only.
    fn subject(&self) -> Option<&'a Arc<Inode>> {
        if self.is_of_name() { self.directory.map(|(directory, _)| directory) } else { self.inode }
    }

    /// What a group wants of it, and which lists its marks are in.
    fn wanted(&self, group: &Arc<Group>, lists: &[Option<&MarkList>; LISTS]) -> (FanMask, [bool; LISTS]) {
        let (mut wanted, mut ignored) = (FanMask::empty(), FanMask::empty());
        let mut matches = [false; LISTS];
        for (index, list) in lists.iter().enumerate() {
            let Some(mark) = list.and_then(|list| list.of_group(group)) else { continue };
            let as_parent = index == PARENT;
            ignored |= mark.ignores(self.is_of_directory(), as_parent);
            if self.mask.contains(FanMask::MODIFY) {
                mark.note_modification();
            }
            let mask = mark.mask();
            if (self.is_of_directory() && !mask.contains(FanMask::ON_DIRECTORY))
                || (as_parent && !mask.contains(FanMask::ON_CHILD))
            {
                continue;
            }
            wanted |= mask;
            matches[index] = mask.intersects(self.mask.difference(FanMask::MODIFIERS));
        }
        (self.mask & wanted & !ignored.difference(FanMask::MODIFIERS), matches)
    }

    /// Whether a group of this kind can be told of it at all.
    fn can_be_told(&self, group: &Group) -> bool {
        if group.flags.intersects(GroupFlags::HANDLES) {
            return group.flags.contains(GroupFlags::REPORT_FID)
                || self.directory.is_some()
                || self.is_of_directory();
        }
        let is_file = |path: &Path| {
            path.inode().is_ok_and(|inode| matches!(inode.kind, FileKind::Regular | FileKind::Directory))
        };
        self.place.is_some_and(is_file) && self.mask.intersects(FanMask::OF_FILES)
    }

    /// What groups get that want handles.
    fn records(&self, flags: GroupFlags, matches: &[bool; LISTS]) -> Result<Records> {
        let subject = self.subject().ok_or(Error::Stale)?;
        let superblock = subject.superblock().ok_or(Error::Stale)?;
        let mut records = Records {
            file_system: superblock.status().id,
            directory: None,
            new_directory: None,
            object: None,
        };
        let named = |(directory, name): (&Arc<Inode>, &[u8])| -> Result<NamedDirectory> {
            let name = flags.contains(GroupFlags::REPORT_NAME).then(|| Name::new(name)).transpose()?;
            Ok(NamedDirectory { handle: handle::encode(directory)?, name })
        };
        if !flags.contains(GroupFlags::REPORT_DIRECTORY) {
            records.object = Some(handle::encode(subject)?);
            return Ok(records);
        }
        let target = || self.inode.map(handle::encode).transpose();
        if self.mask.contains(FanMask::RENAME) {
            let (old, new) = (matches[FILE_SYSTEM] || matches[OWN], matches[FILE_SYSTEM] || matches[NEW]);
            records.directory = self.directory.filter(|_| old).map(named).transpose()?;
            records.new_directory = self.new_directory.filter(|_| new).map(named).transpose()?;
        } else if self.is_of_name() {
            records.directory = self.directory.map(named).transpose()?;
        } else if !flags.contains(GroupFlags::REPORT_NAME) && self.is_of_directory() {
            // The only handle says by the event what it is of.
            records.object = Some(handle::encode(subject)?);
        } else if self.is_of_directory() {
            // The directory itself, which programs know by the name `.`.
            records.directory = Some(named((subject, b"."))?);
        } else {
            records.directory = self.directory.map(named).transpose()?;
            if flags.contains(GroupFlags::REPORT_FID) {
                records.object = Some(handle::encode(subject)?);
            }
        }
        if self.is_of_name() && flags.contains(GroupFlags::REPORT_TARGET) {
            records.object = target()?;
        }
        if records.object.is_none() && !flags.contains(GroupFlags::REPORT_NAME) {
            records.object = records.directory.take().map(|directory| directory.handle);
        }
        Ok(records)
    }

    fn event(&self, group: &Group, mask: FanMask, matches: &[bool; LISTS]) -> Result<Event> {
        let about = if group.flags.intersects(GroupFlags::HANDLES) {
            About::Handles(allocation::boxed(self.records(group.flags, matches)?)?)
        } else {
            About::Place(self.place.ok_or(Error::Stale)?.clone())
        };
        let shown = if group.flags.intersects(GroupFlags::HANDLES) {
            mask.difference(FanMask::ON_CHILD)
        } else {
            mask.difference(FanMask::MODIFIERS)
        };
        let process = group.flags.contains(GroupFlags::REPORT_PIDFD).then(caller::process).flatten();
        let pid = caller::number(group.flags.contains(GroupFlags::REPORT_TID));
        let question = mask.intersects(FanMask::PERMISSIONS).then(Question::new).transpose()?;
        Ok(Event { mask: shown, pid, process, about, question })
    }

    /// Tells a group, or asks it.
    fn tell(&self, group: &Arc<Group>, lists: &[Option<&MarkList>; LISTS]) -> Result<()> {
        let (wanted, matches) = self.wanted(group, lists);
        if wanted.difference(FanMask::MODIFIERS).is_empty() || !self.can_be_told(group) {
            return Ok(());
        }
        let event = self.event(group, wanted, &matches).and_then(|event| allocation::boxed(event));
        let event: Box<Event> = match event {
            Ok(event) => event,
            Err(error) if wanted.intersects(FanMask::PERMISSIONS) => return Err(error),
            Err(_) => {
                group.lose();
                return Ok(());
            }
        };
        let question = event.question.clone();
        group.push(event);
        question.map_or(Ok(()), |question| group.wait_for_answer(&question))
    }

    /// Calls with each group that has a mark in one of the lists, once.
    fn for_each_group(
        lists: &[Option<&MarkList>; LISTS],
        mut each: impl FnMut(&Arc<Group>) -> Result<()>,
    ) -> Result<()> {
        // Groups may get and lose marks meanwhile, so whether one was met before is not asked of the lists.
        let mut met: SmallVec<[Arc<Group>; MET_IN_PLACE]> = SmallVec::new();
        for list in lists.iter().flatten() {
            let mut index = 0;
            while let Some(mark) = list.get(index) {
                index += 1;
                let Some(mark) = mark else { continue };
                if met.iter().any(|known| Arc::ptr_eq(known, &mark.group)) {
                    continue;
                }
                each(&mark.group)?;
                // Without memory a group may be told twice, which is better than not at all.
                if met.try_reserve(1).is_ok() {
                    met.push(mark.group.clone());
                }
            }
        }
        Ok(())
    }

    fn deliver(&self) -> Result<()> {
        let Some(subject) = self.subject() else { return Ok(()) };
        let superblock = subject.superblock();
        let of_inode = |inode: &'a Arc<Inode>| inode.existing_watches().map(|watches| watches.marks());
        let is_of_name = self.is_of_name();
        let directory = self.directory.map(|(directory, _)| directory);
        let lists = [
            superblock.as_ref().map(|superblock| superblock.marks()),
            self.place.filter(|_| !is_of_name).map(|place| place.mount.marks()),
            of_inode(subject),
            self.new_directory.and_then(|(directory, _)| of_inode(directory)),
            directory.filter(|_| !is_of_name).and_then(of_inode),
        ];
        if !self.mask.intersects(FanMask::PERMISSIONS) {
            return Self::for_each_group(&lists, |group| self.tell(group, &lists));
        }
        for class in (0..CLASSES).rev() {
            Self::for_each_group(&lists, |group| match group.flags.class() == class {
                true => self.tell(group, &lists),
                false => Ok(()),
            })?;
        }
        Ok(())
    }
}

/// Tells all groups of something that has happened.
pub(crate) fn report(happening: &Happening<'_>) {
    if super::instance::any_marks() {
        let told = happening.deliver();
        debug_assert!(told.is_ok(), "only questions are answered");
    }
}

/// Asks all groups whether something may happen at a place.
fn ask(place: &Path, mask: FanMask) -> Result<()> {
    if !super::instance::any_marks() {
        return Ok(());
    }
    let inode = place.inode()?;
    let is_directory = inode.kind == FileKind::Directory;
    let mask = if is_directory { mask | FanMask::ON_DIRECTORY } else { mask };
    let parent = place.dentry.parent();
    let name = place.dentry.name();
    let directory = match (parent.as_ref().and_then(|parent| parent.inode()), &name) {
        (Some(directory), Ok(name)) => Some((directory, name.as_bytes())),
        _ => None,
    };
    let happening =
        Happening { mask, inode: Some(inode), place: Some(place), directory, new_directory: None };
    happening.deliver()
}

/// May the file at a place be opened?
///
/// # Errors
/// `EPERM` if a group denies it, `EINTR` for who is killed while he waits.
#[cold]
#[inline(never)]
pub(crate) fn ask_open(place: &Path) -> Result<()> {
    ask(place, FanMask::OPEN_PERMISSION)
}

/// May the file at a place be executed?
///
/// # Errors
/// As [`ask_open`].
#[cold]
#[inline(never)]
pub(crate) fn ask_execution(place: &Path) -> Result<()> {
    ask(place, FanMask::OPEN_EXECUTE_PERMISSION)?;
    ask(place, FanMask::OPEN_PERMISSION)
}

/// May an open file be read?
///
/// # Errors
/// As [`ask_open`].
#[cold]
#[inline(never)]
pub(crate) fn ask_access(file: &OpenFile) -> Result<()> {
    match file.path() {
        Some(path) if file.is_watched() => ask(path, FanMask::ACCESS_PERMISSION),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::fanotify::mark::{Mark, Marked};
    use crate::fanotify::mask::MarkFlags;
    use crate::flags::OpenFlags;
    use crate::watch_account::{Charge, WatchAccount};

    fn group() -> Arc<Group> {
        Group::new(GroupFlags::empty(), OpenFlags::empty(), Arc::new(WatchAccount::new())).unwrap()
    }

    fn mark(group: &Arc<Group>, list: &MarkList) -> Arc<Mark> {
        let charge = Charge::mark(&group.account, true).unwrap();
        let mark = Mark::new(group, Marked::Mount(1), MarkFlags::empty(), charge).unwrap();
        list.add(&mark).unwrap();
        mark
    }

    /// Which of the groups are called, by number.
    fn called(groups: &[Arc<Group>], lists: &[MarkList; 2], mut meanwhile: impl FnMut(usize)) -> Vec<usize> {
        let mut called = Vec::new();
        let [of_file_system, own] = lists;
        let walked = [Some(of_file_system), None, Some(own), None, None];
        Happening::for_each_group(&walked, |group| {
            let number = groups.iter().position(|known| Arc::ptr_eq(known, group)).unwrap();
            called.push(number);
            meanwhile(number);
            Ok(())
        })
        .unwrap();
        called
    }

    #[test]
    fn a_group_that_gains_a_second_mark_meanwhile_is_told_once() {
        let groups = [group(), group()];
        let lists = [MarkList::new(), MarkList::new()];
        let mut marks: Vec<_> = groups.iter().map(|group| mark(group, &lists[1])).collect();
        let mut second = None;
        let heard = called(&groups, &lists, |number| {
            if number == 0 {
                second = Some(mark(&groups[1], &lists[0]));
            }
        });
        assert_eq!(heard, [0, 1], "its new mark is in a list that was through");
        assert_eq!(called(&groups, &lists, |_| ()), [1, 0]);
        marks.clear();
        assert_eq!(called(&groups, &lists, |_| ()), [1]);
    }

    #[test]
    fn a_group_that_loses_its_first_mark_meanwhile_is_told_once() {
        let groups = [group()];
        let lists = [MarkList::new(), MarkList::new()];
        let mut first = Some(mark(&groups[0], &lists[0]));
        let _second = mark(&groups[0], &lists[1]);
        assert_eq!(called(&groups, &lists, |_| first = None), [0]);
    }
}
