//! Reads tar archives (ustar, GNU and pax) as images. Only headers are read: file data stays in the archive until it
//! is copied to the initramfs. Extended attributes are ignored.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use tar::{Archive, Entry, EntryType};

use super::content::Content;
use super::tree::{Attributes, Kind, Node, Tree};
use crate::failure::{Context, Failure, Outcome};

/// A few bytes of an archive can claim a sparse file of any size, and it is written out whole; no image needs more than this.
const SPARSE_BYTES_MAX: u64 = 1 << 28;
/// Where the magic number of POSIX and GNU archives lies.
const MAGIC: std::ops::Range<usize> = 257..262;

/// Whether these first bytes of a file are those of a tar archive. An archive of the oldest kind has no magic number:
/// its first header is known by its checksum. Two empty blocks are an empty archive.
pub(super) fn recognises(start: &[u8]) -> bool {
    let Some(block) = start.get(..512) else { return false };
    if &block[MAGIC] == b"ustar" || block.iter().all(|byte| *byte == 0) {
        return true;
    }
    let sum: u32 = block
        .iter()
        .enumerate()
        .map(|(i, b)| u32::from(if (148..156).contains(&i) { b' ' } else { *b }))
        .sum();
    tar::Header::from_byte_slice(block).cksum().is_ok_and(|stored| stored == sum)
}

/// Reads the archive in a file.
///
/// # Errors
/// When it is cut off or malformed, or a name leaves the root.
pub(super) fn read(archive: &Arc<File>) -> Outcome<Tree> {
    let mut file: &File = archive;
    file.seek(SeekFrom::Start(0)).context(String::new)?;
    let mut tree = Tree::default();
    let end = file.metadata().context(String::new)?.len();
    for entry in Archive::new(file).entries_with_seek().context(|| "the archive".into())? {
        let mut entry = entry.context(|| "the archive is damaged".into())?;
        if entry.raw_file_position().saturating_add(stored_length(&entry)) > end {
            return Err(Failure::ours("the archive is cut off"));
        }
        member(&mut tree, archive, &mut entry)?;
    }
    Ok(tree)
}

/// Bytes that the member's data takes in the archive; only files have any.
fn stored_length<R: Read>(entry: &Entry<'_, R>) -> u64 {
    if entry.header().entry_type().is_file() { entry.size() } else { 0 }
}

fn member<R: Read>(tree: &mut Tree, archive: &Arc<File>, entry: &mut Entry<'_, R>) -> Outcome<()> {
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
            Kind::File(tree.add_content(Content::Part { archive: Arc::clone(archive), offset, length }))
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

    fn archive(fill: impl FnOnce(&mut Builder<Vec<u8>>)) -> Arc<File> {
        let mut builder = Builder::new(Vec::new());
        fill(&mut builder);
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&builder.into_inner().expect("memory")).expect("room");
        Arc::new(file)
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
        whole.set_len(3000).expect("shortened");
        assert!(read(&whole).is_err());
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
