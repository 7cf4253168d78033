//! The work directory: files are made here, and moved to their place by one rename.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write as _;
use core::sync::atomic::Ordering::Relaxed;

use vfs::dentry::Dentry;
use vfs::flags::RenameFlags;
use vfs::inode::{DirectorySink, FIRST_POSITION, Inode, NewFile, SetAttribute};
use vfs::mount::Path;
use vfs::name::Name;
use vfs::permission::check_removal;
use vfs::tree::layer;
use vfs::{Credentials, DeviceNumber, FileKind, Result, allocation};

use crate::attributes::OPAQUE;
use crate::instance::Upper;
use crate::node::find;

/// A file in the work directory, which is removed unless it moves away.
pub(crate) struct Temporary<'a> {
    upper: &'a Upper,
    name: Name,
    pub(crate) dentry: Arc<Dentry>,
    moved: bool,
}

/// What a whiteout is made as.
pub(crate) fn whiteout() -> NewFile<'static> {
    NewFile {
        kind: FileKind::CharacterDevice,
        mode: 0,
        access_lists: None,
        user: 0,
        group: 0,
        special: DeviceNumber::new(0, 0),
        target: &[],
    }
}

pub(crate) fn set_opaque(directory: &Arc<Inode>) -> Result<()> {
    directory.operations().set_extended_attribute(directory, OPAQUE, b"y", SetAttribute::Any)
}

/// Names of a directory, with what they are.
struct Collect(Vec<(Name, FileKind)>, Result<()>);

impl DirectorySink for Collect {
    fn entry(&mut self, name: &[u8], _inode: u64, kind: FileKind, _next: u64) -> bool {
        self.1 = Name::new(name).and_then(|name| allocation::push(&mut self.0, (name, kind)));
        self.1.is_ok()
    }
}

fn names_of(directory: &Arc<Dentry>) -> Result<Vec<(Name, FileKind)>> {
    let inode = directory.existing()?;
    let mut found = Collect(Vec::new(), Ok(()));
    let _shared = inode.lock().read();
    let mut position = FIRST_POSITION;
    loop {
        let before = found.0.len();
        position = inode.operations().read_directory(inode, position, &mut found)?;
        found.1?;
        if found.0.len() == before {
            return Ok(found.0);
        }
    }
}

/// Empties a directory of which there may be whiteouts, or anything else down to a depth: what a crash left. `who` must be allowed to; `None` is.
pub(crate) fn clear(place: &Path, depth: u32, who: Option<&Credentials>) -> Result<()> {
    for (name, kind) in names_of(&place.dentry)? {
        let Some(below) = find(&place.dentry, name.as_bytes())? else { continue };
        if let Some(who) = who {
            check_removal(place.inode()?, below.existing()?, who)?;
        }
        if kind == FileKind::Directory && depth > 0 {
            clear(&Path::new(place.mount.clone(), below), depth - 1, who)?;
        }
        layer::remove(place, &name)?;
    }
    Ok(())
}

impl Upper {
    fn name(&self) -> Result<Name> {
        let mut text = vfs::text::Text::new();
        let _ = write!(text, "#{:x}", self.names.fetch_add(1, Relaxed));
        Name::new(&text.finish()?)
    }

    /// Makes a file in the work directory.
    pub(crate) fn temporary(&self, new: &NewFile<'_>) -> Result<Temporary<'_>> {
        let name = self.name()?;
        let dentry = layer::create(&self.work()?, &name, new)?;
        Ok(Temporary { upper: self, name, dentry, moved: false })
    }

    /// Makes a whiteout there.
    pub(crate) fn whiteout(&self) -> Result<Temporary<'_>> {
        self.temporary(&whiteout())
    }

    /// Gives a file a name there.
    pub(crate) fn linked(&self, inode: &Arc<Inode>) -> Result<Temporary<'_>> {
        let name = self.name()?;
        let dentry = layer::link(inode, &self.work()?, &name)?;
        Ok(Temporary { upper: self, name, dentry, moved: false })
    }

    /// The name goes, or becomes a whiteout if something below must be hidden. A directory may hold whiteouts, no more.
    pub(crate) fn remove(&self, parent: &Path, name: &Name, hide: bool) -> Result<()> {
        let present = find(&parent.dentry, name.as_bytes())?;
        let is_directory = present.as_ref().and_then(|entry| entry.inode()).map(|inode| inode.kind)
            == Some(FileKind::Directory);
        match (present, hide) {
            (None, true) => layer::create(parent, name, &whiteout()).map(|_| ()),
            (None, false) => Ok(()),
            (Some(_), false) if !is_directory => layer::remove(parent, name),
            (Some(_), true) if !is_directory => self.whiteout()?.replace(parent, name),
            (Some(directory), true) => {
                self.whiteout()?.exchange(parent, name)?.discard(&directory);
                Ok(())
            }
            (Some(directory), false) => {
                let hidden = self.name()?;
                layer::rename((parent, name), (&self.work()?, &hidden), RenameFlags::NO_REPLACE, None)?;
                let gone = Temporary { upper: self, name: hidden, dentry: directory.clone(), moved: false };
                gone.discard(&directory);
                Ok(())
            }
        }
    }
}

impl Temporary<'_> {
    /// Moves it to its place, and away what is there.
    pub(crate) fn replace(mut self, parent: &Path, name: &Name) -> Result<()> {
        layer::rename((&self.upper.work()?, &self.name), (parent, name), RenameFlags::empty(), None)?;
        self.moved = true;
        Ok(())
    }

    /// Moves it to its place, where nothing is.
    pub(crate) fn install(mut self, parent: &Path, name: &Name) -> Result<Arc<Dentry>> {
        layer::rename((&self.upper.work()?, &self.name), (parent, name), RenameFlags::NO_REPLACE, None)?;
        self.moved = true;
        Ok(self.dentry.clone())
    }

    /// Changes places with what is there, which is the temporary file then.
    pub(crate) fn exchange(self, parent: &Path, name: &Name) -> Result<Self> {
        layer::rename((&self.upper.work()?, &self.name), (parent, name), RenameFlags::EXCHANGE, None)?;
        Ok(self)
    }

    /// Removes it with the whiteouts in it. What fails is left for the next mount.
    pub(crate) fn discard(self, directory: &Arc<Dentry>) {
        if let Err(error) = clear(&self.upper.layer.place(directory), 0, None) {
            log::warn!("overlay: a directory in the work directory is left: {error}");
        }
    }

    /// Removes its name, and keeps the file.
    pub(crate) fn nameless(self) -> Arc<Dentry> {
        self.dentry.clone()
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.moved
            && let Err(error) = self.upper.work().and_then(|work| layer::remove(&work, &self.name))
        {
            log::warn!("overlay: a file in the work directory is left: {error}");
        }
    }
}
