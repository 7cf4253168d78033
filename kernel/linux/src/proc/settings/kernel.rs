//! Settings of the kernel itself: names, process numbers, stacks, the shares of interrupts.

use alloc::string::String;
use core::fmt::{self, Write};

use device::interrupt_limit;
use memory::kstack::{self, OverflowPolicy};
use sched::softirq_budget;
use sync::Once;
use vfs::credentials::{Capabilities, caller_has};
use vfs::text::Text;
use vfs::{Error, Result};

use super::{add, number, parse, refuse, setting};
use crate::exec::persona;
use crate::name_space::NameSpaces;
use crate::process::limits::Resource;
use crate::process::pid_space::Space;
use crate::process::{init, table};
use crate::reboot;
use crate::{helper, identity};

pub(super) fn register() -> Result<()> {
    if sync::classes::COUNTING {
        let keeps = || u64::from(sync::classes::keeps_statistics());
        setting("kernel/lock_stat", 0..=1, keeps, |value| sync::classes::keep_statistics(value != 0))?;
    }
    add(
        "kernel/hostname",
        0o644,
        |out| writeln!(out, "{}", NameSpaces::of_reader().names.node()),
        |bytes| {
            NameSpaces::of_reader().names.set_node(first_line(bytes));
            Ok(())
        },
    )?;
    add(
        "kernel/domainname",
        0o644,
        |out| writeln!(out, "{}", NameSpaces::of_reader().names.domain()),
        |bytes| {
            NameSpaces::of_reader().names.set_domain(first_line(bytes));
            Ok(())
        },
    )?;
    add(
        "kernel/hotplug",
        0o644,
        |out| writeln!(out, "{}", String::from_utf8_lossy(&helper::hotplug())),
        helper::set_hotplug,
    )?;
    add("kernel/version", 0o444, |out| writeln!(out, "{}", identity::version()), refuse)?;
    setting(
        "kernel/pid_max",
        table::PID_MAX_LEAST.into()..=table::PID_MAX.into(),
        || table::maximum().into(),
        |value| table::set_maximum(value as u32),
    )?;
    setting(
        "kernel/ns_last_pid",
        0..=u64::from(table::PID_MAX) - 1,
        || space_of_reader().map_or_else(table::last_pid, |space| space.last()).into(),
        |value| match space_of_reader() {
            Some(space) => space.set_last(value as u32),
            None => table::set_last(value as u32),
        },
    )?;
    setting(
        "kernel/randomize_va_space",
        0..=2,
        || persona::randomized().into(),
        |level| persona::set_randomized(level as u32),
    )?;
    add(
        "kernel/dmesg_restrict",
        0o644,
        |out| writeln!(out, "{}", u8::from(devfs::is_log_restricted())),
        |bytes| {
            if !caller_has(Capabilities::SYS_ADMIN) {
                return Err(Error::NotPermitted);
            }
            devfs::restrict_log(parse(bytes, &(0..=1))? == 1);
            Ok(())
        },
    )?;
    number("kernel/threads-max", || init::process().limit(Resource::Processes).saturating_mul(2))?;
    add("kernel/random/boot_id", 0o444, |out| write_uuid(boot_id(), out), refuse)?;
    add("kernel/random/uuid", 0o444, |out| write_uuid(random_bytes(), out), refuse)?;
    add("kernel/stack_overflow", 0o644, show_overflow_policy, set_overflow_policy)?;
    setting(
        "kernel/ctrl-alt-del",
        0..=i32::MAX as u64,
        || reboot::ctrl_alt_del().into(),
        |value| reboot::set_ctrl_alt_del(value as u32),
    )?;
    setting(
        "kernel/kstack_pin_rt",
        0..=1,
        || kstack::pin_realtime().into(),
        |value| kstack::set_pin_realtime(value != 0),
    )?;
    setting(
        "kernel/softirq_quota_pct",
        1..=100,
        softirq_budget::quota_percent,
        softirq_budget::set_quota_percent,
    )?;
    setting(
        "kernel/softirq_window_us",
        100..=1_000_000,
        softirq_budget::window_us,
        softirq_budget::set_window_us,
    )?;
    setting(
        "kernel/irq_max_per_jiffy",
        0..=1_000_000,
        || interrupt_limit::max_per_jiffy().into(),
        |value| interrupt_limit::set_max_per_jiffy(value as u32),
    )?;
    setting(
        "kernel/kstack_trim_secs",
        0..=3600,
        || kstack::trim_secs().into(),
        |value| {
            kstack::set_trim_secs(value as u32);
        },
    )
}

/// The name space of process numbers of who reads or writes a setting.
fn space_of_reader() -> Space {
    crate::terminal::calling_thread().and_then(|thread| thread.process().space().clone())
}

fn first_line(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == b'\n').next().unwrap_or(bytes)
}

fn show_overflow_policy(out: &mut Text) -> fmt::Result {
    let name = match kstack::overflow_policy() {
        OverflowPolicy::Kill => "kill",
        OverflowPolicy::Panic => "panic",
    };
    writeln!(out, "{name}")
}

fn set_overflow_policy(bytes: &[u8]) -> Result<()> {
    let policy = match bytes.trim_ascii() {
        b"kill" => OverflowPolicy::Kill,
        b"panic" => OverflowPolicy::Panic,
        _ => return Err(Error::Invalid),
    };
    kstack::set_overflow_policy(policy);
    Ok(())
}

type Uuid = [u8; 16];

fn random_bytes() -> Uuid {
    let mut bytes = Uuid::default();
    crate::random::fill(&mut bytes);
    bytes
}

/// The same until the next boot.
fn boot_id() -> Uuid {
    static BOOT: Once<Uuid> = Once::new();
    *BOOT.call_once(random_bytes)
}

/// Writes random bytes as a UUID of version 4.
fn write_uuid(mut bytes: Uuid, out: &mut dyn Write) -> fmt::Result {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    for (index, byte) in bytes.iter().enumerate() {
        let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
        write!(out, "{dash}{byte:02x}")?;
    }
    out.write_str("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_of_version_four() {
        let mut text = String::new();
        write_uuid([0xff; 16], &mut text).expect("a string takes it");
        assert_eq!(text, "ffffffff-ffff-4fff-bfff-ffffffffffff\n");
    }
}
