//! Nodes and the inodes made from them.

use alloc::sync::Arc;

use super::directory::Directory;
use super::file::{File, GeneratedFile};
use crate::attributes::{DeviceNumber, FileKind};
use crate::file::{FileOperations, NoOperations};
use crate::flags::OpenFlags;
use crate::inode::{DirectorySink, Inode, InodeAttributes, InodeOperations, LinkTarget};
use crate::superblock::Superblock;
use crate::{Error, Result, allocation};

/// What a symbolic link does.
pub trait Link: Send + Sync {
    /// Where it leads.
    fn target(&self) -> Result<LinkTarget>;

    /// The size that `lstat` says. Most links here say none, whatever they show.
    fn size(&self) -> u64 {
        0
    }

    /// What `readlink` shows; for jumps it must be given.
    fn text(&self) -> Result<Arc<[u8]>> {
        match self.target()? {
            LinkTarget::Text(text) => Ok(text),
            LinkTarget::Jump(place) => {
                let mut text = alloc::vec::Vec::new();
                let top = crate::mount::Path::root_of(&place.mount);
                place.write_to(&top, true, &mut text)?;
                allocation::arc_bytes(&text)
            }
        }
    }
}

impl<F: Fn() -> Result<Arc<[u8]>> + Send + Sync> Link for F {
    fn target(&self) -> Result<LinkTarget> {
        self().map(LinkTarget::Text)
    }
}

/// What a node is.
#[derive(Clone)]
pub enum Body {
    /// A directory.
    Directory(Arc<dyn Directory>),
    /// A file.
    File(Arc<dyn File>),
    /// A symbolic link.
    Link(Arc<dyn Link>),
}

/// A node of a computed tree.
#[derive(Clone)]
pub struct Node {
    /// Its inode number, unique in its tree.
    pub number: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// What it is.
    pub body: Body,
}

impl Node {
    /// A directory of root's with mode 0555.
    pub fn directory(directory: Arc<dyn Directory>) -> Self {
        Self::new(0o555, Body::Directory(directory))
    }

    /// A file of root's.
    pub fn file(mode: u32, file: Arc<dyn File>) -> Self {
        Self::new(mode, Body::File(file))
    }

    /// A link of root's.
    pub fn link(link: Arc<dyn Link>) -> Self {
        Self::new(0o777, Body::Link(link))
    }

    /// A node of root's with the next free number.
    pub fn new(mode: u32, body: Body) -> Self {
        Self { number: super::tree::next_number(), mode, user: 0, group: 0, body }
    }

    /// The same with another number and owner (dynamic nodes: computed from what they show).
    #[must_use]
    pub fn owned(self, number: u64, user: u32, group: u32) -> Self {
        Self { number, user, group, ..self }
    }

    /// Its kind.
    pub fn kind(&self) -> FileKind {
        match &self.body {
            Body::Directory(_) => FileKind::Directory,
            Body::File(_) => FileKind::Regular,
            Body::Link(_) => FileKind::SymbolicLink,
        }
    }

    /// An inode of it.
    pub(super) fn into_inode(self, superblock: &Arc<Superblock>) -> Result<Arc<Inode>> {
        let kind = self.kind();
        let attributes = InodeAttributes {
            number: self.number,
            kind,
            mode: self.mode,
            user: self.user,
            group: self.group,
            links: match &self.body {
                Body::Directory(directory) => directory.links(),
                _ => 1,
            },
            special: DeviceNumber::default(),
            size: match &self.body {
                Body::File(file) => file.size(),
                Body::Link(link) => link.size(),
                Body::Directory(_) => 0,
            },
        };
        let inode: Arc<Inode> = Inode::new(superblock, attributes, GeneratedInode { body: self.body })?;
        Ok(inode)
    }
}

/// The file system's part of an inode.
pub(super) struct GeneratedInode {
    body: Body,
}

impl GeneratedInode {
    fn as_directory(&self) -> Result<&Arc<dyn Directory>> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    fn as_link(&self) -> Result<&Arc<dyn Link>> {
        match &self.body {
            Body::Link(link) => Ok(link),
            _ => Err(Error::Invalid),
        }
    }
}

impl InodeOperations for GeneratedInode {
    fn lookup(&self, directory: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        let superblock = directory.superblock().ok_or(Error::NotFound)?;
        self.as_directory()?.lookup(name)?.into_inode(&superblock)
    }

    fn still_valid(&self, _directory: &Inode, name: &[u8], child: &Inode) -> bool {
        self.as_directory().is_ok_and(|directory| directory.still_valid(name, child.number))
    }

    fn read_directory(&self, _directory: &Inode, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        self.as_directory()?.list(position, sink)
    }

    fn link_target(&self, _inode: &Arc<Inode>) -> Result<LinkTarget> {
        self.as_link()?.target()
    }

    fn link_text(&self, _inode: &Arc<Inode>) -> Result<Arc<[u8]>> {
        self.as_link()?.text()
    }

    fn refresh(&self, inode: &Inode) {
        if let Body::Directory(directory) = &self.body {
            if let Some((user, group)) = directory.owner() {
                inode.set_owner(user, group);
            }
        } else if let Body::File(file) = &self.body
            && let Some((user, group)) = file.owner()
        {
            inode.set_owner(user, group);
        }
    }

    fn truncate(&self, inode: &Inode, _size: u64) -> Result<()> {
        // `echo 1 > knob` opens with O_TRUNC: there is nothing to cut off, and the file stays as large as it is.
        match &self.body {
            Body::File(file) => {
                inode.set_size(file.size());
                Ok(())
            }
            _ => Err(Error::Invalid),
        }
    }

    fn change_attributes(&self, _inode: &Inode, change: &crate::attributes::AttributeChange) -> Result<()> {
        // Attributes are computed; times may be set and are forgotten with the inode.
        if change.mode.is_some() || change.user.is_some() || change.group.is_some() {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }

    fn open(&self, inode: &Arc<Inode>, flags: OpenFlags) -> Result<Option<Arc<dyn FileOperations>>> {
        match &self.body {
            Body::File(file) => match file.open(inode, flags)? {
                Some(object) => Ok(Some(object)),
                None => {
                    let object: Arc<dyn FileOperations> = GeneratedFile::new(file.clone())?;
                    Ok(Some(object))
                }
            },
            _ => Ok(None),
        }
    }

    fn file_operations(&self) -> &dyn FileOperations {
        &NoOperations
    }
}
