//! Damaged images, written to: errors, never a panic, never an end that does not come.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;
mod model;

use std::fs;
use std::path::Path;

use ext4::{Move, SetAttribute, Time, Writer};
use image::{Image, Random};
use model::{Model, ROOT};

const OPTIONS: [&[&str]; 4] = [
    &["-t", "ext4", "-b", "1024", "-N", "128", "-O", "^has_journal"],
    // Without checksums the mutations get deeper.
    &["-t", "ext4", "-b", "1024", "-N", "128", "-O", "^has_journal,^metadata_csum"],
    &["-t", "ext4", "-b", "1024", "-N", "128", "-O", "^metadata_csum", "-J", "size=1"],
    &["-t", "ext2", "-b", "1024", "-N", "128"],
];

fn make_tree(root: &Path) {
    fs::create_dir(root.join("d")).expect("the folder can be written");
    for index in 0..60 {
        let name = format!("{} {index}", "n".repeat(40));
        fs::write(root.join("d").join(name), vec![1; index * 50]).expect("files");
    }
    fs::write(root.join("large"), vec![3; 400_000]).expect("files");
    let sparse: Vec<u8> = (0..200_000).map(|at| u8::from(at / 1024 % 2 == 0)).collect();
    fs::write(root.join("sparse"), sparse).expect("files");
    std::os::unix::fs::symlink("t".repeat(200), root.join("link")).expect("links");
}

/// Names of a directory, as far as it can be read.
fn names(writer: &Writer, number: u32) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    if let Ok(directory) = writer.system().inode(number) {
        drop(writer.system().list(&directory, 0, |entry, _| {
            names.push(entry.name.to_vec());
            names.len() < 100
        }));
    }
    names
}

/// Changes what is there in all ways, and what is made new.
fn disturb(writer: &Writer, random: &mut Random) {
    let now = Time { seconds: 5, nanoseconds: 5 };
    let data = vec![9; 5000];
    let numbers = [1, 2, 7, 8, 11, 12, 13, 14, 30, 60, 72, 73, 74, 75, 76];
    for _ in 0..12 {
        let number = numbers[random.below(numbers.len())];
        let offset = [0, 3000, 60_000, 399_000, 1 << 32, 1 << 43][random.below(6)];
        drop(writer.write(number, offset, &data[..1 + random.below(4999)], true, now));
        drop(writer.punch(number, offset / 2, 70_000, now));
        drop(writer.allocate(number, offset, 9000, false, true, now));
        drop(writer.set_size(number, offset, now));
        drop(writer.set_attribute(number, b"user.x", &data[..random.below(900)], SetAttribute::Any, now));
        drop(writer.remove_attribute(number, b"user.x", now));
    }
    let mut model = Model::default();
    for _ in 0..20 {
        drop(model.step(writer, random));
    }
    for directory in [ROOT, 11, 12, 13] {
        for name in names(writer, directory).iter().take(8) {
            let what = Move {
                from: directory,
                old: name,
                to: [ROOT, 12][random.below(2)],
                new: b"moved",
                exchange: random.below(2) == 0,
                keep_existing: false,
            };
            drop(writer.rename(&what, now));
            let gone = writer.unlink(directory, name, now);
            let gone = gone.or_else(|_| writer.remove_directory(directory, name, now));
            if let Ok(gone) = gone {
                drop(writer.delete(gone.number, now));
            }
        }
    }
    drop(writer.commit());
}

fn mutate(count: u64) {
    let folder = image::scratch("mutations");
    make_tree(&folder);
    for options in OPTIONS {
        let image = Image::make(options, 3 << 20, Some(&folder));
        image.optimise_directories();
        let sound = image.bytes();
        let used: Vec<usize> =
            (0..sound.len() / 1024).filter(|at| sound[at * 1024..][..1024] != [0; 1024]).collect();
        for seed in 1..=count {
            let mut random = Random(seed);
            let mut bytes = sound.clone();
            for _ in 0..1 + random.below(4) {
                let block = match random.below(6) {
                    0 => 1,
                    // Descriptors, bitmaps and inodes.
                    1 | 2 => 2 + random.below(40),
                    _ => used[random.below(used.len())],
                };
                let value = [0, 1, 0x7f, 0x80, 0xff, random.next() as u8][random.below(6)];
                bytes[block * 1024 + random.below(1024)] = value;
            }
            if let Ok(writer) = Writer::mount(&image::volume_of(bytes), b"/", Time::default()) {
                disturb(&writer, &mut random);
                drop(writer.unmount());
            }
        }
    }
    fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn damaged_images_can_be_written_to_without_a_panic() {
    mutate(100);
}

#[test]
#[ignore = "takes many minutes: a step of ./starling test --long"]
fn twenty_thousand_damaged_images_can_be_written_to_without_a_panic() {
    mutate(5000);
}
