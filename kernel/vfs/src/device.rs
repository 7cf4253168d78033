//! Which driver is behind a device number.
//!
//! A driver registers a range of minors of a major, for character or block devices, once at start-up. Opening a device
//! node of any file system asks the driver for an object; block devices without one are looked for in [`block::registry`]. The list is short and read under a spin lock at each open.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use sync::SpinLock;

use crate::attributes::{DeviceNumber, FileKind};
use crate::file::FileOperations;
use crate::flags::OpenFlags;
use crate::inode::Inode;
use crate::{Error, Result};

/// Opens devices.
pub trait DeviceDriver: Send + Sync {
    /// The name that `/proc/devices` shows.
    fn name(&self) -> &'static str;

    /// Makes what an open file of the device works on.
    fn open(
        &self,
        number: DeviceNumber,
        inode: &Arc<Inode>,
        flags: OpenFlags,
    ) -> Result<Arc<dyn FileOperations>>;
}

/// A range of device numbers and its driver.
#[derive(Clone)]
struct Registration {
    kind: FileKind,
    major: u32,
    minors: RangeInclusive<u32>,
    driver: &'static dyn DeviceDriver,
}

static REGISTRATIONS: SpinLock<Vec<Registration>> = SpinLock::new(Vec::new());

/// Registers a driver; `kind` is `CharacterDevice` or `BlockDevice`. Called at start-up.
pub fn register(kind: FileKind, major: u32, minors: RangeInclusive<u32>, driver: &'static dyn DeviceDriver) {
    debug_assert!(kind.is_device());
    REGISTRATIONS.lock().push(Registration { kind, major, minors, driver });
}

/// The driver of a device. Fails with `ENXIO`.
pub fn find(kind: FileKind, number: DeviceNumber) -> Result<&'static dyn DeviceDriver> {
    let registrations = REGISTRATIONS.lock();
    let found = registrations.iter().find(|entry| {
        entry.kind == kind && entry.major == number.major && entry.minors.contains(&number.minor)
    });
    found.map(|entry| entry.driver).ok_or(Error::NoDeviceAddress)
}

/// Opens the device that a node stands for.
pub(crate) fn open(inode: &Arc<Inode>, flags: OpenFlags) -> Result<Arc<dyn FileOperations>> {
    match find(inode.kind, inode.special) {
        Ok(driver) => driver.open(inode.special, inode, flags),
        Err(_) if inode.kind == FileKind::BlockDevice => crate::disk::open_device(inode.special, flags),
        Err(error) => Err(error),
    }
}

/// Calls `each` with kind, first device and name of every registration, in the order of registration.
pub fn for_each(mut each: impl FnMut(FileKind, DeviceNumber, &'static str)) {
    let mut index = 0;
    loop {
        let registration = REGISTRATIONS.lock().get(index).cloned();
        let Some(registration) = registration else { return };
        let first = DeviceNumber::new(registration.major, *registration.minors.start());
        each(registration.kind, first, registration.driver.name());
        index += 1;
    }
}
