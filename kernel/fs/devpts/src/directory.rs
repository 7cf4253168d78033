//! The directory of slaves.

use alloc::sync::Arc;
use core::str;

use sync::Once;
use tty::pseudo::SLAVE_MAJOR;
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::inode::{DirectorySink, FIRST_POSITION, Inode, InodeAttributes, InodeOperations};
use vfs::{Error, Result};

use crate::slaves;

pub(crate) const ROOT_NUMBER: u64 = 1;
const MULTIPLEXER_NUMBER: u64 = 2;
/// Inode number of slave N is this plus N.
const SLAVE_NUMBER_BASE: u64 = 3;
const MULTIPLEXER: &[u8] = b"ptmx";
const MULTIPLEXER_DEVICE: DeviceNumber = DeviceNumber::new(5, 2);
const SLAVE_MODE: u32 = 0o620;
const MULTIPLEXER_MODE: u32 = 0o666;

/// A device node: everything it does is the driver's.
struct DeviceNode;

impl InodeOperations for DeviceNode {}

pub(crate) struct RootDirectory {
    multiplexer: Once<Arc<Inode>>,
}

impl RootDirectory {
    pub(crate) fn new() -> Self {
        Self { multiplexer: Once::new() }
    }

    fn multiplexer(&self, directory: &Arc<Inode>) -> Result<Arc<Inode>> {
        if let Some(inode) = self.multiplexer.get() {
            return Ok(inode.clone());
        }
        let inode =
            device_inode(directory, MULTIPLEXER_NUMBER, MULTIPLEXER_MODE, (0, 0), MULTIPLEXER_DEVICE)?;
        Ok(self.multiplexer.call_once(|| inode).clone())
    }
}

fn device_inode(
    directory: &Inode,
    number: u64,
    mode: u32,
    owner: (u32, u32),
    special: DeviceNumber,
) -> Result<Arc<Inode>> {
    let superblock = directory.superblock().ok_or(Error::NotFound)?;
    let attributes = InodeAttributes {
        number,
        kind: FileKind::CharacterDevice,
        mode,
        user: owner.0,
        group: owner.1,
        links: 1,
        special,
        size: 0,
    };
    let inode: Arc<Inode> = Inode::new(&superblock, attributes, DeviceNode)?;
    Ok(inode)
}

fn slave_number(name: &[u8]) -> Option<u32> {
    let text = str::from_utf8(name).ok()?;
    let canonical = text == "0" || !text.starts_with(['0', '+']);
    if canonical { text.parse().ok() } else { None }
}

impl InodeOperations for RootDirectory {
    fn lookup(&self, directory: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        if name == MULTIPLEXER {
            return self.multiplexer(directory);
        }
        let number = slave_number(name).ok_or(Error::NotFound)?;
        let (user, group, known) = slaves::table()
            .with(number, |slave| (slave.user, slave.group, slave.inode.clone()))
            .ok_or(Error::NotFound)?;
        if let Some(inode) = known {
            return Ok(inode);
        }
        let special = DeviceNumber::new(SLAVE_MAJOR, number);
        let made = device_inode(
            directory,
            SLAVE_NUMBER_BASE + u64::from(number),
            SLAVE_MODE,
            (user, group),
            special,
        )?;
        // Two first look-ups at a time: both get the inode that came first.
        slaves::table().with(number, |slave| slave.inode.get_or_insert(made).clone()).ok_or(Error::NotFound)
    }

    fn still_valid(&self, _directory: &Inode, name: &[u8], child: &Inode) -> bool {
        if name == MULTIPLEXER {
            return true;
        }
        let same =
            |known: &Option<Arc<Inode>>| known.as_ref().is_some_and(|inode| core::ptr::eq(&**inode, child));
        slave_number(name)
            .and_then(|number| slaves::table().with(number, |slave| same(&slave.inode)))
            .unwrap_or(false)
    }

    fn read_directory(&self, _directory: &Inode, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let mut position = position;
        if position == FIRST_POSITION {
            let next = position + 1;
            if !sink.entry(MULTIPLEXER, MULTIPLEXER_NUMBER, FileKind::CharacterDevice, next) {
                return Ok(position);
            }
            position = next;
        }
        let first = FIRST_POSITION + 1;
        while let Some(number) = slaves::table().next((position - first) as u32) {
            let next = first + u64::from(number) + 1;
            let mut buffer = [0; 10];
            let name = vfs::text::digits(number, &mut buffer);
            let inode = SLAVE_NUMBER_BASE + u64::from(number);
            if !sink.entry(name, inode, FileKind::CharacterDevice, next) {
                return Ok(first + u64::from(number));
            }
            position = next;
        }
        Ok(position)
    }

    fn file_operations(&self) -> &dyn FileOperations {
        &DirectoryFile
    }
}

struct DirectoryFile;

impl FileOperations for DirectoryFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE
    }

    fn sync(&self, _file: &OpenFile, _data_only: bool) -> Result<()> {
        Ok(())
    }
}
