//! Configuration space as a file: `config` in `/sys`, a file of each function in `/proc/bus/pci`.
//!
//! Reads and writes are made of the largest aligned accesses that fit, as the registers want it. Other than Linux's, the file shows all of itself
//! to everybody who may open it, not 64 bytes.

use alloc::sync::Arc;

use device::pci::{Function, Width};
use memory::buffer::{Sink, Source};
use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::flags::OpenFlags;
use vfs::generated::File;
use vfs::inode::Inode;
use vfs::text::Text;
use vfs::{Error, Result, allocation};

/// The file of a function.
pub(crate) struct ConfigFile(pub(crate) Arc<Function>);

impl File for ConfigFile {
    fn show(&self, _out: &mut Text) -> Result<()> {
        Err(Error::Invalid)
    }

    fn open(&self, _inode: &Arc<Inode>, _flags: OpenFlags) -> Result<Option<Arc<dyn FileOperations>>> {
        let object: Arc<dyn FileOperations> = allocation::arc(OpenConfig(self.0.clone()))?;
        Ok(Some(object))
    }

    fn size(&self) -> u64 {
        size_of_space(&self.0)
    }
}

/// A function that is not PCI Express has 256 bytes, wherever they are shown.
fn size_of_space(function: &Function) -> u64 {
    if function.express.is_some() { function.config.bytes().into() } else { 256 }
}

struct OpenConfig(Arc<Function>);

/// The largest access at a place with so many bytes left.
fn width(position: u64, left: usize) -> Width {
    match (position % 4, left) {
        (0, 4..) => Width::Long,
        (0 | 2, 2..) => Width::Word,
        _ => Width::Byte,
    }
}

impl OpenConfig {
    fn left(&self, position: u64, wanted: usize) -> usize {
        let size = size_of_space(&self.0);
        wanted.min(size.saturating_sub(position) as usize)
    }
}

impl FileOperations for OpenConfig {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE | FileFeatures::POLLABLE
    }

    fn read(&self, _file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let wanted = self.left(*position, sink.remaining());
        let mut done = 0;
        while done < wanted {
            let width = width(*position, wanted - done);
            let value = self.0.config.read(*position as u16, width).to_le_bytes();
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
        let wanted = self.left(*position, source.remaining());
        let mut done = 0;
        while done < wanted {
            let width = width(*position, wanted - done);
            let bytes = usize::from(width.bytes());
            let mut value = [0; 4];
            if source.read(&mut value[..bytes])? < bytes {
                break;
            }
            self.0.config.write(*position as u16, width, u32::from_le_bytes(value));
            done += bytes;
            *position += bytes as u64;
        }
        Ok(done)
    }
}
