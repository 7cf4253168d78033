//! `locks`, and the lines of `fdinfo` that are about them.

use core::fmt::Write;

use vfs::OpenFile;
use vfs::Result;
use vfs::lock::{self, FileLocks, LockDescription, LockKind, LockSort};
use vfs::text::Text;

use crate::process::pid_space;
use crate::terminal::calling_thread;

const LAST_BYTE: u64 = i64::MAX as u64;

/// All locks whose holders the reader can see.
pub(super) fn all(out: &mut Text) -> Result<()> {
    let mut number = 0;
    lock::for_each_file(|locks| {
        locks.for_each(|lock| {
            if !lock.is_wanted {
                number += 1;
            }
            if let Some(pid) = seen(lock.pid) {
                let waits = if lock.is_wanted { " ->" } else { "" };
                let _ = write!(out, "{number}:{waits} ");
                write_lock(locks, &lock, pid, out);
            }
        });
    });
    Ok(())
}

/// The locks of an open file, and those of a process with this descriptor table at it.
pub(super) fn of_file(file: &OpenFile, table: u64, out: &mut Text) {
    let Some(locks) = file.inode().existing_locks() else { return };
    let mut number = 0;
    locks.for_each(|lock| {
        let holder = if lock.sort == LockSort::Process { table } else { file.id() };
        if !lock.is_wanted
            && lock.holder == holder
            && let Some(pid) = seen(lock.pid)
        {
            number += 1;
            let _ = write!(out, "lock:\t{number}: ");
            write_lock(locks, &lock, pid, out);
        }
    });
}

/// What the reader calls a process; -1 stays, and nothing for whom he does not see.
fn seen(pid: i32) -> Option<i32> {
    let reader = calling_thread();
    let number = match (u32::try_from(pid), &reader) {
        (Ok(pid), Some(reader)) => pid_space::seen(reader.process().space(), pid) as i32,
        _ => pid,
    };
    (number != 0).then_some(number)
}

fn write_lock(locks: &FileLocks, lock: &LockDescription, pid: i32, out: &mut Text) {
    let sort = match lock.sort {
        LockSort::Process => "POSIX  ADVISORY ",
        LockSort::OpenFile => "OFDLCK ADVISORY ",
        LockSort::Whole => "FLOCK  ADVISORY ",
        LockSort::Lease(true) => "LEASE  BREAKING ",
        LockSort::Lease(false) => "LEASE  ACTIVE   ",
    };
    let kind = match lock.kind {
        Some(LockKind::Read) => "READ",
        Some(LockKind::Write) => "WRITE",
        None => "UNLCK",
    };
    let (device, inode) = locks.file();
    let (major, minor, start) = (device.major, device.minor, lock.start);
    let _ = write!(out, "{sort} {kind} {pid} {major:02x}:{minor:02x}:{inode} {start} ");
    let _ = match lock.end {
        LAST_BYTE.. => out.write_str("EOF\n"),
        end => writeln!(out, "{end}"),
    };
}
