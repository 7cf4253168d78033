//! Images made by `mke2fs`, filled from a folder and by `debugfs`, read back and compared.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ext4::{Error, FileSystem, Inode, Kind};
use image::{Image, Random};

/// Option sets: the names say what is special.
const OPTIONS: [(&str, &[&str]); 8] = [
    ("default", &["-t", "ext4"]),
    ("1k blocks", &["-t", "ext4", "-b", "1024"]),
    ("ext3", &["-t", "ext3"]),
    ("ext2", &["-t", "ext2", "-b", "1024"]),
    ("group checksums", &["-t", "ext4", "-O", "^metadata_csum,uninit_bg,^64bit"]),
    ("small inodes", &["-t", "ext4", "-I", "128"]),
    ("meta groups", &["-t", "ext4", "-O", "meta_bg,^resize_inode"]),
    ("checksum seed", &["-t", "ext4", "-O", "metadata_csum_seed,large_dir"]),
];

/// A tree with files of many sizes, holes, links, and a directory large enough for an index.
fn make_tree(root: &Path) {
    let mut random = Random(7);
    for (index, size) in
        [0usize, 1, 59, 60, 1023, 4096, 4097, 50_000, 300_000, 3_000_000].into_iter().enumerate()
    {
        let bytes: Vec<u8> = (0..size).map(|_| random.next() as u8).collect();
        fs::write(root.join(format!("file{index}")), bytes).expect("the folder can be written");
    }
    let mut sparse = vec![0; 2_000_000];
    for at in (0..sparse.len()).step_by(90_000) {
        sparse[at..at + 3000].fill(5);
    }
    sparse.truncate(1_890_000);
    fs::write(root.join("sparse"), sparse).expect("the folder can be written");
    let many = root.join("many");
    fs::create_dir(&many).expect("the folder can be written");
    for index in 0..2500 {
        let name = format!("a rather long name, so that blocks are filled soon ä {index}");
        fs::write(many.join(name), index.to_string()).expect("the folder can be written");
    }
    fs::create_dir_all(root.join("deep/er/still")).expect("the folder can be written");
    for (name, length) in [("short", 5), ("inline", 59), ("block", 60), ("long", 900)] {
        std::os::unix::fs::symlink("x".repeat(length), root.join("deep").join(name)).expect("links");
    }
    fs::hard_link(root.join("file3"), root.join("deep/er/hard")).expect("links");
}

/// Everything below a directory, by path: kind and contents.
fn tree_of(system: &FileSystem) -> BTreeMap<String, (Kind, Vec<u8>)> {
    let mut found = BTreeMap::new();
    walk(system, &system.root().expect("a root"), "", &mut found);
    found
}

fn contents(system: &FileSystem, inode: &Inode) -> Vec<u8> {
    match inode.kind {
        Kind::Regular => {
            let mut bytes = vec![0xee; inode.size as usize];
            assert_eq!(system.read(inode, 0, &mut bytes), Ok(bytes.len()));
            bytes
        }
        Kind::Link => system.link_target(inode).expect("a target"),
        _ => Vec::new(),
    }
}

fn walk(system: &FileSystem, directory: &Inode, path: &str, found: &mut BTreeMap<String, (Kind, Vec<u8>)>) {
    let mut entries = Vec::new();
    system
        .list(directory, 0, |entry, _| {
            entries.push((entry.name.to_vec(), entry.inode, entry.kind));
            true
        })
        .expect("a sound directory");
    for (name, number, kind) in entries {
        if matches!(name.as_slice(), b"." | b".." | b"lost+found") {
            continue;
        }
        let inode = system.lookup(directory, &name).expect("a listed name is found");
        assert_eq!(inode.number, number);
        assert!(kind.is_none_or(|kind| kind == inode.kind));
        let path = format!("{path}/{}", String::from_utf8_lossy(&name));
        found.insert(path.clone(), (inode.kind, contents(system, &inode)));
        if inode.kind == Kind::Directory {
            walk(system, &inode, &path, found);
        }
    }
    assert_eq!(system.lookup(directory, b"no such name").err(), Some(Error::NotFound));
}

fn tree_on_host(root: &Path, path: &str, found: &mut BTreeMap<String, (Kind, Vec<u8>)>) {
    for entry in fs::read_dir(root).expect("the folder") {
        let entry = entry.expect("the folder");
        let path = format!("{path}/{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type().expect("the folder");
        if kind.is_dir() {
            found.insert(path.clone(), (Kind::Directory, Vec::new()));
            tree_on_host(&entry.path(), &path, found);
        } else if kind.is_symlink() {
            let target = fs::read_link(entry.path()).expect("a link").into_os_string().into_encoded_bytes();
            found.insert(path, (Kind::Link, target));
        } else {
            found.insert(path, (Kind::Regular, fs::read(entry.path()).expect("a file")));
        }
    }
}

#[test]
fn everything_in_an_image_is_read_as_it_was_put_there() {
    let folder = image::scratch("tree");
    make_tree(&folder);
    let mut expected = BTreeMap::new();
    tree_on_host(&folder, "", &mut expected);
    for (name, options) in OPTIONS {
        let image = Image::make(options, 24 << 20, Some(&folder));
        // mke2fs -d does not make indexes; e2fsck -D does.
        image.optimise_directories();
        let system = FileSystem::mount(&image.volume()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(system.read_only_because(), None, "{name}");
        let found = tree_of(&system);
        assert!(found.keys().eq(expected.keys()), "{name}: other names");
        for (path, file) in &expected {
            assert!(found[path] == *file, "{name}: {path} differs");
        }
    }
    fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn names_are_hashed_by_all_functions_as_debugfs_does() {
    for hash in ["legacy", "half_md4", "tea"] {
        let folder = image::scratch("hash");
        for index in 0..1500 {
            let name = format!("näme {index} {}", "y".repeat(index % 90));
            fs::write(folder.join(name), "").expect("the folder can be written");
        }
        let hash_option = format!("hash_alg={hash}");
        let options = ["-t", "ext4", "-b", "1024", "-N", "4000", "-E", "root_owner=0:0"];
        let image = Image::make(&options, 16 << 20, Some(&folder));
        image.run("tune2fs", &["-E", &hash_option]);
        image.optimise_directories();
        let system = FileSystem::mount(&image.volume()).expect("a sound image");
        // Looking up each listed name compares the index with the entries: a wrong hash ends in ENOENT.
        assert_eq!(tree_of(&system).len(), 1500, "{hash}");
        fs::remove_dir_all(folder).expect("it is ours");
    }
}

#[test]
fn extended_attributes_are_found_in_inodes_and_blocks() {
    let image = Image::make(&["-t", "ext4"], 8 << 20, None);
    let long = "v".repeat(900);
    image.debugfs(&[
        "write /dev/null file".into(),
        "ea_set file user.short hello".into(),
        format!("ea_set file user.long {long}"),
        "ea_set file security.capability abc".into(),
    ]);
    let system = FileSystem::mount(&image.volume()).expect("a sound image");
    let file = system.lookup(&system.root().unwrap(), b"file").expect("it was made");
    let mut names = Vec::new();
    let add = |name: &[u8]| {
        names.push(String::from_utf8_lossy(name).into_owned());
        Ok(())
    };
    system.for_each_attribute(&file, add).unwrap();
    names.sort();
    assert_eq!(names, ["security.capability", "user.long", "user.short"]);
    let mut buffer = [0; 1000];
    assert_eq!(system.attribute(&file, b"user.short", &mut buffer), Ok(5));
    assert_eq!(&buffer[..5], b"hello");
    assert_eq!(system.attribute(&file, b"user.long", &mut []), Ok(900));
    assert_eq!(system.attribute(&file, b"user.long", &mut buffer[..10]), Err(Error::Range));
    assert_eq!(system.attribute(&file, b"user.none", &mut buffer), Err(Error::NotFound));
}

#[test]
fn statfs_agrees_with_dumpe2fs() {
    let image = Image::make(&["-t", "ext4"], 64 << 20, None);
    let status = FileSystem::mount(&image.volume()).expect("a sound image").status();
    let shown = image.run("dumpe2fs", &["-h"]);
    let number = |key: &str| -> u64 {
        let line = shown.lines().find(|line| line.starts_with(key)).expect("dumpe2fs shows it");
        line.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a number")
    };
    assert_eq!(status.blocks_free, number("Free blocks:"));
    assert_eq!(status.blocks_available, status.blocks_free - number("Reserved block count:"));
    // The journal counts as overhead.
    assert_eq!(status.blocks, number("Block count:") - number("Overhead clusters:"));
    assert_eq!((status.inodes, status.inodes_free), (number("Inode count:"), number("Free inodes:")));
}

#[test]
fn unknown_features_are_refused_or_make_it_read_only() {
    let refused = Image::make(&["-t", "ext4", "-O", "casefold"], 8 << 20, None);
    let error = FileSystem::mount(&refused.volume()).err().expect("it is refused");
    assert!(error.to_string().contains("casefold"), "{error}");
    let read_only = Image::make(&["-t", "ext4", "-O", "bigalloc"], 64 << 20, None);
    let system = FileSystem::mount(&read_only.volume()).expect("it can be read");
    assert_eq!(system.read_only_because(), Some("bigalloc"));
    let garbage = image::volume_of(vec![7; 1 << 20]);
    assert_eq!(FileSystem::mount(&garbage).err(), Some(Error::NotExt));
}

/// What `debugfs` wrote into the journal is there after the mount, and `e2fsck` comes to the same.
#[test]
fn the_journal_is_replayed_with_its_revokes() {
    for options in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^metadata_csum,^64bit"], &["-t", "ext3"]] {
        let folder = image::scratch("journal");
        let block: Vec<u8> = (0..4096u32).map(|at| (at * 7) as u8).collect();
        let mut escaped = block.clone();
        escaped[..4].copy_from_slice(&0xc03b_3998u32.to_be_bytes());
        fs::write(folder.join("block"), &block).expect("the folder can be written");
        fs::write(folder.join("escaped"), &escaped).expect("the folder can be written");
        let image = Image::make(&[options, &["-b", "4096"]].concat(), 32 << 20, None);
        let path = |name: &str| folder.join(name).display().to_string();
        image.debugfs(&[
            "journal_open".into(),
            format!("journal_write -b 7000 {}", path("escaped")),
            format!("journal_write -b 7001 {}", path("block")),
            format!("journal_write -b 7002 {}", path("block")),
            "journal_write -r 7001".into(),
            format!("journal_write -b 7003 {}", path("block")),
            "journal_close".into(),
        ]);
        let before = image.volume();
        let system = FileSystem::mount(&before).expect("a sound image");
        assert_eq!(system.transactions_replayed(), 5, "{options:?}");
        let mut replayed = image.bytes();
        system.for_each_replayed(|number, bytes| {
            replayed[number as usize * 4096..][..4096].copy_from_slice(bytes)
        });
        image.run_unchecked("e2fsck", &["-fy"]);
        let checked = image.bytes();
        for number in 7000..7004 {
            let range = number * 4096..(number + 1) * 4096;
            assert!(
                replayed[range.clone()] == checked[range],
                "{options:?}: block {number} differs from e2fsck's"
            );
        }
        assert!(replayed[7000 * 4096..7001 * 4096] == escaped);
        assert!(replayed[7001 * 4096..7002 * 4096] != block, "a revoked block is not replayed");
        fs::remove_dir_all(folder).expect("it is ours");
    }
}

/// Whatever is written over an image: errors, never a panic, never an end that does not come.
#[test]
fn mutated_images_do_no_harm() {
    let folder = image::scratch("mutations");
    make_small_tree(&folder);
    for options in [
        &["-t", "ext4", "-b", "1024", "-N", "128", "-O", "^has_journal"][..],
        &["-t", "ext2", "-b", "1024", "-N", "128"],
    ] {
        // Without checksums the mutations get deeper.
        for extra in [&[][..], &["-O", "^metadata_csum"]] {
            if !extra.is_empty() && options[1] == "ext2" {
                continue;
            }
            let image = Image::make(&[options, extra].concat(), 2 << 20, Some(&folder));
            image.optimise_directories();
            mutate(image.bytes(), 300);
        }
    }
    fs::remove_dir_all(folder).expect("it is ours");
}

fn make_small_tree(root: &Path) {
    fs::create_dir(root.join("d")).expect("the folder can be written");
    for index in 0..60 {
        fs::write(root.join("d").join(format!("{} {index}", "n".repeat(40))), vec![1; index * 50])
            .expect("files");
    }
    fs::write(root.join("large"), vec![3; 400_000]).expect("files");
    std::os::unix::fs::symlink("t".repeat(200), root.join("link")).expect("links");
}

fn mutate(sound: Vec<u8>, count: u64) {
    // Only where structures are: blocks that are not empty, and the superblock more often than the rest.
    let used: Vec<usize> =
        (0..sound.len() / 1024).filter(|at| sound[at * 1024..][..1024] != [0; 1024]).collect();
    let disk = image::disk_of(&sound);
    for seed in 1..=count {
        let mut random = Random(seed);
        let mut changed = Vec::new();
        for _ in 0..1 + random.below(4) {
            let block = if random.below(6) == 0 { 1 } else { used[random.below(used.len())] };
            let at = block * 1024 + random.below(1024);
            changed.push(block);
            let mut bytes = [0; 512];
            disk.read_at((at / 512) as u64, &mut bytes);
            bytes[at % 512] = [0, 1, 0x7f, 0x80, 0xff, random.next() as u8][random.below(6)];
            disk.write_at((at / 512) as u64, &bytes).expect("there is memory");
        }
        if let Ok(system) = FileSystem::mount(&image::volume_on(disk.clone())) {
            explore(&system);
        }
        for block in changed {
            disk.write_at(block as u64 * 2, &sound[block * 1024..][..1024]).expect("there is memory");
        }
    }
}

/// Everything that can be asked, of every inode and name that can be reached, within bounds.
fn explore(system: &FileSystem) {
    system.status();
    let mut buffer = vec![0; 5000];
    for number in [1, 2, 7, 8, 11, 12, 13, 14, 30, 72, 73, 74, 75, 76] {
        let Ok(inode) = system.inode(number) else { continue };
        drop(system.link_target(&inode));
        drop(system.for_each_attribute(&inode, |_| Ok(())));
        drop(system.attribute(&inode, b"user.x", &mut buffer));
        for offset in [0, 11 * 1024, 268 * 1024, 70_000 * 1024, u64::from(u32::MAX) * 1024, inode.size / 2] {
            drop(system.read(&inode, offset, &mut buffer));
        }
        let mut names = Vec::new();
        drop(system.list(&inode, 0, |entry, _| {
            names.push(entry.name.to_vec());
            names.len() < 100
        }));
        for name in names.iter().take(20) {
            drop(system.lookup(&inode, name));
        }
    }
}
