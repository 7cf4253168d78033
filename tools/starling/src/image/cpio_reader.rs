//! Reads cpio archives in the `newc` format (magic `070701`, and `070702` with checksums, which are not verified).
//!
//! Several archives may follow each other with NUL bytes between them, as in an initramfs. The reader takes member
//! headers and leaves file data in the archive.

use std::collections::HashMap;

use super::content::{Content, Section};
use super::tree::{Attributes, FileId, Kind, Node, Tree};
use crate::failure::{Context, Failure, Outcome};

const HEADER_BYTES: usize = 110;
/// Longer name fields than this are no names.
const MAXIMUM_NAME_FIELD: u64 = 65_536;
/// Symbolic link targets are paths.
const MAXIMUM_TARGET: u64 = 4096;

/// What the reader uses of a member's header.
struct Header {
    inode: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    links: u32,
    mtime: u32,
    length: u64,
    file_system: (u32, u32),
    device: (u32, u32),
    name_field: u64,
}

/// Whether these first bytes of a file are those of a cpio archive.
pub(super) fn recognises(start: &[u8]) -> bool {
    start.starts_with(b"070701") || start.starts_with(b"070702")
}

/// Reads the archive (or archives) in a file.
///
/// # Errors
/// When it is cut off or malformed, or a name leaves the root.
pub(super) fn read(archive: &Section) -> Outcome<Tree> {
    let mut reader = Reader { archive, position: 0, end: archive.length };
    let mut tree = Tree::default();
    while reader.find_archive()? {
        reader.archive(&mut tree)?;
    }
    Ok(tree)
}

struct Reader<'a> {
    archive: &'a Section,
    position: u64,
    end: u64,
}

impl Reader<'_> {
    /// Skips the padding between archives. False at the end of the file.
    fn find_archive(&mut self) -> Outcome<bool> {
        let mut block = [0; 512];
        while self.position < self.end {
            let count = (self.end - self.position).min(block.len() as u64) as usize;
            self.archive.read_exact_at(&mut block[..count], self.position).context(|| "reading".into())?;
            if let Some(start) = block[..count].iter().position(|byte| *byte != 0) {
                self.position += start as u64;
                return Ok(true);
            }
            self.position += count as u64;
        }
        Ok(false)
    }

    /// Adds the members of one archive, up to its trailer.
    fn archive(&mut self, tree: &mut Tree) -> Outcome<()> {
        let mut linked: HashMap<(u64, u32, u32), FileId> = HashMap::new();
        loop {
            let header = parse(&self.bytes(HEADER_BYTES as u64)?)?;
            let mut name = self.bytes(header.name_field)?;
            self.align();
            name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
            if name == b"TRAILER!!!" {
                return Ok(());
            }
            let data = self.position;
            self.position = data + header.length;
            if self.position > self.end {
                return Err(cut_off());
            }
            self.align();
            let attributes = Attributes {
                mode: header.mode & 0o7777,
                uid: header.uid,
                gid: header.gid,
                mtime: header.mtime,
            };
            let kind = match header.mode & 0o170_000 {
                0o040_000 => Kind::Directory,
                0o120_000 => Kind::Symlink(
                    self.part(data, header.length).read(MAXIMUM_TARGET).context(|| "link".into())?,
                ),
                0o020_000 => Kind::Character(header.device.0, header.device.1),
                0o060_000 => Kind::Block(header.device.0, header.device.1),
                0o010_000 => Kind::Fifo,
                0o140_000 => Kind::Socket,
                0o100_000 => Kind::File(self.file(tree, &header, data, &mut linked)),
                other => return Err(Failure::ours(format!("member has the unknown type {other:o}"))),
            };
            tree.insert(&name, Node { attributes, kind })
                .map_err(|error| Failure::ours(error.to_string()))?;
        }
    }

    fn file(
        &self,
        tree: &mut Tree,
        header: &Header,
        data: u64,
        linked: &mut HashMap<(u64, u32, u32), FileId>,
    ) -> FileId {
        let content = self.part(data, header.length);
        if header.links < 2 {
            return tree.add_content(content);
        }
        // Only one of the names has the data, and it need not be the first.
        let key = (header.inode, header.file_system.0, header.file_system.1);
        match linked.get(&key) {
            Some(file) => {
                if header.length > 0 {
                    tree.set_content(*file, content);
                }
                *file
            }
            None => *linked.entry(key).or_insert(tree.add_content(content)),
        }
    }

    fn part(&self, offset: u64, length: u64) -> Content {
        Content::Part(self.archive.part(offset, length))
    }

    fn bytes(&mut self, count: u64) -> Outcome<Vec<u8>> {
        if count > MAXIMUM_NAME_FIELD || self.position + count > self.end {
            return Err(cut_off());
        }
        let mut bytes = vec![0; count as usize];
        self.archive.read_exact_at(&mut bytes, self.position).context(|| "reading".into())?;
        self.position += count;
        Ok(bytes)
    }

    /// Members, and the data in them, start at multiples of four.
    fn align(&mut self) {
        self.position = self.position.next_multiple_of(4);
    }
}

fn cut_off() -> Failure {
    Failure::ours("the archive is cut off")
}

fn parse(header: &[u8]) -> Outcome<Header> {
    if !recognises(header) {
        return Err(Failure::ours("the archive is damaged: no member starts where one should"));
    }
    let field = |index: usize| -> Outcome<u32> {
        let digits =
            header.get(6 + 8 * index..14 + 8 * index).and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| !digits.starts_with('+'));
        let value = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        value.ok_or_else(|| Failure::ours("the archive is damaged: a header field is no number"))
    };
    Ok(Header {
        inode: field(0)?.into(),
        mode: field(1)?,
        uid: field(2)?,
        gid: field(3)?,
        links: field(4)?,
        mtime: field(5)?,
        length: field(6)?.into(),
        file_system: (field(7)?, field(8)?),
        device: (field(9)?, field(10)?),
        name_field: field(11)?.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::super::cpio_writer::CpioWriter;
    use super::*;

    fn archive(bytes: &[u8]) -> Section {
        let file = tempfile::tempfile().expect("a temporary file");
        file.write_all_at(bytes, 0).expect("room");
        Section::whole(file).expect("a file")
    }

    fn one_file(name: &str) -> Vec<u8> {
        let mut writer = CpioWriter::new(Vec::new());
        writer.single_file(name, Attributes::root(0o600), b"text".to_vec()).expect("memory");
        writer.finish().expect("memory")
    }

    #[test]
    fn archives_follow_each_other() {
        let bytes = [one_file("a"), vec![0; 1000], one_file("b/c"), vec![0; 3]].concat();
        let tree = read(&archive(&bytes)).expect("well formed");
        assert_eq!(tree.nodes().count(), 4, "root, a, b, b/c");
    }

    #[test]
    fn damage_is_an_error_at_every_byte() {
        let whole = one_file("a");
        let trailer = whole.len() - 124;
        for cut in 1..trailer {
            assert!(read(&archive(&whole[..cut])).is_err(), "cut at {cut}");
        }
        assert!(read(&archive(b"070701 this is no archive at all, only its magic number")).is_err());
    }

    #[test]
    fn names_that_leave_the_root_are_refused() {
        let failure = read(&archive(&one_file("../../etc/passwd"))).expect_err("refused");
        assert_eq!(failure.to_string(), "member ../../etc/passwd leaves the image's root");
    }
}
