//! `/dev/kstack_test`: deep recursion in the kernel on request, the functionality test of demand-paged kernel stacks.
//!
//! Each request's argument is the number of bytes of the caller's kernel stack that shall be in use at the deepest point:
//! [`RECURSE`] does nothing there, [`RECURSE_ATOMIC`] goes down with a spin lock held and interrupts off, [`RECURSE_AND_SLEEP`]
//! sleeps there, so that other threads run in between. What was written on the way down is checked on the way up: EIO
//! when it changed. A depth beyond the stack ends the calling process; so only root may open the device. With
//! [`EXPECT_OVERFLOW`] 1 the report of that goes to `/proc/kstack_overflow` only, not to the console.
//!
//! [`FORGET_DEPTH`] makes the caller's kernel stack look unused; [`DEPTH`] returns how many bytes deep it was since: the
//! way to find out what a system call needs. [`NUMBER`] returns the number of the caller in `/proc/kstack`. `/proc/kstack_trace` shows the page-table trace of the reader's stack.

use alloc::sync::Arc;

use machine::address::UserAddr;
use memory::kstack::{self, Exercise, exercise};
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::device::DeviceDriver;
use vfs::{Error, FileFeatures, FileOperations, Inode, OpenFile, OpenFlags, Result};

/// Its name below /dev.
const NAME: &str = "kstack_test";
/// Its minor number: the first of those for dynamic use.
const MINOR: u32 = 127;
const MAJOR: u32 = 10;

const RECURSE: u32 = 0x4b01;
const RECURSE_ATOMIC: u32 = 0x4b02;
const RECURSE_AND_SLEEP: u32 = 0x4b03;
const EXPECT_OVERFLOW: u32 = 0x4b04;
const FORGET_DEPTH: u32 = 0x4b05;
const DEPTH: u32 = 0x4b06;
const NUMBER: u32 = 0x4b07;
/// How long the third request sleeps.
const SLEEP_NS: u64 = 1_000_000;

struct Driver;
struct Device;

/// Makes the device. Once, at start-up, before /dev is first mounted.
pub(super) fn register() {
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
        let device: Arc<dyn FileOperations> = vfs::allocation::arc(Device)?;
        Ok(device)
    }
}

impl FileOperations for Device {
    fn features(&self) -> FileFeatures {
        FileFeatures::empty()
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        let bytes = argument.as_u64() as usize;
        let whole = match command {
            RECURSE => exercise(bytes, Exercise::Recurse, &mut || ()),
            RECURSE_ATOMIC => exercise(bytes, Exercise::Atomic, &mut || ()),
            RECURSE_AND_SLEEP => exercise(bytes, Exercise::Recurse, &mut || {
                sched::timer::sleep_until_uninterruptible(machine::time::now_ns() + SLEEP_NS);
            }),
            EXPECT_OVERFLOW => {
                kstack::expect_overflow(bytes != 0);
                true
            }
            FORGET_DEPTH => {
                kstack::forget_own_depth();
                true
            }
            DEPTH => return kstack::own_depth().map(|bytes| bytes as usize).ok_or(Error::NotSupported),
            NUMBER => return Ok(sched::current().id() as usize),
            _ => return Err(Error::NotTerminal),
        };
        if whole { Ok(0) } else { Err(Error::Io) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_requests_are_refused() {
        let device: Arc<dyn FileOperations> = Arc::new(Device);
        let inode = vfs::anonymous::shared_inode().expect("memory");
        let file = OpenFile::anonymous(inode, device, OpenFlags::READ_WRITE).expect("memory");
        let request = |command| file.operations().ioctl(&file, command, UserAddr::new(3000));
        assert_eq!(request(0x4b0f), Err(Error::NotTerminal));
        assert_eq!(request(RECURSE), Ok(0));
        assert_eq!(request(RECURSE_ATOMIC), Ok(0));
    }
}
