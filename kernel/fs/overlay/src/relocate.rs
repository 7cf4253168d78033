//! Renaming.
//!
//! A directory that has anything below is not renamed (`EXDEV`): its lower part could not follow. `mv` copies it then.
//!
//! What is left at the old name must be a whiteout if there is something below it: one that the rename leaves, or, exchanged, the one that is at the new name.
//! Where the upper layer leaves none, a rename that replaces a file takes two steps, so that the new name always means something; a crash between them lets
//! the old name show again what is below.

use alloc::sync::Arc;

use vfs::flags::RenameFlags;
use vfs::inode::{Inode, Rename};
use vfs::mount::Path;
use vfs::tree::layer;
use vfs::{Error, FileKind, Result};

use crate::change::{lose_name, upper_place};
use crate::copy_up::copy_up;
use crate::listing;
use crate::node::{self, Place, find};
use crate::work::{set_opaque, whiteout};

fn is_directory(inode: &Inode) -> bool {
    inode.kind == FileKind::Directory
}

fn check_moves(inode: &Inode) -> Result<()> {
    let has_below = is_directory(inode) && !node::of(inode)?.lowers().is_empty();
    if has_below { Err(Error::CrossDevice) } else { Ok(()) }
}

/// What a rename does on the upper layer.
struct Move<'a> {
    rename: &'a Rename<'a>,
    old: Path,
    new: Path,
    /// Something below has the old name, or the new one.
    old_below: bool,
    new_below: bool,
}

pub(crate) fn rename(rename: &Rename<'_>) -> Result<()> {
    if rename.whiteout.is_some() {
        return Err(Error::Invalid);
    }
    let exchanged = rename.replaced.filter(|_| rename.flags.contains(RenameFlags::EXCHANGE));
    let replaced = rename.replaced.filter(|_| exchanged.is_none());
    check_moves(rename.inode)?;
    if let Some(other) = exchanged {
        check_moves(other)?;
    }
    if let Some(replaced) = replaced
        && is_directory(replaced)
        && !listing::is_empty(node::of(replaced)?)?
    {
        return Err(Error::NotEmpty);
    }
    copy_up(rename.inode)?;
    if let Some(other) = exchanged {
        copy_up(other)?;
    }
    let (from, to) = (node::of(rename.old_directory)?, node::of(rename.new_directory)?);
    let step = Move {
        rename,
        old: upper_place(rename.old_directory)?,
        new: upper_place(rename.new_directory)?,
        old_below: from.has_below(rename.old_name)?,
        new_below: to.has_below(rename.new_name.as_bytes())?,
    };
    match (exchanged, replaced) {
        (Some(other), _) => step.exchange(other)?,
        (None, Some(replaced)) => {
            let victim = node::of(replaced)?;
            let _copying = victim.copying.lock();
            step.replace(replaced)?;
            lose_name(victim);
        }
        (None, None) => step.take()?,
    }
    let place = |directory: &Arc<Inode>, name: &[u8]| -> Result<Place> {
        Ok(Place { directory: directory.clone(), name: vfs::name::Name::new(name)? })
    };
    // What is upper needs its place no more: that it could not be noted does no harm.
    let _ = place(rename.new_directory, rename.new_name.as_bytes())
        .and_then(|place| node::of(rename.inode)?.set_place(place));
    if let Some(other) = exchanged {
        let _ =
            place(rename.old_directory, rename.old_name).and_then(|place| node::of(other)?.set_place(place));
    }
    for inode in [rename.old_directory, rename.new_directory, rename.inode].into_iter().chain(rename.replaced)
    {
        node::refresh(inode);
    }
    Ok(())
}

impl Move<'_> {
    /// A directory that comes to lie over something hides it.
    fn hide_below(&self, inode: &Arc<Inode>, below: bool) -> Result<()> {
        if below && is_directory(inode) { set_opaque(node::of(inode)?.real()?) } else { Ok(()) }
    }

    fn run(&self, flags: RenameFlags) -> Result<()> {
        let old_name = vfs::name::Name::new(self.rename.old_name)?;
        let whiteout = flags.contains(RenameFlags::WHITEOUT).then(whiteout);
        layer::rename((&self.old, &old_name), (&self.new, self.rename.new_name), flags, whiteout.as_ref())
    }

    fn exchange(&self, other: &Arc<Inode>) -> Result<()> {
        self.hide_below(self.rename.inode, self.new_below)?;
        self.hide_below(other, self.old_below)?;
        self.run(RenameFlags::EXCHANGE)
    }

    /// The new name exists.
    fn replace(&self, replaced: &Arc<Inode>) -> Result<()> {
        let upper = node::of(replaced)?.overlay.upper()?;
        let old_name = vfs::name::Name::new(self.rename.old_name)?;
        self.hide_below(self.rename.inode, self.new_below)?;
        if is_directory(replaced) && node::of(replaced)?.upper().is_some() {
            // There may be whiteouts in it.
            self.run(RenameFlags::EXCHANGE)?;
            return upper.remove(&self.old, &old_name, self.old_below);
        }
        if !self.old_below {
            return self.run(RenameFlags::empty());
        }
        match self.run(RenameFlags::WHITEOUT) {
            // The upper layer knows no such step: two. The whiteout is made first, so that space for it is not missing afterwards.
            Err(Error::Invalid) => {
                let whiteout = upper.whiteout()?;
                self.run(RenameFlags::empty())?;
                whiteout.install(&self.old, &old_name).map(|_| ())
            }
            done => done,
        }
    }

    /// The new name is absent, or a whiteout.
    fn take(&self) -> Result<()> {
        let hidden = find(&self.new.dentry, self.rename.new_name.as_bytes())?.is_some();
        self.hide_below(self.rename.inode, self.new_below || hidden)?;
        if !hidden {
            let leaving = if self.old_below { RenameFlags::WHITEOUT } else { RenameFlags::empty() };
            return self.run(RenameFlags::NO_REPLACE | leaving);
        }
        if !self.old_below && !is_directory(self.rename.inode) {
            return self.run(RenameFlags::empty());
        }
        // The whiteout goes to the old name, or away: no directory replaces one.
        self.run(RenameFlags::EXCHANGE)?;
        let old_name = vfs::name::Name::new(self.rename.old_name)?;
        if self.old_below { Ok(()) } else { layer::remove(&self.old, &old_name) }
    }
}
