//! What the processors do: `stat`, `interrupts`, `softirqs`, `starling/interrupts`, `loadavg`, `uptime`.
//!
//! Counters of other processors are read while they count: sums may be off by what happens meanwhile, never by more.

use core::fmt::Write;

use device::interrupt::Source;
use machine::cpu;
use machine::interrupt;
use sched::statistics::CpuTime;
use sched::{softirq, starvation};
use sync::message_box::{self, Kind};
use vfs::Result;
use vfs::text::Text;

use crate::name_space::{self, Shifted};
use crate::process::table;
use crate::time::NS_PER_TICK;

const SECOND_NS: u64 = crate::abi::NANOSECONDS;
/// The lines of the old interrupt controllers come first among the vectors.
const ISA_LINES: u8 = 16;
/// The columns that programs expect in the `softirq` line, by the names of `/proc/softirqs`.
const SOFTIRQ_COLUMNS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// `uptime`
pub(super) fn uptime(out: &mut Text) -> Result<()> {
    let idle_ns = cpu::online().iter().map(|cpu| sched::statistics::cpu_time(cpu).idle_ns).sum();
    let offset_ns = name_space::clock_offset_of_reader(Shifted::BootTime);
    write_uptime(machine::time::now_ns().wrapping_add_signed(offset_ns), idle_ns, out);
    Ok(())
}

fn write_uptime(up_ns: u64, idle_ns: u64, out: &mut dyn Write) {
    let hundredths = |ns: u64| (ns / SECOND_NS, ns % SECOND_NS / NS_PER_TICK);
    let (up, idle) = (hundredths(up_ns), hundredths(idle_ns));
    let _ = writeln!(out, "{}.{:02} {}.{:02}", up.0, up.1, idle.0, idle.1);
}

/// `loadavg`
pub(super) fn load(out: &mut Text) -> Result<()> {
    let one = 1u64 << sched::statistics::LOAD_SHIFT;
    for load in sched::statistics::load_averages() {
        // Rounded to hundredths.
        let load = load + one / 200;
        let _ = write!(out, "{}.{:02} ", load / one, load % one * 100 / one);
    }
    let (runnable, threads) = (sched::statistics::runnable(), table::thread_count());
    let _ = writeln!(out, "{runnable}/{threads} {}", table::last_pid());
    Ok(())
}

/// One `cpu` line: user, nice, system, idle, waiting for devices, interrupts, softirqs, and three for guests. Time of niced
/// programs is part of the first column; interrupts belong to whoever they hit.
fn write_times(name: &str, number: Option<usize>, time: &CpuTime, out: &mut dyn Write) {
    let _ = match number {
        Some(number) => write!(out, "{name}{number}"),
        None => write!(out, "{name} "),
    };
    let ticks = |ns: u64| ns / NS_PER_TICK;
    let _ = writeln!(
        out,
        " {} 0 {} {} 0 0 {} 0 0 0",
        ticks(time.user_ns),
        ticks(time.system_ns.saturating_sub(time.softirq_ns)),
        ticks(time.idle_ns),
        ticks(time.softirq_ns),
    );
}

/// How often all processors together have taken a vector.
fn interrupts_of(vector: u8) -> u64 {
    cpu::online().iter().map(|cpu| interrupt::vector_count(cpu, vector)).sum()
}

/// `stat`
pub(super) fn statistics(out: &mut Text) -> Result<()> {
    let mut total = CpuTime::default();
    for cpu in cpu::online().iter() {
        let time = sched::statistics::cpu_time(cpu);
        total.user_ns += time.user_ns;
        total.system_ns += time.system_ns;
        total.idle_ns += time.idle_ns;
        total.softirq_ns += time.softirq_ns;
        total.switches += time.switches;
    }
    write_times("cpu", None, &total, out);
    for cpu in cpu::online().iter() {
        write_times("cpu", Some(cpu.index()), &sched::statistics::cpu_time(cpu), out);
    }
    let all: u64 = (interrupt::FIRST_VECTOR..=u8::MAX).map(interrupts_of).sum();
    let _ = write!(out, "intr {all}");
    for line in 0..ISA_LINES {
        let _ = write!(out, " {}", interrupts_of(interrupt::FIRST_VECTOR + line));
    }
    let _ = write!(
        out,
        "\nctxt {}\nbtime {}\nprocesses {}\nprocs_running {}\nprocs_blocked {}\nsoftirq {}",
        total.switches,
        crate::time::clock::realtime_offset_ns()
            .saturating_add_signed(-name_space::clock_offset_of_reader(Shifted::BootTime))
            / SECOND_NS,
        table::forks(),
        sched::statistics::runnable(),
        sched::statistics::uninterruptible(),
        (0..softirq::COUNT).map(softirqs_of).sum::<u64>(),
    );
    for column in SOFTIRQ_COLUMNS {
        let index = softirq::NAMES.iter().position(|name| *name == column);
        let _ = write!(out, " {}", index.map_or(0, softirqs_of));
    }
    let _ = out.write_str("\n");
    Ok(())
}

/// KiB that all disks together have read and written.
pub(super) fn kilobytes_moved() -> (u64, u64) {
    const READ: usize = 0;
    const WRITE: usize = 1;
    const SECTOR_BYTES: u64 = 512;
    let mut sectors = (0, 0);
    block::registry::for_each(|device| {
        if device.whole().is_none() {
            let moved = device.statistics().sectors;
            sectors.0 += moved[READ];
            sectors.1 += moved[WRITE];
        }
    });
    let kilobytes = |sectors: u64| sectors * SECTOR_BYTES / 1024;
    (kilobytes(sectors.0), kilobytes(sectors.1))
}

/// How often all processors together have run a softirq.
fn softirqs_of(index: usize) -> u64 {
    cpu::online().iter().map(|cpu| softirq::count(cpu, index)).sum()
}

/// `softirqs`
pub(super) fn softirqs(out: &mut Text) -> Result<()> {
    let _ = out.write_str("                    ");
    for cpu in cpu::online().iter() {
        let _ = write!(out, "CPU{:<8}", cpu.index());
    }
    let _ = out.write_str("\n");
    for (index, name) in softirq::NAMES.iter().enumerate() {
        let _ = write!(out, "{name:>12}:");
        for cpu in cpu::online().iter() {
            let _ = write!(out, " {:>10}", softirq::count(cpu, index));
        }
        let _ = out.write_str("\n");
    }
    Ok(())
}

/// `starling/interrupts`: how long interrupts and each softirq kept the processors, and what was done about it.
pub(super) fn interrupt_times(out: &mut Text) -> Result<()> {
    for cpu in cpu::online().iter() {
        let _ = writeln!(
            out,
            "cpu{cpu}: interrupts_us {} softirqs_us {} left_to_thread {} starvations {}",
            starvation::interrupts_ns(cpu) / 1_000,
            softirq::busy_ns(cpu) / 1_000,
            softirq::refusals(cpu),
            starvation::count(cpu),
        );
        for (index, name) in softirq::NAMES.iter().enumerate() {
            let (count, time_us) = (softirq::count(cpu, index), softirq::time_ns(cpu, index) / 1_000);
            let _ = writeln!(out, "cpu{cpu} {name}: ran {count} us {time_us}");
        }
    }
    device::interrupt::for_each_limited(|number, strikes| {
        let _ = writeln!(out, "interrupt {number}: masked {strikes}");
    });
    Ok(())
}

/// The label of one of the processors' own vectors, as Linux abbreviates its name.
fn label_of(name: &str) -> &'static str {
    match name {
        "Local timer interrupts" => "LOC",
        "Rescheduling interrupts" => "RES",
        "Message-box interrupts" => "MSG",
        "Debugger interrupts" => "DBG",
        "Spurious interrupts" => "SPU",
        "APIC errors" => "ERR",
        _ => "OTH",
    }
}

/// `interrupts`: vectors that were taken or belong to the processors themselves.
pub(super) fn interrupts(out: &mut Text) -> Result<()> {
    let _ = out.write_str("           ");
    for cpu in cpu::online().iter() {
        let _ = write!(out, "CPU{:<8}", cpu.index());
    }
    let _ = out.write_str("\n");
    let mut of_devices = [false; 256];
    device::interrupt::for_each(|number, source, vector, names| {
        of_devices[usize::from(vector.number())] = true;
        let _ = write!(out, "{number:>3}:");
        for cpu in cpu::online().iter() {
            let _ = write!(out, " {:>10}", interrupt::vector_count(cpu, vector.number()));
        }
        let _ = match source {
            Source::Line(line) => writeln!(out, "  IO-APIC  {line:>3}-fasteoi   {names}"),
            Source::Message => writeln!(out, "  PCI-MSI  {number:>3}-edge      {names}"),
        };
    });
    for vector in interrupt::FIRST_VECTOR..=u8::MAX {
        let name = interrupt::vector_name(vector);
        let is_shown = of_devices[usize::from(vector)];
        if is_shown || name.is_none() && interrupts_of(vector) == 0 {
            continue;
        }
        let line = vector - interrupt::FIRST_VECTOR;
        let _ = match name {
            Some(name) => write!(out, "{:>3}:", label_of(name)),
            None => write!(out, "{line:>3}:"),
        };
        for cpu in cpu::online().iter() {
            let _ = write!(out, " {:>10}", interrupt::vector_count(cpu, vector));
        }
        let _ = match name {
            Some(name) => writeln!(out, "   {name}"),
            None if line < ISA_LINES => writeln!(out, "  IO-APIC  {line:>3}-edge"),
            None => writeln!(out, "  vector {vector:#x}"),
        };
    }
    requests(out);
    Ok(())
}

/// What other processors have asked of each one. Several requests can come with one interrupt, and some with none.
fn requests(out: &mut Text) {
    let rows = [
        (
            "CAL",
            "Function calls by other processors",
            &[Kind::Call, Kind::Noop, Kind::Echo, Kind::Nested][..],
        ),
        ("TLB", "TLB shootdowns", &[Kind::FlushTlb]),
        (
            "IPC",
            "Messages between threads",
            &[Kind::IpcSend, Kind::IpcWakeup, Kind::IpcCancel, Kind::IpcAdopt, Kind::ResolvePageFault],
        ),
    ];
    for (label, name, kinds) in rows {
        let _ = write!(out, "{label:>3}:");
        for cpu in cpu::online().iter() {
            let handled: u64 = kinds.iter().map(|&kind| message_box::counts(cpu, kind).1).sum();
            let _ = write!(out, " {handled:>10}");
        }
        let _ = writeln!(out, "   {name}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn uptime_has_hundredths() {
        let mut text = String::new();
        write_uptime(61_059_999_999, 5_000_000_000, &mut text);
        assert_eq!(text, "61.05 5.00\n");
    }

    #[test]
    fn processor_lines_have_ten_columns() {
        let time = CpuTime {
            user_ns: 20_000_000,
            system_ns: 50_000_000,
            idle_ns: 70_000_000,
            softirq_ns: 10_000_000,
            switches: 9,
        };
        let mut text = String::new();
        write_times("cpu", None, &time, &mut text);
        write_times("cpu", Some(3), &time, &mut text);
        assert_eq!(text, "cpu  2 0 4 7 0 0 1 0 0 0\ncpu3 2 0 4 7 0 0 1 0 0 0\n");
    }
}
