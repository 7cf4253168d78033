//! Walking paths.

use alloc::sync::Arc;

use memory::per_cpu::Kept;
use vfs::Error;
use vfs::flags::{LookupFlags, OpenFlags};
use vfs::tree::OpenHow;

use super::World;

#[test]
fn dots_slashes_and_the_root_are_as_in_the_manual() {
    let world = World::new();
    world.mkdir("/a").unwrap();
    world.mkdir("/a/b").unwrap();
    world.write_file("/a/file", b"").unwrap();
    for path in ["/a/b", "//a//b//", "/a/./b/.", "/../../a/b", "/a/b/../b", "a/b"] {
        assert_eq!(world.path_of(&world.walk(path).unwrap()), "/a/b", "{path}");
    }
    assert_eq!(world.walk("/a/file/").unwrap_err(), Error::NotDirectory);
    assert_eq!(world.walk("/a/file/.").unwrap_err(), Error::NotDirectory);
    assert_eq!(world.walk("/a/file/x").unwrap_err(), Error::NotDirectory);
    assert_eq!(world.walk("/none/..").unwrap_err(), Error::NotFound);
    assert_eq!(world.walk("").unwrap_err(), Error::NotFound);
}

#[test]
fn limits_on_names_and_paths_hold() {
    let world = World::new();
    let name = "n".repeat(255);
    world.mkdir(&format!("/{name}")).unwrap();
    assert!(world.walk(&format!("/{name}")).is_ok());
    assert_eq!(world.walk(&format!("/{name}n")).unwrap_err(), Error::NameTooLong);
    assert_eq!(world.mkdir(&format!("/{name}n")).unwrap_err(), Error::NameTooLong);
    assert!(world.walk(&"/".repeat(4095)).is_ok());
    assert_eq!(world.walk(&"/".repeat(4096)).unwrap_err(), Error::NameTooLong);
}

#[test]
fn forty_links_are_followed_and_no_more() {
    let world = World::new();
    world.write_file("/link0", b"end").unwrap();
    for number in 1..=41 {
        world.symlink(&format!("link{}", number - 1), &format!("/link{number}")).unwrap();
    }
    assert_eq!(world.read_file("/link40").unwrap(), b"end");
    assert_eq!(world.read_file("/link41").unwrap_err(), Error::Loop);
    world.symlink("self", "/self").unwrap();
    assert_eq!(world.walk("/self").unwrap_err(), Error::Loop);
}

#[test]
fn links_lead_from_where_they_are() {
    let world = World::new();
    world.mkdir("/a").unwrap();
    world.mkdir("/b").unwrap();
    world.write_file("/b/file", b"text").unwrap();
    world.symlink("../b", "/a/relative").unwrap();
    world.symlink("/b/", "/a/absolute").unwrap();
    world.symlink("none", "/a/dangling").unwrap();
    world.symlink("../b/file", "/a/tofile").unwrap();
    for path in ["/a/relative/file", "/a/absolute/file", "/a/tofile", "/a/absolute/../b/file"] {
        assert_eq!(world.read_file(path).unwrap(), b"text", "{path}");
    }
    assert_eq!(world.walk("/a/tofile/").unwrap_err(), Error::NotDirectory);
    assert_eq!(world.walk("/a/dangling").unwrap_err(), Error::NotFound);
    assert_eq!(world.lstat("/a/dangling").unwrap().size, 4);
    assert!(world.lstat("/a/relative/").unwrap().mode & 0o040000 != 0);
    assert_eq!(&*world.context().read_link(world.cwd(), b"/a/relative").unwrap(), b"../b");
    assert_eq!(world.context().read_link(world.cwd(), b"/b").unwrap_err(), Error::Invalid);
}

#[test]
fn creation_goes_through_a_dangling_link_unless_exclusive() {
    let world = World::new();
    world.mkdir("/dir").unwrap();
    world.symlink("dir/new", "/link").unwrap();
    let exclusive = OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::WRITE_ONLY;
    assert_eq!(world.open("/link", exclusive).err(), Some(Error::Exists));
    let no_follow = OpenFlags::CREATE | OpenFlags::NO_FOLLOW | OpenFlags::WRITE_ONLY;
    assert_eq!(world.open("/link", no_follow).err(), Some(Error::Loop));
    world.write_file("/link", b"x").unwrap();
    assert_eq!(world.read_file("/dir/new").unwrap(), b"x");
    assert_eq!(world.open("/link", OpenFlags::NO_FOLLOW).err(), Some(Error::Loop));
    let handle = world.open("/link", OpenFlags::NO_FOLLOW | OpenFlags::PATH).unwrap();
    assert_eq!(handle.status().mode & 0o170000, 0o120000);
}

#[test]
fn absence_is_forgotten_when_the_name_is_made() {
    let world = World::new();
    for _ in 0..3 {
        assert_eq!(world.stat("/x").unwrap_err(), Error::NotFound);
        assert_eq!(world.stat("/x/y").unwrap_err(), Error::NotFound);
        world.mkdir("/x").unwrap();
        assert!(world.stat("/x").is_ok());
        world.rmdir("/x").unwrap();
        world.write_file("/y", b"").unwrap();
        world.rename("/y", "/x").unwrap();
        assert!(world.stat("/x").is_ok());
        world.unlink("/x").unwrap();
    }
}

#[test]
fn a_changed_root_can_not_be_left() {
    let mut world = World::new();
    world.mkdir("/jail").unwrap();
    world.mkdir("/jail/dir").unwrap();
    world.symlink("/dir", "/jail/link").unwrap();
    world.places.root = world.walk("/jail").unwrap();
    world.places.cwd = world.places.root.clone();
    for path in ["/..", "../../..", "/dir/../..", "/link/.."] {
        assert!(world.walk(path).unwrap().same(&world.places.root), "{path}");
    }
    assert_eq!(world.path_of(&world.walk("/link").unwrap()), "/dir");
}

#[test]
fn restricted_walks_stay_where_they_may() {
    let world = World::new();
    for path in ["/top", "/top/dir", "/other"] {
        world.mkdir(path).unwrap();
    }
    world.symlink("/other", "/top/absolute").unwrap();
    world.symlink("../other", "/top/up").unwrap();
    world.symlink("dir", "/top/down").unwrap();
    let top = world.walk("/top").unwrap();
    let walk = |path: &[u8], flags: LookupFlags| {
        let how = OpenHow { flags: OpenFlags::PATH, mode: 0, resolve: flags };
        let file = world.context().open(&top, path, &how)?;
        Ok(world.path_of(file.path().unwrap()))
    };
    let beneath = LookupFlags::BENEATH;
    assert_eq!(walk(b"dir/../down", beneath).unwrap(), "/top/dir");
    for path in [&b".."[..], b"/", b"absolute", b"up", b"dir/../.."] {
        assert_eq!(walk(path, beneath), Err(Error::CrossDevice));
    }
    let in_root = LookupFlags::IN_ROOT;
    assert_eq!(walk(b"../../dir", in_root).unwrap(), "/top/dir");
    assert_eq!(walk(b"/dir", in_root).unwrap(), "/top/dir");
    assert_eq!(walk(b"absolute", in_root), Err(Error::NotFound));
    assert_eq!(walk(b"down", LookupFlags::NO_LINKS), Err(Error::Loop));
    assert_eq!(walk(b"dir", LookupFlags::NO_LINKS).unwrap(), "/top/dir");
}

#[test]
fn an_empty_path_means_the_start_if_asked_for() {
    let world = World::new();
    world.write_file("/file", b"abc").unwrap();
    let file = world.open("/file", OpenFlags::PATH).unwrap();
    let status = world.context().status(file.path().unwrap(), b"", LookupFlags::EMPTY_PATH).unwrap();
    assert_eq!(status.size, 3);
    let below = world.context().status(file.path().unwrap(), b"x", LookupFlags::EMPTY_PATH);
    assert_eq!(below.unwrap_err(), Error::NotDirectory);
}

#[test]
fn shrinking_the_cache_forgets_only_what_is_unused() {
    let world = World::new();
    world.mkdir("/dir").unwrap();
    for number in 0..200 {
        world.write_file(&format!("/dir/{number}"), b"x").unwrap();
    }
    let held = world.walk("/dir/7").unwrap();
    let directory = world.walk("/dir").unwrap();
    let cached = || {
        let guard = sync::rcu::read();
        let is_cached = |number: &i32| {
            let name = number.to_string();
            let hash = vfs::name::hash_name(name.as_bytes());
            directory.dentry.cached_child(name.as_bytes(), hash, &guard).is_some()
        };
        (0..200).filter(is_cached).count()
    };
    // Neighbours in a bucket that was just rewritten are in use until a grace period has passed.
    for _ in 0..10 {
        super::settle();
        vfs::dentry::shrink(usize::MAX);
    }
    assert!(cached() < 50, "{} entries stayed", cached());
    assert!(world.walk("/dir/7").unwrap().same(&held));
    for number in 0..200 {
        assert_eq!(world.read_file(&format!("/dir/{number}")).unwrap(), b"x");
    }
}

/// Walks there from two processors in turns until references are counted per processor.
fn heat(world: &World, path: &str) {
    let (go, turns) = std::sync::mpsc::sync_channel(0);
    let (done, ends) = std::sync::mpsc::sync_channel(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while turns.recv().is_ok() {
                world.walk(path).unwrap();
                done.send(()).unwrap();
            }
        });
        for _ in 0..20 {
            world.walk(path).unwrap();
            go.send(()).unwrap();
            ends.recv().unwrap();
        }
        drop(go);
    });
}

#[test]
fn entry_that_two_processors_use_is_counted_per_processor_and_still_ends() {
    super::alone(check_that_a_hot_entry_ends);
}

fn check_that_a_hot_entry_ends() {
    let world = World::try_new().unwrap();
    world.write_file("/hot", b"x").unwrap();
    world.write_file("/cold", b"x").unwrap();
    let cold = world.walk("/cold").unwrap();
    assert!(!Kept::is_spread(&cold.dentry));
    heat(&world, "/hot");
    let place = world.walk("/hot").unwrap();
    assert!(Kept::is_spread(&place.dentry));
    let file = world.open("/hot", OpenFlags::empty()).unwrap();
    let entry = Arc::downgrade(&place.dentry);
    let inode = Arc::downgrade(file.inode());
    super::settle();
    // Those of bucket and handle, of directory and entry; not those of the place and the open file.
    assert_eq!((entry.strong_count(), inode.strong_count()), (2, 2));
    world.unlink("/hot").unwrap();
    drop(place);
    super::settle();
    assert_eq!(file.status().size, 1);
    drop(file);
    super::settle();
    assert!(entry.upgrade().is_none() && inode.upgrade().is_none());
}

#[test]
fn shrinking_the_cache_forgets_entries_that_were_hot() {
    super::alone(check_that_shrinking_forgets_a_hot_entry);
}

fn check_that_shrinking_forgets_a_hot_entry() {
    let world = World::try_new().unwrap();
    world.write_file("/hot", b"x").unwrap();
    heat(&world, "/hot");
    let entry = Arc::downgrade(&world.walk("/hot").unwrap().dentry);
    for _ in 0..20 {
        super::settle();
        vfs::dentry::shrink(usize::MAX);
    }
    super::settle();
    assert!(entry.upgrade().is_none());
    assert_eq!(world.read_file("/hot").unwrap(), b"x");
}
