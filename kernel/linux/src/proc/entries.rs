//! The text files of a process's directory (proc(5)).

use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::Ordering;

use machine::address::UserAddr;
use sched::RunState;
use vfs::text::Text;
use vfs::{Error, Path, Result};

use super::process::Subject;
use crate::process::limits;
use crate::process::process::{Process, State};
use crate::process::thread::Thread;
use crate::time::NS_PER_TICK;

/// Bytes of arguments or environment that are shown at most: what execve accepts.
const STRINGS_MAX: u64 = 6 << 20;

/// A name without its padding.
pub(super) fn trimmed(name: &[u8]) -> &[u8] {
    &name[..name.iter().position(|&byte| byte == 0).unwrap_or(name.len())]
}

fn copy_memory(process: &Process, range: (u64, u64), out: &mut Text) -> Result<()> {
    let Some(space) = process.address_space() else { return Ok(()) };
    let mut at = range.0;
    let end = range.1.min(range.0.saturating_add(STRINGS_MAX));
    let mut chunk: Vec<u8> = vfs::allocation::filled(0, 512)?;
    while at < end {
        let wanted = (end - at).min(chunk.len() as u64) as usize;
        match space.read_remote(UserAddr::new(at), &mut chunk[..wanted]) {
            Ok(0) | Err(_) => break,
            Ok(count) => {
                out.push_bytes(&chunk[..count]);
                at += count as u64;
            }
        }
    }
    Ok(())
}

/// `cmdline`
pub(super) fn command_line(subject: &Subject, out: &mut Text) -> Result<()> {
    let process = subject.process()?;
    let range = process.executable.lock().arguments;
    copy_memory(&process, range, out)
}

/// `environ`
pub(super) fn environment(subject: &Subject, out: &mut Text) -> Result<()> {
    let process = subject.process()?;
    let range = process.executable.lock().environment;
    copy_memory(&process, range, out)
}

/// `auxv`
pub(super) fn auxiliary_vector(subject: &Subject, out: &mut Text) -> Result<()> {
    let process = subject.process()?;
    let range = process.executable.lock().auxiliary;
    copy_memory(&process, range, out)
}

/// `cgroup`: there is one group.
pub(super) fn control_group(_subject: &Subject, out: &mut Text) -> Result<()> {
    let _ = out.write_str("0::/\n");
    Ok(())
}

/// `wchan`: not shown.
pub(super) fn wait_channel(_subject: &Subject, out: &mut Text) -> Result<()> {
    let _ = out.write_str("0");
    Ok(())
}

fn name_of(subject: &Subject) -> Result<[u8; crate::process::thread::NAME_BYTES]> {
    match subject.thread() {
        Ok(thread) => Ok(thread.name()),
        Err(_) => Ok(subject.process()?.name()),
    }
}

/// `comm`
pub(super) fn name(subject: &Subject, out: &mut Text) -> Result<()> {
    out.push_bytes(trimmed(&name_of(subject)?));
    out.push_bytes(b"\n");
    Ok(())
}

/// Writing `comm`: only by threads of the process itself.
pub(super) fn set_name(subject: &Subject, bytes: &[u8]) -> Result<()> {
    let thread = subject.thread()?;
    let caller = crate::terminal::calling_thread().ok_or(Error::Invalid)?;
    if caller.process().pid() != thread.process().pid() {
        return Err(Error::Invalid);
    }
    thread.set_name(bytes.strip_suffix(b"\n").unwrap_or(bytes));
    Ok(())
}

/// `cwd`
pub(super) fn current_directory(subject: &Subject) -> Result<Path> {
    let context = subject.thread()?.file_system().ok_or(Error::NotFound)?;
    Ok(context.places().cwd.clone())
}

/// `root`
pub(super) fn root(subject: &Subject) -> Result<Path> {
    let context = subject.thread()?.file_system().ok_or(Error::NotFound)?;
    Ok(context.places().root.clone())
}

/// `exe`
pub(super) fn executable(subject: &Subject) -> Result<Path> {
    subject.process()?.executable.lock().file.clone().ok_or(Error::NotFound)
}

/// `oom_score`
pub(super) fn oom_score(subject: &Subject, out: &mut Text) -> Result<()> {
    let process = subject.process()?;
    let used = process.address_space().map_or(0, |space| space.badness_bytes());
    let total = crate::memory::totals().total_bytes.max(1);
    let _ = writeln!(out, "{}", used.saturating_mul(1000) / total);
    Ok(())
}

/// `oom_score_adj`
pub(super) fn oom_adjustment(subject: &Subject, out: &mut Text) -> Result<()> {
    let _ = writeln!(out, "{}", subject.process()?.oom_adjustment.load(Ordering::Relaxed));
    Ok(())
}

/// Writing `oom_score_adj`; lowering it needs CAP_SYS_RESOURCE.
pub(super) fn set_oom_adjustment(subject: &Subject, bytes: &[u8]) -> Result<()> {
    let text = core::str::from_utf8(bytes).map_err(|_| Error::Invalid)?;
    let wanted: i16 = text.trim().parse().map_err(|_| Error::Invalid)?;
    if !(-1000..=1000).contains(&wanted) {
        return Err(Error::Invalid);
    }
    let process = subject.process()?;
    let caller = crate::terminal::calling_thread().ok_or(Error::Invalid)?;
    let lowers = wanted < process.oom_adjustment.load(Ordering::Relaxed);
    if lowers && !caller.credentials().has(vfs::Capabilities::SYS_RESOURCE) {
        return Err(Error::AccessDenied);
    }
    process.oom_adjustment.store(wanted, Ordering::Relaxed);
    Ok(())
}

/// The letter and word of a state.
fn state_of(process: &Process, thread: Option<&Thread>) -> (char, &'static str) {
    match process.state() {
        State::Zombie => return ('Z', "zombie"),
        State::Dead => return ('X', "dead"),
        State::Running => {}
    }
    let Some(thread) = thread else { return ('S', "sleeping") };
    if thread.stopped.load(Ordering::Relaxed) {
        return ('T', "stopped");
    }
    match thread.kernel_thread().map(|kernel| kernel.state()) {
        Some(RunState::Running) => ('R', "running"),
        Some(RunState::Uninterruptible) => ('D', "disk sleep"),
        _ => ('S', "sleeping"),
    }
}

/// `stat`
#[inline(never)]
pub(super) fn stat(subject: &Subject, out: &mut Text) -> Result<()> {
    let process = subject.process()?;
    let thread = subject.thread().ok();
    let executable = process.executable.lock().clone();
    let usage = process.address_space().map(|space| space.usage()).unwrap_or_default();
    let page = machine::address::PAGE_SIZE as u64;
    let (user_ns, system_ns) = match (&thread, subject.is_thread()) {
        (Some(thread), true) => {
            let runtime = thread.kernel_thread().map(|kernel| kernel.runtime()).unwrap_or_default();
            (runtime.user_ns, runtime.system_ns())
        }
        _ => process.cpu_time_ns(),
    };
    let children = process.children.lock().usage;
    let group = process.group();
    let (terminal, foreground) = crate::terminal::numbers_of(group.session());
    let kernel = thread.as_ref().and_then(|thread| thread.kernel_thread());
    let nice = kernel.map_or(0, |kernel| kernel.nice().value());
    let policy = kernel.map(|kernel| kernel.policy());
    let real_time =
        policy.filter(|policy| policy.is_realtime()).map_or(0, |policy| i32::from(policy.priority()));
    let priority = if real_time > 0 { -1 - real_time } else { 20 + nice };
    let ticks = |time: crate::abi::Timeval| time.to_ns().unwrap_or(0) / NS_PER_TICK;
    let number = thread.as_ref().filter(|_| subject.is_thread()).map_or(process.pid(), |thread| thread.tid());

    let _ = write!(out, "{number} (");
    out.push_bytes(trimmed(&name_of(subject)?));
    let _ = write!(
        out,
        ") {} {} {} {} {terminal} {foreground} 0 0 0 0 0 {} {} {} {} {priority} {nice} {} 0 {} {} {} {} ",
        state_of(&process, thread.as_deref()).0,
        process.parent_pid(),
        group.id(),
        group.session().id(),
        user_ns / NS_PER_TICK,
        system_ns / NS_PER_TICK,
        ticks(children.user_time),
        ticks(children.system_time),
        process.thread_count(),
        process.start_ns() / NS_PER_TICK,
        usage.mapped_pages * page,
        usage.private_pages + usage.file_pages + usage.shared_memory_pages,
        process.limit(limits::Resource::ResidentSet),
    );
    let shared = process.signals.lock().pending.set();
    let pending = thread.as_ref().map_or(shared, |thread| shared | thread.pending.lock().set());
    let actions = process.actions();
    let shown = subject.check_access().is_ok();
    let address = |address: u64| if shown { address } else { 0 };
    let _ = writeln!(
        out,
        "{} {} {} 0 0 {} {} {} {} 0 0 0 17 {} {real_time} {} 0 0 0 {} {} {} {} {} {} {} {}",
        address(executable.code.0),
        address(executable.code.1),
        address(executable.start_stack),
        pending.bits() & 0x7fff_ffff,
        thread.as_ref().map_or(0, |thread| thread.blocked().bits()) & 0x7fff_ffff,
        actions.explicitly_ignored().bits() & 0x7fff_ffff,
        actions.caught().bits() & 0x7fff_ffff,
        kernel.map_or(0, |kernel| kernel.cpu().index()),
        policy.map_or(0, crate::scheduling::number_of),
        address(executable.data.0),
        address(executable.data.1),
        address(executable.start_break),
        address(executable.arguments.0),
        address(executable.arguments.1),
        address(executable.environment.0),
        address(executable.environment.1),
        if shown { process.exit_status.load(Ordering::Relaxed) } else { 0 },
    );
    Ok(())
}

/// `status`
#[inline(never)]
pub(super) fn status(subject: &Subject, out: &mut Text) -> Result<()> {
    let process = subject.process()?;
    let thread = subject.thread().ok();
    let credentials = process.credentials();
    let _ = out.write_str("Name:\t");
    out.push_bytes(trimmed(&name_of(subject)?));
    let (letter, word) = state_of(&process, thread.as_deref());
    let tid = thread.as_ref().filter(|_| subject.is_thread()).map_or(process.pid(), |thread| thread.tid());
    let umask =
        thread.as_ref().and_then(|thread| thread.file_system()).map_or(0o22, |context| context.umask());
    let _ = write!(
        out,
        "\nUmask:\t{umask:04o}\nState:\t{letter} ({word})\nTgid:\t{}\nNgid:\t0\nPid:\t{tid}\nPPid:\t{}\nTracerPid:\t0\n",
        process.pid(),
        process.parent_pid(),
    );
    let (user, group, file) = (&credentials.user, &credentials.group, &credentials.file);
    let _ = writeln!(out, "Uid:\t{}\t{}\t{}\t{}", user.real, user.effective, user.saved, file.user);
    let _ = writeln!(out, "Gid:\t{}\t{}\t{}\t{}", group.real, group.effective, group.saved, file.group);
    let size = thread.as_ref().and_then(|thread| thread.files()).map_or(0, |files| files.size());
    let _ = write!(out, "FDSize:\t{size}\nGroups:\t");
    for group in file.groups.as_deref().unwrap_or(&[]) {
        let _ = write!(out, "{group} ");
    }
    let _ = writeln!(
        out,
        "\nNStgid:\t{0}\nNSpid:\t{tid}\nNSpgid:\t{1}\nNSsid:\t{2}",
        process.pid(),
        process.group().id(),
        process.group().session().id()
    );
    if let Some(space) = process.address_space() {
        super::maps::memory_status(&space, out);
    }
    signal_status(&process, thread.as_deref(), out);
    let secure = credentials.no_new_privileges;
    let _ = write!(
        out,
        "CapInh:\t{:016x}\nCapPrm:\t{:016x}\nCapEff:\t{:016x}\nCapBnd:\t{:016x}\nCapAmb:\t{:016x}\nNoNewPrivs:\t{}\nSeccomp:\t0\n",
        credentials.inheritable.bits(),
        credentials.permitted.bits(),
        file.capabilities.bits(),
        credentials.bounding.bits(),
        credentials.ambient.bits(),
        u8::from(secure),
    );
    let cpus = machine::cpu::online();
    let allowed =
        thread.as_ref().and_then(|thread| thread.kernel_thread()).map_or(cpus, |kernel| kernel.affinity());
    let allowed = allowed.intersection(cpus);
    let _ = write!(out, "Cpus_allowed:\t{:x}\nCpus_allowed_list:\t", allowed.bits());
    super::processors::write_cpu_list(allowed, out);
    let switches =
        thread.as_ref().and_then(|thread| thread.kernel_thread()).map_or(0, |kernel| kernel.switches());
    let _ = write!(
        out,
        "\nMems_allowed:\t1\nMems_allowed_list:\t0\nvoluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t0\n"
    );
    Ok(())
}

fn signal_status(process: &Process, thread: Option<&Thread>, out: &mut Text) {
    let (queued, shared) = {
        let signals = process.signals.lock();
        (signals.pending.queued(), signals.pending.set().bits())
    };
    let own = thread.map_or(0, |thread| thread.pending.lock().set().bits());
    let actions = process.actions();
    let _ = write!(
        out,
        "Threads:\t{}\nSigQ:\t{}/{}\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{:016x}\nSigIgn:\t{:016x}\nSigCgt:\t{:016x}\n",
        process.thread_count(),
        queued,
        process.limit(limits::Resource::PendingSignals),
        thread.map_or(0, |thread| thread.blocked().bits()),
        actions.explicitly_ignored().bits(),
        actions.caught().bits(),
    );
}

/// `limits`
pub(super) fn limits(subject: &Subject, out: &mut Text) -> Result<()> {
    const NAMES: [(&str, &str); limits::COUNT] = [
        ("Max cpu time", "seconds"),
        ("Max file size", "bytes"),
        ("Max data size", "bytes"),
        ("Max stack size", "bytes"),
        ("Max core file size", "bytes"),
        ("Max resident set", "bytes"),
        ("Max processes", "processes"),
        ("Max open files", "files"),
        ("Max locked memory", "bytes"),
        ("Max address space", "bytes"),
        ("Max file locks", "locks"),
        ("Max pending signals", "signals"),
        ("Max msgqueue size", "bytes"),
        ("Max nice priority", ""),
        ("Max realtime priority", ""),
        ("Max realtime timeout", "us"),
    ];
    let all = subject.process()?.limits();
    let _ = writeln!(out, "{:<25} {:<20} {:<20} {:<10}", "Limit", "Soft Limit", "Hard Limit", "Units");
    for ((name, unit), limit) in NAMES.iter().zip(all) {
        let _ = write!(out, "{name:<25} ");
        for value in [limit.current, limit.maximum] {
            let _ = match value {
                limits::INFINITY => write!(out, "{:<20} ", "unlimited"),
                value => write!(out, "{value:<20} "),
            };
        }
        let _ = writeln!(out, "{unit:<10}");
    }
    Ok(())
}
