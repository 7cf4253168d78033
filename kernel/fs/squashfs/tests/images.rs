//! Images of Debian's `mksquashfs`, read back and damaged.
//!
//! Needs the package `squashfs-tools` (`apt-get install squashfs-tools`); `./starling test` installs it.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use block::{Queue, RamDisk, Volume};
use squashfs::{Error, FileMap, FileSystem, Inode, Kind};

/// Bytes that a walk reads at most: a damaged size may say anything.
const READ_MAX: u64 = 4 << 20;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("starling-squashfs-{}-{number}", std::process::id()));
        fs::create_dir(&path).expect("temporary files can be made");
        fs::create_dir(path.join("tree")).expect("temporary files can be made");
        Self(path)
    }

    fn tree(&self) -> PathBuf {
        self.0.join("tree")
    }

    /// Makes an image of the tree.
    fn image(&self, options: &[&str]) -> Vec<u8> {
        let image = self.0.join("image");
        drop(fs::remove_file(&image));
        let made = Command::new("mksquashfs")
            .arg(self.tree())
            .arg(&image)
            .args(["-noappend", "-no-progress", "-quiet"])
            .args(options)
            // It would change times of files.
            .env_remove("SOURCE_DATE_EPOCH")
            .output()
            .expect("squashfs-tools is installed (apt-get install squashfs-tools)");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        fs::read(&image).expect("it was made")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn mount(image: &[u8]) -> squashfs::Result<FileSystem> {
    sched::current();
    let disk = Arc::new(RamDisk::from_bytes(image).expect("there is memory"));
    FileSystem::mount(&Volume::whole(Queue::new(disk).expect("a sound device")))
}

/// Bytes that look random, but are the same each time.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(step).collect()
}

/// The compressions that are known.
const COMPRESSIONS: [&str; 4] = ["gzip", "lz4", "xz", "zstd"];

/// Files of all kinds and of sizes about those of blocks.
fn fill(tree: &Path) {
    for (number, size) in [0, 1, 511, 4095, 4096, 4097, 131_071, 131_072, 131_073, 700_000].iter().enumerate()
    {
        fs::write(tree.join(format!("noise{size}")), noise(*size, number as u64)).unwrap();
        fs::write(tree.join(format!("text{size}")), b"squash ".repeat(size / 7 + 1)).unwrap();
    }
    let hole = fs::File::create(tree.join("hole")).unwrap();
    hole.set_len(3_000_000).unwrap();
    std::os::unix::fs::FileExt::write_at(&hole, b"in the middle", 1_500_000).unwrap();
    fs::create_dir_all(tree.join("a/b/c")).unwrap();
    fs::write(tree.join("a/b/c/deep"), b"deep").unwrap();
    symlink("a/b/c/deep", tree.join("link")).unwrap();
    fs::hard_link(tree.join("a/b/c/deep"), tree.join("a/second")).unwrap();
    let many = tree.join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..700 {
        fs::write(many.join(format!("a file with quite a long name, number {number}")), number.to_string())
            .unwrap();
    }
    assert!(Command::new("mkfifo").arg(tree.join("fifo")).status().unwrap().success());
}

fn names(system: &FileSystem, directory: &Inode) -> Vec<String> {
    let mut names = Vec::new();
    system
        .list(directory, 0, |entry| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            true
        })
        .unwrap();
    names
}

fn contents(system: &FileSystem, file: &Inode) -> Vec<u8> {
    let mut bytes = vec![1; file.size as usize];
    assert_eq!(system.read(file, &FileMap::default(), 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn compare(system: &FileSystem, inode: &Inode, path: &Path) {
    let about = fs::symlink_metadata(path).unwrap();
    let shown = path.display();
    assert_eq!(u32::from(inode.mode), about.mode() & 0o7777, "{shown}");
    assert_eq!((inode.user, inode.group), (about.uid(), about.gid()), "{shown}");
    assert_eq!(i64::from(inode.modified), about.mtime(), "{shown}");
    match inode.kind {
        Kind::Directory => {
            let mut there: Vec<String> = fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            there.sort();
            assert_eq!(names(system, inode), there, "{shown}");
            for name in there {
                let child = system.lookup(inode, name.as_bytes()).unwrap();
                compare(system, &child, &path.join(name));
            }
            for absent in ["", "zzz", "a file", "~"] {
                let found = system.lookup(inode, absent.as_bytes()).map(|_| ());
                assert_eq!(found, Err(Error::NotFound), "{shown}/{absent}");
            }
        }
        Kind::Regular => {
            assert_eq!(u64::from(inode.links), about.nlink(), "{shown}");
            assert!(contents(system, inode) == fs::read(path).unwrap(), "{shown}");
        }
        Kind::Link => {
            let target = fs::read_link(path).unwrap();
            assert_eq!(system.link_target(inode).unwrap(), target.into_os_string().into_encoded_bytes());
        }
        _ => {}
    }
}

#[test]
fn images_are_read_as_they_were_made() {
    let folder = Folder::new();
    fill(&folder.tree());
    let options: [&[&str]; 17] = [
        &["-b", "4096"],
        &["-b", "1M"],
        &["-no-fragments"],
        &["-always-use-fragments", "-no-exports"],
        &["-noI", "-noD", "-noF"],
        &["-Xcompression-level", "1", "-no-sparse"],
        &["-comp", "lz4"],
        &["-comp", "lz4", "-Xhc", "-b", "4096"],
        &["-comp", "lz4", "-b", "1M", "-no-fragments"],
        &["-comp", "xz"],
        &["-comp", "xz", "-b", "4096"],
        &["-comp", "xz", "-b", "1M"],
        &["-comp", "xz", "-Xbcj", "x86", "-Xdict-size", "50%"],
        &["-comp", "zstd"],
        &["-comp", "zstd", "-b", "4096"],
        &["-comp", "zstd", "-b", "1M"],
        &["-comp", "zstd", "-Xcompression-level", "1", "-no-fragments"],
    ];
    for options in options {
        let system = mount(&folder.image(options)).unwrap();
        compare(&system, &system.root().unwrap(), &folder.tree());
    }
}

#[test]
fn lists_go_on_where_they_stopped() {
    let folder = Folder::new();
    fill(&folder.tree());
    let system = mount(&folder.image(&[])).unwrap();
    let many = system.lookup(&system.root().unwrap(), b"many").unwrap();
    let (mut found, mut position) = (Vec::new(), 0);
    loop {
        let before = found.len();
        let mut left = 7;
        system
            .list(&many, position, |entry| {
                left -= 1;
                if left > 0 {
                    found.push(String::from_utf8(entry.name.to_vec()).unwrap());
                    position = entry.next;
                }
                left > 0
            })
            .unwrap();
        if found.len() == before {
            break;
        }
    }
    assert_eq!(found, names(&system, &many));
}

#[test]
fn extended_attributes_are_found() {
    let folder = Folder::new();
    let file = folder.tree().join("file");
    fs::write(&file, b"").unwrap();
    fs::write(folder.tree().join("same"), b"").unwrap();
    let options = ["-xattrs"];
    let large = "value ".repeat(100);
    let attributes = [("user.small", "x"), ("user.large", &*large)];
    for path in [&file, &folder.tree().join("same")] {
        for (name, value) in attributes {
            rustix::fs::setxattr(path, name, value.as_bytes(), rustix::fs::XattrFlags::empty())
                .expect("the folder of the build keeps attributes");
        }
    }
    let system = mount(&folder.image(&options)).unwrap();
    for name in [&b"file"[..], b"same"] {
        let inode = system.lookup(&system.root().unwrap(), name).unwrap();
        let mut found = Vec::new();
        system
            .for_each_attribute(&inode, |name| {
                found.push(String::from_utf8(name.to_vec()).unwrap());
                Ok(())
            })
            .unwrap();
        found.sort();
        assert_eq!(found, ["user.large", "user.small"]);
        for (name, value) in attributes {
            let mut buffer = vec![0; 1000];
            let length = system.attribute(&inode, name.as_bytes(), &mut buffer).unwrap();
            assert_eq!(&buffer[..length], value.as_bytes());
        }
        assert_eq!(system.attribute(&inode, b"user.large", &mut [0; 10]), Err(Error::Range));
        assert_eq!(system.attribute(&inode, b"user.none", &mut []), Err(Error::NotFound));
    }
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let folder = Folder::new();
    fs::write(folder.tree().join("file"), noise(10_000, 3)).unwrap();
    for (name, number) in [("lzo", 3), ("lzma", 2)] {
        let error = mount(&folder.image(&["-comp", name])).err().unwrap();
        assert_eq!(error.to_string(), format!("the compression {name} ({number}) is not supported"));
    }
    let mut image = folder.image(&[]);
    assert_eq!(
        mount(&image[..512]).err().unwrap(),
        Error::Corrupted("the size of the image", u64::from_le_bytes(image[40..48].try_into().unwrap()))
    );
    image[28] = 3;
    assert_eq!(mount(&image).err().unwrap().to_string(), "the version of the format (3) is not supported");
    image[0] = 0;
    assert_eq!(mount(&image).err().unwrap(), Error::NotSquash);
}

/// Looks at everything, as far as a bound allows.
fn explore(system: &FileSystem, inode: &Inode, depth: u32, steps: &mut u32) {
    *steps = steps.saturating_sub(1);
    if *steps == 0 {
        return;
    }
    drop(
        system.for_each_attribute(inode, |name| {
            system.attribute(inode, name, &mut [0; 64]).map(drop).or(Ok(()))
        }),
    );
    match inode.kind {
        Kind::Directory => {
            let mut below = Vec::new();
            let _ = system.list(inode, 0, |entry| {
                below.push((entry.name.to_vec(), entry.reference));
                below.len() < 100
            });
            let _ = system.lookup(inode, b"many").map(drop);
            for (name, reference) in below {
                let _ = system.lookup(inode, &name).map(drop);
                if let Ok(child) = system.inode(reference)
                    && depth > 0
                {
                    explore(system, &child, depth - 1, steps);
                }
            }
        }
        Kind::Regular => {
            let map = FileMap::default();
            let mut bytes = vec![0; inode.size.min(READ_MAX) as usize];
            let _ = system.read(inode, &map, 0, &mut bytes).map(drop);
            let _ = system
                .read(inode, &map, inode.size / 2, &mut bytes[..100.min(inode.size as usize)])
                .map(drop);
        }
        Kind::Link => drop(system.link_target(inode)),
        _ => {}
    }
}

fn explore_damaged(compression: &str, count: u64, seed: u64) {
    let folder = Folder::new();
    let tree = folder.tree();
    fs::write(tree.join("noise"), noise(300_000, 1)).unwrap();
    fs::write(tree.join("text"), b"squash ".repeat(30_000)).unwrap();
    fs::create_dir_all(tree.join("a/b")).unwrap();
    symlink("text", tree.join("a/link")).unwrap();
    fs::create_dir(tree.join("many")).unwrap();
    for number in 0..600 {
        fs::write(tree.join(format!("many/a name of some length {number}")), number.to_string()).unwrap();
    }
    // Plain metadata: what is damaged is looked at, and not just refused by the decompressor.
    let images = [folder.image(&["-comp", compression, "-noI"]), folder.image(&["-comp", compression])];
    for number in 0..count {
        let image = &images[usize::from(number % 4 == 3)];
        let mut damaged = image.clone();
        let random = noise(128, seed + number * 2 + 1);
        let mut at = 0;
        let mut next = |limit: usize| {
            at += 4;
            u32::from_le_bytes(random[at - 4..at].try_into().unwrap()) as usize % limit
        };
        for _ in 0..=next(4) {
            // Metadata is behind the data; the superblock is in front.
            let place = match next(3) {
                0 => next(96),
                _ => image.len() - 1 - next(image.len().min(60_000)),
            };
            damaged[place] = [0, 0xff, 0x80, next(256) as u8][next(4)];
        }
        if let Ok(system) = mount(&damaged)
            && let Ok(root) = system.root()
        {
            explore(&system, &root, 4, &mut 300);
        }
    }
}

#[test]
fn damaged_images_are_explored_without_harm() {
    for compression in COMPRESSIONS {
        explore_damaged(compression, 60, 7);
    }
}

/// Bytes of what is compressed are damaged, so that the decompressors meet what no compressor makes.
fn read_damaged_blocks(compression: &str, count: u64, seed: u64) {
    let folder = Folder::new();
    let tree = folder.tree();
    // Matches near and far, and literals that no dictionary has.
    let mut bytes = noise(40_000, 5);
    bytes.extend(b"squash ".repeat(9_000));
    bytes.extend_from_within(10_000..60_000);
    bytes.extend(noise(150_000, 9).iter().map(|byte| byte % 17));
    fs::write(tree.join("file"), &bytes).unwrap();
    let image = folder.image(&["-comp", compression, "-noI", "-no-fragments"]);
    let data = 96..image.len() - 500;
    for number in 0..count {
        let mut damaged = image.clone();
        let random = noise(64, seed + number * 2 + 1);
        for change in random.chunks_exact(8).take(1 + number as usize % 8) {
            let place = u32::from_le_bytes([change[0], change[1], change[2], change[3]]) as usize;
            // Headers are at the beginnings of blocks, most of all of the first one.
            let place = if change[5] < 100 { place % 64 } else { place % data.len() };
            damaged[data.start + place] =
                [change[4], 0, 0xff, damaged[data.start + place] ^ 1 << (change[4] % 8)]
                    [usize::from(change[6] % 4)];
        }
        let Ok(system) = mount(&damaged) else { continue };
        let file = system.root().and_then(|root| system.lookup(&root, b"file"));
        if let Ok(file) = file {
            let mut read = vec![0; bytes.len()];
            for block in 0..bytes.len().div_ceil(131_072) {
                let at = block * 131_072;
                let _ = system.read(&file, &FileMap::default(), at as u64, &mut read[at..]).map(drop);
            }
        }
    }
}

#[test]
fn damaged_blocks_are_read_without_harm() {
    for compression in COMPRESSIONS {
        read_damaged_blocks(compression, 100, 99);
    }
}

#[test]
#[ignore = "takes minutes: a step of ./starling test --long"]
fn many_damaged_images_are_explored_without_harm() {
    for compression in COMPRESSIONS {
        explore_damaged(compression, 5_000, 1000);
        read_damaged_blocks(compression, 5_000, 5000);
    }
}
