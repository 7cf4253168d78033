//! A file system as it should be, in memory, and random operations on both it and the one under test.
#![allow(dead_code, reason = "each test program uses its part")]

use std::collections::BTreeMap;

use ext4::{Error, FileSystem, Inode, Kind, Move, NewFile, SetAttribute, Time, Writer};

use crate::image::Random;

pub(crate) const ROOT: u32 = 2;

/// What a file should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Directory,
    File(Vec<u8>),
    Link(Vec<u8>),
    Whiteout,
}

const WHITEOUT: NewFile<'_> = NewFile {
    kind: Kind::CharacterDevice,
    mode: 0,
    user: 70_000,
    group: 5,
    special: (0, 0),
    target: &[],
    attributes: &[],
    privileged: true,
};

/// Names, by path without the first slash, the numbers of the files, and what these are.
#[derive(Clone, Default, Debug)]
pub(crate) struct Model {
    pub(crate) names: BTreeMap<String, u32>,
    pub(crate) files: BTreeMap<u32, Node>,
    pub(crate) attributes: BTreeMap<(u32, String), Vec<u8>>,
    /// Without names, and not deleted: as if somebody had them open.
    pub(crate) open: Vec<u32>,
    clock: i64,
}

fn parent_of(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl Model {
    pub(crate) fn now(&mut self) -> Time {
        self.clock += 1;
        Time { seconds: 1_700_000_000 + self.clock, nanoseconds: 77 }
    }

    fn number(&self, path: &str) -> u32 {
        if path.is_empty() { ROOT } else { self.names[path] }
    }

    fn of_kind(&self, wanted: impl Fn(&Node) -> bool) -> Vec<String> {
        let named = self.names.iter().filter(|(_, number)| wanted(&self.files[*number]));
        named.map(|(path, _)| path.clone()).collect()
    }

    fn is_empty(&self, directory: &str) -> bool {
        let prefix = format!("{directory}/");
        !self.names.keys().any(|path| path.starts_with(&prefix))
    }

    fn new_path(&self, random: &mut Random) -> String {
        let mut directories = self.of_kind(|node| *node == Node::Directory);
        directories.push(String::new());
        let directory = &directories[random.below(directories.len())];
        let length = if random.below(4) == 0 { 1 + random.below(180) } else { 1 + random.below(6) };
        let number = random.below(100_000);
        let name = format!("{number}{}", "n".repeat(length));
        if directory.is_empty() { name } else { format!("{directory}/{name}") }
    }

    fn forget_name(&mut self, path: &str) -> Option<u32> {
        let number = self.names.remove(path).expect("it was chosen among the names");
        if self.names.values().any(|other| *other == number) {
            return None;
        }
        self.files.remove(&number);
        self.attributes.retain(|(file, _), _| *file != number);
        Some(number)
    }

    /// One random operation on both. An error of the file system is passed on, with the model as it was.
    pub(crate) fn step(&mut self, writer: &Writer, random: &mut Random) -> Result<(), Error> {
        let now = self.now();
        match random.below(16) {
            0..3 => self.create(writer, random, now),
            3..7 => self.write(writer, random, now),
            7 => self.truncate(writer, random, now),
            8 => self.rename(writer, random, now),
            9 => self.link(writer, random, now),
            10 | 11 => self.unlink(writer, random, now),
            12 => self.remove_directory(writer, random, now),
            13 => self.attribute(writer, random, now),
            14 => self.allocate(writer, random, now),
            _ => self.punch(writer, random, now),
        }
    }

    fn create(&mut self, writer: &Writer, random: &mut Random, now: Time) -> Result<(), Error> {
        let path = self.new_path(random);
        if self.names.contains_key(&path) {
            return Ok(());
        }
        let (directory, name) = parent_of(&path);
        let target =
            vec![b't'; if random.below(2) == 0 { 1 + random.below(59) } else { 60 + random.below(800) }];
        let (kind, node) = match random.below(8) {
            0 | 1 => (Kind::Directory, Node::Directory),
            2 => (Kind::Link, Node::Link(target.clone())),
            _ => (Kind::Regular, Node::File(Vec::new())),
        };
        let new = NewFile {
            kind,
            mode: 0o644,
            user: 70_000,
            group: 5,
            special: (0, 0),
            target: &target,
            attributes: &[],
            privileged: true,
        };
        let inode = writer.create(self.number(directory), name.as_bytes(), &new, now)?;
        self.names.insert(path, inode.number);
        self.files.insert(inode.number, node);
        Ok(())
    }

    fn file(&self, random: &mut Random) -> Option<(u32, Vec<u8>)> {
        let files = self.of_kind(|node| matches!(node, Node::File(_)));
        let path = files.get(random.below(files.len().max(1)))?;
        let number = self.names[path];
        match &self.files[&number] {
            Node::File(bytes) => Some((number, bytes.clone())),
            _ => None,
        }
    }

    fn write(&mut self, writer: &Writer, random: &mut Random, now: Time) -> Result<(), Error> {
        let Some((number, mut bytes)) = self.file(random) else { return Ok(()) };
        let offset = match random.below(4) {
            0 => bytes.len(),
            1 => bytes.len() + random.below(40_000),
            _ => random.below(bytes.len() + 1),
        };
        let length = [random.below(200), random.below(5000), random.below(60_000)][random.below(3)];
        let data: Vec<u8> = (0..length).map(|_| random.next() as u8 | 1).collect();
        // What was written before an error counts or not; the test of errors does not compare contents.
        writer.write(number, offset as u64, &data, true, now)?;
        if length > 0 {
            bytes.resize(bytes.len().max(offset + length), 0);
            bytes[offset..offset + length].copy_from_slice(&data);
        }
        self.files.insert(number, Node::File(bytes));
        Ok(())
    }

    fn truncate(&mut self, writer: &Writer, random: &mut Random, now: Time) -> Result<(), Error> {
        let Some((number, mut bytes)) = self.file(random) else { return Ok(()) };
        let more = random.below(3) * 5000;
        let size = random.below(bytes.len() + 1 + more);
        writer.set_size(number, size as u64, now)?;
        bytes.resize(size, 0);
        self.files.insert(number, Node::File(bytes));
        Ok(())
    }

    fn allocate(&mut self, writer: &Writer, random: &mut Random, now: Time) -> Result<(), Error> {
        let Some((number, mut bytes)) = self.file(random) else { return Ok(()) };
        let (offset, length) = (random.below(bytes.len() + 1), 1 + random.below(50_000));
        let keep_size = random.below(2) == 0;
        match writer.allocate(number, offset as u64, length as u64, keep_size, true, now) {
            Err(Error::NotSupported) => return Ok(()),
            other => other?,
        };
        if !keep_size {
            bytes.resize(bytes.len().max(offset + length), 0);
        }
        self.files.insert(number, Node::File(bytes));
        Ok(())
    }

    fn punch(&mut self, writer: &Writer, random: &mut Random, now: Time) -> Result<(), Error> {
        let Some((number, mut bytes)) = self.file(random) else { return Ok(()) };
        let offset = random.below(bytes.len() + 1);
        let length = 1 + random.below(30_000);
        writer.punch(number, offset as u64, length as u64, now)?;
        let end = bytes.len().min(offset + length);
        bytes[offset..end].fill(0);
        self.files.insert(number, Node::File(bytes));
        Ok(())
    }

    fn any(&self, random: &mut Random, wanted: impl Fn(&Node) -> bool) -> Option<String> {
        let paths = self.of_kind(wanted);
        paths.get(random.below(paths.len().max(1))).cloned()
    }

    fn link(&mut self, writer: &Writer, random: &mut Random, now: Time) -> Result<(), Error> {
        let path = self.new_path(random);
        let Some(old) = self.any(random, |node| *node != Node::Directory) else { return Ok(()) };
        if self.names.contains_key(&path) {
            return Ok(());
        }
        let (directory, name) = parent_of(&path);
        let number = self.names[&old];
        writer.link(self.number(directory), name.as_bytes(), number, true, now)?;
        self.names.insert(path, number);
        Ok(())
    }

    fn unlink(&mut self, writer: &Writer, random: &mut Random, now: Time) -> Result<(), Error> {
        let Some(path) = self.any(random, |node| *node != Node::Directory) else { return Ok(()) };
        let (directory, name) = parent_of(&path);
        let gone = writer.unlink(self.number(directory), name.as_bytes(), now)?;
        let forgotten = self.forget_name(&path);
        assert_eq!(forgotten.is_some(), gone.links == 0);
        if gone.links == 0 {
            // It stays open for a while.
            self.open.push(gone.number);
        }
        if random.below(3) == 0 { self.close_all(writer, now) } else { Ok(()) }
    }

    /// Nobody has files without names open any more.
    pub(crate) fn close_all(&mut self, writer: &Writer, now: Time) -> Result<(), Error> {
        let closed: Vec<u32> = core::mem::take(&mut self.open).into_iter().rev().collect();
        let mut left = closed.as_slice();
        while let [first, ..] = left {
            // Together or one by one.
            let together = if now.seconds % 3 == 0 { Ok(0) } else { writer.delete_some(left, now) };
            let deleted = match together {
                Ok(deleted) if deleted > 0 => deleted,
                _ => writer.delete(*first, now).map(|()| 1)?,
            };
            left = &left[deleted..];
        }
        Ok(())
    }

    fn remove_directory(&mut self, writer: &Writer, random: &mut Random, now: Time) -> Result<(), Error> {
        let Some(path) = self.any(random, |node| *node == Node::Directory) else { return Ok(()) };
        let (directory, name) = parent_of(&path);
        match writer.remove_directory(self.number(directory), name.as_bytes(), now) {
            Err(Error::NotEmpty) => {
                assert!(!self.is_empty(&path));
                Ok(())
            }
            Err(error) => Err(error),
            Ok(gone) => {
                assert!(self.is_empty(&path));
                self.forget_name(&path);
                writer.delete(gone.number, now)
            }
        }
    }

    fn rename(&mut self, writer: &Writer, random: &mut Random, now: Time) -> Result<(), Error> {
        let Some(old) = self.any(random, |_| true) else { return Ok(()) };
        let new = if random.below(3) == 0 {
            self.any(random, |_| true).expect("there is one")
        } else {
            self.new_path(random)
        };
        let (number, replaced) = (self.names[&old], self.names.get(&new).copied());
        let below = |path: &str, directory: &str| path.starts_with(&format!("{directory}/"));
        if new == old || below(&new, &old) || below(&old, &new) || replaced == Some(number) {
            return Ok(());
        }
        let exchange = replaced.is_some() && random.below(3) == 0;
        let whiteout = !exchange && random.below(3) == 0;
        let ((from, old_name), (to, new_name)) = (parent_of(&old), parent_of(&new));
        let what = Move {
            from: self.number(from),
            old: old_name.as_bytes(),
            to: self.number(to),
            new: new_name.as_bytes(),
            exchange,
            keep_existing: false,
            whiteout: whiteout.then_some(&WHITEOUT),
            privileged: true,
        };
        let gone = match writer.rename(&what, now) {
            Err(Error::NotEmpty | Error::IsDirectory | Error::NotDirectory) if replaced.is_some() => {
                return Ok(());
            }
            other => other?,
        };
        if exchange {
            self.move_tree(&old, "\u{1}");
            self.move_tree(&new, &old);
            self.move_tree("\u{1}", &new);
            return Ok(());
        }
        if replaced.is_some() {
            self.forget_name(&new);
        }
        self.move_tree(&old, &new);
        if whiteout {
            let directory = writer.system().inode(what.from)?;
            let left = writer.system().lookup(&directory, what.old)?;
            self.names.insert(old.clone(), left.number);
            self.files.insert(left.number, Node::Whiteout);
        }
        match gone {
            Some(gone) if gone.links == 0 => writer.delete(gone.number, now),
            _ => Ok(()),
        }
    }

    fn move_tree(&mut self, old: &str, new: &str) {
        let prefix = format!("{old}/");
        let moved: Vec<String> =
            self.names.keys().filter(|path| *path == old || path.starts_with(&prefix)).cloned().collect();
        for path in moved {
            let number = self.names.remove(&path).expect("it was listed");
            self.names.insert(format!("{new}{}", &path[old.len()..]), number);
        }
    }

    fn attribute(&mut self, writer: &Writer, random: &mut Random, now: Time) -> Result<(), Error> {
        let Some(path) = self.any(random, |node| !matches!(node, Node::Link(_))) else { return Ok(()) };
        let number = self.names[&path];
        let name = format!("{}.a{}", ["user", "trusted", "security"][random.below(3)], random.below(4));
        let key = (number, name.clone());
        if self.attributes.contains_key(&key) && random.below(2) == 0 {
            writer.remove_attribute(number, name.as_bytes(), now)?;
            self.attributes.remove(&key);
            return Ok(());
        }
        let value: Vec<u8> = (0..random.below(120)).map(|_| random.next() as u8).collect();
        match writer.set_attribute(number, name.as_bytes(), &value, SetAttribute::Any, true, now) {
            Err(Error::NoSpace) => return Ok(()),
            other => other?,
        };
        self.attributes.insert(key, value);
        Ok(())
    }

    /// Whether the file system is what it should be.
    pub(crate) fn compare(&self, system: &FileSystem) {
        let mut found = BTreeMap::new();
        walk(system, &system.root().expect("a root"), "", &mut found);
        assert!(
            found.keys().eq(self.names.keys()),
            "other names: {:?} {:?}",
            found.keys(),
            self.names.keys()
        );
        for (path, number) in &self.names {
            let (inode, node) = &found[path];
            assert_eq!(inode.number, *number, "{path}");
            if let (Node::File(is), Node::File(should)) = (node, &self.files[number]) {
                let first = is.iter().zip(should).position(|(one, other)| one != other);
                assert!(
                    is == should,
                    "{path} ({number}): {} of {} bytes, other from {first:?} on",
                    is.len(),
                    should.len()
                );
            }
            assert!(*node == self.files[number], "{path} ({number}) has other contents");
            let links = self.names.values().filter(|other| *other == number).count();
            assert!(inode.kind == Kind::Directory || usize::from(inode.links) == links, "{path}: links");
        }
        for ((number, name), value) in &self.attributes {
            let inode = system.inode(*number).expect("a file");
            let mut buffer = vec![0; 4096];
            let length = system.attribute(&inode, name.as_bytes(), &mut buffer).expect("it was set");
            assert!(buffer[..length] == *value, "attribute {name} of {number}");
        }
    }
}

/// Everything below a directory.
pub(crate) fn walk(
    system: &FileSystem,
    directory: &Inode,
    path: &str,
    found: &mut BTreeMap<String, (Inode, Node)>,
) {
    let mut names = Vec::new();
    let add = |entry: ext4::Entry<'_>, _| {
        names.push(entry.name.to_vec());
        true
    };
    system.list(directory, 0, add).expect("a sound directory");
    for name in names.iter().filter(|name| !matches!(name.as_slice(), b"." | b".." | b"lost+found")) {
        let inode = system.lookup(directory, name).expect("a listed name is found");
        let name = String::from_utf8_lossy(name);
        let path = if path.is_empty() { name.into_owned() } else { format!("{path}/{name}") };
        let node = match inode.kind {
            Kind::Directory => Node::Directory,
            Kind::Link => Node::Link(system.link_target(&inode).expect("a target")),
            Kind::CharacterDevice => Node::Whiteout,
            _ => {
                let mut bytes = vec![0xee; inode.size as usize];
                assert_eq!(system.read(&inode, 0, &mut bytes), Ok(bytes.len()));
                Node::File(bytes)
            }
        };
        if node == Node::Directory {
            walk(system, &inode, &path, found);
        }
        found.insert(path, (inode, node));
    }
}
