//! Names: creating, linking, removing and moving files. Each operation is one handle, so it happens as a whole or not at all.
//!
//! A file whose last name goes is put into the list of orphans; when nobody has it open any more, [`Writer::delete`] follows.
//!
//! # Locking
//! The caller keeps others from changing the same directories and files meanwhile, and has checked permissions.

use alloc::vec::Vec;

use crate::blocks::Blocks;
use crate::directory_block::NewEntry;
use crate::directory_change::{self as directory, check_alive, check_name};
use crate::geometry::read_only_compatible;
use crate::handle::Handle;
use crate::inode::{Inode, Kind, Time};
use crate::layout::MAP_BYTES;
use crate::writer::Writer;
use crate::xattr_change::SetAttribute;
use crate::{Error, Result};

/// Names that a file may have.
const LINKS_MAX: u16 = 65_000;

/// A file to be created.
#[derive(Clone, Copy)]
pub struct NewFile<'a> {
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// For devices: major and minor.
    pub special: (u32, u32),
    /// For links: where it leads to.
    pub target: &'a [u8],
    /// Extended attributes that it begins with: names and values.
    pub attributes: &'a [(&'a [u8], &'a [u8])],
    /// May use what is kept for the superuser.
    pub privileged: bool,
}

/// A name to be moved.
#[derive(Clone, Copy)]
pub struct Move<'a> {
    /// The directory it is in.
    pub from: u32,
    /// The name.
    pub old: &'a [u8],
    /// The directory it goes to.
    pub to: u32,
    /// The new name.
    pub new: &'a [u8],
    /// Both names exist and are to change places.
    pub exchange: bool,
    /// The new name must not exist.
    pub keep_existing: bool,
    /// What has the old name afterwards; not with `exchange`.
    pub whiteout: Option<&'a NewFile<'a>>,
    /// May use what is kept for the superuser.
    pub privileged: bool,
}

/// Numbers in the inode: old ones in the first word, new ones in the second.
fn encode_device((major, minor): (u32, u32), map: &mut [u8; MAP_BYTES]) {
    let (at, value) = if major < 256 && minor < 256 {
        (0, major << 8 | minor)
    } else {
        (4, minor & 0xff | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12)
    };
    map[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn add_link(handle: &Handle<'_>, inode: &mut Inode) -> Result<()> {
    if inode.kind != Kind::Directory {
        if inode.links >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        inode.links += 1;
    } else if inode.links != 1 {
        // One means: more than can be counted. A damaged number may be any.
        inode.links = inode.links.saturating_add(1);
        if inode.links >= LINKS_MAX {
            if !handle.geometry().has_read_only_compatible(read_only_compatible::MANY_SUBDIRECTORIES) {
                return Err(Error::TooManyLinks);
            }
            inode.links = 1;
        }
    }
    Ok(())
}

fn remove_link(inode: &mut Inode) {
    if inode.kind != Kind::Directory || inode.links > 2 {
        inode.links = inode.links.saturating_sub(1);
    }
}

/// Takes the last name, or one of several, from a file; without names it joins the orphans. Returns its new state.
fn drop_name(handle: &mut Handle<'_>, mut inode: Inode, now: Time) -> Result<Inode> {
    inode.changed = now;
    if inode.kind == Kind::Directory {
        inode.links = 0;
        inode.size = 0;
        // Its blocks are freed when it is deleted; until then it reads as empty.
    } else {
        remove_link(&mut inode);
    }
    if inode.links == 0 {
        handle.list_orphan(&mut inode)?;
    }
    handle.store(&inode)?;
    Ok(inode)
}

impl Handle<'_> {
    fn make_inode(&mut self, parent: &Inode, new: &NewFile<'_>, now: Time) -> Result<Inode> {
        let geometry = &self.system().geometry;
        let number = self.allocate_inode(parent.number, new.kind == Kind::Directory)?;
        // Differs from that of the inode's last file, whether that was made in this step of the clock or long ago.
        let made = self.running.made.wrapping_add(1);
        self.running.made = made;
        let generation = (now.seconds as u32).rotate_left(12) ^ now.nanoseconds ^ number.rotate_left(20);
        let generation = generation.wrapping_add(made.wrapping_mul(0x9e37_79b9));
        let mut inode = Inode::new(geometry, number, new.kind, generation, now);
        inode.mode = new.mode & 0o7777;
        (inode.user, inode.group) = (new.user, new.group);
        inode.inherit(parent);
        match new.kind {
            Kind::CharacterDevice | Kind::BlockDevice => {
                inode.special = new.special;
                encode_device(new.special, &mut inode.map);
            }
            Kind::Link => self.set_target(&mut inode, new.target)?,
            Kind::Directory => {
                inode.links = 2;
                directory::begin(self, &mut inode, parent.number)?;
            }
            _ => {}
        }
        self.store_new(&inode)?;
        for (name, value) in new.attributes {
            self.set_attribute(&mut inode, name, Some(value), SetAttribute::Create)?;
            inode.has_inner_attributes = true;
        }
        Ok(inode)
    }

    fn set_target(&mut self, inode: &mut Inode, target: &[u8]) -> Result<()> {
        if target.is_empty() || target.len() >= self.geometry().block_bytes {
            return Err(Error::NameTooLong);
        }
        if target.len() < MAP_BYTES {
            inode.map[..target.len()].copy_from_slice(target);
        } else {
            if self.geometry().has_incompatible(crate::geometry::incompatible::EXTENTS) {
                inode.flags |= crate::layout::FLAG_EXTENTS;
                inode.map = crate::inode_store::empty_extents();
            }
            let mut bytes: Vec<u8> = self.empty_block()?;
            bytes[..target.len()].copy_from_slice(target);
            self.append_block(inode, bytes)?;
        }
        inode.size = target.len() as u64;
        Ok(())
    }
}

impl Writer {
    /// Creates a file.
    pub fn create(&self, parent: u32, name: &[u8], new: &NewFile<'_>, now: Time) -> Result<Inode> {
        check_name(name)?;
        self.change(new.privileged, |handle| {
            let mut parent = check_alive(handle, parent)?;
            if directory::find(handle, &parent, name)?.is_some() {
                return Err(Error::Exists);
            }
            if new.kind == Kind::Directory {
                add_link(handle, &mut parent)?;
            }
            let inode = handle.make_inode(&parent, new, now)?;
            let entry = NewEntry { name, inode: inode.number, kind: inode.kind };
            directory::add(handle, &mut parent, entry)?;
            (parent.modified, parent.changed) = (now, now);
            handle.store(&parent)?;
            Ok(inode)
        })
    }

    /// Creates a file without a name, an orphan from the beginning.
    pub fn create_unnamed(&self, parent: u32, new: &NewFile<'_>, now: Time) -> Result<Inode> {
        self.change(new.privileged, |handle| {
            let parent = check_alive(handle, parent)?;
            let mut inode = handle.make_inode(&parent, new, now)?;
            inode.links = 0;
            handle.store(&inode)?;
            handle.add_orphan(inode.number)?;
            Ok(inode)
        })
    }

    /// Gives a file another name. `privileged`: the directory may grow into what is kept for the superuser.
    pub fn link(&self, parent: u32, name: &[u8], number: u32, privileged: bool, now: Time) -> Result<Inode> {
        check_name(name)?;
        self.change(privileged, |handle| {
            let mut parent = check_alive(handle, parent)?;
            if directory::find(handle, &parent, name)?.is_some() {
                return Err(Error::Exists);
            }
            handle.remove_orphan(number)?;
            let mut inode = handle.inode(number)?;
            if inode.kind == Kind::Directory {
                return Err(Error::IsDirectory);
            }
            if !parent.takes_project_of(&inode) {
                return Err(Error::OtherProject);
            }
            add_link(handle, &mut inode)?;
            inode.changed = now;
            handle.store(&inode)?;
            directory::add(handle, &mut parent, NewEntry { name, inode: number, kind: inode.kind })?;
            (parent.modified, parent.changed) = (now, now);
            handle.store(&parent)?;
            Ok(inode)
        })
    }

    /// Removes a name of a file that is not a directory. Returns the file: without names it is to be
    /// [deleted](Self::delete) when nobody has it open.
    pub fn unlink(&self, parent: u32, name: &[u8], now: Time) -> Result<Inode> {
        check_name(name).map_err(|_| Error::NotFound)?;
        self.change(true, |handle| {
            let mut parent = check_alive(handle, parent)?;
            let found = directory::find(handle, &parent, name)?.ok_or(Error::NotFound)?;
            let inode = handle.inode(found.inode)?;
            if inode.kind == Kind::Directory {
                return Err(Error::IsDirectory);
            }
            directory::remove(handle, &parent, found)?;
            (parent.modified, parent.changed) = (now, now);
            handle.store(&parent)?;
            drop_name(handle, inode, now)
        })
    }

    /// Removes an empty directory, which is to be [deleted](Self::delete) when nobody has it open.
    pub fn remove_directory(&self, parent: u32, name: &[u8], now: Time) -> Result<Inode> {
        check_name(name).map_err(|_| Error::NotFound)?;
        self.change(true, |handle| {
            let mut parent = check_alive(handle, parent)?;
            let found = directory::find(handle, &parent, name)?.ok_or(Error::NotFound)?;
            let inode = handle.inode(found.inode)?;
            if inode.kind != Kind::Directory {
                return Err(Error::NotDirectory);
            }
            if !directory::is_empty(handle, &inode)? {
                return Err(Error::NotEmpty);
            }
            directory::remove(handle, &parent, found)?;
            remove_link(&mut parent);
            (parent.modified, parent.changed) = (now, now);
            handle.store(&parent)?;
            drop_name(handle, inode, now)
        })
    }

    /// Moves a name, over another one if there is one. Returns what that named, if it was replaced: without names it is to be
    /// [deleted](Self::delete) when nobody has it open. That a directory does not move into itself is the caller's to check.
    pub fn rename(&self, what: &Move<'_>, now: Time) -> Result<Option<Inode>> {
        check_name(what.old).map_err(|_| Error::NotFound)?;
        check_name(what.new)?;
        self.change(what.privileged, |handle| {
            let from = check_alive(handle, what.from)?;
            let to = check_alive(handle, what.to)?;
            let found = directory::find(handle, &from, what.old)?.ok_or(Error::NotFound)?;
            let number = found.inode;
            let existing = directory::find(handle, &to, what.new)?.map(|found| found.inode);
            match existing {
                None if what.exchange => Err(Error::NotFound),
                Some(_) if what.keep_existing => Err(Error::Exists),
                // Two names of one file: nothing happens.
                Some(other) if other == number => Ok(None),
                Some(other) if what.exchange => exchange(handle, what, number, other, now).map(|()| None),
                existing => move_name(handle, what, number, existing, now),
            }
        })
    }

    /// Sets when a file was accessed, modified and changed, and nothing else.
    pub fn set_times(&self, number: u32, times: [Time; 3]) -> Result<()> {
        self.change(true, |handle| {
            let mut inode = handle.inode(number)?;
            [inode.accessed, inode.modified, inode.changed] = times;
            handle.store_times(&inode)
        })
    }

    /// Sets what `chmod`, `chown` and `utimensat` set.
    pub fn set_attributes(&self, number: u32, change: impl Fn(&mut Inode)) -> Result<Inode> {
        self.change(true, |handle| {
            let mut inode = handle.inode(number)?;
            change(&mut inode);
            handle.store(&inode)?;
            Ok(inode)
        })
    }
}

/// Has a directory's `..` mean another one.
fn set_parent(handle: &mut Handle<'_>, directory: &Inode, parent: u32) -> Result<()> {
    directory::point(handle, directory, NewEntry { name: b"..", inode: parent, kind: Kind::Directory })
}

/// A directory went from one parent to another: their numbers of links.
fn change_parents(handle: &mut Handle<'_>, from: u32, to: u32) -> Result<()> {
    let mut old = handle.inode(from)?;
    remove_link(&mut old);
    handle.store(&old)?;
    let mut new = handle.inode(to)?;
    add_link(handle, &mut new)?;
    handle.store(&new)
}

fn note_change(handle: &mut Handle<'_>, number: u32, now: Time, contents: bool) -> Result<()> {
    let mut inode = handle.inode(number)?;
    inode.changed = now;
    if contents {
        inode.modified = now;
    }
    handle.store(&inode)
}

fn move_name(
    handle: &mut Handle<'_>,
    what: &Move<'_>,
    number: u32,
    existing: Option<u32>,
    now: Time,
) -> Result<Option<Inode>> {
    let moved = handle.inode(number)?;
    let is_directory = moved.kind == Kind::Directory;
    let entry = NewEntry { name: what.new, inode: number, kind: moved.kind };
    let mut to = handle.inode(what.to)?;
    if !to.takes_project_of(&moved) {
        return Err(Error::OtherProject);
    }
    let mut replaced = None;
    if let Some(other) = existing {
        let other = handle.inode(other)?;
        match (is_directory, other.kind == Kind::Directory) {
            (true, false) => return Err(Error::NotDirectory),
            (false, true) => return Err(Error::IsDirectory),
            (true, true) if !directory::is_empty(handle, &other)? => return Err(Error::NotEmpty),
            _ => {}
        }
        directory::point(handle, &to, entry)?;
        if other.kind == Kind::Directory {
            remove_link(&mut to);
            handle.store(&to)?;
        }
        replaced = Some(drop_name(handle, other, now)?);
    } else {
        directory::add(handle, &mut to, entry)?;
        handle.store(&to)?;
    }
    let from = handle.inode(what.from)?;
    // An addition to the same directory may have split its block.
    let found = directory::find(handle, &from, what.old)?.ok_or(Error::NotFound)?;
    match what.whiteout {
        Some(new) => {
            let made = handle.make_inode(&from, new, now)?;
            directory::point(
                handle,
                &from,
                NewEntry { name: what.old, inode: made.number, kind: made.kind },
            )?;
        }
        None => directory::remove(handle, &from, found)?,
    }
    if is_directory && what.from != what.to {
        set_parent(handle, &moved, what.to)?;
        change_parents(handle, what.from, what.to)?;
    }
    note_change(handle, what.from, now, true)?;
    note_change(handle, what.to, now, true)?;
    note_change(handle, number, now, false)?;
    Ok(replaced)
}

fn exchange(handle: &mut Handle<'_>, what: &Move<'_>, one: u32, other: u32, now: Time) -> Result<()> {
    let (first, second) = (handle.inode(one)?, handle.inode(other)?);
    let to = handle.inode(what.to)?;
    let from = handle.inode(what.from)?;
    if !to.takes_project_of(&first) || !from.takes_project_of(&second) {
        return Err(Error::OtherProject);
    }
    directory::point(handle, &to, NewEntry { name: what.new, inode: one, kind: first.kind })?;
    let from = handle.inode(what.from)?;
    directory::point(handle, &from, NewEntry { name: what.old, inode: other, kind: second.kind })?;
    if what.from != what.to {
        if first.kind == Kind::Directory {
            set_parent(handle, &first, what.to)?;
            change_parents(handle, what.from, what.to)?;
        }
        if second.kind == Kind::Directory {
            set_parent(handle, &second, what.from)?;
            change_parents(handle, what.to, what.from)?;
        }
    }
    note_change(handle, what.from, now, true)?;
    note_change(handle, what.to, now, true)?;
    note_change(handle, one, now, false)?;
    note_change(handle, other, now, false)
}
