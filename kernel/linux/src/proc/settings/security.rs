//! What normal users may know and do, process accounting, and where core dumps go.

use core::fmt::Write;
use core::sync::atomic::{AtomicU32, Ordering};

use vfs::credentials::{Capabilities, caller_has};
use vfs::text::Text;
use vfs::{Error, Result};

use super::{add, parse, setting};

pub(super) fn register() -> Result<()> {
    security()?;
    core_dumps()
}

/// `kptr_restrict`: whether files show addresses of the kernel: 0: to whom they may be opened by; 1: of those, to who has CAP_SYSLOG; 2: to nobody.
static ADDRESSES_HIDDEN: AtomicU32 = AtomicU32::new(0);

fn addresses_hidden() -> u32 {
    // Relaxed, as all settings here.
    ADDRESSES_HIDDEN.load(Ordering::Relaxed)
}

/// Whether the caller may see addresses of the kernel.
pub(in crate::proc) fn shows_addresses() -> bool {
    match addresses_hidden() {
        0 => true,
        1 => caller_has(Capabilities::SYSLOG),
        _ => false,
    }
}

/// What normal users may know and do. Nobody counts events of processors or runs programs of BPF, so two of these only say that normal users may not.
fn security() -> Result<()> {
    use crate::ptrace::scope;

    let privileged = |capability| if caller_has(capability) { Ok(()) } else { Err(Error::NotPermitted) };
    let show = |out: &mut Text| writeln!(out, "{}", scope::level());
    add("kernel/yama/ptrace_scope", 0o644, show, move |bytes| {
        privileged(Capabilities::SYS_PTRACE)?;
        scope::set_level(parse(bytes, &(0..=3))? as u32).map_err(|_| Error::Invalid)
    })?;
    let show = |out: &mut Text| writeln!(out, "{}", addresses_hidden());
    add("kernel/kptr_restrict", 0o644, show, move |bytes| {
        privileged(Capabilities::SYS_ADMIN)?;
        ADDRESSES_HIDDEN.store(parse(bytes, &(0..=2))? as u32, Ordering::Relaxed);
        Ok(())
    })?;
    let [accounting_begins, accounting_ends, seconds] = &crate::accounting::SETTINGS;
    let all = [accounting_begins, accounting_ends, seconds];
    let show = move |out: &mut Text| {
        let [begin, end, seconds] = all.map(|setting| setting.load(Ordering::Relaxed));
        writeln!(out, "{begin}\t{end}\t{seconds}")
    };
    add("kernel/acct", 0o644, show, move |bytes| {
        let mut words = bytes.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        for setting in all {
            let Some(word) = words.next() else { return Ok(()) };
            setting.store(parse(word, &(0..=i32::MAX as u64))?, Ordering::Relaxed);
        }
        Ok(())
    })
}

/// Where core dumps go, and of what there are any.
fn core_dumps() -> Result<()> {
    use crate::core_dump::pattern;

    let show = |out: &mut Text| {
        out.push_bytes(&pattern::pattern().unwrap_or_default());
        out.write_str("\n")
    };
    add("kernel/core_pattern", 0o644, show, pattern::set_pattern)?;
    let most = i32::MAX as u64;
    setting(
        "kernel/core_uses_pid",
        0..=most,
        || pattern::uses_pid().into(),
        |new| pattern::set_uses_pid(new as u32),
    )?;
    setting(
        "kernel/core_pipe_limit",
        0..=most,
        || pattern::pipe_limit().into(),
        |new| pattern::set_pipe_limit(new as u32),
    )?;
    setting(
        "fs/suid_dumpable",
        0..=2,
        || pattern::privileged().into(),
        |new| pattern::set_privileged(new as u32),
    )
}
