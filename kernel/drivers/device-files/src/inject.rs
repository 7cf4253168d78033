//! `/dev/aer_inject`: errors that did not happen, as the program `aer-inject` writes them.
//!
//! A write is a structure: bus, device and function in a byte each and a byte of padding; uncorrectable and correctable errors; the four words of the packet's
//! header; the segment, which may be left out.

use alloc::sync::Arc;

use device::express::aer::{self, Injection};
use device::pci::Address;
use memory::buffer::Source;
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::device::DeviceDriver;
use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::flags::OpenFlags;
use vfs::inode::Inode;
use vfs::{Error, Result, allocation};

use crate::bus::error_of;

const NAME: &str = "aer_inject";
const MAJOR: u32 = 10;
/// Among those for dynamic use.
const MINOR: u32 = 126;
/// Bytes of the structure without and with the segment.
const SHORT: usize = 28;
const LONG: usize = 32;

struct Driver;
struct Device;

/// Makes the device. Once, at start-up, before /dev is first mounted.
pub(crate) fn register() {
    static DRIVER: Driver = Driver;
    let kind = FileKind::CharacterDevice;
    vfs::device::register(kind, MAJOR, MINOR..=MINOR, &DRIVER);
    let number = DeviceNumber::new(MAJOR, MINOR);
    devfs::nodes::add(devfs::nodes::Node { path: NAME, kind, number, mode: 0o600 });
}

impl DeviceDriver for Driver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn open(
        &self,
        _number: DeviceNumber,
        _inode: &Arc<Inode>,
        _flags: OpenFlags,
    ) -> Result<Arc<dyn FileOperations>> {
        let device: Arc<dyn FileOperations> = allocation::arc(Device)?;
        Ok(device)
    }
}

fn parse(bytes: &[u8; LONG]) -> Injection {
    let word = |index: usize| {
        let at = 4 * index;
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    Injection {
        address: Address::new(word(7) as u16, bytes[0], bytes[1], bytes[2]),
        uncorrectable: word(1),
        correctable: word(2),
        header: [word(3), word(4), word(5), word(6)],
    }
}

impl FileOperations for Device {
    fn features(&self) -> FileFeatures {
        FileFeatures::empty()
    }

    fn write(&self, _file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let wanted = source.remaining();
        if !(SHORT..=LONG).contains(&wanted) {
            return Err(Error::Invalid);
        }
        let mut bytes = [0; LONG];
        let taken = source.read(&mut bytes[..wanted])?;
        aer::inject(parse(&bytes)).map_err(error_of)?;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structure_is_that_of_aer_inject() {
        let mut bytes = [0; LONG];
        bytes[..3].copy_from_slice(&[8, 1, 2]);
        bytes[4] = 1;
        bytes[9] = 2;
        bytes[12..16].copy_from_slice(&[1, 2, 3, 4]);
        let injection = parse(&bytes);
        assert_eq!(injection.address, Address::new(0, 8, 1, 2));
        assert_eq!((injection.uncorrectable, injection.correctable), (1, 0x200));
        assert_eq!(injection.header, [0x0403_0201, 0, 0, 0]);
    }
}
