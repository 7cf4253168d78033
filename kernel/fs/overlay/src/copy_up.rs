//! Copying up: a lower file becomes an upper one.
//!
//! Directories first, from above. The copy is made in the work directory with everything that it is to have, and moved to its place by one
//! rename; then the node changes over. Who has the file open for reading reads the copy from then on, as on Linux; what is mapped stays what it was.
//!
//! # Locking
//! The node's `copying` is held from the look whether it is still lower until it is upper, so there is one copy. Its name does not go meanwhile: who removes names
//! of lower files holds `copying`, too.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::buffer::{Sink, Source};
use vfs::access_list::ListKind;
use vfs::attributes::{AttributeChange, TimeChange};
use vfs::dentry::Dentry;
use vfs::file::{OpenFile, SeekFrom};
use vfs::flags::OpenFlags;
use vfs::inode::{Inode, LinkTarget, NewFile, SetAttribute};
use vfs::mount::Path;
use vfs::tree::{change_inode, layer, open_place};
use vfs::{Credentials, Error, FileKind, Result, allocation, file_capabilities};

use crate::attributes::{ESCAPED, OWN};
use crate::node::{self, Node};

/// Bytes copied at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// How much of a file's contents is copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    All,
    /// They are about to be cut off.
    None,
}

/// Makes a file one of the upper layer; returns its entry there.
///
/// # Errors
/// `EROFS` without an upper layer; what the file systems say.
pub(crate) fn copy_up(inode: &Inode) -> Result<&Arc<Dentry>> {
    ensure_upper(inode, Contents::All)
}

/// The same for a file that is about to be made empty.
pub(crate) fn copy_up_empty(inode: &Inode) -> Result<&Arc<Dentry>> {
    ensure_upper(inode, Contents::None)
}

fn ensure_upper(inode: &Inode, contents: Contents) -> Result<&Arc<Dentry>> {
    let node = node::of(inode)?;
    node.overlay.upper()?;
    while node.upper().is_none() {
        match lower_directory(node)? {
            Some(directory) => copy_one(&directory, contents)?,
            None => copy_one(inode, contents)?,
        }
    }
    node.upper().ok_or(Error::Io)
}

/// The highest directory above that is still lower.
fn lower_directory(node: &Node) -> Result<Option<Arc<Inode>>> {
    let mut highest: Option<Arc<Inode>> = None;
    loop {
        let current = match &highest {
            Some(directory) => node::of(directory)?,
            None => node,
        };
        if current.is_removed() {
            return Ok(highest);
        }
        let above = current.place()?.directory;
        if node::of(&above)?.upper().is_some() {
            return Ok(highest);
        }
        highest = Some(above);
    }
}

#[inline(never)]
fn copy_one(inode: &Inode, contents: Contents) -> Result<()> {
    let node = node::of(inode)?;
    let _copying = node.copying.lock();
    if node.upper().is_some() {
        return Ok(());
    }
    let upper = node.overlay.upper()?;
    let source = node.real_place()?;
    let real = source.inode()?;
    real.operations().refresh(real);
    upper.check_owners(real.user(), real.group())?;
    if !node.is_removed() {
        let directory = node.place()?.directory;
        upper.check_directory(node::of(&directory)?.upper().ok_or(Error::Io)?.existing()?)?;
    }
    let target = match real.kind {
        FileKind::SymbolicLink => match real.operations().link_target(real)? {
            LinkTarget::Text(text) => Some(text),
            LinkTarget::Jump(_) => return Err(Error::NotPermitted),
        },
        _ => None,
    };
    let new = NewFile {
        kind: real.kind,
        mode: real.mode() & vfs::attributes::MODE_MASK,
        access_lists: None,
        user: real.user(),
        group: real.group(),
        special: real.special,
        target: target.as_deref().unwrap_or_default(),
    };
    let temporary = upper.temporary(&new)?;
    let copy = temporary.dentry.existing()?.clone();
    if real.kind == FileKind::Regular && contents == Contents::All {
        copy_contents(&source, &upper.layer.place(&temporary.dentry), upper.volatile)?;
    }
    copy_attributes(real, &copy)?;
    let dentry = if node.is_removed() {
        temporary.nameless()
    } else {
        let place = node.place()?;
        let parent = upper.layer.place(node::of(&place.directory)?.upper().ok_or(Error::Io)?);
        let directory = parent.inode()?;
        let times = [directory.accessed().get(), directory.modified().get()].map(TimeChange::To);
        let dentry = temporary.install(&parent, &place.name)?;
        // To be copied up is no change of the directory.
        let unchanged = AttributeChange {
            accessed: Some(times[0]),
            modified: Some(times[1]),
            ..AttributeChange::default()
        };
        let _ = change_inode(directory, &unchanged, &Credentials::root());
        dentry
    };
    node.overlay.copied(inode, &copy);
    node.set_upper(dentry);
    node::refresh(inode);
    Ok(())
}

/// Extended attributes, mode, owner and times.
fn copy_attributes(real: &Arc<Inode>, copy: &Arc<Inode>) -> Result<()> {
    let mut names: Vec<u8> = Vec::new();
    real.operations().list_extended_attributes(real, &mut |name| {
        allocation::extend(&mut names, name)?;
        allocation::push(&mut names, 0)
    })?;
    for name in names
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty() && (!name.starts_with(OWN) || name.starts_with(ESCAPED)))
    {
        match copy_attribute(real, copy, name) {
            // Where it is not known it does not count, and what has just gone is not there.
            Err(Error::NotSupported | Error::NoData) | Ok(()) => {}
            Err(error) => return Err(error),
        }
    }
    let change = AttributeChange {
        // Writing has taken bits of it away. A link has none of its own.
        mode: (real.kind != FileKind::SymbolicLink).then(|| real.mode() & vfs::attributes::MODE_MASK),
        accessed: Some(TimeChange::To(real.accessed().get())),
        modified: Some(TimeChange::To(real.modified().get())),
        ..AttributeChange::default()
    };
    change_inode(copy, &change, &Credentials::root())
}

fn copy_attribute(real: &Arc<Inode>, copy: &Arc<Inode>, name: &[u8]) -> Result<()> {
    if let Some(kind) = ListKind::of_attribute(name) {
        return layer::set_access_list(copy, kind, layer::access_list(real, kind)?.as_ref(), None);
    }
    let length = real.operations().extended_attribute(real, name, &mut [])?;
    let mut value = allocation::filled(0, length)?;
    if length > 0 {
        let read = real.operations().extended_attribute(real, name, &mut value)?;
        value.truncate(read);
    }
    file_capabilities::set_below(copy, name, &value, SetAttribute::Any)
}

fn copy_contents(from: &Path, to: &Path, volatile: bool) -> Result<()> {
    let source = open_place(from.clone(), OpenFlags::NO_ACCESS_TIME)?;
    let target = open_place(to.clone(), OpenFlags::WRITE_ONLY)?;
    let size = from.inode()?.size();
    let buffer_bytes = BUFFER_BYTES.min(size as usize);
    let mut buffer = allocation::filled(0, buffer_bytes)?;
    let mut position = 0;
    while let Some((start, end)) = next_data(&source, position, size)? {
        position = start;
        while position < end {
            let wanted = (end - position).min(buffer.len() as u64) as usize;
            let number = read_at(&source, position, &mut buffer[..wanted])?;
            if number == 0 {
                break;
            }
            write_at(&target, position, &buffer[..number])?;
            position += number as u64;
        }
        position = end;
    }
    let copy = to.inode()?;
    if copy.size() != size {
        layer::truncate(copy, size)?;
    }
    if volatile { Ok(()) } else { target.operations().sync(&target, false) }
}

/// The next piece of a file that is no hole.
fn next_data(file: &Arc<OpenFile>, position: u64, size: u64) -> Result<Option<(u64, u64)>> {
    if position >= size {
        return Ok(None);
    }
    let seek = |target| file.operations().seek(file, position, target);
    match seek(SeekFrom::Data(position as i64)) {
        Ok(start) if start < size => {
            let end = seek(SeekFrom::Hole(start as i64)).unwrap_or(size);
            Ok(Some((start, end.clamp(start + 1, size))))
        }
        Ok(_) | Err(Error::NoDeviceAddress) => Ok(None),
        // Nobody knows of holes.
        Err(_) => Ok(Some((position, size))),
    }
}

fn read_at(file: &Arc<OpenFile>, position: u64, buffer: &mut [u8]) -> Result<usize> {
    let mut position = position;
    file.operations().read(file, &mut position, &mut Sink::kernel(buffer))
}

fn write_at(file: &Arc<OpenFile>, position: u64, bytes: &[u8]) -> Result<()> {
    let mut position = position;
    let mut source = Source::kernel(bytes);
    while !source.is_empty() {
        if file.operations().write(file, &mut position, &mut source)? == 0 {
            return Err(Error::Io);
        }
    }
    Ok(())
}
