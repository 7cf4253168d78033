//! The list of orphans, changed at all its places and cut off by a crash; and what syncing one file writes.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;

use std::sync::Arc;

use block::{DiskEvent, FaultyDisk, Queue, Volume};
use ext4::{Error, Kind, NewFile, Time, Writer};
use image::Image;

const NOW: Time = Time { seconds: 1_700_000_000, nanoseconds: 5 };
const FILE: NewFile<'_> = NewFile {
    kind: Kind::Regular,
    mode: 0o644,
    user: 0,
    group: 0,
    special: (0, 0),
    target: b"",
    attributes: &[],
    privileged: true,
};

fn disk_with(image: &Image) -> Arc<FaultyDisk> {
    Arc::new(FaultyDisk::new(&image.bytes()).expect("there is memory"))
}

fn mount(disk: &Arc<FaultyDisk>) -> Writer {
    let volume = Volume::whole(Queue::new(disk.clone()).expect("a sound device"));
    Writer::mount(&volume, b"/mnt", NOW).expect("a sound image")
}

fn judge(image: &Image, bytes: &[u8]) {
    image.set_bytes(bytes);
    let (sound, said) = image.run_to_end("e2fsck", &["-fn"]);
    assert!(sound, "{said}");
}

#[test]
fn orphans_leave_their_list_from_all_its_places() {
    for options in [&["-t", "ext4"][..], &["-t", "ext2", "-b", "1024"]] {
        let image = Image::make(options, 16 << 20, None);
        let disk = disk_with(&image);
        let writer = mount(&disk);
        let root = writer.system().root().expect("a root").number;
        let before = writer.status();
        let make = |number: usize| {
            let name = format!("file-{number}");
            let file = writer.create(root, name.as_bytes(), &FILE, NOW).expect("space");
            writer.write(file.number, 0, &[7; 5000], true, NOW).expect("space");
            writer.unlink(root, name.as_bytes(), NOW).expect("it is there");
            file.number
        };
        let files: Vec<u32> = (0..60).map(make).collect();
        // The head, the end, and those between, whose neighbours may be gone.
        let order = (0..60).map(|step| (59 + step * 7) % 60);
        let (gone, left): (Vec<usize>, Vec<usize>) = order.partition(|number| number % 3 != 1);
        let delete = |which: &[usize]| {
            for number in which {
                writer.delete(files[*number], NOW).expect("nobody has it");
            }
        };
        delete(&gone[..20]);
        writer.commit().expect("the disk works");
        delete(&gone[20..]);
        writer.commit().expect("the disk works");
        // After a crash here the next mount deletes the others.
        let crashed =
            Arc::new(FaultyDisk::new(&disk.contents().expect("there is memory")).expect("there is memory"));
        let other = mount(&crashed);
        let now = other.status();
        assert_eq!((now.inodes_free, now.blocks_free), (before.inodes_free, before.blocks_free));
        other.unmount().expect("the disk works");
        judge(&image, &crashed.contents().expect("there is memory"));
        delete(&left);
        writer.unmount().expect("the disk works");
        let now = writer.status();
        assert_eq!((now.inodes_free, now.blocks_free), (before.inodes_free, before.blocks_free));
        judge(&image, &disk.contents().expect("there is memory"));
    }
}

#[test]
fn an_orphan_that_is_damaged_does_not_keep_the_others_or_the_mount() {
    let image = Image::make(&["-t", "ext2", "-b", "1024"], 16 << 20, None);
    let disk = disk_with(&image);
    let writer = mount(&disk);
    let root = writer.system().root().expect("a root").number;
    let make = |name: &[u8]| {
        let file = writer.create(root, name, &FILE, NOW).expect("space");
        writer.write(file.number, 0, &[7; 50_000], true, NOW).expect("space");
        writer.unlink(root, name, NOW).expect("it is there");
        file.number
    };
    let files = [make(b"first"), make(b"second"), make(b"third")];
    writer.commit().expect("the disk works");
    image.set_bytes(&disk.contents().expect("there is memory"));
    // Its block of blocks is the superblock.
    image.debugfs(&[format!("set_inode_field <{}> block[IND] 1", files[1])]);
    let disk = disk_with(&image);
    let writer = mount(&disk);
    let system = writer.system();
    let links = |number| system.inode(number).map(|inode| (inode.links, inode.size));
    assert_eq!(links(files[1]), Ok((0, 50_000)), "the damaged one stays");
    for sound in [files[0], files[2]] {
        assert_ne!(links(sound), Ok((0, 50_000)), "it is deleted");
    }
    writer.create(root, b"file", &FILE, NOW).expect("space");
    assert!(writer.delete_orphans(NOW, &|_| true).is_err());
    writer.unmount().expect("the disk works");
    let again = mount(&Arc::new(FaultyDisk::new(&disk.contents().expect("memory")).expect("memory")));
    again.system().lookup(&again.system().root().expect("a root"), b"file").expect("what was made is there");
}

#[test]
fn a_damaged_list_of_orphans_ends_where_it_is_damaged() {
    for next in [3, 1 << 20, 0] {
        let image = Image::make(&["-t", "ext2", "-b", "1024"], 16 << 20, None);
        let disk = disk_with(&image);
        let writer = mount(&disk);
        let root = writer.system().root().expect("a root").number;
        let files = [b"first", b"other"].map(|name| {
            let file = writer.create(root, name, &FILE, NOW).expect("space");
            writer.unlink(root, name, NOW).expect("it is there");
            file.number
        });
        writer.commit().expect("the disk works");
        image.set_bytes(&disk.contents().expect("there is memory"));
        // The first in the list is the last that came: it names what is no orphan, no inode, or itself.
        let next = if next == 0 { files[1] } else { next };
        image.debugfs(&[format!("set_inode_field <{}> dtime @{next}", files[1])]);
        let disk = disk_with(&image);
        let writer = mount(&disk);
        let inode = |number| writer.system().inode(number).map(|inode| inode.size);
        assert!(inode(files[1]).is_err(), "it is deleted");
        assert!(inode(files[0]).is_ok(), "nobody has told of it");
        writer.unmount().expect("the disk works");
    }
}

#[test]
fn files_that_nobody_has_are_deleted_together() {
    for options in [&["-t", "ext4"][..], &["-t", "ext2", "-b", "1024"]] {
        let image = Image::make(options, 16 << 20, None);
        let disk = disk_with(&image);
        let writer = mount(&disk);
        let root = writer.system().root().expect("a root").number;
        let before = writer.status();
        let make = |number: usize| {
            let name = format!("file-{number}");
            let file = writer.create(root, name.as_bytes(), &FILE, NOW).expect("space").number;
            // Pieces with holes between them: the last file's tree has blocks of its own.
            let pieces = [0, 1, 3, 3000][if number == 40 { 3 } else { number % 3 }];
            for piece in 0..pieces {
                writer.write(file, piece * 8192, &[7; 1024], true, NOW).expect("space");
            }
            file
        };
        let files: Vec<u32> = (0..41).map(make).collect();
        assert_eq!(writer.delete_some(&files[..1], NOW), Err(Error::NotSupported), "it has a name");
        for number in 0..41 {
            writer.unlink(root, format!("file-{number}").as_bytes(), NOW).expect("it is there");
        }
        let mut left: Vec<u32> = files.iter().rev().copied().collect();
        let mut handles = 0;
        while !left.is_empty() {
            let deleted = writer.delete_some(&left, NOW).expect("nobody has them");
            assert!(deleted > 0, "they fit");
            left.drain(..deleted);
            handles += 1;
            // After a crash here the next mount deletes the others.
            writer.commit().expect("the disk works");
            let crashed = Arc::new(
                FaultyDisk::new(&disk.contents().expect("there is memory")).expect("there is memory"),
            );
            let other = mount(&crashed);
            let now = other.status();
            assert_eq!((now.inodes_free, now.blocks_free), (before.inodes_free, before.blocks_free));
            other.unmount().expect("the disk works");
            judge(&image, &crashed.contents().expect("there is memory"));
        }
        assert!(handles <= 8, "41 files in {handles} handles");
        writer.unmount().expect("the disk works");
        judge(&image, &disk.contents().expect("there is memory"));
    }
}

#[test]
fn a_file_is_committed_only_if_a_transaction_has_its_changes() {
    let image = Image::make(&["-t", "ext4"], 16 << 20, None);
    let disk = disk_with(&image);
    let writer = mount(&disk);
    let root = writer.system().root().expect("a root").number;
    let file = writer.create(root, b"file", &FILE, NOW).expect("space").number;
    let written = |data_only| {
        disk.take_events();
        writer.commit_file(file, data_only).expect("the disk works");
        let events = disk.take_events();
        let durable =
            matches!(events.last(), Some(DiskEvent::Flush | DiskEvent::Write { durable: true, .. }));
        assert!(durable, "what was written before is not on its way any more");
        events.iter().any(|event| matches!(event, DiskEvent::Write { .. }))
    };
    disk.record();
    assert!(written(true), "it is new");
    assert!(!written(false), "it was committed");
    writer.write(file, 0, &[1; 4096], true, NOW).expect("space");
    assert!(written(true), "its size and its blocks");
    writer.write(file, 0, &[2; 4096], true, NOW).expect("space");
    assert!(!written(false), "the same blocks, and the same time");
    let later = Time { nanoseconds: 6, ..NOW };
    writer.write(file, 0, &[3; 4096], true, later).expect("space");
    assert!(!written(true), "its times are no data");
    assert!(written(false), "its times");
    // Another file's changes are not waited for.
    writer.create(root, b"other", &FILE, NOW).expect("space");
    assert!(!written(false));
    writer
        .rename(
            &ext4::Move {
                from: root,
                old: b"file",
                to: root,
                new: b"moved",
                exchange: false,
                keep_existing: true,
                whiteout: None,
                privileged: true,
            },
            later,
        )
        .expect("it is there");
    assert!(written(false), "its name");
    writer.unmount().expect("the disk works");
    judge(&image, &disk.contents().expect("there is memory"));
}

#[test]
fn what_syncing_one_file_writes_is_few_requests() {
    let image = Image::make(&["-t", "ext4"], 16 << 20, None);
    let disk = disk_with(&image);
    let writer = mount(&disk);
    let root = writer.system().root().expect("a root").number;
    let file = writer.create(root, b"file", &FILE, NOW).expect("space").number;
    writer.write(file, 0, &[1; 4096], true, NOW).expect("space");
    writer.commit().expect("the disk works");
    disk.record();
    // The same blocks within one step of the clock: data, and a flush. In the next step the inode, too: one write to the log, and what makes that
    // count.
    for (step, expected) in [(0, "wf"), (1, "wwfd"), (1, "wf"), (2, "wwfd")] {
        disk.take_events();
        let now = Time { nanoseconds: NOW.nanoseconds + step, ..NOW };
        writer.write(file, 0, &[2; 4096], true, now).expect("space");
        writer.commit_file(file, false).expect("the disk works");
        let done: String = disk
            .take_events()
            .iter()
            .map(|event| match event {
                DiskEvent::Flush => 'f',
                DiskEvent::Write { durable: true, .. } => 'd',
                DiskEvent::Write { .. } => 'w',
            })
            .collect();
        assert_eq!(done, expected, "in step {step}");
    }
    writer.unmount().expect("the disk works");
    judge(&image, &disk.contents().expect("there is memory"));
}
