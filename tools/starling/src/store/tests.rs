//! Tests of the store, each with one of its own.

use std::fs;
use std::path::{Path, PathBuf};

use super::{BLOBS, ImageName, Store, build};
use crate::image::Kind;
use crate::image::oci::Choice;
use crate::progress::Progress;

fn name(text: &str) -> ImageName {
    text.parse().expect("a name")
}

fn blobs(path: &Path) -> usize {
    fs::read_dir(path.join(BLOBS)).expect("is there").count()
}

/// A root file system with one file.
fn root(folder: &Path, text: &str) -> PathBuf {
    let root = folder.join(text);
    fs::create_dir_all(root.join("etc")).expect("room");
    fs::write(root.join("etc/motd"), text).expect("room");
    root
}

fn take(store: &Store, image: &str, source: &Path) -> String {
    let digest = build::build(store, &name(image), source, Choice::Only, &Progress::silent());
    digest.expect("an image").to_string()
}

fn motd(store: &Store, image: &str) -> Vec<u8> {
    let tree = store.find(&name(image)).expect("undamaged").expect("is there").tree().expect("undamaged");
    let Some(Kind::File(file)) = tree.lookup(b"etc/motd").map(|node| node.kind.clone()) else {
        panic!("no file")
    };
    tree.content(file).read(100).expect("readable")
}

#[test]
fn images_come_and_go_with_their_blobs() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("images");
    assert!(Store::existing_at(path.clone()).expect("usable").is_none());
    let store = Store::writable_at(path.clone()).expect("usable");
    let one = root(folder.path(), "one");
    let digest = take(&store, "one", &one);
    assert_eq!(take(&store, "again:2", &one), digest, "the same image has the same digest");
    assert_eq!(blobs(&path), 3, "manifest, configuration and layer, once");
    take(&store, "two", &root(folder.path(), "two"));
    assert_eq!((motd(&store, "one"), motd(&store, "two")), (b"one".to_vec(), b"two".to_vec()));
    let names: Vec<_> = store.list().expect("undamaged").into_iter().map(|image| image.name).collect();
    assert_eq!(names, ["again:2", "one:latest", "two:latest"]);
    let failure = store.remove(&[name("two"), name("three")]).expect_err("is not there").to_string();
    assert_eq!((failure.as_str(), blobs(&path)), ("there is no image three:latest", 6));
    store.remove(&[name("two"), name("one")]).expect("are there");
    assert_eq!(blobs(&path), 3, "those of the other name");
    assert!(store.find(&name("one")).expect("undamaged").is_none());
    // Another image under the name takes the place of the one.
    take(&store, "again:2", &folder.path().join("two"));
    assert_eq!((blobs(&path), motd(&store, "again:2")), (3, b"two".to_vec()));
}

#[test]
fn the_store_is_a_layout_and_damage_is_told() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("images");
    let store = Store::writable_at(path.clone()).expect("usable");
    let digest = take(&store, "one", &root(folder.path(), "one"));
    let other = Store::writable_at(folder.path().join("other")).expect("usable");
    assert_eq!(take(&other, "copy", &path), digest, "a copy is the same image");
    let layer =
        fs::read_dir(path.join(BLOBS)).expect("is there").map(|entry| entry.expect("readable").path());
    let layer = layer.max_by_key(|path| path.metadata().expect("is there").len()).expect("has blobs");
    let mut bytes = fs::read(&layer).expect("readable");
    bytes[700] ^= 1;
    fs::write(&layer, bytes).expect("room");
    let failure = store.find(&name("one")).expect_err("is damaged").to_string();
    let digits = layer.file_name().expect("has a name").display().to_string();
    assert!(failure.starts_with(&format!("blob sha256:{digits} is damaged")), "{failure}");
    store.remove(&[name("one")]).expect("can be removed all the same");
    assert_eq!(blobs(&path), 0);
}

#[test]
fn what_a_crash_left_is_swept() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("images");
    let store = Store::writable_at(path.clone()).expect("usable");
    fs::write(path.join(".tmpabc"), "half").expect("room");
    fs::write(path.join(BLOBS).join("0".repeat(64)), "nobody's").expect("room");
    take(&store, "one", &root(folder.path(), "one"));
    assert_eq!(blobs(&path), 3);
    assert!(!path.join(".tmpabc").exists());
}
