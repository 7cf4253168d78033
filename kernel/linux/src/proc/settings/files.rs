//! Settings of files: how many there may be, watching, leases, links that are protected, and what normal users may mount.

use core::fmt::Write;
use core::sync::atomic::{AtomicU32, Ordering};

use vfs::dnotify;
use vfs::epoll;
use vfs::lock::lease;
use vfs::mount::{self, policy};
use vfs::sticky;
use vfs::{OpenFile, Result, fanotify_settings, inotify_settings};

use super::{add, number, refuse, setting};
use crate::file::asynchronous;
use crate::io_ring::calls as rings;
use crate::process::limits::OPEN_FILES_MAX;

pub(super) fn register() -> Result<()> {
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
    let watching: [(&str, &AtomicU32); 6] = [
        ("fs/inotify/max_queued_events", &inotify_settings::EVENTS_MAX),
        ("fs/inotify/max_user_instances", &inotify_settings::INSTANCES_MAX),
        ("fs/inotify/max_user_watches", &inotify_settings::WATCHES_MAX),
        ("fs/fanotify/max_queued_events", &fanotify_settings::EVENTS_MAX),
        ("fs/fanotify/max_user_groups", &fanotify_settings::GROUPS_MAX),
        ("fs/fanotify/max_user_marks", &fanotify_settings::MARKS_MAX),
    ];
    for (path, limit) in watching {
        let value = || limit.load(Ordering::Relaxed).into();
        setting(path, 0..=most, value, |new| limit.store(new as u32, Ordering::Relaxed))?;
    }
    setting(
        "fs/epoll/max_user_watches",
        0..=i64::MAX as u64,
        epoll::max_user_watches,
        epoll::set_max_user_watches,
    )?;
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
