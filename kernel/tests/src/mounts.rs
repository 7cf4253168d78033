//! Tests of counting at mounts (`test=mounts`): references and writers are counted per CPU, and are exact where it matters.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use machine::{boot, cpu, time};
use vfs::Error;
use vfs::credentials::Credentials;
use vfs::file::OpenFile;
use vfs::flags::{LookupFlags, MountFlags, OpenFlags, UnmountFlags};
use vfs::mount::{Mount, MountNamespace, MountSource, Path};
use vfs::tree::OpenHow;
use vfs::walk::{PathContext, Places};

use super::percpu::on_each_cpu;
use super::{Outcome, Test, check, fail};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "mounts::busy_while_all_processors_use_it", run: busy_while_used },
    Test { name: "mounts::read_only_only_without_writers", run: read_only_without_writers },
    Test { name: "mounts::unmounting_waits_for_no_timer", run: unmounting_waits_for_no_timer },
];

/// Times that the references are gathered, or the mount made read-only, while the others use it.
const ROUNDS: u64 = 20;

/// Grace periods after which nothing is left of a mount without users.
const GRACE_PERIODS: u32 = 10;

/// A name space of its own, with a file system on `/mnt` and a file in it.
struct World {
    places: Places,
    credentials: Credentials,
}

impl World {
    fn new() -> vfs::Result<Self> {
        let superblock = tmpfs::new_instance("rootfs", 0o755)?;
        let mount =
            Mount::new(superblock.clone(), superblock.root().clone(), b"rootfs", MountFlags::empty())?;
        let namespace = MountNamespace::new(mount)?;
        let root = namespace.root();
        let world =
            Self { places: Places { cwd: root.clone(), root, namespace }, credentials: Credentials::root() };
        world.context().make_directory(&world.places.root, b"/mnt", 0o755)?;
        world.mount(b"/mnt")?;
        drop(world.open(b"/mnt/file", OpenFlags::CREATE | OpenFlags::WRITE_ONLY)?);
        Ok(world)
    }

    fn context(&self) -> PathContext<'_> {
        PathContext { places: &self.places, credentials: &self.credentials, umask: 0 }
    }

    fn walk(&self, path: &[u8]) -> vfs::Result<Path> {
        self.context().walk(&self.places.root, path, LookupFlags::FOLLOW)
    }

    fn open(&self, path: &[u8], flags: OpenFlags) -> vfs::Result<Arc<OpenFile>> {
        let how = OpenHow { flags, mode: 0o600, resolve: LookupFlags::empty() };
        self.context().open(&self.places.root, path, &how)
    }

    fn mount(&self, path: &[u8]) -> vfs::Result<()> {
        let source = MountSource::New { file_system: &tmpfs::TMPFS, source: b"none", options: b"" };
        self.places.namespace.mount(source, &self.walk(path)?, MountFlags::empty())
    }

    fn unmount(&self) -> vfs::Result<()> {
        self.unmount_at(b"/mnt")
    }

    fn unmount_at(&self, path: &[u8]) -> vfs::Result<()> {
        let place = self.walk(path)?;
        self.places.namespace.unmount(place, UnmountFlags::empty(), &self.places.root)
    }
}

/// Counts what must not happen.
fn note(wrong: &AtomicU64, is_right: bool) {
    wrong.fetch_add(u64::from(!is_right), Ordering::Relaxed);
}

fn busy_while_used() -> Outcome {
    let Ok(world) = World::new() else { fail!("no memory") };
    let world = Arc::new(world);
    let (Ok(place), Ok(held)) = (world.walk(b"/mnt/file"), world.open(b"/mnt/file", OpenFlags::empty()))
    else {
        fail!("the file is not there");
    };
    let Ok(inode) = place.inode().map(Arc::downgrade) else { fail!("the file is not there") };
    drop(place);
    let (wrong, tries) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let first = cpu::online().iter().next();
    let (user, errors, tried) = (world.clone(), wrong.clone(), tries.clone());
    on_each_cpu(move || {
        while tried.load(Ordering::Relaxed) < ROUNDS {
            if Some(cpu::current()) == first {
                // `held` keeps it busy, however the others' references come and go.
                note(&errors, user.unmount() == Err(Error::Busy));
                tried.fetch_add(1, Ordering::Relaxed);
            } else {
                note(&errors, user.open(b"/mnt/file", OpenFlags::empty()).is_ok());
                note(&errors, user.walk(b"/mnt").is_ok_and(|place| place.is_mount_root()));
            }
        }
    })?;
    check!(wrong.load(Ordering::Relaxed) == 0, "{} wrong answers", wrong.load(Ordering::Relaxed));
    check!(world.unmount() == Err(Error::Busy), "unmounted with a file open");
    drop(held);
    let outcome = world.unmount();
    check!(outcome.is_ok(), "unused, but {outcome:?}");
    check!(world.walk(b"/mnt/file").err() == Some(Error::NotFound), "the file is still there");
    // The mount ends a grace period later, then its entries, then what they refer to.
    for _ in 0..GRACE_PERIODS {
        ::sync::rcu::synchronize();
        ::sync::rcu::barrier();
    }
    check!(inode.strong_count() == 0, "the file outlives its mount");
    Ok(())
}

fn read_only_without_writers() -> Outcome {
    let Ok(world) = World::new() else { fail!("no memory") };
    let world = Arc::new(world);
    let (wrong, changes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    // Between a remount to read-only that succeeded and the one back.
    let promised = Arc::new(AtomicBool::new(false));
    // The writers let go and begin no more until nobody writes: with many of them that need not happen by itself.
    let waiting = Arc::new(AtomicBool::new(false));
    let first = cpu::online().iter().next();
    let (user, errors, changed) = (world.clone(), wrong.clone(), changes.clone());
    on_each_cpu(move || {
        let remount =
            |flags| user.walk(b"/mnt").and_then(|place| user.places.namespace.remount(&place, flags, None));
        while changed.load(Ordering::Relaxed) < ROUNDS {
            if Some(cpu::current()) == first {
                match remount(MountFlags::READ_ONLY) {
                    Ok(()) => {
                        promised.store(true, Ordering::SeqCst);
                        waiting.store(false, Ordering::SeqCst);
                        note(
                            &errors,
                            user.open(b"/mnt/file", OpenFlags::WRITE_ONLY).err() == Some(Error::ReadOnly),
                        );
                        promised.store(false, Ordering::SeqCst);
                        note(&errors, remount(MountFlags::empty()).is_ok());
                        changed.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => {
                        note(&errors, error == Error::Busy);
                        waiting.store(true, Ordering::SeqCst);
                    }
                }
                ::sched::yield_now();
            } else if waiting.load(Ordering::SeqCst) {
                ::sched::yield_now();
            } else {
                match user.open(b"/mnt/file", OpenFlags::WRITE_ONLY) {
                    Ok(_file) => note(&errors, !promised.load(Ordering::SeqCst)),
                    Err(error) => note(&errors, error == Error::ReadOnly),
                }
                ::sched::yield_now();
            }
        }
    })?;
    check!(wrong.load(Ordering::Relaxed) == 0, "{} wrong answers", wrong.load(Ordering::Relaxed));
    let Ok(writer) = world.open(b"/mnt/file", OpenFlags::WRITE_ONLY) else {
        fail!("not writable at the end")
    };
    let Ok(place) = world.walk(b"/mnt") else { fail!("not there at the end") };
    let remount = || world.places.namespace.remount(&place, MountFlags::READ_ONLY, None);
    check!(remount() == Err(Error::Busy), "read-only with a writer");
    drop(writer);
    check!(remount().is_ok(), "busy without a writer");
    Ok(())
}

/// Mounts that older lists of mounts still refer to are unmounted. With instructions as the clock (`mounts.clock=instructions` says so)
/// the host has no say in how long that takes.
fn unmounting_waits_for_no_timer() -> Outcome {
    /// Half the period of the timer that moves callbacks on.
    const LIMIT_NS: u64 = 1_000_000;
    let counts_instructions = boot::info().option("mounts.clock") == Some("instructions");
    let Ok(world) = World::new() else { fail!("no memory") };
    let made = world.context().make_directory(&world.places.root, b"/other", 0o755);
    check!(made.is_ok(), "no directory: {made:?}");
    for round in 0..ROUNDS {
        let mounted = world.mount(b"/other");
        check!(mounted.is_ok(), "round {round}: not mounted: {mounted:?}");
        for path in [&b"/mnt"[..], b"/other"] {
            let begin_ns = time::now_ns();
            let outcome = world.unmount_at(path);
            let took_ns = time::now_ns() - begin_ns;
            check!(outcome.is_ok(), "round {round}: unused, but {outcome:?}");
            check!(!counts_instructions || took_ns <= LIMIT_NS, "round {round}: took {took_ns} ns");
        }
        let mounted = world.mount(b"/mnt");
        check!(mounted.is_ok(), "round {round}: not mounted again: {mounted:?}");
    }
    Ok(())
}
