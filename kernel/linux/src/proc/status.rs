//! `status`: a process (or thread) for people to read.

use core::fmt::Write;

use machine::address::PAGE_SIZE;
use memory::address_space::Usage;
use vfs::Result;
use vfs::text::Text;

use super::entries::{name_of, state_of, trimmed};
use super::process::Subject;
use super::stat::resident;
use crate::credentials::identity::Credentials;
use crate::process::limits::Resource;
use crate::process::pid_space::PidSpace;
use crate::process::process::Process;
use crate::process::thread::Thread;

const PAGE_KIB: u64 = PAGE_SIZE as u64 / 1024;

/// `status`
#[inline(never)]
pub(super) fn status(subject: &Subject, out: &mut Text) -> Result<()> {
    let process = subject.process()?;
    let thread = subject.shown_thread().ok().flatten();
    let thread = thread.as_deref();
    let credentials = thread.map_or_else(|| process.credentials(), Thread::credentials);
    let number = subject.number()?;
    write_head(subject, number, &process, thread, out)?;
    write_users(&credentials, thread, out);
    let group = process.group();
    let numbers = [process.pid(), subject.kernel_number()?, group.id(), group.session().id()];
    for (name, number) in ["NStgid", "NSpid", "NSpgid", "NSsid"].into_iter().zip(numbers) {
        let _ = write!(out, "{name}:");
        PidSpace::each_within(subject.view(), process.space(), number, |number| {
            _ = write!(out, "\t{number}")
        });
        let _ = out.write_str("\n");
    }
    if let Some(space) = process.address_space() {
        let code = process.executable.lock().code;
        let is_dumping = process.gathering.lock().is_some();
        write_memory(&space.usage(), code, is_dumping, out);
    }
    write_signals(&process, thread, &credentials, out);
    write_capabilities(&credentials, thread, out);
    write_processors(thread, out);
    Ok(())
}

fn write_head(
    subject: &Subject,
    number: u32,
    process: &Process,
    thread: Option<&Thread>,
    out: &mut Text,
) -> Result<()> {
    let _ = out.write_str("Name:\t");
    for &byte in trimmed(&name_of(subject)?) {
        match byte {
            b'\n' => out.push_bytes(b"\\n"),
            b'\\' => out.push_bytes(b"\\\\"),
            _ => out.push_bytes(&[byte]),
        }
    }
    if let Some(context) = thread.and_then(Thread::file_system) {
        let _ = write!(out, "\nUmask:\t{:04o}", context.umask());
    }
    let (letter, word) = state_of(process, thread);
    let tracer = thread.and_then(Thread::tracer).map_or(0, |tracer| tracer.process().pid());
    let _ = write!(
        out,
        "\nState:\t{letter} ({word})\nTgid:\t{}\nNgid:\t0\nPid:\t{number}\nPPid:\t{}\nTracerPid:\t{}\n",
        subject.seen(process.pid()),
        subject.seen(process.parent_pid()),
        subject.seen(tracer),
    );
    Ok(())
}

fn write_users(credentials: &Credentials, thread: Option<&Thread>, out: &mut Text) {
    let (user, group, file) = (&credentials.user, &credentials.group, &credentials.file);
    let space = crate::name_space::users_of_reader();
    let users = [user.real, user.effective, user.saved, file.user].map(|id| space.shown_user(id));
    let groups = [group.real, group.effective, group.saved, file.group].map(|id| space.shown_group(id));
    for (name, [real, effective, saved, file]) in [("Uid", users), ("Gid", groups)] {
        let _ = writeln!(out, "{name}:\t{real}\t{effective}\t{saved}\t{file}");
    }
    let size = thread.and_then(Thread::files).map_or(0, |files| files.size());
    let _ = write!(out, "FDSize:\t{size}\nGroups:\t");
    for (index, group) in file.groups.iter().flat_map(|groups| groups.iter()).enumerate() {
        let _ = write!(out, "{}{}", if index == 0 { "" } else { " " }, space.shown_group(*group));
    }
    let _ = out.write_str(" \n");
}

/// The memory lines. `code` is where the program's own code lies; the rest of the code is libraries'.
fn write_memory(usage: &Usage, code: (u64, u64), is_dumping: bool, out: &mut dyn Write) {
    let page = PAGE_SIZE as u64;
    let program_pages = (code.1.div_ceil(page)).saturating_sub(code.0 / page).min(usage.code_pages);
    for (name, kib) in [
        ("VmPeak", usage.peak_mapped_pages.max(usage.mapped_pages) * PAGE_KIB),
        ("VmSize", usage.mapped_pages * PAGE_KIB),
        ("VmLck", usage.locked_pages * PAGE_KIB),
        ("VmPin", 0),
        ("VmHWM", usage.peak_resident_pages.max(resident(usage)) * PAGE_KIB),
        ("VmRSS", resident(usage) * PAGE_KIB),
        ("RssAnon", usage.private_pages * PAGE_KIB),
        ("RssFile", usage.file_pages * PAGE_KIB),
        ("RssShmem", usage.shared_memory_pages * PAGE_KIB),
        ("VmData", usage.data_pages * PAGE_KIB),
        ("VmStk", usage.stack_pages * PAGE_KIB),
        ("VmExe", program_pages * PAGE_KIB),
        ("VmLib", (usage.code_pages - program_pages) * PAGE_KIB),
        ("VmPTE", usage.table_bytes / 1024),
        ("VmSwap", 0),
        ("HugetlbPages", usage.pooled_bytes / 1024),
    ] {
        let _ = writeln!(out, "{name}:\t{kib:>8} kB");
    }
    let huge = u8::from(!usage.forbids_huge_pages);
    let _ = write!(out, "CoreDumping:\t{}\nTHP_enabled:\t{huge}\n", u8::from(is_dumping));
}

fn write_signals(process: &Process, thread: Option<&Thread>, credentials: &Credentials, out: &mut Text) {
    let shared = process.signals.lock().pending.set().bits();
    let own = thread.map_or(0, |thread| thread.pending.lock().set().bits());
    let actions = process.actions();
    let _ = writeln!(
        out,
        "Threads:\t{}\nSigQ:\t{}/{}",
        process.visible_threads().max(1),
        credentials.account.pending_signals(),
        process.limit(Resource::PendingSignals),
    );
    for (name, set) in [
        ("SigPnd", own),
        ("ShdPnd", shared),
        ("SigBlk", thread.map_or(0, |thread| thread.blocked().bits())),
        ("SigIgn", actions.explicitly_ignored().bits()),
        ("SigCgt", actions.caught().bits()),
    ] {
        let _ = writeln!(out, "{name}:\t{set:016x}");
    }
}

fn write_capabilities(credentials: &Credentials, thread: Option<&Thread>, out: &mut dyn Write) {
    for (name, set) in [
        ("CapInh", credentials.inheritable),
        ("CapPrm", credentials.permitted),
        ("CapEff", credentials.file.capabilities),
        ("CapBnd", credentials.bounding),
        ("CapAmb", credentials.ambient),
    ] {
        let _ = writeln!(out, "{name}:\t{:016x}", set.bits());
    }
    let restriction = thread.map(Thread::restriction).unwrap_or_default();
    let _ = write!(
        out,
        "NoNewPrivs:\t{}\nSeccomp:\t{}\nSeccomp_filters:\t{}\n",
        u8::from(thread.is_some_and(Thread::has_no_new_privileges)),
        restriction.mode() as u8,
        restriction.filters(),
    );
}

fn write_processors(thread: Option<&Thread>, out: &mut Text) {
    let kernel = thread.and_then(Thread::kernel_thread);
    let online = machine::cpu::online();
    let allowed = kernel.map_or(online, |kernel| kernel.affinity()).intersection(online);
    let _ = out.write_str("Cpus_allowed:\t");
    let _ = allowed.write_mask(machine::cpu::count(), out);
    let _ = out.write_str("\nCpus_allowed_list:\t");
    let _ = allowed.write_list(out);
    let (voluntary, preemptions) =
        kernel.map_or((0, 0), |kernel| (kernel.voluntary_switches(), kernel.preemptions()));
    let _ = write!(
        out,
        "\nMems_allowed:\t1\nMems_allowed_list:\t0\nvoluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t{preemptions}\n"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn memory_is_in_kibibytes_in_eight_columns() {
        let usage = Usage {
            mapped_pages: 765,
            peak_mapped_pages: 770,
            private_pages: 28,
            file_pages: 408,
            code_pages: 387,
            data_pages: 90,
            stack_pages: 33,
            table_bytes: 40 << 10,
            ..Usage::default()
        };
        let mut text = String::new();
        write_memory(&usage, (0x40_1000, 0x40_5a11), false, &mut text);
        assert_eq!(
            text,
            "VmPeak:\t    3080 kB\nVmSize:\t    3060 kB\nVmLck:\t       0 kB\nVmPin:\t       0 kB\nVmHWM:\t    1744 kB\n\
             VmRSS:\t    1744 kB\nRssAnon:\t     112 kB\nRssFile:\t    1632 kB\nRssShmem:\t       0 kB\n\
             VmData:\t     360 kB\nVmStk:\t     132 kB\nVmExe:\t      20 kB\nVmLib:\t    1528 kB\n\
             VmPTE:\t      40 kB\nVmSwap:\t       0 kB\nHugetlbPages:\t       0 kB\nCoreDumping:\t0\nTHP_enabled:\t1\n"
        );
    }

    #[test]
    fn capabilities_are_sixteen_digits() {
        let credentials = Credentials::root().expect("memory");
        let mut text = String::new();
        write_capabilities(&credentials, None, &mut text);
        assert_eq!(
            text,
            "CapInh:\t0000000000000000\nCapPrm:\t000001ffffffffff\nCapEff:\t000001ffffffffff\n\
             CapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\nNoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t0\n"
        );
    }
}
