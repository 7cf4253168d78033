//! Taking ranges out of files and putting holes in, where data and holes are, and telling the device what is free: against a model, judged by `e2fsck`.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;
mod world;

use std::sync::Arc;

use ext4::{Kind, NewFile, Time, Writer};
use image::{Image, Random, disk_of, volume_on};
use vfs::flags::{AllocateMode, OpenFlags};
use vfs::{Error, OpenFile, SeekFrom};
use world::{Device, ONE_AT_A_TIME, judge, read, write};

const OPTIONS: [&[&str]; 2] = [&["-t", "ext4", "-b", "4096"], &["-t", "ext4", "-b", "1024"]];
const COLLAPSE: AllocateMode = AllocateMode::COLLAPSE_RANGE;
const INSERT: AllocateMode = AllocateMode::INSERT_RANGE;

fn contents(file: &Arc<OpenFile>) -> Vec<u8> {
    read(file, 0, file.status().size as usize + 1)
}

#[test]
fn ranges_come_and_go_as_in_a_list_of_bytes() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for (options, unit) in OPTIONS.iter().zip([4096, 1024]) {
        let image = Image::make(options, 32 << 20, None);
        let device = Device::new(&image.bytes());
        let mut world = device.mount(false).expect("a sound image");
        let mut file = world.create(b"/file").expect("space");
        let mut model: Vec<u8> = Vec::new();
        let mut random = Random(7);
        for round in 0..400u32 {
            let blocks = model.len() / unit;
            let (at, count) = (random.below(blocks + 3), 1 + random.below(9));
            let (offset, length) = (at * unit, count * unit);
            match random.below(6) {
                0 => {
                    let outcome = file.allocate(COLLAPSE, offset as i64, length as i64);
                    if offset + length < model.len() {
                        assert_eq!(outcome, Ok(()));
                        model.drain(offset..offset + length);
                    } else {
                        assert_eq!(outcome, Err(Error::Invalid), "round {round}");
                    }
                }
                1 if model.len() < 4 << 20 => {
                    let outcome = file.allocate(INSERT, offset as i64, length as i64);
                    if offset < model.len() {
                        assert_eq!(outcome, Ok(()), "round {round}");
                        model.splice(offset..offset, std::iter::repeat_n(0, length));
                    } else {
                        assert_eq!(outcome, Err(Error::Invalid), "round {round}");
                    }
                }
                2 => {
                    let punch = AllocateMode::PUNCH_HOLE | AllocateMode::KEEP_SIZE;
                    assert_eq!(file.allocate(punch, offset as i64, length as i64), Ok(()));
                    let end = model.len().min(offset + length);
                    model.get_mut(offset..end).unwrap_or_default().fill(0);
                }
                3 if round % 3 == 0 => file.sync(false).expect("the disk works"),
                _ => {
                    let start = offset + random.below(unit);
                    let bytes = vec![round as u8 | 1; 1 + random.below(5 * unit)];
                    assert_eq!(write(&file, start as i64, &bytes), Ok(bytes.len()));
                    model.resize(model.len().max(start + bytes.len()), 0);
                    model[start..start + bytes.len()].copy_from_slice(&bytes);
                }
            }
            assert_eq!(file.status().size, model.len() as u64);
            if round % 20 == 0 {
                assert!(contents(&file) == model, "round {round}");
            }
            if round % 100 == 99 {
                drop(file);
                world.unmount();
                judge(&image, &device.bytes());
                world = device.mount(false).expect("a sound image");
                file = world.open(b"/file", OpenFlags::READ_WRITE).expect("it is there");
                assert!(contents(&file) == model, "round {round}, from the disk");
            }
        }
        drop(file);
        world.unmount();
    }
}

#[test]
fn a_file_of_many_extents_moves_as_a_whole() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(OPTIONS[1], 32 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let file = world.create(b"/file").expect("space");
    // Every other block: none joins its neighbour.
    let block = |number: i64| vec![(number % 251) as u8 + 1; 1024];
    for number in 0..1500 {
        assert_eq!(write(&file, number * 2048, &block(number)), Ok(1024));
    }
    file.sync(false).expect("the disk works");
    assert_eq!(file.allocate(INSERT, 2048, 1 << 20), Ok(()));
    for number in [1, 700, 1499] {
        assert_eq!(read(&file, (1 << 20) + number * 2048, 1024), block(number));
    }
    assert_eq!(file.allocate(COLLAPSE, 1024, 1 << 20), Ok(()));
    for number in [0, 1, 2, 700, 1499] {
        assert_eq!(read(&file, number * 2048, 1024), block(number));
    }
    assert_eq!(file.status().size, 1499 * 2048 + 1024);
    drop(file);
    world.unmount();
    judge(&image, &device.bytes());
}

#[test]
fn what_cannot_be_moved_is_refused() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(OPTIONS[0], 16 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let file = world.create(b"/file").expect("space");
    assert_eq!(write(&file, 0, &[1; 20_000]), Ok(20_000));
    for mode in [COLLAPSE, INSERT] {
        assert_eq!(file.allocate(mode, 100, 4096), Err(Error::Invalid));
        assert_eq!(file.allocate(mode, 4096, 100), Err(Error::Invalid));
        assert_eq!(file.allocate(mode, 20_480, 4096), Err(Error::Invalid));
        assert_eq!(file.allocate(mode | AllocateMode::KEEP_SIZE, 0, 4096), Err(Error::Invalid));
    }
    assert_eq!(file.allocate(COLLAPSE, 0, 20_480), Err(Error::Invalid), "it would end the file");
    assert_eq!(file.allocate(INSERT, 0, 1 << 50), Err(Error::FileTooLarge));
    assert!(contents(&file) == [1; 20_000]);
    drop(file);
    world.unmount();
    judge(&image, &device.bytes());
    let image = Image::make(&["-t", "ext2", "-b", "1024"], 8 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let file = world.create(b"/file").expect("space");
    assert_eq!(write(&file, 0, &[1; 20_000]), Ok(20_000));
    assert_eq!(file.allocate(COLLAPSE, 0, 1024), Err(Error::NotSupported));
    drop(file);
    world.unmount();
}

#[test]
fn data_and_holes_are_found_before_they_are_on_the_disk_and_after() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(OPTIONS[0], 16 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let file = world.create(b"/file").expect("space");
    assert_eq!(write(&file, 100_000, b"data"), Ok(4));
    assert_eq!(write(&file, 300_000, &[1; 10_000]), Ok(10_000));
    file.truncate(1 << 20).expect("it may grow");
    assert_eq!(file.allocate(AllocateMode::empty(), 600_000, 100_000), Ok(()));
    let page = |at: u64| at & !4095;
    for written in [false, true] {
        let seek = |target| file.seek(target);
        assert_eq!(seek(SeekFrom::Data(0)), Ok(page(100_000)), "written back: {written}");
        assert_eq!(seek(SeekFrom::Data(100_002)), Ok(100_002));
        assert_eq!(seek(SeekFrom::Hole(100_002)), Ok(page(100_000) + 4096));
        assert_eq!(seek(SeekFrom::Hole(5)), Ok(5));
        assert_eq!(seek(SeekFrom::Data(200_000)), Ok(page(300_000)));
        assert_eq!(seek(SeekFrom::Hole(300_000)), Ok(page(310_000) + 4096));
        assert_eq!(seek(SeekFrom::Data(400_000)), Err(Error::NoDeviceAddress), "allocated is not written");
        assert_eq!(seek(SeekFrom::Hole(650_000)), Ok(650_000));
        assert_eq!(seek(SeekFrom::Data(1 << 20)), Err(Error::NoDeviceAddress));
        assert_eq!(seek(SeekFrom::Hole(-1)), Err(Error::NoDeviceAddress));
        file.sync(false).expect("the disk works");
    }
    // What was allocated and is written now is data.
    assert_eq!(write(&file, 650_000, b"data"), Ok(4));
    assert_eq!(file.seek(SeekFrom::Data(400_000)), Ok(page(650_000)));
    drop(file);
    world.unmount();
    judge(&image, &device.bytes());
}

#[test]
fn the_device_forgets_what_is_free_and_nothing_else() {
    for options in OPTIONS {
        let image = Image::make(options, 16 << 20, None);
        let disk = disk_of(&image.bytes());
        let now = Time::default();
        let writer = Writer::mount(&volume_on(disk.clone()), b"/", now).expect("a sound image");
        let mark = b"a text that is nowhere else on the disk";
        let bytes: Vec<u8> = mark.iter().copied().cycle().take(1 << 20).collect();
        let numbers = [b"kept", b"gone"].map(|name| {
            let new = NewFile {
                kind: Kind::Regular,
                mode: 0o600,
                user: 0,
                group: 0,
                special: (0, 0),
                target: b"",
                attributes: &[],
                privileged: true,
            };
            let made = writer.create(2, name, &new, now).expect("space");
            writer.write(made.number, 0, &bytes, true, now).expect("space");
            made.number
        });
        writer.unlink(2, b"gone", now).expect("it is there");
        writer.delete(numbers[1], now).expect("nobody has it");
        let marks = || image::bytes_of(&disk).windows(mark.len()).filter(|window| window == mark).count();
        let before = marks();
        let all = 0..u64::MAX;
        assert!(writer.trim(all.clone(), 1, || true).is_ok());
        assert_eq!(marks(), before, "until the deletion is committed they are the old owner's");
        writer.commit().expect("the disk works");
        let free = writer.status().blocks_free;
        assert_eq!(writer.trim(all.clone(), 1, || false), Ok(0));
        assert_eq!(writer.trim(all, 1, || true), Ok(free));
        assert_eq!(writer.status().blocks_free, free, "what was told is free again");
        assert_eq!(marks(), before / 2);
        let mut found = vec![0; 1 << 20];
        let kept = writer.system().inode(numbers[0]).expect("it is there");
        assert_eq!(writer.system().read(&kept, 0, &mut found), Ok(1 << 20));
        assert!(found == bytes);
        writer.unmount().expect("the disk works");
        judge(&image, &image::bytes_of(&disk));
    }
}
