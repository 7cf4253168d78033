//! A mounted overlay: its layers, its inodes in memory, and which numbers files show.
//!
//! # Identity
//! If all layers are of one file system, a file shows the overlay's device and the number that it has there. Otherwise files that are no directories show a
//! device that stands for their layer, with their number there, and directories the overlay's device with a number that they get anew.
//! A file that is copied up keeps what it showed: *origins* says, by the copy, which file below it was made from. That is kept in memory, and so
//! for as long as the mount lasts.
//!
//! # One inode for each file
//! Names of one file lead to one inode as long as somebody has it: it is found by the file that it stands for. Only files with several names below have an inode
//! for each name: a copy will be of one name alone.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hashbrown::{DefaultHashBuilder, HashMap};
use memory::per_cpu::Shared;
use vfs::dentry::Dentry;
use vfs::flags::Access;
use vfs::inode::{Inode, InodeAttributes};
use vfs::mount::{Mount, Path};
use vfs::permission::check_access;
use vfs::superblock::Superblock;
use vfs::{Credentials, DeviceNumber, Error, FileKind, Result};

use crate::node::{Lower, Node, Place};

/// Inodes in the table before those that have gone are looked for.
const CLEAN_FROM: usize = 256;

/// A file of a layer: its device, and its number there.
pub(crate) type Identity = (DeviceNumber, u64);

pub(crate) fn identity_of(inode: &Inode) -> Identity {
    (inode.device(), inode.number)
}

/// A directory of another file system.
pub(crate) struct Layer {
    /// Mounted for the overlay alone.
    pub(crate) mount: Shared<Mount>,
    pub(crate) root: Arc<Dentry>,
    /// What its files show as their device.
    pub(crate) device: DeviceNumber,
}

impl Layer {
    pub(crate) fn superblock(&self) -> &Arc<Superblock> {
        self.mount.superblock()
    }

    /// A place in it.
    pub(crate) fn place(&self, dentry: &Arc<Dentry>) -> Path {
        Path::new(self.mount.clone(), dentry.clone())
    }
}

/// The layer that takes changes.
pub(crate) struct Upper {
    pub(crate) layer: Layer,
    /// Where files are made before they are moved to their place. Without it nothing is changed: whoever mounted it may not write there.
    pub(crate) work: Option<Arc<Dentry>>,
    /// Who mounted it, unless he may do everything: what is made on the layer is made with his rights.
    pub(crate) mounter: Option<Credentials>,
    /// Names used there.
    pub(crate) names: AtomicU64,
    pub(crate) volatile: bool,
}

/// Whether somebody may change names in a directory; `None` may.
///
/// # Errors
/// `EACCES`.
pub(crate) fn may_change(directory: &Inode, who: Option<&Credentials>) -> Result<()> {
    who.map_or(Ok(()), |who| check_access(directory, Access::WRITE | Access::EXECUTE, who))
}

impl Upper {
    /// The work directory.
    ///
    /// # Errors
    /// `EROFS` if there is none.
    pub(crate) fn work(&self) -> Result<Path> {
        self.work.as_ref().map(|work| self.layer.place(work)).ok_or(Error::ReadOnly)
    }

    /// Whether whoever mounted it may change names in a directory of the layer. Who uses the overlay is asked for what he sees, which may be a lower directory that is
    /// copied to where nobody lets him write.
    ///
    /// # Errors
    /// `EACCES`.
    pub(crate) fn check_directory(&self, directory: &Inode) -> Result<()> {
        may_change(directory, self.mounter.as_ref())
    }

    /// Whether whoever mounted it knows the owners of a file, and may make another one that belongs to them.
    ///
    /// # Errors
    /// `EOVERFLOW`.
    pub(crate) fn check_owners(&self, user: u32, group: u32) -> Result<()> {
        match &self.mounter {
            Some(mounter) if !mounter.space.knows(user, group) => Err(Error::Overflow),
            _ => Ok(()),
        }
    }
}

/// See the theory of this file.
pub(crate) struct Overlay {
    pub(crate) upper: Option<Upper>,
    /// Uppermost first.
    pub(crate) lowers: Vec<Layer>,
    /// How high it stands: locks of each height are a class of their own.
    pub(crate) stacked: u8,
    /// All layers are of one file system.
    pub(crate) one_file_system: bool,
    numbers: AtomicU64,
    known: sched::Mutex<Known>,
}

struct Known {
    inodes: HashMap<Identity, Weak<Inode>, DefaultHashBuilder>,
    /// Of files that were copied up: what they were copied from.
    origins: HashMap<Identity, Identity, DefaultHashBuilder>,
    clean_at: usize,
}

impl Overlay {
    pub(crate) fn new(upper: Option<Upper>, lowers: Vec<Layer>, stacked: u8) -> Self {
        let first = upper.as_ref().map_or(&lowers[0], |upper| &upper.layer);
        let one_file_system = lowers.iter().all(|layer| Arc::ptr_eq(layer.superblock(), first.superblock()));
        let known = Known { inodes: HashMap::default(), origins: HashMap::default(), clean_at: CLEAN_FROM };
        Self {
            upper,
            lowers,
            stacked,
            one_file_system,
            // The root is made first.
            numbers: AtomicU64::new(1),
            known: sched::Mutex::named("inodes of an overlay", known),
        }
    }

    /// The layer for changes.
    ///
    /// # Errors
    /// `EROFS` if there is none.
    pub(crate) fn upper(&self) -> Result<&Upper> {
        self.upper.as_ref().ok_or(Error::ReadOnly)
    }

    /// The root directory.
    pub(crate) fn root(self: &Arc<Self>, superblock: &Arc<Superblock>) -> Result<Arc<Inode>> {
        let upper = self.upper.as_ref().map(|upper| upper.layer.root.clone());
        let mut lowers = Vec::new();
        vfs::allocation::reserve(&mut lowers, self.lowers.len())?;
        for (layer, lower) in self.lowers.iter().enumerate() {
            let opaque =
                lowers.last().is_some_and(|above: &Lower| crate::node::is_opaque_entry(&above.dentry));
            if opaque {
                break;
            }
            lowers.push(Lower { layer, dentry: lower.root.clone() });
        }
        let node = Node::new(self.clone(), upper, lowers, None)?;
        let (attributes, _) = self.attributes(&node, None)?;
        let inode: Arc<Inode> = Inode::new(superblock, attributes, node)?;
        crate::node::begin(&inode);
        Ok(inode)
    }

    /// What an inode of these files shows: its number, and its device unless that is the overlay's.
    fn attributes(
        &self,
        node: &Node,
        origin: Option<Identity>,
    ) -> Result<(InodeAttributes, Option<DeviceNumber>)> {
        let real = node.real()?;
        let is_directory = real.kind == FileKind::Directory;
        // A merged directory that was copied up is known by what lies below.
        let below = node.lowers().first().filter(|_| is_directory);
        let (number, device) = if self.one_file_system {
            let below = below.map(|lower| lower.dentry.existing().map(|inode| inode.number)).transpose()?;
            (below.or(origin.map(|(_, number)| number)).unwrap_or(real.number), None)
        } else if is_directory {
            (self.numbers.fetch_add(1, Relaxed), None)
        } else {
            let shown = origin.unwrap_or_else(|| (self.layer_of(node).device, real.number));
            (shown.1, Some(shown.0))
        };
        let attributes = InodeAttributes {
            number,
            kind: real.kind,
            mode: real.mode(),
            user: real.user(),
            group: real.group(),
            links: real.links(),
            special: real.special,
            size: real.size(),
        };
        Ok((attributes, device))
    }

    /// The layer that a node's file is in.
    pub(crate) fn layer_of(&self, node: &Node) -> &Layer {
        match (node.upper(), &self.upper) {
            (Some(_), Some(upper)) => &upper.layer,
            _ => &self.lowers[node.lowers().first().map_or(0, |lower| lower.layer)],
        }
    }

    /// The inode for these files, which a directory's entry means.
    pub(crate) fn enter(
        self: &Arc<Self>,
        directory: &Inode,
        upper: Option<Arc<Dentry>>,
        lowers: Vec<Lower>,
        place: Option<Place>,
    ) -> Result<Arc<Inode>> {
        let node = Node::new(self.clone(), upper, lowers, place)?;
        let real = node.real()?;
        let identity = identity_of(real);
        // Each name of a file with several is copied up for itself.
        let shared = node.upper().is_some() || real.kind == FileKind::Directory || real.links() <= 1;
        let mut known = self.known.lock();
        if let Some(inode) = known.inodes.get(&identity).filter(|_| shared).and_then(Weak::upgrade) {
            drop(known);
            return if leads_to(&inode, directory)? { Err(Error::Loop) } else { Ok(inode) };
        }
        let origin = node.upper().and_then(|_| known.origins.get(&identity).copied());
        let (attributes, device) = self.attributes(&node, origin)?;
        let inode: Arc<Inode> = match device {
            Some(device) => Inode::of_device(directory, device, attributes, node)?,
            None => Inode::beside(directory, attributes, node)?,
        };
        if inode.kind == FileKind::Regular {
            // The real file knows.
            inode.expect_capabilities(true);
        }
        if shared {
            known.add(identity, &inode)?;
        }
        crate::node::begin(&inode);
        Ok(inode)
    }

    /// A file was copied up: it is found by the copy from now on, and shows what it showed.
    pub(crate) fn copied(&self, inode: &Inode, copy: &Inode) {
        let mut known = self.known.lock();
        if inode.kind != FileKind::Directory && known.origins.try_reserve(1).is_ok() {
            known.origins.insert(identity_of(copy), identity_of(inode));
        }
        if let Some(this) = crate::node::of(inode).ok().and_then(Node::this)
            && known.inodes.try_reserve(1).is_ok()
        {
            known.inodes.insert(identity_of(copy), this);
        }
    }

    /// A file of the upper layer has no name any more: its number may be another's soon.
    pub(crate) fn forget_origin(&self, real: &Inode) {
        self.known.lock().origins.remove(&identity_of(real));
    }

    /// The number that a file of the upper layer shows, if it was copied up.
    pub(crate) fn number_of_copy(&self, device: DeviceNumber, number: u64) -> u64 {
        let known = self.known.lock();
        known.origins.get(&(device, number)).map_or(number, |(_, number)| *number)
    }
}

/// Whether a directory is the other one, or above it. Only damaged layers have a directory inside of itself; who held the lock of one would wait
/// for it.
fn leads_to(inode: &Inode, directory: &Inode) -> Result<bool> {
    if inode.kind != FileKind::Directory {
        return Ok(false);
    }
    if core::ptr::addr_eq(inode, directory) {
        return Ok(true);
    }
    let mut above = crate::node::of(directory)?.place();
    while let Ok(place) = above {
        if core::ptr::addr_eq(&raw const *place.directory, inode) {
            return Ok(true);
        }
        above = crate::node::of(&place.directory)?.place();
    }
    Ok(false)
}

impl Known {
    fn add(&mut self, identity: Identity, inode: &Arc<Inode>) -> Result<()> {
        if self.inodes.len() >= self.clean_at {
            self.inodes.retain(|_, inode| inode.strong_count() > 0);
            self.clean_at = (self.inodes.len() * 2).max(CLEAN_FROM);
        }
        self.inodes.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        self.inodes.insert(identity, Arc::downgrade(inode));
        Ok(())
    }
}
