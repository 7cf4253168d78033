//! What changes names and attributes. The file layer holds the locks of the directories and files.
//!
//! The server is asked first; what that comes to is then shown in the inodes in memory.

use alloc::sync::Arc;

use vfs::attributes::{MODE_MASK, SET_GROUP_ID, SET_USER_ID, TimeChange};
use vfs::flags::{OpenFlags, RenameFlags};
use vfs::inode::{Inode, NewFile, Rename};
use vfs::name::Name;
use vfs::{AttributeChange, Error, FileKind, Result, allocation};

use super::file::{OpenFid, walk};
use super::instance::attributes;
use super::node::{Node, node_of};
use crate::fid::Fid;
use crate::wire::{self, Request, reply};

impl Node {
    pub(super) fn create_named(
        &self,
        directory: &Arc<Inode>,
        name: &Name,
        new: &NewFile<'_>,
    ) -> Result<Arc<Inode>> {
        let client = &self.instance.client;
        let name = name.as_bytes();
        let writer = self.file.by_name(|path| self.make(path, name, new))?;
        let (fid, _) = self.file.by_name(|path| walk(client, path, Some(name)))?;
        let mut found = attributes(client, &fid)?;
        if (found.user, found.group) != (new.user, new.group) {
            self.give_to(&fid, new)?;
            found = attributes(client, &fid)?;
        }
        let inode = self.instance.inode(directory, fid, &found)?;
        if let (Some(writer), Ok(node)) = (writer, node_of(&inode)) {
            node.file.set_writer(writer);
        }
        self.changed(directory, i32::from(new.kind == FileKind::Directory));
        Ok(inode)
    }

    /// Has the server make the file; a regular one is open then.
    fn make(&self, path: &Fid, name: &[u8], new: &NewFile<'_>) -> Result<Option<Arc<OpenFid>>> {
        const MADE: u32 = OpenFlags::CREATE.union(OpenFlags::EXCLUSIVE).union(OpenFlags::READ_WRITE).bits();
        let client = &self.instance.client;
        let (fid, mode, group) = (path.number(), new.mode & MODE_MASK, new.group);
        match new.kind {
            FileKind::Regular => {
                let (fid, _) = walk(client, path, None)?;
                let request = Request::Create { fid: fid.number(), name, flags: MADE, mode, group };
                let (_, unit) = client.ask(&request, reply::opened)?;
                return allocation::arc(OpenFid::new(client, fid, unit, true)).map(Some);
            }
            FileKind::Directory => {
                client.ask(&Request::MakeDirectory { fid, name, mode, group }, reply::identity)?;
            }
            FileKind::SymbolicLink => {
                let request = Request::SymbolicLink { fid, name, target: new.target, group };
                client.ask(&request, reply::identity)?;
            }
            kind => {
                let (major, minor) = (new.special.major, new.special.minor);
                let mode = mode | kind.mode_bits();
                let request = Request::MakeNode { fid, name, mode, major, minor, group };
                client.ask(&request, reply::identity)?;
            }
        }
        Ok(None)
    }

    /// Gives a new file to whom it is made for. A server that may not do that keeps it.
    fn give_to(&self, fid: &Fid, new: &NewFile<'_>) -> Result<()> {
        let owner =
            wire::AttributeChange { user: Some(new.user), group: Some(new.group), ..Default::default() };
        let set = |change| self.instance.client.call(&Request::SetAttributes { fid: fid.number(), change });
        match set(&owner) {
            // That may have taken these bits away.
            Ok(()) if new.mode & (SET_USER_ID | SET_GROUP_ID) != 0 => {
                set(&wire::AttributeChange { mode: Some(new.mode & MODE_MASK), ..Default::default() })
            }
            Err(Error::NotPermitted | Error::NotSupported) => Ok(()),
            outcome => outcome,
        }
    }

    /// A directory's names have changed, and so many directories were added.
    fn changed(&self, directory: &Inode, directories: i32) {
        directory.touch_modified();
        directory.set_links(directory.links().saturating_add_signed(directories));
        self.stale();
    }

    pub(super) fn add_name(&self, directory: &Arc<Inode>, name: &Name, inode: &Arc<Inode>) -> Result<()> {
        let client = &self.instance.client;
        let linked = node_of(inode)?;
        let name = name.as_bytes();
        self.file.by_name(|directory| {
            let directory = directory.number();
            linked.file.by_name(|file| client.call(&Request::Link { directory, fid: file.number(), name }))
        })?;
        let links = inode.links().saturating_add(1);
        inode.set_links(links);
        inode.touch_changed();
        self.changed(directory, 0);
        // The name is there, whether it can be remembered or not.
        if let Ok((fid, _)) = self.file.by_name(|path| walk(client, path, Some(name))) {
            let _ = linked.file.found_by(fid, links);
        }
        Ok(())
    }

    pub(super) fn remove_name(&self, directory: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>) -> Result<()> {
        let is_directory = inode.kind == FileKind::Directory;
        let request = |fid| Request::Unlink { fid, name, is_directory };
        self.file.by_name(|path| self.instance.client.call(&request(path.number())))?;
        lose_name(inode);
        self.changed(directory, -i32::from(is_directory));
        Ok(())
    }

    pub(super) fn move_name(&self, rename: &Rename<'_>) -> Result<()> {
        if rename.whiteout.is_some() || rename.flags.contains(RenameFlags::EXCHANGE) {
            return Err(Error::Invalid);
        }
        let to = node_of(rename.new_directory)?;
        let (old_name, new_name) = (rename.old_name, rename.new_name.as_bytes());
        self.file.by_name(|old| {
            let old = old.number();
            to.file.by_name(|new| {
                let request = Request::Rename { old, old_name, new: new.number(), new_name };
                self.instance.client.call(&request)
            })
        })?;
        let moved = i32::from(rename.inode.kind == FileKind::Directory);
        let mut replaced = 0;
        if let Some(inode) = rename.replaced.filter(|inode| !Arc::ptr_eq(inode, rename.inode)) {
            lose_name(inode);
            replaced = i32::from(inode.kind == FileKind::Directory);
        }
        rename.inode.touch_changed();
        self.changed(rename.old_directory, -moved);
        to.changed(rename.new_directory, moved - replaced);
        Ok(())
    }

    /// What `chmod`, `chown` and `utimensat` are about to set in memory.
    pub(super) fn store_attributes(&self, _inode: &Inode, change: &AttributeChange) -> Result<()> {
        if change.modified.is_some() || change.mode.is_some() {
            // Writing later would change the time again, and may not be permitted any more.
            self.write_pages()?;
        }
        let time = |time: TimeChange| match time {
            TimeChange::Now => None,
            TimeChange::To(stamp) => Some((stamp.seconds, stamp.nanoseconds)),
        };
        self.set_at_server(&wire::AttributeChange {
            mode: change.mode.map(|mode| mode & MODE_MASK),
            user: change.user,
            group: change.group,
            size: None,
            accessed: change.accessed.map(time),
            modified: change.modified.map(time),
        })?;
        if let Some(mode) = change.mode {
            self.note_mode(mode);
        }
        Ok(())
    }

    /// A file without names has its attributes here alone, unless the server knows it as an open one.
    fn set_at_server(&self, change: &wire::AttributeChange) -> Result<()> {
        let set =
            |fid: &Fid| self.instance.client.call(&Request::SetAttributes { fid: fid.number(), change });
        match self.file.by_name(set) {
            Err(Error::NotFound | Error::Stale) if self.file.is_nameless() => Ok(()),
            outcome => outcome,
        }
    }

    /// Writes have taken bits of the mode away in memory.
    pub(super) fn store_mode(&self, inode: &Inode) -> Result<()> {
        if !self.mode_is_stored(inode.mode()) {
            let mode = inode.mode() & MODE_MASK;
            self.set_at_server(&wire::AttributeChange { mode: Some(mode), ..Default::default() })?;
            self.note_mode(mode);
        }
        Ok(())
    }

    /// A file that becomes shorter loses its pages first, so that none is written behind its end.
    pub(super) fn set_size(&self, _inode: &Inode, size: u64) -> Result<()> {
        let cache = self.cache.as_ref().ok_or(Error::Invalid)?;
        let is_loose = self.instance.is_loose();
        let shorter = is_loose && size < cache.size();
        if shorter {
            cache.truncate(size)?;
        } else if !is_loose {
            self.write_pages()?;
        }
        if self.file.is_nameless() {
            self.file.cut_nameless(size)?;
        } else {
            self.set_at_server(&wire::AttributeChange { size: Some(size), ..Default::default() })?;
        }
        if !is_loose {
            cache.adopt_size(size);
        } else if !shorter {
            cache.truncate(size)?;
        }
        Ok(())
    }
}

/// A name of the file has gone.
fn lose_name(inode: &Inode) {
    let is_last = inode.links() <= 1 || inode.kind == FileKind::Directory;
    inode.set_links(if is_last { 0 } else { inode.links() - 1 });
    inode.touch_changed();
    if let (true, Ok(node)) = (is_last, node_of(inode)) {
        node.file.lose_name(inode.size());
    }
}
