//! Power fails at any moment, disks fail at any request, space runs out: what is recovered is sound and has everything that was promised.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;
mod model;

use std::collections::BTreeMap;
use std::sync::Arc;

use block::{DiskEvent, FaultyDisk, Queue, Volume};
use ext4::{Error, FileSystem, Kind, NewFile, Time, Writer};
use image::{Image, Random};
use model::{Model, Node, walk};

const SMALL: [&str; 8] = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "256"];

fn device(disk: &Arc<FaultyDisk>) -> Volume {
    Volume::whole(Queue::new(disk.clone()).expect("a sound device"))
}

fn faulty(bytes: &[u8]) -> Arc<FaultyDisk> {
    Arc::new(FaultyDisk::new(bytes).expect("there is memory"))
}

/// What may be on the disk after a crash behind the first `cut` events: all that was flushed, and any of the rest, in any order, torn.
fn crash(start: &[u8], events: &[DiskEvent], cut: usize, random: &mut Random) -> Vec<u8> {
    let flushed = events[..cut].iter().rposition(|event| matches!(event, DiskEvent::Flush)).unwrap_or(0);
    let mut image = start.to_vec();
    let mut late = Vec::new();
    for (index, event) in events[..cut].iter().enumerate() {
        let DiskEvent::Write { sector, bytes, durable } = event else { continue };
        let at = *sector as usize * 512;
        if *durable || index < flushed {
            image[at..at + bytes.len()].copy_from_slice(bytes);
        } else {
            late.push((at, bytes));
        }
    }
    // Of writes to one place the disk keeps the order, or who writes twice could rely on nothing.
    for (at, bytes) in late {
        match random.below(4) {
            0 => {}
            1 => {
                for piece in (0..bytes.len()).step_by(512).filter(|_| random.below(2) == 0) {
                    image[at + piece..at + piece + 512].copy_from_slice(&bytes[piece..piece + 512]);
                }
            }
            _ => image[at..at + bytes.len()].copy_from_slice(bytes),
        }
    }
    image
}

/// What was durable at some event: files that no operation has touched since the commit before.
struct Promise {
    at: usize,
    model: Model,
}

/// Random operations with commits in between, on a recording disk.
fn work(disk: &Arc<FaultyDisk>, steps: usize, random: &mut Random) -> Vec<Promise> {
    let mut model = Model::default();
    disk.record();
    let writer = Writer::mount(&device(disk), b"/", model.now()).expect("a sound image");
    let mut promises = vec![Promise { at: 0, model: model.clone() }];
    for _ in 0..steps {
        match model.step(&writer, random) {
            Ok(()) | Err(Error::NoSpace) => {}
            Err(error) => panic!("{error}"),
        }
        if random.below(6) == 0 {
            writer.commit().expect("the disk works");
            promises.push(Promise { at: disk.event_count(), model: model.clone() });
        }
    }
    promises
}

/// Mounts what a crash left, unmounts it, has `e2fsck` judge it, and returns what is in it.
fn recovered(image: &Image, crashed: &[u8], what: &str) -> BTreeMap<String, (ext4::Inode, Node)> {
    let disk = faulty(crashed);
    let writer = Writer::mount(&device(&disk), b"/", Time::default())
        .unwrap_or_else(|error| panic!("{what}: not recovered: {error}"));
    let mut found = BTreeMap::new();
    walk(writer.system(), &writer.system().root().expect("a root"), "", &mut found);
    writer.unmount().expect("the disk works");
    image.set_bytes(&disk.contents().expect("there is memory"));
    let (sound, said) = image.run_to_end("e2fsck", &["-fn"]);
    assert!(sound, "{what}: {said}");
    found
}

/// Files that are the same in both models, by number: nobody touched them in between.
fn untouched<'a>(before: &'a Model, after: &'a Model) -> impl Iterator<Item = (&'a String, &'a Node)> {
    before.names.iter().filter_map(move |(path, number)| {
        let same =
            after.names.get(path) == Some(number) && after.files.get(number) == before.files.get(number);
        same.then(|| (path, &before.files[number]))
    })
}

fn power_fails(steps: usize, cuts: usize, seed: u64) {
    let image = Image::make(&SMALL, 4 << 20, None);
    let start = image.bytes();
    let disk = faulty(&start);
    let mut random = Random(seed);
    let promises = work(&disk, steps, &mut random);
    let events = disk.take_events();
    for index in 0..cuts {
        let cut = if cuts > events.len() { index.min(events.len()) } else { random.below(events.len() + 1) };
        let found = recovered(&image, &crash(&start, &events, cut, &mut random), &format!("cut at {cut}"));
        let promised = promises.iter().rposition(|promise| promise.at <= cut).expect("the first one is at 0");
        let before = &promises[promised].model;
        // What happened to a file behind the next commit has not been written yet; until then it may have been.
        let Some(after) = promises.get(promised + 1).map(|promise| &promise.model) else { continue };
        for (path, node) in untouched(before, after) {
            let there = found.get(path).unwrap_or_else(|| panic!("cut at {cut}: {path} was committed"));
            assert!(there.1 == *node, "cut at {cut}: {path} is not what was committed");
        }
    }
}

#[test]
fn after_power_fails_everything_committed_is_there_and_e2fsck_finds_nothing() {
    power_fails(120, 60, 3);
}

#[test]
#[ignore = "takes minutes: a step of ./starling test --long"]
fn after_power_fails_at_every_moment_everything_committed_is_there() {
    for seed in 10..16 {
        power_fails(150, 2000, seed);
    }
}

/// The journal that a crash leaves: `e2fsck` replays it as we do, and the rest of what it does is to delete orphans.
#[test]
fn e2fsck_repairs_a_crash_by_replaying_the_journal() {
    let image = Image::make(&SMALL, 4 << 20, None);
    let start = image.bytes();
    let disk = faulty(&start);
    let mut random = Random(21);
    work(&disk, 100, &mut random);
    let events = disk.take_events();
    for _ in 0..15 {
        let cut = random.below(events.len() + 1);
        image.set_bytes(&crash(&start, &events, cut, &mut random));
        // By itself it replays the journal and deletes orphans; more would be a question, to which -p has no answer.
        let (_, said) = image.run_to_end("e2fsck", &["-p"]);
        let (sound, rest) = image.run_to_end("e2fsck", &["-fn"]);
        assert!(sound, "cut at {cut}: {said} {rest}");
    }
}

/// A superblock of two sectors, of which one was written when power failed: the log has it whole.
#[test]
fn a_torn_superblock_is_taken_from_the_log() {
    const AT: usize = 1024;
    const SECTOR: usize = 512;
    let image = Image::make(&SMALL, 4 << 20, None);
    let start = image.bytes();
    let disk = faulty(&start);
    let mut random = Random(33);
    let promises = work(&disk, 100, &mut random);
    let mut home = disk.contents().expect("there is memory");
    let mut logged = None;
    FileSystem::mount(&device(&faulty(&home))).expect("a sound image").for_each_replayed(|block, bytes| {
        if block == 1 {
            logged = Some(bytes.to_vec());
        }
    });
    let logged = logged.expect("the superblock is in the log");
    let sound = recovered(&image, &home, "whole");
    home[AT..AT + SECTOR].copy_from_slice(&logged[..SECTOR]);
    home[AT + SECTOR + 400] ^= 1;
    assert!(!promises.is_empty());
    assert_eq!(recovered(&image, &home, "torn").len(), sound.len());
    // One that asks for no recovery, and one that the log has nothing of.
    const INCOMPATIBLE: usize = AT + 96;
    const RECOVER: u8 = 4;
    let mut torn = start;
    torn[AT + SECTOR + 400] ^= 1;
    for asks in [false, true] {
        torn[INCOMPATIBLE] = torn[INCOMPATIBLE] & !RECOVER | if asks { RECOVER } else { 0 };
        let error = Writer::mount(&device(&faulty(&torn)), b"/", Model::default().now()).err();
        assert_eq!(error, Some(Error::Corrupted("the superblock's checksum", 0)), "{asks}");
    }
}

/// Writes until there is no space, and gives a little back.
fn fill(writer: &Writer, model: &mut Model) {
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
    let number = writer.create(model::ROOT, b"fill", &new, model.now()).expect("there is space").number;
    let mut size = 0;
    while writer.write(number, size, &[7; 20_000], true, model.now()).is_ok() {
        size += 20_000;
    }
    writer.set_size(number, size - 90_000, model.now()).expect("deleting needs no space");
}

#[test]
fn without_space_operations_fail_as_a_whole() {
    for options in [&SMALL[..], &["-t", "ext2", "-b", "1024", "-N", "64"]] {
        let image = Image::make(options, 2500 << 10, None);
        let disk = faulty(&image.bytes());
        let mut random = Random(9);
        let mut model = Model::default();
        let writer = Writer::mount(&device(&disk), b"/", model.now()).expect("a sound image");
        fill(&writer, &mut model);
        let mut refused = 0;
        for _ in 0..500 {
            match model.step(&writer, &mut random) {
                Err(Error::NoSpace) => refused += 1,
                other => other.expect("there is nothing else to fail"),
            }
        }
        assert!(refused > 10, "{refused} operations had no space");
        let now = model.now();
        model.close_all(&writer, now).expect("deleting needs no space");
        writer.unmount().expect("the disk works");
        image.set_bytes(&disk.contents().expect("there is memory"));
        let (sound, said) = image.run_to_end("e2fsck", &["-fn"]);
        assert!(sound, "{said}");
    }
}

/// The disk fails once at each request in turn, or from then on for ever.
#[test]
fn with_a_disk_that_fails_the_image_stays_sound() {
    let image = Image::make(&SMALL, 4 << 20, None);
    let start = image.bytes();
    for failing in (1..160).step_by(6) {
        for for_ever in [false, true] {
            let disk = faulty(&start);
            let mut random = Random(40);
            let mut model = Model::default();
            let writer = Writer::mount(&device(&disk), b"/", model.now()).expect("a sound image");
            disk.fail_after(failing, block::Error::Io, for_ever);
            for step in 0..60 {
                drop(model.step(&writer, &mut random));
                if step % 10 == 9 {
                    drop(writer.commit());
                }
            }
            drop(writer);
            recovered(&image, &disk.contents().expect("there is memory"), &format!("failing {failing}"));
        }
    }
}
