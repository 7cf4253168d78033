//! `LOOP_*` requests of `ioctl` on a device.

use alloc::sync::Arc;

use block::disk;
use block::registry::BlockDevice;
use machine::address::UserAddr;
use vfs::caller;
use vfs::credentials::{Capabilities, caller_has};
use vfs::file::OpenFile;
use vfs::{Error, Result};

use crate::device::{self, Device};
use crate::layout::{self, NAME_BYTES, Status, Width};

/// The requests, by their names on Linux.
#[allow(missing_docs, reason = "the names are the manual's")]
mod request {
    pub(super) const LOOP_SET_FD: u32 = 0x4c00;
    pub(super) const LOOP_CLR_FD: u32 = 0x4c01;
    pub(super) const LOOP_SET_STATUS: u32 = 0x4c02;
    pub(super) const LOOP_GET_STATUS: u32 = 0x4c03;
    pub(super) const LOOP_SET_STATUS64: u32 = 0x4c04;
    pub(super) const LOOP_GET_STATUS64: u32 = 0x4c05;
    pub(super) const LOOP_SET_CAPACITY: u32 = 0x4c07;
    pub(super) const LOOP_SET_DIRECT_IO: u32 = 0x4c08;
    pub(super) const LOOP_SET_BLOCK_SIZE: u32 = 0x4c09;
    pub(super) const LOOP_CONFIGURE: u32 = 0x4c0a;
}

/// The only size of blocks.
const BLOCK_BYTES: u64 = 512;

/// What a program says that says nothing.
const NOTHING: Status = Status {
    device: 0,
    inode: 0,
    special: 0,
    offset: 0,
    size_limit: 0,
    number: 0,
    encryption: 0,
    flags: 0,
    name: [0; NAME_BYTES],
};

/// The answer to a program's request.
///
/// # Errors
/// `ENOTTY` for what is not known here; those of the request.
pub(crate) fn answer(
    file: &OpenFile,
    device: &Arc<BlockDevice>,
    command: u32,
    argument: UserAddr,
) -> Result<usize> {
    if command >> 8 != request::LOOP_SET_FD >> 8 || device.part() > 0 {
        return Err(Error::NotTerminal);
    }
    if device.is_removed() {
        return Err(Error::NoDeviceAddress);
    }
    let index = device.number().minor / disk::LOOP.minors;
    let device = device::find_or_make(index)?;
    match command {
        request::LOOP_SET_FD => {
            device.bind(caller::file(number_of(argument))?, !file.flags().writable(), &NOTHING)
        }
        request::LOOP_CONFIGURE => configure(file, &device, argument),
        request::LOOP_CLR_FD => device.clear(),
        request::LOOP_SET_STATUS => set_status(file, &device, argument, Width::Narrow),
        request::LOOP_SET_STATUS64 => set_status(file, &device, argument, Width::Wide),
        request::LOOP_GET_STATUS => status(&device, argument, Width::Narrow),
        request::LOOP_GET_STATUS64 => status(&device, argument, Width::Wide),
        request::LOOP_SET_CAPACITY => {
            require_writer(file)?;
            device.set_capacity()
        }
        request::LOOP_SET_DIRECT_IO => {
            require_writer(file)?;
            device.status()?;
            if argument.as_u64() == 0 { Ok(()) } else { Err(Error::Invalid) }
        }
        request::LOOP_SET_BLOCK_SIZE => {
            require_writer(file)?;
            device.status()?;
            if argument.as_u64() == BLOCK_BYTES { Ok(()) } else { Err(Error::Invalid) }
        }
        _ => Err(Error::NotTerminal),
    }?;
    Ok(0)
}

/// A number that is passed itself.
fn number_of(argument: UserAddr) -> i32 {
    argument.as_u64() as i32
}

fn require_writer(file: &OpenFile) -> Result<()> {
    let may = file.flags().writable() || caller_has(Capabilities::SYS_ADMIN);
    if may { Ok(()) } else { Err(Error::NotPermitted) }
}

fn configure(file: &OpenFile, device: &Device, argument: UserAddr) -> Result<()> {
    let (descriptor, block_bytes, status) = layout::read_configuration(argument)?;
    if ![0, BLOCK_BYTES as u32].contains(&block_bytes) {
        return Err(Error::Invalid);
    }
    device.bind(caller::file(descriptor)?, !file.flags().writable(), &status)
}

fn set_status(file: &OpenFile, device: &Device, argument: UserAddr, width: Width) -> Result<()> {
    require_writer(file)?;
    device.set_status(&layout::read_status(argument, width)?)
}

fn status(device: &Device, argument: UserAddr, width: Width) -> Result<()> {
    let status = device.status()?;
    if argument.as_u64() == 0 {
        return Err(Error::Invalid);
    }
    layout::write_status(argument, width, &status)
}
