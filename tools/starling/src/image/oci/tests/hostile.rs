//! Whatever is in an image, reading it ends in a tree whose names stay inside, or in an error. `PROPTEST_CASES` says how many are tried.

use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::{Bundle, Choice, Layout};
use super::{Files, saved, section};

static LAYOUT: LazyLock<Vec<u8>> = LazyLock::new(|| Files::layout("amd64", <[u8]>::to_vec).archive());
static SAVED: LazyLock<Vec<u8>> = LazyLock::new(saved);

/// Words that mean something somewhere, put where others were.
const WORDS: [&str; 10] = [
    "../../../etc/passwd",
    "\"size\":-1",
    "\"size\":18446744073709551615",
    "null",
    "[]",
    "{}",
    "sha256:",
    "sha512:",
    ".wh...",
    "a/layer.tar",
];

fn edits(length: usize) -> impl Strategy<Value = Vec<(usize, Vec<u8>)>> {
    let bytes = prop_oneof![
        vec(any::<u8>(), 1..3),
        (0..WORDS.len()).prop_map(|index| WORDS[index].as_bytes().to_vec()),
        Just(b"77777777777".to_vec()),
    ];
    vec((0..length, bytes), 0..5)
}

/// Makes the checksums of all headers right again, so that more than the first one is looked at.
fn sign(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(512).filter(|block| &block[257..262] == b"ustar") {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
}

fn check(whole: &[u8], edits: Vec<(usize, Vec<u8>)>, cut: usize) {
    let mut bytes = whole.to_vec();
    for (at, new) in edits {
        for (place, byte) in bytes[at..].iter_mut().zip(new) {
            *place = byte;
        }
    }
    bytes.truncate(cut);
    sign(&mut bytes);
    let Ok(Some(layout)) = Layout::in_archive(&section(&bytes)) else { return };
    let Ok(tree) = Bundle::find(&layout, Choice::Only).and_then(|bundle| bundle.tree()) else { return };
    for (path, _) in tree.nodes() {
        let leaves = |part: &[u8]| part == b".." || part == b".";
        assert!(!path.starts_with(b"/") && !path.split(|byte| *byte == b'/').any(leaves), "{path:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_layouts_are_read_or_refused(edits in edits(LAYOUT.len()), cut in 1000..=LAYOUT.len()) {
        check(&LAYOUT, edits, cut);
    }

    #[test]
    fn hostile_docker_archives_are_read_or_refused(edits in edits(SAVED.len()), cut in 1000..=SAVED.len()) {
        check(&SAVED, edits, cut);
    }
}
