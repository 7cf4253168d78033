//! Trees that grow levels and lose them again: of directories' indexes, of extents, of indirect blocks.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;
mod model;

use ext4::{Error, Inode, Kind, NewFile, Time, Writer};
use image::{Image, disk_of, volume_on};
use model::ROOT;

const NOW: Time = Time { seconds: 1_700_000_000, nanoseconds: 0 };

fn new_file(kind: Kind) -> NewFile<'static> {
    NewFile {
        kind,
        mode: 0o755,
        user: 0,
        group: 0,
        special: (0, 0),
        target: b"",
        attributes: &[],
        privileged: true,
    }
}

/// Runs a test on an image, and has `e2fsck` judge what it leaves.
fn on_image(options: &[&str], bytes: u64, test: impl FnOnce(&Writer)) {
    let image = Image::make(options, bytes, None);
    let disk = disk_of(&image.bytes());
    let writer = Writer::mount(&volume_on(disk.clone()), b"/", NOW).expect("a sound image");
    test(&writer);
    writer.unmount().expect("the disk works");
    image.set_bytes(&image::bytes_of(&disk));
    let (sound, said) = image.run_to_end("e2fsck", &["-fn"]);
    assert!(sound, "{options:?}: {said}");
}

fn lookup(writer: &Writer, directory: u32, name: &str) -> Result<Inode, Error> {
    let system = writer.system();
    system.lookup(&system.inode(directory).expect("it was made"), name.as_bytes())
}

#[test]
fn a_directory_grows_an_index_of_two_levels() {
    let name = |index: u32| format!("{index}{}", "l".repeat(150 + index as usize % 90));
    for options in
        [&["-t", "ext4", "-b", "1024", "-N", "8192"][..], &["-t", "ext3", "-b", "1024", "-N", "8192"]]
    {
        on_image(options, 24 << 20, |writer| {
            let directory =
                writer.create(ROOT, b"many", &new_file(Kind::Directory), NOW).expect("space").number;
            let link = writer.create(ROOT, b"file", &new_file(Kind::Regular), NOW).expect("space").number;
            for index in 0..1500 {
                writer.link(directory, name(index).as_bytes(), link, true, NOW).expect("there is space");
            }
            for index in (0..1500).step_by(2) {
                writer.unlink(directory, name(index).as_bytes(), NOW).expect("it is there");
            }
            for index in 0..1500 {
                let found = lookup(writer, directory, &name(index)).map(|inode| inode.number);
                assert_eq!(found, if index % 2 == 0 { Err(Error::NotFound) } else { Ok(link) });
            }
        });
    }
}

#[test]
fn a_file_in_pieces_has_a_deep_tree_and_loses_it() {
    for (options, pieces) in
        [(&["-t", "ext4", "-b", "1024"][..], 800u64), (&["-t", "ext2", "-b", "1024"], 400)]
    {
        on_image(options, 16 << 20, |writer| {
            let file = writer.create(ROOT, b"file", &new_file(Kind::Regular), NOW).expect("space").number;
            for piece in 0..pieces {
                let at = (piece * 7 % pieces) * 2048;
                writer.write(file, at, &[piece as u8 | 1; 1024], true, NOW).expect("space");
            }
            let inode = writer.system().inode(file).expect("a file");
            let mut byte = [0; 1];
            for piece in 0..pieces {
                let at = (piece * 7 % pieces) * 2048;
                assert_eq!(writer.system().read(&inode, at + 1000, &mut byte), Ok(1));
                assert_eq!(byte[0], piece as u8 | 1);
            }
            writer.punch(file, 100 * 2048 + 5, 300 * 1024, NOW).expect("no space is needed");
            writer.set_size(file, 30_000, NOW).expect("no space is needed");
            writer.set_size(file, 1, NOW).expect("no space is needed");
            writer.set_size(file, 0, NOW).expect("no space is needed");
            assert_eq!(writer.system().inode(file).expect("a file").blocks, 0, "every block is given back");
        });
    }
}

#[test]
fn far_places_of_sparse_files_are_reached() {
    for (options, far) in [
        (&["-t", "ext4", "-b", "4096"][..], (1u64 << 32) * 4096 - 8192),
        (&["-t", "ext3", "-b", "1024"], (12 + 256 + 65_536 + 9_000_000) * 1024),
    ] {
        on_image(options, 16 << 20, |writer| {
            let file = writer.create(ROOT, b"far", &new_file(Kind::Regular), NOW).expect("space").number;
            for at in [far, 0, far / 2, 5000, 300_000] {
                writer.write(file, at, b"here", true, NOW).expect("space");
            }
            let inode = writer.system().inode(file).expect("a file");
            for at in [far, 0, far / 2, 5000, 300_000] {
                let mut bytes = [0; 4];
                assert_eq!(writer.system().read(&inode, at, &mut bytes), Ok(4));
                assert_eq!(&bytes, b"here");
            }
            assert_eq!(writer.write(file, u64::MAX / 2, b"too far", true, NOW).err(), Some(Error::TooLarge));
            writer.set_size(file, 4, NOW).expect("no space is needed");
        });
    }
}

#[test]
fn what_no_operation_may_do_is_refused() {
    on_image(&["-t", "ext4"], 8 << 20, |writer| {
        let (file, directory) = (new_file(Kind::Regular), new_file(Kind::Directory));
        let made = writer.create(ROOT, b"d", &directory, NOW).expect("space").number;
        assert_eq!(writer.create(ROOT, b"d", &file, NOW).err(), Some(Error::Exists));
        assert_eq!(writer.create(ROOT, &[b'x'; 256], &file, NOW).err(), Some(Error::NameTooLong));
        assert_eq!(writer.unlink(ROOT, b"d", NOW).err(), Some(Error::IsDirectory));
        assert_eq!(writer.link(ROOT, b"e", made, true, NOW).err(), Some(Error::IsDirectory));
        writer.create(made, b"f", &file, NOW).expect("space");
        assert_eq!(writer.remove_directory(ROOT, b"d", NOW).err(), Some(Error::NotEmpty));
        writer.unlink(made, b"f", NOW).and_then(|gone| writer.delete(gone.number, NOW)).expect("it is there");
        let gone = writer.remove_directory(ROOT, b"d", NOW).expect("it is empty");
        assert_eq!(
            writer.create(made, b"g", &file, NOW).err(),
            Some(Error::NotFound),
            "it has no name any more"
        );
        writer.delete(gone.number, NOW).expect("nobody has it open");
        assert_eq!(writer.write(ROOT, 0, b"x", true, NOW).err(), Some(Error::WrongKind));
    });
}

#[test]
fn an_extent_over_many_groups_is_freed_in_several_handles() {
    // Behind group 343 none has a copy of the superblock up to group 625: 120 groups of 256 blocks in one piece.
    const SIZE: u64 = 112 << 20;
    let mut options = vec!["-t", "ext4", "-b", "1024", "-g", "256", "-G", "256", "-N", "256"];
    options.extend(["-O", "^resize_inode", "-J", "size=1"]);
    on_image(&options, SIZE + (8 << 20), |writer| {
        let before = writer.status();
        let file = writer.create(ROOT, b"file", &new_file(Kind::Regular), NOW).expect("space").number;
        let fill = || {
            let inode = writer.allocate(file, 0, SIZE, false, true, NOW).expect("space");
            assert_eq!(inode.blocks >> 1 & !0x3ff, SIZE >> 10, "all of it has blocks");
        };
        fill();
        // A hole within it, an end within it, and nothing.
        writer.punch(file, 90 << 20, 20 << 20, NOW).expect("no space is needed");
        fill();
        writer.set_size(file, 88 << 20, NOW).expect("no space is needed");
        writer.write(file, (88 << 20) - 1, &[7], true, NOW).expect("it has its block");
        fill();
        let mut bytes = [0; 2];
        let inode = writer.system().inode(file).expect("a file");
        assert_eq!(writer.system().read(&inode, (88 << 20) - 1, &mut bytes), Ok(2));
        assert_eq!(bytes, [7, 0]);
        writer.unlink(ROOT, b"file", NOW).expect("it is there");
        writer.delete(file, NOW).expect("nobody has it");
        writer.commit().expect("the disk works");
        let after = writer.status();
        assert_eq!((after.blocks_free, after.inodes_free), (before.blocks_free, before.inodes_free));
    });
}

#[test]
fn more_metadata_than_the_log_can_name_is_deleted_in_several_transactions() {
    // A log of 1024 blocks has room for the names of 128,000 that are given up: a directory has more.
    const SIZE: u64 = 150 << 20;
    let options = ["-t", "ext4", "-b", "1024", "-N", "256", "-O", "^metadata_csum", "-J", "size=1"];
    let image = Image::make(&options, SIZE + (12 << 20), None);
    let disk = disk_of(&image.bytes());
    let writer = Writer::mount(&volume_on(disk.clone()), b"/", NOW).expect("a sound image");
    let before = writer.status();
    let file = writer.create(ROOT, b"file", &new_file(Kind::Regular), NOW).expect("space").number;
    writer.allocate(file, 0, SIZE, false, true, NOW).expect("space");
    writer.unlink(ROOT, b"file", NOW).expect("it is there");
    writer.unmount().expect("the disk works");
    image.set_bytes(&image::bytes_of(&disk));
    image.debugfs(&[format!("set_inode_field <{file}> mode 040755")]);
    let found = ext4::FileSystem::mount(&image.volume()).and_then(|system| system.inode(file));
    assert_eq!(found.map(|inode| (inode.kind, inode.links)), Ok((Kind::Directory, 0)));
    let disk = disk_of(&image.bytes());
    // Nobody can have it open: the mount deletes it.
    let writer = Writer::mount(&volume_on(disk), b"/", NOW).expect("a sound image");
    assert!(writer.system().inode(file).is_err(), "it is deleted");
    writer.unmount().expect("the log takes all of it");
    assert_eq!(writer.status().blocks_free, before.blocks_free);
}
