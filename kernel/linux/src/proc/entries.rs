//! The text files of a process's directory (proc(5)).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::Ordering;

use machine::address::UserAddr;
use sched::RunState;
use vfs::text::Text;
use vfs::{Error, Result};
use zerocopy::IntoBytes;

use super::process::Subject;
use crate::abi::ResourceLimit;
use crate::process::limits;
use crate::process::process::{Process, State};
use crate::process::thread::Thread;

/// Bytes of arguments or environment that are shown at most: what execve accepts.
const STRINGS_MAX: u64 = 6 << 20;

/// A name without its padding.
pub(crate) fn trimmed(name: &[u8]) -> &[u8] {
    &name[..name.iter().position(|&byte| byte == 0).unwrap_or(name.len())]
}

/// Copies what the program has in its own memory. What it has mapped there instead of its strings is not looked at: it could be a file whose server never answers,
/// and who lists processes would wait for it.
fn copy_memory(process: &Process, range: (u64, u64), out: &mut Text) -> Result<()> {
    let Some(space) = process.address_space() else { return Ok(()) };
    let mut at = range.0;
    let end = range.1.min(range.0.saturating_add(STRINGS_MAX));
    let mut chunk: Vec<u8> = vfs::allocation::filled(0, 512)?;
    while at < end {
        let wanted = (end - at).min(chunk.len() as u64) as usize;
        match space.read_own(UserAddr::new(at), &mut chunk[..wanted]) {
            0 => break,
            count => {
                out.push_bytes(&chunk[..count]);
                at += count as u64;
            }
        }
    }
    Ok(())
}

/// `cmdline`. A program that has overwritten the end of its arguments shows a name of its own, which may reach into
/// the environment and ends at the first NUL (setproctitle(3)).
pub(super) fn command_line(subject: &Subject, out: &mut Text) -> Result<()> {
    let process = subject.process()?;
    let (arguments, environment) = {
        let executable = process.executable.lock();
        (executable.arguments, executable.environment)
    };
    copy_memory(&process, arguments, out)?;
    if ends_beyond(&process, arguments) {
        let mut all = core::mem::take(out);
        if environment.0 == arguments.1 {
            copy_memory(&process, environment, &mut all)?;
        }
        let bytes = all.finish()?;
        let end = bytes.iter().position(|&byte| byte == 0).map_or(bytes.len(), |nul| nul + 1);
        out.push_bytes(&bytes[..end]);
    }
    Ok(())
}

/// Whether a program has overwritten the NUL at the end of its strings.
fn ends_beyond(process: &Process, strings: (u64, u64)) -> bool {
    let (Some(space), true) = (process.address_space(), strings.0 < strings.1) else { return false };
    let mut last = [0];
    space.read_own(UserAddr::new(strings.1 - 1), &mut last) == 1 && last != [0]
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
    let (range, own) = {
        let executable = process.executable.lock();
        (executable.auxiliary, executable.own_auxiliary.clone())
    };
    match own {
        Some(own) => {
            out.push_bytes(own.shown().as_bytes());
            Ok(())
        }
        None => copy_memory(&process, range, out),
    }
}

/// `lcount`: how many locks the reading thread has taken, whoever's file it is; empty where they are not counted.
pub(super) fn locks_taken(_subject: &Subject, out: &mut Text) -> Result<()> {
    let _ = sync::classes::write_taken(out);
    Ok(())
}

/// `cgroup`
pub(super) fn control_group(subject: &Subject, out: &mut Text) -> Result<()> {
    crate::control_group::show(&*subject.process()?, out)
}

pub(super) fn name_of(subject: &Subject) -> Result<[u8; crate::process::thread::NAME_BYTES]> {
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

/// `oom_score`: two thirds of what the policy compares, in thousandths of memory, above 1000.
pub(super) fn oom_score(subject: &Subject, out: &mut Text) -> Result<()> {
    let process = subject.process()?;
    let used = process.address_space().map(|space| space.badness_bytes());
    let adjustment = process.oom_adjustment.load(Ordering::Relaxed);
    let score = used.map_or(0, |used| score(used, adjustment, crate::memory::totals().total_bytes));
    let _ = writeln!(out, "{score}");
    Ok(())
}

fn score(used_bytes: u64, adjustment: i16, total_bytes: u64) -> i64 {
    if adjustment == -1000 {
        return 0;
    }
    let share = (u128::from(used_bytes) * 1000 / u128::from(total_bytes.max(1))) as i64;
    (1000 + share + i64::from(adjustment)).max(0) * 2 / 3
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

/// Whether the caller may see and change how late another thread's timers may be.
fn check_slack(subject: &Subject) -> Result<Arc<Thread>> {
    let thread = subject.thread()?;
    match crate::terminal::calling_thread() {
        Some(caller)
            if !Arc::ptr_eq(&caller, &thread) && !caller.credentials().has(vfs::Capabilities::SYS_NICE) =>
        {
            Err(Error::NotPermitted)
        }
        _ => Ok(thread),
    }
}

/// `timerslack_ns`
pub(super) fn timer_slack(subject: &Subject, out: &mut Text) -> Result<()> {
    let _ = writeln!(out, "{}", check_slack(subject)?.timer_slack_ns());
    Ok(())
}

/// Changes it; 0: the usual.
pub(super) fn set_timer_slack(subject: &Subject, bytes: &[u8]) -> Result<()> {
    let text = core::str::from_utf8(bytes).map_err(|_| Error::Invalid)?;
    let wanted = text.trim().parse().map_err(|_| Error::Invalid)?;
    let thread = check_slack(subject)?;
    thread.set_timer_slack_ns(if wanted == 0 { crate::prctl::DEFAULT_SLACK_NS } else { wanted });
    Ok(())
}

/// `oom_adj`: the adjustment on the scale that it had before, -17 to 15.
pub(super) fn old_oom_adjustment(subject: &Subject, out: &mut Text) -> Result<()> {
    let adjustment = subject.process()?.oom_adjustment.load(Ordering::Relaxed);
    let _ = writeln!(out, "{}", on_old_scale(adjustment));
    Ok(())
}

fn on_old_scale(adjustment: i16) -> i32 {
    if adjustment == 1000 { 15 } else { i32::from(adjustment) * 17 / 1000 }
}

/// `coredump_filter`: what a core dump has of the process's memory.
pub(super) fn core_dump_filter(subject: &Subject, out: &mut Text) -> Result<()> {
    let filter = subject.process()?.core_filter.load(Ordering::Relaxed);
    let _ = writeln!(out, "{filter:08x}");
    Ok(())
}

/// Changes it.
pub(super) fn set_core_dump_filter(subject: &Subject, bytes: &[u8]) -> Result<()> {
    const KNOWN: u32 = 0x1ff;
    let text = core::str::from_utf8(bytes).map_err(|_| Error::Invalid)?.trim();
    let value = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None if text.len() > 1 && text.starts_with('0') => u32::from_str_radix(text, 8),
        None => text.parse(),
    };
    let value = value.map_err(|_| Error::Invalid)?;
    subject.process()?.core_filter.store(value & KNOWN, Ordering::Relaxed);
    Ok(())
}

/// The letter and word of a state.
pub(super) fn state_of(process: &Process, thread: Option<&Thread>) -> (char, &'static str) {
    match process.state() {
        State::Zombie => return ('Z', "zombie"),
        State::Dead => return ('X', "dead"),
        State::Running => {}
    }
    // Process 1 has no threads; of others that run, the leader may have ended before the rest.
    let Some(thread) = thread else {
        return if process.thread_count() == 0 { ('S', "sleeping") } else { ('Z', "zombie") };
    };
    if thread.stands.load(Ordering::Relaxed) {
        return ('t', "tracing stop");
    }
    if thread.stopped.load(Ordering::Relaxed) {
        return ('T', "stopped");
    }
    match thread.kernel_thread().map(|kernel| kernel.state()) {
        Some(RunState::Running) => ('R', "running"),
        Some(RunState::Uninterruptible) => ('D', "disk sleep"),
        _ => ('S', "sleeping"),
    }
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
    write_limits(&NAMES, &all, out);
    Ok(())
}

fn write_limits(names: &[(&str, &str)], limits: &[ResourceLimit], out: &mut dyn Write) {
    let _ = writeln!(out, "{:<25} {:<20} {:<20} {:<10}", "Limit", "Soft Limit", "Hard Limit", "Units");
    for ((name, unit), limit) in names.iter().zip(limits) {
        let _ = write!(out, "{name:<25} ");
        for value in [limit.current, limit.maximum] {
            let _ = match value {
                limits::INFINITY => write!(out, "{:<20} ", "unlimited"),
                value => write!(out, "{value:<20} "),
            };
        }
        let _ = match *unit {
            "" => out.write_str("\n"),
            unit => writeln!(out, "{unit:<10}"),
        };
    }
}

/// `children`, of the leader's directory: all children are counted as its own.
pub(super) fn children(subject: &Subject, out: &mut Text) -> Result<()> {
    let process = subject.process()?;
    if subject.kernel_number()? != process.pid() {
        return Ok(());
    }
    let mut pids = Vec::new();
    loop {
        let wanted = process.children.lock().list.len();
        vfs::allocation::reserve_total(&mut pids, wanted)?;
        let children = process.children.lock();
        if children.list.len() <= pids.capacity() {
            pids.extend(children.list.iter().map(|child| child.pid()));
            break;
        }
    }
    for pid in pids.into_iter().map(|pid| subject.seen(pid)) {
        let _ = write!(out, "{pid} ");
    }
    Ok(())
}

/// A file in which nothing is: `arch_status`, which tells of AVX-512, and `autogroup`, where sessions share no processors among each other.
pub(super) fn nothing(subject: &Subject, _out: &mut Text) -> Result<()> {
    subject.process().map(|_| ())
}

/// `cpuset`: there is one set of processors.
pub(super) fn processor_set(subject: &Subject, out: &mut Text) -> Result<()> {
    subject.process()?;
    let _ = out.write_str("/\n");
    Ok(())
}

/// `loginuid` and `sessionid`: nobody has logged in.
pub(super) fn no_login(_subject: &Subject, out: &mut Text) -> Result<()> {
    let _ = write!(out, "{}", u32::MAX);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn limits_are_a_table_of_four_columns() {
        let names = [("Max stack size", "bytes"), ("Max nice priority", "")];
        let limit = |current, maximum| ResourceLimit { current, maximum };
        let mut text = String::new();
        write_limits(&names, &[limit(8_388_608, limits::INFINITY), limit(0, 0)], &mut text);
        assert_eq!(
            text,
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max stack size            8388608              unlimited            bytes     \n\
             Max nice priority         0                    0                    \n"
        );
    }

    #[test]
    fn scores_grow_with_use_and_adjustment() {
        assert_eq!(score(0, 0, 1 << 30), 666);
        assert_eq!(score(1 << 29, 0, 1 << 30), 1000);
        assert_eq!(score(0, 1000, 1 << 30), 1333);
        assert_eq!(score(0, -999, 1 << 30), 0);
        assert_eq!(score(1 << 30, -1000, 1 << 30), 0);
    }

    #[test]
    fn the_old_scale_ends_at_15_and_17() {
        assert_eq!([1000, 999, 500, 0, -500, -1000].map(on_old_scale), [15, 16, 8, 0, -8, -17]);
    }

    #[test]
    fn names_lose_their_padding() {
        assert_eq!(trimmed(b"sh\0\0"), b"sh");
        assert_eq!(trimmed(b"full"), b"full");
    }
}
