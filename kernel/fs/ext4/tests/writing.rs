//! Random operations against a model in memory; `e2fsck` finds nothing wrong after them.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;
mod model;

use ext4::{Error, FileSystem, Kind, NewFile, Time, Writer};
use image::{Image, Random, disk_of, volume_on};
use model::Model;

/// Option sets: the names say what is special.
const OPTIONS: [(&str, &[&str]); 9] = [
    ("default", &["-t", "ext4"]),
    ("1k blocks", &["-t", "ext4", "-b", "1024"]),
    ("ext3", &["-t", "ext3", "-b", "1024"]),
    ("ext2", &["-t", "ext2", "-b", "1024"]),
    ("ext2 with large blocks", &["-t", "ext2", "-b", "4096"]),
    ("group checksums", &["-t", "ext4", "-O", "^metadata_csum,uninit_bg,^64bit"]),
    ("small inodes", &["-t", "ext4", "-I", "128"]),
    ("meta groups", &["-t", "ext4", "-O", "meta_bg,^resize_inode"]),
    ("orphan file", &["-t", "ext4", "-O", "metadata_csum_seed,large_dir,orphan_file"]),
];

fn judge(image: &Image, bytes: &[u8], name: &str) {
    image.set_bytes(bytes);
    let (sound, said) = image.run_to_end("e2fsck", &["-fn"]);
    assert!(sound, "{name}: {said}");
}

#[test]
fn random_operations_leave_what_the_model_says_and_e2fsck_finds_nothing() {
    for (index, (name, options)) in OPTIONS.into_iter().enumerate() {
        let image = Image::make(options, 24 << 20, None);
        let disk = disk_of(&image.bytes());
        let mut random = Random(index as u64 + 1);
        let mut model = Model::default();
        for round in 0..3 {
            let writer =
                Writer::mount(&volume_on(disk.clone()), b"/mnt", model.now()).expect("a sound image");
            for step in 0..250 {
                model.step(&writer, &mut random).unwrap_or_else(|error| panic!("{name}, {step}: {error}"));
            }
            model.compare(writer.system());
            let now = model.now();
            model.close_all(&writer, now).expect("the disk works");
            writer.unmount().expect("the disk works");
            judge(&image, &image::bytes_of(&disk), &format!("{name}, round {round}"));
            model.compare(&FileSystem::mount(&volume_on(disk.clone())).expect("a sound image"));
        }
    }
}

#[test]
fn a_mount_without_changes_leaves_a_clean_image() {
    let image = Image::make(&["-t", "ext4"], 8 << 20, None);
    let disk = disk_of(&image.bytes());
    let writer = Writer::mount(&volume_on(disk.clone()), b"/", Time::default()).expect("a sound image");
    assert_eq!(writer.status(), FileSystem::mount(&image.volume()).expect("a sound image").status());
    writer.unmount().expect("the disk works");
    judge(&image, &image::bytes_of(&disk), "mounted once");
}

#[test]
fn a_damaged_bitmap_that_data_meets_is_noted() {
    let image = Image::make(&["-t", "ext4", "-b", "1024", "-O", "^resize_inode"], 8 << 20, None);
    let found = image.run("dumpe2fs", &[]);
    let (_, place) = found.split_once("Block bitmap at ").expect("there is a group");
    let place: usize = place[..place.find([' ', ',']).expect("more follows")].parse().expect("a number");
    let mut bytes = image.bytes();
    bytes[place * 1024 + 1000] ^= 1;
    let disk = disk_of(&bytes);
    let writer = Writer::mount(&volume_on(disk.clone()), b"/", Time::default()).expect("a sound superblock");
    let new = NewFile {
        kind: Kind::Regular,
        mode: 0o644,
        user: 0,
        group: 0,
        special: (0, 0),
        target: b"",
        attributes: &[],
        privileged: true,
    };
    let file = writer.create(model::ROOT, b"file", &new, Time::default()).expect("it needs no block").number;
    // As write-back asks.
    let met = writer.destination(file, 0, 1, true);
    assert!(matches!(met, Err(Error::Corrupted(..))), "{met:?}");
    writer.unmount().expect("the disk works");
    image.set_bytes(&image::bytes_of(&disk));
    let said = image.run("dumpe2fs", &["-h"]);
    assert!(said.contains("clean with errors") && said.contains("FS Error count:           1"), "{said}");
}

#[test]
fn a_listing_that_goes_on_does_not_repeat_the_entry_before_one_that_was_removed() {
    let image = Image::make(&["-t", "ext4"], 16 << 20, None);
    let disk = disk_of(&image.bytes());
    let now = Time { seconds: 5, nanoseconds: 5 };
    let writer = Writer::mount(&volume_on(disk), b"/mnt", now).expect("a sound image");
    let root = writer.system().root().expect("a root").number;
    let new = NewFile {
        kind: Kind::Regular,
        mode: 0o644,
        user: 0,
        group: 0,
        special: (0, 0),
        target: b"",
        attributes: &[],
        privileged: true,
    };
    let names: [&[u8]; 4] = [b"first", b"second", b"third", b"fourth"];
    for name in names {
        writer.create(root, name, &new, now).expect("space");
    }
    let list = |position, most: &[u8]| {
        let directory = writer.system().inode(root).expect("the root");
        let (mut found, mut last) = (Vec::new(), position);
        let listed = writer.system().list(&directory, position, |entry, next| {
            found.push(entry.name.to_vec());
            last = next;
            entry.name != most
        });
        listed.expect("the disk works");
        (found, last)
    };
    let (found, position) = list(0, b"second");
    assert_eq!(found.last().map(Vec::as_slice), Some(&b"second"[..]));
    writer.unlink(root, b"third", now).expect("it is there");
    assert_eq!(list(position, b"").0, [b"fourth".to_vec()]);
}

#[test]
fn a_listing_comes_to_every_name_though_its_part_of_the_index_is_split_meanwhile() {
    let image = Image::make(&["-t", "ext4", "-b", "1024"], 16 << 20, None);
    let sound = image.bytes();
    let now = Time { seconds: 5, nanoseconds: 5 };
    let new = NewFile {
        kind: Kind::Regular,
        mode: 0o644,
        user: 0,
        group: 0,
        special: (0, 0),
        target: b"",
        attributes: &[],
        privileged: true,
    };
    // One block without an index, one leaf that is full, and several.
    for before in [20, 45, 120] {
        for stop in (1..before).step_by(3) {
            let disk = disk_of(&sound);
            let writer = Writer::mount(&volume_on(disk.clone()), b"/mnt", now).expect("a sound image");
            let directory = NewFile { kind: Kind::Directory, ..new };
            let directory = writer.create(2, b"d", &directory, now).expect("space").number;
            let name = |index: usize| format!("{index:03}{}", "n".repeat(index * 7 % 30));
            let make = |index| {
                writer.create(directory, name(index).as_bytes(), &new, now).expect("space");
            };
            (0..before).for_each(make);
            let mut seen = std::collections::BTreeSet::new();
            let mut list = |position, most: usize| {
                let directory = writer.system().inode(directory).expect("it is there");
                let (mut last, mut count) = (position, 0);
                let listed = writer.system().list(&directory, position, |entry, next| {
                    seen.insert(String::from_utf8_lossy(entry.name).into_owned());
                    (last, count) = (next, count + 1);
                    count < most
                });
                listed.expect("the disk works");
                last
            };
            let position = list(0, stop);
            (before..before + 100).for_each(make);
            list(position, usize::MAX);
            let missed: Vec<_> = (0..before).map(name).filter(|name| !seen.contains(name)).collect();
            assert!(missed.is_empty(), "{before} names, stopped after {stop}: {missed:?} were missed");
            writer.unmount().expect("the disk works");
            if stop % 15 == 1 {
                image.set_bytes(&image::bytes_of(&disk));
                let (sound, said) = image.run_to_end("e2fsck", &["-fn"]);
                assert!(sound, "{said}");
            }
        }
    }
}
