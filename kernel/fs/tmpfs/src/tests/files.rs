//! Contents of files.

use vfs::Error;
use vfs::file::SeekFrom;
use vfs::flags::{AllocateMode, LookupFlags, OpenFlags};

use super::{World, read_all, read_some, write};
use crate::memory_file;

#[test]
fn what_is_written_is_read() {
    let world = World::new();
    let bytes: Vec<u8> = (0..20_000u32).map(|number| (number % 251) as u8).collect();
    world.write_file("/data", &bytes).unwrap();
    assert_eq!(world.read_file("/data").unwrap(), bytes);
    assert_eq!(world.stat("/data").unwrap().size, 20_000);
    assert_eq!(world.stat("/data").unwrap().blocks, 40);
}

#[test]
fn appending_goes_to_the_end_wherever_the_position_is() {
    let world = World::new();
    world.write_file("/log", b"one ").unwrap();
    let file = world.open("/log", OpenFlags::READ_WRITE | OpenFlags::APPEND).unwrap();
    write(&file, b"two").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    write(&file, b" three").unwrap();
    assert_eq!(world.read_file("/log").unwrap(), b"one two three");
    assert_eq!(file.position(), 13);
}

#[test]
fn holes_read_as_zeros_and_are_found_by_seeking() {
    let world = World::new();
    let file = world.open("/sparse", OpenFlags::CREATE | OpenFlags::READ_WRITE).unwrap();
    file.seek(SeekFrom::Start(8192)).unwrap();
    write(&file, b"end").unwrap();
    assert_eq!(file.seek(SeekFrom::Data(0)).unwrap(), 8192);
    assert_eq!(file.seek(SeekFrom::Hole(0)).unwrap(), 0);
    assert_eq!(file.seek(SeekFrom::Hole(8192)).unwrap(), 8195);
    assert_eq!(file.seek(SeekFrom::Data(8195)).unwrap_err(), Error::NoDeviceAddress);
    assert_eq!(file.seek(SeekFrom::Start(-1)).unwrap_err(), Error::Invalid);
    file.seek(SeekFrom::Start(0)).unwrap();
    let all = read_all(&file).unwrap();
    assert!(all[..8192].iter().all(|&byte| byte == 0) && &all[8192..] == b"end");
}

#[test]
fn truncation_cuts_and_extends() {
    let world = World::new();
    world.write_file("/file", b"0123456789").unwrap();
    world.context().truncate(world.cwd(), b"/file", 4).unwrap();
    assert_eq!(world.read_file("/file").unwrap(), b"0123");
    world.context().truncate(world.cwd(), b"/file", 6).unwrap();
    assert_eq!(world.read_file("/file").unwrap(), b"0123\0\0");
    assert_eq!(world.context().truncate(world.cwd(), b"/file", -1).unwrap_err(), Error::Invalid);
    assert_eq!(world.context().truncate(world.cwd(), b"/", 1).unwrap_err(), Error::IsDirectory);
    let file = world.open("/file", OpenFlags::empty()).unwrap();
    assert_eq!(file.truncate(0).unwrap_err(), Error::Invalid);
}

#[test]
fn fallocate_reserves_punches_and_keeps_the_size() {
    let world = World::new();
    let file = world.open("/file", OpenFlags::CREATE | OpenFlags::READ_WRITE).unwrap();
    file.allocate(AllocateMode::empty(), 0, 8192).unwrap();
    assert_eq!((file.status().size, file.status().blocks), (8192, 16));
    file.allocate(AllocateMode::KEEP_SIZE, 8192, 4096).unwrap();
    assert_eq!((file.status().size, file.status().blocks), (8192, 24));
    write(&file, &[7; 8192]).unwrap();
    file.allocate(AllocateMode::PUNCH_HOLE | AllocateMode::KEEP_SIZE, 0, 4096).unwrap();
    assert_eq!(world.read_file("/file").unwrap()[4095..4097], [0, 7]);
    for mode in [AllocateMode::PUNCH_HOLE, AllocateMode::COLLAPSE_RANGE] {
        assert_eq!(file.allocate(mode, 0, 4096).unwrap_err(), Error::NotSupported);
    }
    assert_eq!(file.allocate(AllocateMode::empty(), 0, 0).unwrap_err(), Error::Invalid);
    assert_eq!(file.allocate(AllocateMode::empty(), 1, i64::MAX).unwrap_err(), Error::FileTooLarge);
}

#[test]
fn a_removed_file_lives_until_it_is_closed() {
    let world = World::new();
    world.write_file("/gone", b"still here").unwrap();
    let file = world.open("/gone", OpenFlags::empty()).unwrap();
    world.unlink("/gone").unwrap();
    assert_eq!(world.stat("/gone").unwrap_err(), Error::NotFound);
    assert_eq!(read_all(&file).unwrap(), b"still here");
    assert_eq!(file.status().links, 0);
    assert_eq!(world.path_of(file.path().unwrap()), "/gone (deleted)");
}

#[test]
fn an_unnamed_file_can_be_given_a_name_once() {
    let world = World::new();
    world.mkdir("/dir").unwrap();
    let file =
        world.open("/dir", OpenFlags::TEMPORARY_FILE | OpenFlags::DIRECTORY | OpenFlags::READ_WRITE).unwrap();
    write(&file, b"text").unwrap();
    assert_eq!(file.status().links, 0);
    assert_eq!(world.list("/dir").unwrap(), [".", ".."]);
    let place = file.path().unwrap();
    world.context().make_hard_link(place, b"", world.cwd(), b"/dir/name", LookupFlags::EMPTY_PATH).unwrap();
    assert_eq!(world.read_file("/dir/name").unwrap(), b"text");
    world.unlink("/dir/name").unwrap();
    let again =
        world.context().make_hard_link(place, b"", world.cwd(), b"/dir/name", LookupFlags::EMPTY_PATH);
    assert_eq!(again.unwrap_err(), Error::NotFound);
}

#[test]
fn access_modes_are_enforced() {
    let world = World::new();
    world.write_file("/file", b"x").unwrap();
    let reader = world.open("/file", OpenFlags::empty()).unwrap();
    assert_eq!(write(&reader, b"y").unwrap_err(), Error::BadDescriptor);
    let writer = world.open("/file", OpenFlags::WRITE_ONLY).unwrap();
    assert_eq!(read_some(&writer, 1).unwrap_err(), Error::BadDescriptor);
    let handle = world.open("/file", OpenFlags::PATH).unwrap();
    assert_eq!(read_some(&handle, 1).unwrap_err(), Error::BadDescriptor);
    assert_eq!(world.open("/", OpenFlags::WRITE_ONLY).err(), Some(Error::IsDirectory));
    let directory = world.open("/", OpenFlags::empty()).unwrap();
    assert_eq!(read_some(&directory, 1).unwrap_err(), Error::IsDirectory);
}

#[test]
fn a_running_program_can_not_be_written() {
    let world = World::new();
    world.write_file("/program", b"x").unwrap();
    let inode = world.walk("/program").unwrap().inode().unwrap().clone();
    inode.deny_write_access().unwrap();
    assert_eq!(world.open("/program", OpenFlags::WRITE_ONLY).err(), Some(Error::TextBusy));
    inode.allow_write_access();
    let writer = world.open("/program", OpenFlags::WRITE_ONLY).unwrap();
    assert_eq!(inode.deny_write_access().unwrap_err(), Error::TextBusy);
    drop(writer);
    inode.deny_write_access().unwrap();
}

#[test]
fn memory_files_can_be_sealed() {
    let world = World::new();
    let file = memory_file::create(b"name", true, false, false, &world.credentials).unwrap();
    assert_eq!(world.path_of(file.path().unwrap()), "/memfd:name (deleted)");
    write(&file, b"0123").unwrap();
    memory_file::add_seals(&file, memory_file::Seal::GROW).unwrap();
    assert_eq!(write(&file, b"4").unwrap_err(), Error::NotPermitted);
    file.truncate(2).unwrap();
    memory_file::add_seals(&file, memory_file::Seal::SHRINK | memory_file::Seal::WRITE).unwrap();
    assert_eq!(file.truncate(1).unwrap_err(), Error::NotPermitted);
    file.seek(SeekFrom::Start(0)).unwrap();
    assert_eq!(write(&file, b"x").unwrap_err(), Error::NotPermitted);
    memory_file::add_seals(&file, memory_file::Seal::SEAL).unwrap();
    assert_eq!(memory_file::add_seals(&file, memory_file::Seal::WRITE).unwrap_err(), Error::NotPermitted);
    let plain = memory_file::create(b"", false, false, false, &world.credentials).unwrap();
    assert_eq!(memory_file::seals(&plain).unwrap(), memory_file::Seal::SEAL);
}

#[test]
fn the_size_limit_ends_in_no_space() {
    let world = World::new();
    world.mkdir("/small").unwrap();
    let target = world.walk("/small").unwrap();
    let source = vfs::mount::MountSource::New {
        file_system: &crate::TMPFS,
        source: b"t",
        options: b"size=16k,nr_inodes=3",
    };
    world.places.namespace.mount(source, &target, vfs::flags::MountFlags::empty()).unwrap();
    let file = world.open("/small/file", OpenFlags::CREATE | OpenFlags::WRITE_ONLY).unwrap();
    let mut total = 0;
    let error = loop {
        match write(&file, &[1; 5000]) {
            Ok(number) => total += number,
            Err(error) => break error,
        }
    };
    assert_eq!((error, total), (Error::NoSpace, 16 * 1024));
    world.write_file("/small/second", b"").unwrap();
    assert_eq!(world.write_file("/small/third", b"").unwrap_err(), Error::NoSpace);
    let status = world.walk("/small").unwrap().mount.superblock().status();
    assert_eq!((status.blocks, status.blocks_free, status.files_free), (4, 0, 0));
}

#[test]
fn file_of_a_running_program_is_not_truncated_by_opening_it() {
    let world = World::new();
    world.write_file("/program", b"text").unwrap();
    let running = world.open("/program", OpenFlags::empty()).unwrap();
    running.inode().deny_write_access().unwrap();
    for flags in [OpenFlags::empty(), OpenFlags::WRITE_ONLY, OpenFlags::READ_WRITE] {
        let refused = world.open("/program", flags | OpenFlags::TRUNCATE).err();
        assert_eq!(refused, Some(Error::TextBusy));
    }
    assert_eq!(world.stat("/program").unwrap().size, 4);
    running.inode().allow_write_access();
    assert!(world.open("/program", OpenFlags::TRUNCATE).is_ok());
    assert_eq!(world.stat("/program").unwrap().size, 0);
}
