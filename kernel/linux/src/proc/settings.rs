//! `/proc/sys`: what can be looked at and changed while the system runs.
//!
//! A setting is shown as Linux shows it: a number and a newline. Writing takes one number, blanks around it; what is out of
//! range is EINVAL. Only what has an effect can be written; the rest tells how the system is built.

use alloc::format;
use alloc::string::String;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU32, Ordering};

use device::interrupt_limit;
use machine::address::PAGE_SIZE;
use memory::address_space::{self, CommitMode};
use memory::huge_pool::{self, HugePoolCounts};
use memory::kstack::{self, OverflowPolicy};
use sched::softirq_budget;
use sync::Once;
use vfs::credentials::{Capabilities, caller_has};
use vfs::dnotify;
use vfs::fanotify;
use vfs::generated::{Node, knob};
use vfs::lock::lease;
use vfs::mount::{self, policy};
use vfs::sticky;
use vfs::text::Text;
use vfs::{Error, OpenFile, Result};

use crate::exec::persona;
use crate::file::asynchronous;
use crate::io_ring::calls as rings;
use crate::mqueue;
use crate::name_space::{NameSpaces, users_of_reader};
use crate::process::limits::{OPEN_FILES_MAX, Resource};
use crate::process::pid_space::Space;
use crate::process::{init, table};
use crate::reboot;
use crate::{helper, identity};

/// What never changes, by path.
const FIXED: [(&str, &str); 25] = [
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
    ("fs/inotify/max_queued_events", "16384"),
    ("fs/inotify/max_user_watches", "65536"),
];

/// What can be set of the pool of huge pages: its name, also below `/sys`, what it is, and how it is changed.
pub(super) type PoolSetting = (&'static str, fn(&HugePoolCounts) -> u64, fn(u64));

/// All of them.
pub(super) const HUGE_POOL: [PoolSetting; 2] = [
    ("nr_hugepages", |pool| pool.total, huge_pool::set_size),
    ("nr_overcommit_hugepages", |pool| pool.overcommit, huge_pool::set_overcommit_limit),
];

/// `kptr_restrict`: whether files show addresses of the kernel: 0: to whom they may be opened by; 1: of those, to who has CAP_SYSLOG; 2: to nobody.
static ADDRESSES_HIDDEN: AtomicU32 = AtomicU32::new(0);

fn addresses_hidden() -> u32 {
    // Relaxed, as all settings here.
    ADDRESSES_HIDDEN.load(Ordering::Relaxed)
}

/// Whether the caller may see addresses of the kernel.
pub(super) fn shows_addresses() -> bool {
    match addresses_hidden() {
        0 => true,
        1 => caller_has(Capabilities::SYSLOG),
        _ => false,
    }
}

/// Fills /proc/sys.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn register() -> Result<()> {
    for (path, value) in FIXED {
        add(path, 0o444, move |out| writeln!(out, "{value}"), refuse)?;
    }
    kernel()?;
    memory_settings()?;
    limits_of_sockets()?;
    files()
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

fn first_line(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == b'\n').next().unwrap_or(bytes)
}

fn kernel() -> Result<()> {
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
    users()?;
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
    core_dumps()?;
    security()?;
    system_v()?;
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

/// What user ids are shown as that are not mapped, and how many name spaces there may be.
fn users() -> Result<()> {
    use core::sync::atomic::Ordering::Relaxed;
    use vfs::user_space::{Kind, OVERFLOW_GROUP, OVERFLOW_USER};

    for (path, id) in [
        ("kernel/overflowuid", &OVERFLOW_USER),
        ("fs/overflowuid", &OVERFLOW_USER),
        ("kernel/overflowgid", &OVERFLOW_GROUP),
        ("fs/overflowgid", &OVERFLOW_GROUP),
    ] {
        setting(path, 0..=0xffff, || id.load(Relaxed).into(), |new| id.store(new as u32, Relaxed))?;
    }
    for (path, kind) in Kind::ALL {
        setting(
            path,
            0..=i32::MAX as u64,
            move || users_of_reader().limit(kind).into(),
            move |new| users_of_reader().set_limit(kind, new as u32),
        )?;
    }
    Ok(())
}

/// The name space of process numbers of who reads or writes a setting.
fn space_of_reader() -> Space {
    crate::terminal::calling_thread().and_then(|thread| thread.process().space().clone())
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

/// Limits of sockets.
fn limits_of_sockets() -> Result<()> {
    use net::unix::settings;

    setting(
        "net/core/somaxconn",
        0..=i32::MAX as u64,
        || settings::somaxconn().into(),
        |value| settings::set_somaxconn(value as u32),
    )?;
    setting(
        "net/unix/max_dgram_qlen",
        0..=i32::MAX as u64,
        || settings::datagrams().into(),
        |value| settings::set_datagrams(value as u32),
    )
}

/// Limits of System V objects and POSIX message queues.
fn system_v() -> Result<()> {
    use crate::sysv::space::IpcSpace;
    use crate::sysv::{message, semaphore, shm};
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

    type Limit = fn(&IpcSpace) -> &AtomicU64;
    let limits: [(&str, Limit, u64); 6] = [
        ("kernel/shmmax", |space| &space.memory_limits.bytes_max, u64::MAX),
        ("kernel/shmall", |space| &space.memory_limits.pages_max, u64::MAX),
        ("kernel/shmmni", |space| &space.memory_limits.segments_max, shm::limits::SEGMENTS_MOST),
        ("kernel/msgmax", |space| &space.message_limits.bytes_max, message::limits::BYTES_MOST),
        ("kernel/msgmnb", |space| &space.message_limits.capacity, message::limits::BYTES_MOST),
        ("kernel/msgmni", |space| &space.message_limits.queues_max, message::limits::QUEUES_MOST),
    ];
    for (path, limit, most) in limits {
        let value = move || limit(&NameSpaces::of_reader().ipc).load(Relaxed);
        setting(path, 0..=most, value, move |new| limit(&NameSpaces::of_reader().ipc).store(new, Relaxed))?;
    }
    let limits: [(&str, Limit, (u64, u64)); 5] = [
        ("fs/mqueue/queues_max", |space| &space.queue_limits.queues, mqueue::limits::QUEUES_RANGE),
        ("fs/mqueue/msg_max", |space| &space.queue_limits.messages, mqueue::limits::MESSAGES_RANGE),
        ("fs/mqueue/msgsize_max", |space| &space.queue_limits.bytes, mqueue::limits::BYTES_RANGE),
        ("fs/mqueue/msg_default", |space| &space.queue_limits.usual_messages, mqueue::limits::MESSAGES_RANGE),
        ("fs/mqueue/msgsize_default", |space| &space.queue_limits.usual_bytes, mqueue::limits::BYTES_RANGE),
    ];
    for (path, limit, (least, most)) in limits {
        let value = move || limit(&NameSpaces::of_reader().ipc).load(Relaxed);
        setting(path, least..=most, value, move |new| {
            limit(&NameSpaces::of_reader().ipc).store(new, Relaxed)
        })?;
    }
    let show = |out: &mut Text| semaphore::limits::show(&NameSpaces::of_reader().ipc.semaphore_limits, out);
    add("kernel/sem", 0o644, show, |bytes| {
        semaphore::limits::store(&NameSpaces::of_reader().ipc.semaphore_limits, bytes)
    })
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

fn memory_settings() -> Result<()> {
    for (name, part, set) in HUGE_POOL {
        setting(&format!("vm/{name}"), 0..=u64::MAX, move || part(&huge_pool::counts()), set)?;
    }
    let mode = || match address_space::commit_mode() {
        CommitMode::Heuristic => 0,
        CommitMode::Always => 1,
        CommitMode::Never => 2,
    };
    setting("vm/overcommit_memory", 0..=2, mode, |value| {
        address_space::set_commit_mode(match value {
            1 => CommitMode::Always,
            2 => CommitMode::Never,
            _ => CommitMode::Heuristic,
        });
    })?;
    setting(
        "vm/overcommit_ratio",
        0..=1000,
        || address_space::commit_ratio().into(),
        |value| {
            address_space::set_commit_ratio(value as u32);
        },
    )?;
    setting(
        "vm/legacy_va_layout",
        0..=1,
        || persona::goes_upwards().into(),
        |value| persona::set_goes_upwards(value != 0),
    )?;
    number("vm/max_map_count", || address_space::MAX_REGIONS as u64)?;
    number("vm/mmap_min_addr", || address_space::MINIMUM_ADDRESS)?;
    number("vm/min_free_kbytes", || {
        memory::statistics::memory().watermarks.minimum * (PAGE_SIZE as u64 / 1024)
    })?;
    add(
        "vm/drop_caches",
        0o200,
        |_| Ok(()),
        |bytes| {
            const EVERYTHING: usize = 1 << 20;
            let what = parse(bytes, &(1..=4))?;
            match what & 3 {
                1 => _ = vfs::disk::shrink::drop_all(),
                // Pages stay. What goes is free after a grace period.
                2 => {
                    vfs::dentry::shrink(usize::MAX);
                    sync::rcu::relieve();
                    memory::reclaim::tidy();
                }
                3 => {
                    memory::reclaim::reclaim_now(EVERYTHING);
                    vfs::disk::shrink::drop_all();
                }
                _ => {}
            }
            Ok(())
        },
    )?;
    write_back_settings()
}

/// Limits for dirty pages. A ratio and a number of bytes exclude each other: what was set last counts.
fn write_back_settings() -> Result<()> {
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use vfs::disk::flusher::{SETTINGS, set_write_back_period};

    // A limit of less than two pages is refused, as in Linux.
    const LEAST_LIMIT_BYTES: u64 = 2 * PAGE_SIZE as u64;
    let pairs: [(&str, &str, u64, &'static AtomicU64, &'static AtomicU64); 2] = [
        ("vm/dirty_ratio", "vm/dirty_bytes", LEAST_LIMIT_BYTES, &SETTINGS.dirty_ratio, &SETTINGS.dirty_bytes),
        (
            "vm/dirty_background_ratio",
            "vm/dirty_background_bytes",
            1,
            &SETTINGS.background_ratio,
            &SETTINGS.background_bytes,
        ),
    ];
    for (ratio_path, bytes_path, least_bytes, ratio, bytes) in pairs {
        setting(
            ratio_path,
            0..=100,
            || ratio.load(Relaxed),
            |value| {
                ratio.store(value, Relaxed);
                bytes.store(0, Relaxed);
            },
        )?;
        setting(
            bytes_path,
            least_bytes..=u64::MAX >> 1,
            || bytes.load(Relaxed),
            |value| {
                bytes.store(value, Relaxed);
                ratio.store(0, Relaxed);
            },
        )?;
    }
    let centisecs = || 0..=u64::from(u32::MAX);
    let (expire, period) = (&SETTINGS.expire_centisecs, &SETTINGS.write_back_centisecs);
    setting(
        "vm/dirty_expire_centisecs",
        centisecs(),
        || expire.load(Relaxed),
        |new| expire.store(new, Relaxed),
    )?;
    setting("vm/dirty_writeback_centisecs", centisecs(), || period.load(Relaxed), set_write_back_period)
}

fn files() -> Result<()> {
    // Where `binfmt_misc` is mounted.
    procfs::directory("sys/fs/binfmt_misc")?;
    add(
        "fs/file-nr",
        0o444,
        |out| {
            let (open, maximum) = OpenFile::statistics();
            writeln!(out, "{open}\t0\t{maximum}")
        },
        refuse,
    )?;
    setting("fs/file-max", 0..=i64::MAX as u64, || OpenFile::statistics().1, OpenFile::set_maximum)?;
    number("fs/aio-nr", asynchronous::used)?;
    setting(
        "fs/lease-break-time",
        0..=i32::MAX as u64,
        || lease::break_seconds().into(),
        |seconds| lease::set_break_seconds(seconds as u32),
    )?;
    setting(
        "fs/leases-enable",
        0..=i32::MAX as u64,
        || lease::enabled().into(),
        |enabled| lease::set_enabled(enabled != 0),
    )?;
    let most = i32::MAX as u64;
    let watching: [(&str, &AtomicU32); 3] = [
        ("fs/fanotify/max_queued_events", &fanotify::settings::EVENTS_MAX),
        ("fs/fanotify/max_user_groups", &fanotify::settings::GROUPS_MAX),
        ("fs/fanotify/max_user_marks", &fanotify::settings::MARKS_MAX),
    ];
    for (path, limit) in watching {
        let value = || limit.load(Ordering::Relaxed).into();
        setting(path, 0..=most, value, |new| limit.store(new as u32, Ordering::Relaxed))?;
    }
    setting(
        "fs/dir-notify-enable",
        0..=i32::MAX as u64,
        || dnotify::enabled().into(),
        |enabled| dnotify::set_enabled(enabled != 0),
    )?;
    setting("kernel/io_uring_disabled", 0..=2, rings::disabled, rings::set_disabled)?;
    setting("fs/aio-max-nr", 0..=u32::MAX.into(), asynchronous::allowed, asynchronous::set_allowed)?;
    setting("fs/mount-max", 1..=i32::MAX as u64, mount::mount_max, mount::set_mount_max)?;
    let protections = [
        ("fs/protected_hardlinks", 1, &sticky::HARD_LINKS),
        ("fs/protected_symlinks", 1, &sticky::SYMBOLIC_LINKS),
        ("fs/protected_fifos", 2, &sticky::FIFOS),
        ("fs/protected_regular", 2, &sticky::REGULAR_FILES),
    ];
    for (path, most, protection) in protections {
        setting(path, 0..=most, move || protection.get().into(), move |level| protection.set(level as u8))?;
    }
    let switch = 0..=1;
    setting(
        "fs/user_mounts",
        switch.clone(),
        || policy::user_mounts().into(),
        |allowed| policy::set_user_mounts(allowed == 1),
    )?;
    setting(
        "fs/user_mounts_sticky",
        switch,
        || policy::user_mounts_sticky().into(),
        |refused| policy::set_user_mounts_sticky(refused == 1),
    )?;
    setting("user/max_mounts", 0..=u32::MAX.into(), policy::max_user_mounts, policy::set_max_user_mounts)?;
    number("fs/nr_open", || OPEN_FILES_MAX)
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

    #[test]
    fn settings_take_one_number_within_the_range() {
        assert_eq!(parse(b" 2\n", &(0..=2)), Ok(2));
        for wrong in [&b"3"[..], b"", b"-1", b"1 2", b"x", b"\xff"] {
            assert_eq!(parse(wrong, &(0..=2)), Err(Error::Invalid));
        }
    }
}
