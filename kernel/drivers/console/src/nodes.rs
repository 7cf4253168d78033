//! The device numbers of terminals: `/dev/tty` (5:0), `/dev/console` (5:1), `/dev/ptmx` (5:2), `/dev/ttyS0`
//! (4:64) and the slaves of pseudo-terminals (136:N).

use alloc::sync::Arc;

use machine::set_once::SetOnce;
use tty::pseudo::{Pair, SLAVE_MAJOR};
use tty::{MasterFile, TerminalFile};
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::device::DeviceDriver;
use vfs::file::FileOperations;
use vfs::flags::OpenFlags;
use vfs::inode::Inode;
use vfs::{Error, Result};

use crate::terminal;

/// Major number of `/dev/tty`, `/dev/console` and `/dev/ptmx`.
pub const TTY_MAJOR: u32 = 5;
/// Minor number of `/dev/tty`.
pub const CURRENT_MINOR: u32 = 0;
/// Minor number of `/dev/console`.
pub const CONSOLE_MINOR: u32 = 1;
/// Minor number of `/dev/ptmx`.
pub const MULTIPLEXER_MINOR: u32 = 2;
/// Major and minor number of `/dev/ttyS0`, the console under the name that programs for serial lines expect.
pub const SERIAL: (u32, u32) = (4, 64);

/// Finds the pair of a slave's number; the devpts file system knows.
pub type FindPair = fn(u32) -> Option<Arc<Pair>>;

static FIND_PAIR: SetOnce<FindPair> = SetOnce::new();

struct TerminalDriver;
struct SlaveDriver;

/// Registers the drivers. Once, at start-up.
pub fn register(find_pair: FindPair) {
    static TERMINALS: TerminalDriver = TerminalDriver;
    static SLAVES: SlaveDriver = SlaveDriver;
    FIND_PAIR.set(find_pair);
    vfs::device::register(
        FileKind::CharacterDevice,
        TTY_MAJOR,
        CURRENT_MINOR..=MULTIPLEXER_MINOR,
        &TERMINALS,
    );
    vfs::device::register(FileKind::CharacterDevice, SERIAL.0, SERIAL.1..=SERIAL.1, &TERMINALS);
    vfs::device::register(FileKind::CharacterDevice, SLAVE_MAJOR, 0..=u32::MAX, &SLAVES);
    for (path, (major, minor), mode) in [
        ("tty", (TTY_MAJOR, CURRENT_MINOR), 0o666),
        ("console", (TTY_MAJOR, CONSOLE_MINOR), 0o600),
        ("ptmx", (TTY_MAJOR, MULTIPLEXER_MINOR), 0o666),
        ("ttyS0", SERIAL, 0o660),
    ] {
        let number = DeviceNumber::new(major, minor);
        devfs::nodes::add(devfs::nodes::Node { path, kind: FileKind::CharacterDevice, number, mode });
    }
}

impl DeviceDriver for TerminalDriver {
    fn name(&self) -> &'static str {
        "tty"
    }

    fn open(
        &self,
        number: DeviceNumber,
        inode: &Arc<Inode>,
        flags: OpenFlags,
    ) -> Result<Arc<dyn FileOperations>> {
        match (number.major, number.minor) {
            (TTY_MAJOR, MULTIPLEXER_MINOR) => {
                let master: Arc<dyn FileOperations> = MasterFile::open(inode.user(), inode.group())?;
                Ok(master)
            }
            (TTY_MAJOR, CURRENT_MINOR) => {
                let terminal = tty::job_control::controlling_terminal().ok_or(Error::NoDeviceAddress)?;
                Ok(TerminalFile::open(terminal, None, flags | OpenFlags::NO_CONTROLLING_TERMINAL)?)
            }
            _ => {
                let terminal = terminal::console().ok_or(Error::NoDeviceAddress)?.clone();
                Ok(TerminalFile::open(terminal, None, flags)?)
            }
        }
    }
}

impl DeviceDriver for SlaveDriver {
    fn name(&self) -> &'static str {
        "pts"
    }

    fn open(
        &self,
        number: DeviceNumber,
        _inode: &Arc<Inode>,
        flags: OpenFlags,
    ) -> Result<Arc<dyn FileOperations>> {
        let find = FIND_PAIR.get().ok_or(Error::NoDeviceAddress)?;
        let pair = find(number.minor).ok_or(Error::NoDeviceAddress)?;
        let slave = pair.slave().ok_or(Error::Io)?;
        Ok(TerminalFile::open(slave, Some(pair), flags)?)
    }
}
