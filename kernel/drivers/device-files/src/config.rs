//! Configuration space as a file: `config` in `/sys`, a file of each function in `/proc/bus/pci`.
//!
//! Reads and writes are made of the largest aligned accesses that fit, as the registers want it. Reading some registers has effects, or stops a broken device: beyond the header, what
//! is read is for those with `CAP_SYS_ADMIN`, who opened the file in `/sys` with it, or read that in `/proc`. Of a function that was taken out, there is nothing more to read or
//! write through files that are still open.

use alloc::sync::Arc;

use device::pci::{Function, Width};
use machine::address::UserAddr;
use memory::buffer::{Sink, Source};
use vfs::credentials::{Capabilities, caller_has};
use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::flags::OpenFlags;
use vfs::generated::File;
use vfs::inode::Inode;
use vfs::text::Text;
use vfs::{Error, Result, allocation};

/// Bytes for everybody: the header, and that of a bridge for cards.
const HEADER_BYTES: u64 = 64;
const CARD_HEADER_BYTES: u64 = 128;
/// The layout of a bridge for cards.
const CARD_BRIDGE: u8 = 2;
/// Requests of the file in `/proc`: the segment; what a mapping is to show, of which there are none.
const CONTROLLER: u32 = 0x5043_4900;

/// Which of the two files it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Sysfs,
    Proc,
}

/// The file of a function.
pub(crate) struct ConfigFile {
    function: Arc<Function>,
    place: Place,
}

impl ConfigFile {
    /// `config`, of its directory.
    pub(crate) fn of_sysfs(function: Arc<Function>) -> Self {
        Self { function, place: Place::Sysfs }
    }

    /// Named by device and function in the directory of its bus.
    pub(crate) fn of_proc(function: Arc<Function>) -> Self {
        Self { function, place: Place::Proc }
    }
}

impl File for ConfigFile {
    fn show(&self, _out: &mut Text) -> Result<()> {
        Err(Error::Invalid)
    }

    fn open(&self, _inode: &Arc<Inode>, _flags: OpenFlags) -> Result<Option<Arc<dyn FileOperations>>> {
        let (function, place) = (self.function.clone(), self.place);
        let was_privileged = caller_has(Capabilities::SYS_ADMIN);
        let object: Arc<dyn FileOperations> =
            allocation::arc(OpenConfig { function, place, was_privileged })?;
        Ok(Some(object))
    }

    fn size(&self) -> u64 {
        size_of_space(&self.function)
    }
}

/// A function that is not PCI Express has 256 bytes, wherever they are shown.
fn size_of_space(function: &Function) -> u64 {
    if function.express.is_some() { function.config.bytes().into() } else { 256 }
}

struct OpenConfig {
    function: Arc<Function>,
    place: Place,
    /// Who has opened it had `CAP_SYS_ADMIN`.
    was_privileged: bool,
}

/// The largest access at a place with so many bytes left.
fn width(position: u64, left: usize) -> Width {
    match (position % 4, left) {
        (0, 4..) => Width::Long,
        (0 | 2, 2..) => Width::Word,
        _ => Width::Byte,
    }
}

/// How many of the wanted bytes lie before the end.
fn left(end: u64, position: u64, wanted: usize) -> usize {
    wanted.min(end.saturating_sub(position) as usize)
}

impl OpenConfig {
    /// How many bytes the caller may read.
    fn readable(&self) -> u64 {
        let is_privileged = match self.place {
            Place::Sysfs => self.was_privileged,
            Place::Proc => caller_has(Capabilities::SYS_ADMIN),
        };
        match self.function.header_type {
            _ if is_privileged => size_of_space(&self.function),
            CARD_BRIDGE => CARD_HEADER_BYTES,
            _ => HEADER_BYTES,
        }
    }

    fn require_presence(&self) -> Result<()> {
        match (self.function.config.is_gone(), self.place) {
            (false, _) => Ok(()),
            (true, Place::Sysfs) => Err(Error::NoDevice),
            (true, Place::Proc) => Err(Error::Io),
        }
    }
}

impl FileOperations for OpenConfig {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE | FileFeatures::POLLABLE
    }

    fn read(&self, _file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        self.require_presence()?;
        let wanted = left(self.readable(), *position, sink.remaining());
        let mut done = 0;
        while done < wanted {
            let width = width(*position, wanted - done);
            let value = self.function.config.read(*position as u16, width).to_le_bytes();
            let bytes = usize::from(width.bytes());
            let written = sink.write(&value[..bytes])?;
            done += written;
            *position += written as u64;
            if written < bytes {
                break;
            }
        }
        Ok(done)
    }

    fn write(&self, _file: &OpenFile, position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        self.require_presence()?;
        let wanted = left(size_of_space(&self.function), *position, source.remaining());
        let mut done = 0;
        while done < wanted {
            let width = width(*position, wanted - done);
            let bytes = usize::from(width.bytes());
            let mut value = [0; 4];
            if source.read(&mut value[..bytes])? < bytes {
                break;
            }
            self.function.config.write(*position as u16, width, u32::from_le_bytes(value));
            done += bytes;
            *position += bytes as u64;
        }
        Ok(done)
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, _argument: UserAddr) -> Result<usize> {
        match (self.place, command) {
            (Place::Sysfs, _) => Err(Error::NotTerminal),
            (Place::Proc, CONTROLLER) => Ok(self.function.address().segment.into()),
            (Place::Proc, _) => Err(Error::Invalid),
        }
    }
}
