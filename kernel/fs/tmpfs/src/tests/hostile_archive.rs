//! Whatever an archive says, unpacking it ends, and what it left can be listed and removed.
//! `PROPTEST_CASES` says how many archives are tried.

use memory::frame::Frame;
use proptest::collection::vec;
use proptest::prelude::*;

use super::World;
use crate::archive::{ArchiveSource, unpack};

struct Bytes(Vec<u8>);

impl ArchiveSource for Bytes {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.0[offset as usize..offset as usize + into.len()]);
    }

    fn take_frame(&self, _offset: u64) -> Option<Frame> {
        None
    }
}

/// One field of a member's header, mostly what it should be.
fn field(usual: u32) -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => Just(usual),
        1 => any::<u32>(),
        1 => proptest::sample::select(vec![0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX - 1, u32::MAX]),
    ]
}

fn member() -> impl Strategy<Value = Vec<u8>> {
    let names = [
        "file",
        "directory",
        "directory/file",
        ".",
        "..",
        "/",
        "a/../b",
        "//x//",
        "",
        "TRAILER!!!",
        "link",
        "link/x",
        "directory/.",
        "directory/..",
        "file/below",
    ];
    let kinds = vec![0o100_644, 0o040_755, 0o120_777, 0o010_600, 0o020_666, 0o140_600, 0o000_644, 0o170_000];
    let data = vec(any::<u8>(), 0..40);
    let header = (proptest::sample::select(kinds), field(1), field(0), 0_u32..4, any::<bool>());
    (proptest::sample::select(names.to_vec()), header, data).prop_flat_map(|(name, header, data)| {
        let (mode, links, number, inode, text) = header;
        let data = if text { b"../directory/file".to_vec() } else { data };
        (field(data.len() as u32), field(name.len() as u32 + 1)).prop_map(move |(length, name_length)| {
            let fields = [inode, mode, 7, 8, links, 1, length, 0, 0, number, number, name_length, 0];
            let mut bytes = b"070701".to_vec();
            fields.iter().for_each(|field| bytes.extend_from_slice(format!("{field:08x}").as_bytes()));
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(0);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes.extend_from_slice(&data);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        })
    })
}

/// Removes everything below a directory.
fn remove_all(world: &World, directory: &str) {
    for name in world.list(&format!("{directory}/")).expect("a directory can be listed") {
        if name == "." || name == ".." {
            continue;
        }
        let path = format!("{directory}/{name}");
        if world.unlink(&path).is_err() {
            remove_all(world, &path);
            assert_eq!(world.rmdir(&path), Ok(()), "{path}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_archives_unpack_or_are_refused(
        members in vec(member(), 1..6),
        // ASCII, so that names stay text.
        edits in vec((0_usize..800, 0_u8..128), 0..3),
        cut in 0_usize..1600,
    ) {
        let mut bytes = members.concat();
        for (at, byte) in edits {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        bytes.truncate(cut.max(1));
        let world = World::new();
        let _ = unpack(world.places.root.inode().unwrap(), &Bytes(bytes));
        remove_all(&world, "");
    }
}
