//! Settings of memory: the pool of huge pages, what is promised, and when dirty pages are written.

use alloc::format;

use machine::address::PAGE_SIZE;
use memory::address_space::{self, CommitMode};
use memory::huge_pool::{self, HugePoolCounts};
use vfs::Result;

use super::{add, number, parse, setting};
use crate::exec::persona;

/// What can be set of the pool of huge pages: its name, also below `/sys`, what it is, and how it is changed.
pub(in crate::proc) type PoolSetting = (&'static str, fn(&HugePoolCounts) -> u64, fn(u64));

/// All of them.
pub(in crate::proc) const HUGE_POOL: [PoolSetting; 2] = [
    ("nr_hugepages", |pool| pool.total, huge_pool::set_size),
    ("nr_overcommit_hugepages", |pool| pool.overcommit, huge_pool::set_overcommit_limit),
];

pub(super) fn register() -> Result<()> {
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
            if what & 3 == 3 {
                memory::reclaim::reclaim_now(EVERYTHING);
            }
            // What goes is free after a grace period.
            if what & 2 != 0 {
                vfs::dentry::shrink(usize::MAX);
                sync::rcu::relieve();
            }
            if what & 1 != 0 {
                vfs::disk::shrink::drop_all();
            }
            if what & 2 != 0 {
                memory::reclaim::tidy();
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
