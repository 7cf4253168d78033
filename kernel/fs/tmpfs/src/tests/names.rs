//! Making, removing and moving names.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use vfs::Error;
use vfs::attributes::{AttributeChange, DeviceNumber, FileKind};
use vfs::flags::{OpenFlags, RenameFlags};
use vfs::generated::{Directory, Node, StaticDirectory, text_file};

use super::{Names, World, settle};

#[test]
fn directories_count_their_links() {
    let world = World::new();
    world.mkdir("/a").unwrap();
    world.mkdir("/a/b").unwrap();
    world.mkdir("/a/c").unwrap();
    assert_eq!(world.stat("/a").unwrap().links, 4);
    world.rmdir("/a/b").unwrap();
    assert_eq!(world.stat("/a").unwrap().links, 3);
    assert_eq!(world.rmdir("/a").unwrap_err(), Error::NotEmpty);
    world.mkdir("/d").unwrap();
    world.rename("/a/c", "/d/c").unwrap();
    assert_eq!((world.stat("/a").unwrap().links, world.stat("/d").unwrap().links), (2, 3));
}

#[test]
fn hard_links_are_one_file() {
    let world = World::new();
    world.write_file("/one", b"x").unwrap();
    world.link("/one", "/two").unwrap();
    assert_eq!(world.stat("/one").unwrap().inode, world.stat("/two").unwrap().inode);
    assert_eq!(world.stat("/two").unwrap().links, 2);
    assert_eq!(world.link("/one", "/two").unwrap_err(), Error::Exists);
    world.mkdir("/dir").unwrap();
    assert_eq!(world.link("/dir", "/three").unwrap_err(), Error::NotPermitted);
    world.rename("/one", "/two").unwrap();
    assert!(world.stat("/one").is_ok(), "renaming to another name of the same file does nothing");
}

#[test]
fn creation_fails_as_the_manual_says() {
    let world = World::new();
    world.write_file("/file", b"").unwrap();
    world.mkdir("/dir").unwrap();
    assert_eq!(world.mkdir("/dir").unwrap_err(), Error::Exists);
    assert_eq!(world.mkdir("/file").unwrap_err(), Error::Exists);
    assert_eq!(world.mkdir("/").unwrap_err(), Error::Exists);
    assert_eq!(world.mkdir("/dir/.").unwrap_err(), Error::Exists);
    assert_eq!(world.mkdir("/none/new").unwrap_err(), Error::NotFound);
    assert_eq!(world.mkdir("/file/new").unwrap_err(), Error::NotDirectory);
    world.mkdir("/dir/new/").unwrap();
    let exclusive = OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::WRITE_ONLY;
    assert_eq!(world.open("/file", exclusive).err(), Some(Error::Exists));
    assert_eq!(world.open("/new/", OpenFlags::CREATE).err(), Some(Error::IsDirectory));
    assert_eq!(world.open("/dir", OpenFlags::CREATE).err(), Some(Error::IsDirectory));
    assert_eq!(world.open("/file", OpenFlags::DIRECTORY).err(), Some(Error::NotDirectory));
    assert_eq!(world.symlink("", "/link").unwrap_err(), Error::NotFound);
}

#[test]
fn removal_fails_as_the_manual_says() {
    let world = World::new();
    world.write_file("/file", b"").unwrap();
    world.mkdir("/dir").unwrap();
    assert_eq!(world.unlink("/dir").unwrap_err(), Error::IsDirectory);
    assert_eq!(world.unlink("/file/").unwrap_err(), Error::NotDirectory);
    assert_eq!(world.unlink("/none").unwrap_err(), Error::NotFound);
    assert_eq!(world.rmdir("/file").unwrap_err(), Error::NotDirectory);
    assert_eq!(world.rmdir("/dir/.").unwrap_err(), Error::Invalid);
    assert_eq!(world.rmdir("/dir/..").unwrap_err(), Error::NotEmpty);
    assert_eq!(world.rmdir("/").unwrap_err(), Error::Busy);
    world.rmdir("/dir/").unwrap();
}

#[test]
fn rename_fails_as_the_manual_says() {
    let world = World::new();
    world.write_file("/file", b"").unwrap();
    world.mkdir("/dir").unwrap();
    world.mkdir("/dir/below").unwrap();
    assert_eq!(world.rename("/file", "/dir").unwrap_err(), Error::IsDirectory);
    assert_eq!(world.rename("/dir", "/file").unwrap_err(), Error::NotDirectory);
    assert_eq!(world.rename("/dir", "/dir/below/x").unwrap_err(), Error::Invalid);
    assert_eq!(world.rename("/dir/below", "/dir").unwrap_err(), Error::NotEmpty);
    assert_eq!(world.rename("/none", "/x").unwrap_err(), Error::NotFound);
    assert_eq!(world.rename("/file", "/new/").unwrap_err(), Error::NotDirectory);
    assert_eq!(world.rename("/dir/.", "/x").unwrap_err(), Error::Busy);
    let context = world.context();
    let with = |flags| context.rename(world.cwd(), b"/file", world.cwd(), b"/dir", flags);
    assert_eq!(with(RenameFlags::NO_REPLACE).unwrap_err(), Error::Exists);
    assert_eq!(with(RenameFlags::WHITEOUT).unwrap_err(), Error::IsDirectory);
    assert_eq!(with(RenameFlags::WHITEOUT | RenameFlags::EXCHANGE).unwrap_err(), Error::Invalid);
    assert_eq!(with(RenameFlags::NO_REPLACE | RenameFlags::EXCHANGE).unwrap_err(), Error::Invalid);
}

#[test]
fn exchange_swaps_a_file_and_a_directory() {
    let world = World::new();
    world.mkdir("/a").unwrap();
    world.mkdir("/b").unwrap();
    world.write_file("/a/file", b"x").unwrap();
    world.mkdir("/b/dir").unwrap();
    world.mkdir("/b/dir/inner").unwrap();
    let place = world.walk("/b/dir/inner").unwrap();
    let flags = RenameFlags::EXCHANGE;
    world.context().rename(world.cwd(), b"/a/file", world.cwd(), b"/b/dir", flags).unwrap();
    assert_eq!(world.read_file("/b/dir").unwrap(), b"x");
    assert_eq!(world.path_of(&place), "/a/file/inner");
    assert_eq!((world.stat("/a").unwrap().links, world.stat("/b").unwrap().links), (3, 2));
    world.write_file("/b/other", b"y").unwrap();
    world.context().rename(world.cwd(), b"/b/dir", world.cwd(), b"/b/other", flags).unwrap();
    assert_eq!(world.read_file("/b/dir").unwrap(), b"y");
    assert_eq!(world.read_file("/b/other").unwrap(), b"x");
}

#[test]
fn a_whiteout_has_the_old_name_at_once() {
    let mut world = World::new();
    world.mkdir("/a").unwrap();
    world.mkdir("/a/dir").unwrap();
    world.mkdir("/b").unwrap();
    world.write_file("/b/file", b"x").unwrap();
    let flags = RenameFlags::WHITEOUT;
    let rename = |world: &World, old: &str, new: &str| {
        world.context().rename(world.cwd(), old.as_bytes(), world.cwd(), new.as_bytes(), flags)
    };
    rename(&world, "/a/dir", "/b/dir").unwrap();
    assert_eq!((world.stat("/a").unwrap().links, world.stat("/b").unwrap().links), (2, 3));
    let left = world.stat("/a/dir").unwrap();
    assert_eq!((left.mode, left.links), (FileKind::CharacterDevice.mode_bits(), 1));
    assert_eq!((left.special.major, left.special.minor), (0, 0));
    assert_eq!(world.rmdir("/a").unwrap_err(), Error::NotEmpty);
    // Within a directory, over what was left; it takes no privilege.
    let open_to_all = AttributeChange { mode: Some(0o777), ..AttributeChange::default() };
    world.context().change_attributes(&world.walk("/b").unwrap(), &open_to_all).unwrap();
    world.become_user(7);
    rename(&world, "/b/file", "/b/other").unwrap();
    assert_eq!(world.read_file("/b/other").unwrap(), b"x");
    assert_eq!(world.stat("/b/file").unwrap().user, 7);
    rename(&world, "/b/other", "/b/file").unwrap();
    assert_eq!(world.read_file("/b/file").unwrap(), b"x");
    assert_eq!(world.stat("/b/other").unwrap().mode, FileKind::CharacterDevice.mode_bits());
    world.unlink("/b/other").unwrap();
    assert_eq!(world.stat("/b/other").unwrap_err(), Error::NotFound);
}

#[test]
fn open_files_and_directories_follow_a_rename() {
    let world = World::new();
    world.mkdir("/old").unwrap();
    world.mkdir("/old/sub").unwrap();
    let place = world.walk("/old/sub").unwrap();
    world.rename("/old", "/new").unwrap();
    assert_eq!(world.path_of(&place), "/new/sub");
    assert_eq!(world.stat("/old").unwrap_err(), Error::NotFound);
    assert!(world.stat("/new/sub").is_ok());
    let up = world.context().walk(&place, b"../sub", vfs::flags::LookupFlags::FOLLOW).unwrap();
    assert!(up.same(&place));
}

#[test]
fn a_removed_directory_takes_nothing_new() {
    let world = World::new();
    world.mkdir("/dir").unwrap();
    let place = world.walk("/dir").unwrap();
    world.rmdir("/dir").unwrap();
    assert_eq!(world.context().make_directory(&place, b"x", 0o777).unwrap_err(), Error::NotFound);
    assert_eq!(world.path_of(&place), "/dir (deleted)");
}

#[test]
fn ten_thousand_names_are_found_listed_and_removed() {
    let world = World::new();
    world.mkdir("/many").unwrap();
    for number in 0..10_000 {
        world.open(&format!("/many/file{number}"), OpenFlags::CREATE).unwrap();
    }
    let names = world.list("/many").unwrap();
    assert_eq!(names.len(), 10_002);
    assert_eq!(names[2], "file0");
    for number in (0..10_000).step_by(2) {
        world.unlink(&format!("/many/file{number}")).unwrap();
    }
    assert_eq!(world.list("/many").unwrap().len(), 5_002);
    assert!(world.stat("/many/file9999").is_ok());
    assert_eq!(world.stat("/many/file9998").unwrap_err(), Error::NotFound);
    assert_eq!(world.stat("/many").unwrap().size, 5_000 * 20);
}

/// Takes a few entries at a time.
struct Few {
    names: Vec<String>,
    room: usize,
}

impl vfs::inode::DirectorySink for Few {
    fn entry(&mut self, name: &[u8], _inode: u64, _kind: FileKind, _next: u64) -> bool {
        if self.room == 0 {
            return false;
        }
        self.room -= 1;
        self.names.push(String::from_utf8(name.to_vec()).unwrap());
        true
    }
}

#[test]
fn a_directory_that_changes_while_it_is_read_shows_what_stays_once() {
    let world = World::new();
    world.mkdir("/dir").unwrap();
    for number in 0..100 {
        world.write_file(&format!("/dir/stays{number}"), b"").unwrap();
        world.write_file(&format!("/dir/goes{number}"), b"").unwrap();
    }
    let directory = world.open("/dir", OpenFlags::DIRECTORY).unwrap();
    let mut sink = Few { names: Vec::new(), room: 0 };
    for round in 0..100 {
        sink.room = 3;
        directory.read_directory(&mut sink).unwrap();
        let _ = world.unlink(&format!("/dir/goes{round}"));
    }
    let mut stays: Vec<_> = sink.names.iter().filter(|name| name.starts_with("stays")).collect();
    assert_eq!(stays.len(), 100);
    stays.sort();
    stays.dedup();
    assert_eq!(stays.len(), 100);
    directory.seek(vfs::file::SeekFrom::Start(0)).unwrap();
    let mut again = Names(Vec::new());
    directory.read_directory(&mut again).unwrap();
    assert_eq!(again.0.len(), 102);
}

#[test]
fn nodes_keep_their_kind_and_device() {
    let world = World::new();
    let device = DeviceNumber::new(5, 300);
    let make = |path: &[u8], kind| world.context().make_node(world.cwd(), path, kind, 0o640, device);
    make(b"/char", FileKind::CharacterDevice).unwrap();
    make(b"/fifo", FileKind::Fifo).unwrap();
    make(b"/socket", FileKind::Socket).unwrap();
    assert_eq!(make(b"/dir", FileKind::Directory).unwrap_err(), Error::NotPermitted);
    let status = world.stat("/char").unwrap();
    assert_eq!((status.mode, status.special), (0o020640, device));
    assert_eq!(world.stat("/fifo").unwrap().mode, 0o010640);
    assert_eq!(world.open("/socket", OpenFlags::empty()).err(), Some(Error::NoDeviceAddress));
    assert_eq!(world.open("/char", OpenFlags::empty()).err(), Some(Error::NoDeviceAddress));
}

#[test]
fn extended_attributes_are_kept_listed_and_removed() {
    use vfs::inode::SetAttribute;
    use vfs::tree::{get_attribute, list_attributes, remove_attribute, set_attribute};
    let world = World::new();
    world.write_file("/file", b"").unwrap();
    let inode = world.walk("/file").unwrap().inode().unwrap().clone();
    let root = &world.credentials;
    set_attribute(&inode, b"user.one", b"value", SetAttribute::Create, root).unwrap();
    set_attribute(&inode, b"trusted.two", b"", SetAttribute::Any, root).unwrap();
    let again = set_attribute(&inode, b"user.one", b"", SetAttribute::Create, root);
    assert_eq!(again.unwrap_err(), Error::Exists);
    let absent = set_attribute(&inode, b"user.three", b"", SetAttribute::Replace, root);
    assert_eq!(absent.unwrap_err(), Error::NoData);
    assert_eq!(get_attribute(&inode, b"user.one", &mut [], root).unwrap(), 5);
    assert_eq!(get_attribute(&inode, b"user.one", &mut [0; 4], root).unwrap_err(), Error::Range);
    assert_eq!(list_attributes(&inode, root).unwrap(), b"user.one\0trusted.two\0");
    let other = vfs::credentials::Credentials::ordinary(7, 7);
    assert_eq!(list_attributes(&inode, &other).unwrap(), b"user.one\0");
    assert_eq!(
        set_attribute(&inode, b"user.x", b"", SetAttribute::Any, &other).unwrap_err(),
        Error::AccessDenied
    );
    assert_eq!(
        set_attribute(&inode, b"other.x", b"", SetAttribute::Any, root).unwrap_err(),
        Error::NotSupported
    );
    remove_attribute(&inode, b"user.one", root).unwrap();
    assert_eq!(remove_attribute(&inode, b"user.one", root).unwrap_err(), Error::NoData);
}

#[test]
fn a_very_deep_tree_is_taken_down_without_recursion() {
    let world = World::new();
    world.mkdir("/mnt").unwrap();
    let source = vfs::mount::MountSource::New { file_system: &crate::TMPFS, source: b"none", options: b"" };
    let target = world.walk("/mnt").unwrap();
    world.places.namespace.mount(source, &target, vfs::flags::MountFlags::empty()).unwrap();
    let mut place = world.walk("/mnt").unwrap();
    for _ in 0..20_000 {
        world.context().make_directory(&place, b"deeper", 0o777).unwrap();
        place = world.context().walk(&place, b"deeper", vfs::flags::LookupFlags::FOLLOW).unwrap();
    }
    drop((place, target));
    let place = world.walk("/mnt").unwrap();
    let flags = vfs::flags::UnmountFlags::DETACH;
    world.places.namespace.unmount(place, flags, &world.places.root).unwrap();
    super::settle();
    assert_eq!(world.list("/mnt").unwrap().len(), 2);
}

#[test]
fn entries_of_removed_files_do_not_pile_up() {
    const FILES: u64 = 4000;
    // The number of entries is one for all file systems.
    super::alone(|| {
        let world = World::try_new().unwrap();
        let before = vfs::dentry::cached_entries();
        for round in 0..FILES {
            world.write_file("/passing", b"x").unwrap();
            world.unlink("/passing").unwrap();
            if round % 64 == 0 {
                settle();
            }
        }
        let left = vfs::dentry::cached_entries().saturating_sub(before);
        assert!(left < FILES / 4, "{left} entries are left of {FILES} files that came and went");
    });
}

#[test]
fn what_was_forgotten_is_found_again() {
    let world = World::new();
    world.mkdir("/a").unwrap();
    world.mkdir("/a/b").unwrap();
    world.write_file("/a/b/c", b"x").unwrap();
    let root = &world.places.root.dentry;
    let entry = vfs::walk::find_entry(root, b"a").unwrap();
    vfs::dentry::forget_child(root, b"a");
    vfs::dentry::forget_child(root, b"absent");
    assert!(entry.flags().contains(vfs::dentry::DentryFlags::UNHASHED) && !entry.is_dead());
    assert_eq!(world.stat("/a/b/c").unwrap().size, 1);
    assert!(!std::ptr::eq(&*entry, &*vfs::walk::find_entry(root, b"a").unwrap()));
}

/// A directory whose one entry is a device that may be taken out and come back as another one.
struct Slot(AtomicU64);

impl Directory for Slot {
    fn lookup(&self, name: &[u8]) -> vfs::Result<Node> {
        let device = StaticDirectory::allocate()?;
        device.add("config", Node::file(0o444, text_file(|_| Ok(()))?))?;
        let number = self.0.load(Ordering::Relaxed);
        if name == b"device" {
            Ok(Node { number, ..Node::directory(device) })
        } else {
            Err(vfs::Error::NotFound)
        }
    }

    fn list(&self, position: u64, _sink: &mut dyn vfs::inode::DirectorySink) -> vfs::Result<u64> {
        Ok(position)
    }

    fn still_valid(&self, _name: &[u8], number: u64) -> bool {
        self.0.load(Ordering::Relaxed) == number
    }
}

#[test]
fn what_was_cached_of_a_replaced_directory_goes() {
    super::alone(|| {
        let slot = Arc::new(Slot(AtomicU64::new(100)));
        let instance =
            vfs::generated::new_superblock("slots", 1, vfs::generated::TRAITS, Node::directory(slot.clone()))
                .unwrap();
        let device = vfs::walk::find_entry(instance.root(), b"device").unwrap();
        let config = vfs::walk::find_entry(&device, b"config").unwrap();
        let (known, below) = (Arc::downgrade(&device), Arc::downgrade(&config));
        drop((device, config));
        settle();
        assert!(known.upgrade().is_some() && below.upgrade().is_some(), "nothing was cached");
        slot.0.store(200, Ordering::Relaxed);
        let other = vfs::walk::find_entry(instance.root(), b"device").unwrap();
        assert_eq!(other.inode().map(|inode| inode.number), Some(200));
        settle();
        assert!(known.upgrade().is_none() && below.upgrade().is_none(), "the old ones are still there");
    });
}
