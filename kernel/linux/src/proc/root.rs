//! The root of /proc: who fills which entry, and the links `self` and `thread-self`.

use core::fmt::Write;

use vfs::generated::{Link, Node, knob};
use vfs::inode::LinkTarget;
use vfs::text::Text;
use vfs::{Error, Result};

use super::process::Processes;
use super::{
    kernel_objects, lists, memory_numbers, processor_model, processors, provoke_crash, provoke_flood,
    settings, stack_test,
};
use crate::name_space::NameSpaces;
use crate::process::pid_space::{self, Space};
use crate::terminal::calling_thread;

/// Opens /proc and /sys: processes and the links to them at once, all the rest when somebody wants it. Once, at start-up.
///
/// # Errors
/// `ENOMEM`.
pub fn register() -> Result<()> {
    static PROCESSES: Processes = Processes;
    procfs::set_process_source(&PROCESSES);
    links()?;
    procfs::fill_later(|| {
        system()?;
        memory()?;
        settings::register()?;
        crate::syslog::register()
    });
    sysfs::fill_later(kernel_objects::register);
    debugfs::fill_later(|| {
        provoke_crash::register()?;
        provoke_flood::register()
    });
    Ok(())
}

/// Makes the devices of this crate. Once, at start-up, before /dev is first mounted.
pub fn register_devices() {
    stack_test::register();
}

fn links() -> Result<()> {
    procfs::add("self", Node::link(vfs::allocation::arc(Caller { thread: false, view: None })?))?;
    procfs::add("thread-self", Node::link(vfs::allocation::arc(Caller { thread: true, view: None })?))?;
    for (name, target) in [("mounts", "self/mounts"), ("net", "self/net")] {
        let text = move || vfs::allocation::arc_bytes(target.as_bytes());
        procfs::add(name, Node::link(vfs::allocation::arc(text)?))?;
    }
    Ok(())
}

fn system() -> Result<()> {
    procfs::add_text("cgroups", crate::control_group::show_controllers)?;
    procfs::add_text("cmdline", lists::command_line)?;
    procfs::add_text("cpuinfo", processor_model::processors)?;
    procfs::add_text("devices", lists::devices)?;
    procfs::add_text("execdomains", lists::execution_domains)?;
    procfs::add_text("filesystems", lists::file_systems)?;
    procfs::add_text("interrupts", processors::interrupts)?;
    procfs::add_text("loadavg", processors::load)?;
    procfs::add_text("locks", super::locks::all)?;
    procfs::add_text("misc", lists::miscellaneous)?;
    procfs::add_text("modules", lists::nothing)?;
    procfs::add_text("softirqs", processors::softirqs)?;
    procfs::add_text("stat", processors::statistics)?;
    procfs::add_text("swaps", lists::swaps)?;
    procfs::add_text("sysvipc/shm", |out| {
        let _ = crate::sysv::shm::write_report(&NameSpaces::of_reader().ipc, out);
        Ok(())
    })?;
    procfs::add_text("sysvipc/msg", |out| {
        let _ = crate::sysv::message::write_report(&NameSpaces::of_reader().ipc, out);
        Ok(())
    })?;
    procfs::add_text("sysvipc/sem", |out| {
        let _ = crate::sysv::semaphore::write_report(&NameSpaces::of_reader().ipc, out);
        Ok(())
    })?;
    procfs::add_text("uptime", processors::uptime)?;
    procfs::add_text("version", lists::version)?;
    procfs::add_text("starling/missing_syscalls", lists::missing_calls)?;
    procfs::add_text("starling/ipc", |out| {
        let _ = ::ipc::statistics::write_report(out);
        Ok(())
    })?;
    procfs::add_text("starling/interrupts", processors::interrupt_times)?;
    procfs::add_text("starling/message_boxes", |out| {
        let _ = sync::message_box::write_matrix(out);
        Ok(())
    })?;
    procfs::add_text("starling/rcu", |out| {
        let _ = sync::rcu::write_report(out);
        Ok(())
    })?;
    // The sheet's name, and that of what only this kernel has.
    for name in ["pagecache", "starling/pagecache"] {
        procfs::add_text(name, |out| {
            let _ = memory::file_cache::write_report(out);
            Ok(())
        })?;
    }
    super::profile::add()?;
    rcu_trace()?;
    locks()?;
    procfs::add("sysrq-trigger", Node::file(0o200, knob(|_| Ok(()), press_key)?))
}

/// A key that was written to `sysrq-trigger`: `g` enters the kernel debugger, if there is one; the others do nothing.
fn press_key(keys: &[u8]) -> Result<()> {
    if keys.first() == Some(&b'g') {
        machine::debugger::breakpoint();
    }
    Ok(())
}

/// `lock_stat`, reset by writing 0, in kernels that count locks; `starling/locks` in those that check their order.
fn locks() -> Result<()> {
    use sync::classes;
    if classes::COUNTING {
        let show = |out: &mut Text| {
            let _ = classes::write_statistics(out);
            Ok(())
        };
        let reset = |bytes: &[u8]| {
            if bytes.trim_ascii() != b"0" {
                return Err(Error::Invalid);
            }
            classes::reset_statistics();
            Ok(())
        };
        procfs::add("lock_stat", Node::file(0o600, knob(show, reset)?))?;
    }
    if classes::CHECKING {
        procfs::add_text("starling/locks", |out| {
            let _ = classes::write_order(out);
            Ok(())
        })?;
    }
    Ok(())
}

fn memory() -> Result<()> {
    use ::memory::{heap, kstack, statistics};
    // A text remembers when memory ran out: the writers' own results say nothing more.
    procfs::add_text("meminfo", memory_numbers::memory)?;
    procfs::add_text("buddyinfo", |out| {
        let _ = statistics::write_buddyinfo(out);
        Ok(())
    })?;
    procfs::add_text("starling/clustered", |out| {
        let enabled = sync::clustered::enabled();
        let _ = writeln!(
            out,
            "clustered objects {}",
            if enabled { "on" } else { "off: every root stays single" }
        );
        sync::clustered::report(|object| {
            let _ = writeln!(
                out,
                "{} {} {} representatives {} cpus {:#x} misses {} swaps {} forwarded {}",
                object.number,
                object.name,
                if object.distributed { "distributed" } else { "single" },
                object.representatives,
                object.cpus.bits(),
                object.misses,
                object.swaps,
                object.forwarded,
            );
        });
        Ok(())
    })?;
    procfs::add_text("starling/percpu_blocks", |out| {
        let _ = ::memory::per_cpu::write_blocks(out);
        Ok(())
    })?;
    procfs::add_text("vmstat", |out| {
        let _ = statistics::write_vmstat(out);
        let _ = writeln!(out, "pgfault {}", crate::process::table::faults());
        let moved = super::processors::kilobytes_moved();
        let _ = writeln!(out, "pgpgin {}\npgpgout {}", moved.0, moved.1);
        let thresholds = vfs::disk::flusher::thresholds();
        let _ = writeln!(out, "nr_dirty_threshold {}", thresholds.limit);
        let _ = writeln!(out, "nr_dirty_background_threshold {}", thresholds.background);
        Ok(())
    })?;
    procfs::add_text("zoneinfo", |out| {
        let _ = statistics::write_zoneinfo(out);
        Ok(())
    })?;
    procfs::add_text("kstack", |out| {
        let _ = kstack::write_report(out);
        Ok(())
    })?;
    // These tell addresses.
    let trace = |out: &mut vfs::text::Text| {
        if settings::shows_addresses() {
            let _ = kstack::write_own_trace(out);
        }
        Ok(())
    };
    procfs::add("kstack_trace", Node::file(0o400, vfs::generated::text_file(trace)?))?;
    let overflow = |out: &mut vfs::text::Text| {
        if !settings::shows_addresses() {
            return Ok(());
        }
        let _ = kstack::last_report(|text| core::fmt::Write::write_str(out, text));
        Ok(())
    };
    procfs::add("kstack_overflow", Node::file(0o400, vfs::generated::text_file(overflow)?))?;
    let slabs = |out: &mut vfs::text::Text| {
        let _ = heap::write_slabinfo(out);
        Ok(())
    };
    procfs::add("slabinfo", Node::file(0o400, vfs::generated::text_file(slabs)?))
}

/// The ring of RCU's events: writing `1` begins to record.
fn rcu_trace() -> Result<()> {
    let show = |out: &mut vfs::text::Text| {
        let _ = sync::rcu::trace::write_csv(out);
        Ok(())
    };
    let begin = |text: &[u8]| match text.trim_ascii() {
        b"1" if sync::rcu::trace::enable() => Ok(()),
        b"1" => Err(Error::OutOfMemory),
        _ => Err(Error::Invalid),
    };
    procfs::add("starling/rcu_trace.csv", Node::file(0o600, knob(show, begin)?))
}

/// `self` and `thread-self`.
pub(super) struct Caller {
    pub(super) thread: bool,
    /// The name space of process numbers whose `/proc` it is in.
    pub(super) view: Space,
}

impl Link for Caller {
    fn target(&self) -> Result<LinkTarget> {
        let thread = calling_thread().ok_or(Error::NotFound)?;
        let [pid, tid] = [thread.process().pid(), thread.tid()].map(|pid| pid_space::seen(&self.view, pid));
        if pid == 0 {
            return Err(Error::NotFound);
        }
        let mut text = vfs::text::Text::new();
        // What does not fit into memory is remembered by the text.
        let _ = match self.thread {
            true => write!(text, "{pid}/task/{tid}"),
            false => write!(text, "{pid}"),
        };
        Ok(LinkTarget::Text(vfs::allocation::arc_bytes(&text.finish()?)?))
    }
}
