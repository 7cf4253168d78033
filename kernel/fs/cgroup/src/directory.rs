//! The directory of a group, and the inodes of its files.
//!
//! Inodes are made when somebody looks, and kept by the group from then on: their owners and modes are what delegation is made of. A
//! removed group forgets them. Which files there are depends on the controllers that the group may use, so a name that was found is
//! asked about again at each use.

use alloc::sync::{Arc, Weak};

use vfs::attributes::{DeviceNumber, FileKind};
use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::inode::{DirectorySink, FIRST_POSITION, Inode, InodeAttributes, InodeOperations, NewFile};
use vfs::name::Name;
use vfs::{Error, OpenFlags, Result, allocation};

use crate::file::GroupFile;
use crate::group::Group;
use crate::interface::{self, Entry};
use crate::tree;

/// Place of the directory among a group's inodes; files follow by their places in the table.
const DIRECTORY: u8 = 0;
/// Inode numbers of a group: more than it can have files.
const NUMBERS: u64 = 256;

/// Does not keep the group: what the file layer remembers of names outlives it.
pub(crate) struct GroupDirectory(Weak<Group>);

/// The group that an inode is the directory of.
pub(crate) fn group_of(inode: &Inode) -> Option<Arc<Group>> {
    inode.downcast::<GroupDirectory>()?.0.upgrade()
}

fn number(group: &Group, place: u8) -> u64 {
    (group.number - 1) * NUMBERS + u64::from(place) + 1
}

/// The attributes of a group's directory.
pub(crate) fn attributes(group: &Group, mode: u32, user: u32, owners: u32) -> InodeAttributes {
    InodeAttributes {
        number: number(group, DIRECTORY),
        kind: FileKind::Directory,
        mode,
        user,
        group: owners,
        links: 2,
        special: DeviceNumber::default(),
        size: 0,
    }
}

/// What a group's directory does.
pub(crate) fn operations(group: &Arc<Group>) -> GroupDirectory {
    GroupDirectory(Arc::downgrade(group))
}

/// An inode of the group that somebody has looked up.
pub(crate) fn known(group: &Group, place: u8) -> Option<Arc<Inode>> {
    let inodes = group.inodes.lock();
    inodes.iter().find(|(known, _)| *known == place).map(|(_, inode)| inode.clone())
}

/// Keeps an inode, unless there is one of its place already; the one that there is then.
pub(crate) fn keep(group: &Group, place: u8, inode: Arc<Inode>) -> Result<Arc<Inode>> {
    let mut inodes = group.inodes.lock();
    if let Some((_, first)) = inodes.iter().find(|(known, _)| *known == place) {
        let first = first.clone();
        drop(inodes);
        return Ok(first);
    }
    allocation::reserve(&mut inodes, 1)?;
    inodes.push((place, inode.clone()));
    Ok(inode)
}

/// The directory's inode.
fn own(group: &Group) -> Result<Arc<Inode>> {
    known(group, DIRECTORY).ok_or(Error::NoDevice)
}

/// Keeps the directory's inode.
pub(crate) fn keep_own(group: &Group, inode: Arc<Inode>) -> Result<Arc<Inode>> {
    keep(group, DIRECTORY, inode)
}

/// The inode of a file, which belongs to who made the group at first.
pub(crate) fn file(group: &Arc<Group>, place: usize) -> Result<Arc<Inode>> {
    let entry = &interface::ENTRIES[place];
    let place = place as u8 + 1;
    if let Some(inode) = known(group, place) {
        return Ok(inode);
    }
    let directory = own(group)?;
    let attributes = InodeAttributes {
        number: number(group, place),
        kind: FileKind::Regular,
        mode: entry.mode,
        user: group.maker.0,
        group: group.maker.1,
        links: 1,
        special: DeviceNumber::default(),
        size: 0,
    };
    let inode: Arc<Inode> = Inode::beside(&directory, attributes, GroupFile::new(group, entry))?;
    keep(group, place, inode)
}

/// A file that a group has now, and its place in the table.
fn entry(group: &Group, name: &[u8]) -> Option<(usize, &'static Entry)> {
    let mut entries = interface::ENTRIES.iter().enumerate();
    entries.find(|(_, entry)| entry.name.as_bytes() == name && entry.is_shown(group))
}

impl GroupDirectory {
    fn group(&self) -> Result<Arc<Group>> {
        self.0.upgrade().ok_or(Error::NotFound)
    }
}

impl InodeOperations for GroupDirectory {
    fn lookup(&self, _directory: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        let group = self.group()?;
        if let Some((place, _)) = entry(&group, name) {
            return file(&group, place);
        }
        own(&*group.child(name).ok_or(Error::NotFound)?).map_err(|_| Error::NotFound)
    }

    fn still_valid(&self, _directory: &Inode, name: &[u8], child: &Inode) -> bool {
        let Ok(group) = self.group() else { return false };
        if child.kind == FileKind::Regular {
            return entry(&group, name).is_some();
        }
        group.child(name).is_some_and(|group| number(&group, DIRECTORY) == child.number)
    }

    fn create(&self, directory: &Arc<Inode>, name: &Name, new: &NewFile<'_>) -> Result<Arc<Inode>> {
        match new.kind {
            FileKind::Directory => {}
            FileKind::Regular => return Err(Error::AccessDenied),
            _ => return Err(Error::NotPermitted),
        }
        let made = tree::make(&self.group()?, name.as_bytes(), (new.user, new.group), |group| {
            let attributes = attributes(group, new.mode, new.user, new.group);
            let inode: Arc<Inode> = Inode::beside(directory, attributes, operations(group))?;
            keep_own(group, inode)
        })?;
        directory.add_link();
        directory.touch_modified();
        Ok(made)
    }

    fn remove_directory(&self, directory: &Arc<Inode>, _name: &[u8], inode: &Arc<Inode>) -> Result<()> {
        let group = group_of(inode).ok_or(Error::NotPermitted)?;
        tree::remove(&group)?;
        inode.set_links(0);
        directory.remove_link();
        directory.touch_modified();
        Ok(())
    }

    fn read_directory(&self, _directory: &Inode, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let group = self.group()?;
        // Files first, by their places in the table; groups follow by their numbers.
        let groups = FIRST_POSITION + NUMBERS;
        let mut position = position;
        while position < groups {
            let place = (position - FIRST_POSITION) as usize;
            let Some(entry) = interface::ENTRIES.get(place) else {
                position = groups;
                break;
            };
            let file = number(&group, place as u8 + 1);
            if entry.is_shown(&group)
                && !sink.entry(entry.name.as_bytes(), file, FileKind::Regular, position + 1)
            {
                return Ok(position);
            }
            position += 1;
        }
        while let Some(child) = group.next_child(position - groups) {
            let next = groups + child.number + 1;
            if !sink.entry(child.name.as_bytes(), number(&child, DIRECTORY), FileKind::Directory, next) {
                return Ok(groups + child.number);
            }
            position = next;
        }
        Ok(position)
    }

    fn open(&self, _inode: &Arc<Inode>, _flags: OpenFlags) -> Result<Option<Arc<dyn FileOperations>>> {
        Ok(None)
    }

    fn file_operations(&self) -> &dyn FileOperations {
        &DirectoryFile
    }
}

struct DirectoryFile;

impl FileOperations for DirectoryFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE
    }

    fn sync(&self, _file: &OpenFile, _data_only: bool) -> Result<()> {
        Ok(())
    }
}
