//! Making and removing names. The file layer holds the locks of the overlay's inodes.

use alloc::sync::Arc;

use vfs::inode::{Inode, NewFile};
use vfs::mount::Path;
use vfs::name::Name;
use vfs::tree::layer;
use vfs::{DeviceNumber, Error, FileKind, Result};

use crate::copy_up::copy_up;
use crate::listing;
use crate::node::{self, Node, Place, find};
use crate::work::set_opaque;

/// A directory's place on the upper layer, where it is copied if need be.
pub(crate) fn upper_place(directory: &Inode) -> Result<Path> {
    let upper = node::of(directory)?.overlay.upper()?;
    let dentry = copy_up(directory)?;
    upper.check_directory(dentry.existing()?)?;
    Ok(upper.layer.place(dentry))
}

/// Makes a file.
pub(crate) fn create(directory: &Arc<Inode>, name: &Name, new: &NewFile<'_>) -> Result<Arc<Inode>> {
    let node = node::of(directory)?;
    if new.kind == FileKind::CharacterDevice && new.special == DeviceNumber::new(0, 0) {
        // It would be a whiteout.
        return Err(Error::NotPermitted);
    }
    let parent = upper_place(directory)?;
    let upper = node.overlay.upper()?;
    let dentry = if find(&parent.dentry, name.as_bytes())?.is_none() {
        layer::create(&parent, name, new)?
    } else {
        let temporary = upper.temporary(new)?;
        let dentry = temporary.dentry.clone();
        if new.kind == FileKind::Directory {
            // What the whiteout hides stays hidden.
            set_opaque(dentry.existing()?)?;
            drop(temporary.exchange(&parent, name)?);
        } else {
            temporary.replace(&parent, name)?;
        }
        dentry
    };
    node::refresh(directory);
    let place = Place { directory: directory.clone(), name: name.clone() };
    node.overlay.enter(directory, Some(dentry), alloc::vec::Vec::new(), Some(place))
}

/// Makes a file without a name.
pub(crate) fn create_unnamed(directory: &Arc<Inode>, new: &NewFile<'_>) -> Result<Arc<Inode>> {
    let dentry = layer::create_unnamed(&upper_place(directory)?, new)?;
    let overlay = &node::of(directory)?.overlay;
    overlay.enter(directory, Some(dentry), alloc::vec::Vec::new(), None)
}

/// Gives a file another name.
pub(crate) fn link(directory: &Arc<Inode>, name: &Name, inode: &Arc<Inode>) -> Result<()> {
    let real = copy_up(inode)?.existing()?;
    let parent = upper_place(directory)?;
    if find(&parent.dentry, name.as_bytes())?.is_none() {
        layer::link(real, &parent, name)?;
    } else {
        node::of(directory)?.overlay.upper()?.linked(real)?.replace(&parent, name)?;
    }
    node::refresh(directory);
    node::refresh(inode);
    Ok(())
}

/// Removes a name: of a file, or of a directory that nobody sees anything in.
pub(crate) fn remove(directory: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>) -> Result<()> {
    let (node, victim) = (node::of(directory)?, node::of(inode)?);
    if inode.kind == FileKind::Directory && !listing::is_empty(victim)? {
        return Err(Error::NotEmpty);
    }
    let name = &Name::new(name)?;
    let parent = upper_place(directory)?;
    {
        let _copying = victim.copying.lock();
        node.overlay.upper()?.remove(&parent, name, node.has_below(name.as_bytes())?)?;
        lose_name(victim);
    }
    node::refresh(inode);
    node::refresh(directory);
    Ok(())
}

/// A file's name has gone; its `copying` is held.
pub(crate) fn lose_name(victim: &Node) {
    match victim.upper().and_then(|dentry| dentry.inode()) {
        Some(real) if real.links() == 0 => victim.overlay.forget_origin(real),
        Some(_) => {}
        None => victim.set_removed(),
    }
}
