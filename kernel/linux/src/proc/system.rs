//! The files in the root of /proc: the state of the system.

use alloc::sync::Arc;
use core::fmt::Write;

use machine::cpu::{self, CpuSet};
use vfs::generated::{Link, Node};
use vfs::inode::LinkTarget;
use vfs::text::Text;
use vfs::{Error, Result};

use super::process::Processes;
use crate::process::table;
use crate::terminal::calling_thread;
use crate::time::NS_PER_TICK;

const SECOND_NS: u64 = crate::abi::NANOSECONDS;

/// Fills /proc. Once, at start-up.
///
/// # Errors
/// `ENOMEM`.
pub fn register() -> Result<()> {
    static PROCESSES: Processes = Processes;
    procfs::set_process_source(&PROCESSES);
    procfs::add("self", Node::link(vfs::allocation::arc(Caller { thread: false })?))?;
    procfs::add("thread-self", Node::link(vfs::allocation::arc(Caller { thread: true })?))?;
    procfs::add("mounts", Node::link(vfs::allocation::arc(|| vfs::allocation::arc_bytes(b"self/mounts"))?))?;
    procfs::add_text("cmdline", |out| written(writeln!(out, "{}", machine::boot::info().command_line)))?;
    procfs::add_text("cpuinfo", cpu_information)?;
    procfs::add_text("filesystems", file_systems)?;
    procfs::add_text("loadavg", load)?;
    procfs::add_text("meminfo", |out| written(memory::statistics::write_meminfo(out)))?;
    procfs::add_text("buddyinfo", |out| written(memory::statistics::write_buddyinfo(out)))?;
    procfs::add_text("vmstat", |out| written(memory::statistics::write_vmstat(out)))?;
    procfs::add_text("stat", statistics)?;
    procfs::add_text("uptime", uptime)?;
    procfs::add_text("version", version)?;
    procfs::add_text("starling/missing_syscalls", missing_calls)?;
    procfs::add_text("sys/kernel/hostname", |out| {
        written(writeln!(out, "{}", crate::identity::node_name()))
    })?;
    procfs::add_text("sys/kernel/osrelease", |out| written(writeln!(out, "{}", crate::identity::RELEASE)))?;
    procfs::add_text("sys/kernel/ostype", |out| written(out.write_str("Linux\n")))?;
    procfs::add_text("sys/kernel/version", |out| written(writeln!(out, "{}", crate::identity::version())))?;
    procfs::add_text("sys/kernel/pid_max", |out| written(writeln!(out, "{}", table::PID_MAX)))?;
    procfs::add_text("sys/kernel/cap_last_cap", |out| written(out.write_str("40\n")))?;
    procfs::add_text("sys/kernel/ngroups_max", |out| written(out.write_str("65536\n")))?;
    procfs::add_text("sys/fs/file-nr", |out| {
        let (open, maximum) = vfs::OpenFile::statistics();
        written(writeln!(out, "{open}\t0\t{maximum}"))
    })?;
    procfs::add_text("sys/fs/file-max", |out| written(writeln!(out, "{}", vfs::OpenFile::statistics().1)))?;
    procfs::add_text("sys/fs/nr_open", |out| {
        written(writeln!(out, "{}", crate::process::limits::OPEN_FILES_MAX))
    })?;
    procfs::add_text("sys/vm/overcommit_memory", |out| written(out.write_str("0\n")))?;
    procfs::add_text("sys/vm/max_map_count", |out| {
        written(writeln!(out, "{}", memory::address_space::MAX_REGIONS))
    })?;
    Ok(())
}

/// Text remembers when memory runs out; a failed write is no error of its own.
fn written(_result: core::fmt::Result) -> Result<()> {
    Ok(())
}

/// `self` and `thread-self`.
struct Caller {
    thread: bool,
}

impl Link for Caller {
    fn target(&self) -> Result<LinkTarget> {
        let thread = calling_thread().ok_or(Error::NotFound)?;
        let (pid, tid) = (thread.process().pid(), thread.tid());
        let text = match self.thread {
            true => alloc::format!("{pid}/task/{tid}"),
            false => alloc::format!("{pid}"),
        };
        let text: Arc<[u8]> = vfs::allocation::arc_bytes(text.as_bytes())?;
        Ok(LinkTarget::Text(text))
    }
}

/// Writes CPU numbers as ranges.
pub(super) fn write_cpu_list(cpus: CpuSet, out: &mut Text) {
    let mut range: Option<(usize, usize)> = None;
    let mut first = true;
    let mut flush = |range: (usize, usize), out: &mut Text| {
        let comma = if first { "" } else { "," };
        first = false;
        let _ = match range.0 == range.1 {
            true => write!(out, "{comma}{}", range.0),
            false => write!(out, "{comma}{}-{}", range.0, range.1),
        };
    };
    for cpu in cpus.iter().map(|cpu| cpu.index()) {
        range = match range {
            Some((start, end)) if end + 1 == cpu => Some((start, cpu)),
            Some(done) => {
                flush(done, out);
                Some((cpu, cpu))
            }
            None => Some((cpu, cpu)),
        };
    }
    if let Some(range) = range {
        flush(range, out);
    }
}

fn uptime(out: &mut Text) -> Result<()> {
    let hundredths = |ns: u64| (ns / SECOND_NS, ns % SECOND_NS / NS_PER_TICK);
    let idle = cpu::online().iter().map(|cpu| sched::statistics::cpu_time(cpu).idle_ns).sum();
    let (up, idle) = (hundredths(machine::time::now_ns()), hundredths(idle));
    written(writeln!(out, "{}.{:02} {}.{:02}", up.0, up.1, idle.0, idle.1))
}

fn load(out: &mut Text) -> Result<()> {
    let one = 1u64 << sched::statistics::LOAD_SHIFT;
    for load in sched::statistics::load_averages() {
        // Rounded to hundredths.
        let load = load + one / 200;
        let _ = write!(out, "{}.{:02} ", load / one, load % one * 100 / one);
    }
    written(writeln!(
        out,
        "{}/{} {}",
        sched::statistics::runnable(),
        table::thread_count(),
        table::last_pid()
    ))
}

fn version(out: &mut Text) -> Result<()> {
    let (release, version) = (crate::identity::RELEASE, crate::identity::version());
    written(writeln!(out, "Linux version {release} (starling) (rustc) {version}"))
}

fn file_systems(out: &mut Text) -> Result<()> {
    vfs::superblock::for_each_file_system(|file_system| {
        let _ = writeln!(out, "nodev\t{}", file_system.name());
    });
    Ok(())
}

fn statistics(out: &mut Text) -> Result<()> {
    let ticks = |ns: u64| ns / NS_PER_TICK;
    let line = |time: &sched::statistics::CpuTime, out: &mut Text| {
        let system = time.system_ns.saturating_sub(time.softirq_ns);
        let _ = writeln!(
            out,
            " {} 0 {} {} 0 0 {} 0 0 0",
            ticks(time.user_ns),
            ticks(system),
            ticks(time.idle_ns),
            ticks(time.softirq_ns),
        );
    };
    let mut total = sched::statistics::CpuTime::default();
    for cpu in cpu::online().iter() {
        let time = sched::statistics::cpu_time(cpu);
        total.user_ns += time.user_ns;
        total.system_ns += time.system_ns;
        total.idle_ns += time.idle_ns;
        total.softirq_ns += time.softirq_ns;
        total.switches += time.switches;
    }
    let _ = out.write_str("cpu ");
    line(&total, out);
    for cpu in cpu::online().iter() {
        let _ = write!(out, "cpu{}", cpu.index());
        line(&sched::statistics::cpu_time(cpu), out);
    }
    let boot = crate::time::clock::realtime_offset_ns() / SECOND_NS;
    written(write!(
        out,
        "intr 0\nctxt {}\nbtime {boot}\nprocesses {}\nprocs_running {}\nprocs_blocked {}\n",
        total.switches,
        table::forks(),
        sched::statistics::runnable(),
        sched::statistics::uninterruptible(),
    ))
}

fn cpu_information(out: &mut Text) -> Result<()> {
    let mhz = machine::time::cycles_per_second() / 1000;
    for cpu in cpu::online().iter() {
        let _ = write!(
            out,
            "processor\t: {}\nmodel name\t: x86-64\ncpu MHz\t\t: {}.{:03}\ncpu cores\t: 1\n\n",
            cpu.index(),
            mhz / 1000,
            mhz % 1000,
        );
    }
    Ok(())
}

fn missing_calls(out: &mut Text) -> Result<()> {
    for (number, count) in crate::table::missed() {
        let _ = writeln!(out, "{number} {count}");
    }
    Ok(())
}
