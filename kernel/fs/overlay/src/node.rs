//! An inode: which files of the layers it stands for.
//!
//! # States
//! *Lower*: all its files are below. *Upper*: one is on the upper layer, and takes changes. The only transition is from lower to upper, by `copy_up`; a directory stays
//! merged with what it had below.
//!
//! # Attributes
//! They are those of the *real* file, the uppermost, and are copied from it whenever somebody is about to look, and after each change that is made here. A spin lock orders
//! copies, so that an older one never replaces a newer one.
//!
//! # Place
//! To be copied up a file must know its directory and name. A file that is upper, or lost its name, needs none. The directory is held
//! by reference, and given back through RCU: a long chain of directories goes one by one.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use memory::file_cache::FileCache;
use sync::{Once, SpinLock, rcu};
use vfs::access_list::{AccessList, ListKind};
use vfs::dentry::Dentry;
use vfs::disk::Home;
use vfs::file::FileOperations;
use vfs::flags::{AllocateMode, OpenFlags};
use vfs::inode::{DirectorySink, Inode, InodeOperations, LinkTarget, NewFile, Rename, SetAttribute};
use vfs::mount::Path;
use vfs::name::Name;
use vfs::tree::layer;
use vfs::walk::find_entry;
use vfs::{AttributeChange, Credentials, DeviceNumber, Error, FileKind, Result, allocation};

use crate::instance::Overlay;
use crate::listing::OpenDirectory;
use crate::regular::OpenRegular;
use crate::{attributes, change, copy_up, listing, relocate};

/// A file of a lower layer.
pub(crate) struct Lower {
    /// Which layer.
    pub(crate) layer: usize,
    pub(crate) dentry: Arc<Dentry>,
}

/// Where a file is.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) directory: Arc<Inode>,
    pub(crate) name: Name,
}

/// See the theory of this file.
pub(crate) struct Node {
    pub(crate) overlay: Arc<Overlay>,
    this: Once<Weak<Inode>>,
    upper: Once<Arc<Dentry>>,
    /// Uppermost first; several only of a directory.
    lowers: Vec<Lower>,
    /// Changed under the locks of the directories that it leaves and enters, with `copying` held if the file is lower.
    place: rcu::Pointer<Place>,
    /// It lost its name while it was lower. Set with `copying` held.
    removed: AtomicBool,
    /// Held while it is copied up, and while its name goes.
    pub(crate) copying: sched::Mutex<()>,
    /// Orders copies of attributes.
    attributes: SpinLock<()>,
}

/// The node of an overlay's inode.
///
/// # Errors
/// `EXDEV` if it is another file system's.
pub(crate) fn of(inode: &Inode) -> Result<&Node> {
    inode.downcast::<Node>().ok_or(Error::CrossDevice)
}

/// Copies the attributes of the real file.
pub(crate) fn refresh(inode: &Inode) {
    if let Ok(node) = of(inode) {
        node.copy_attributes(inode);
    }
}

/// A new inode learns who it is.
pub(crate) fn begin(inode: &Arc<Inode>) {
    if let Ok(node) = of(inode) {
        node.this.call_once(|| Arc::downgrade(inode));
        node.copy_attributes(inode);
    }
}

/// Whether a file stands for the absence of its name.
pub(crate) fn is_whiteout(inode: &Inode) -> bool {
    inode.kind == FileKind::CharacterDevice && inode.special == DeviceNumber::new(0, 0)
}

/// Whether a directory hides those below it.
pub(crate) fn is_opaque(inode: &Arc<Inode>) -> bool {
    let mut value = [0; 2];
    inode.kind == FileKind::Directory
        && inode.operations().extended_attribute(inode, attributes::OPAQUE, &mut value) == Ok(1)
        && value[0] == b'y'
}

pub(crate) fn is_opaque_entry(dentry: &Dentry) -> bool {
    dentry.inode().is_some_and(is_opaque)
}

/// The entry of a name in a layer's directory, whiteouts included.
pub(crate) fn find(directory: &Arc<Dentry>, name: &[u8]) -> Result<Option<Arc<Dentry>>> {
    match find_entry(directory, name) {
        Ok(dentry) => Ok(Some(dentry)),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Node {
    pub(crate) fn new(
        overlay: Arc<Overlay>,
        upper: Option<Arc<Dentry>>,
        lowers: Vec<Lower>,
        place: Option<Place>,
    ) -> Result<Self> {
        let place = match place {
            Some(place) => rcu::Pointer::new(allocation::rcu(place)?),
            None => rcu::Pointer::null(),
        };
        let copying = match overlay.stacked {
            0 | 1 => sched::Mutex::named("copying up", ()),
            _ => sched::Mutex::named("copying up from an overlay", ()),
        };
        let node = Self {
            overlay,
            this: Once::new(),
            upper: Once::new(),
            lowers,
            place,
            removed: AtomicBool::new(false),
            copying,
            attributes: SpinLock::named("attributes of an overlay's file", ()),
        };
        if let Some(upper) = upper {
            node.upper.call_once(|| upper);
        }
        Ok(node)
    }

    pub(crate) fn this(&self) -> Option<Weak<Inode>> {
        self.this.get().cloned()
    }

    /// Its file on the upper layer.
    pub(crate) fn upper(&self) -> Option<&Arc<Dentry>> {
        self.upper.get()
    }

    /// It was copied up.
    pub(crate) fn set_upper(&self, dentry: Arc<Dentry>) {
        self.upper.call_once(|| dentry);
    }

    pub(crate) fn lowers(&self) -> &[Lower] {
        &self.lowers
    }

    /// Its directories, uppermost first.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &Arc<Dentry>> {
        self.upper().into_iter().chain(self.lowers.iter().map(|lower| &lower.dentry))
    }

    /// The uppermost entry.
    pub(crate) fn real_entry(&self) -> Result<&Arc<Dentry>> {
        self.upper().or(self.lowers.first().map(|lower| &lower.dentry)).ok_or(Error::Io)
    }

    /// The uppermost file.
    pub(crate) fn real(&self) -> Result<&Arc<Inode>> {
        self.real_entry()?.existing()
    }

    /// The place of the uppermost file in its layer.
    pub(crate) fn real_place(&self) -> Result<Path> {
        Ok(self.overlay.layer_of(self).place(self.real_entry()?))
    }

    /// Whether it is made of several directories.
    pub(crate) fn is_merged(&self) -> bool {
        self.lowers.len() + usize::from(self.upper().is_some()) > 1
    }

    /// Where it is.
    ///
    /// # Errors
    /// `ENOENT` if it never had a name.
    pub(crate) fn place(&self) -> Result<Place> {
        let guard = rcu::read();
        self.place.read(&guard).cloned().ok_or(Error::NotFound)
    }

    pub(crate) fn set_place(&self, place: Place) -> Result<()> {
        let place = allocation::rcu(place)?;
        self.place.replace(Some(place));
        Ok(())
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Its name has gone; `copying` is held.
    pub(crate) fn set_removed(&self) {
        self.removed.store(true, Ordering::Release);
    }

    fn copy_attributes(&self, inode: &Inode) {
        let Ok(real) = self.real() else { return };
        real.operations().refresh(real);
        self.mirror(inode, real);
    }

    /// What is known of the real file now.
    fn mirror(&self, inode: &Inode, real: &Inode) {
        let _order = self.attributes.lock();
        inode.set_identity(real.identity());
        inode.mirror_lists(real);
        inode.set_size(real.size());
        inode.accessed().set(real.accessed().get());
        inode.modified().set(real.modified().get());
        inode.changed().set(real.changed().get());
        inode.set_links(if self.upper().is_none() && self.is_removed() {
            0
        } else if real.kind == FileKind::Directory && self.is_merged() && real.links() > 0 {
            // How many directories it has only a look at all layers would tell.
            1
        } else {
            real.links()
        });
    }

    /// Whether a layer below the upper one has something of that name, which a whiteout must hide when the name is to go.
    pub(crate) fn has_below(&self, name: &[u8]) -> Result<bool> {
        for lower in &self.lowers {
            if let Some(dentry) = find(&lower.dentry, name)? {
                return Ok(!is_whiteout(dentry.existing()?));
            }
        }
        Ok(false)
    }

    fn find_layers(&self, name: &[u8]) -> Result<(Option<Arc<Dentry>>, Vec<Lower>)> {
        let (mut upper, mut lowers) = (None, Vec::new());
        if let Some(directory) = self.upper()
            && let Some(dentry) = find(directory, name)?
        {
            let inode = dentry.existing()?;
            if is_whiteout(inode) {
                return Err(Error::NotFound);
            }
            let hides = inode.kind != FileKind::Directory || is_opaque(inode);
            upper = Some(dentry);
            if hides {
                return Ok((upper, lowers));
            }
        }
        for lower in &self.lowers {
            let Some(dentry) = find(&lower.dentry, name)? else { continue };
            let inode = dentry.existing()?;
            let is_directory = inode.kind == FileKind::Directory;
            // A file under a directory is hidden as well as one under a whiteout.
            if is_whiteout(inode) || (!is_directory && (upper.is_some() || !lowers.is_empty())) {
                break;
            }
            let hides = !is_directory || is_opaque(inode);
            allocation::push(&mut lowers, Lower { layer: lower.layer, dentry })?;
            if hides {
                break;
            }
        }
        if upper.is_none() && lowers.is_empty() { Err(Error::NotFound) } else { Ok((upper, lowers)) }
    }
}

impl InodeOperations for Node {
    fn lookup(&self, directory: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        let (upper, lowers) = self.find_layers(name)?;
        let place = Place { directory: directory.clone(), name: Name::new(name)? };
        self.overlay.enter(directory, upper, lowers, Some(place))
    }

    fn create(&self, directory: &Arc<Inode>, name: &Name, new: &NewFile<'_>) -> Result<Arc<Inode>> {
        change::create(directory, name, new)
    }

    fn create_unnamed(&self, directory: &Arc<Inode>, new: &NewFile<'_>) -> Result<Arc<Inode>> {
        change::create_unnamed(directory, new)
    }

    fn link(&self, directory: &Arc<Inode>, name: &Name, inode: &Arc<Inode>) -> Result<()> {
        change::link(directory, name, inode)
    }

    fn unlink(&self, directory: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>) -> Result<()> {
        change::remove(directory, name, inode)
    }

    fn remove_directory(&self, directory: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>) -> Result<()> {
        change::remove(directory, name, inode)
    }

    fn rename(&self, rename: &Rename<'_>) -> Result<()> {
        relocate::rename(rename)
    }

    fn read_directory(&self, _directory: &Inode, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        listing::list(self, position, sink)
    }

    fn link_target(&self, _inode: &Arc<Inode>) -> Result<LinkTarget> {
        let real = self.real()?;
        real.operations().link_target(real)
    }

    fn link_text(&self, _inode: &Arc<Inode>) -> Result<Arc<[u8]>> {
        let real = self.real()?;
        real.operations().link_text(real)
    }

    fn refresh(&self, inode: &Inode) {
        self.copy_attributes(inode);
    }

    fn change_attributes(&self, inode: &Inode, change: &AttributeChange) -> Result<()> {
        let real = copy_up::copy_up(inode)?.existing()?;
        vfs::tree::change_inode(real, change, &Credentials::root())?;
        self.copy_attributes(inode);
        Ok(())
    }

    fn truncate(&self, inode: &Inode, size: u64) -> Result<()> {
        let upper = match size {
            0 => copy_up::copy_up_empty(inode)?,
            _ => copy_up::copy_up(inode)?,
        };
        layer::truncate(upper.existing()?, size)?;
        self.copy_attributes(inode);
        Ok(())
    }

    fn allocate(&self, inode: &Inode, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        layer::allocate(copy_up::copy_up(inode)?.existing()?, mode, offset, length)?;
        self.copy_attributes(inode);
        Ok(())
    }

    fn blocks(&self, _inode: &Inode) -> u64 {
        self.real().map_or(0, |real| real.operations().blocks(real))
    }

    fn blocks_at_hand(&self, inode: &Inode) -> Option<u64> {
        let real = self.real().ok()?;
        // A layer that keeps nothing is asked each time.
        if self.overlay.layer_of(self).superblock().traits().volatile {
            return None;
        }
        let blocks = real.operations().blocks_at_hand(real)?;
        self.mirror(inode, real);
        Some(blocks)
    }

    fn extended_attribute(&self, _inode: &Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize> {
        attributes::get(self, name, buffer)
    }

    fn set_extended_attribute(
        &self,
        inode: &Inode,
        name: &[u8],
        value: &[u8],
        how: SetAttribute,
    ) -> Result<()> {
        attributes::set(inode, name, value, how)
    }

    fn remove_extended_attribute(&self, inode: &Inode, name: &[u8]) -> Result<()> {
        attributes::remove(self, inode, name)
    }

    fn access_list(&self, _inode: &Inode, kind: ListKind) -> Result<Option<AccessList>> {
        layer::access_list(self.real()?, kind)
    }

    fn set_access_list(
        &self,
        inode: &Inode,
        kind: ListKind,
        list: Option<&AccessList>,
        mode: Option<u32>,
    ) -> Result<()> {
        layer::set_access_list(copy_up::copy_up(inode)?.existing()?, kind, list, mode)?;
        self.copy_attributes(inode);
        Ok(())
    }

    fn list_extended_attributes(
        &self,
        _inode: &Inode,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        attributes::list(self, each)
    }

    fn open(&self, inode: &Arc<Inode>, flags: OpenFlags) -> Result<Option<Arc<dyn FileOperations>>> {
        let object: Arc<dyn FileOperations> = match inode.kind {
            FileKind::Regular => allocation::arc(OpenRegular::open(self, inode, flags)?)?,
            FileKind::Directory => allocation::arc(OpenDirectory::new(inode)?)?,
            _ => return Ok(None),
        };
        Ok(Some(object))
    }

    fn home(&self) -> Option<&dyn Home> {
        None
    }

    fn cache(&self) -> Option<&Arc<FileCache>> {
        self.real().ok()?.operations().cache()
    }
}
