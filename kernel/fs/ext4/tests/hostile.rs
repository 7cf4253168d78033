//! Images made by an enemy, sealed with the checksums that they should have: errors where they are used, never a panic.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;
mod world;

use ext4::{Error, Kind, Move, NewFile, Run, SetAttribute, Time, Writer};
use image::{Image, volume_of};
use vfs::flags::{LookupFlags, RenameFlags};
use world::{Device, ONE_AT_A_TIME};

const NOW: Time = Time { seconds: 5, nanoseconds: 5 };
const SUPERBLOCK_AT: usize = 1024;

fn new(kind: Kind) -> NewFile<'static> {
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

fn mount(bytes: Vec<u8>) -> ext4::Result<Writer> {
    Writer::mount(&volume_of(bytes), b"/", NOW)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn crc32c(mut sum: u32, bytes: &[u8]) -> u32 {
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ 0x82f6_3b78 };
        }
    }
    sum
}

#[test]
fn clusters_that_no_feature_announces_are_refused() {
    for options in [&["-t", "ext2", "-b", "1024"][..], &["-t", "ext4", "-O", "^metadata_csum"]] {
        let image = Image::make(options, 8 << 20, None);
        let mut bytes = image.bytes();
        let log_block = bytes[SUPERBLOCK_AT + 0x18];
        put(&mut bytes, SUPERBLOCK_AT + 0x1c, &[log_block + 1]);
        // Blocks in a group: more than a bitmap has bits for.
        put(&mut bytes, SUPERBLOCK_AT + 0x20, &0x1000_0000_u32.to_le_bytes());
        assert!(matches!(mount(bytes), Err(Error::Corrupted(..))), "{options:?}");
    }
    let image = Image::make(&["-t", "ext4", "-O", "bigalloc", "-C", "16384"], 64 << 20, None);
    let found = ext4::FileSystem::mount(&image.volume()).map(drop);
    assert!(found.is_ok(), "clusters that are announced can be read: {found:?}");
}

#[test]
fn attributes_that_share_their_value_are_refused() {
    let image = Image::make(&["-t", "ext2", "-b", "1024", "-I", "128"], 8 << 20, None);
    let root = 2;
    let disk = image::disk_of(&image.bytes());
    let writer = Writer::mount(&image::volume_on(disk.clone()), b"/", NOW).expect("a sound image");
    let file = writer.create(root, b"file", &new(Kind::Regular), NOW).expect("space").number;
    for letter in b'a'..=b'j' {
        let name = [b"user.", &[letter][..]].concat();
        writer.set_attribute(file, &name, &[letter; 20], SetAttribute::Create, true, NOW).expect("space");
    }
    writer.unmount().expect("the disk works");
    let mut bytes = image::bytes_of(&disk);
    let block = (0..bytes.len())
        .step_by(1024)
        .find(|at| bytes[*at..*at + 4] == 0xea02_0000_u32.to_le_bytes())
        .expect("the block of attributes");
    for index in 0..10 {
        // An entry of a name with one letter takes 20 bytes.
        let entry = block + 32 + index * 20;
        put(&mut bytes, entry + 2, &500_u16.to_le_bytes());
        put(&mut bytes, entry + 8, &500_u32.to_le_bytes());
    }
    let writer = mount(bytes).expect("the superblock is sound");
    let removed = writer.remove_attribute(file, b"user.a", NOW).map(drop);
    assert!(matches!(removed, Err(Error::Corrupted(..))), "{removed:?}");
}

#[test]
fn an_index_that_reaches_behind_its_block_is_refused() {
    let image = Image::make(&["-t", "ext4", "-b", "1024"], 16 << 20, None);
    let root = 2;
    let disk = image::disk_of(&image.bytes());
    let writer = Writer::mount(&image::volume_on(disk.clone()), b"/", NOW).expect("a sound image");
    let directory = writer.create(root, b"d", &new(Kind::Directory), NOW).expect("space").number;
    writer.create(root, b"other", &new(Kind::Directory), NOW).expect("space");
    for number in 0..100 {
        let name = format!("a file with a long name {number}");
        writer.create(directory, name.as_bytes(), &new(Kind::Regular), NOW).expect("space");
    }
    let inode = writer.system().inode(directory).expect("it is there");
    let Ok(Run { place: Some(place), .. }) = writer.system().map(&inode, 0, 1) else {
        panic!("a directory has a block");
    };
    writer.unmount().expect("the disk works");
    let mut bytes = image::bytes_of(&disk);
    let block = place as usize * 1024;
    assert_eq!(bytes[block + 0x1d], 8, "its first block is the index's root");
    put(&mut bytes, block + 0x20, &[0xff; 2]);
    // Sealed as a leaf.
    let uuid = crc32c(!0, &bytes[SUPERBLOCK_AT + 0x68..SUPERBLOCK_AT + 0x78]);
    let seed = crc32c(uuid, &directory.to_le_bytes());
    let seed = crc32c(seed, &generation(&image, &bytes, directory).to_le_bytes());
    put(&mut bytes, block + 1012, &[0, 0, 0, 0, 12, 0, 0, 0xde]);
    let sum = crc32c(seed, &bytes[block..block + 1012]);
    put(&mut bytes, block + 1020, &sum.to_le_bytes());
    let writer = mount(bytes).expect("the superblock is sound");
    let other = writer.system().lookup(&writer.system().root().expect("a root"), b"other");
    let to = other.expect("it is there").number;
    let what = Move {
        from: root,
        old: b"d",
        to,
        new: b"d",
        exchange: false,
        keep_existing: true,
        whiteout: None,
        privileged: true,
    };
    let moved = writer.rename(&what, NOW).map(drop);
    assert!(matches!(moved, Err(Error::Corrupted(..))), "{moved:?}");
}

/// An inode's generation, as `debugfs` tells it.
fn generation(image: &Image, bytes: &[u8], number: u32) -> u32 {
    image.set_bytes(bytes);
    let said = image.run("debugfs", &["-R", &format!("stat <{number}>")]);
    let after = said.split("Generation: ").nth(1).expect("a generation");
    after.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
}

#[test]
fn a_directory_with_two_names_in_one_directory_is_reached_by_one() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4", "-O", "^metadata_csum"], 16 << 20, None);
    image.debugfs(&["mkdir d".into(), "mkdir d/e".into(), "mkdir d/e/c".into(), "link d/e d/f".into()]);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound superblock");
    let (context, root) = (world.context(), &world.places.root);
    let walk = |path: &[u8]| context.walk(root, path, LookupFlags::empty());
    let rename = |from: &[u8], to: &[u8]| context.rename(root, from, root, to, RenameFlags::empty());
    for (known, other) in [(&b"/d/e"[..], &b"/d/f"[..]), (b"/d/f", b"/d/e")] {
        let below = |directory: &[u8], rest: &str| [directory, rest.as_bytes()].concat();
        let held = walk(&below(known, "/c")).expect("the first name counts");
        assert_eq!(walk(other).err(), Some(vfs::Error::Io));
        // Into itself, by the other name.
        assert_eq!(rename(&below(known, "/c"), &below(other, "/c/into")), Err(vfs::Error::Io));
        assert_eq!(rename(&below(known, "/c"), &below(known, "/c/into")), Err(vfs::Error::Invalid));
        assert_eq!(rename(known, other), Err(vfs::Error::Io));
        assert_eq!(rename(other, b"/elsewhere"), Err(vfs::Error::Io));
        assert_eq!(context.make_directory(root, other, 0o755), Err(vfs::Error::Io));
        assert_eq!(context.remove_directory(root, other), Err(vfs::Error::Io));
        drop(held);
        // Nobody uses it: the other name may be the one that counts, as long as it is used.
        vfs::dentry::forget_tree(world.superblock.root());
    }
    world.unmount();
}

#[test]
fn a_directory_that_is_made_where_an_entry_led_to_nothing_has_one_parent() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4", "-O", "^metadata_csum"], 16 << 20, None);
    image.debugfs(&[
        "mkdir d".into(),
        "mkdir twin".into(),
        "mkdir d/next".into(),
        "link d/next twin/later".into(),
    ]);
    image.debugfs(&["rmdir d/next".into()]);
    let listed = image.run("debugfs", &["-R", "ls -p /twin"]);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound superblock");
    let (context, root) = (world.context(), &world.places.root);
    let walk = |path: &[u8]| context.walk(root, path, LookupFlags::empty());
    assert_eq!(walk(b"/twin/later").err(), Some(vfs::Error::Io), "its inode is free");
    context.make_directory(root, b"/d/made", 0o755).expect("space");
    let made = walk(b"/d/made").expect("it was made");
    let number = made.inode().expect("it is there").number;
    assert!(listed.lines().any(|line| line.starts_with(&format!("/{number}/"))), "{number}: {listed}");
    assert_eq!(walk(b"/twin/later").err(), Some(vfs::Error::Io), "it has another name");
    // That is forgotten, but the directory is in memory as long as somebody uses it.
    vfs::dentry::forget_tree(world.superblock.root());
    assert_eq!(walk(b"/twin/later").err(), Some(vfs::Error::Io), "it is in another directory");
    drop(made);
    world.unmount();
}

#[test]
fn a_directory_that_says_it_has_all_links_there_are_is_not_made_one_without() {
    let image = Image::make(&["-t", "ext4"], 16 << 20, None);
    image.debugfs(&["mkdir d".into(), "set_inode_field d links_count 65535".into()]);
    let writer = mount(image.bytes()).expect("a sound superblock");
    let root = writer.system().root().expect("a root");
    let directory = writer.system().lookup(&root, b"d").expect("it is there").number;
    writer.create(directory, b"e", &new(Kind::Directory), NOW).expect("space");
    assert_eq!(writer.system().inode(directory).expect("it is there").links, 1, "more than can be counted");
}
