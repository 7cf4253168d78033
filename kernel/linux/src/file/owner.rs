//! The owner of a file: who is sent a signal when something happens to it (`F_SETOWN`, `F_SETSIG`).
//!
//! Who made somebody the owner is remembered with it: the signal is sent in his name, to none whom he may not send it himself.

use alloc::sync::Arc;

use vfs::{FileOwner, OpenFile};

use crate::credentials::identity::Credentials;
use crate::errno::{Errno, SysResult};
use crate::process::process::Process;
use crate::process::table;
use crate::signal::information::SignalInformation;
use crate::signal::send;
use crate::signal::set::Signal;
use crate::task::Task;
use crate::user_pointer::UserPointer;

pub(super) const F_SETOWN: u32 = 8;
pub(super) const F_GETOWN: u32 = 9;
pub(super) const F_SETSIG: u32 = 10;
pub(super) const F_GETSIG: u32 = 11;
pub(super) const F_SETOWN_EX: u32 = 15;
pub(super) const F_GETOWN_EX: u32 = 16;

/// `POLL_MSG`: something to be looked at, and its events as `poll` has them (`POLLIN`, `POLLRDNORM`, `POLLMSG`).
const HAPPENED: i32 = 3;
const HAPPENED_BAND: u64 = 0x1 | 0x40 | 0x400;

/// The caller as an owner.
pub(super) fn calling(task: &Task) -> FileOwner {
    let ids = task.credentials.user;
    let pid = task.process().pid() as i32;
    FileOwner { owner: pid, signal: 0, user: ids.real, effective_user: ids.effective }
}

/// Who is called so by the caller, as the owner; the signal stays.
fn named(task: &Task, before: FileOwner, owner: i32) -> Result<FileOwner, Errno> {
    Ok(FileOwner { owner: named_owner(task, owner)?, signal: before.signal, ..calling(task) })
}

/// Sends the signal that a file's owner wants: `SIGIO`, or another one, which says the descriptor.
pub(crate) fn tell(owner: &FileOwner, descriptor: i32) {
    for_each(owner, |process| tell_one(owner, process, descriptor));
}

/// Sends a file's owner `SIGURG`: a byte out of band has come.
pub(crate) fn tell_urgent(owner: &FileOwner) {
    for_each(owner, |process| {
        let _ = send::to_process(process, SignalInformation::from_kernel(Signal::SIGURG));
    });
}

/// The processes that the owner is, but for those that who made it the owner may not send signals.
fn for_each(owner: &FileOwner, mut visit: impl FnMut(&Arc<Process>)) {
    let may = |target: &Credentials| {
        let ids = [target.user.real, target.user.saved];
        owner.effective_user == 0 || ids.contains(&owner.effective_user) || ids.contains(&owner.user)
    };
    let mut visit_allowed = |process: &Arc<Process>| {
        if process.look_at_credentials(may) {
            visit(process);
        }
    };
    let number = owner.owner.unsigned_abs();
    if owner.owner > 0 {
        if let Some(process) = table::process_of(number) {
            visit_allowed(&process);
        }
    } else if let Some(group) = table::group(number) {
        group.for_each(visit_allowed);
    }
}

fn tell_one(owner: &FileOwner, process: &Arc<Process>, descriptor: i32) {
    if let Some(signal) = Signal::new(owner.signal.into()) {
        let fields = [HAPPENED_BAND, descriptor as u32 as u64, 0, 0];
        let information = SignalInformation { signal, code: HAPPENED, error: 0, fields };
        // Who has as many as he may have is told without the facts.
        if send::from_queue(process, information).is_ok() {
            return;
        }
    }
    let _ = send::to_process(process, SignalInformation::from_kernel(Signal::SIGIO));
}

/// What the caller calls who is an owner of a file: a process, or a group as a negative number.
fn seen_owner(task: &Task, owner: i32) -> i32 {
    task.seen_number(owner.unsigned_abs()) as i32 * owner.signum()
}

/// Who is called so by the caller.
fn named_owner(task: &Task, owner: i32) -> Result<i32, Errno> {
    let number = task.kernel_number(owner.unsigned_abs()).filter(|_| owner != 0);
    match owner {
        0 => Ok(0),
        _ => number.map(|number| number as i32 * owner.signum()).ok_or(Errno::ESRCH),
    }
}

/// The calls of fcntl(2) that are about owners.
pub(super) fn change(task: &Task, file: &OpenFile, command: u32, argument: u64) -> SysResult {
    const F_OWNER_PID: i32 = 1;
    const F_OWNER_PGRP: i32 = 2;
    const SIGNALS: u64 = 64;
    let mut owner = file.owner();
    match command {
        F_GETOWN => return Ok(seen_owner(task, owner.owner) as isize as usize),
        F_GETSIG => return Ok(owner.signal as usize),
        F_SETOWN => owner = named(task, owner, argument as i32)?,
        F_SETSIG if argument > SIGNALS => return Err(Errno::EINVAL),
        F_SETSIG => owner.signal = argument as u32,
        F_SETOWN_EX => {
            let pair = UserPointer::<[i32; 2]>::new(argument).read()?;
            let wanted = match pair[0] {
                F_OWNER_PGRP => pair[1].wrapping_neg(),
                0 | F_OWNER_PID => pair[1],
                _ => return Err(Errno::EINVAL),
            };
            owner = named(task, owner, wanted)?;
        }
        _ => {
            owner.owner = seen_owner(task, owner.owner);
            let pair =
                if owner.owner < 0 { [F_OWNER_PGRP, -owner.owner] } else { [F_OWNER_PID, owner.owner] };
            UserPointer::<[i32; 2]>::new(argument).write(&pair)?;
            return Ok(0);
        }
    }
    file.set_owner(owner);
    Ok(0)
}
