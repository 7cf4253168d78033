//! Writes a tree as a tar archive: the layer of an image that is made here. The same tree makes the same bytes.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tar::{Builder, EntryType, Header};

use super::tree::{Attributes, FileId, Kind, Tree};

/// Writes all nodes, directories before what is in them. Sockets are left out, as `tar` does.
pub(crate) fn write(tree: &Tree, out: impl Write) -> io::Result<()> {
    let mut builder = Builder::new(out);
    let mut first_names: HashMap<FileId, &[u8]> = HashMap::new();
    for (path, node) in tree.nodes() {
        let mut header = header(node.attributes);
        let name = as_path(path);
        let (kind, target) = match &node.kind {
            // The root has no name; its attributes are in a member all the same.
            Kind::Directory if path.is_empty() => {
                header.set_entry_type(EntryType::Directory);
                header.as_old_mut().name[..2].copy_from_slice(b"./");
                header.set_cksum();
                builder.append(&header, io::empty())?;
                continue;
            }
            Kind::Directory => (EntryType::Directory, None),
            Kind::File(file) => match first_names.get(file) {
                Some(first) => (EntryType::Link, Some(*first)),
                None => {
                    first_names.insert(*file, path);
                    let mut data = Vec::new();
                    let content = tree.content(*file);
                    header.set_size(content.length());
                    header.set_entry_type(EntryType::Regular);
                    content.copy_to(&mut data)?;
                    builder.append_data(&mut header, name, data.as_slice())?;
                    continue;
                }
            },
            Kind::Symlink(target) => (EntryType::Symlink, Some(target.as_slice())),
            Kind::Character(major, minor) => {
                header.set_device_major(*major)?;
                header.set_device_minor(*minor)?;
                (EntryType::Char, None)
            }
            Kind::Block(major, minor) => {
                header.set_device_major(*major)?;
                header.set_device_minor(*minor)?;
                (EntryType::Block, None)
            }
            Kind::Fifo => (EntryType::Fifo, None),
            Kind::Socket => continue,
        };
        header.set_entry_type(kind);
        match target {
            Some(target) => builder.append_link(&mut header, name, as_path(target))?,
            None => builder.append_data(&mut header, name, io::empty())?,
        }
    }
    builder.into_inner()?.flush()
}

fn as_path(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

fn header(attributes: Attributes) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(0);
    header.set_mode(attributes.mode);
    header.set_uid(attributes.uid.into());
    header.set_gid(attributes.gid.into());
    header.set_mtime(attributes.mtime.into());
    header
}

#[cfg(test)]
mod tests {
    use super::super::content::{Content, Section};
    use super::super::tarball;
    use super::super::tree::Node;
    use super::*;

    #[test]
    fn tree_survives_writing_and_reading() {
        let mut tree = Tree::default();
        let file = tree.add_content(Content::Bytes(vec![7; 3000]));
        let attributes = Attributes { mode: 0o4755, uid: 70_000, gid: 3_000_000, mtime: 1_700_000_000 };
        let long = "d/".repeat(120) + "file";
        for (name, kind) in [
            ("", Kind::Directory),
            ("bin/one", Kind::File(file)),
            ("bin/two", Kind::File(file)),
            ("dev/null", Kind::Character(1, 3)),
            ("dev/disk", Kind::Block(259, 70_000)),
            ("lib", Kind::Symlink(b"/usr/lib".to_vec())),
            ("pipe", Kind::Fifo),
            (long.as_str(), Kind::File(file)),
        ] {
            tree.insert(name.as_bytes(), Node { attributes, kind }).expect("inside the root");
        }
        let mut archive = tempfile::tempfile().expect("a temporary file");
        write(&tree, &mut archive).expect("room");
        let again = tarball::read(&Section::whole(archive).expect("a file")).expect("well formed");
        assert_eq!(again.len(), tree.len());
        for (path, node) in tree.nodes() {
            let found = again.nodes().find(|(known, _)| *known == path).expect("is there").1;
            assert_eq!(found.attributes, node.attributes);
            match (&found.kind, &node.kind) {
                (Kind::File(new), Kind::File(old)) => {
                    let read = |tree: &Tree, file| tree.content(file).read(10_000).expect("readable");
                    assert_eq!(read(&again, *new), read(&tree, *old));
                }
                (new, old) => assert_eq!(new, old),
            }
        }
        let (one, two) = (again.lookup(b"bin/one"), again.lookup(b"bin/two"));
        assert_eq!(one.map(|node| &node.kind), two.map(|node| &node.kind), "hard links stay");
    }
}
