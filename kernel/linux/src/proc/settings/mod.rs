//! `/proc/sys`: what can be looked at and changed while the system runs.
//!
//! A setting is shown as Linux shows it: a number and a newline. Writing takes one number, blanks around it; what is out of
//! range is EINVAL. Only what has an effect can be written; the rest tells how the system is built.

mod files;
mod kernel;
mod limits;
mod memory;
mod security;

use alloc::string::String;
use core::fmt::{self, Write};

use vfs::generated::{Node, knob};
use vfs::text::Text;
use vfs::{Error, Result};

use crate::identity;

pub(super) use memory::HUGE_POOL;
pub(super) use security::shows_addresses;

/// What never changes, by path.
const FIXED: [(&str, &str); 23] = [
    ("kernel/ostype", "Linux"),
    ("kernel/osrelease", identity::RELEASE),
    ("kernel/cap_last_cap", "40"),
    ("kernel/ngroups_max", "65536"),
    ("kernel/printk", "7\t4\t1\t7"),
    ("kernel/panic", "0"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/tainted", "0"),
    ("kernel/shm_rmid_forced", "0"),
    ("kernel/sched_rr_timeslice_ms", "100"),
    ("kernel/sched_rt_period_us", "1000000"),
    ("kernel/sched_rt_runtime_us", "950000"),
    ("kernel/arch", "x86_64"),
    ("kernel/perf_event_paranoid", "3"),
    ("kernel/unprivileged_bpf_disabled", "2"),
    ("kernel/sched_autogroup_enabled", "0"),
    ("kernel/seccomp/actions_avail", "kill_process kill_thread trap errno user_notif trace log allow"),
    ("kernel/random/poolsize", "256"),
    ("kernel/random/entropy_avail", "256"),
    ("vm/swappiness", "60"),
    ("vm/panic_on_oom", "0"),
    ("vm/oom_kill_allocating_task", "0"),
    ("fs/pipe-max-size", "1048576"),
];

/// Fills /proc/sys.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn register() -> Result<()> {
    for (path, value) in FIXED {
        add(path, 0o444, move |out| writeln!(out, "{value}"), refuse)?;
    }
    kernel::register()?;
    security::register()?;
    limits::register()?;
    memory::register()?;
    files::register()
}

/// One setting at a path below /proc/sys.
fn add(
    path: &str,
    mode: u32,
    show: impl Fn(&mut Text) -> fmt::Result + Send + Sync + 'static,
    store: impl Fn(&[u8]) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let file = knob(
        move |out| {
            // A text remembers when memory ran out.
            let _ = show(out);
            Ok(())
        },
        store,
    )?;
    let mut full = String::new();
    full.push_str("sys/");
    full.push_str(path);
    procfs::add_at(&full, Node::file(mode, file))
}

/// A number that can only be looked at.
fn number(path: &str, value: impl Fn() -> u64 + Send + Sync + 'static) -> Result<()> {
    add(path, 0o444, move |out| writeln!(out, "{}", value()), refuse)
}

/// A number within a range that can be changed.
fn setting(
    path: &str,
    range: core::ops::RangeInclusive<u64>,
    value: impl Fn() -> u64 + Send + Sync + 'static,
    change: impl Fn(u64) + Send + Sync + 'static,
) -> Result<()> {
    add(
        path,
        0o644,
        move |out| writeln!(out, "{}", value()),
        move |bytes| {
            change(parse(bytes, &range)?);
            Ok(())
        },
    )
}

fn refuse(_bytes: &[u8]) -> Result<()> {
    Err(Error::NotPermitted)
}

/// The number that was written.
pub(super) fn parse(bytes: &[u8], range: &core::ops::RangeInclusive<u64>) -> Result<u64> {
    let text = core::str::from_utf8(bytes).map_err(|_| Error::Invalid)?;
    let text = text.trim_matches(|letter: char| letter.is_ascii_whitespace() || letter == '\0');
    let value = text.parse().map_err(|_| Error::Invalid)?;
    if range.contains(&value) { Ok(value) } else { Err(Error::Invalid) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_take_one_number_within_the_range() {
        assert_eq!(parse(b" 2\n", &(0..=2)), Ok(2));
        for wrong in [&b"3"[..], b"", b"-1", b"1 2", b"x", b"\xff"] {
            assert_eq!(parse(wrong, &(0..=2)), Err(Error::Invalid));
        }
    }
}
