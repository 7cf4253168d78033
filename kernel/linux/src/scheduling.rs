//! Priorities, policies and affinity (sched(7)).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use machine::cpu::{self, CpuId, CpuSet};
use sched::{Nice, Policy, Reservation};
use vfs::Capabilities;

use crate::abi::{SchedulingAttributes, Timespec};
use crate::errno::{Errno, SysResult};
use crate::process::limits::Resource;
use crate::process::process::Process;
use crate::process::table;
use crate::process::thread::Thread;
use crate::task::Task;
use crate::user_pointer::{UserPointer, read_bytes, write_bytes};

const RESET_ON_FORK: u32 = 0x4000_0000;
/// The same in `sched_attr`.
const FLAG_RESET_ON_FORK: u64 = 1;
const NORMAL: u32 = 0;
const FIFO: u32 = 1;
const RR: u32 = 2;
const BATCH: u32 = 3;
const IDLE: u32 = 5;
const DEADLINE: u32 = 6;
const PRIORITY_MAX: u32 = 99;
/// Time slice of SCHED_RR.
const RR_SLICE_NS: u64 = 100_000_000;

/// Whom a call is about. A process without a thread of its number (process 1, which is the kernel's own; a zombie; a leader
/// that ended first) is found, reads as an ordinary one, and changes have no effect on it.
enum Target {
    Threadless(Arc<Process>),
    Thread(Arc<Thread>),
}

impl Target {
    fn thread(&self) -> Option<&Arc<Thread>> {
        match self {
            Target::Threadless(_) => None,
            Target::Thread(thread) => Some(thread),
        }
    }

    fn kernel_thread(&self) -> Option<&sched::ThreadRef> {
        self.thread().and_then(|thread| thread.kernel_thread())
    }

    fn policy(&self) -> Policy {
        self.thread().map_or(Policy::Normal, |thread| policy_of(thread))
    }

    fn resets_on_fork(&self) -> bool {
        self.thread().is_some_and(|thread| thread.resets_on_fork.load(Ordering::Relaxed))
    }

    /// The policy's number with the flag, as programs see both.
    fn policy_word(&self) -> u32 {
        number_of(self.policy()) | if self.resets_on_fork() { RESET_ON_FORK } else { 0 }
    }
}

fn target(task: &Task, pid: i32) -> Result<Target, Errno> {
    match pid {
        0 => Ok(Target::Thread(task.thread.clone())),
        1.. => match task.find_thread(pid as u32) {
            Some(thread) => Ok(Target::Thread(thread)),
            None => task.find_process(pid as u32).map(Target::Threadless).ok_or(Errno::ESRCH),
        },
        _ => Err(Errno::EINVAL),
    }
}

fn may_change(task: &Task, target: &Target) -> Result<(), Errno> {
    let owner = match target {
        Target::Threadless(process) => process.credentials(),
        Target::Thread(thread) => thread.credentials(),
    };
    let me = task.credentials.user.effective;
    let is_mine = me == owner.user.effective || me == owner.user.real;
    if is_mine || task.credentials.has_in(owner.space(), Capabilities::SYS_NICE) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// Lets another thread run.
pub fn sched_yield(_task: &mut Task) -> SysResult {
    sched::yield_now();
    Ok(0)
}

/// Reads the policy.
pub fn sched_getscheduler(task: &mut Task, pid: i32) -> SysResult {
    Ok(target(task, pid)?.policy_word() as usize)
}

fn policy_of(thread: &Thread) -> Policy {
    thread.kernel_thread().map_or(Policy::Normal, |kernel| kernel.policy())
}

/// The policy's number as programs know it.
pub fn number_of(policy: Policy) -> u32 {
    match policy {
        Policy::Normal => NORMAL,
        Policy::Fifo(_) => FIFO,
        Policy::RoundRobin(_) => RR,
        Policy::Batch => BATCH,
        Policy::Idle => IDLE,
        Policy::Deadline => DEADLINE,
    }
}

fn policy(number: u32, priority: u32) -> Result<Policy, Errno> {
    let real_time = (1..=PRIORITY_MAX).contains(&priority);
    match number & !RESET_ON_FORK {
        FIFO if real_time => Ok(Policy::Fifo(priority as u8)),
        RR if real_time => Ok(Policy::RoundRobin(priority as u8)),
        NORMAL if priority == 0 => Ok(Policy::Normal),
        BATCH if priority == 0 => Ok(Policy::Batch),
        IDLE if priority == 0 => Ok(Policy::Idle),
        _ => Err(Errno::EINVAL),
    }
}

/// Sets policy and priority, and whether children start without them.
fn set_policy(task: &Task, target: &Target, wanted: Policy, reset_on_fork: bool) -> Result<(), Errno> {
    may_change(task, target)?;
    let Some(thread) = target.thread() else { return Ok(()) };
    let priority = u64::from(wanted.priority());
    let limit = thread.process().limit(Resource::RealTimePriority);
    let raises = wanted.is_realtime() && priority > u64::from(priority_of(policy_of(thread))).max(limit);
    let frees = target.resets_on_fork() && !reset_on_fork;
    if (raises || frees) && !task.credentials.has(Capabilities::SYS_NICE) {
        return Err(Errno::EPERM);
    }
    thread.resets_on_fork.store(reset_on_fork, Ordering::Relaxed);
    if let Some(kernel) = thread.kernel_thread() {
        kernel.set_policy(wanted);
        if wanted.is_realtime() {
            crate::timer::watch_limits(thread.process())?;
        }
        crate::futex::inheritance::urgency_changed(thread);
    }
    Ok(())
}

/// Gives a thread a reservation, whoever may do so.
#[inline(never)]
fn set_reservation(task: &Task, target: &Target, wanted: &SchedulingAttributes) -> Result<(), Errno> {
    let terms = Reservation::new(wanted.runtime, wanted.deadline, wanted.period).ok_or(Errno::EINVAL)?;
    if wanted.priority != 0 {
        return Err(Errno::EINVAL);
    }
    if !task.credentials.has(Capabilities::SYS_NICE) {
        return Err(Errno::EPERM);
    }
    may_change(task, target)?;
    let Some(thread) = target.thread() else { return Ok(()) };
    let Some(kernel) = thread.kernel_thread() else { return Ok(()) };
    // Who must stay on some processors can't be sure of the time of all.
    if !is_everywhere(kernel.affinity()) || kernel.is_bound_for_good() {
        return Err(Errno::EPERM);
    }
    kernel.reserve(terms).map_err(|_| Errno::EBUSY)?;
    thread.resets_on_fork.store(wanted.flags & FLAG_RESET_ON_FORK != 0, Ordering::Relaxed);
    crate::futex::inheritance::urgency_changed(thread);
    Ok(())
}

/// The calling thread ends: what it has reserved is others' from here on.
pub(crate) fn end_reservation() {
    let me = sched::current();
    if me.policy() == Policy::Deadline {
        me.set_policy(Policy::Normal);
    }
}

fn is_everywhere(affinity: CpuSet) -> bool {
    let online = cpu::online();
    affinity.intersection(online) == online
}

/// Policy and nice value of a child: with SCHED_RESET_ON_FORK it starts as an ordinary thread.
///
/// # Errors
/// EAGAIN for a thread with a reservation, which it can't share.
pub(crate) fn inherited(task: &Task, policy: Policy, nice: Nice) -> Result<(Policy, Nice), Errno> {
    if !task.thread.resets_on_fork.load(Ordering::Relaxed) {
        return if policy == Policy::Deadline { Err(Errno::EAGAIN) } else { Ok((policy, nice)) };
    }
    if policy.is_realtime() {
        Ok((Policy::Normal, Nice::clamped(0)))
    } else {
        Ok((policy, Nice::clamped(nice.value().max(0))))
    }
}

/// Sets policy and priority.
pub fn sched_setscheduler(task: &mut Task, pid: i32, number: u32, parameters: u64) -> SysResult {
    let priority = UserPointer::<u32>::new(parameters).given().ok_or(Errno::EINVAL)?.read()?;
    let thread = target(task, pid)?;
    set_policy(task, &thread, policy(number, priority)?, number & RESET_ON_FORK != 0).map(|()| 0)
}

/// Sets the priority.
pub fn sched_setparam(task: &mut Task, pid: i32, parameters: u64) -> SysResult {
    let priority = UserPointer::<u32>::new(parameters).given().ok_or(Errno::EINVAL)?.read()?;
    let thread = target(task, pid)?;
    let policy = policy(number_of(thread.policy()), priority)?;
    set_policy(task, &thread, policy, thread.resets_on_fork()).map(|()| 0)
}

/// Reads the priority.
pub fn sched_getparam(task: &mut Task, pid: i32, parameters: u64) -> SysResult {
    let parameters = UserPointer::<u32>::new(parameters).given().ok_or(Errno::EINVAL)?;
    let policy = target(task, pid)?.policy();
    parameters.write(&priority_of(policy))?;
    Ok(0)
}

pub(crate) fn priority_of(policy: Policy) -> u32 {
    match policy {
        Policy::Fifo(priority) | Policy::RoundRobin(priority) => priority.into(),
        _ => 0,
    }
}

/// Greatest priority of a policy.
pub fn sched_get_priority_max(_task: &mut Task, number: u32) -> SysResult {
    match number {
        FIFO | RR => Ok(PRIORITY_MAX as usize),
        NORMAL | BATCH | IDLE | DEADLINE => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// Least priority of a policy.
pub fn sched_get_priority_min(_task: &mut Task, number: u32) -> SysResult {
    match number {
        FIFO | RR => Ok(1),
        NORMAL | BATCH | IDLE | DEADLINE => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// Time slice of a thread.
pub fn sched_rr_get_interval(task: &mut Task, pid: i32, out: u64) -> SysResult {
    const FAIR_SLICE_NS: u64 = 4_000_000;
    let slice = match target(task, pid)?.policy() {
        Policy::RoundRobin(_) => RR_SLICE_NS,
        Policy::Fifo(_) | Policy::Deadline => 0,
        _ => FAIR_SLICE_NS,
    };
    UserPointer::<Timespec>::new(out).write(&Timespec::from_ns(slice))?;
    Ok(0)
}

/// Sets the CPUs a thread may run on; it has moved when this returns.
pub fn sched_setaffinity(task: &mut Task, pid: i32, bytes: u32, mask: u64) -> SysResult {
    let mut words = [0; 8];
    let length = (bytes as usize).min(words.len());
    read_bytes(mask, &mut words[..length])?;
    let thread = target(task, pid)?;
    may_change(task, &thread)?;
    let wanted = CpuSet::from_bits(u64::from_le_bytes(words)).intersection(cpu::online());
    if wanted.is_empty() {
        return Err(Errno::EINVAL);
    }
    if let Some(kernel) = thread.kernel_thread() {
        // A partitioned thread stays where it is for good.
        if kernel.is_bound_for_good() && !wanted.contains(kernel.cpu()) {
            return Err(Errno::EXDEV);
        }
        if kernel.policy() == Policy::Deadline && !is_everywhere(wanted) {
            return Err(Errno::EBUSY);
        }
        kernel.set_affinity(wanted);
    }
    Ok(0)
}

/// Reads the CPUs a thread may run on; returns the bytes written.
pub fn sched_getaffinity(task: &mut Task, pid: i32, bytes: u32, mask: u64) -> SysResult {
    let bytes = bytes as usize;
    if bytes * 8 < cpu::count() || !bytes.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let thread = target(task, pid)?;
    let allowed = thread.kernel_thread().map_or(CpuSet::ALL, |kernel| kernel.affinity());
    let allowed = allowed.intersection(cpu::online());
    write_bytes(mask, &allowed.bits().to_le_bytes())?;
    Ok(8)
}

/// Sets policy, priority and nice value together.
#[inline(never)]
pub fn sched_setattr(task: &mut Task, pid: i32, attributes: u64, flags: u32) -> SysResult {
    let size = UserPointer::<u32>::new(attributes).read()? as usize;
    let full = size_of::<SchedulingAttributes>();
    if flags != 0 || (size != 0 && size < full) {
        return Err(if flags != 0 { Errno::EINVAL } else { Errno::E2BIG });
    }
    let wanted = UserPointer::<SchedulingAttributes>::new(attributes).read()?;
    if wanted.flags & !FLAG_RESET_ON_FORK != 0 {
        return Err(Errno::EINVAL);
    }
    let thread = target(task, pid)?;
    if wanted.policy == DEADLINE {
        return set_reservation(task, &thread, &wanted).map(|()| 0);
    }
    let policy = policy(wanted.policy, wanted.priority)?;
    if !policy.is_realtime() {
        set_nice(task, &thread, wanted.nice)?;
    }
    set_policy(task, &thread, policy, wanted.flags & FLAG_RESET_ON_FORK != 0).map(|()| 0)
}

/// Reads policy, priority and nice value.
pub fn sched_getattr(task: &mut Task, pid: i32, attributes: u64, size: u32, flags: u32) -> SysResult {
    let full = size_of::<SchedulingAttributes>();
    if flags != 0 || (size as usize) < full {
        return Err(Errno::EINVAL);
    }
    let thread = target(task, pid)?;
    let policy = thread.policy();
    let terms = thread.kernel_thread().and_then(|kernel| kernel.reservation());
    let found = SchedulingAttributes {
        size: full as u32,
        flags: if thread.resets_on_fork() { FLAG_RESET_ON_FORK } else { 0 },
        policy: number_of(policy),
        nice: nice_of(&thread),
        priority: priority_of(policy),
        runtime: terms.map_or(0, Reservation::runtime_ns),
        deadline: terms.map_or(0, Reservation::deadline_ns),
        period: terms.map_or(0, Reservation::period_ns),
    };
    UserPointer::<SchedulingAttributes>::new(attributes).write(&found)?;
    Ok(0)
}

fn nice_of(target: &Target) -> i32 {
    target.kernel_thread().map_or(0, |kernel| kernel.nice().value())
}

fn set_nice(task: &Task, target: &Target, wanted: i32) -> Result<(), Errno> {
    may_change(task, target)?;
    let Some(thread) = target.thread() else { return Ok(()) };
    let wanted = Nice::clamped(wanted);
    // RLIMIT_NICE counts from 20 downwards: 40 allows -20.
    let lowest = 20 - thread.process().limit(Resource::Nice).min(40) as i32;
    let lowers = wanted.value() < nice_of(target) && wanted.value() < lowest;
    if lowers && !task.credentials.has(Capabilities::SYS_NICE) {
        return Err(Errno::EACCES);
    }
    if let Some(kernel) = thread.kernel_thread() {
        kernel.set_nice(wanted);
        crate::futex::inheritance::urgency_changed(thread);
    }
    Ok(())
}

const PRIO_PROCESS: u32 = 0;
const PRIO_PGRP: u32 = 1;
const PRIO_USER: u32 = 2;

/// Calls for each thread that getpriority's arguments name; ESRCH when there is none.
#[inline(never)]
fn for_each(
    task: &Task,
    kind: u32,
    id: i32,
    mut visit: impl FnMut(&Target) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let processes = match kind {
        PRIO_PROCESS => return visit(&target(task, id)?),
        PRIO_PGRP => match id {
            0 => task.process().group().members()?,
            _ => u32::try_from(id).ok().and_then(|id| task.find_group(id)).ok_or(Errno::ESRCH)?.members()?,
        },
        PRIO_USER => table::processes()?,
        _ => return Err(Errno::EINVAL),
    };
    let named = || task.credentials.space().kernel_user(id as u32).ok_or(Errno::ESRCH);
    let user = if id == 0 || kind != PRIO_USER { task.credentials.user.real } else { named()? };
    let mut outcome = Err(Errno::ESRCH);
    for process in &processes {
        for thread in process.threads()? {
            if kind == PRIO_PGRP || thread.credentials().user.real == user {
                let visited = visit(&Target::Thread(thread));
                if outcome != Ok(()) {
                    outcome = visited;
                }
            }
        }
    }
    outcome
}

/// The lowest nice value among threads, as 20 minus it.
pub fn getpriority(task: &mut Task, kind: u32, id: i32) -> SysResult {
    let mut least = Nice::MAX.value();
    for_each(task, kind, id, |thread| {
        least = least.min(nice_of(thread));
        Ok(())
    })?;
    Ok((20 - least) as usize)
}

/// Sets the nice value of threads.
pub fn setpriority(task: &mut Task, kind: u32, id: i32, nice: i32) -> SysResult {
    for_each(task, kind, id, |thread| set_nice(task, thread, nice)).map(|()| 0)
}

/// The CPU's number as programs know it.
pub fn number_of_cpu(cpu: CpuId) -> u32 {
    cpu.index() as u32
}
