//! Reads tar archives (ustar, GNU and pax) as images, or as layers of an image with whiteouts as OCI's image specification has them.
//!
//! Only headers are read: file data stays in the archive until it
//! is copied to the initramfs. Extended attributes are ignored.

use std::collections::HashMap;
use std::io::Read;

use tar::{Archive, Entry, EntryType};

use super::content::{Content, Section, SectionReader};
use super::tree::{Attributes, Kind, Node, Tree};
use crate::failure::{Context, Failure, Outcome};

/// A few bytes of an archive can claim a sparse file of any size, and it is written out whole; no image needs more than this.
const SPARSE_BYTES_MAX: u64 = 1 << 28;
/// Where the magic number of POSIX and GNU archives lies.
const MAGIC: std::ops::Range<usize> = 257..262;

/// Whether these first bytes of a file are those of a tar archive. An archive of the oldest kind has no magic number:
/// its first header is known by its checksum. Nothing but zeroes is an empty archive.
pub(super) fn recognises(start: &[u8]) -> bool {
    let Some(block) = start.get(..512) else { return false };
    if &block[MAGIC] == b"ustar" || start.iter().all(|byte| *byte == 0) {
        return true;
    }
    let sum: u32 = block
        .iter()
        .enumerate()
        .map(|(i, b)| u32::from(if (148..156).contains(&i) { b' ' } else { *b }))
        .sum();
    tar::Header::from_byte_slice(block).cksum().is_ok_and(|stored| stored == sum)
}

/// Reads an archive.
///
/// # Errors
/// When it is cut off or malformed, or a name leaves the root.
pub(super) fn read(archive: &Section) -> Outcome<Tree> {
    let mut tree = Tree::default();
    for_each(archive, |entry| member(&mut tree, archive, entry))?;
    Ok(tree)
}

/// What a member's name says in a layer of an image that has layers.
#[derive(Debug, PartialEq, Eq)]
enum Whiteout<'a> {
    /// Nothing of the layers below is in this directory.
    Opaque(&'a [u8]),
    /// This name of the layers below is gone.
    Gone(Vec<u8>),
    /// Something that only AUFS understands.
    Other,
}

/// Whether a member is a whiteout, by its name.
fn whiteout(name: &[u8]) -> Option<Whiteout<'_>> {
    let name = name.strip_suffix(b"/").unwrap_or(name);
    let start = name.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (directory, last) = name.split_at(start);
    let hidden = last.strip_prefix(b".wh.")?;
    Some(match hidden {
        b".wh..opq" => Whiteout::Opaque(directory),
        _ if hidden.starts_with(b".wh.") || hidden.is_empty() => Whiteout::Other,
        _ => Whiteout::Gone([directory, hidden].concat()),
    })
}

/// Puts a layer over a tree: its whiteouts take away what is below, whatever their place in the archive; then its members are added.
///
/// # Errors
/// As for [`read`].
pub(super) fn apply_layer(tree: &mut Tree, layer: &Section) -> Outcome<()> {
    for_each(layer, |entry| {
        match whiteout(&entry.path_bytes()) {
            Some(Whiteout::Opaque(directory)) => tree.empty(directory),
            Some(Whiteout::Gone(name)) => tree.remove(&name),
            Some(Whiteout::Other) | None => Ok(()),
        }
        .map_err(|error| Failure::ours(error.to_string()))
    })?;
    for_each(layer, |entry| {
        let is_whiteout = whiteout(&entry.path_bytes()).is_some();
        if is_whiteout { Ok(()) } else { member(tree, layer, entry) }
    })
}

/// The files of an archive by their names; of two with a name the later one. Links among them lead to what they name.
///
/// # Errors
/// As for [`read`].
pub(super) fn files(archive: &Section) -> Outcome<HashMap<String, Section>> {
    let tree = read(archive)?;
    let mut files = HashMap::new();
    for (path, _) in tree.nodes() {
        let Some(Node { kind: Kind::File(file), .. }) = tree.lookup(path) else { continue };
        if let (Content::Part(part), Ok(name)) = (tree.content(*file), str::from_utf8(path)) {
            files.insert(name.to_owned(), part.clone());
        }
    }
    Ok(files)
}

fn for_each(
    archive: &Section,
    mut visit: impl FnMut(&mut Entry<'_, SectionReader<'_>>) -> Outcome<()>,
) -> Outcome<()> {
    for entry in Archive::new(archive.reader()).entries_with_seek().context(|| "the archive".into())? {
        let mut entry = entry.context(|| "the archive is damaged".into())?;
        if entry.raw_file_position().saturating_add(stored_length(&entry)) > archive.length {
            return Err(Failure::ours("the archive is cut off"));
        }
        visit(&mut entry)?;
    }
    Ok(())
}

/// Bytes that the member's data takes in the archive; only files have any.
fn stored_length<R: Read>(entry: &Entry<'_, R>) -> u64 {
    if entry.header().entry_type().is_file() { entry.size() } else { 0 }
}

fn member<R: Read>(tree: &mut Tree, archive: &Section, entry: &mut Entry<'_, R>) -> Outcome<()> {
    let name = entry.path_bytes().into_owned();
    let shown = String::from_utf8_lossy(&name).escape_debug().to_string();
    let doing = || format!("member {shown}");
    let attributes = attributes(entry, &shown)?;
    let device = |entry: &Entry<'_, R>| -> Outcome<(u32, u32)> {
        let major = entry.header().device_major().context(doing)?;
        let minor = entry.header().device_minor().context(doing)?;
        Ok((major.unwrap_or(0), minor.unwrap_or(0)))
    };
    let target = |entry: &Entry<'_, R>| -> Outcome<Vec<u8>> {
        let target = entry
            .link_name_bytes()
            .ok_or_else(|| Failure::ours(format!("member {shown} is a link to nothing")))?;
        Ok(target.into_owned())
    };
    let kind = match entry.header().entry_type() {
        EntryType::Directory => Kind::Directory,
        EntryType::Regular | EntryType::Continuous if name.ends_with(b"/") => Kind::Directory,
        EntryType::Regular | EntryType::Continuous => {
            let (offset, length) = (entry.raw_file_position(), entry.size());
            Kind::File(tree.add_content(Content::Part(archive.part(offset, length))))
        }
        EntryType::GNUSparse => {
            let size = entry.size();
            if size > SPARSE_BYTES_MAX {
                return Err(Failure::ours(format!(
                    "member {shown} is a sparse file of {size} bytes: too big"
                )));
            }
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).context(doing)?;
            Kind::File(tree.add_content(Content::Bytes(bytes)))
        }
        EntryType::Symlink => Kind::Symlink(target(entry)?),
        EntryType::Link => {
            let target = target(entry)?;
            return tree.link(&name, &target).map_err(|error| Failure::ours(error.to_string()));
        }
        EntryType::Char => device(entry).map(|(major, minor)| Kind::Character(major, minor))?,
        EntryType::Block => device(entry).map(|(major, minor)| Kind::Block(major, minor))?,
        EntryType::Fifo => Kind::Fifo,
        // Headers that describe the archive, not a member.
        EntryType::XGlobalHeader => return Ok(()),
        other => {
            return Err(Failure::ours(format!(
                "member {shown} has the unknown type {:?}",
                char::from(other.as_byte())
            )));
        }
    };
    tree.insert(&name, Node { attributes, kind }).map_err(|error| Failure::ours(error.to_string()))
}

/// The attributes in the header, or in the pax header before it where the plain one has no room for them.
fn attributes<R: Read>(entry: &mut Entry<'_, R>, shown: &str) -> Outcome<Attributes> {
    let doing = || format!("member {shown}");
    let header = entry.header();
    let mode = header.mode().context(doing)? & 0o7777;
    // Some writers leave the owner's fields blank.
    let blank = |field: &[u8]| field.iter().all(|byte| matches!(byte, 0 | b' '));
    let old = header.as_old();
    let mut uid = if blank(&old.uid) { 0 } else { header.uid().context(doing)? };
    let mut gid = if blank(&old.gid) { 0 } else { header.gid().context(doing)? };
    let mut mtime = if blank(&old.mtime) { 0 } else { header.mtime().context(doing)? };
    if let Some(extensions) = entry.pax_extensions().context(doing)? {
        for extension in extensions.filter_map(Result::ok) {
            // Times have a fraction there, and may lie before 1970.
            let whole = extension.value().ok().map(|value| value.split('.').next().unwrap_or(value));
            let number = whole.and_then(|value| value.parse::<u64>().ok());
            match (extension.key(), number) {
                (Ok("uid"), Some(number)) => uid = number,
                (Ok("gid"), Some(number)) => gid = number,
                (Ok("mtime"), number) => mtime = number.unwrap_or(0),
                _ => {}
            }
        }
    }
    let id = |value: u64| {
        u32::try_from(value).map_err(|_| Failure::ours(format!("member {shown} has the owner {value}")))
    };
    Ok(Attributes { mode, uid: id(uid)?, gid: id(gid)?, mtime: u32::try_from(mtime).unwrap_or(u32::MAX) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tar::{Builder, Header};

    fn header(kind: EntryType, size: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o640);
        header.set_uid(10);
        header.set_gid(20);
        header.set_mtime(1_600_000_000);
        header
    }

    fn archive(fill: impl FnOnce(&mut Builder<Vec<u8>>)) -> Section {
        let mut builder = Builder::new(Vec::new());
        fill(&mut builder);
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&builder.into_inner().expect("memory")).expect("room");
        Section::whole(file).expect("a file")
    }

    /// A header with a name that the tar crate itself would refuse to write.
    fn raw_name(header: &mut Header, name: &[u8]) {
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_cksum();
    }

    #[test]
    fn members_keep_their_attributes() {
        let archive = archive(|builder| {
            builder
                .append_data(&mut header(EntryType::Regular, 4), "./etc/motd", &b"text"[..])
                .expect("memory");
            builder.append_link(&mut header(EntryType::Link, 0), "again", "etc/motd").expect("memory");
            builder.append_link(&mut header(EntryType::Symlink, 0), "link", "/etc/motd").expect("memory");
            let mut device = header(EntryType::Char, 0);
            device.set_device_major(1).expect("fits");
            device.set_device_minor(3).expect("fits");
            builder.append_data(&mut device, "dev/null", &b""[..]).expect("memory");
            let long = "d/".repeat(100) + "file";
            builder.append_data(&mut header(EntryType::Regular, 1), long, &b"x"[..]).expect("memory");
        });
        let tree = read(&archive).expect("well formed");
        let node = tree.lookup(b"etc/motd").expect("is there");
        assert_eq!(node.attributes, Attributes { mode: 0o640, uid: 10, gid: 20, mtime: 1_600_000_000 });
        let Kind::File(file) = node.kind else { panic!("a file") };
        assert_eq!(tree.content(file).read(10).expect("readable"), b"text");
        assert_eq!(tree.lookup(b"again"), Some(node));
        assert_eq!(tree.lookup(b"link"), Some(node), "an absolute link leads to the image's file");
        assert_eq!(tree.lookup(b"dev/null").map(|node| node.kind.clone()), Some(Kind::Character(1, 3)));
        assert!(tree.lookup(("d/".repeat(100) + "file").as_bytes()).is_some());
    }

    #[test]
    fn names_that_leave_the_root_are_refused() {
        let archive = archive(|builder| {
            let mut header = header(EntryType::Regular, 4);
            raw_name(&mut header, b"a/../../etc/passwd");
            builder.append(&header, &b"evil"[..]).expect("memory");
        });
        assert_eq!(
            read(&archive).expect_err("refused").to_string(),
            "member a/../../etc/passwd leaves the image's root"
        );
    }

    #[test]
    fn absolute_names_are_names_in_the_image() {
        let archive = archive(|builder| {
            let mut header = header(EntryType::Regular, 4);
            raw_name(&mut header, b"/etc/passwd");
            builder.append(&header, &b"mine"[..]).expect("memory");
        });
        assert!(read(&archive).expect("taken").lookup(b"etc/passwd").is_some());
    }

    #[test]
    fn hard_link_to_the_host_is_refused() {
        let archive = archive(|builder| {
            let mut header = header(EntryType::Link, 0);
            header.set_link_name_literal("/etc/shadow").expect("fits");
            raw_name(&mut header, b"stolen");
            builder.append(&header, &b""[..]).expect("memory");
        });
        assert!(read(&archive).expect_err("refused").to_string().contains("not in the image"));
    }

    #[test]
    fn cut_off_archive_is_an_error() {
        let whole = archive(|builder| {
            builder
                .append_data(&mut header(EntryType::Regular, 5000), "file", &[7; 5000][..])
                .expect("memory");
        });
        assert!(read(&whole.part(0, 3000)).is_err());
    }

    #[test]
    fn whiteouts_take_away_what_is_below_and_nothing_of_their_own_layer() {
        let file = |builder: &mut Builder<Vec<u8>>, name: &str| {
            builder.append_data(&mut header(EntryType::Regular, 1), name, &b"x"[..]).expect("memory");
        };
        let below = archive(|builder| {
            for name in ["kept", "gone", "tree/a/b", "full/old", "both"] {
                file(builder, name);
            }
        });
        let above = archive(|builder| {
            for name in
                [".wh.gone", ".wh.tree", "full/new", "full/.wh..wh..opq", "both", ".wh.both", ".wh..wh.plnk"]
            {
                file(builder, name);
            }
            file(builder, "absent/.wh.thing");
        });
        let mut tree = Tree::default();
        apply_layer(&mut tree, &below).expect("well formed");
        apply_layer(&mut tree, &above).expect("well formed");
        let names: Vec<_> =
            tree.nodes().map(|(path, _)| String::from_utf8_lossy(path).into_owned()).collect();
        assert_eq!(names, ["", "both", "full", "full/new", "kept"]);
        let evil = archive(|builder| {
            let mut header = header(EntryType::Regular, 1);
            raw_name(&mut header, b"a/../.wh.kept");
            builder.append(&header, &b"x"[..]).expect("memory");
        });
        assert!(apply_layer(&mut tree, &evil).is_err());
    }

    #[test]
    fn whiteouts_are_told_by_their_names() {
        assert_eq!(whiteout(b"a/.wh.b"), Some(Whiteout::Gone(b"a/b".to_vec())));
        assert_eq!(whiteout(b"./.wh..wh..opq"), Some(Whiteout::Opaque(b"./")));
        assert_eq!(whiteout(b".wh..wh.aufs"), Some(Whiteout::Other));
        assert_eq!(whiteout(b".wh."), Some(Whiteout::Other));
        assert_eq!(whiteout(b"a.wh.b"), None);
    }

    #[test]
    fn archives_are_recognised() {
        let mut old = Header::new_old();
        old.set_path("file").expect("fits");
        old.set_size(0);
        old.set_cksum();
        assert!(recognises(old.as_bytes()));
        assert!(recognises(header(EntryType::Regular, 0).as_bytes()));
        assert!(!recognises(&[b'x'; 512]));
        assert!(!recognises(b"short"));
    }
}
