//! Mounts and name spaces.

use vfs::Error;
use vfs::flags::{LookupFlags, MountFlags, OpenFlags, UnmountFlags};
use vfs::mount::{MountSource, Propagation};

use super::{World, settle};

fn mount_tmpfs(world: &World, path: &str, flags: MountFlags) -> vfs::Result<()> {
    let source = MountSource::New { file_system: &crate::TMPFS, source: b"none", options: b"mode=755" };
    world.places.namespace.mount(source, &world.walk(path)?, flags)
}

fn bind(world: &World, from: &str, to: &str, recursive: bool) -> vfs::Result<()> {
    let source = world.walk(from)?;
    let source = MountSource::Bind { source: &source, recursive };
    world.places.namespace.mount(source, &world.walk(to)?, MountFlags::empty())
}

fn unmount(world: &World, path: &str, flags: UnmountFlags) -> vfs::Result<()> {
    let place = world.walk(path)?;
    world.places.namespace.unmount(place, flags, &world.places.root)
}

#[test]
fn a_mount_covers_its_directory_until_it_is_unmounted() {
    let world = World::new();
    world.mkdir("/mnt").unwrap();
    world.write_file("/mnt/below", b"").unwrap();
    mount_tmpfs(&world, "/mnt", MountFlags::empty()).unwrap();
    assert_eq!(world.stat("/mnt/below").unwrap_err(), Error::NotFound);
    world.write_file("/mnt/above", b"x").unwrap();
    assert_ne!(world.stat("/mnt").unwrap().device, world.stat("/").unwrap().device);
    assert!(world.stat("/mnt").unwrap().mount_root);
    assert!(world.walk("/mnt/..").unwrap().same(&world.places.root));
    assert_eq!(world.rmdir("/mnt").unwrap_err(), Error::Busy);
    assert_eq!(world.rename("/mnt", "/other").unwrap_err(), Error::Busy);
    assert_eq!(world.rename("/mnt/above", "/above").unwrap_err(), Error::CrossDevice);
    assert_eq!(world.link("/mnt/above", "/above").unwrap_err(), Error::CrossDevice);
    unmount(&world, "/mnt", UnmountFlags::empty()).unwrap();
    assert!(world.stat("/mnt/below").is_ok());
    assert_eq!(unmount(&world, "/mnt", UnmountFlags::empty()).unwrap_err(), Error::Invalid);
}

#[test]
fn a_mount_in_use_is_busy_unless_detached() {
    let world = World::new();
    world.mkdir("/mnt").unwrap();
    mount_tmpfs(&world, "/mnt", MountFlags::empty()).unwrap();
    world.write_file("/mnt/file", b"text").unwrap();
    let file = world.open("/mnt/file", OpenFlags::empty()).unwrap();
    assert_eq!(unmount(&world, "/mnt", UnmountFlags::empty()).unwrap_err(), Error::Busy);
    unmount(&world, "/mnt", UnmountFlags::DETACH).unwrap();
    assert_eq!(world.stat("/mnt/file").unwrap_err(), Error::NotFound);
    assert_eq!(super::read_all(&file).unwrap(), b"text");
}

/// Runs `leave` on a file system of its own, mounted on `/mnt` with a file in it. Returns whether the file is gone when the
/// mount is.
fn is_gone_after(leave: impl FnOnce(&World)) -> bool {
    let mut gone = false;
    super::alone(|| {
        let world = World::try_new().unwrap();
        world.mkdir("/mnt").unwrap();
        mount_tmpfs(&world, "/mnt", MountFlags::empty()).unwrap();
        world.write_file("/mnt/file", b"text").unwrap();
        let file = alloc::sync::Arc::downgrade(world.walk("/mnt/file").unwrap().inode().unwrap());
        leave(&world);
        unmount(&world, "/mnt", UnmountFlags::DETACH).unwrap();
        settle();
        gone = file.strong_count() == 0;
    });
    gone
}

#[test]
fn a_removed_directory_with_names_known_to_be_absent_does_not_outlive_its_mount() {
    assert!(is_gone_after(|world| {
        world.mkdir("/mnt/removed").unwrap();
        assert_eq!(world.stat("/mnt/removed/absent").unwrap_err(), Error::NotFound);
        world.rmdir("/mnt/removed").unwrap();
    }));
}

#[test]
fn a_replaced_directory_with_names_known_to_be_absent_does_not_outlive_its_mount() {
    assert!(is_gone_after(|world| {
        world.mkdir("/mnt/old").unwrap();
        world.mkdir("/mnt/new").unwrap();
        assert_eq!(world.stat("/mnt/new/absent").unwrap_err(), Error::NotFound);
        world.rename("/mnt/old", "/mnt/new").unwrap();
    }));
}

#[test]
fn names_looked_up_in_a_removed_directory_do_not_outlive_its_mount() {
    assert!(is_gone_after(|world| {
        world.mkdir("/mnt/removed").unwrap();
        let directory = world.walk("/mnt/removed").unwrap();
        world.rmdir("/mnt/removed").unwrap();
        for _ in 0..2 {
            let status = world.context().status(&directory, b"absent", LookupFlags::FOLLOW);
            assert_eq!(status.unwrap_err(), Error::NotFound);
        }
    }));
}

#[test]
fn binds_show_a_directory_elsewhere_with_flags_of_their_own() {
    let world = World::new();
    for path in ["/a", "/a/sub", "/b", "/c"] {
        world.mkdir(path).unwrap();
    }
    world.write_file("/a/file", b"x").unwrap();
    mount_tmpfs(&world, "/a/sub", MountFlags::empty()).unwrap();
    world.write_file("/a/sub/inner", b"").unwrap();
    bind(&world, "/a", "/b", false).unwrap();
    assert_eq!(world.read_file("/b/file").unwrap(), b"x");
    assert_eq!(world.stat("/b/sub/inner").unwrap_err(), Error::NotFound);
    bind(&world, "/a", "/c", true).unwrap();
    assert!(world.stat("/c/sub/inner").is_ok());
    let place = world.walk("/b").unwrap();
    world.places.namespace.remount(&place, MountFlags::READ_ONLY, None).unwrap();
    assert_eq!(world.write_file("/b/file", b"y").unwrap_err(), Error::ReadOnly);
    assert_eq!(world.mkdir("/b/new").unwrap_err(), Error::ReadOnly);
    assert_eq!(world.mkdir("/b/sub").unwrap_err(), Error::Exists);
    world.write_file("/a/file", b"y").unwrap();
    assert_eq!(world.path_of(&world.walk("/b/file").unwrap()), "/b/file");
    assert_eq!(unmount(&world, "/c", UnmountFlags::empty()).unwrap_err(), Error::Busy);
    unmount(&world, "/c", UnmountFlags::DETACH).unwrap();
    assert!(world.stat("/a/sub/inner").is_ok());
}

#[test]
fn a_file_can_be_bound_onto_a_file_only() {
    let world = World::new();
    world.mkdir("/dir").unwrap();
    world.write_file("/one", b"1").unwrap();
    world.write_file("/two", b"2").unwrap();
    bind(&world, "/one", "/two", false).unwrap();
    assert_eq!(world.read_file("/two").unwrap(), b"1");
    assert_eq!(world.unlink("/two").unwrap_err(), Error::Busy);
    assert_eq!(bind(&world, "/one", "/dir", false).unwrap_err(), Error::NotDirectory);
}

#[test]
fn moving_keeps_what_is_mounted() {
    let world = World::new();
    world.mkdir("/a").unwrap();
    world.mkdir("/b").unwrap();
    mount_tmpfs(&world, "/a", MountFlags::empty()).unwrap();
    world.mkdir("/a/in").unwrap();
    let source = world.walk("/a").unwrap();
    let within = world.walk("/a/in").unwrap();
    let mount = |target: &vfs::mount::Path| {
        world.places.namespace.mount(MountSource::Move { source: &source }, target, MountFlags::empty())
    };
    assert_eq!(mount(&within).unwrap_err(), Error::Loop);
    mount(&world.walk("/b").unwrap()).unwrap();
    assert!(world.stat("/b/in").is_ok());
    assert_eq!(world.stat("/a/in").unwrap_err(), Error::NotFound);
}

#[test]
fn mount_flags_are_enforced() {
    let world = World::new();
    world.mkdir("/mnt").unwrap();
    mount_tmpfs(&world, "/mnt", MountFlags::NO_DEVICES | MountFlags::NO_EXECUTE | MountFlags::NO_LINKS)
        .unwrap();
    let device = vfs::attributes::DeviceNumber::new(1, 3);
    let kind = vfs::attributes::FileKind::CharacterDevice;
    world.context().make_node(world.cwd(), b"/mnt/null", kind, 0o666, device).unwrap();
    assert_eq!(world.open("/mnt/null", OpenFlags::empty()).err(), Some(Error::AccessDenied));
    world.symlink("/", "/mnt/link").unwrap();
    assert_eq!(world.stat("/mnt/link").unwrap_err(), Error::Loop);
    world.write_file("/mnt/program", b"").unwrap();
    assert!(!vfs::walk::may_execute(&world.walk("/mnt/program").unwrap()));
    assert!(vfs::walk::may_execute(&world.walk("/").unwrap()));
}

#[test]
fn read_only_waits_for_no_writer() {
    let world = World::new();
    world.mkdir("/mnt").unwrap();
    mount_tmpfs(&world, "/mnt", MountFlags::empty()).unwrap();
    let writer = world.open("/mnt/file", OpenFlags::CREATE | OpenFlags::WRITE_ONLY).unwrap();
    let place = world.walk("/mnt").unwrap();
    let read_only = || world.places.namespace.remount(&place, MountFlags::READ_ONLY, None);
    assert_eq!(read_only().unwrap_err(), Error::Busy);
    drop(writer);
    read_only().unwrap();
    assert_eq!(world.open("/mnt/file", OpenFlags::WRITE_ONLY).err(), Some(Error::ReadOnly));
    assert!(world.open("/mnt/file", OpenFlags::empty()).is_ok());
}

#[test]
fn walks_can_refuse_to_cross() {
    let world = World::new();
    world.mkdir("/mnt").unwrap();
    mount_tmpfs(&world, "/mnt", MountFlags::empty()).unwrap();
    let walk = |path: &[u8]| world.context().walk(world.cwd(), path, LookupFlags::NO_CROSSING);
    assert_eq!(walk(b"/mnt").unwrap_err(), Error::CrossDevice);
    let inside = world.walk("/mnt").unwrap();
    let up = world.context().walk(&inside, b"..", LookupFlags::NO_CROSSING);
    assert_eq!(up.unwrap_err(), Error::CrossDevice);
}

#[test]
fn descriptions_name_parent_root_and_point() {
    let world = World::new();
    for path in ["/a", "/a/part", "/b"] {
        world.mkdir(path).unwrap();
    }
    bind(&world, "/a/part", "/b", false).unwrap();
    let place = world.walk("/b").unwrap();
    world.places.namespace.set_propagation(&place, Propagation::Shared, false).unwrap();
    let mut lines = Vec::new();
    world
        .places
        .namespace
        .describe(&world.places.root, |mount| {
            assert_eq!(machine::preempt::count(), 0, "whoever looks may sleep: sync(2) does");
            let root = String::from_utf8(mount.root.clone()).unwrap();
            let point = String::from_utf8(mount.point.clone()).unwrap();
            lines.push((root, point, mount.parent == mount.id, mount.shared.is_some()));
            Ok(())
        })
        .unwrap();
    assert_eq!(lines, [("/".into(), "/".into(), true, false), ("/a/part".into(), "/b".into(), false, true)]);
}

#[test]
fn a_copied_name_space_changes_alone() {
    let world = World::new();
    world.mkdir("/mnt").unwrap();
    world.mkdir("/new").unwrap();
    mount_tmpfs(&world, "/mnt", MountFlags::empty()).unwrap();
    world.write_file("/mnt/file", b"").unwrap();
    let (mut root, mut cwd) = (world.places.root.clone(), world.walk("/mnt").unwrap());
    let namespace =
        world.places.namespace.copy(&mut [&mut root, &mut cwd], vfs::user_space::Owner::FIRST, None).unwrap();
    let copy = World { places: vfs::walk::Places { root, cwd, namespace }, ..World::new() };
    assert!(copy.stat("file").is_ok());
    mount_tmpfs(&copy, "/new", MountFlags::empty()).unwrap();
    copy.write_file("/new/x", b"").unwrap();
    assert_eq!(world.stat("/new/x").unwrap_err(), Error::NotFound);
    assert_eq!(world.places.namespace.mount_count(), 2);
    assert_eq!(copy.places.namespace.mount_count(), 3);
}
