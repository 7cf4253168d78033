//! Random changes of a tree, compared with a simple model of one.

use std::collections::BTreeMap;

use proptest::prelude::*;
use vfs::Error;

use super::World;

/// A tree: directories by their paths, files by theirs.
#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Directory,
    File(u64),
}

#[derive(Default)]
struct Model {
    nodes: BTreeMap<String, Kind>,
    next_file: u64,
}

#[derive(Clone, Debug)]
enum Change {
    MakeDirectory(String),
    Create(String),
    Unlink(String),
    RemoveDirectory(String),
    Rename(String, String),
    Link(String, String),
    Look(String),
    Shrink,
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl Model {
    /// What a path means; an error as the walk to its directory gives it.
    fn find(&self, path: &str) -> Result<Option<&Kind>, Error> {
        let above = parent(path);
        if !above.is_empty() {
            match self.find(above)? {
                Some(Kind::Directory) => {}
                Some(Kind::File(_)) => return Err(Error::NotDirectory),
                None => return Err(Error::NotFound),
            }
        }
        Ok(self.nodes.get(path))
    }

    fn has_children(&self, path: &str) -> bool {
        let prefix = format!("{path}/");
        self.nodes.range(prefix.clone()..).next().is_some_and(|(key, _)| key.starts_with(&prefix))
    }

    fn add(&mut self, path: &str, kind: Kind) -> Result<(), Error> {
        if self.find(path)?.is_some() {
            return Err(Error::Exists);
        }
        self.nodes.insert(path.to_owned(), kind);
        Ok(())
    }

    fn apply(&mut self, change: &Change) -> Result<(), Error> {
        match change {
            Change::MakeDirectory(path) => self.add(path, Kind::Directory),
            Change::Create(path) => {
                self.next_file += 1;
                self.add(path, Kind::File(self.next_file))
            }
            Change::Unlink(path) => match self.find(path)? {
                None => Err(Error::NotFound),
                Some(Kind::Directory) => Err(Error::IsDirectory),
                Some(Kind::File(_)) => {
                    self.nodes.remove(path);
                    Ok(())
                }
            },
            Change::RemoveDirectory(path) => match self.find(path)? {
                None => Err(Error::NotFound),
                Some(Kind::File(_)) => Err(Error::NotDirectory),
                Some(Kind::Directory) if self.has_children(path) => Err(Error::NotEmpty),
                Some(Kind::Directory) => {
                    self.nodes.remove(path);
                    Ok(())
                }
            },
            Change::Rename(old, new) => self.rename(old, new),
            Change::Link(old, new) => match self.find(old)?.cloned() {
                None => Err(Error::NotFound),
                Some(kind) => {
                    if self.find(new)?.is_some() {
                        return Err(Error::Exists);
                    }
                    if kind == Kind::Directory {
                        return Err(Error::NotPermitted);
                    }
                    self.nodes.insert(new.clone(), kind);
                    Ok(())
                }
            },
            Change::Look(path) => self.find(path)?.map(|_| ()).ok_or(Error::NotFound),
            Change::Shrink => Ok(()),
        }
    }

    fn rename(&mut self, old: &str, new: &str) -> Result<(), Error> {
        // Both directories are walked to before either name is looked at.
        let check = |path: &str| match parent(path) {
            "" => Ok(()),
            above => match self.find(above)? {
                Some(Kind::Directory) => Ok(()),
                Some(Kind::File(_)) => Err(Error::NotDirectory),
                None => Err(Error::NotFound),
            },
        };
        check(old)?;
        check(new)?;
        let source = self.nodes.get(old).cloned().ok_or(Error::NotFound)?;
        if new.starts_with(&format!("{old}/")) {
            return Err(Error::Invalid);
        }
        let target = self.nodes.get(new).cloned();
        if old.starts_with(&format!("{new}/")) {
            return Err(Error::NotEmpty);
        }
        if old == new || (target.is_some() && target == Some(source.clone()) && source != Kind::Directory) {
            return Ok(());
        }
        match (&source, &target) {
            (Kind::Directory, Some(Kind::File(_))) => return Err(Error::NotDirectory),
            (Kind::File(_), Some(Kind::Directory)) => return Err(Error::IsDirectory),
            (Kind::Directory, Some(Kind::Directory)) if self.has_children(new) => {
                return Err(Error::NotEmpty);
            }
            _ => {}
        }
        let prefix = format!("{old}/");
        let moved: Vec<String> = self.nodes.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
        for path in moved {
            let kind = self.nodes.remove(&path).unwrap();
            self.nodes.insert(format!("{new}{}", &path[old.len()..]), kind);
        }
        self.nodes.remove(old);
        self.nodes.insert(new.to_owned(), source);
        Ok(())
    }
}

fn perform(world: &World, change: &Change) -> Result<(), Error> {
    use vfs::flags::OpenFlags;
    match change {
        Change::MakeDirectory(path) => world.mkdir(path),
        Change::Create(path) => {
            world.open(path, OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::WRITE_ONLY).map(|_| ())
        }
        Change::Unlink(path) => world.unlink(path),
        Change::RemoveDirectory(path) => world.rmdir(path),
        Change::Rename(old, new) => world.rename(old, new),
        Change::Link(old, new) => world.link(old, new),
        Change::Look(path) => world.lstat(path).map(|_| ()),
        Change::Shrink => {
            vfs::dentry::shrink(usize::MAX);
            Ok(())
        }
    }
}

/// The whole tree as the file layer shows it.
fn observe(world: &World, path: &str, into: &mut BTreeMap<String, bool>) {
    let shown = if path.is_empty() { "/" } else { path };
    for name in world.list(shown).unwrap().into_iter().skip(2) {
        let inner = format!("{path}/{name}");
        let status = world.lstat(&inner).unwrap();
        let is_directory = status.mode & 0o170000 == 0o040000;
        into.insert(inner.clone(), is_directory);
        if is_directory {
            observe(world, &inner, into);
            let directories = into.iter().filter(|(key, is)| **is && parent(key) == inner).count();
            assert_eq!(status.links as usize, 2 + directories, "links of {inner}");
        }
    }
}

fn paths() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4)
        .prop_map(|parts| parts.iter().map(|part| format!("/{part}")).collect())
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => paths().prop_map(Change::MakeDirectory),
        3 => paths().prop_map(Change::Create),
        2 => paths().prop_map(Change::Unlink),
        2 => paths().prop_map(Change::RemoveDirectory),
        4 => (paths(), paths()).prop_map(|(old, new)| Change::Rename(old, new)),
        2 => (paths(), paths()).prop_map(|(old, new)| Change::Link(old, new)),
        3 => paths().prop_map(Change::Look),
        1 => Just(Change::Shrink),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_behaves_like_its_model(script in prop::collection::vec(changes(), 1..60)) {
        let world = World::new();
        let mut model = Model::default();
        for change in &script {
            prop_assert_eq!(perform(&world, change), model.apply(change), "{:?}", change);
        }
        let mut seen = BTreeMap::new();
        observe(&world, "", &mut seen);
        let expected: BTreeMap<String, bool> =
            model.nodes.iter().map(|(path, kind)| (path.clone(), *kind == Kind::Directory)).collect();
        prop_assert_eq!(seen, expected);
    }
}
