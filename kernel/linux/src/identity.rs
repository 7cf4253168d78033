//! Who am I: process, thread, group and session numbers, names of the system, load and memory.

use alloc::sync::Arc;

use vfs::Capabilities;

use crate::abi::{SystemInformation, UnameNames};
use crate::errno::{Errno, SysResult};
use crate::exec::persona::Persona;
use crate::name_space::{First, NAME_BYTES, Shifted, SystemNames};
use crate::process::group::{MOVES, ProcessGroup, Session};
use crate::process::process::Process;
use crate::process::table::{self, Pid};
use crate::task::Task;
use crate::user_pointer::{UserPointer, read_bytes};

/// Kernel release that programs see; they derive from it which calls they may expect.
pub const RELEASE: &str = "6.1.0-starling";
/// The same as a Linux 2.6 of so many more versions, for programs that can't count beyond.
const OLD_RELEASE: &str = "2.6.61-starling";

/// Process number.
pub fn getpid(task: &mut Task) -> SysResult {
    Ok(task.seen_number(task.process().pid()) as usize)
}

/// Thread number.
pub fn gettid(task: &mut Task) -> SysResult {
    Ok(task.seen_number(task.thread.tid()) as usize)
}

/// Parent's number.
pub fn getppid(task: &mut Task) -> SysResult {
    Ok(task.seen_number(task.process().parent_pid()) as usize)
}

/// Process group number.
pub fn getpgrp(task: &mut Task) -> SysResult {
    Ok(task.seen_number(task.process().group_id()) as usize)
}

fn target(task: &Task, pid: i32) -> Result<Arc<Process>, Errno> {
    if pid == 0 {
        return Ok(task.process().clone());
    }
    u32::try_from(pid).ok().and_then(|pid| task.find_process_of(pid)).ok_or(Errno::ESRCH)
}

/// As [`target`], for a look that does not sleep; no reference is taken.
fn look_at_target<R>(task: &Task, pid: i32, look: impl FnOnce(&Process) -> R) -> Result<R, Errno> {
    if pid == 0 {
        return Ok(look(task.process()));
    }
    let pid = u32::try_from(pid).ok().and_then(|pid| task.kernel_number(pid));
    pid.and_then(|pid| table::look_at_process_of(pid, look)).ok_or(Errno::ESRCH)
}

/// Process group number of a process.
pub fn getpgid(task: &mut Task, pid: i32) -> SysResult {
    Ok(task.seen_number(look_at_target(task, pid, Process::group_id)?) as usize)
}

/// Session number of a process.
pub fn getsid(task: &mut Task, pid: i32) -> SysResult {
    Ok(task.seen_number(look_at_target(task, pid, Process::session_id)?) as usize)
}

/// Makes the caller the leader of a new session.
pub fn setsid(task: &mut Task) -> SysResult {
    let process = task.process().clone();
    let pid = process.pid();
    let _moves = MOVES.lock();
    let old = process.group();
    if old.id() == pid || existing_group(pid).is_some() {
        return Err(Errno::EPERM);
    }
    let group = ProcessGroup::new(pid, Session::new(pid)?)?;
    group.add(&process, || true)?;
    group.take_from(&old, &process);
    Ok(task.seen_number(pid) as usize)
}

/// Moves a process into a group of its session.
#[inline(never)]
pub fn setpgid(task: &mut Task, pid: i32, group: i32) -> SysResult {
    // No group given: the process's number.
    if group < 0 || (group == 0 && pid < 0) {
        return Err(Errno::EINVAL);
    }
    let me = task.process();
    let process = target(task, pid)?;
    // The process may be about to make the same call, or to leave the session.
    let _moves = MOVES.lock();
    let is_me = Arc::ptr_eq(&process, me);
    if !is_me {
        let is_child = process.parent().is_some_and(|parent| Arc::ptr_eq(&parent, me));
        if !is_child {
            return Err(Errno::ESRCH);
        }
        if process.session_id() != me.session_id() {
            return Err(Errno::EPERM);
        }
        if process.did_exec.load(core::sync::atomic::Ordering::Relaxed) {
            return Err(Errno::EACCES);
        }
    }
    let old = process.group();
    if old.session().id() == process.pid() {
        return Err(Errno::EPERM);
    }
    let wanted = match group {
        0 => process.pid(),
        _ => task.kernel_number(group as u32).ok_or(Errno::EPERM)?,
    };
    if wanted == old.id() {
        return Ok(0);
    }
    let new = match existing_group(wanted) {
        Some(existing) if existing.session().id() == old.session().id() => existing,
        Some(_) => return Err(Errno::EPERM),
        None if wanted == process.pid() => ProcessGroup::new(wanted, old.session().clone())?,
        None => return Err(Errno::EPERM),
    };
    if !new.add(&process, || true)? {
        // Its last member has been waited for since.
        return Err(Errno::EPERM);
    }
    new.take_from(&old, &process);
    Ok(0)
}

/// The group with this number, if it has members.
fn existing_group(id: Pid) -> Option<Arc<ProcessGroup>> {
    table::group(id).filter(|group| !group.is_dissolved())
}

/// The `version` line of uname.
pub fn version() -> &'static str {
    concat!("#1 SMP PREEMPT Starling ", env!("CARGO_PKG_VERSION"))
}

fn padded(text: &str) -> [u8; 65] {
    let mut bytes = [0; 65];
    let length = text.len().min(NAME_BYTES);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    bytes
}

/// Names of the system.
#[inline(never)]
pub fn uname(task: &mut Task, names: u64) -> SysResult {
    let seen = task.system_names();
    let persona = task.thread.persona();
    let is_old = persona.contains(Persona::OLD_RELEASE);
    let written = UnameNames {
        system: padded("Linux"),
        node: padded(&seen.node()),
        release: padded(if is_old { OLD_RELEASE } else { RELEASE }),
        version: padded(version()),
        machine: padded(if persona.is_32_bit() { "i686" } else { "x86_64" }),
        domain: padded(&seen.domain()),
    };
    UserPointer::<UnameNames>::new(names).write(&written)?;
    Ok(0)
}

fn read_name(task: &Task, name: u64, length: i32) -> Result<([u8; NAME_BYTES], usize), Errno> {
    task.credentials.require_in(task.system_names().owner(), Capabilities::SYS_ADMIN)?;
    if !(0..=NAME_BYTES as i32).contains(&length) {
        return Err(Errno::EINVAL);
    }
    let (mut bytes, length) = ([0; NAME_BYTES], length as usize);
    read_bytes(name, &mut bytes[..length])?;
    Ok((bytes, length))
}

/// Gives the machine the name that it is told at its start; what does not fit is cut off.
pub fn set_host_name(name: &[u8]) {
    SystemNames::first().set_node(name);
}

/// Sets the system's name.
pub fn sethostname(task: &mut Task, name: u64, length: i32) -> SysResult {
    let (name, length) = read_name(task, name, length)?;
    task.system_names().set_node(&name[..length]);
    Ok(0)
}

/// Sets the NIS domain name.
pub fn setdomainname(task: &mut Task, name: u64, length: i32) -> SysResult {
    let (name, length) = read_name(task, name, length)?;
    task.system_names().set_domain(&name[..length]);
    Ok(0)
}

/// Bits behind the point of sysinfo's load averages.
const SYSINFO_LOAD_SHIFT: u32 = 16;

/// Uptime, load and memory.
#[inline(never)]
pub fn sysinfo(task: &mut Task, out: u64) -> SysResult {
    let memory = crate::memory::totals();
    let up_ns = machine::time::now_ns().wrapping_add_signed(task.clock_offset_ns(Shifted::BootTime));
    let information = SystemInformation {
        uptime: (up_ns / crate::abi::NANOSECONDS) as i64,
        loads: sched::statistics::load_averages()
            .map(|load| load << (SYSINFO_LOAD_SHIFT - sched::statistics::LOAD_SHIFT)),
        total_ram: memory.total_bytes,
        free_ram: memory.free_bytes,
        shared_ram: memory.shared_bytes,
        processes: table::thread_count().min(u16::MAX.into()) as u16,
        memory_unit: 1,
        ..Default::default()
    };
    UserPointer::<SystemInformation>::new(out).write(&information)?;
    Ok(0)
}

/// Fills a buffer with random bytes.
pub fn getrandom(_task: &mut Task, buffer: u64, length: usize, flags: u32) -> SysResult {
    const NONBLOCK: u32 = 1;
    const RANDOM: u32 = 2;
    const INSECURE: u32 = 4;
    if flags & !(NONBLOCK | RANDOM | INSECURE) != 0 || flags & (RANDOM | INSECURE) == RANDOM | INSECURE {
        return Err(Errno::EINVAL);
    }
    let length = length.min(i32::MAX as usize & !0xfff);
    let mut chunk = [0; 256];
    let mut done = 0;
    while done < length {
        let part = (length - done).min(chunk.len());
        crate::random::fill(&mut chunk[..part]);
        if let Err(errno) = crate::user_pointer::write_bytes(buffer.wrapping_add(done as u64), &chunk[..part])
        {
            return if done > 0 { Ok(done) } else { Err(errno) };
        }
        done += part;
        if done < length && crate::signal::deliver::attention_wanted() {
            break;
        }
    }
    Ok(done)
}

/// CPU and node the caller runs on.
pub fn getcpu(_task: &mut Task, cpu: u64, node: u64) -> SysResult {
    let number = machine::cpu::current().index() as u32;
    UserPointer::<u32>::new(cpu).write_if_given(&number)?;
    UserPointer::<u32>::new(node).write_if_given(&0)?;
    Ok(0)
}
