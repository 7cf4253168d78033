//! fork, vfork, clone, clone3: new threads and processes.
//!
//! Order of construction: everything that can fail is allocated first and undone by dropping; then the child is published
//! (group, family, thread list, table); then it starts. A signal to the whole group that arrives while the child is
//! made either finds the child in the group or is pending in the parent before it is added: then the call starts again after the signal.

use alloc::boxed::Box;
use alloc::sync::Arc;

use core::sync::atomic::Ordering::Relaxed;
use sched::{Completion, UserStart, current};

use vfs::{Capabilities, UserSpace};

use crate::abi::{AlternateStack, CloneArguments};
use crate::control_group;
use crate::credentials::account::ProcessCharge;
use crate::credentials::identity::Credentials;
use crate::errno::{Errno, SysResult};
use crate::file::context::FileSystemUse;
use crate::name_space::{self, NameSpaces};
use crate::process::limits::Resource;
use crate::process::pid_space::Space;
use crate::process::process::{Inheritance, Process};
use crate::process::table::{self, Pid, ReservedPid};
use crate::process::thread::{Shared, Thread};
use crate::ptrace::attach::TracedChild;
use crate::ptrace::options::Event;
use crate::signal::deliver;
use crate::signal::set::{Signal, SignalSet};
use crate::signal::shared::StopState;
use crate::sysv::semaphore::undo;
use crate::task::Task;
use crate::user_pointer::{UserPointer, read_bytes};

bitflags::bitflags! {
    /// Flags of clone(2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CloneFlags: u64 {
        /// `CLONE_NEWTIME`.
        const NEWTIME = 0x80;
        /// `CLONE_VM`.
        const VM = 0x100;
        /// `CLONE_FS`.
        const FS = 0x200;
        /// `CLONE_FILES`.
        const FILES = 0x400;
        /// `CLONE_SIGHAND`.
        const SIGHAND = 0x800;
        /// `CLONE_PIDFD`.
        const PIDFD = 0x1000;
        /// `CLONE_PTRACE`.
        const PTRACE = 0x2000;
        /// `CLONE_VFORK`.
        const VFORK = 0x4000;
        /// `CLONE_PARENT`.
        const PARENT = 0x8000;
        /// `CLONE_THREAD`.
        const THREAD = 0x1_0000;
        /// `CLONE_NEWNS`.
        const NEWNS = 0x2_0000;
        /// `CLONE_SYSVSEM`.
        const SYSVSEM = 0x4_0000;
        /// `CLONE_SETTLS`.
        const SETTLS = 0x8_0000;
        /// `CLONE_PARENT_SETTID`.
        const PARENT_SETTID = 0x10_0000;
        /// `CLONE_CHILD_CLEARTID`.
        const CHILD_CLEARTID = 0x20_0000;
        /// `CLONE_DETACHED`.
        const DETACHED = 0x40_0000;
        /// `CLONE_UNTRACED`.
        const UNTRACED = 0x80_0000;
        /// `CLONE_CHILD_SETTID`.
        const CHILD_SETTID = 0x100_0000;
        /// `CLONE_NEWCGROUP`.
        const NEWCGROUP = 0x200_0000;
        /// `CLONE_NEWUTS`.
        const NEWUTS = 0x400_0000;
        /// `CLONE_NEWIPC`.
        const NEWIPC = 0x800_0000;
        /// `CLONE_NEWUSER`.
        const NEWUSER = 0x1000_0000;
        /// `CLONE_NEWPID`.
        const NEWPID = 0x2000_0000;
        /// `CLONE_NEWNET`.
        const NEWNET = 0x4000_0000;
        /// `CLONE_IO`.
        const IO = 0x8000_0000;
        /// `CLONE_CLEAR_SIGHAND`.
        const CLEAR_SIGHAND = 0x1_0000_0000;
        /// `CLONE_INTO_CGROUP`.
        const INTO_CGROUP = 0x2_0000_0000;
    }
}

/// Low byte of clone's flags: the exit signal.
const SIGNAL_MASK: u64 = 0xff;
/// Most numbers in `set_tid`: one for each level of process-number namespaces.
const SET_TID_MAX: u64 = 32;

/// What the child shall be.
#[derive(Clone, Copy)]
struct Request {
    flags: CloneFlags,
    exit_signal: u8,
    stack: u64,
    tls: u64,
    parent_tid: u64,
    child_tid: u64,
    pidfd: u64,
    /// The descriptor of the directory of the group that the child shall be in.
    control_group: u64,
    /// Numbers that the child shall have, innermost name space first.
    wanted_tids: [Pid; SET_TID_MAX as usize],
    wanted_count: usize,
}

impl Request {
    const fn plain(flags: CloneFlags) -> Request {
        Request {
            flags,
            exit_signal: Signal::SIGCHLD.number(),
            stack: 0,
            tls: 0,
            parent_tid: 0,
            child_tid: 0,
            pidfd: 0,
            control_group: 0,
            wanted_tids: [0; SET_TID_MAX as usize],
            wanted_count: 0,
        }
    }

    fn check(&self) -> Result<(), Errno> {
        use CloneFlags as F;
        let flags = self.flags;
        let both = |one: F, other: F| flags.contains(one) && flags.contains(other);
        let without = |one: F, other: F| flags.contains(one) && !flags.contains(other);
        if without(F::THREAD, F::SIGHAND)
            || without(F::SIGHAND, F::VM)
            || both(F::FS, F::NEWNS)
            || both(F::FS, F::NEWUSER)
            || both(F::THREAD, F::NEWUSER)
            || both(F::THREAD, F::NEWPID)
            || both(F::SYSVSEM, F::NEWIPC)
            || both(F::SIGHAND, F::CLEAR_SIGHAND)
            || both(F::THREAD, F::PIDFD)
            || both(F::DETACHED, F::PIDFD)
            || u64::from(self.exit_signal) > Signal::COUNT as u64
        {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }
}

/// A copy of the process.
pub fn fork(task: &mut Task) -> SysResult {
    create(task, &Request::plain(CloneFlags::empty()))
}

/// A child that borrows the memory until it executes a program or ends.
pub fn vfork(task: &mut Task) -> SysResult {
    create(task, &Request::plain(CloneFlags::VFORK | CloneFlags::VM))
}

/// A thread or process that shares what the flags say.
pub fn clone(
    task: &mut Task,
    flags: u64,
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    tls: u64,
) -> SysResult {
    let bits = flags & 0xffff_ffff & !SIGNAL_MASK;
    let request = Request {
        exit_signal: (flags & SIGNAL_MASK) as u8,
        stack,
        tls,
        parent_tid,
        child_tid,
        // clone() returns the pidfd where the parent's tid would go.
        pidfd: parent_tid,
        ..Request::plain(CloneFlags::from_bits_truncate(bits))
    };
    if request.flags.contains(CloneFlags::PIDFD | CloneFlags::PARENT_SETTID) {
        return Err(Errno::EINVAL);
    }
    create(task, &request)
}

/// clone with its arguments in a structure.
#[inline(never)]
pub fn clone3(task: &mut Task, arguments: u64, size: usize) -> SysResult {
    let request = read_clone3(arguments, size)?;
    create(task, &request)
}

#[inline(never)]
fn read_clone3(address: u64, size: usize) -> Result<Request, Errno> {
    const FIRST_SIZE: usize = 64;
    let known = size_of::<CloneArguments>();
    if size < FIRST_SIZE {
        return Err(Errno::EINVAL);
    }
    if size > machine::address::PAGE_SIZE {
        return Err(Errno::E2BIG);
    }
    let mut arguments = CloneArguments::default();
    read_bytes(address, &mut zerocopy::IntoBytes::as_mut_bytes(&mut arguments)[..size.min(known)])?;
    let mut byte = [0];
    for offset in known..size {
        read_bytes(address + offset as u64, &mut byte)?;
        if byte[0] != 0 {
            return Err(Errno::E2BIG);
        }
    }
    let flags = CloneFlags::from_bits(arguments.flags).ok_or(Errno::EINVAL)?;
    let stack_given = arguments.stack != 0;
    if flags.contains(CloneFlags::DETACHED)
        || arguments.exit_signal > Signal::COUNT as u64
        || (flags.intersects(CloneFlags::THREAD | CloneFlags::PARENT) && arguments.exit_signal != 0)
        || stack_given != (arguments.stack_size != 0)
        || (arguments.set_tid == 0) != (arguments.set_tid_size == 0)
        || arguments.set_tid_size > SET_TID_MAX
    {
        return Err(Errno::EINVAL);
    }
    let mut request = Request {
        exit_signal: arguments.exit_signal as u8,
        stack: arguments.stack.wrapping_add(arguments.stack_size),
        tls: arguments.tls,
        parent_tid: arguments.parent_tid,
        child_tid: arguments.child_tid,
        pidfd: arguments.pidfd,
        control_group: arguments.cgroup,
        ..Request::plain(flags)
    };
    read_wanted_tids(&mut request, &arguments)?;
    Ok(request)
}

fn read_wanted_tids(request: &mut Request, arguments: &CloneArguments) -> Result<(), Errno> {
    request.wanted_count = arguments.set_tid_size as usize;
    for (index, tid) in request.wanted_tids.iter_mut().enumerate().take(request.wanted_count) {
        let wanted = UserPointer::<i32>::new(arguments.set_tid).add(index).read()?;
        *tid = u32::try_from(wanted).ok().filter(|&tid| tid > 0).ok_or(Errno::EINVAL)?;
    }
    Ok(())
}

/// A number for the child, with those that it has in name spaces.
fn reserve(task: &Task, request: &Request, space: &Space) -> Result<ReservedPid, Errno> {
    let wanted = &request.wanted_tids[..request.wanted_count];
    let mut around = space.as_ref();
    let mut depth = 0;
    let may_choose = |owner: &UserSpace| {
        task.credentials.has_in(owner, Capabilities::SYS_ADMIN)
            || task.credentials.has_in(owner, Capabilities::CHECKPOINT_RESTORE)
    };
    while let Some(inner) = around {
        if depth < wanted.len() && !may_choose(inner.owner()) {
            return Err(Errno::EPERM);
        }
        depth += 1;
        around = inner.parent().as_ref();
    }
    if wanted.len() > depth + 1 || wanted.iter().any(|&tid| tid >= table::maximum()) {
        return Err(Errno::EINVAL);
    }
    let reserved = match wanted.get(depth) {
        Some(_) if !may_choose(UserSpace::FIRST) => return Err(Errno::EPERM),
        Some(&outermost) => ReservedPid::claim(outermost)?.ok_or(Errno::EEXIST)?,
        None => ReservedPid::allocate()?,
    };
    if let Some(space) = space {
        reserved.nest(space, &wanted[..wanted.len().min(depth)])?;
    }
    Ok(reserved)
}

/// Makes the child and, for vfork, waits for it.
#[inline(never)]
fn create(task: &mut Task, request: &Request) -> SysResult {
    request.check()?;
    let credentials = name_space::calls::new_credentials(task, request.flags)?;
    // Before a number is taken: forks that a limit refuses use up none.
    let charge = claim_place(task)?;
    if task.process().control_group.refuses_fork() {
        return Err(Errno::EAGAIN);
    }
    let group = control_group::wanted(task, request.flags, request.control_group)?;
    let spaces = spaces_of_child(task, request, credentials.as_ref())?;
    let reserved = reserve(task, request, &spaces.processes)?;
    let pid = reserved.number();
    let shown = task.seen_number(pid);
    let child = construct(task, request, pid, charge, credentials, spaces)?;
    let thread = child.thread.clone();
    let pidfd = crate::pidfd::PreparedPidfd::new(task, request.flags.contains(CloneFlags::PIDFD), &thread)?;
    let new_thread = prepare_kernel_thread(task, request, child)?;
    pidfd.write_number(request.pidfd)?;
    let completion = match request.flags.contains(CloneFlags::VFORK) {
        true => Some(memory::fallible::try_arc(Completion::new()).map_err(|_| Errno::ENOMEM)?),
        false => None,
    };
    if let Some(completion) = &completion {
        *thread.process().vfork_release.lock() = Some(completion.clone());
    }
    thread.set_kernel_thread(new_thread.thread().clone());
    let traced = traced_child(task, request, &thread)?;
    publish(task, request, &thread, group.as_ref())?;
    reserved.keep();
    // Another thread that reads the number finds who bears it. As on Linux, a bad address is no reason to make no child.
    if request.flags.contains(CloneFlags::PARENT_SETTID) {
        let _ = UserPointer::<u32>::new(request.parent_tid).write(&shown);
    }
    pidfd.install(task);
    drop(thread);
    if let Some(traced) = &traced {
        traced.begin();
    }
    new_thread.start();
    if let Some(traced) = &traced {
        traced.tell(task, pid);
    }
    if let Some(completion) = completion {
        wait_for_release(task, &completion);
        if task.thread.is_traced() {
            let seen = crate::ptrace::attach::of_tracer(task, pid);
            crate::ptrace::stop::at_event(task, Event::VforkDone, seen.into());
        }
    }
    Ok(shown as usize)
}

/// What a tracer has of the child that the caller makes.
fn traced_child(task: &Task, request: &Request, thread: &Arc<Thread>) -> Result<Option<TracedChild>, Errno> {
    if !task.thread.is_traced() {
        return Ok(None);
    }
    let flags = request.flags;
    let event = if flags.contains(CloneFlags::UNTRACED) {
        None
    } else if flags.contains(CloneFlags::VFORK) {
        Some(Event::Vfork)
    } else if request.exit_signal == Signal::SIGCHLD.number() && !flags.contains(CloneFlags::THREAD) {
        Some(Event::Fork)
    } else {
        Some(Event::Clone)
    };
    TracedChild::new(task, thread, event, flags.contains(CloneFlags::PTRACE)).map(Some)
}

/// The parent of a vfork waits until the child gives the memory back; only its own death ends that earlier.
fn wait_for_release(task: &mut Task, completion: &Completion) {
    while !completion.is_complete() && !task.thread.is_killed() {
        // Other signals stay pending until the child is done, so that one that has come does not end each wait at once.
        if completion.wait_interruptible().is_err() {
            crate::task::clear_attention_unless_killed(task);
        }
    }
}

/// A place among the processes of the user (RLIMIT_NPROC).
fn claim_place(task: &Task) -> Result<ProcessCharge, Errno> {
    let privileged = task.credentials.user.real == 0
        || task.credentials.has(Capabilities::SYS_RESOURCE)
        || task.credentials.has(Capabilities::SYS_ADMIN);
    let limit = if privileged { u64::MAX } else { task.process().limit(Resource::Processes) };
    ProcessCharge::claim(&task.credentials.account, limit).ok_or(Errno::EAGAIN)
}

/// The name spaces that a child will be in.
struct ChildSpaces {
    names: Option<Arc<NameSpaces>>,
    processes: Space,
}

fn spaces_of_child(
    task: &Task,
    request: &Request,
    credentials: Option<&Credentials>,
) -> Result<ChildSpaces, Errno> {
    let own = task.process().space();
    let for_children = task.name_spaces.as_ref().and_then(|spaces| spaces.for_children.clone());
    if request.flags.contains(CloneFlags::THREAD) && for_children.is_some() {
        return Err(Errno::EINVAL);
    }
    if request.flags.contains(CloneFlags::PARENT) && task.process().is_protected.load(Relaxed) {
        // The child would have a parent that can't see it.
        return Err(Errno::EINVAL);
    }
    let acting = credentials.unwrap_or(&task.credentials);
    let mut spaces = name_space::calls::make(task, request.flags, acting)?;
    let processes = spaces.as_ref().and_then(|spaces| spaces.for_children.clone()).or_else(|| own.clone());
    if let Some(made) = spaces.as_ref().filter(|made| made.for_children.is_some()) {
        // What is for its parent's children is its own.
        spaces = NameSpaces { for_children: None, ..NameSpaces::clone(made) }.into_shared()?;
    }
    if let Some(made) = spaces.as_ref().filter(|_| !request.flags.contains(CloneFlags::VM)) {
        // Clocks of one memory are read in one way.
        if let Some(entered) = name_space::calls::with_times_of_children(made)? {
            entered.times.freeze();
            spaces = Some(entered);
        }
    }
    Ok(ChildSpaces { names: spaces, processes })
}

/// Builds the child's objects, connected to each other but to nothing else.
#[inline(never)]
fn construct(
    task: &Task,
    request: &Request,
    pid: Pid,
    charge: ProcessCharge,
    new_credentials: Option<Credentials>,
    spaces: ChildSpaces,
) -> Result<Box<Task>, Errno> {
    let acting = new_credentials.as_ref().unwrap_or(&task.credentials);
    let flags = request.flags;
    let parent = task.process().clone();
    let files = match flags.contains(CloneFlags::FILES) {
        true => task.files.share(),
        false => task.files.duplicate()?,
    };
    let file_system = match flags.contains(CloneFlags::FS) {
        true => task.file_system.clone(),
        false => task.file_system.duplicate()?,
    };
    if flags.contains(CloneFlags::NEWNS) {
        name_space::calls::unshare_mounts(&file_system, acting)?;
    }
    let ChildSpaces { names: name_spaces, processes } = spaces;
    let address_space = match flags.contains(CloneFlags::VM) {
        true => task.address_space.clone(),
        false => task.address_space.fork().map_err(crate::memory::errno_of)?,
    };
    if let Some(new) = name_spaces.as_ref().filter(|_| !flags.contains(CloneFlags::VM)) {
        crate::vdso::follow(&address_space, &new.times)?;
    }
    let (process, credentials) = if flags.contains(CloneFlags::THREAD) {
        (parent, task.credentials.clone())
    } else {
        let credentials = acting.for_child()?;
        let process =
            construct_process(task, request, (pid, processes), address_space.clone(), &credentials)?;
        (process, credentials)
    };
    let undo = match flags.contains(CloneFlags::SYSVSEM) {
        true => Some(undo::list_of(&task.thread)?),
        false => None,
    };
    let name = task.thread.name();
    let shared = Shared {
        credentials: credentials.clone(),
        files: Some(Arc::clone(&files)),
        file_system: Some(FileSystemUse::begin(file_system.clone())),
        name,
        charge: Some(charge),
        undo,
        name_spaces: name_spaces.clone(),
        restriction: task.thread.restriction(),
        closing: Default::default(),
    };
    let thread = Thread::new(pid, process, task.thread.blocked(), shared);
    let thread = memory::fallible::try_arc(thread).map_err(|_| Errno::ENOMEM)?;
    if task.thread.has_no_new_privileges() {
        thread.gain_no_privileges();
    }
    thread.set_persona(task.thread.persona());
    thread.set_timer_slack_ns(task.thread.timer_slack_ns());
    let keeps_stack = !flags.contains(CloneFlags::VM) || flags.contains(CloneFlags::VFORK);
    let mut child = Task {
        user: task.user.clone(),
        thread,
        credentials,
        files,
        file_system,
        name_spaces,
        address_space,
        saved_mask: None,
        // A signal may have come before the child could be interrupted.
        needs_work: true,
        alternate_stack: if keeps_stack { task.alternate_stack } else { AlternateStack::default() },
        clear_tid: if flags.contains(CloneFlags::CHILD_CLEARTID) { request.child_tid } else { 0 },
        set_tid: if flags.contains(CloneFlags::CHILD_SETTID) { request.child_tid } else { 0 },
        futex_waiter: None,
        poll_waiter: None,
        ipc: None,
        submitter: None,
        robust_list: 0,
        sequence: if flags.contains(CloneFlags::VM) { Default::default() } else { task.sequence },
        paused: None,
        memory_policy: task.memory_policy,
        is_io_flusher: task.is_io_flusher,
        last_fault: Default::default(),
        exit_code: 0,
        debug_registers: None,
        is_stepping: task.is_stepping,
        call_end: Default::default(),
    };
    // What the parent's tracer does step by step, the child does not.
    child.end_step();
    child.user.registers.rax = 0;
    if request.stack != 0 {
        child.user.registers.rsp = request.stack;
    }
    memory::fallible::try_box(child).map_err(|_| Errno::ENOMEM)
}

#[inline(never)]
fn construct_process(
    task: &Task,
    request: &Request,
    (pid, space): (Pid, Space),
    address_space: Arc<memory::address_space::AddressSpace>,
    credentials: &Arc<Credentials>,
) -> Result<Arc<Process>, Errno> {
    let flags = request.flags;
    crate::process::family::prepare_for_orphan()?;
    let me = task.process();
    let actions = if flags.contains(CloneFlags::SIGHAND) {
        me.actions()
    } else {
        let copy = me.actions().duplicate().and_then(memory::fallible::try_arc).map_err(|_| Errno::ENOMEM)?;
        if flags.contains(CloneFlags::CLEAR_SIGHAND) {
            copy.reset_handlers();
        }
        copy
    };
    let (parent, exit_signal) = if flags.contains(CloneFlags::PARENT) {
        (me.parent().ok_or(Errno::EINVAL)?, me.kinship.lock().exit_signal)
    } else {
        (me.clone(), request.exit_signal)
    };
    let executable = me.executable.lock().clone();
    let process = Process::new(Inheritance {
        pid,
        space,
        parent: Some(parent),
        exit_signal,
        group: me.group(),
        actions,
        address_space: Some(address_space),
        limits: me.limits(),
        executable,
        credentials: credentials.clone(),
        name: task.thread.name(),
    });
    let relaxed = core::sync::atomic::Ordering::Relaxed;
    process.is_dumpable.store(me.is_dumpable.load(relaxed), relaxed);
    process.oom_adjustment.store(me.oom_adjustment.load(relaxed), relaxed);
    process.membarrier.store(me.membarrier.load(relaxed), relaxed);
    let maker = if flags.contains(CloneFlags::PARENT) { me.maker.load(relaxed) } else { task.thread.tid() };
    process.maker.store(maker, relaxed);
    process.core_filter.store(me.core_filter.load(relaxed), relaxed);
    let process = memory::fallible::try_arc(process).map_err(|_| Errno::ENOMEM)?;
    crate::timer::watch_limits(&process)?;
    Ok(process)
}

/// Stops sharing descriptors, root and current directory, what is taken back of semaphores, or name spaces, with other threads and processes.
#[inline(never)]
pub fn unshare(task: &mut Task, flags: u64) -> SysResult {
    let mut flags = CloneFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
    let alone = CloneFlags::THREAD | CloneFlags::SIGHAND | CloneFlags::VM | CloneFlags::NEWUSER;
    let known = alone | CloneFlags::FILES | CloneFlags::FS | CloneFlags::SYSVSEM | name_space::calls::MADE;
    if !known.contains(flags) || (flags.intersects(alone) && task.process().thread_count() > 1) {
        return Err(Errno::EINVAL);
    }
    let credentials = name_space::calls::new_credentials(task, flags)?;
    let acting = credentials.as_ref().unwrap_or(&task.credentials);
    let with_places = CloneFlags::FS | CloneFlags::NEWNS | CloneFlags::NEWUSER;
    flags.set(CloneFlags::FS, flags.intersects(with_places));
    flags.set(CloneFlags::SYSVSEM, flags.intersects(CloneFlags::SYSVSEM | CloneFlags::NEWIPC));
    let file_system = match flags.contains(CloneFlags::FS) {
        true => Some(task.file_system.duplicate()?),
        false => None,
    };
    if let Some(file_system) = file_system.as_ref().filter(|_| flags.contains(CloneFlags::NEWNS)) {
        name_space::calls::unshare_mounts(file_system, acting)?;
    }
    let spaces = name_space::calls::make(task, flags, acting)?;
    let credentials = match credentials {
        Some(credentials) => Some(memory::fallible::try_arc(credentials).map_err(|_| Errno::ENOMEM)?),
        None => None,
    };
    if flags.contains(CloneFlags::FILES) {
        let copy = task.files.duplicate()?;
        task.replace_files(copy);
    }
    if flags.contains(CloneFlags::SYSVSEM) {
        undo::leave(task);
    }
    if flags.intersects(name_space::calls::MADE) {
        task.enter_name_spaces(spaces);
    }
    if let Some(credentials) = credentials {
        task.install_credentials(credentials);
    }
    if let Some(new) = file_system {
        task.replace_file_system(new);
    }
    Ok(0)
}

fn prepare_kernel_thread(
    task: &Task,
    request: &Request,
    child: Box<Task>,
) -> Result<sched::NewThread, Errno> {
    let me = current();
    let mut builder = sched::Builder::new("");
    builder.affinity = me.affinity();
    (builder.policy, builder.nice) = crate::scheduling::inherited(task, me.policy(), me.nice())?;
    let shares = request.flags.contains(CloneFlags::IO);
    builder.io = if shares { sched::IoStart::Shared } else { sched::IoStart::Priority };
    builder.locked_stack = request.flags.contains(CloneFlags::THREAD) && me.stack_is_locked();
    builder.user = UserStart::CopyOfCurrent;
    builder.fs_base = request.flags.contains(CloneFlags::SETTLS).then_some(request.tls);
    builder.address_space = Some(child.address_space.clone());
    builder.name[..crate::process::thread::NAME_BYTES].copy_from_slice(&task.thread.name());
    let body = memory::fallible::try_box(move || child.run()).map_err(|_| Errno::ENOMEM)?;
    builder.prepare(body).map_err(|_| Errno::EAGAIN)
}

/// A thread of the process that will never enter user mode, before it is anybody's.
pub(crate) struct PreparedWorker {
    reserved: ReservedPid,
    thread: Arc<Thread>,
    kernel: sched::NewThread,
}

impl PreparedWorker {
    /// What others will see of it.
    pub(crate) fn thread(&self) -> &Arc<Thread> {
        &self.thread
    }

    /// Makes it visible and starts it.
    ///
    /// # Errors
    /// ERESTARTNOINTR when the process ends or executes a program, ENOMEM.
    pub(crate) fn start(self) -> Result<(), Errno> {
        self.thread.set_kernel_thread(self.kernel.thread().clone());
        list_among_threads(&self.thread)?;
        table::insert_thread(&self.thread);
        control_group::settle(&self.thread);
        self.reserved.keep();
        self.kernel.start();
        Ok(())
    }
}

/// Prepares a thread of the caller's process that shares all that threads can share, holds all signals back, and does what `life` says.
///
/// # Errors
/// EAGAIN, ENOMEM.
#[inline(never)]
pub(crate) fn prepare_worker(
    task: &Task,
    life: impl FnOnce(Box<Task>) + Send + 'static,
) -> Result<PreparedWorker, Errno> {
    use CloneFlags as F;
    let shared = F::VM | F::FS | F::FILES | F::SIGHAND | F::THREAD | F::IO;
    let request = Request::plain(shared);
    let charge = claim_place(task)?;
    // Also where the caller's children go to another name space: a thread is where its process is.
    let spaces = ChildSpaces { names: task.name_spaces.clone(), processes: task.process().space().clone() };
    let reserved = reserve(task, &request, &spaces.processes)?;
    let pid = reserved.number();
    let child = construct(task, &request, pid, charge, None, spaces)?;
    child.thread.set_blocked(SignalSet::ALL);
    let name = worker_name(task.thread.tid());
    child.thread.set_name(&name);
    let thread = child.thread.clone();
    let mut builder = sched::Builder::new("");
    builder.affinity = current().affinity();
    builder.io = sched::IoStart::Shared;
    builder.user = UserStart::Fresh;
    builder.address_space = Some(child.address_space.clone());
    builder.name[..name.len()].copy_from_slice(&name);
    let body = memory::fallible::try_box(move || life(child)).map_err(|_| Errno::ENOMEM)?;
    let kernel = builder.prepare(body).map_err(|_| Errno::EAGAIN)?;
    Ok(PreparedWorker { reserved, thread, kernel })
}

/// The name of a worker: as on Linux that of the kernel's workers and the number of the thread that it works for.
fn worker_name(mut tid: Pid) -> [u8; crate::process::thread::NAME_BYTES] {
    const PREFIX: &[u8] = b"iou-wrk-";
    let mut name = [0; crate::process::thread::NAME_BYTES];
    name[..PREFIX.len()].copy_from_slice(PREFIX);
    let digits = tid.checked_ilog10().unwrap_or(0) as usize + 1;
    for place in (PREFIX.len()..PREFIX.len() + digits).rev() {
        // What does not fit is cut off, as of every name.
        if place < name.len() - 1 {
            name[place] = b'0' + (tid % 10) as u8;
        }
        tid /= 10;
    }
    name
}

/// Lists a worker among the threads of its process, and of its control group.
fn list_among_threads(thread: &Arc<Thread>) -> Result<(), Errno> {
    let process = thread.process();
    let mut signals = process.signals.lock();
    // Killed: who waits for its submitter's workers has looked for it already.
    if signals.group_exit.is_some() || signals.executing || thread.is_killed() {
        return Err(Errno::ERESTARTNOINTR);
    }
    let mut threads = process.threads.lock();
    memory::fallible::try_reserve(&mut threads, 1).map_err(|_| Errno::ENOMEM)?;
    process.control_group.thread_begins()?;
    threads.push(thread.clone());
    if let StopState::Stopping(_) = signals.stop {
        signals.to_park += 1;
    }
    Ok(())
}

/// Makes the child visible. From here on signals reach it and others see it.
fn publish(
    task: &Task,
    request: &Request,
    thread: &Arc<Thread>,
    group: Option<&Arc<cgroup::Group>>,
) -> Result<(), Errno> {
    let process = thread.process();
    if request.flags.contains(CloneFlags::THREAD) {
        let mut signals = process.signals.lock();
        if signals.group_exit.is_some() || signals.executing {
            return Err(Errno::ERESTARTNOINTR);
        }
        let mut threads = process.threads.lock();
        memory::fallible::try_reserve(&mut threads, 1).map_err(|_| Errno::ENOMEM)?;
        process.control_group.thread_begins()?;
        threads.push(thread.clone());
        thread.restrict_as(&task.thread);
        if let StopState::Stopping(_) = signals.stop {
            signals.to_park += 1;
        }
        drop(threads);
        drop(signals);
        table::insert_thread(thread);
        control_group::settle(thread);
        return Ok(());
    }
    memory::fallible::try_push(&mut process.threads.lock(), thread.clone()).map_err(|_| Errno::ENOMEM)?;
    let must_die = control_group::join(task.process(), process, group).inspect_err(|_| unlist(process))?;
    if let Err(errno) = join_group(task, process) {
        abandon(process);
        return Err(errno);
    }
    if let Err(errno) = adopt(process) {
        process.group().remove(process);
        abandon(process);
        return Err(errno);
    }
    if let Some(space) = process.space().as_ref().filter(|_| process.is_protected.load(Relaxed)) {
        space.set_init(process);
    }
    table::insert_process(process);
    crate::oom::share_fate(task.process(), process);
    table::insert_thread(thread);
    control_group::settle(thread);
    if must_die {
        control_group::kill_newcomer(process);
    }
    if process.space().as_ref().is_some_and(|space| space.is_closed()) {
        // Its name space ends, and may have looked for processes before this one was there.
        process.begin_exit(Signal::SIGKILL.number().into());
    }
    Ok(())
}

/// Takes a process that never was out of its control group, and apart.
fn abandon(process: &Arc<Process>) {
    if !process.control_group.is_in_root() {
        let member: Arc<dyn cgroup::Member> = process.clone();
        process.control_group.abandon(&member);
    }
    unlist(process);
}

/// Makes a new process a member of the caller's group, in which the caller may be for a moment only: another process can be moving it.
/// With a signal pending the fork starts again after it.
fn join_group(task: &Task, process: &Arc<Process>) -> Result<(), Errno> {
    loop {
        let group = task.process().group();
        if !Arc::ptr_eq(&group, &process.group()) {
            process.replace_group(group.clone());
        }
        let stays = || task.process().look_at_group(|current| core::ptr::eq(current, &*group));
        // While the caller is in the group nobody dissolves it.
        if group.add(process, || stays() && !deliver::is_pending(task))? {
            return Ok(());
        }
        if stays() {
            return Err(Errno::ERESTARTNOINTR);
        }
    }
}

/// Breaks the cycle between a process that never was and its thread.
fn unlist(process: &Process) {
    let threads = core::mem::take(&mut *process.threads.lock());
    drop(threads);
}

/// Lists a process among its parent's children; if the parent (not the caller, with CLONE_PARENT) has ended, its heir takes it.
fn adopt(process: &Arc<Process>) -> Result<(), Errno> {
    let Some(mut parent) = process.parent() else { return Ok(()) };
    let mut is_heir = false;
    loop {
        // While it is in no list nobody else gives it another parent. Heirs are looked for without its lock: that takes those of ancestors.
        let former = {
            let mut kinship = process.kinship.lock();
            let mut children = parent.children.lock();
            if children.closed {
                None
            } else {
                memory::fallible::try_push(&mut children.list, process.clone()).map_err(|_| Errno::ENOMEM)?;
                if !is_heir {
                    return Ok(());
                }
                kinship.exit_signal = Signal::SIGCHLD.number();
                Some(process.set_parent(&mut kinship, &parent))
            }
        };
        if former.is_some() {
            return Ok(());
        }
        parent = crate::process::family::heir_of(&parent);
        is_heir = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::exercise::Maker;

    #[test]
    fn the_child_of_a_parent_that_has_ended_goes_to_its_heir() {
        let maker = Maker::new().expect("memory");
        let [reaper, parent, child] = [950, 951, 952].map(|pid| maker.make(pid).expect("memory"));
        let give = |process: &Arc<Process>, parent: &Arc<Process>| {
            drop(process.set_parent(&mut process.kinship.lock(), parent));
        };
        give(&parent, &reaper);
        give(&child, &parent);
        child.kinship.lock().exit_signal = 0;
        reaper.is_subreaper.store(true, Relaxed);
        parent.children.lock().closed = true;
        assert_eq!(adopt(&child), Ok(()));
        assert!(child.parent().is_some_and(|parent| Arc::ptr_eq(&parent, &reaper)));
        assert_eq!(child.kinship.lock().exit_signal, Signal::SIGCHLD.number());
        assert_eq!(reaper.children.lock().list.len(), 1);
        assert!(parent.children.lock().list.is_empty());
        // They would keep each other.
        reaper.children.lock().list.clear();
    }
}
