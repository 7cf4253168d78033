//! Tests: whatever is in an image file, reading it ends in a tree whose names stay inside, or in an error.
//! `PROPTEST_CASES` says how many files are tried.

use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;

use super::content::Section;
use super::cpio_writer::CpioWriter;
use super::tree::{Attributes, Kind, Node, Tree};
use super::{cpio_reader, tarball};
use crate::failure::Outcome;

fn file(bytes: &[u8]) -> Section {
    let file = tempfile::tempfile().expect("a temporary file");
    file.write_all_at(bytes, 0).expect("room");
    Section::whole(file).expect("a file")
}

/// Bytes to put somewhere: single ones, and digits of large numbers where fields are.
fn edits(length: usize) -> impl Strategy<Value = Vec<(usize, Vec<u8>)>> {
    let bytes = prop_oneof![
        vec(any::<u8>(), 1..3),
        Just(b"ffffffff".to_vec()),
        Just(b"7fffffff".to_vec()),
        Just(b"77777777777".to_vec()),
        Just(vec![0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        Just(b"../../x".to_vec()),
        Just(b"0".to_vec()),
    ];
    vec((0..length, bytes), 0..5)
}

fn edited(mut bytes: Vec<u8>, edits: Vec<(usize, Vec<u8>)>, cut: usize) -> Vec<u8> {
    for (at, new) in edits {
        for (place, byte) in bytes[at..].iter_mut().zip(new) {
            *place = byte;
        }
    }
    bytes.truncate(cut);
    bytes
}

/// A tree that was read keeps its names inside and can be written, unless the file ends before its data.
fn check(tree: Outcome<Tree>) {
    let Ok(tree) = tree else { return };
    for (path, _) in tree.nodes() {
        let leaves = |part: &[u8]| part == b".." || part == b".";
        assert!(!path.starts_with(b"/") && !path.split(|byte| *byte == b'/').any(leaves), "{path:?}");
    }
    let _ = CpioWriter::new(std::io::sink()).tree(&tree, |_| {});
}

static CPIO: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut tree = Tree::default();
    let attributes = Attributes { mode: 0o755, uid: 1, gid: 2, mtime: 1 };
    for (name, kind) in [
        ("bin", Kind::Directory),
        ("dev/null", Kind::Character(1, 3)),
        ("lib", Kind::Symlink(b"usr/lib".to_vec())),
        ("pipe", Kind::Fifo),
    ] {
        tree.insert(name.as_bytes(), Node { attributes, kind }).expect("inside the root");
    }
    let mut writer = CpioWriter::new(Vec::new());
    writer.tree(&tree, |_| {}).expect("memory");
    writer.single_file("file", attributes, b"text".to_vec()).expect("memory");
    writer.finish().expect("memory")
});

static TAR: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, kind, size) in [
        ("directory/", tar::EntryType::Directory, 0),
        ("directory/file", tar::EntryType::Regular, 4),
        ("link", tar::EntryType::Symlink, 0),
        ("hard", tar::EntryType::Link, 0),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o640);
        header.set_path(name).expect("short");
        header.set_link_name("directory/file").expect("short");
        header.set_cksum();
        builder.append(&header, &b"text"[..size as usize]).expect("memory");
    }
    builder.into_inner().expect("memory")
});

/// Makes the checksums of all headers right again, so that more than the first one is looked at.
fn sign(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(512) {
        if block.iter().any(|byte| *byte != 0) {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_cpio_archives_are_read_or_refused(edits in edits(600), cut in 0_usize..1500) {
        check(cpio_reader::read(&file(&edited(CPIO.clone(), edits, cut))));
    }

    #[test]
    fn hostile_tar_archives_are_read_or_refused(
        edits in edits(3000),
        cut in 0_usize..6000,
        signed in any::<bool>(),
    ) {
        let mut bytes = edited(TAR.clone(), edits, cut);
        if signed {
            sign(&mut bytes);
        }
        check(tarball::read(&file(&bytes)));
    }
}
