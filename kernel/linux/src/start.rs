//! Starting the personality, and the command that the machine was booted for.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::file::context::FileSystemUse;
use machine::user::UserContext;
use memory::address_space::AddressSpace;
use sched::{NewThread, UserStart};
use vfs::{DescriptorTable, Descriptors, FileSystemContext, OpenFile};

use crate::abi::AlternateStack;
use crate::credentials::account::ProcessCharge;
use crate::credentials::identity::{Credentials, Ids};
use crate::errno::Errno;
use crate::exec::{self, Arguments};
use crate::process::group::{ProcessGroup, Session};
use crate::process::init::{self, EndOfCommand};
use crate::process::limits::Resource;
use crate::process::pid_space;
use crate::process::process::{Inheritance, Process};
use crate::process::table::{self, ReservedPid};
use crate::process::thread::{Shared, Thread};
use crate::seccomp::Restriction;
use crate::signal::actions::SignalActions;
use crate::signal::information::SignalInformation;
use crate::signal::set::{Signal, SignalSet};
use crate::task::Task;

/// What shall be run first.
pub struct Command {
    /// Its arguments; the first names the program, looked up in PATH of the environment unless it holds a slash.
    pub arguments: Vec<Vec<u8>>,
    /// Its environment, `NAME=value` each.
    pub environment: Vec<Vec<u8>>,
    /// User and group it runs as.
    pub user: (u32, u32),
    /// Root, current directory, mounts.
    pub file_system: Arc<FileSystemContext>,
    /// Descriptors 0, 1, 2 and so on.
    pub files: Vec<Arc<OpenFile>>,
    /// The controlling terminal of its session.
    pub terminal: Option<Arc<tty::Terminal>>,
}

/// Prepares the personality: process 1, the out-of-memory policy. Once, with memory and scheduler up.
///
/// # Errors
/// ENOMEM.
pub fn initialize(end: &'static dyn EndOfCommand) -> Result<(), Errno> {
    init::start(end)?;
    crate::oom::install();
    crate::vdso::start()?;
    crate::exit::register_death_hook();
    crate::terminal::register();
    crate::control_group::register();
    vfs::credentials::register_caller(|look| {
        if let Some(thread) = crate::terminal::calling_thread() {
            look(&thread.credentials().file);
        }
    });
    vfs::caller::register(vfs::caller::Answers {
        file: |descriptor| {
            let files = crate::terminal::calling_thread().and_then(|thread| thread.files());
            let number = u32::try_from(descriptor).map_err(|_| vfs::Error::BadDescriptor)?;
            files.ok_or(vfs::Error::BadDescriptor)?.get(number)
        },
        root: || {
            let context = crate::terminal::calling_thread()?.file_system()?;
            Some(context.places().root.clone())
        },
        tell_owner: crate::file::owner::tell,
        number: |of_thread| {
            let thread = crate::terminal::calling_thread();
            thread.map_or(0, |thread| if of_thread { thread.tid() } else { thread.process().pid() } as i32)
        },
        ids: || {
            let thread = crate::terminal::calling_thread()?;
            let credentials = thread.credentials();
            let of = |ids: Ids| [ids.real, ids.effective, ids.saved];
            Some(vfs::caller::Ids { users: of(credentials.user), groups: of(credentials.group) })
        },
        shown: |pid| {
            let thread = crate::terminal::calling_thread();
            thread.map_or(pid, |thread| pid_space::seen(thread.process().space(), pid as u32) as i32)
        },
        process: || {
            let process: Arc<dyn core::any::Any + Send + Sync> =
                crate::terminal::calling_thread()?.process().clone();
            Some(process)
        },
        open_process: crate::pidfd::file_of_watched,
        reserve: || {
            let thread = crate::terminal::calling_thread().ok_or(vfs::Error::BadDescriptor)?;
            let files = thread.files().ok_or(vfs::Error::BadDescriptor)?;
            files.reserve(thread.process().limit(Resource::OpenFiles))
        },
    });
    crate::signal::source::register();
    net::link::register_network(crate::name_space::look_at_callers);
    net::unix::set_urgent_signal(crate::file::owner::tell_urgent);
    net::unix::set_identity_source(crate::socket::create::identity_of_caller);
    crate::proc::register()?;
    Ok(())
}

/// Whether the program that the kernel works for now is to end, whatever it waits for.
pub fn is_caller_killed() -> bool {
    crate::terminal::calling_thread().is_some_and(|thread| thread.is_killed())
}

/// What the program that the kernel works for now has open under a number.
pub fn opened_by_caller(number: u32) -> Option<Arc<vfs::OpenFile>> {
    let files = crate::terminal::calling_thread()?.files()?;
    files.get(number).ok()
}

const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Process 2 with everything but its program, before its first thread runs.
pub struct Prepared {
    process: Arc<Process>,
    thread: NewThread,
    files: Arc<DescriptorTable>,
}

impl Prepared {
    /// Gives it an open file, as the lowest descriptor that is free.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn give(&self, file: Arc<OpenFile>) -> Result<(), Errno> {
        self.files.install(file, vfs::DescriptorFlags::empty(), 0, u64::from(u32::MAX))?;
        Ok(())
    }

    /// Lets it run.
    pub fn start(self) -> Arc<Process> {
        self.thread.start();
        self.process
    }
}

/// Makes the command's process 2, leader of its own session. Nothing of the command's files is looked at before
/// [`Prepared::start`]. `started` hears then, in the new thread, whether the program could be executed; if not, the process
/// ends right away and nothing else is reported.
///
/// # Errors
/// ENOMEM.
pub fn prepare(command: Command, started: fn(Result<(), Errno>)) -> Result<Prepared, Errno> {
    let pid = ReservedPid::claim(init::COMMAND)?.ok_or(Errno::EEXIST)?;
    crate::helper::note_root(&command.file_system)?;
    make(command, pid, move |task, arguments, environment| {
        become_command(task, &arguments, &environment, started);
    })
}

/// Starts process 2 as made by [`prepare`], with `life` as what its first thread does: it gets the task, the arguments and
/// the environment, and must end with [`Task::run`].
///
/// # Errors
/// ENOMEM.
pub fn launch(
    command: Command,
    life: impl FnOnce(Box<Task>, Vec<Vec<u8>>, Vec<Vec<u8>>) + Send + 'static,
) -> Result<Arc<Process>, Errno> {
    let pid = ReservedPid::claim(init::COMMAND)?.ok_or(Errno::EEXIST)?;
    Ok(make(command, pid, life)?.start())
}

/// A process of that number and its first thread, whose life it is, as a child of process 1 and leader of its own session.
pub(crate) fn make(
    command: Command,
    reserved: ReservedPid,
    life: impl FnOnce(Box<Task>, Vec<Vec<u8>>, Vec<Vec<u8>>) + Send + 'static,
) -> Result<Prepared, Errno> {
    let no_memory = |_| Errno::ENOMEM;
    let mut credentials = Credentials::root()?;
    if command.user != (0, 0) {
        let old = credentials.user;
        credentials.user = Ids::all(command.user.0);
        credentials.group = Ids::all(command.user.1);
        credentials.file.user = command.user.0;
        credentials.file.group = command.user.1;
        credentials.adjust_after_user_change(&old);
        credentials.account = crate::credentials::account::Account::of(command.user.0)?;
    }
    let charge = ProcessCharge::claim(&credentials.account, u64::MAX);
    let credentials = memory::fallible::try_arc(credentials).map_err(no_memory)?;
    let parent = init::process();
    let group = ProcessGroup::new(reserved.number(), Session::new(reserved.number())?)?;
    let space = AddressSpace::new().map_err(no_memory)?;
    let process = memory::fallible::try_arc(Process::new(Inheritance {
        pid: reserved.number(),
        space: None,
        parent: Some(parent.clone()),
        exit_signal: Signal::SIGCHLD.number(),
        group: group.clone(),
        actions: SignalActions::new().and_then(memory::fallible::try_arc).map_err(no_memory)?,
        address_space: Some(space.clone()),
        limits: parent.limits(),
        executable: Default::default(),
        credentials: credentials.clone(),
        name: [0; crate::process::thread::NAME_BYTES],
    }))
    .map_err(no_memory)?;

    let files = Descriptors::new()?;
    for file in &command.files {
        files.install(file.clone(), vfs::DescriptorFlags::empty(), 0, u64::from(u32::MAX))?;
    }
    let table = Arc::clone(&files);
    let shared = Shared {
        credentials: credentials.clone(),
        files: Some(Arc::clone(&files)),
        file_system: Some(FileSystemUse::begin(command.file_system.clone())),
        name: [0; crate::process::thread::NAME_BYTES],
        charge,
        undo: None,
        name_spaces: None,
        restriction: Restriction::None,
        closing: Default::default(),
    };
    let thread = Thread::new(reserved.number(), process.clone(), SignalSet::EMPTY, shared);
    let thread = memory::fallible::try_arc(thread).map_err(no_memory)?;
    let task = first_task(thread.clone(), credentials, files, command.file_system.clone(), space.clone())?;

    let mut builder = sched::Builder::new("command");
    builder.user = UserStart::Fresh;
    builder.address_space = Some(space);
    let (arguments, environment) = (command.arguments, command.environment);
    let body = move || life(task, arguments, environment);
    let kernel = builder.prepare(Box::new(body)).map_err(no_memory)?;
    thread.set_kernel_thread(kernel.thread().clone());
    memory::fallible::try_push(&mut process.threads.lock(), thread.clone()).map_err(no_memory)?;
    group.add(&process, || true)?;
    memory::fallible::try_push(&mut parent.children.lock().list, process.clone()).map_err(no_memory)?;
    table::insert_process(&process);
    table::insert_thread(&thread);
    reserved.keep();
    if let Some(terminal) = &command.terminal {
        crate::terminal::adopt(terminal, &process);
    }
    Ok(Prepared { process, thread: kernel, files: table })
}

/// Times that all processes are killed: some may have been made in the midst of it.
const KILL_ROUNDS: u32 = 3;

/// Sends a signal of the host's to the command.
pub fn signal_command(number: u8) {
    let Some(signal) = Signal::new(number.into()) else { return };
    if let Some(process) = table::process(init::COMMAND) {
        let _ = crate::signal::send::to_process(&process, SignalInformation::from_kernel(signal));
    }
}

/// Kills every process, because the command has ended and its files are to be closed. They end a little later, by themselves.
pub fn kill_all() {
    for _ in 0..KILL_ROUNDS {
        let Ok(processes) = table::processes() else { return };
        let mut living = 0;
        for process in processes.iter().filter(|process| process.pid() != table::INIT) {
            let information = SignalInformation::from_kernel(Signal::SIGKILL);
            if crate::signal::send::to_process(process, information).is_ok() {
                living += 1;
            }
        }
        if living == 0 {
            return;
        }
    }
}

fn first_task(
    thread: Arc<Thread>,
    credentials: Arc<Credentials>,
    files: Descriptors,
    file_system: Arc<FileSystemContext>,
    address_space: Arc<AddressSpace>,
) -> Result<Box<Task>, Errno> {
    let task = Task {
        user: UserContext::new(0, 0),
        thread,
        credentials,
        files,
        file_system,
        name_spaces: None,
        address_space,
        saved_mask: None,
        needs_work: true,
        alternate_stack: AlternateStack::default(),
        clear_tid: 0,
        set_tid: 0,
        futex_waiter: None,
        poll_waiter: None,
        ipc: None,
        submitter: None,
        robust_list: 0,
        sequence: Default::default(),
        paused: None,
        memory_policy: Default::default(),
        is_io_flusher: false,
        last_fault: Default::default(),
        exit_code: 0,
        debug_registers: None,
        is_stepping: false,
        call_end: Default::default(),
    };
    memory::fallible::try_box(task).map_err(|_| Errno::ENOMEM)
}

/// The first thread's body: executes the program and then lives as any thread.
pub(crate) fn become_command(
    mut task: Box<Task>,
    arguments: &[Vec<u8>],
    environment: &[Vec<u8>],
    started: fn(Result<(), Errno>),
) {
    let outcome = execute(&mut task, arguments, environment);
    started(outcome);
    if outcome.is_err() {
        const NOT_FOUND: u32 = 127;
        task.process().begin_exit(NOT_FOUND << 8);
    }
    task.run();
}

fn execute(task: &mut Task, arguments: &[Vec<u8>], environment: &[Vec<u8>]) -> Result<(), Errno> {
    let program = arguments.first().ok_or(Errno::ENOENT)?;
    if program.contains(&b'/') {
        return execute_path(task, program, arguments, environment);
    }
    let path = environment.iter().find_map(|entry| entry.strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH);
    let mut outcome = Err(Errno::ENOENT);
    for directory in path.split(|&byte| byte == b':') {
        let mut candidate = Vec::new();
        candidate.extend_from_slice(if directory.is_empty() { b"." } else { directory });
        candidate.push(b'/');
        candidate.extend_from_slice(program);
        match execute_path(task, &candidate, arguments, environment) {
            Ok(()) => return Ok(()),
            // As shells do: "not allowed" is remembered, "not there" is not.
            Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(errno) => outcome = Err(errno),
        }
    }
    outcome
}

fn execute_path(
    task: &mut Task,
    path: &[u8],
    arguments: &[Vec<u8>],
    environment: &[Vec<u8>],
) -> Result<(), Errno> {
    let mut copied = Arguments::new(task.process().limit(crate::process::limits::Resource::Stack));
    for argument in arguments {
        copied.push_argument(argument)?;
    }
    for string in environment {
        copied.push_environment(string)?;
    }
    exec::execute_first(task, path, copied)
}
