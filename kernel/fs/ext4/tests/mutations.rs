//! Damaged images, written to: errors, never a panic, never an end that does not come, never a look behind the image's end.
//!
//! Some damage is told by checksums; where it is [sealed](seal) it is not, and what is behind the checks has to bear it.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;
mod model;
mod seal;
mod world;

use std::fs;
use std::path::Path;

use ext4::{Error, Move, SetAttribute, Time, Writer};
use image::{Image, Random};
use model::{Model, ROOT};
use seal::{Kind, Seals};
use vfs::FileKind;
use vfs::flags::{AllocateMode, LookupFlags, OpenFlags, RenameFlags};
use vfs::inode::DirectorySink;
use world::{Device, ONE_AT_A_TIME, World};

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

/// Whatever comes of it, the disk does all it is asked for: only what lies behind its end is refused.
fn bear<T>(outcome: Result<T, Error>) {
    if let Err(error @ Error::Device(_)) = outcome {
        panic!("a look behind the image's end: {error}");
    }
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
        bear(writer.write(number, offset, &data[..1 + random.below(4999)], true, now));
        bear(writer.punch(number, offset / 2, 70_000, now));
        bear(writer.allocate(number, offset, 9000, false, true, now));
        bear(writer.set_size(number, offset, now));
        bear(writer.set_attribute(
            number,
            b"user.x",
            &data[..random.below(900)],
            SetAttribute::Any,
            true,
            now,
        ));
        bear(writer.remove_attribute(number, b"user.x", now));
    }
    let mut model = Model::default();
    for _ in 0..20 {
        bear(model.step(writer, random));
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
                whiteout: None,
                privileged: true,
            };
            bear(writer.rename(&what, now));
            let gone = writer.unlink(directory, name, now);
            let gone = gone.or_else(|_| writer.remove_directory(directory, name, now));
            if let Ok(gone) = gone {
                bear(writer.delete(gone.number, now));
            }
        }
    }
    bear(writer.commit());
}

fn mount_and_disturb(bytes: Vec<u8>, random: &mut Random) {
    match Writer::mount(&image::volume_of(bytes), b"/", Time::default()) {
        Ok(writer) => {
            disturb(&writer, random);
            bear(writer.unmount());
        }
        Err(error) => bear(Err::<(), _>(error)),
    }
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
            mount_and_disturb(bytes, &mut random);
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

/// Images whose every kind of metadata can be damaged; each fills one group.
const SEALED: [&[&str]; 4] = [
    &["-t", "ext4", "-b", "1024", "-N", "128", "-J", "size=1"],
    &["-t", "ext4", "-b", "1024", "-N", "128", "-O", "^has_journal"],
    &["-t", "ext4", "-b", "1024", "-N", "128", "-I", "128", "-O", "^64bit", "-J", "size=1"],
    &["-t", "ext4", "-b", "1024", "-N", "128", "-O", "^metadata_csum", "-J", "size=1"],
];

/// An image with files of many extents, attributes in inodes and blocks, and a journal that holds what is not written home.
fn crashed(options: &[&str], folder: &Path) -> Vec<u8> {
    let image = Image::make(options, 3 << 20, Some(folder));
    image.optimise_directories();
    let disk = image::disk_of(&image.bytes());
    let now = Time { seconds: 5, nanoseconds: 5 };
    let writer = Writer::mount(&image::volume_on(disk.clone()), b"/", now).expect("a sound image");
    let number = |name: &[u8]| {
        let system = writer.system();
        system.lookup(&system.root().expect("a root"), name).expect("it is there").number
    };
    let (large, sparse) = (number(b"large"), number(b"sparse"));
    for hole in 0..30 {
        writer.punch(large, hole * 8192, 3000, now).expect("it is a file");
    }
    writer.set_attribute(large, b"user.small", &[1; 20], SetAttribute::Any, true, now).expect("room");
    writer.set_attribute(sparse, b"user.great", &[2; 700], SetAttribute::Any, true, now).expect("room");
    // At home, and then in the journal.
    writer.unmount().expect("the disk works");
    let writer = Writer::mount(&image::volume_on(disk.clone()), b"/", now).expect("a sound image");
    writer.write(sparse, 1024, &[7; 3000], true, now).expect("room");
    let gone = writer.unlink(ROOT, b"link", now).expect("it is there");
    writer.delete(gone.number, now).expect("nobody has it");
    writer.commit().expect("the disk works");
    writer.set_attribute(sparse, b"user.great", &[3; 700], SetAttribute::Any, true, now).expect("room");
    writer.commit().expect("the disk works");
    image::bytes_of(&disk)
}

fn scratch_tree() -> std::path::PathBuf {
    let folder = image::scratch("sealed");
    make_tree(&folder);
    folder
}

#[test]
fn what_is_sealed_anew_is_what_it_was() {
    let folder = scratch_tree();
    for options in SEALED {
        let sound = crashed(options, &folder);
        let seals = Seals::of(&sound);
        let mut sealed = sound.clone();
        seals.seal_all(&mut sealed);
        let differs: Vec<usize> = (0..sound.len()).filter(|&at| sound[at] != sealed[at]).collect();
        assert!(differs.is_empty(), "{options:?}: {differs:x?}");
        let journal = options.iter().all(|option| !option.contains("has_journal"));
        for (kind, there) in [
            (seals.has(|kind| matches!(kind, Kind::Extents(_))), true),
            (seals.has(|kind| matches!(kind, Kind::Leaf(_))), true),
            (seals.has(|kind| matches!(kind, Kind::Index(..))), true),
            (seals.has(|kind| kind == Kind::Attributes), true),
            (seals.has(|kind| kind == Kind::JournalCommit), journal),
        ] {
            assert_eq!(kind, there, "{options:?}: {:?}", seals.pieces);
        }
    }
    fs::remove_dir_all(folder).expect("it is ours");
}

/// Takes names as long as there is room.
#[derive(Default)]
struct Names(Vec<Vec<u8>>);

impl DirectorySink for Names {
    fn entry(&mut self, name: &[u8], _inode: u64, _kind: FileKind, _next: u64) -> bool {
        self.0.push(name.to_vec());
        self.0.len() < 80
    }
}

/// The names below a directory.
fn walk(world: &World, path: &[u8], depth: u32, found: &mut Vec<Vec<u8>>) {
    let Ok(place) = world.context().walk(&world.places.root, path, LookupFlags::empty()) else { return };
    let Ok(inode) = place.inode() else { return };
    if inode.kind != FileKind::Directory || depth == 0 {
        return;
    }
    let mut names = Names::default();
    {
        let _shared = inode.lock().read();
        let _ = inode.operations().read_directory(inode, vfs::inode::FIRST_POSITION, &mut names);
    }
    for name in names.0 {
        let below = [path, b"/", &name].concat();
        if found.len() < 200 && below.len() < 2000 {
            found.push(below.clone());
            walk(world, &below, depth - 1, found);
        }
    }
}

/// What programs do, with the names that they find.
fn use_files(world: &World, random: &mut Random) {
    let (context, root) = (world.context(), &world.places.root);
    let mut paths = Vec::new();
    walk(world, b"", 4, &mut paths);
    paths.push(b"/large".to_vec());
    for _ in 0..60 {
        let path = &paths[random.below(paths.len())];
        let other = match random.below(3) {
            0 => paths[random.below(paths.len())].clone(),
            _ => [&paths[random.below(paths.len())][..], b"x"].concat(),
        };
        let offset = [0, 3000, 60_000, 399_000][random.below(4)];
        match random.below(9) {
            0 => drop(context.rename(root, path, root, &other, RenameFlags::empty())),
            1 => drop(context.rename(root, path, root, &other, RenameFlags::EXCHANGE)),
            2 => drop(context.unlink(root, path)),
            3 => drop(context.remove_directory(root, path)),
            4 => drop(context.make_directory(root, &other, 0o755)),
            5 => drop(context.make_hard_link(root, path, root, &other, LookupFlags::empty())),
            6 => drop(context.truncate(root, path, offset)),
            _ => {
                let flags = OpenFlags::READ_WRITE | OpenFlags::CREATE;
                let Ok(file) = world.open(path, flags) else { continue };
                let mut bytes = vec![0; 9000];
                let _ = file.read_at(offset, &mut memory::buffer::Sink::kernel(&mut bytes));
                let _ = world::write(&file, offset, &bytes);
                let _ = file.allocate(AllocateMode::empty(), offset, 5000);
                if random.below(3) == 0 {
                    let _ = file.sync(false);
                }
            }
        }
    }
}

fn damage_sealed(seeds: impl Iterator<Item = u64> + Clone) {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = scratch_tree();
    for options in SEALED {
        let sound = crashed(options, &folder);
        let seals = Seals::of(&sound);
        let mut mounted = 0;
        for seed in seeds.clone() {
            let mut random = Random(seed);
            let mut bytes = sound.clone();
            for _ in 0..1 + random.below(3) {
                seals.damage(&mut bytes, &mut random);
            }
            if seed % 2 == 0 {
                mount_and_disturb(bytes, &mut random);
            } else {
                let device = Device::new(&bytes);
                if let Ok(world) = device.mount(false) {
                    mounted += 1;
                    use_files(&world, &mut random);
                    world.unmount();
                }
            }
        }
        // What no mount survives tests little.
        assert!(mounted * 4 > seeds.clone().count(), "{options:?}: {mounted} were mounted");
    }
    fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn damage_that_checksums_do_not_tell_is_borne() {
    damage_sealed(1..=60);
}

#[test]
#[ignore = "takes many minutes: a step of ./starling test --long"]
fn twenty_thousand_times_damage_that_checksums_do_not_tell_is_borne() {
    damage_sealed(1..=5000);
}
