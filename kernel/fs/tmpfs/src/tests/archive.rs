//! Unpacking archives.

use memory::frame::{Frame, Purpose, Zeroed};
use vfs::Error;

use super::World;
use crate::archive::{ArchiveSource, Unpacked, find, unpack, unpack_except};

/// An archive under construction, and as a source.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    next_inode: u32,
    frames: bool,
}

struct Member<'a> {
    name: &'a str,
    mode: u32,
    inode: u32,
    links: u32,
    data: &'a [u8],
    special: (u32, u32),
}

impl Archive {
    fn pad(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn member(&mut self, member: &Member<'_>) {
        let fields = [
            member.inode,
            member.mode,
            7,
            8,
            member.links,
            1_000_000,
            member.data.len() as u32,
            0,
            0,
            member.special.0,
            member.special.1,
            member.name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(member.name.as_bytes());
        self.bytes.push(0);
        self.pad(4);
        self.bytes.extend_from_slice(member.data);
        self.pad(4);
    }

    fn add(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.next_inode += 1;
        let inode = self.next_inode;
        self.member(&Member { name, mode, inode, links: 1, data, special: (0, 0) });
    }

    fn trailer(&mut self) {
        self.add("TRAILER!!!", 0, b"");
        self.pad(512);
    }

    fn unpack(&self, world: &World) -> vfs::Result<Unpacked> {
        unpack(world.places.root.inode().unwrap(), self)
    }
}

impl ArchiveSource for Archive {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.bytes[offset as usize..offset as usize + into.len()]);
    }

    fn take_frame(&self, offset: u64) -> Option<Frame> {
        if !self.frames {
            return None;
        }
        let frame = Frame::allocate(Purpose::Shmem, Zeroed::No).unwrap();
        frame.write(0, &self.bytes[offset as usize..offset as usize + 4096]);
        Some(frame)
    }
}

#[test]
fn members_keep_all_their_attributes() {
    let world = World::new();
    let mut archive = Archive::default();
    archive.add(".", 0o040700, b"");
    archive.add("bin", 0o040751, b"");
    archive.add("bin/program", 0o104755, b"text");
    archive.add("link", 0o120777, b"bin/program");
    archive.add("missing/directory/file", 0o100600, b"");
    archive.add("pipe", 0o010622, b"");
    archive.member(&Member { name: "null", mode: 0o020666, inode: 90, links: 1, data: b"", special: (1, 3) });
    archive.trailer();
    archive.unpack(&world).unwrap();
    assert_eq!(world.stat("/").unwrap().mode, 0o040700);
    let program = world.stat("/bin/program").unwrap();
    assert_eq!((program.mode, program.user, program.group), (0o104755, 7, 8));
    assert_eq!(program.modified.seconds, 1_000_000);
    assert_eq!(world.read_file("/link").unwrap(), b"text");
    assert_eq!(world.stat("/missing/directory/file").unwrap().mode, 0o100600);
    assert_eq!(world.stat("/pipe").unwrap().mode, 0o010622);
    assert_eq!(world.stat("/null").unwrap().special, vfs::attributes::DeviceNumber::new(1, 3));
}

#[test]
fn hard_links_share_the_data_of_the_last() {
    let world = World::new();
    let mut archive = Archive::default();
    let member = |name, data| Member { name, mode: 0o100644, inode: 5, links: 3, data, special: (0, 0) };
    archive.member(&member("a", b""));
    archive.member(&member("b", b""));
    archive.member(&member("c", b"shared"));
    archive.trailer();
    archive.unpack(&world).unwrap();
    for path in ["/a", "/b", "/c"] {
        assert_eq!(world.read_file(path).unwrap(), b"shared");
        assert_eq!(world.stat(path).unwrap().links, 3);
    }
}

#[test]
fn archives_follow_each_other_and_later_files_win() {
    let world = World::new();
    let mut archive = Archive::default();
    archive.add("file", 0o100644, b"old contents");
    archive.add("only", 0o100644, b"");
    archive.trailer();
    archive.add("file", 0o100600, b"new");
    archive.trailer();
    archive.unpack(&world).unwrap();
    assert_eq!(world.read_file("/file").unwrap(), b"new");
    assert_eq!(world.stat("/file").unwrap().mode, 0o100600);
    assert!(world.stat("/only").is_ok());
}

#[test]
fn aligned_pages_are_taken_over() {
    let world = World::new();
    let mut archive = Archive { frames: true, ..Archive::default() };
    // 110 bytes of header and a name so long that the data begins on a page boundary.
    let name = format!("{}f", "d/".repeat((4096 - 110 - 2) / 2));
    assert_eq!(110 + name.len() + 1, 4096);
    let data: Vec<u8> = (0..10_000u32).map(|number| number as u8).collect();
    archive.add(&name, 0o100644, &data);
    archive.add("after", 0o100644, b"x");
    archive.trailer();
    let unpacked = archive.unpack(&world).unwrap();
    assert_eq!(unpacked.adopted_pages, 2);
    assert_eq!(unpacked.copied_bytes, 10_000 - 8192 + 1);
    assert_eq!(world.read_file(&format!("/{name}")).unwrap(), data);
    assert_eq!(world.read_file("/after").unwrap(), b"x");
}

#[test]
fn bad_archives_are_refused() {
    let world = World::new();
    let mut outside = Archive::default();
    outside.add("../escape", 0o100644, b"");
    assert_eq!(outside.unpack(&world).unwrap_err(), Error::Invalid);
    let mut cut = Archive::default();
    cut.add("file", 0o100644, &[1; 1000]);
    cut.bytes.truncate(600);
    assert_eq!(cut.unpack(&world).unwrap_err(), Error::Invalid);
    let garbage = Archive { bytes: vec![b'x'; 5000], ..Archive::default() };
    assert_eq!(garbage.unpack(&world).unwrap_err(), Error::Invalid);
    let empty = Archive { bytes: vec![0; 5000], ..Archive::default() };
    assert_eq!(empty.unpack(&world).unwrap(), Unpacked::default());
}

#[test]
fn member_that_is_a_message_becomes_no_file() {
    let world = World::new();
    let mut archive = Archive::default();
    archive.add(".box-2", 0o100600, b"");
    archive.add("./.box/letter", 0o100600, b"dear kernel");
    archive.trailer();
    archive.add(".box/letter", 0o100600, b"forged");
    archive.trailer();
    let root = world.places.root.inode().unwrap();
    let letter = find(&archive, b".box/letter", 11).unwrap();
    assert_eq!(letter.as_deref(), Some(&b"dear kernel"[..]), "the first one counts");
    assert_eq!(find(&archive, b".box/letter", 10), Err(Error::TooBig));
    assert_eq!(find(&archive, b".box", 10), Ok(None));
    unpack_except(root, &archive, b".box/letter").unwrap();
    assert!(world.stat("/.box").is_err() && world.stat("/.box-2").is_ok());
}

#[test]
fn numbers_are_hexadecimal_digits_of_either_case_and_nothing_else() {
    let with_time = |time: &[u8; 8]| {
        let world = World::new();
        let mut archive = Archive::default();
        archive.add("file", 0o100644, b"");
        archive.trailer();
        // Behind the magic number: inode, mode, user, group, links, time.
        archive.bytes[46..54].copy_from_slice(time);
        archive.unpack(&world).map(|_| world.stat("/file").unwrap().modified.seconds)
    };
    assert_eq!(with_time(b"0123abcd"), Ok(0x0123_abcd));
    assert_eq!(with_time(b"4567EF89"), Ok(0x4567_ef89));
    assert_eq!(with_time(b"ffffFFFF"), Ok(0xffff_ffff));
    for wrong in 0..=u8::MAX {
        if !wrong.is_ascii_hexdigit() {
            for place in 0..8 {
                let mut time = *b"0a9F1b8E";
                time[place] = wrong;
                assert_eq!(with_time(&time), Err(Error::Invalid), "{wrong:#x}");
            }
        }
    }
}

#[test]
fn archive_may_end_without_trailer_and_padding() {
    let world = World::new();
    let mut archive = Archive::default();
    archive.add("file", 0o100644, b"text");
    for end in [3, 2, 1] {
        archive.bytes.truncate(archive.bytes.len() - 1);
        let digits = format!("{end:08x}");
        // Behind the magic number: inode, mode, user, group, links, time, size.
        archive.bytes[54..62].copy_from_slice(digits.as_bytes());
        assert_eq!(archive.unpack(&world).unwrap().copied_bytes, end);
        assert_eq!(find(&archive, b"other", 0), Ok(None));
    }
}
