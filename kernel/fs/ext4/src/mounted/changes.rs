//! What changes names, attributes and blocks: the file layer's calls become operations of [`Writer`](crate::Writer), and what those come
//! to is shown in the inodes in memory.
//!
//! The file layer holds the locks of the directories and files.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use vfs::attributes::TimeChange;
use vfs::flags::{AllocateMode, RenameFlags};
use vfs::inode::{Inode, NewFile, Rename};
use vfs::name::Name;
use vfs::{AttributeChange, Error, FileKind, Result};

use super::access_list;
use super::instance::{error_of, now, show, time_of};
use super::node::Node;
use crate::layout::{FLAG_SYNC, FLAG_SYNC_DIRECTORY};
use crate::{Kind, Move};

fn kind_of(kind: FileKind) -> Kind {
    match kind {
        FileKind::Directory => Kind::Directory,
        FileKind::SymbolicLink => Kind::Link,
        FileKind::CharacterDevice => Kind::CharacterDevice,
        FileKind::BlockDevice => Kind::BlockDevice,
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
        _ => Kind::Regular,
    }
}

fn new_file<'a>(
    new: &NewFile<'a>,
    attributes: &'a [(&'a [u8], &'a [u8])],
    privileged: bool,
) -> crate::NewFile<'a> {
    crate::NewFile {
        kind: kind_of(new.kind),
        mode: new.mode as u16,
        user: new.user,
        group: new.group,
        special: (new.special.major, new.special.minor),
        target: new.target,
        attributes,
        privileged,
    }
}

/// Attributes as a new file takes them.
fn borrowed<'a>(attributes: &'a [(&'static [u8], Vec<u8>)]) -> Result<Vec<(&'a [u8], &'a [u8])>> {
    let mut references = Vec::new();
    for (name, value) in attributes {
        vfs::allocation::push(&mut references, (*name, &**value))?;
    }
    Ok(references)
}

pub(super) fn node_of(inode: &Inode) -> Result<&Node> {
    inode.downcast::<Node>().ok_or(Error::CrossDevice)
}

/// Shows what the disk says of an inode now, which is returned.
fn refresh(inode: &Inode) -> Result<crate::Inode> {
    let node = node_of(inode)?;
    let stored = node.stored()?;
    node.nameless.store(stored.links == 0, Relaxed);
    show(inode, &stored);
    node.file.show_written(inode);
    Ok(stored)
}

/// The same for a directory that was changed. If its flags say so, the change lasts when this returns.
fn refresh_changed(directory: &Inode) -> Result<()> {
    let stored = refresh(directory)?;
    node_of(directory)?.make_last(&stored)
}

impl Node {
    /// Notes that a directory was found in this one. A damaged file system has one in two places: the file layer knows it in one, and may
    /// wait for ever where it is its own ancestor.
    pub(super) fn adopt(&self, found: &Inode) -> Result<()> {
        let own = self.file.number;
        match node_of(found)?.parent.compare_exchange(0, own, Relaxed, Relaxed) {
            Err(other) if other != own => {
                Err(error_of(crate::Error::Corrupted("a directory in two places", found.number)))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn create_named(
        &self,
        directory: &Arc<Inode>,
        name: &Name,
        new: &NewFile<'_>,
    ) -> Result<Arc<Inode>> {
        let number = self.file.number;
        let lists = access_list::encode_new(new.access_lists)?;
        let attributes = borrowed(&lists)?;
        let new = new_file(new, &attributes, self.instance.is_privileged());
        let made = self.instance.with_space(|writer| writer.create(number, name.as_bytes(), &new, now()))?;
        let (kind, created) = (made.kind, made.number);
        let entered = self.instance.inode(directory, made, self.instance.cleanings());
        let entered = entered.and_then(|inode| {
            if inode.kind == FileKind::Directory {
                self.adopt(&inode)?;
            }
            refresh(directory).map(|directory| (inode, directory))
        });
        if entered.is_err() {
            let writer = self.instance.writer()?;
            let removed = match kind {
                Kind::Directory => writer.remove_directory(number, name.as_bytes(), now()),
                _ => writer.unlink(number, name.as_bytes(), now()),
            };
            self.undone(created, removed.and_then(|_| writer.delete(created, now())));
        }
        let (inode, directory) = entered?;
        self.make_last(&directory)?;
        Ok(inode)
    }

    /// A change of this directory lasts when this returns, if its flags say so.
    fn make_last(&self, directory: &crate::Inode) -> Result<()> {
        if directory.flags & (FLAG_SYNC | FLAG_SYNC_DIRECTORY) == 0 {
            return Ok(());
        }
        self.instance.writer()?.commit().map_err(error_of)
    }

    /// Memory did not suffice for what was made on the disk, so that was taken back.
    fn undone(&self, created: u32, outcome: crate::Result<()>) {
        if let Err(error) = outcome {
            log::warn!(
                "ext4 on {}: inode {created}, not entered, stays: {error}",
                self.instance.device.name()
            );
        }
    }

    pub(super) fn create_nameless(&self, directory: &Arc<Inode>, new: &NewFile<'_>) -> Result<Arc<Inode>> {
        let lists = access_list::encode_new(new.access_lists)?;
        let attributes = borrowed(&lists)?;
        let new = new_file(new, &attributes, self.instance.is_privileged());
        let made = self.instance.with_space(|writer| writer.create_unnamed(self.file.number, &new, now()))?;
        let created = made.number;
        let entered = self.instance.inode(directory, made, self.instance.cleanings());
        let entered = entered.and_then(|inode| refresh(&inode).map(|_| inode));
        if entered.is_err() {
            self.undone(created, self.instance.writer()?.delete(created, now()));
        }
        entered
    }

    pub(super) fn add_name(&self, directory: &Arc<Inode>, name: &Name, inode: &Arc<Inode>) -> Result<()> {
        let linked = node_of(inode)?.file.number;
        let privileged = self.instance.is_privileged();
        self.instance
            .with_space(|writer| writer.link(self.file.number, name.as_bytes(), linked, privileged, now()))?;
        refresh(inode)?;
        refresh_changed(directory)
    }

    pub(super) fn remove_name(&self, directory: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>) -> Result<()> {
        let writer = self.instance.writer()?;
        self.instance.delete_some_gone();
        let removed = if inode.kind == FileKind::Directory {
            writer.remove_directory(self.file.number, name, now())
        } else {
            writer.unlink(self.file.number, name, now())
        };
        removed.map_err(error_of)?;
        // As it is now: another name may have come or gone since.
        refresh(inode)?;
        refresh_changed(directory)
    }

    pub(super) fn move_name(&self, rename: &Rename<'_>) -> Result<()> {
        let privileged = self.instance.is_privileged();
        let lists = access_list::encode_new(rename.whiteout.and_then(|new| new.access_lists))?;
        let attributes = borrowed(&lists)?;
        let whiteout = rename.whiteout.map(|new| new_file(new, &attributes, privileged));
        let what = Move {
            from: self.file.number,
            old: rename.old_name,
            to: node_of(rename.new_directory)?.file.number,
            new: rename.new_name.as_bytes(),
            exchange: rename.flags.contains(RenameFlags::EXCHANGE),
            keep_existing: rename.flags.contains(RenameFlags::NO_REPLACE),
            whiteout: whiteout.as_ref(),
            privileged,
        };
        self.instance.with_space(|writer| writer.rename(&what, now()))?;
        let node = node_of(rename.inode)?;
        node.parent.store(what.to, Relaxed);
        if let Some(replaced) = rename.replaced
            && what.exchange
        {
            node_of(replaced)?.parent.store(what.from, Relaxed);
        }
        refresh(rename.inode)?;
        if let Some(replaced) = rename.replaced {
            refresh(replaced)?;
        }
        refresh_changed(rename.old_directory)?;
        refresh_changed(rename.new_directory)
    }

    /// What `chmod`, `chown` and `utimensat` are about to set in memory.
    pub(super) fn store_attributes(&self, inode: &Inode, change: &AttributeChange) -> Result<()> {
        let writer = self.instance.writer()?;
        let now = now();
        let time = |change: TimeChange| match change {
            TimeChange::Now => now,
            TimeChange::To(stamp) => time_of(stamp),
        };
        self.file.show_written(inode);
        let modified = time_of(inode.modified().get());
        let stored = writer.set_attributes(self.file.number, |stored| {
            stored.mode = change.mode.map_or(stored.mode, |mode| (mode & 0o7777) as u16);
            stored.user = change.user.unwrap_or(stored.user);
            stored.group = change.group.unwrap_or(stored.group);
            stored.accessed = change.accessed.map_or(stored.accessed, time);
            stored.modified = change.modified.map_or(modified, time);
            if change.modified.is_some() {
                self.file.forget_written();
            }
            stored.changed = now;
        });
        stored.map(|_| ()).map_err(error_of)
    }

    /// Stores what changes in memory alone: times. Mode and owner change on the disk first: what memory has may be older.
    pub(super) fn store_times(&self, inode: &Inode) -> Result<()> {
        let stored = self.stored()?;
        self.file.show_written(inode);
        let times = [inode.accessed(), inode.modified(), inode.changed()].map(|time| time_of(time.get()));
        if [stored.accessed, stored.modified, stored.changed] == times {
            return Ok(());
        }
        self.instance.writer()?.set_times(self.file.number, times).map_err(error_of)
    }

    /// A file that becomes shorter loses its pages first, so that none is written behind its end.
    pub(super) fn set_size(&self, size: u64) -> Result<()> {
        let writer = self.instance.writer()?;
        let cache = self.cache.as_ref().ok_or(Error::Invalid)?;
        if writer.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let before = cache.size();
        if size < before {
            cache.truncate(size)?;
        }
        let stored = {
            let _alone = self.file.alone(&self.instance);
            writer.set_size(self.file.number, size, now()).map_err(error_of)
        };
        match stored {
            Ok(_) if size < before => Ok(()),
            Ok(_) => Ok(cache.truncate(size)?),
            Err(error) => {
                // The disk has the file as it was; what was in memory alone is lost.
                cache.truncate(before)?;
                Err(error)
            }
        }
    }

    /// `fallocate`. The file layer makes the file longer afterwards, if that is wanted.
    pub(super) fn change_blocks(&self, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        self.instance.writer()?;
        let cache = self.cache.as_ref().ok_or(Error::NoDevice)?;
        if mode.contains(AllocateMode::ZERO_RANGE) && !self.stored()?.has_extents() {
            return Err(Error::NotSupported);
        }
        if mode.intersects(AllocateMode::PUNCH_HOLE | AllocateMode::ZERO_RANGE) {
            cache.punch_hole(offset..offset.saturating_add(length))?;
        }
        let privileged = self.instance.is_privileged();
        let changed = self.instance.with_space(|writer| {
            let _alone = self.file.alone(&self.instance);
            if mode.intersects(AllocateMode::PUNCH_HOLE | AllocateMode::ZERO_RANGE) {
                writer.punch(self.file.number, offset, length, now())?;
            }
            if mode.contains(AllocateMode::PUNCH_HOLE) {
                return Ok(());
            }
            // A range of zeroes is a hole whose blocks are there, and not written.
            writer.allocate(self.file.number, offset, length, true, privileged, now()).map(|_| ())
        });
        changed?;
        if mode.intersects(AllocateMode::PUNCH_HOLE | AllocateMode::ZERO_RANGE) {
            // Whoever read the range between the two steps brought back what is no longer there.
            cache.punch_hole(offset..offset.saturating_add(length))?;
        }
        Ok(())
    }
}
