//! prctl and arch_prctl.

mod memory_map;
mod speculation;

use core::sync::atomic::Ordering;

use machine::address::USER_END;
use sched::current;
use vfs::Capabilities;

use crate::credentials::capabilities;
use crate::errno::{Errno, SysResult};
use crate::signal::set::Signal;
use crate::task::Task;
use crate::user_pointer::{UserPointer, write_bytes};

const SET_PDEATHSIG: u32 = 1;
const GET_PDEATHSIG: u32 = 2;
const GET_DUMPABLE: u32 = 3;
const SET_DUMPABLE: u32 = 4;
const GET_KEEPCAPS: u32 = 7;
const SET_KEEPCAPS: u32 = 8;
const SET_NAME: u32 = 15;
const GET_NAME: u32 = 16;
const GET_SECCOMP: u32 = 21;
const SET_SECCOMP: u32 = 22;
const CAPBSET_READ: u32 = 23;
const CAPBSET_DROP: u32 = 24;
const GET_TSC: u32 = 25;
const SET_TSC: u32 = 26;
const GET_SECUREBITS: u32 = 27;
const SET_SECUREBITS: u32 = 28;
const SET_TIMERSLACK: u32 = 29;
const GET_TIMERSLACK: u32 = 30;
const MCE_KILL_GET: u32 = 34;
const SET_MM: u32 = 35;
const SET_CHILD_SUBREAPER: u32 = 36;
const GET_CHILD_SUBREAPER: u32 = 37;
const SET_NO_NEW_PRIVS: u32 = 38;
const GET_NO_NEW_PRIVS: u32 = 39;
const GET_TID_ADDRESS: u32 = 40;
const SET_THP_DISABLE: u32 = 41;
const GET_THP_DISABLE: u32 = 42;
const CAP_AMBIENT: u32 = 47;
const GET_SPECULATION_CTRL: u32 = 52;
const SET_SPECULATION_CTRL: u32 = 53;
const SET_IO_FLUSHER: u32 = 57;
const GET_IO_FLUSHER: u32 = 58;
const SET_VMA: u32 = 0x5356_4d41;
const SET_PTRACER: u32 = 0x5961_6d61;
/// What becomes of a process whose memory fails: the system decides.
const MCE_KILL_DEFAULT: usize = 2;
/// Programs may read the time-stamp counter.
const TSC_ENABLED: u32 = 1;
pub(crate) const DEFAULT_SLACK_NS: u64 = 50_000;

/// Operations on the calling thread and process.
#[inline(never)]
pub fn prctl(task: &mut Task, option: u32, second: u64, third: u64, fourth: u64, fifth: u64) -> SysResult {
    let process = task.process().clone();
    let rest_is_zero = third == 0 && fourth == 0 && fifth == 0;
    match option {
        SET_PDEATHSIG => {
            if second > Signal::COUNT as u64 {
                return Err(Errno::EINVAL);
            }
            process.kinship.lock().death_signal = second as u8;
            Ok(0)
        }
        GET_PDEATHSIG => {
            let signal = u32::from(process.kinship.lock().death_signal);
            UserPointer::<u32>::new(second).write(&signal).map(|()| 0)
        }
        GET_DUMPABLE => Ok(process.is_dumpable.load(Ordering::Relaxed).into()),
        SET_DUMPABLE if second <= 1 => {
            process.is_dumpable.store(second as u8, Ordering::Relaxed);
            Ok(0)
        }
        SET_NAME => set_name(task, second),
        GET_NAME => write_bytes(second, &task.thread.name()).map(|()| 0),
        SET_TIMERSLACK => {
            task.thread.set_timer_slack_ns(if second == 0 { DEFAULT_SLACK_NS } else { second });
            Ok(0)
        }
        GET_TIMERSLACK => Ok(task.thread.timer_slack_ns() as usize),
        SET_CHILD_SUBREAPER => {
            process.is_subreaper.store(second != 0, Ordering::Relaxed);
            Ok(0)
        }
        GET_CHILD_SUBREAPER => {
            let on = u32::from(process.is_subreaper.load(Ordering::Relaxed));
            UserPointer::<u32>::new(second).write(&on).map(|()| 0)
        }
        SET_NO_NEW_PRIVS if second == 1 && rest_is_zero => {
            task.thread.gain_no_privileges();
            Ok(0)
        }
        GET_NO_NEW_PRIVS if second == 0 && rest_is_zero => Ok(task.thread.has_no_new_privileges().into()),
        GET_TID_ADDRESS => UserPointer::<u64>::new(second).write(&task.clear_tid).map(|()| 0),
        GET_TSC => UserPointer::<u32>::new(second).write(&TSC_ENABLED).map(|()| 0),
        SET_TSC if second == TSC_ENABLED.into() => Ok(0),
        GET_SPECULATION_CTRL if rest_is_zero => speculation::get(second),
        SET_SPECULATION_CTRL if fourth == 0 && fifth == 0 => speculation::set(second, third),
        SET_IO_FLUSHER | GET_IO_FLUSHER => io_flusher(task, option, second, rest_is_zero),
        GET_SECCOMP => Ok(task.thread.restriction().mode() as usize),
        SET_SECCOMP => crate::seccomp::prctl_set(task, second, third),
        GET_THP_DISABLE if second == 0 && rest_is_zero => Ok(task.address_space.forbids_huge_pages().into()),
        MCE_KILL_GET if second == 0 && rest_is_zero => Ok(MCE_KILL_DEFAULT),
        SET_THP_DISABLE if rest_is_zero => {
            task.address_space.forbid_huge_pages(second != 0);
            Ok(0)
        }
        SET_MM => memory_map::set(task, second, third, fourth, fifth),
        SET_PTRACER => crate::ptrace::scope::name_tracer(task, second),
        // Names of anonymous mappings are a courtesy; without it Linux answers so too.
        SET_VMA => Err(Errno::EINVAL),
        _ => capability_option(task, option, second, third),
    }
}

fn capability_option(task: &mut Task, option: u32, second: u64, third: u64) -> SysResult {
    match option {
        GET_KEEPCAPS => {
            let keep = crate::credentials::identity::SecureBits::KEEP_CAPS;
            Ok(task.credentials.secure_bits.contains(keep).into())
        }
        SET_KEEPCAPS => capabilities::set_keep(task, second),
        CAPBSET_READ => capabilities::bounding_read(task, second),
        CAPBSET_DROP => capabilities::bounding_drop(task, second),
        GET_SECUREBITS => Ok(task.credentials.secure_bits.bits() as usize),
        SET_SECUREBITS => capabilities::set_secure_bits(task, second),
        CAP_AMBIENT => capabilities::ambient(task, second, third),
        _ => Err(Errno::EINVAL),
    }
}

/// Whether the thread takes part in input and output, so that its own memory may not wait for them: remembered. Who allocates starts no transfer
/// here, so that all threads are as this one wants to be.
fn io_flusher(task: &mut Task, option: u32, second: u64, rest_is_zero: bool) -> SysResult {
    if !task.credentials.has(Capabilities::SYS_RESOURCE) {
        return Err(Errno::EPERM);
    }
    match (option, second) {
        _ if !rest_is_zero => Err(Errno::EINVAL),
        (GET_IO_FLUSHER, 0) => Ok(task.is_io_flusher.into()),
        (SET_IO_FLUSHER, 0 | 1) => {
            task.is_io_flusher = second != 0;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

fn set_name(task: &Task, address: u64) -> SysResult {
    let mut name = [0; crate::process::thread::NAME_BYTES];
    let length = match crate::user_pointer::read_string(address, &mut name) {
        Ok(length) => length,
        Err(Errno::ENAMETOOLONG) => name.len() - 1,
        Err(errno) => return Err(errno),
    };
    task.thread.set_name(&name[..length]);
    current().set_name(&name[..length]);
    Ok(0)
}

/// FS and GS base.
pub fn arch_prctl(_task: &mut Task, code: u32, address: u64) -> SysResult {
    const SET_GS: u32 = 0x1001;
    const SET_FS: u32 = 0x1002;
    const GET_FS: u32 = 0x1003;
    const GET_GS: u32 = 0x1004;
    match code {
        SET_FS | SET_GS => {
            if address >= USER_END as u64 {
                return Err(Errno::EPERM);
            }
            current().with_user_state(|state| match code {
                SET_FS => state.set_fs_base(address),
                _ => state.set_gs_base(address),
            });
            Ok(0)
        }
        GET_FS | GET_GS => {
            let base = current()
                .with_user_state(|state| if code == GET_FS { state.fs_base() } else { state.gs_base() });
            UserPointer::<u64>::new(address).write(&base.unwrap_or(0)).map(|()| 0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Where the kernel clears a word and wakes a futex when the thread ends.
pub fn set_tid_address(task: &mut Task, address: u64) -> SysResult {
    task.clear_tid = address;
    Ok(task.seen_number(task.thread.tid()) as usize)
}
