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
use super::open as files;
use super::stack::{self, Facts};
use crate::abi::AlternateStack;
use crate::credentials::identity::{Credentials, FileGives};
use crate::elf::ExecutableGuard;
use crate::errno::{Errno, SysResult};
use crate::file::path::UserPath;
use crate::process::limits::Resource;
use crate::process::process::Executable;
use crate::process::table::{self, Pid};
use crate::signal::set::Signal;
use crate::task::Task;

const AT_FDCWD: i32 = -100;
const AT_SYMLINK_NOFOLLOW: u32 = 0x100;
const AT_EMPTY_PATH: u32 = 0x1000;
/// Scripts whose interpreter is a script, and so on.
const SCRIPT_DEPTH_MAX: u32 = 5;
/// Longest first line of a script that counts.
const SCRIPT_LINE_MAX: usize = 256;
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
    let name = name_of(directory, name)?;
    let stack_limit = task.process().limit(Resource::Stack);
    let arguments = Arguments::read(stack_limit, arguments, environment)?;
    execute(task, file, name, arguments)?;
    Ok(0)
}

/// Executes the first program of a task that has none yet.
pub fn execute_first(task: &mut Task, path: &[u8], arguments: Arguments) -> Result<(), Errno> {
    let file = files::for_execution(task, AT_FDCWD, path, false, true)?;
    let name = memory::fallible::try_copy(path).map_err(|_| Errno::ENOMEM)?;
    execute(task, file, name, arguments)
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

/// All that the new program needs, complete before the old one goes.
struct Prepared {
    space: Arc<AddressSpace>,
    entry: u64,
    sp: u64,
    executable: Executable,
    credentials: Arc<Credentials>,
    secure: bool,
    readable: bool,
    comm: Vec<u8>,
}

#[inline(never)]
fn execute(
    task: &mut Task,
    file: Arc<OpenFile>,
    name: Vec<u8>,
    mut arguments: Arguments,
) -> Result<(), Errno> {
    if arguments.count == 0 {
        // Programs rely on having a name.
        arguments.replace_first(&[b""])?;
    }
    let comm = memory::fallible::try_copy(base_name(&name)).map_err(|_| Errno::ENOMEM)?;
    let program = resolve_scripts(task, file, &name, &mut arguments)?;
    let prepared = prepare(task, program, &name, comm, &arguments);
    drop(arguments);
    drop(name);
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

/// Follows `#!` lines to a program.
#[inline(never)]
fn resolve_scripts(
    task: &Task,
    file: Arc<OpenFile>,
    name: &[u8],
    arguments: &mut Arguments,
) -> Result<ProgramFile, Errno> {
    let mut program = ProgramFile::read(file)?;
    let mut script: Vec<u8> = memory::fallible::try_copy(name).map_err(|_| Errno::ENOMEM)?;
    for _ in 0..SCRIPT_DEPTH_MAX {
        let Some(line) = program.head.strip_prefix(b"#!") else { return Ok(program) };
        // A script that somebody is writing is as busy as a program.
        drop(ExecutableGuard::new(program.file.inode())?);
        let (interpreter, option) = parse_script_line(line)?;
        let interpreter = memory::fallible::try_copy(interpreter).map_err(|_| Errno::ENOMEM)?;
        match option {
            Some(option) => arguments.replace_first(&[&interpreter, option, &script])?,
            None => arguments.replace_first(&[&interpreter, &script])?,
        }
        let file = files::for_execution(task, AT_FDCWD, &interpreter, false, true)?;
        program = ProgramFile::read(file)?;
        script = interpreter;
    }
    Err(Errno::ELOOP)
}

/// The interpreter and its one optional argument.
fn parse_script_line(line: &[u8]) -> Result<(&[u8], Option<&[u8]>), Errno> {
    let limit = line.len().min(SCRIPT_LINE_MAX - 2);
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let end = line[..limit].iter().position(|&byte| byte == b'\n' || byte == 0);
    let text = line[..end.unwrap_or(limit)].trim_ascii();
    let split = text.iter().position(blank);
    // A line that was cut may have cut the interpreter's name.
    if text.is_empty() || (end.is_none() && split.is_none() && line.len() > limit) {
        return Err(Errno::ENOEXEC);
    }
    Ok(match split {
        Some(at) => (&text[..at], Some(text[at..].trim_ascii())),
        None => (text, None),
    })
}

#[inline(never)]
fn prepare(
    task: &Task,
    file: ProgramFile,
    name: &[u8],
    comm: Vec<u8>,
    arguments: &Arguments,
) -> Result<Prepared, Failure> {
    let program = file.parse()?;
    let interpreter = match file.interpreter(&program)? {
        Some(path) => Some(ProgramFile::read(files::for_execution(task, AT_FDCWD, &path, false, true)?)?),
        None => None,
    };
    let guard = ExecutableGuard::new(file.file.inode())?;
    if program.flawed {
        return Err(Failure::After);
    }
    let (credentials, secure) = new_credentials(task, &file)?;
    let fixed = crate::prctl::has_fixed_addresses(task.persona) && !secure;

    let space = AddressSpace::new().map_err(|_| Errno::ENOMEM)?;
    space.set_limits(crate::memory::limits_of(task.process(), &credentials));
    let top = image::place_stack(&space, task.process().limit(Resource::Stack), fixed);
    let main = image::load(&space, &file, &program, false, fixed).map_err(late)?;
    let (entry, interpreter_base) = match &interpreter {
        Some(interpreter) => {
            let parsed = interpreter.parse().map_err(|_| Errno::ELIBBAD)?;
            if parsed.flawed {
                return Err(Failure::After);
            }
            let loaded = image::load(&space, interpreter, &parsed, true, fixed).map_err(late)?;
            (loaded.entry, loaded.bias)
        }
        None => (main.entry, 0),
    };
    let vdso = crate::vdso::map(&space)?;
    let start_break = image::place_heap(&space, &main, fixed);
    let mut executable = describe(&file, &main, start_break, guard)?;
    executable.space = files::space_of_memory(task, &file.file);
    let facts = Facts {
        main: &main,
        interpreter_base,
        vdso,
        credentials: &credentials,
        secure,
        file_name: name,
        executable_stack: program.executable_stack,
    };
    let sp = stack::build(&space, top, arguments, &facts, &mut executable)?;
    let readable = files::is_readable(task, &file.file);
    let credentials = memory::fallible::try_arc(credentials).map_err(|_| Errno::ENOMEM)?;
    Ok(Prepared { space, entry, sp, executable, credentials, secure, readable, comm })
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

fn new_credentials(task: &Task, file: &ProgramFile) -> Result<(Credentials, bool), Errno> {
    // Together: a mode that a former owner gave does not count for a new one.
    let Identity { mode, user, group } = file.file.inode().identity();
    let may_gain =
        || task.thread.tracee().is_none_or(|tracee| tracee.may_gain_privileges(task.credentials.space()));
    let honoured = files::honours_set_id(task, &file.file) && may_gain();
    let no_new_privileges = task.thread.has_no_new_privileges();
    let bits_count = honoured && !no_new_privileges && task.credentials.space().knows(user, group);
    let executable_group = MODE_SET_GROUP | MODE_GROUP_EXECUTE;
    let gives = FileGives {
        user: (bits_count && mode & MODE_SET_USER != 0).then_some(user),
        group: (bits_count && mode & executable_group == executable_group).then_some(group),
        capabilities: if honoured { FileCapabilities::of(file.file.inode())? } else { None },
        no_new_privileges,
    };
    task.credentials.after_exec(&gives)
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
        task.thread.set_tid(process.pid());
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
    let gains = !task.credentials.permitted.contains(new.credentials.permitted);
    let (user, group) = (&new.credentials.user, &new.credentials.group);
    let acts_for_itself = user.real == user.effective && group.real == group.effective;
    let credentials = task.prepare_credentials(new.credentials);
    let is_dumpable = acts_for_itself && !gains && new.readable;
    let former = {
        let mut executable = process.executable.lock();
        let program = executable.program + 1;
        let former = core::mem::replace(&mut *executable, Executable { program, ..new.executable });
        let credentials = task.swap_credentials(credentials);
        process.is_dumpable.store(is_dumpable.into(), Ordering::Relaxed);
        (former, credentials, process.replace_address_space(Some(new.space)))
    };
    drop(former);

    unshare(task);
    process.timers.cancel_posix();
    process.contexts.end();
    process.did_exec.store(true, Ordering::Relaxed);
    if new.secure {
        process.kinship.lock().death_signal = 0;
    }
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
    fn script_lines_split_into_interpreter_and_one_argument() {
        assert_eq!(parse_script_line(b"/bin/sh\necho"), Ok((&b"/bin/sh"[..], None)));
        assert_eq!(
            parse_script_line(b" /usr/bin/env  -S a b \n"),
            Ok((&b"/usr/bin/env"[..], Some(&b"-S a b"[..])))
        );
        assert_eq!(parse_script_line(b"\n"), Err(Errno::ENOEXEC));
        let long = alloc::vec![b'x'; 300];
        assert_eq!(parse_script_line(&long), Err(Errno::ENOEXEC));
    }

    #[test]
    fn names_lose_their_directories() {
        assert_eq!(base_name(b"/usr/bin/cat"), b"cat");
        assert_eq!(base_name(b"cat"), b"cat");
    }
}
