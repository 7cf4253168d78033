//! The way from one program to the next.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use machine::user::UserContext;
use memory::address_space::AddressSpace;
use sched::current;
use vfs::OpenFile;
use vfs::file_capabilities::FileCapabilities;
use vfs::inode::Identity;

use super::arguments::Arguments;
use super::image::{self, Loaded, ProgramFile};
use super::interpreter::{self, ProgramPath, Resolved};
use super::open as files;
use super::persona::{Persona, Placement};
use super::stack::{self, Facts};
use crate::abi::AlternateStack;
use crate::credentials::identity::{Credentials, FileGives, Ids, Restraint};
use crate::elf::ExecutableGuard;
use crate::errno::{Errno, SysResult};
use crate::file::context::descriptor_number;
use crate::file::path::UserPath;
use crate::name_space::{self, NameSpaces};
use crate::process::limits::Resource;
use crate::process::process::Executable;
use crate::process::table::{self, Pid};
use crate::ptrace::tracee::Tracee;
use crate::signal::set::Signal;
use crate::task::Task;

const AT_FDCWD: i32 = -100;
const AT_SYMLINK_NOFOLLOW: u32 = 0x100;
const AT_EMPTY_PATH: u32 = 0x1000;
const MODE_SET_USER: u32 = 0o4000;
const MODE_SET_GROUP: u32 = 0o2000;
const MODE_GROUP_EXECUTE: u32 = 0o010;

/// Executes a program.
pub fn execve(task: &mut Task, path: u64, arguments: u64, environment: u64) -> SysResult {
    execveat(task, AT_FDCWD, path, arguments, environment, 0)
}

/// Executes a program found relative to a directory, or open as a descriptor.
#[inline(never)]
pub fn execveat(
    task: &mut Task,
    directory: i32,
    path_address: u64,
    arguments: u64,
    environment: u64,
    flags: u32,
) -> SysResult {
    let name = UserPath::read(path_address)?;
    let name = name.as_bytes();
    if name.is_empty() && flags & AT_EMPTY_PATH == 0 {
        return Err(Errno::ENOENT);
    }
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let file = files::for_execution(
        task,
        directory,
        name,
        flags & AT_EMPTY_PATH != 0,
        flags & AT_SYMLINK_NOFOLLOW == 0,
    )?;
    let path =
        ProgramPath { name: name_of(directory, name)?, stays: stays_reachable(task, directory, name)? };
    let stack_limit = task.process().limit(Resource::Stack);
    let arguments = Arguments::read(stack_limit, arguments, environment)?;
    execute(task, file, path, arguments)?;
    Ok(0)
}

/// Executes the first program of a task that has none yet.
pub fn execute_first(task: &mut Task, path: &[u8], arguments: Arguments) -> Result<(), Errno> {
    let file = files::for_execution(task, AT_FDCWD, path, false, true)?;
    let name = memory::fallible::try_copy(path).map_err(|_| Errno::ENOMEM)?;
    execute(task, file, ProgramPath { name, stays: true }, arguments)
}

/// The name that the program will find in AT_EXECFN and a script's interpreter gets.
fn name_of(directory: i32, name: &[u8]) -> Result<Vec<u8>, Errno> {
    if directory == AT_FDCWD || name.first() == Some(&b'/') {
        return memory::fallible::try_copy(name).map_err(|_| Errno::ENOMEM);
    }
    let mut text = vfs::text::Text::new();
    let mut buffer = [0; 10];
    text.push_bytes(b"/dev/fd/");
    text.push_bytes(vfs::text::digits(directory as u32, &mut buffer));
    if !name.is_empty() {
        text.push_bytes(b"/");
        text.push_bytes(name);
    }
    Ok(text.finish()?)
}

/// Whether an interpreter will find the file under that name: not if the descriptor is closed by then.
fn stays_reachable(task: &Task, directory: i32, name: &[u8]) -> Result<bool, Errno> {
    if directory == AT_FDCWD || name.first() == Some(&b'/') {
        return Ok(true);
    }
    let flags = task.files.flags(descriptor_number(directory)?)?;
    Ok(!flags.contains(vfs::DescriptorFlags::CLOSE_ON_EXEC))
}

/// All that the new program needs, complete before the old one goes.
struct Prepared {
    space: Arc<AddressSpace>,
    entry: u64,
    sp: u64,
    executable: Executable,
    credentials: Arc<Credentials>,
    /// Those that it has instead if, at the last moment, it may not gain what its file gives; and whether it is to be careful then.
    without_gains: Option<(Arc<Credentials>, bool)>,
    secure: bool,
    readable: bool,
    comm: Vec<u8>,
    persona: Persona,
    /// Others than those of the caller.
    name_spaces: Option<Arc<NameSpaces>>,
    /// The file that the program finds open.
    handed_over: Option<Arc<OpenFile>>,
}

#[inline(never)]
fn execute(
    task: &mut Task,
    file: Arc<OpenFile>,
    path: ProgramPath,
    mut arguments: Arguments,
) -> Result<(), Errno> {
    if arguments.count == 0 {
        // Programs rely on having a name.
        arguments.replace_first(&[b""])?;
    }
    let comm = memory::fallible::try_copy(base_name(&path.name)).map_err(|_| Errno::ENOMEM)?;
    let resolved = interpreter::resolve(task, file, &path, &mut arguments)?;
    let prepared = prepare(task, resolved, &path.name, comm, &arguments);
    drop(arguments);
    drop(path);
    match prepared {
        Ok(prepared) => {
            let former = become_single(task)?;
            install(task, prepared);
            if task.thread.is_traced() {
                crate::ptrace::stop::at_exec(task, former);
            }
        }
        Err(Failure::Before(errno)) => return Err(errno),
        Err(Failure::After) => {
            become_single(task)?;
            task.process().begin_exit(Signal::SIGSEGV.number().into());
        }
    }
    Ok(())
}

/// Why a program can't be executed.
enum Failure {
    /// The old program hears why.
    Before(Errno),
    /// Linux finds it out when the old program is gone: the process dies.
    After,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Before(errno)
    }
}

/// A program that can't be mapped is found out late, unless only memory is short.
fn late(errno: Errno) -> Failure {
    if errno == Errno::ENOMEM { Failure::Before(errno) } else { Failure::After }
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

#[inline(never)]
fn prepare(
    task: &Task,
    resolved: Resolved,
    name: &[u8],
    comm: Vec<u8>,
    arguments: &Arguments,
) -> Result<Prepared, Failure> {
    let file = &resolved.program;
    let program = file.parse()?;
    let interpreter = match file.interpreter(&program)? {
        Some(path) => Some(ProgramFile::read(files::for_execution(task, AT_FDCWD, &path, false, true)?)?),
        None => None,
    };
    let guard = ExecutableGuard::new(file.file.inode())?;
    if program.flawed {
        return Err(Failure::After);
    }
    let ((credentials, secure), without_gains) = new_credentials(task, resolved.gives())?;
    let mut persona = task.thread.persona() - Persona::READ_IMPLIES_EXECUTE;
    if secure || !task.credentials.permitted.contains(credentials.permitted) {
        persona -= Persona::UNSAFE;
    }
    let placement = Placement::of(persona);

    let space = AddressSpace::new().map_err(|_| Errno::ENOMEM)?;
    space.forbid_huge_pages(task.address_space.forbids_huge_pages());
    space.set_limits(crate::memory::limits_of(task.process(), &credentials));
    let top = image::place_stack(&space, task.process().limit(Resource::Stack), placement);
    let main = image::load(&space, file, &program, false, placement).map_err(late)?;
    let (entry, interpreter_base) = match &interpreter {
        Some(interpreter) => {
            let parsed = interpreter.parse().map_err(|_| Errno::ELIBBAD)?;
            if parsed.flawed {
                return Err(Failure::After);
            }
            let loaded = image::load(&space, interpreter, &parsed, true, placement).map_err(late)?;
            (loaded.entry, loaded.bias)
        }
        None => (main.entry, 0),
    };
    let name_spaces = match &task.name_spaces {
        Some(spaces) => name_space::calls::with_times_of_children(spaces)?,
        None => None,
    };
    let times = name_spaces.as_ref().or(task.name_spaces.as_ref()).map(|spaces| &spaces.times);
    let vdso = crate::vdso::map(&space, times)?;
    let start_break = image::place_heap(&space, &main, placement);
    let mut executable = describe(file, &main, start_break, guard)?;
    // A program that others hand over to its interpreter is kept from those who may not read it, too.
    let unreadable = resolved.handed_over.as_ref().filter(|file| !files::is_readable(task, file));
    executable.space = files::space_of_memory(task, unreadable.unwrap_or(&file.file));
    let readable = unreadable.is_none() && files::is_readable(task, &file.file);
    let facts = Facts {
        main: &main,
        interpreter_base,
        vdso,
        credentials: &credentials,
        secure,
        file_name: name,
        executable_stack: program.executable_stack,
        keeps_first: resolved.keeps_first(),
        hands_over: resolved.handed_over.is_some(),
    };
    let sp = stack::build(&space, top, arguments, &facts, &mut executable)?;
    let credentials = memory::fallible::try_arc(credentials).map_err(|_| Errno::ENOMEM)?;
    let without_gains = match without_gains {
        Some((credentials, secure)) => {
            Some((memory::fallible::try_arc(credentials).map_err(|_| Errno::ENOMEM)?, secure))
        }
        None => None,
    };
    let handed_over = resolved.handed_over;
    Ok(Prepared {
        space,
        entry,
        sp,
        executable,
        credentials,
        without_gains,
        secure,
        readable,
        comm,
        persona,
        name_spaces,
        handed_over,
    })
}

fn describe(
    file: &ProgramFile,
    main: &Loaded,
    start_break: u64,
    guard: ExecutableGuard,
) -> Result<Executable, Errno> {
    Ok(Executable {
        file: file.file.path().cloned(),
        guard: Some(memory::fallible::try_arc(guard).map_err(|_| Errno::ENOMEM)?),
        code: main.code,
        data: main.data,
        start_break,
        ..Executable::default()
    })
}

/// Whether who traces the caller, if anybody does, lets it gain privileges.
fn tracer_lets_gain(task: &Task, tracee: Option<&Arc<Tracee>>) -> bool {
    tracee.is_none_or(|tracee| tracee.may_gain_privileges(task.credentials.space()))
}

/// The credentials of a new program, and whether it is to be careful.
type Given = (Credentials, bool);

/// What the new program gets; and what it gets if it may gain nothing after all, if it would gain anything.
fn new_credentials(task: &Task, file: &Arc<OpenFile>) -> Result<(Given, Option<Given>), Errno> {
    // Together: a mode that a former owner gave does not count for a new one.
    let Identity { mode, user, group } = file.inode().identity();
    let honoured = files::honours_set_id(task, file);
    let restraint = match task.thread.has_no_new_privileges() {
        true => Restraint::NoNewPrivileges,
        false if !tracer_lets_gain(task, task.thread.tracee().as_ref()) => Restraint::Unsafe,
        false => Restraint::None,
    };
    let bits_count =
        honoured && restraint != Restraint::NoNewPrivileges && task.credentials.space().knows(user, group);
    let executable_group = MODE_SET_GROUP | MODE_GROUP_EXECUTE;
    let gives = FileGives {
        user: (bits_count && mode & MODE_SET_USER != 0).then_some(user),
        group: (bits_count && mode & executable_group == executable_group).then_some(group),
        capabilities: if honoured { FileCapabilities::of(file.inode())? } else { None },
        restraint,
    };
    let (credentials, secure) = task.credentials.after_exec(&gives)?;
    let gives_any = gives.user.is_some() || gives.group.is_some() || gives.capabilities.is_some();
    // Root gains what it has given up, whatever its file gives.
    let gains = gives_any || !task.credentials.permitted.contains(credentials.permitted);
    let without_gains = match restraint {
        Restraint::None if gains => {
            Some(task.credentials.after_exec(&FileGives { restraint: Restraint::Unsafe, ..gives })?)
        }
        _ => None,
    };
    Ok(((credentials, secure), without_gains))
}

/// Ends the other threads of the process; this one takes the leader's number. Returns the number that it had.
#[inline(never)]
fn become_single(task: &mut Task) -> Result<Pid, Errno> {
    if let Some(submitter) = task.submitter.take() {
        submitter.shut_down(task);
    }
    let process = task.process().clone();
    {
        let mut signals = process.signals.lock();
        if signals.group_exit.is_some() || signals.executing {
            return Err(Errno::ERESTARTNOINTR);
        }
        let threads = process.threads.lock();
        if threads.len() > 1 {
            signals.executing = true;
            for thread in threads.iter().filter(|thread| !Arc::ptr_eq(thread, &task.thread)) {
                thread.kill();
            }
        }
    }
    // Those that are parked in a stop notice only then.
    process.signal_event.wake_all();
    process.thread_event.wait_until(|| process.thread_count() == 1);
    process.signals.lock().executing = false;
    if task.thread.is_killed() {
        return Err(Errno::EINTR);
    }
    let old = task.thread.tid();
    if old != process.pid() {
        crate::ptrace::end::leader_is_replaced(&process, &task.thread);
        table::rename_thread(old, process.pid(), &task.thread);
    }
    Ok(old)
}

/// The point of no return: the task is the new program from here on.
#[inline(never)]
fn install(task: &mut Task, new: Prepared) {
    let process = task.process().clone();
    crate::exit::release_user_memory(task);
    drop(current().set_address_space(Some(new.space.clone())));
    drop(core::mem::replace(&mut task.address_space, new.space.clone()));
    let is_readable = new.readable;
    let is_dumpable = |before: &Credentials, new: &Credentials| {
        let is_same = |before: &Ids, new: &Ids| [before.real, before.effective] == [new.effective; 2];
        is_readable
            && before.permitted.contains(new.permitted)
            && (before.file.user, before.file.group) == (new.file.user, new.file.group)
            && is_same(&before.user, &new.user)
            && is_same(&before.group, &new.group)
    };
    let without_gains =
        new.without_gains.map(|(credentials, secure)| (task.prepare_credentials(credentials), secure));
    let credentials = task.prepare_credentials(new.credentials);
    let former = {
        let mut executable = process.executable.lock();
        let program = executable.program + 1;
        let former = core::mem::replace(&mut *executable, Executable { program, ..new.executable });
        // Since the look at what its file gives somebody may have begun to trace it, or given it a filter of calls. Who begins to trace it from here on
        // finds another program, and asks again whether he may. Whoever shares its root could show it other files than its author expects; from
        // here on nobody can begin to, as it is its process's only thread.
        let tracee = without_gains.as_ref().and_then(|_| task.thread.tracee());
        let may_gain = !task.thread.has_no_new_privileges()
            && tracer_lets_gain(task, tracee.as_ref())
            && !task.file_system.is_shared();
        let (chosen, corrected) = match without_gains {
            Some((others, secure)) if !may_gain => (others, Some(secure)),
            _ => (credentials, None),
        };
        let is_dumpable = is_dumpable(&task.credentials, &chosen.new);
        let credentials = task.swap_credentials(chosen);
        if is_dumpable {
            process.is_dumpable.store(1, Ordering::Relaxed);
        } else {
            process.set_privileged_dumpable();
        }
        (former, credentials, process.replace_address_space(Some(new.space)), tracee, corrected)
    };
    let (.., corrected) = former;
    drop(former);
    let auxiliary = process.executable.lock().auxiliary;
    if let Some(secure) = corrected {
        task.address_space.set_limits(crate::memory::limits_of(&process, &task.credentials));
        // Whoever took that memory away meanwhile has taken the program's stack.
        let _ = stack::correct_identity(&task.address_space, auxiliary, &task.credentials, secure);
    }
    if let Some(spaces) = new.name_spaces {
        spaces.times.freeze();
        task.enter_name_spaces(Some(spaces));
    }

    unshare(task);
    if let Some(file) = new.handed_over
        && hand_over(task, file, auxiliary).is_err()
    {
        // There is no way back, and the program would not find its file.
        process.begin_exit(Signal::SIGSEGV.number().into());
    }
    process.timers.cancel_posix();
    process.contexts.end();
    process.did_exec.store(true, Ordering::Relaxed);
    if corrected.unwrap_or(new.secure) {
        process.kinship.lock().death_signal = 0;
    }
    task.thread.set_persona(new.persona);
    task.thread.set_name(&new.comm);
    current().set_name(&new.comm);
    task.alternate_stack = AlternateStack::default();
    task.paused = None;
    // A tracer sees which call this is the result of.
    let call = task.user.call;
    task.user = UserContext::new(new.entry, new.sp);
    task.user.call = call;
    task.debug_registers = None;
    task.is_stepping = false;
    current().with_user_state(|state| state.reset());
    // Last, so that a parent that waited for the memory finds the new program, under its name and without what closes on exec.
    crate::exit::release_vfork(&process);
}

/// Opens a file for the new program, and says so in its auxiliary vector.
#[inline(never)]
fn hand_over(task: &Task, file: Arc<OpenFile>, auxiliary: (u64, u64)) -> Result<(), Errno> {
    let descriptor = task.install_file(file, false)?;
    let place = machine::address::UserAddr::new(stack::place_of_descriptor(auxiliary));
    let written = task.address_space.write_remote(place, &(descriptor as u64).to_le_bytes());
    if written == Ok(8) { Ok(()) } else { Err(Errno::EFAULT) }
}

/// What a program may share with other processes but not over execve: descriptors and dispositions.
fn unshare(task: &mut Task) {
    let process = task.process().clone();
    if task.files.is_shared()
        && let Ok(files) = task.files.duplicate()
    {
        task.replace_files(files);
    }
    task.files.close_on_exec();
    let actions = process.actions();
    // Two references are the process's own and the one here.
    if Arc::strong_count(&actions) > 2
        && let Ok(copy) = actions.duplicate().and_then(memory::fallible::try_arc)
    {
        copy.reset_handlers();
        *process.actions.lock() = copy;
    } else {
        actions.reset_handlers();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_directories() {
        assert_eq!(base_name(b"/usr/bin/cat"), b"cat");
        assert_eq!(base_name(b"cat"), b"cat");
    }
}
