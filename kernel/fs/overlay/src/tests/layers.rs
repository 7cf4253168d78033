//! What is on the layers after changes, and what a mount refuses.

use vfs::flags::{OpenFlags, RenameFlags};
use vfs::{Error, FileKind};

use super::{USUAL, World, errno};

fn is_whiteout(world: &World, path: &str) -> bool {
    world.stat(path).is_ok_and(|status| {
        status.mode & 0o170000 == FileKind::CharacterDevice.mode_bits() && status.special.encode() == 0
    })
}

fn world() -> World {
    let world = World::new();
    world.write("/l1/a", b"one").unwrap();
    world.write("/l2/a", b"two").unwrap();
    world.write("/l2/b", b"two").unwrap();
    world.mkdir("/l1/d").unwrap();
    world.mkdir("/l2/d").unwrap();
    world.write("/l1/d/x", b"x1").unwrap();
    world.write("/l2/d/y", b"y2").unwrap();
    world.overlay(USUAL, "/m").unwrap();
    world
}

#[test]
fn removed_lower_files_leave_whiteouts() {
    let world = world();
    world.unlink("/m/b").unwrap();
    assert!(is_whiteout(&world, "/u/b"));
    assert_eq!(errno(world.stat("/m/b")), Some(Error::NotFound));
    assert_eq!(world.list("/m").unwrap(), "a d/");
    world.write("/m/b", b"new").unwrap();
    assert_eq!(world.read("/u/b").unwrap(), b"new");
    assert_eq!(world.list("/w/work").unwrap(), "");
    // A file of the upper layer alone leaves nothing.
    world.write("/m/c", b"").unwrap();
    world.unlink("/m/c").unwrap();
    assert_eq!(world.list("/u").unwrap(), "b");
}

#[test]
fn a_directory_made_over_a_removed_one_is_opaque() {
    let world = world();
    world.unlink("/m/d/x").unwrap();
    assert_eq!(errno(world.rmdir("/m/d")), Some(Error::NotEmpty));
    world.unlink("/m/d/y").unwrap();
    world.rmdir("/m/d").unwrap();
    assert!(is_whiteout(&world, "/u/d"));
    world.mkdir("/m/d").unwrap();
    assert_eq!(world.get("/u/d", "trusted.overlay.opaque").unwrap(), b"y");
    assert_eq!(world.list("/m/d").unwrap(), "");
    assert_eq!(errno(world.get("/m/d", "trusted.overlay.opaque")), Some(Error::NoData));
    assert_eq!(world.attributes("/m/d").unwrap(), "");
    world.set("/m/d", "trusted.overlay.opaque", b"1").unwrap();
    assert_eq!(world.get("/u/d", "trusted.overlay.overlay.opaque").unwrap(), b"1");
    assert_eq!(world.attributes("/m/d").unwrap(), "trusted.overlay.opaque\0");
    assert_eq!(world.list("/w/work").unwrap(), "");
}

#[test]
fn layers_made_elsewhere_mean_the_same() {
    let world = World::new();
    world.write("/l2/hidden", b"").unwrap();
    world.mknod("/l1/hidden", FileKind::CharacterDevice, 0, 0).unwrap();
    for layer in ["/l1", "/l2"] {
        world.mkdir(&std::format!("{layer}/o")).unwrap();
        world.mkdir(&std::format!("{layer}/m")).unwrap();
    }
    world.write("/l2/o/below", b"").unwrap();
    world.write("/l1/o/above", b"").unwrap();
    world.write("/l2/m/below", b"").unwrap();
    world.write("/l1/m/above", b"").unwrap();
    world.set("/l1/o", "trusted.overlay.opaque", b"y").unwrap();
    // A file between two directories ends them, a file under a directory is hidden.
    world.mkdir("/u/f").unwrap();
    world.write("/l1/f", b"").unwrap();
    world.mkdir("/l2/f").unwrap();
    world.write("/l2/f/deep", b"").unwrap();
    world.overlay(USUAL, "/m").unwrap();
    assert_eq!(world.list("/m").unwrap(), "f/ m/ o/");
    assert_eq!(world.list("/m/o").unwrap(), "above");
    assert_eq!(world.list("/m/m").unwrap(), "above below");
    assert_eq!(world.list("/m/f").unwrap(), "");
    assert_eq!(errno(world.stat("/m/o/below")), Some(Error::NotFound));
}

#[test]
fn a_replaced_lower_file_and_a_renamed_one_are_hidden() {
    let world = world();
    world.rename("/m/a", "/m/new", RenameFlags::empty()).unwrap();
    assert!(is_whiteout(&world, "/u/a"));
    assert_eq!(world.read("/u/new").unwrap(), b"one");
    world.rename("/m/new", "/m/b", RenameFlags::empty()).unwrap();
    assert_eq!(world.read("/m/b").unwrap(), b"one");
    assert_eq!(world.list("/m").unwrap(), "b d/");
    world.rename("/m/b", "/m/a", RenameFlags::empty()).unwrap();
    assert_eq!(world.read("/m/a").unwrap(), b"one");
    assert!(is_whiteout(&world, "/u/b"));
    assert_eq!(world.list("/w/work").unwrap(), "");
}

#[test]
fn directories_with_something_below_are_not_renamed() {
    let world = world();
    assert_eq!(errno(world.rename("/m/d", "/m/e", RenameFlags::empty())), Some(Error::CrossDevice));
    world.mkdir("/m/own").unwrap();
    assert_eq!(errno(world.rename("/m/own", "/m/d", RenameFlags::EXCHANGE)), Some(Error::CrossDevice));
    world.write("/m/own/file", b"mine").unwrap();
    assert_eq!(errno(world.rename("/m/own", "/m/d", RenameFlags::empty())), Some(Error::NotEmpty));
    world.unlink("/m/d/x").unwrap();
    world.unlink("/m/d/y").unwrap();
    world.rename("/m/own", "/m/d", RenameFlags::empty()).unwrap();
    assert_eq!(world.list("/m/d").unwrap(), "file");
    assert_eq!(world.get("/u/d", "trusted.overlay.opaque").unwrap(), b"y");
    world.rename("/m/d", "/m/moved", RenameFlags::empty()).unwrap();
    assert!(is_whiteout(&world, "/u/d"));
    assert_eq!(world.list("/m").unwrap(), "a b moved/");
    assert_eq!(world.list("/w/work").unwrap(), "");
}

#[test]
fn a_copy_keeps_what_the_file_had() {
    let world = World::new();
    world.write("/l1/file", b"text").unwrap();
    world.set("/l1/file", "user.note", b"kept").unwrap();
    world.set("/l1/file", "trusted.overlay.origin", b"not").unwrap();
    world.chmod("/l1/file", 0o6751).unwrap();
    world.mkdir("/l1/deep").unwrap();
    world.chmod("/l1/deep", 0o1750).unwrap();
    world.mkdir("/l1/deep/er").unwrap();
    world.symlink("target", "/l1/deep/er/link").unwrap();
    world.overlay(USUAL, "/m").unwrap();
    let before = world.stat("/m/file").unwrap();
    world.change("/m/file", &vfs::AttributeChange { user: Some(7), ..Default::default() }).unwrap();
    let after = world.stat("/m/file").unwrap();
    assert_eq!((after.device, after.inode, after.modified), (before.device, before.inode, before.modified));
    assert_eq!((after.user, after.mode & 0o7777), (7, 0o751));
    assert_eq!(world.get("/u/file", "user.note").unwrap(), b"kept");
    assert_eq!(world.attributes("/u/file").unwrap(), "user.note\0");
    assert_eq!(world.read("/u/file").unwrap(), b"text");
    let directory = world.stat("/m/deep").unwrap();
    world.rename("/m/deep/er/link", "/m/deep/er/moved", RenameFlags::empty()).unwrap();
    let copied = world.stat("/m/deep").unwrap();
    assert_eq!(
        (copied.mode, copied.modified, copied.inode),
        (directory.mode, directory.modified, directory.inode)
    );
    assert_eq!(world.stat("/u/deep").unwrap().mode, directory.mode);
    assert_eq!(world.list("/u/deep/er").unwrap(), "link moved");
}

#[test]
fn holes_stay_holes_and_large_files_are_copied_whole() {
    let world = World::new();
    let text: std::vec::Vec<u8> = (0..300_000_u32).map(|number| (number / 7) as u8).collect();
    world.write("/l1/file", &text).unwrap();
    world.truncate("/l1/file", 50 << 20).unwrap();
    world.append("/l1/file", b"end").unwrap();
    world.overlay(USUAL, "/m").unwrap();
    world.chmod("/m/file", 0o600).unwrap();
    let copy = world.stat("/u/file").unwrap();
    assert_eq!(copy.size, (50 << 20) + 3);
    assert_eq!(copy.blocks, world.stat("/l1/file").unwrap().blocks);
    let bytes = world.read("/u/file").unwrap();
    assert!(bytes[..text.len()] == text[..] && bytes.ends_with(b"\0end"));
}

#[test]
fn mounts_that_make_no_sense_are_refused() {
    let world = World::new();
    world.write("/file", b"").unwrap();
    world.mkdir("/u/in").unwrap();
    for (options, error) in [
        ("lowerdir=/l1:/nowhere", Error::NotFound),
        ("lowerdir=/file", Error::Invalid),
        ("upperdir=/u,workdir=/w", Error::Invalid),
        ("lowerdir=/l1,upperdir=/u", Error::Invalid),
        ("lowerdir=/l1,upperdir=/u,workdir=/u/in", Error::Invalid),
        ("lowerdir=/u/in,upperdir=/u,workdir=/w", Error::Loop),
        ("lowerdir=/l1,upperdir=/u,workdir=/w,metacopy=on", Error::Invalid),
    ] {
        assert_eq!(errno(world.overlay(options, "/m")), Some(error), "{options}");
    }
    world.mount_tmpfs("/w");
    assert_eq!(errno(world.overlay(USUAL, "/m")), Some(Error::Invalid));
}

#[test]
fn what_a_crash_left_in_the_work_directory_goes() {
    let world = World::new();
    world.mkdir("/w/work").unwrap();
    world.write("/w/work/#0", b"half").unwrap();
    world.mkdir("/w/work/#1").unwrap();
    world.mknod("/w/work/#1/gone", FileKind::CharacterDevice, 0, 0).unwrap();
    world.overlay(USUAL, "/m").unwrap();
    assert_eq!(world.list("/w/work").unwrap(), "");
}

#[test]
fn without_an_upper_layer_nothing_is_changed() {
    let world = world();
    world.unmount("/m").unwrap();
    world.overlay("lowerdir=/l1:/l2", "/m").unwrap();
    assert_eq!(world.list("/m/d").unwrap(), "x y");
    assert_eq!(errno(world.write("/m/a", b"")), Some(Error::ReadOnly));
    assert_eq!(errno(world.unlink("/m/a")), Some(Error::ReadOnly));
    assert_eq!(errno(world.mkdir("/m/new")), Some(Error::ReadOnly));
    assert_eq!(errno(world.chmod("/m/a", 0)), Some(Error::ReadOnly));
    assert_eq!(world.read("/m/a").unwrap(), b"one");
}

#[test]
fn an_overlay_can_be_the_lower_layer_of_another() {
    let world = world();
    world.mkdir("/u2").unwrap();
    world.mkdir("/w2").unwrap();
    world.mkdir("/m2").unwrap();
    world.overlay("lowerdir=/m,upperdir=/u2,workdir=/w2", "/m2").unwrap();
    world.append("/m2/a", b"!").unwrap();
    world.unlink("/m2/d/x").unwrap();
    assert_eq!(world.list("/m2/d").unwrap(), "y");
    assert_eq!(world.read("/m2/a").unwrap(), b"one!");
    assert_eq!(world.read("/m/a").unwrap(), b"one");
    assert_eq!(errno(world.overlay("lowerdir=/m2", "/plain")), Some(Error::Invalid));
    assert_eq!(errno(world.overlay("lowerdir=/l1,upperdir=/m/d,workdir=/m", "/plain")), Some(Error::Invalid));
}

#[test]
fn the_layers_are_given_back_at_the_end() {
    let world = World::new();
    world.mount_tmpfs("/l1");
    world.write("/l1/f", b"").unwrap();
    let superblock = world.walk("/l1").unwrap().mount.superblock().clone();
    let before = std::sync::Arc::strong_count(&superblock);
    world.overlay(USUAL, "/m").unwrap();
    let file = world.open("/m/f", OpenFlags::empty()).unwrap();
    assert_eq!(errno(world.unmount("/m")), Some(Error::Busy));
    drop(file);
    world.unmount("/m").unwrap();
    // As the next unmount does before it ends a file system.
    sync::rcu::barrier_expedited();
    assert_eq!(std::sync::Arc::strong_count(&superblock), before);
}
