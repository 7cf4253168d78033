//! The end of the machine, asked for by a program: `reboot(2)`.
//!
//! What it means that the machine ends knows the kernel binary, which [`init::EndOfCommand`] connects with the host.
//! Nothing is written back before: that is the caller's affair, as the manual says (and there is nothing to write it to yet).
//! The caller does not come back; other processes run on until the host has ended the machine.

use core::sync::atomic::{AtomicU32, Ordering};

use vfs::{Capabilities, UserSpace};

use crate::errno::{Errno, SysResult};
use crate::process::init::{self, MachineEnd};
use crate::process::pid_space::PidSpace;
use crate::signal::set::Signal;
use crate::task::Task;
use crate::user_pointer::read_string;

/// `LINUX_REBOOT_MAGIC1`
const MAGIC: u32 = 0xfee1_dead;
/// `LINUX_REBOOT_MAGIC2` and its later companions.
const MAGICS: [u32; 4] = [672_274_793, 85_072_278, 369_367_448, 537_993_216];

/// `LINUX_REBOOT_CMD_RESTART`
const RESTART: u32 = 0x0123_4567;
/// `LINUX_REBOOT_CMD_HALT`
const HALT: u32 = 0xcdef_0123;
/// `LINUX_REBOOT_CMD_CAD_ON`
const CAD_ON: u32 = 0x89ab_cdef;
/// `LINUX_REBOOT_CMD_CAD_OFF`
const CAD_OFF: u32 = 0;
/// `LINUX_REBOOT_CMD_POWER_OFF`
const POWER_OFF: u32 = 0x4321_fedc;
/// `LINUX_REBOOT_CMD_RESTART2`
const RESTART2: u32 = 0xa1b2_c3d4;

/// More of the text of `RESTART2` is not looked at.
const TEXT_BYTES: usize = 256;

/// Whether Ctrl-Alt-Del restarts the machine at once. Only kept: there is no keyboard.
static CTRL_ALT_DEL: AtomicU32 = AtomicU32::new(1);

/// Restarts, halts or turns off the machine, or says what Ctrl-Alt-Del does.
#[inline(never)]
pub fn reboot(task: &mut Task, magic: u32, magic2: u32, command: u32, text: u64) -> SysResult {
    let space = task.process().space();
    let owner = space.as_ref().map_or(UserSpace::FIRST, |space| space.owner());
    task.credentials.require_in(owner, Capabilities::SYS_BOOT)?;
    if magic != MAGIC || !MAGICS.contains(&magic2) {
        return Err(Errno::EINVAL);
    }
    if let Some(space) = space {
        return end_space(space, command);
    }
    match command {
        RESTART => init::end_machine(MachineEnd::Restart),
        RESTART2 => {
            check_text(text)?;
            init::end_machine(MachineEnd::Restart)
        }
        HALT => init::end_machine(MachineEnd::Halt),
        POWER_OFF => init::end_machine(MachineEnd::PowerOff),
        CAD_ON => set_ctrl_alt_del(1),
        CAD_OFF => set_ctrl_alt_del(0),
        // Among them what needs a kernel that can hibernate or execute another one.
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// For the processes of a name space the machine ends with their init, whose parent sees from the signal how it was to end.
fn end_space(space: &PidSpace, command: u32) -> SysResult {
    let signal = match command {
        RESTART | RESTART2 => Signal::SIGHUP,
        HALT | POWER_OFF => Signal::SIGINT,
        _ => return Err(Errno::EINVAL),
    };
    if let Some(init) = space.init() {
        init.begin_exit(signal.number().into());
    }
    Ok(0)
}

/// The text is for a firmware that knows what to do with it. It must be readable, and may be longer than the buffer.
fn check_text(text: u64) -> Result<(), Errno> {
    match read_string(text, &mut [0; TEXT_BYTES]) {
        Ok(_) | Err(Errno::ENAMETOOLONG) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// What `/proc/sys/kernel/ctrl-alt-del` shows.
pub(crate) fn ctrl_alt_del() -> u32 {
    // Relaxed: a word of its own.
    CTRL_ALT_DEL.load(Ordering::Relaxed)
}

pub(crate) fn set_ctrl_alt_del(value: u32) {
    CTRL_ALT_DEL.store(value, Ordering::Relaxed);
}
