//! Random operations on an overlay and on a plain directory with the same contents: both must answer the same, and look the same.
//!
//! Two differences are meant: directories with something below are not renamed, and names of one lower file part when one is written, so the
//! layers have no such names to begin with.

use alloc::string::String;
use alloc::vec::Vec;
use std::format;

use vfs::flags::RenameFlags;
use vfs::{Error, FileKind, Result};

use super::{USUAL, World, entries, turn};

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    /// A path of up to three of few names.
    fn path(&mut self) -> String {
        let mut path = String::new();
        for _ in 0..=self.below(3) {
            path.push('/');
            path.push((b'a' + self.below(4) as u8) as char);
        }
        path
    }
}

/// Something that happens to a tree.
#[derive(Debug)]
enum Step {
    Write(String, u8),
    Append(String, u8),
    Truncate(String, i64),
    Make(String),
    Unlink(String),
    Remove(String),
    Rename(String, String, RenameFlags),
    Link(String, String),
    Symlink(String),
    Fifo(String),
    Mode(String, u32),
    Attribute(String, u8),
}

impl Step {
    fn random(random: &mut Random) -> Self {
        let path = random.path();
        match random.below(16) {
            0 | 1 => Self::Write(path, random.below(200) as u8),
            2 => Self::Append(path, random.below(200) as u8),
            3 => Self::Truncate(path, random.below(300) as i64),
            4 | 5 => Self::Make(path),
            6 => Self::Unlink(path),
            7 => Self::Remove(path),
            8..=10 => {
                let flags = match random.below(4) {
                    0 => RenameFlags::EXCHANGE,
                    1 => RenameFlags::NO_REPLACE,
                    _ => RenameFlags::empty(),
                };
                Self::Rename(path, random.path(), flags)
            }
            11 => Self::Link(path, random.path()),
            12 => Self::Symlink(path),
            13 => Self::Fifo(path),
            14 => Self::Mode(path, random.below(0o1000) as u32 | 0o700),
            _ => Self::Attribute(path, random.below(100) as u8),
        }
    }

    fn run(&self, world: &World, root: &str) -> Result<()> {
        let at = |path: &String| format!("{root}{path}");
        match self {
            Self::Write(path, length) => world.write(&at(path), &[*length; 200][..usize::from(*length)]),
            Self::Append(path, length) => world.append(&at(path), &[*length; 200][..usize::from(*length)]),
            Self::Truncate(path, size) => world.truncate(&at(path), *size),
            Self::Make(path) => world.mkdir(&at(path)),
            Self::Unlink(path) => world.unlink(&at(path)),
            Self::Remove(path) => world.rmdir(&at(path)),
            Self::Rename(old, new, flags) => world.rename(&at(old), &at(new), *flags),
            Self::Link(old, new) => world.link(&at(old), &at(new)),
            Self::Symlink(path) => world.symlink("leads/nowhere", &at(path)),
            Self::Fifo(path) => world.mknod(&at(path), FileKind::Fifo, 0, 0),
            Self::Mode(path, mode) => world.chmod(&at(path), *mode),
            Self::Attribute(path, value) => world.set(&at(path), "user.a", &[*value]),
        }
    }
}

/// All that can be seen of a tree.
fn describe(world: &World, path: &str, out: &mut Vec<String>) {
    let mut names = entries(&world.open(path, vfs::OpenFlags::DIRECTORY).unwrap()).unwrap();
    names.sort_by(|one, two| one.0.cmp(&two.0));
    for (name, kind, _) in names {
        let below = format!("{path}/{name}");
        let status = world.stat(&below).unwrap();
        assert_eq!(status.mode & 0o170000, kind.mode_bits(), "{below}");
        let place = world.walk(&below).unwrap();
        let inode = place.inode().unwrap();
        let attribute = match kind {
            FileKind::Regular | FileKind::Directory => world.get(&below, "user.a").ok(),
            _ => None,
        };
        let contents = match kind {
            FileKind::Regular => world.read(&below).unwrap(),
            FileKind::SymbolicLink => inode.operations().link_text(inode).unwrap().to_vec(),
            _ => Vec::new(),
        };
        let links = if kind == FileKind::Directory { 0 } else { status.links };
        let shown = below.split_once('/').unwrap().1.split_once('/').unwrap().1;
        out.push(format!("{shown} {:o} {links} {attribute:?} {contents:?}", status.mode));
        if kind == FileKind::Directory {
            describe(world, &below, out);
        }
    }
}

fn compare(world: &World, when: &str) {
    let (mut merged, mut plain) = (Vec::new(), Vec::new());
    describe(world, "/m", &mut merged);
    describe(world, "/plain", &mut plain);
    assert_eq!(merged, plain, "{when}");
    assert_eq!(world.list("/w/work").unwrap(), "", "{when}");
}

/// Copies a tree into another: no links to one file.
fn copy(world: &World, from: &str, to: &str) {
    for (name, kind, _) in entries(&world.open(from, vfs::OpenFlags::DIRECTORY).unwrap()).unwrap() {
        let (source, target) = (format!("{from}/{name}"), format!("{to}/{name}"));
        match kind {
            FileKind::Directory => {
                world.mkdir(&target).unwrap();
                copy(world, &source, &target);
            }
            FileKind::Regular => world.write(&target, &world.read(&source).unwrap()).unwrap(),
            FileKind::SymbolicLink => world.symlink("leads/nowhere", &target).unwrap(),
            _ => world.mknod(&target, kind, 0, 0).unwrap(),
        }
        if let Ok(value) = world.get(&source, "user.a") {
            world.set(&target, "user.a", &value).unwrap();
        }
        // That of a link, too, which a step may have changed.
        world.chmod(&target, world.stat(&source).unwrap().mode & 0o7777).unwrap();
    }
}

fn run(seed: u64, steps: usize) {
    let world = World::in_turn(None);
    let mut random = Random(seed);
    if seed.is_multiple_of(2) {
        world.mount_tmpfs("/l2");
    }
    for _ in 0..60 {
        let step = Step::random(&mut random);
        let root = ["/l1", "/l2"][random.below(2) as usize];
        if !matches!(step, Step::Link(..)) {
            let _ = step.run(&world, root);
        }
    }
    world.overlay(USUAL, "/m").unwrap();
    copy(&world, "/m", "/plain");
    compare(&world, "at the beginning");
    for number in 0..steps {
        let step = Step::random(&mut random);
        let merged = step.run(&world, "/m");
        if merged == Err(Error::CrossDevice) && matches!(step, Step::Rename(..)) {
            continue;
        }
        let plain = step.run(&world, "/plain");
        assert_eq!(merged, plain, "seed {seed}, step {number}: {step:?}");
        if number % 16 == 0 {
            compare(&world, &format!("seed {seed}, after step {number}: {step:?}"));
        }
        if number % 100 == 99 {
            world.unmount("/m").unwrap();
            world.overlay(USUAL, "/m").unwrap();
            compare(&world, &format!("seed {seed}, mounted anew after step {number}"));
        }
    }
    compare(&world, &format!("seed {seed}, at the end"));
}

#[test]
fn an_overlay_behaves_as_one_directory() {
    let _turn = turn();
    for seed in 1..=12 {
        run(seed, 400);
    }
}

#[test]
#[ignore = "takes minutes: a step of ./starling test --long"]
fn an_overlay_behaves_as_one_directory_for_long() {
    let _turn = turn();
    for seed in 100..1100 {
        run(seed, 1000);
    }
}
