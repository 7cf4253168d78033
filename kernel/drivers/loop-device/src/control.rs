//! `/dev/loop-control`, and the nodes of devices that need not be there yet.

use alloc::sync::Arc;

use block::disk::LOOP;
use machine::address::UserAddr;
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::device::DeviceDriver;
use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::flags::OpenFlags;
use vfs::inode::Inode;
use vfs::{Error, Result, allocation};

use crate::device;

const CONTROL: &str = "loop-control";
const CONTROL_MAJOR: u32 = 10;
const CONTROL_MINOR: u32 = 237;
const LOOP_CTL_ADD: u32 = 0x4c80;
const LOOP_CTL_REMOVE: u32 = 0x4c81;
const LOOP_CTL_GET_FREE: u32 = 0x4c82;

/// Nodes that are there from the start: the usual devices come when one of them is opened.
const USUAL: [&str; 8] = ["loop0", "loop1", "loop2", "loop3", "loop4", "loop5", "loop6", "loop7"];

struct ControlDriver;
struct Control;
struct LoopDriver;

/// Registers all of it.
pub(crate) fn register() {
    static CONTROL_DRIVER: ControlDriver = ControlDriver;
    static LOOP_DRIVER: LoopDriver = LoopDriver;
    vfs::device::register(
        FileKind::CharacterDevice,
        CONTROL_MAJOR,
        CONTROL_MINOR..=CONTROL_MINOR,
        &CONTROL_DRIVER,
    );
    vfs::device::register(FileKind::BlockDevice, LOOP.major, 0..=u32::MAX, &LOOP_DRIVER);
    let number = DeviceNumber::new(CONTROL_MAJOR, CONTROL_MINOR);
    devfs::nodes::add(devfs::nodes::Node {
        path: CONTROL,
        kind: FileKind::CharacterDevice,
        number,
        mode: 0o660,
    });
    for (minor, path) in (0..).zip(USUAL) {
        let number = DeviceNumber::new(LOOP.major, minor);
        devfs::nodes::add(devfs::nodes::Node { path, kind: FileKind::BlockDevice, number, mode: 0o660 });
    }
}

impl DeviceDriver for ControlDriver {
    fn name(&self) -> &'static str {
        CONTROL
    }

    fn open(
        &self,
        _number: DeviceNumber,
        _inode: &Arc<Inode>,
        _flags: OpenFlags,
    ) -> Result<Arc<dyn FileOperations>> {
        let control: Arc<dyn FileOperations> = allocation::arc(Control)?;
        Ok(control)
    }
}

impl FileOperations for Control {
    fn features(&self) -> FileFeatures {
        FileFeatures::empty()
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        let wanted = argument.as_u64() as i32;
        device::settle();
        match command {
            LOOP_CTL_ADD => Ok(device::add(u32::try_from(wanted).ok())?.index() as usize),
            LOOP_CTL_REMOVE => {
                let index = u32::try_from(wanted).map_err(|_| Error::Invalid)?;
                device::remove(index)?;
                Ok(index as usize)
            }
            LOOP_CTL_GET_FREE => Ok(device::unbound()?.index() as usize),
            _ => Err(Error::NotSupported),
        }
    }
}

impl DeviceDriver for LoopDriver {
    fn name(&self) -> &'static str {
        LOOP.prefix
    }

    fn open(
        &self,
        number: DeviceNumber,
        _inode: &Arc<Inode>,
        flags: OpenFlags,
    ) -> Result<Arc<dyn FileOperations>> {
        device::settle();
        device::find_or_make(number.minor / LOOP.minors)?;
        vfs::disk::open_device(number, flags)
    }
}
