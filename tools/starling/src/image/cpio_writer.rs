//! Writes cpio archives in the `newc` format, laid out so that the kernel can use file data where it lies.
//!
//! The data of a regular file of [`ALIGNED_FROM`] bytes or more starts at a multiple of [`PAGE_BYTES`] from the start of
//! the stream. The name field is lengthened with NUL bytes to get there; readers stop at the first NUL. A name that
//! would pass [`MAXIMUM_NAME_FIELD`] with its padding is left as it is, and its data unaligned.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::content::Content;
use super::tree::{Attributes, FileId, Kind, Node, Tree};

/// Data of files from this size on is aligned: below, the padding would cost more than the copy it saves.
const ALIGNED_FROM: u64 = 4096;
/// The alignment.
const PAGE_BYTES: u64 = 4096;
/// The longest name field that readers accept (Linux: `PATH_MAX`).
const MAXIMUM_NAME_FIELD: u64 = 4096;
/// The fixed part of a member: a magic number and 13 fields of 8 hexadecimal digits.
const HEADER_BYTES: u64 = 110;

const TYPE_FIFO: u32 = 0o010_000;
const TYPE_CHARACTER: u32 = 0o020_000;
const TYPE_DIRECTORY: u32 = 0o040_000;
const TYPE_BLOCK: u32 = 0o060_000;
const TYPE_FILE: u32 = 0o100_000;
const TYPE_SYMLINK: u32 = 0o120_000;
const TYPE_SOCKET: u32 = 0o140_000;

/// The fields of a member's header that differ between members.
struct Member<'a> {
    name: &'a [u8],
    inode: u32,
    mode: u32,
    links: u32,
    attributes: Attributes,
    device: (u32, u32),
    length: u64,
}

/// Writes archives one after the other to one stream.
pub(super) struct CpioWriter<W> {
    out: W,
    position: u64,
}

impl<W: Write> CpioWriter<W> {
    /// Starts at position 0 of the stream.
    pub(super) const fn new(out: W) -> Self {
        Self { out, position: 0 }
    }

    /// Writes a whole tree as one archive. `progress` is told how many nodes are done.
    ///
    /// # Errors
    /// When the stream cannot be written or the contents of a file cannot be read.
    pub(super) fn tree(&mut self, tree: &Tree, mut progress: impl FnMut(usize)) -> io::Result<()> {
        let mut files = FileNumbers::count(tree);
        for (inode, (path, node)) in (1..).zip(tree.nodes()) {
            self.node(tree, path, node, inode, &mut files).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", String::from_utf8_lossy(path)))
            })?;
            progress(inode as usize);
        }
        self.trailer()
    }

    fn node(
        &mut self,
        tree: &Tree,
        path: &[u8],
        node: &Node,
        inode: u32,
        files: &mut FileNumbers,
    ) -> io::Result<()> {
        let name = if path.is_empty() { b"." } else { path };
        let mut member = Member {
            name,
            inode,
            mode: type_bits(&node.kind) | node.attributes.mode,
            links: 1,
            attributes: node.attributes,
            device: (0, 0),
            length: 0,
        };
        match &node.kind {
            Kind::Directory => {
                member.links = 2;
                self.header(&member)
            }
            Kind::File(file) => {
                let (first_inode, links, is_first) = files.number(*file, inode);
                member.inode = first_inode;
                member.links = links;
                if is_first { self.file(member, tree.content(*file)) } else { self.header(&member) }
            }
            Kind::Symlink(target) => self.file(member, &Content::Bytes(target.clone())),
            Kind::Character(major, minor) | Kind::Block(major, minor) => {
                member.device = (*major, *minor);
                self.header(&member)
            }
            Kind::Fifo | Kind::Socket => self.header(&member),
        }
    }

    /// Writes an archive of one file.
    ///
    /// # Errors
    /// When the stream cannot be written.
    pub(super) fn single_file(
        &mut self,
        name: &str,
        attributes: Attributes,
        bytes: Vec<u8>,
    ) -> io::Result<()> {
        let mode = TYPE_FILE | attributes.mode;
        let name = name.as_bytes();
        let member = Member { name, inode: 1, mode, links: 1, attributes, device: (0, 0), length: 0 };
        self.file(member, &Content::Bytes(bytes))?;
        self.trailer()
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// When the stream cannot be written.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn file(&mut self, mut member: Member<'_>, content: &Content) -> io::Result<()> {
        member.length = content.length();
        self.header(&member)?;
        let padded = member.length >= ALIGNED_FROM;
        debug_assert!(!padded || self.position.is_multiple_of(4), "data starts at a multiple of four");
        content.copy_to(&mut self.out)?;
        self.position += member.length;
        self.pad_to(4)
    }

    fn trailer(&mut self) -> io::Result<()> {
        let attributes = Attributes::root(0);
        let name = b"TRAILER!!!";
        self.header(&Member { name, inode: 0, mode: 0, links: 1, attributes, device: (0, 0), length: 0 })?;
        // What follows is another archive: it starts where Linux's reader and ours look for one.
        self.pad_to(4)
    }

    fn header(&mut self, member: &Member<'_>) -> io::Result<()> {
        let length = u32::try_from(member.length).map_err(|_| {
            io::Error::new(io::ErrorKind::FileTooLarge, "over 4 GiB, which an initramfs cannot hold")
        })?;
        let name_field = self.name_field(member);
        let Attributes { uid, gid, mtime, .. } = member.attributes;
        let Member { inode, mode, links, device: (major, minor), .. } = *member;
        write!(
            self.out,
            "070701{inode:08x}{mode:08x}{uid:08x}{gid:08x}{links:08x}{mtime:08x}{length:08x}{zero:016x}{major:08x}{minor:08x}{name_field:08x}{zero:08x}",
            zero = 0,
        )?;
        self.out.write_all(member.name)?;
        self.position += HEADER_BYTES + member.name.len() as u64;
        self.zeros(name_field - member.name.len() as u64)?;
        self.pad_to(4)
    }

    /// The length of the name field, NUL bytes included, that puts the data where it should be.
    fn name_field(&self, member: &Member<'_>) -> u64 {
        let plain = member.name.len() as u64 + 1;
        if member.length < ALIGNED_FROM {
            return plain;
        }
        let data = self.position + HEADER_BYTES + plain;
        let padded = plain + (data.next_multiple_of(PAGE_BYTES) - data);
        if padded <= MAXIMUM_NAME_FIELD { padded } else { plain }
    }

    fn pad_to(&mut self, alignment: u64) -> io::Result<()> {
        self.zeros(self.position.next_multiple_of(alignment) - self.position)
    }

    fn zeros(&mut self, count: u64) -> io::Result<()> {
        io::copy(&mut io::Read::take(io::repeat(0), count), &mut self.out)?;
        self.position += count;
        Ok(())
    }
}

const fn type_bits(kind: &Kind) -> u32 {
    match kind {
        Kind::Directory => TYPE_DIRECTORY,
        Kind::File(_) => TYPE_FILE,
        Kind::Symlink(_) => TYPE_SYMLINK,
        Kind::Character(..) => TYPE_CHARACTER,
        Kind::Block(..) => TYPE_BLOCK,
        Kind::Fifo => TYPE_FIFO,
        Kind::Socket => TYPE_SOCKET,
    }
}

/// Hard links: how many names each file has, and the inode number that its first name got.
struct FileNumbers {
    files: BTreeMap<FileId, (u32, Option<u32>)>,
}

impl FileNumbers {
    fn count(tree: &Tree) -> Self {
        let mut files = BTreeMap::new();
        for (_, node) in tree.nodes() {
            if let Kind::File(file) = node.kind {
                files.entry(file).or_insert((0, None)).0 += 1;
            }
        }
        Self { files }
    }

    /// The inode number and link count for a name of `file`, and whether it is the first one.
    fn number(&mut self, file: FileId, inode: u32) -> (u32, u32, bool) {
        let (links, first) = self.files.entry(file).or_insert((1, None));
        let is_first = first.is_none();
        (*first.get_or_insert(inode), *links, is_first)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cpio_reader;
    use super::*;

    fn sample() -> Tree {
        let mut tree = Tree::default();
        let small = tree.add_content(Content::Bytes(b"small".to_vec()));
        let large = tree.add_content(Content::Bytes(vec![0xa5; 10_000]));
        let attributes = Attributes { mode: 0o4755, uid: 1, gid: 2, mtime: 1_700_000_000 };
        for (name, kind) in [
            ("bin", Kind::Directory),
            ("bin/large", Kind::File(large)),
            ("bin/linked", Kind::File(large)),
            ("bin/small", Kind::File(small)),
            ("dev/null", Kind::Character(1, 3)),
            ("dev/disk", Kind::Block(8, 0)),
            ("lib", Kind::Symlink(b"usr/lib".to_vec())),
            ("pipe", Kind::Fifo),
        ] {
            tree.insert(name.as_bytes(), Node { attributes, kind }).expect("inside the root");
        }
        tree
    }

    fn written(tree: &Tree) -> Vec<u8> {
        let mut writer = CpioWriter::new(Vec::new());
        writer.tree(tree, |_| {}).expect("memory");
        writer.finish().expect("memory")
    }

    #[test]
    fn tree_survives_writing_and_reading() {
        let tree = sample();
        let archive = tempfile::tempfile().expect("a temporary file");
        std::os::unix::fs::FileExt::write_all_at(&archive, &written(&tree), 0).expect("room");
        let again = cpio_reader::read(&super::super::content::Section::whole(archive).expect("a file"))
            .expect("well formed");
        let contents = |tree: &Tree| -> Vec<_> {
            tree.nodes()
                .map(|(path, node)| match node.kind {
                    Kind::File(file) => {
                        (path.to_vec(), node.attributes, tree.content(file).read(1 << 20).ok())
                    }
                    _ => (path.to_vec(), node.attributes, Some(format!("{:?}", node.kind).into_bytes())),
                })
                .collect()
        };
        assert_eq!(contents(&tree), contents(&again));
        let file = |name: &[u8]| again.lookup(name).map(|node| node.kind.clone());
        assert_eq!(file(b"bin/large"), file(b"bin/linked"), "hard links stay hard links");
    }

    #[test]
    fn large_files_start_at_page_boundaries() {
        let bytes = written(&sample());
        let start = bytes.windows(10_000).position(|window| window.iter().all(|byte| *byte == 0xa5));
        assert_eq!(start.expect("the file is there") % 4096, 0);
    }

    #[test]
    fn data_of_hard_links_is_written_once() {
        let bytes = written(&sample());
        assert_eq!(bytes.iter().filter(|byte| **byte == 0xa5).count(), 10_000);
    }
}
