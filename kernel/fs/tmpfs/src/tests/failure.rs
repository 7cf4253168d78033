//! Every allocation fails once: nothing panics, nothing leaks, nothing is left half done.

use memory::fallible::{exhaust, inject, stop_injection};
use vfs::credentials::Credentials;
use vfs::epoll::{Epoll, EpollEvent, EpollEvents, create_epoll};
use vfs::file::{DescriptorFlags, Descriptors};
use vfs::flags::{LookupFlags, MountFlags, OpenFlags, UnmountFlags};
use vfs::mount::{MountSource, Propagation};
use vfs::pipe::{create_pipe, splice};
use vfs::user_space::{Kind, Owner, UserSpace};
use vfs::{Error, Result};

use super::{World, settle, write};

/// Only running out of memory may go wrong in a scenario.
fn tolerate(result: Result<()>) {
    match result {
        Ok(()) | Err(Error::OutOfMemory) => {}
        Err(error) => panic!("{error} instead of ENOMEM"),
    }
}

fn inodes_in_use(world: &World) -> u64 {
    let status = world.places.root.mount.superblock().status();
    status.files - status.files_free
}

#[test]
fn changing_names_survives_every_failure() {
    super::alone(|| {
        for number in 0.. {
            inject(number);
            let world = World::try_new();
            if let Ok(world) = &world {
                tolerate(change_names(world));
            }
            let failed = stop_injection();
            if let Ok(world) = &world {
                clean_up(world, &format!("failure {number} at {failed:?}"));
            }
            if failed.is_none() {
                assert!(number > 50, "only {number} failure points");
                return;
            }
        }
    });
}

fn change_names(world: &World) -> Result<()> {
    world.mkdir("/dir")?;
    world.write_file("/dir/a name that is longer than those that need no memory", b"text")?;
    world.symlink("dir", "/link")?;
    world.link("/dir/a name that is longer than those that need no memory", "/other")?;
    world.rename("/other", "/link/moved")?;
    world.mkdir("/second")?;
    world.rename("/second", "/dir/second")?;
    let flags = vfs::flags::RenameFlags::EXCHANGE;
    world.context().rename(world.cwd(), b"/dir/second", world.cwd(), b"/dir/moved", flags)?;
    world.unlink("/link")?;
    world.rmdir("/dir/moved")
}

/// Whatever came to be can be listed, reached and removed, and is gone then.
fn clean_up(world: &World, after: &str) {
    for top in world.list("/").unwrap().into_iter().skip(2) {
        let path = format!("/{top}");
        if world.rmdir(&path).is_ok() || world.unlink(&path).is_ok() {
            continue;
        }
        for name in world.list(&path).unwrap().into_iter().skip(2) {
            let inner = format!("{path}/{name}");
            assert!(world.lstat(&inner).is_ok(), "{inner} is listed but not found after {after}");
            let removed = world.unlink(&inner).is_ok() || world.rmdir(&inner).is_ok();
            assert!(removed, "{inner} can't be removed after {after}");
        }
        assert_eq!(world.rmdir(&path), Ok(()), "{path} after {after}");
    }
    vfs::dentry::shrink(usize::MAX);
    settle();
    assert_eq!(inodes_in_use(world), 1, "inodes leaked after {after}");
}

#[test]
fn mounting_survives_every_failure() {
    sched::current();
    exhaust("mounts", || {
        let Ok(world) = World::try_new() else { return };
        let script = || -> Result<()> {
            world.mkdir("/a")?;
            world.mkdir("/b")?;
            let source = MountSource::New { file_system: &crate::TMPFS, source: b"none", options: b"" };
            world.places.namespace.mount(source, &world.walk("/a")?, MountFlags::empty())?;
            world.mkdir("/a/sub")?;
            let source = world.walk("/a")?;
            let source = MountSource::Bind { source: &source, recursive: true };
            world.places.namespace.mount(source, &world.walk("/b")?, MountFlags::empty())?;
            let mut root = world.places.root.clone();
            drop(world.places.namespace.copy(&mut [&mut root], vfs::user_space::Owner::FIRST, None)?);
            let mut count = 0;
            world.places.namespace.describe(&world.places.root, |_| {
                count += 1;
                Ok(())
            })?;
            assert_eq!(count, 3);
            Ok(())
        };
        tolerate(script());
    });
    settle();
}

#[test]
fn propagation_survives_every_failure() {
    sched::current();
    exhaust("propagation", || {
        let Ok(world) = World::try_new() else { return };
        let namespace = &world.places.namespace;
        let script = || -> Result<()> {
            for path in ["/a", "/b", "/c"] {
                world.mkdir(path)?;
            }
            let source = MountSource::New { file_system: &crate::TMPFS, source: b"none", options: b"" };
            namespace.mount(source, &world.walk("/a")?, MountFlags::empty())?;
            namespace.set_propagation(&world.walk("/a")?, Propagation::Shared, false)?;
            let bind = |from: &str, to: &str| {
                let source = world.walk(from)?;
                let source = MountSource::Bind { source: &source, recursive: true };
                namespace.mount(source, &world.walk(to)?, MountFlags::empty())
            };
            bind("/a", "/b")?;
            bind("/a", "/c")?;
            namespace.set_propagation(&world.walk("/c")?, Propagation::Slave, false)?;
            namespace.set_propagation(&world.walk("/c")?, Propagation::Shared, false)?;
            world.mkdir("/a/sub")?;
            let mut root = world.places.root.clone();
            let space = UserSpace::make(900_100, &Credentials::ordinary(7, 7), 7, 7)?;
            let other = namespace.copy(&mut [&mut root], Owner::claim(Kind::Mount, &space, 7)?, None)?;
            let source = MountSource::New { file_system: &crate::TMPFS, source: b"none", options: b"" };
            let mounted = namespace.mount(source, &world.walk("/a/sub")?, MountFlags::empty());
            let count = if mounted.is_ok() { 7 } else { 4 };
            assert_eq!((namespace.mount_count(), other.mount_count()), (count, count), "all or nothing");
            mounted?;
            namespace.unmount(world.walk("/b/sub")?, UnmountFlags::DETACH, &world.places.root)?;
            // The slaves of the group that ends go to its master, or to nobody.
            namespace.unmount(world.walk("/c")?, UnmountFlags::DETACH, &world.places.root)
        };
        tolerate(script());
    });
    settle();
}

#[test]
fn open_files_survive_every_failure() {
    sched::current();
    exhaust("files", || {
        let Ok(world) = World::try_new() else { return };
        let script = || -> Result<()> {
            let table = Descriptors::new()?;
            let (reader, writer) = create_pipe(OpenFlags::NON_BLOCK, &Credentials::root())?;
            table.install(reader.clone(), DescriptorFlags::empty(), 0, 100)?;
            let reserved = table.reserve(100)?;
            reserved.install(writer.clone(), DescriptorFlags::CLOSE_ON_EXEC);
            let epoll = create_epoll(&alloc::sync::Arc::default())?;
            let event = EpollEvent { events: EpollEvents::from_bits_retain(1), data: 3 };
            Epoll::of(&epoll)?.add(0, &reader, event)?;
            write(&writer, &[1; 6000])?;
            world.write_file("/file", &[2; 5000])?;
            let file = world.open("/file", OpenFlags::empty())?;
            splice(&file, None, &writer, None, 5000, true)?;
            let copy = table.duplicate()?;
            copy.close_on_exec();
            let mut count = 0;
            Epoll::of(&epoll)?.wait(10, Some(0), &mut |_| {
                count += 1;
                Ok(())
            })?;
            assert_eq!(count, 1);
            let target = world.open("/target", OpenFlags::CREATE | OpenFlags::WRITE_ONLY)?;
            splice(&reader, None, &target, None, 100_000, true)?;
            let opened =
                world.open("/", OpenFlags::TEMPORARY_FILE | OpenFlags::DIRECTORY | OpenFlags::READ_WRITE)?;
            let place = opened.path().ok_or(Error::Io)?;
            world.context().make_hard_link(place, b"", world.cwd(), b"/named", LookupFlags::EMPTY_PATH)?;
            Ok(())
        };
        tolerate(script());
    });
    settle();
}
