//! ext4 through the file layer: mounted for writing on a disk in memory, used by its calls, judged by `e2fsck`.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;
mod world;

use std::sync::Arc;

use block::{FaultyDisk, Queue};
use image::Image;
use machine::address::UserAddr;
use memory::buffer::Source;
use memory::file_cache::Intent;
use vfs::attributes::set_time_of_day_base_ns;
use vfs::file::OpenFile;
use vfs::flags::{AllocateMode, LookupFlags, MountFlags, OpenFlags, RenameFlags};
use vfs::mount::MountSource;
use vfs::superblock::find_file_system;
use vfs::{AttributeChange, Error, TimeChange, Timestamp};
use world::{Device, ONE_AT_A_TIME, judge, outcome_of, read, write};

const OPTIONS: [&[&str]; 3] =
    [&["-t", "ext4", "-b", "4096"], &["-t", "ext4", "-b", "1024"], &["-t", "ext2", "-b", "1024"]];

#[test]
fn files_come_back_after_the_mount_as_they_were_written() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for options in OPTIONS {
        let image = Image::make(options, 16 << 20, None);
        let device = Device::new(&image.bytes());
        let data: Vec<u8> = (0..700_000u32).map(|at| (at * 7 / 3) as u8).collect();
        let world = device.mount(false).expect("a sound image");
        let (context, root) = (world.context(), &world.places.root);
        context.make_directory(root, b"/d", 0o755).expect("space");
        let file = world.create(b"/d/file").expect("space");
        for (index, piece) in data.chunks(9_000).enumerate() {
            assert_eq!(write(&file, index as i64 * 9_000, piece), Ok(piece.len()));
        }
        assert!(read(&file, 0, 800_000) == data);
        let sparse = world.create(b"/sparse").expect("space");
        assert_eq!(write(&sparse, 3_000_000, b"far"), Ok(3));
        sparse.sync(false).expect("the disk works");
        file.truncate(650_001).expect("it may be cut");
        context.make_symbolic_link(b"d/file", root, b"/link").expect("space");
        context.make_hard_link(root, b"/d/file", root, b"/hard", LookupFlags::empty()).expect("space");
        context.rename(root, b"/d/file", root, b"/moved", RenameFlags::empty()).expect("it is there");
        let gone = world.create(b"/gone").expect("space");
        assert_eq!(write(&gone, 0, &data[..50_000]), Ok(50_000));
        context.unlink(root, b"/gone").expect("it is there");
        assert!(read(&gone, 100, 1000) == data[100..1100], "an open file outlives its name");
        assert_eq!(context.remove_directory(root, b"/d"), Ok(()));
        assert_eq!(context.unlink(root, b"/nothing"), Err(Error::NotFound));
        drop((file, sparse, gone));
        world.unmount();
        judge(&image, &device.bytes());
        let world = device.mount(true).expect("a sound image");
        let file = world.open(b"/link", OpenFlags::empty());
        assert_eq!(file.err(), Some(Error::NotFound), "what the link named was moved");
        let file = world.open(b"/moved", OpenFlags::empty()).expect("it was moved here");
        assert!(read(&file, 0, 800_000) == data[..650_001]);
        assert_eq!(file.status().links, 2);
        let sparse = world.open(b"/sparse", OpenFlags::empty()).expect("it was made");
        assert_eq!(read(&sparse, 2_999_999, 10), b"\0far");
        assert_eq!(world.create(b"/new").err(), Some(Error::ReadOnly));
        drop((file, sparse));
        world.unmount();
    }
}

#[test]
fn what_was_synced_is_there_without_an_unmount() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4"], 16 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let file = world.create(b"/file").expect("space");
    assert_eq!(write(&file, 0, &[7; 30_000]), Ok(30_000));
    file.sync(false).expect("the disk works");
    let crashed = device.bytes();
    let other = Image::make(&["-t", "ext4"], 16 << 20, None);
    other.set_bytes(&crashed);
    let (_, said) = other.run_to_end("e2fsck", &["-p"]);
    judge(&other, &other.bytes());
    let system = ext4::FileSystem::mount(&other.volume()).expect("a sound image");
    let found = system.lookup(&system.root().expect("a root"), b"file").unwrap_or_else(|_| panic!("{said}"));
    let mut bytes = vec![0; 40_000];
    assert_eq!(system.read(&found, 0, &mut bytes), Ok(30_000));
    assert!(bytes[..30_000] == [7; 30_000]);
    drop(file);
    world.unmount();
}

#[test]
fn names_last_when_their_directory_was_synced() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4"], 16 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let (context, root) = (world.context(), &world.places.root);
    for data_only in [false, true] {
        let name = format!("/directory{data_only}");
        context.make_directory(root, name.as_bytes(), 0o755).expect("space");
        let directory = world.open(b"/", OpenFlags::DIRECTORY).expect("it is there");
        directory.sync(data_only).expect("the disk works");
        let crashed = Image::make(&["-t", "ext4"], 16 << 20, None);
        crashed.set_bytes(&device.bytes());
        let system = ext4::FileSystem::mount(&crashed.volume()).expect("a sound image");
        let found = system.lookup(&system.root().expect("a root"), &name.as_bytes()[1..]);
        assert_eq!(found.map(|inode| inode.kind), Ok(ext4::Kind::Directory));
    }
    world.unmount();
    judge(&image, &device.bytes());
}

/// Writes until the disk is full, and syncs. Returns how many bytes it took.
fn fill_disk(file: &Arc<OpenFile>) -> i64 {
    let mut size = 0;
    let refused = loop {
        match write(file, size, &[size as u8 | 1; 50_000]) {
            Ok(number) => size += number as i64,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, Error::NoSpace);
    file.sync(false).expect("what was taken has space");
    size
}

#[test]
fn a_full_disk_refuses_writes_and_keeps_what_it_took() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4", "-b", "1024", "-J", "size=1"], 4 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let file = world.create(b"/file").expect("space");
    fill_disk(&file);
    let ahead = world.create(b"/ahead");
    if let Ok(ahead) = ahead {
        assert_eq!(ahead.allocate(AllocateMode::empty(), 0, 3 << 20), Err(Error::NoSpace));
    }
    file.truncate(0).expect("it may be cut");
    assert_eq!(write(&file, 0, &[1; 50_000]), Ok(50_000), "there is space again");
    drop(file);
    world.unmount();
    judge(&image, &device.bytes());
}

#[test]
fn what_lacked_memory_when_it_was_made_is_not_there() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(OPTIONS[0], 16 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let (context, root) = (world.context(), &world.places.root);
    let mut round = 0;
    memory::fallible::exhaust("making files and directories of ext4", || {
        round += 1;
        let name = format!("/file-{round}");
        let made = world.create(name.as_bytes());
        if let Err(error) = &made {
            assert_eq!(*error, Error::OutOfMemory);
            let again = world.open(name.as_bytes(), OpenFlags::CREATE | OpenFlags::EXCLUSIVE);
            again.expect("nothing was made");
        }
        let name = format!("/directory-{round}");
        if context.make_directory(root, name.as_bytes(), 0o755).is_err() {
            context.make_directory(root, name.as_bytes(), 0o755).expect("nothing was made");
        }
    });
    assert!(round > 20, "it needs memory in more places than {round}");
    world.unmount();
    judge(&image, &device.bytes());
}

#[test]
fn a_write_from_a_bad_buffer_takes_no_space() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4", "-b", "1024", "-J", "size=1"], 4 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let file = world.create(b"/file").expect("space");
    let free = || world.superblock.status().blocks_free;
    let before = free();
    for page in 0..2000 {
        let mut nowhere = Source::user(UserAddr::new(8), 4096);
        assert_eq!(file.write_at(page * 4096, &mut nowhere), Err(Error::BadAddress));
    }
    assert_eq!(free(), before);
    // Twice: what is promised once is returned once.
    for byte in [1, 2] {
        assert_eq!(write(&file, 0, &[byte; 50_000]), Ok(50_000));
        file.truncate(0).expect("it may be cut");
    }
    assert!(free() + 2 >= before, "{} of {before}", free());
    drop(file);
    world.unmount();
    judge(&image, &device.bytes());
}

#[test]
fn what_was_written_counts_before_it_has_blocks() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4", "-b", "1024", "-J", "size=1"], 4 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    assert!(world.superblock.status().blocks <= 4096 - 1024, "the journal is nobody's space");
    let file = world.create(b"/file").expect("space");
    file.truncate(1_000_000).expect("a hole");
    assert_eq!(file.status().blocks, 0);
    assert_eq!(write(&file, 1_000_000, b"end"), Ok(3));
    assert!(file.status().blocks > 0, "it is no hole");
    file.sync(false).expect("space");
    assert!(file.status().blocks > 0);
    drop(file);
    world.unmount();
    judge(&image, &device.bytes());
}

#[test]
fn nobody_takes_the_space_that_was_promised_to_what_is_written() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4", "-b", "1024", "-J", "size=1"], 4 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let (written, ahead) = (world.create(b"/written"), world.create(b"/ahead"));
    let (written, ahead) = (written.expect("space"), ahead.expect("space"));
    let data: Vec<u8> = (0..1_000_000u32).map(|at| (at * 7 / 3) as u8).collect();
    assert_eq!(write(&written, 0, &data), Ok(data.len()));
    // What is free on the disk would do, but most of it is taken.
    let free = world.superblock.status().blocks_free as i64 * 1024;
    assert_eq!(ahead.allocate(AllocateMode::empty(), 0, free + 200_000), Err(Error::NoSpace));
    written.sync(false).expect("what was taken has space");
    drop((written, ahead));
    world.unmount();
    judge(&image, &device.bytes());
    let world = device.mount(true).expect("a sound image");
    assert!(read(&world.open(b"/written", OpenFlags::empty()).expect("it is there"), 0, 2_000_000) == data);
    world.unmount();
}

#[test]
fn what_a_file_cannot_hold_is_refused_when_it_is_written() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let limits: [(&[&str], i64); 3] = [
        (&["-t", "ext4", "-b", "4096"], ((1 << 32) - 1) * 4096),
        (&["-t", "ext2", "-b", "1024"], (12 + 256 + 256 * 256 + 256 * 256 * 256) * 1024),
        (&["-t", "ext2", "-b", "1024", "-O", "^large_file"], (1 << 31) - 1),
    ];
    for (options, limit) in limits {
        let image = Image::make(options, 8 << 20, None);
        let device = Device::new(&image.bytes());
        let world = device.mount(false).expect("a sound image");
        let file = world.create(b"/file").expect("space");
        assert_eq!(write(&file, limit, b"x"), Err(Error::FileTooLarge), "{options:?}");
        assert_eq!(write(&file, limit - 3, b"abcdef"), Ok(3), "{options:?}");
        file.sync(false).expect("it has space");
        assert_eq!(file.truncate(limit + 1), Err(Error::FileTooLarge), "{options:?}");
        drop(file);
        world.unmount();
        judge(&image, &device.bytes());
        let world = device.mount(true).expect("a sound image");
        let file = world.open(b"/file", OpenFlags::empty()).expect("it is there");
        assert_eq!(read(&file, limit - 5, 20), b"\0\0abc");
        drop(file);
        world.unmount();
    }
}

#[test]
#[ignore = "takes seconds: a step of ./starling test --long"]
fn the_space_of_a_removed_file_is_there_at_once() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for options in OPTIONS {
        let image = Image::make(options, 12 << 20, None);
        let device = Device::new(&image.bytes());
        let world = device.mount(false).expect("a sound image");
        let (context, root) = (world.context(), &world.places.root);
        let mut fitted = None;
        for round in 0..4 {
            let file = world.create(b"/file").expect("space");
            let size = fill_disk(&file);
            let least = *fitted.get_or_insert(size) - 100_000;
            assert!(size >= least, "round {round}: {size} bytes where there had been {fitted:?}");
            drop(file);
            context.unlink(root, b"/file").expect("it is there");
            sync::rcu::barrier_expedited();
        }
        world.unmount();
        judge(&image, &device.bytes());
    }
}

#[test]
#[ignore = "takes seconds: a step of ./starling test --long"]
fn truncation_and_write_back_meet() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for options in OPTIONS {
        let image = Image::make(options, 16 << 20, None);
        let device = Device::new(&image.bytes());
        let world = device.mount(false).expect("a sound image");
        let file = world.create(b"/file").expect("space");
        let data = vec![5; 600_000];
        let (cut, done) = (file.clone(), Arc::new(sched::Completion::default()));
        let ended = done.clone();
        let body = move || {
            for round in 0..80 {
                cut.truncate(round * 4_999 % 500_000).expect("it may be cut");
                let hole = AllocateMode::PUNCH_HOLE | AllocateMode::KEEP_SIZE;
                cut.allocate(hole, round * 3_001 % 300_000, 50_000).expect("a hole");
            }
            ended.complete();
        };
        sched::spawn(sched::Builder::new("cuts"), Box::new(body)).expect("there is memory");
        for round in 0..40 {
            write(&file, round * 7919 % 400_000, &data[..200_000]).expect("there is space");
            file.sync(false).expect("the disk works");
        }
        done.wait();
        write(&file, 100_001, &data).expect("there is space");
        file.truncate(650_000).expect("it may be cut");
        file.sync(false).expect("the disk works");
        let wanted = read(&file, 0, 700_000);
        assert!(wanted.len() == 650_000 && wanted[100_001..].iter().all(|byte| *byte == 5));
        drop(file);
        world.unmount();
        judge(&image, &device.bytes());
        let world = device.mount(true).expect("a sound image");
        let file = world.open(b"/file", OpenFlags::empty()).expect("it was made");
        assert!(read(&file, 0, 700_000) == wanted);
        drop(file);
        world.unmount();
    }
}

#[test]
fn a_range_of_zeroes_reads_as_such_and_has_its_blocks() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for options in [&["-t", "ext4", "-b", "4096"][..], &["-t", "ext4", "-b", "1024"]] {
        let image = Image::make(options, 16 << 20, None);
        let device = Device::new(&image.bytes());
        let world = device.mount(false).expect("a sound image");
        let file = world.create(b"/file").expect("space");
        assert_eq!(write(&file, 0, &[7; 60_000]), Ok(60_000));
        file.sync(false).expect("the disk works");
        assert_eq!(write(&file, 60_000, &[8; 20_000]), Ok(20_000));
        let kept = AllocateMode::ZERO_RANGE | AllocateMode::KEEP_SIZE;
        file.allocate(kept, 5_000, 70_000).expect("space");
        file.allocate(kept, 90_000, 50_000).expect("space");
        assert_eq!(file.status().size, 80_000);
        let mut wanted = vec![7; 80_000];
        wanted[5_000..75_000].fill(0);
        wanted[75_000..].fill(8);
        assert!(read(&file, 0, 100_000) == wanted);
        file.allocate(AllocateMode::ZERO_RANGE, 79_000, 11_000).expect("space");
        wanted.resize(90_000, 0);
        wanted[79_000..].fill(0);
        assert!(read(&file, 0, 100_000) == wanted);
        drop(file);
        world.unmount();
        judge(&image, &device.bytes());
        let world = device.mount(true).expect("a sound image");
        let file = world.open(b"/file", OpenFlags::empty()).expect("it was made");
        assert!(read(&file, 0, 100_000) == wanted);
        assert!(file.status().blocks >= 140_000 / 512, "{} sectors", file.status().blocks);
        drop(file);
        world.unmount();
    }
}

#[test]
fn a_mount_for_reading_becomes_one_for_writing_and_back() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for options in OPTIONS {
        let image = Image::make(options, 16 << 20, None);
        let device = Device::new(&image.bytes());
        let world = device.mount(true).expect("a sound image");
        let remount = |flags| world.places.namespace.remount(&world.places.root, flags, Some(b""));
        assert_eq!(world.create(b"/early").err(), Some(Error::ReadOnly));
        for round in 0..3 {
            remount(MountFlags::empty()).expect("the image is sound");
            let file = world.create(format!("/file{round}").as_bytes()).expect("space");
            assert_eq!(write(&file, 0, &[9; 30_000]), Ok(30_000));
            assert_eq!(remount(MountFlags::READ_ONLY), Err(Error::Busy), "a file is open for writing");
            drop(file);
            remount(MountFlags::READ_ONLY).expect("the disk works");
            assert_eq!(world.create(b"/late").err(), Some(Error::ReadOnly));
            let crashed = device.bytes();
            let kept = Image::make(options, 16 << 20, None);
            judge(&kept, &crashed);
            let file = world.open(b"/file0", OpenFlags::empty()).expect("it was made");
            assert!(read(&file, 0, 40_000) == [9; 30_000]);
        }
        world.unmount();
        judge(&image, &device.bytes());
    }
}

#[test]
fn a_flush_that_fails_is_told_once_to_each_who_has_the_file_open() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for options in OPTIONS {
        let image = Image::make(options, 16 << 20, None);
        let device = Device::new(&image.bytes());
        let world = device.mount(false).expect("a sound image");
        let one = world.create(b"/file").expect("space");
        let two = world.open(b"/file", OpenFlags::READ_WRITE).expect("it was made");
        assert_eq!(write(&one, 0, &[1; 9_000]), Ok(9_000));
        assert_eq!((one.sync(false), two.sync(false)), (Ok(()), Ok(())));
        // Nothing is to be committed: the flush is all that there is to do.
        device.faults.fail_flushes(1);
        assert_eq!(one.sync(true), Err(Error::Io));
        assert_eq!(two.sync(true), Err(Error::Io), "its data may be lost, too");
        assert_eq!((one.sync(true), two.sync(true)), (Ok(()), Ok(())), "each is told once");
        let late = world.open(b"/file", OpenFlags::empty()).expect("it was made");
        assert_eq!(late.sync(true), Ok(()), "everybody has been told");
        // A commit whose flush fails is the last one.
        assert_eq!(write(&one, 9_000, &[2; 9_000]), Ok(9_000));
        device.faults.fail_flushes(1);
        assert_eq!(one.sync(false), Err(Error::Io));
        assert_eq!(two.sync(false), Err(Error::Io));
        assert_eq!(two.sync(false), Err(Error::ReadOnly));
        assert_eq!(world.create(b"/more").err(), Some(Error::ReadOnly));
        assert!(read(&late, 0, 9_000) == [1; 9_000]);
        drop((one, two, late));
        world.unmount();
    }
}

#[test]
fn what_has_left_the_cache_of_metadata_is_asked_for_outside_of_read_sections() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    /// What a block of places of blocks covers; there are twice as many as the cache holds, and some.
    const STRIDE: i64 = 256 << 10;
    const PLACES: i64 = 2 * 4096 + 500;
    let image = Image::make(&["-t", "ext2", "-b", "1024"], 64 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let known = world.create(b"/known").expect("space");
    assert_eq!(write(&known, 0, &[1; 3000]), Ok(3000));
    for name in b'a'..=b'z' {
        world.create(&[b'/', name]).expect("space");
    }
    let large = world.create(b"/large").expect("space");
    for place in 0..PLACES {
        assert_eq!(write(&large, place * STRIDE, b"x"), Ok(1));
    }
    drop((known, large));
    world.unmount();
    let world = device.mount(true).expect("a sound image");
    let (context, root) = (world.context(), &world.places.root);
    let status = || context.status(root, b"/known", LookupFlags::FOLLOW).expect("it was made");
    let before = status();
    assert_eq!((before.size, before.blocks), (3000, 6));
    let large = world.open(b"/large", OpenFlags::empty()).expect("it was made");
    for place in 0..PLACES {
        assert_eq!(read(&large, place * STRIDE, 1), b"x");
    }
    // Its entry and its inode are known still; the block of the inode is not.
    assert_eq!(status().blocks, before.blocks);
    drop(large);
    world.unmount();
}

#[test]
fn what_lies_in_a_directory_that_cannot_be_read_is_an_error_and_not_missing() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for options in OPTIONS {
        let image = Image::make(options, 16 << 20, None);
        let device = Device::new(&image.bytes());
        let world = device.mount(false).expect("a sound image");
        world.context().make_directory(&world.places.root, b"/d", 0o755).expect("space");
        drop(world.create(b"/d/inside").expect("space"));
        world.unmount();
        image.set_bytes(&device.bytes());
        let block = image
            .run("debugfs", &["-R", "blocks /d"])
            .split_whitespace()
            .next()
            .and_then(|word| word.parse().ok());
        let block: u64 = block.expect("a directory has a block");
        drop(device);
        let block_bytes = if options.contains(&"4096") { 4096 } else { 1024 };
        let sound = image.bytes();
        for damaged in [false, true] {
            let mut bytes = sound.clone();
            if damaged {
                // Its first entry's length: no entries are left, with or without a checksum.
                bytes[block as usize * block_bytes + 4] ^= 0x55;
            }
            let device = Device::new(&bytes);
            if !damaged {
                device.faults.fail_reads_of(block * block_bytes as u64 / 512);
            }
            for read_only in [true, false] {
                let world = device.mount(read_only).expect("what is damaged is not looked at yet");
                for _ in 0..2 {
                    assert_eq!(world.open(b"/d/inside", OpenFlags::empty()).err(), Some(Error::Io));
                    assert_eq!(world.open(b"/d/other", OpenFlags::empty()).err(), Some(Error::Io));
                }
                world.open(b"/d", OpenFlags::DIRECTORY).expect("its inode is sound");
                world.unmount();
            }
        }
    }
}

#[test]
fn a_device_is_mounted_once_in_one_place_and_again_in_another() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4"], 16 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let root = &world.places.root;
    let mount = |path: &vfs::mount::Path| {
        let file_system = find_file_system(b"ext4")?;
        let what = MountSource::Device {
            file_system,
            device: &device.disk.device,
            source: b"/dev/tsta",
            options: b"",
        };
        world.places.namespace.mount(what, path, MountFlags::empty())
    };
    assert_eq!(mount(root), Err(Error::Busy), "it is what is mounted there");
    world.context().make_directory(root, b"/d", 0o755).expect("space");
    let directory = world.open(b"/d", OpenFlags::DIRECTORY).expect("it was made");
    let place = directory.path().expect("it has a place in the tree");
    assert_eq!(mount(place), Ok(()));
    assert_eq!(mount(place), Err(Error::Busy));
    drop(directory);
    let d = world.open(b"/d/d", OpenFlags::DIRECTORY).expect("it is there in both places");
    drop(d);
    world.unmount();
}

#[test]
fn set_user_id_that_a_write_took_away_is_not_back_after_an_unmount() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(OPTIONS[0], 16 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let names = [b"/written", b"/cut off"];
    for name in names {
        let file = world.create(name).expect("space");
        assert_eq!(write(&file, 0, b"a program"), Ok(9));
        let change = AttributeChange { mode: Some(0o6775), ..AttributeChange::default() };
        world.context().change_attributes(file.path().expect("it has a place"), &change).expect("its owner");
    }
    // Nobody here has the capability to keep the bits.
    let file = world.open(names[0], OpenFlags::READ_WRITE).expect("it is there");
    assert_eq!(write(&file, 0, b"another"), Ok(7));
    assert_eq!(file.status().mode & 0o7777, 0o775);
    let other = world.open(names[1], OpenFlags::READ_WRITE).expect("it is there");
    other.truncate(3).expect("it is open for writing");
    drop((file, other));
    world.unmount();
    let world = device.mount(true).expect("a sound image");
    for name in names {
        let file = world.open(name, OpenFlags::empty()).expect("it was made");
        assert_eq!(file.status().mode & 0o7777, 0o775, "{}", name.escape_ascii());
    }
    world.unmount();
    judge(&image, &device.bytes());
}

/// A change of the mode is on the disk before it is in memory; who synchronises the file in between does not take it back.
#[test]
fn what_memory_has_still_of_a_mode_is_not_written_over_a_new_one() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(OPTIONS[0], 16 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let file = world.create(b"/file").expect("space");
    let to = |mode| AttributeChange { mode: Some(mode), ..AttributeChange::default() };
    world.context().change_attributes(file.path().expect("it has a place"), &to(0o4755)).expect("its owner");
    // The first half of another change.
    file.inode().operations().change_attributes(file.inode(), &to(0o755)).expect("the disk works");
    file.sync(false).expect("the disk works");
    drop(file);
    world.unmount();
    let world = device.mount(true).expect("a sound image");
    assert_eq!(world.open(b"/file", OpenFlags::empty()).expect("it was made").status().mode & 0o7777, 0o755);
    world.unmount();
}

/// Likewise for times, which are stored from memory: not between the two halves of a change.
#[test]
fn what_memory_has_still_of_a_time_is_not_written_over_a_new_one() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(OPTIONS[0], 16 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    drop(world.create(b"/file").expect("space"));
    world.unmount();
    for round in 0..10 {
        let time = Timestamp { seconds: 1_000_000_000 + round, nanoseconds: 0 };
        let change = AttributeChange { modified: Some(TimeChange::To(time)), ..AttributeChange::default() };
        let world = device.mount(false).expect("a sound image");
        let file = world.open(b"/file", OpenFlags::READ_WRITE).expect("it was made");
        let inode = file.inode();
        let changing = inode.lock().write();
        inode.operations().change_attributes(inode, &change).expect("the disk works");
        std::thread::scope(|scope| {
            let syncing = scope.spawn(|| file.sync(false));
            (0..1000).for_each(|_| std::thread::yield_now());
            inode.modified().set(time);
            drop(changing);
            assert_eq!(outcome_of(syncing), Ok(()));
        });
        drop(file);
        world.unmount();
        let world = device.mount(true).expect("a sound image");
        assert_eq!(world.open(b"/file", OpenFlags::empty()).expect("it was made").status().modified, time);
        world.unmount();
    }
}

/// The clock that files are stamped by goes so many seconds ahead.
fn set_clock(seconds: u64) {
    set_time_of_day_base_ns(machine::time::wall_clock_boot_ns() + seconds * 1_000_000_000);
}

#[test]
fn times_are_those_of_the_calls_when_pages_are_written_after_their_inodes_left_memory() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let past = Timestamp { seconds: 1_000_000_007, nanoseconds: 0 };
    let future = Timestamp { seconds: 8_000_000_000, nanoseconds: 0 };
    for options in OPTIONS {
        set_clock(0);
        let image = Image::make(&[options, &["-I", "256"]].concat(), 16 << 20, None);
        let device = Device::new(&image.bytes());
        let world = device.mount(false).expect("a sound image");
        let set = |file: &Arc<OpenFile>, time: Timestamp| {
            let change =
                AttributeChange { modified: Some(TimeChange::To(time)), ..AttributeChange::default() };
            let place = file.path().expect("it has a place in the tree");
            world.context().change_attributes(place, &change).expect("it is the caller's");
        };
        let stamps = |file: &Arc<OpenFile>| (file.status().modified, file.status().changed);
        let (names, mut expected) = ([b"/past", b"/next", b"/late", b"/then", b"/only"], Vec::new());
        let files = names.map(|name| world.create(name).expect("space"));
        for (file, time) in files.iter().zip([Some(past), Some(future), Some(past), Some(future), None]) {
            assert_eq!(write(file, 0, &[7; 60_000]), Ok(60_000));
            if let Some(time) = time {
                set(file, time);
            }
        }
        // Within the same step of the clock, perhaps. The first page is dirty already, and stays so.
        for late in &files[2..4] {
            assert_eq!(write(late, 100, b"more"), Ok(4));
            assert!(late.status().modified > past && late.status().modified < future);
        }
        expected.extend(files.iter().map(stamps));
        assert_eq!((expected[0].0, expected[1].0), (past, future));
        set_clock(20);
        drop(files);
        // The pages are written when the inodes have gone.
        world.unmount();
        let world = device.mount(true).expect("a sound image");
        for (name, expected) in names.into_iter().zip(expected) {
            let file = world.open(name, OpenFlags::empty()).expect("it was made");
            assert_eq!(stamps(&file), expected, "{}", name.escape_ascii());
        }
        world.unmount();
        judge(&image, &device.bytes());
    }
}

#[test]
fn a_store_through_a_mapping_changes_the_times_and_a_new_name_does_not_bring_old_ones_back() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for options in OPTIONS {
        set_clock(0);
        let image = Image::make(&[options, &["-I", "256"]].concat(), 16 << 20, None);
        let device = Device::new(&image.bytes());
        let world = device.mount(false).expect("a sound image");
        let file = world.create(b"/file").expect("space");
        assert_eq!(write(&file, 0, &[7; 60_000]), Ok(60_000));
        file.sync(false).expect("the disk works");
        let written = file.status().modified;
        set_clock(20);
        // What a fault does for a store to a clean page.
        let cache = file.inode().operations().cache().expect("it is a regular file");
        drop(cache.frame(0, Intent::Write).expect("space"));
        let stored = file.status();
        assert!(stored.modified > written && stored.changed == stored.modified);
        set_clock(30);
        let root = &world.places.root;
        world.context().rename(root, b"/file", root, b"/other", RenameFlags::empty()).expect("it is there");
        assert_eq!(file.status().modified, stored.modified);
        assert!(file.status().changed > stored.changed);
        set_clock(40);
        drop(file);
        world.unmount();
        let world = device.mount(true).expect("a sound image");
        let file = world.open(b"/other", OpenFlags::empty()).expect("it was made");
        assert_eq!(file.status().modified, stored.modified);
        drop(file);
        world.unmount();
    }
}

#[test]
fn removals_delete_what_earlier_ones_left() {
    const FILES: u64 = 100;
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for options in OPTIONS {
        let image = Image::make(options, 16 << 20, None);
        let device = Device::new(&image.bytes());
        let inodes_free = || {
            let disk = Arc::new(FaultyDisk::new(&device.bytes()).expect("there is memory"));
            let volume = block::Volume::whole(Queue::new(disk).expect("a sound device"));
            ext4::FileSystem::mount(&volume).expect("a sound image").status().inodes_free
        };
        let world = device.mount(false).expect("a sound image");
        let before = inodes_free();
        let names = (0..FILES).map(|number| format!("/file-{number}").into_bytes());
        let root = world.open(b"/", OpenFlags::DIRECTORY).expect("it is there");
        for name in names.clone() {
            let file = world.create(&name).expect("space");
            assert_eq!(write(&file, 0, &[7; 5000]), Ok(5000));
        }
        root.sync(false).expect("the disk works");
        assert_eq!(inodes_free(), before - FILES);
        for name in names {
            world.context().unlink(&world.places.root, &name).expect("it was made");
            // Nobody looks at it any more.
            sync::rcu::barrier_expedited();
        }
        // Nobody has asked how much space there is.
        root.sync(false).expect("the disk works");
        assert!(inodes_free() > before - FILES / 4, "{} of {before}", inodes_free());
        drop(root);
        world.unmount();
        judge(&image, &device.bytes());
    }
}

#[test]
fn a_directory_that_lies_in_itself_is_an_error_and_nobody_waits_for_ever() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4", "-O", "^metadata_csum"], 16 << 20, None);
    let link = |from: &str, to: &str| format!("link {from} {to}");
    image.debugfs(&["mkdir d".into(), "mkdir d/e".into(), link("d", "d/own"), link("d", "d/e/above")]);
    image.debugfs(&["mkdir twin".into(), link("d/e", "twin/e"), link(".", "twin/root")]);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound superblock");
    let (context, root) = (world.context(), &world.places.root);
    for path in [&b"/d/own"[..], b"/twin/root", b"/d/e/above", b"/twin/e"] {
        let name = String::from_utf8_lossy(path);
        assert_eq!(context.remove_directory(root, path), Err(Error::Io), "{name}");
        let moved = context.rename(root, b"/d/e", root, path, RenameFlags::empty());
        assert_eq!(moved, Err(Error::Io), "{name}");
    }
    context.rename(root, b"/d/e", root, b"/moved", RenameFlags::empty()).expect("this one is sound");
    context.make_directory(root, b"/moved/new", 0o755).expect("space");
    world.unmount();
}
