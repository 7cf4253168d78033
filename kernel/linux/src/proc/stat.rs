//! `stat`: a process (or thread) in one line of 52 fields, and `statm` and `schedstat`.

use core::fmt::Write;
use core::sync::atomic::Ordering;

use machine::address::PAGE_SIZE;
use memory::address_space::Usage;
use vfs::Result;
use vfs::text::Text;

use super::entries::{name_of, state_of, trimmed};
use super::process::Subject;
use crate::name_space::{self, Shifted};
use crate::process::limits::Resource;
use crate::process::process::{Executable, Process};
use crate::process::thread::Thread;
use crate::time::NS_PER_TICK;

/// `PF_RANDOMIZE`: addresses are random.
const FLAG_RANDOMIZE: u32 = 0x0040_0000;
/// `PF_FORKNOEXEC`: it has not executed a program since it was made.
const FLAG_NO_EXEC: u32 = 0x40;
/// What is shown of signal sets: the standard signals.
const STANDARD_SIGNALS: u64 = 0x7fff_ffff;

/// The priority that `stat` shows as 0, in `sched`.
const PRIORITY_BASE: i32 = 100;

/// CPU time in user mode and in the kernel, in ticks.
#[derive(Clone, Copy, Default)]
struct Ticks {
    user: u64,
    system: u64,
}

/// How it competes for a processor.
#[derive(Clone, Copy)]
struct Competition {
    nice: i32,
    real_time: u8,
    /// With what others lend it.
    priority: i32,
    policy: u32,
    processor: usize,
}

impl Competition {
    /// That of what has no thread.
    const ORDINARY: Competition =
        Competition { nice: 0, real_time: 0, priority: 20, policy: 0, processor: 0 };
}

/// Signals as far as they are shown.
#[derive(Clone, Copy, Default)]
struct Signals {
    pending: u64,
    blocked: u64,
    ignored: u64,
    caught: u64,
}

/// The line.
struct Line<'a> {
    number: u32,
    name: &'a [u8],
    state: char,
    parent: u32,
    group: u32,
    session: u32,
    terminal: u64,
    foreground: i64,
    flags: u32,
    /// Page faults: its own, and of children waited for. None needs a device.
    faults: (u64, u64),
    own: Ticks,
    children: Ticks,
    competition: Competition,
    threads: usize,
    start_ticks: u64,
    mapped_bytes: u64,
    resident_pages: u64,
    resident_limit: u64,
    signals: Signals,
    exit_signal: u8,
    /// `None` for those who may not look into the process.
    inside: Option<(&'a Executable, u32)>,
}

impl Line<'_> {
    /// Faults that need a device, wait channel and current registers are not kept: they are shown as 0.
    fn write(&self, out: &mut Text) {
        let _ = write!(out, "{} (", self.number);
        out.push_bytes(self.name);
        let priority = self.competition.priority;
        let _ = write!(
            out,
            ") {} {} {} {} {} {} {} {} {} 0 0 {} {} {} {} {priority} {} {} 0 {} {} {} {}",
            self.state,
            self.parent,
            self.group,
            self.session,
            self.terminal,
            self.foreground,
            self.flags,
            self.faults.0,
            self.faults.1,
            self.own.user,
            self.own.system,
            self.children.user,
            self.children.system,
            self.competition.nice,
            self.threads,
            self.start_ticks,
            self.mapped_bytes,
            self.resident_pages,
            self.resident_limit,
        );
        match self.inside {
            Some((executable, _)) => {
                let (code, stack) = (executable.code, executable.start_stack);
                let _ = write!(out, " {} {} {stack} 0 0", code.0, code.1);
            }
            // Linux hides addresses so: 1, as if there were a program, and no stack.
            None => {
                let _ = out.write_str(" 1 1 0 0 0");
            }
        }
        let signals = self.signals;
        for set in [signals.pending, signals.blocked, signals.ignored, signals.caught] {
            let _ = write!(out, " {}", set & STANDARD_SIGNALS);
        }
        let Competition { processor, real_time, policy, .. } = self.competition;
        let _ = write!(out, " 0 0 0 {} {processor} {real_time} {policy} 0 0 0", self.exit_signal);
        match self.inside {
            Some((executable, exit_status)) => {
                for address in [
                    executable.data.0,
                    executable.data.1,
                    executable.start_break,
                    executable.arguments.0,
                    executable.arguments.1,
                    executable.environment.0,
                    executable.environment.1,
                ] {
                    let _ = write!(out, " {address}");
                }
                let _ = writeln!(out, " {exit_status}");
            }
            None => {
                let _ = out.write_str(" 0 0 0 0 0 0 0 0\n");
            }
        }
    }
}

/// Pages in memory.
pub(super) fn resident(usage: &Usage) -> u64 {
    usage.private_pages + usage.file_pages + usage.shared_memory_pages
}

fn own_ticks(subject: &Subject, process: &Process, thread: Option<&Thread>) -> Ticks {
    let (user_ns, system_ns) = match thread.filter(|_| subject.is_thread()).and_then(Thread::kernel_thread) {
        Some(kernel) => {
            let runtime = kernel.runtime();
            (runtime.user_ns, runtime.system_ns())
        }
        None => process.cpu_time_ns(),
    };
    Ticks { user: user_ns / NS_PER_TICK, system: system_ns / NS_PER_TICK }
}

fn faults(subject: &Subject, process: &Process, thread: Option<&Thread>) -> (u64, u64) {
    let own = match thread.filter(|_| subject.is_thread()) {
        Some(thread) => thread.faults(),
        None => process.faults(),
    };
    (own, process.children.lock().usage.minor_faults as u64)
}

fn children_ticks(process: &Process) -> Ticks {
    let usage = process.children.lock().usage;
    let ticks = |time: crate::abi::Timeval| time.to_ns().unwrap_or(0) / NS_PER_TICK;
    Ticks { user: ticks(usage.user_time), system: ticks(usage.system_time) }
}

fn competition(thread: Option<&Thread>) -> Competition {
    let Some(kernel) = thread.and_then(Thread::kernel_thread) else { return Competition::ORDINARY };
    let policy = kernel.policy();
    Competition {
        nice: kernel.nice().value(),
        real_time: crate::scheduling::priority_of(policy) as u8,
        priority: match kernel.effective_policy().priority() {
            0 => 20 + kernel.effective_nice().value(),
            real_time => -1 - i32::from(real_time),
        },
        policy: crate::scheduling::number_of(policy),
        processor: kernel.cpu().index(),
    }
}

fn signals(process: &Process, thread: Option<&Thread>) -> Signals {
    let shared = process.signals.lock().pending.set();
    let own = thread.map_or(shared, |thread| shared | thread.pending.lock().set());
    let actions = process.actions();
    Signals {
        pending: own.bits(),
        blocked: thread.map_or(0, |thread| thread.blocked().bits()),
        ignored: actions.explicitly_ignored().bits(),
        caught: actions.caught().bits(),
    }
}

/// `stat`
#[inline(never)]
pub(super) fn stat(subject: &Subject, out: &mut Text) -> Result<()> {
    let process = subject.process()?;
    let thread = subject.shown_thread().ok().flatten();
    let thread = thread.as_deref();
    let usage = process.address_space().map(|space| space.usage()).unwrap_or_default();
    let group = process.group();
    let (terminal, foreground) = crate::terminal::numbers_of(group.session());
    let executable = subject.inspect(|| Ok(process.executable.lock().clone()));
    let name = name_of(subject)?;
    let offset_ns = name_space::clock_offset_of_reader(Shifted::BootTime);
    let ran_program = process.did_exec.load(Ordering::Relaxed);
    let exit_status = process.exit_status.load(Ordering::Relaxed);
    Line {
        number: subject.number()?,
        name: trimmed(&name),
        state: state_of(&process, thread).0,
        parent: subject.seen(process.parent_pid()),
        group: subject.seen(group.id()),
        session: subject.seen(group.session().id()),
        terminal,
        foreground: if foreground > 0 { subject.seen(foreground as u32).into() } else { foreground },
        flags: if ran_program { FLAG_RANDOMIZE } else { FLAG_RANDOMIZE | FLAG_NO_EXEC },
        faults: faults(subject, &process, thread),
        own: own_ticks(subject, &process, thread),
        children: children_ticks(&process),
        competition: competition(thread),
        threads: process.visible_threads(),
        start_ticks: process.start_ns().wrapping_add_signed(offset_ns) / NS_PER_TICK,
        mapped_bytes: usage.mapped_pages * PAGE_SIZE as u64,
        resident_pages: resident(&usage),
        resident_limit: process.limit(Resource::ResidentSet),
        signals: signals(&process, thread),
        exit_signal: process.kinship.lock().exit_signal,
        inside: executable.as_ref().ok().map(|executable| (executable, exit_status)),
    }
    .write(out);
    Ok(())
}

/// `statm`
pub(super) fn memory_pages(subject: &Subject, out: &mut Text) -> Result<()> {
    let usage = subject.process()?.address_space().map(|space| space.usage()).unwrap_or_default();
    write_pages(&usage, out);
    Ok(())
}

fn write_pages(usage: &Usage, out: &mut dyn Write) {
    let _ = writeln!(
        out,
        "{} {} {} {} 0 {} 0",
        usage.mapped_pages,
        resident(usage),
        usage.file_pages + usage.shared_memory_pages,
        usage.code_pages,
        usage.data_pages + usage.stack_pages,
    );
}

/// `schedstat`: time on processors, time waiting for one (not measured: 0), how often it was switched to.
pub(super) fn scheduling(subject: &Subject, out: &mut Text) -> Result<()> {
    let thread = subject.thread()?;
    let kernel = thread.kernel_thread();
    let (runtime_ns, switches) =
        kernel.map_or((0, 0), |kernel| (kernel.runtime().total_ns, kernel.switches()));
    let _ = writeln!(out, "{runtime_ns} 0 {switches}");
    Ok(())
}

/// `sched`: what the scheduler has counted of a thread, and by what it chooses it. Averages of its load are not kept.
pub(super) fn scheduler_counts(subject: &Subject, out: &mut Text) -> Result<()> {
    let thread = subject.thread()?;
    let name = thread.name();
    out.push_bytes(trimmed(&name));
    let _ = writeln!(out, " ({}, #threads: {})", subject.number()?, subject.process()?.thread_count());
    let _ = writeln!(out, "{:-<67}", "");
    let Some(kernel) = thread.kernel_thread() else { return Ok(()) };
    let runtime_ns = kernel.runtime().total_ns;
    let (milliseconds, rest_ns) = (runtime_ns / 1_000_000, runtime_ns % 1_000_000);
    let _ = writeln!(out, "{:<45}:{milliseconds:>14}.{rest_ns:06}", "se.sum_exec_runtime");
    let (all, voluntary) = (kernel.switches(), kernel.voluntary_switches());
    let competition = competition(Some(&thread));
    for (name, value) in [
        ("nr_switches", all),
        ("nr_voluntary_switches", voluntary),
        ("nr_involuntary_switches", all.saturating_sub(voluntary)),
        ("policy", competition.policy.into()),
    ] {
        let _ = writeln!(out, "{name:<45}:{value:>21}");
    }
    let _ = writeln!(out, "{:<45}:{:>21}", "prio", PRIORITY_BASE + competition.priority);
    if let Some((budget_ns, deadline_ns)) = kernel.budget_and_deadline_ns() {
        let _ = writeln!(out, "{:<45}:{budget_ns:>21}", "dl.runtime");
        let _ = writeln!(out, "{:<45}:{deadline_ns:>21}", "dl.deadline");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(executable: Option<&Executable>) -> Text {
        let mut out = Text::new();
        Line {
            number: 8866,
            name: b"a (b) c",
            state: 'R',
            parent: 8864,
            group: 8864,
            session: 327,
            terminal: 34816,
            foreground: 8866,
            flags: FLAG_RANDOMIZE,
            faults: (7, 9),
            own: Ticks { user: 3, system: 4 },
            children: Ticks { user: 5, system: 6 },
            competition: Competition { nice: -5, real_time: 0, priority: 15, policy: 0, processor: 1 },
            threads: 2,
            start_ticks: 696_863,
            mapped_bytes: 3_133_440,
            resident_pages: 408,
            resident_limit: u64::MAX,
            signals: Signals { pending: 1 << 40 | 2, blocked: 4, ignored: 8, caught: 16 },
            exit_signal: 17,
            inside: executable.map(|executable| (executable, 0)),
        }
        .write(&mut out);
        out
    }

    #[test]
    fn the_line_is_that_of_linux() {
        let executable = Executable {
            code: (4096, 8192),
            data: (12_288, 16_384),
            start_break: 20_480,
            start_stack: 99_999,
            arguments: (1, 2),
            environment: (3, 4),
            ..Executable::default()
        };
        let text = line(Some(&executable));
        let expected = "8866 (a (b) c) R 8864 8864 327 34816 8866 4194304 7 9 0 0 3 4 5 6 15 -5 2 0 696863 3133440 408 \
                        18446744073709551615 4096 8192 99999 0 0 2 4 8 16 0 0 0 17 1 0 0 0 0 0 12288 16384 20480 1 2 3 4 0\n";
        assert_eq!(core::str::from_utf8(text.as_bytes()), Ok(expected));
    }

    #[test]
    fn there_are_52_fields_whoever_looks() {
        let fields = |text: Text| {
            let text = core::str::from_utf8(text.as_bytes()).expect("plain text").replace("a (b) c", "name");
            text.split_whitespace().count()
        };
        assert_eq!(fields(line(None)), 52);
        assert_eq!(fields(line(Some(&Executable::default()))), 52);
    }

    #[test]
    fn pages_are_in_the_order_of_linux() {
        let usage = Usage {
            mapped_pages: 765,
            private_pages: 28,
            file_pages: 400,
            shared_memory_pages: 8,
            code_pages: 5,
            data_pages: 90,
            stack_pages: 33,
            ..Usage::default()
        };
        let mut text = alloc::string::String::new();
        write_pages(&usage, &mut text);
        assert_eq!(text, "765 436 408 5 0 123 0\n");
    }
}
