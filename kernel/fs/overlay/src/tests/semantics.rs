//! Files that are open, mapped or linked while they are copied up.

use memory::buffer::{Sink, Source};
use vfs::file::{FileMappingKind, SeekFrom};
use vfs::flags::{OpenFlags, RenameFlags};
use vfs::{Error, FileKind};

use super::{USUAL, World, entries, errno, read_all};

#[test]
fn who_reads_sees_what_is_written_to_the_copy() {
    let world = World::new();
    world.write("/l1/file", b"lower").unwrap();
    world.overlay(USUAL, "/m").unwrap();
    let reader = world.open("/m/file", OpenFlags::empty()).unwrap();
    let FileMappingKind::Pages(mapped) = reader.operations().mapping(&reader).unwrap() else { panic!() };
    world.append("/m/file", b" and upper").unwrap();
    assert_eq!(read_all(&reader).unwrap(), b"lower and upper");
    assert_eq!(reader.status().size, 15);
    // What was mapped before stays what it was.
    let mut bytes = [0; 16];
    assert_eq!(mapped.read_at(0, &mut Sink::kernel(&mut bytes)).unwrap(), 5);
    assert_eq!(world.read("/l1/file").unwrap(), b"lower");
}

#[test]
fn an_open_lower_file_can_be_removed_and_changed() {
    let world = World::new();
    world.write("/l1/file", b"text").unwrap();
    world.overlay(USUAL, "/m").unwrap();
    let reader = world.open("/m/file", OpenFlags::empty()).unwrap();
    world.unlink("/m/file").unwrap();
    assert_eq!(reader.status().links, 0);
    let change = vfs::AttributeChange { mode: Some(0o600), ..Default::default() };
    let inode = reader.inode().clone();
    vfs::tree::change_inode(&inode, &change, &vfs::Credentials::root()).unwrap();
    assert_eq!(reader.status().mode & 0o777, 0o600);
    assert_eq!(read_all(&reader).unwrap(), b"text");
    assert_eq!((world.list("/m").unwrap(), world.list("/w/work").unwrap()), (String::new(), String::new()));
}

#[test]
fn writing_with_truncation_copies_no_contents() {
    let world = World::new();
    world.write("/l1/file", &[1; 100_000]).unwrap();
    world.overlay(USUAL, "/m").unwrap();
    let identity = world.stat("/m/file").unwrap();
    world.write("/m/file", b"short").unwrap();
    let after = world.stat("/m/file").unwrap();
    assert_eq!((after.size, after.inode, after.device), (5, identity.inode, identity.device));
    assert_eq!(world.read("/u/file").unwrap(), b"short");
}

#[test]
fn links_and_their_inode_are_one_file() {
    let world = World::new();
    world.write("/l1/file", b"1").unwrap();
    world.overlay(USUAL, "/m").unwrap();
    world.link("/m/file", "/m/second").unwrap();
    world.append("/m/second", b"2").unwrap();
    assert_eq!(world.read("/m/file").unwrap(), b"12");
    let (one, two) = (world.stat("/m/file").unwrap(), world.stat("/m/second").unwrap());
    assert_eq!((one.inode, one.links, two.links), (two.inode, 2, 2));
    world.unlink("/m/file").unwrap();
    assert_eq!(world.stat("/m/second").unwrap().links, 1);
    world.write("/m/file", b"other").unwrap();
    assert_ne!(world.stat("/m/file").unwrap().inode, one.inode);
    assert_eq!(world.read("/m/second").unwrap(), b"12");
    // Over a whiteout.
    world.unlink("/m/file").unwrap();
    world.link("/m/second", "/m/file").unwrap();
    assert_eq!(world.read("/m/file").unwrap(), b"12");
}

#[test]
fn names_of_a_lower_file_part_when_one_is_written() {
    let world = World::new();
    world.write("/l1/file", b"1").unwrap();
    world.link("/l1/file", "/l1/second").unwrap();
    world.overlay(USUAL, "/m").unwrap();
    world.append("/m/second", b"2").unwrap();
    assert_eq!(
        (world.read("/m/file").unwrap(), world.read("/m/second").unwrap()),
        (b"1".to_vec(), b"12".to_vec())
    );
}

#[test]
fn numbers_last_over_copying_on_several_file_systems() {
    let world = World::new();
    world.mount_tmpfs("/l1");
    world.write("/l1/file", b"1").unwrap();
    world.mkdir("/l1/d").unwrap();
    world.overlay(USUAL, "/m").unwrap();
    let before = [world.stat("/m/file").unwrap(), world.stat("/m/d").unwrap()];
    world.chmod("/m/file", 0o600).unwrap();
    world.chmod("/m/d", 0o700).unwrap();
    let after = [world.stat("/m/file").unwrap(), world.stat("/m/d").unwrap()];
    for (before, after) in before.iter().zip(&after) {
        assert_eq!((before.device, before.inode), (after.device, after.inode));
    }
    assert_ne!(before[0].device, before[1].device);
    assert_eq!(before[1].device, world.stat("/m").unwrap().device);
    world.write("/m/new", b"").unwrap();
    assert_ne!(world.stat("/m/new").unwrap().device, before[0].device);
}

#[test]
fn numbers_in_listings_are_those_of_the_files() {
    let world = World::new();
    world.write("/l1/file", b"1").unwrap();
    world.write("/l2/below", b"1").unwrap();
    world.mkdir("/l2/d").unwrap();
    world.overlay(USUAL, "/m").unwrap();
    world.chmod("/m/file", 0o600).unwrap();
    world.chmod("/m/d", 0o700).unwrap();
    world.write("/m/new", b"1").unwrap();
    for (name, _, number) in entries(&world.open("/m", OpenFlags::DIRECTORY).unwrap()).unwrap() {
        assert_eq!(number, world.stat(&std::format!("/m/{name}")).unwrap().inode, "{name}");
    }
}

#[test]
fn a_listing_goes_on_while_what_it_lists_is_removed() {
    let world = World::new();
    for number in 0..40 {
        world.write(&std::format!("/l{}/{number}", number % 2 + 1), b"").unwrap();
    }
    world.overlay(USUAL, "/m").unwrap();
    struct Some3(Vec<String>, usize);
    impl vfs::inode::DirectorySink for Some3 {
        fn entry(&mut self, name: &[u8], _: u64, _: FileKind, _: u64) -> bool {
            if self.1 == 0 {
                return false;
            }
            self.1 -= 1;
            self.0.push(String::from_utf8(name.to_vec()).unwrap());
            true
        }
    }
    let directory = world.open("/m", OpenFlags::DIRECTORY).unwrap();
    let mut removed = 0;
    loop {
        let mut sink = Some3(Vec::new(), 3);
        if directory.read_directory(&mut sink).unwrap().entries == 0 {
            break;
        }
        for name in sink.0.iter().filter(|name| *name != "." && *name != "..") {
            world.unlink(&std::format!("/m/{name}")).unwrap();
            removed += 1;
        }
    }
    assert_eq!(removed, 40);
    assert_eq!(world.list("/m").unwrap(), "");
    directory.seek(SeekFrom::Start(0)).unwrap();
    assert_eq!(entries(&directory).unwrap().len(), 0);
}

#[test]
fn files_without_names_get_one() {
    let world = World::new();
    world.mkdir("/l1/d").unwrap();
    world.overlay(USUAL, "/m").unwrap();
    let flags = OpenFlags::TEMPORARY_FILE | OpenFlags::READ_WRITE;
    let file = world.open("/m/d", flags).unwrap();
    file.write(&mut Source::kernel(b"text")).unwrap();
    assert_eq!((file.status().links, file.status().size), (0, 4));
    let place = file.path().unwrap().clone();
    let context = world.context();
    let to = world.walk("/m/d").unwrap();
    let flags = vfs::flags::LookupFlags::EMPTY_PATH;
    context.make_hard_link(&place, b"", &to, b"named", flags).unwrap();
    assert_eq!(world.read("/m/d/named").unwrap(), b"text");
    assert_eq!(file.status().links, 1);
}

#[test]
fn whiteouts_can_not_be_made_by_hand() {
    let world = World::new();
    world.overlay(USUAL, "/m").unwrap();
    assert_eq!(errno(world.mknod("/m/w", FileKind::CharacterDevice, 0, 0)), Some(Error::NotPermitted));
    world.mknod("/m/null", FileKind::CharacterDevice, 1, 3).unwrap();
    world.rename("/m/null", "/m/other", RenameFlags::empty()).unwrap();
    assert_eq!(world.list("/m").unwrap(), "other");
}

#[test]
fn a_running_program_keeps_its_contents() {
    let world = World::new();
    world.write("/l1/program", b"text").unwrap();
    world.overlay(USUAL, "/m").unwrap();
    let inode = world.walk("/m/program").unwrap().inode().unwrap().clone();
    inode.deny_write_access().unwrap();
    assert_eq!(errno(world.write("/m/program", b"new")), Some(Error::TextBusy));
    assert_eq!(world.read("/m/program").unwrap(), b"text");
    inode.allow_write_access();
    world.write("/m/program", b"new").unwrap();
    assert_eq!(world.read("/m/program").unwrap(), b"new");
}
