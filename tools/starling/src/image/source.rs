//! Tells what form an image comes in and reads it. The form is recognised by content, not by name.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::content::Section;
use super::oci::{Bundle, Choice, Execution, Layout};
use super::tree::Tree;
use super::{FileSystem, cpio_reader, default_image, directory, tarball};
use crate::failure::{Context, Failure, Outcome};
use crate::progress::Progress;
use crate::store::{ImageName, Store, debian_suite, make_debian};

/// As many as tell what an image is.
const FIRST_BYTES: usize = 2048;

/// Compression formats that are recognised but not read.
const OTHER_COMPRESSION: [(&[u8], &str); 4] =
    [(b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh", "bzip2"), (b"\x04\x22\x4d\x18", "lz4")];

/// What is said of a file that is nothing of it.
const NO_IMAGE: &str =
    "neither a directory nor a tar or cpio archive nor an ext2, ext3, ext4 or squashfs file system";

/// A root file system, and how its programs are run unless told otherwise.
#[derive(Debug)]
pub(crate) struct Image {
    /// The root file system.
    pub(crate) tree: Tree,
    /// What the image says of running it.
    pub(crate) execution: Execution,
    /// The file system that the image is, if it is one: the machine gets it as a disk, and the tree is empty.
    pub(crate) file_system: Option<FileSystem>,
}

impl From<Tree> for Image {
    fn from(tree: Tree) -> Self {
        Self { tree, execution: Execution::default(), file_system: None }
    }
}

/// What was found where an image was looked for.
#[derive(Debug)]
pub(crate) enum Source {
    /// A root file system.
    Tree(Tree),
    /// An image in layers.
    Bundle(Box<Bundle>),
    /// A file system.
    FileSystem(FileSystem),
}

/// The image that the user named, by its place or by its name in the store, or the default image.
///
/// # Errors
/// When the image is not there, is no image, or is damaged.
pub(crate) fn open(image: Option<&Path>, progress: &Progress) -> Outcome<Image> {
    let Some(path) = image else {
        return default_image::tree(progress).map(Image::from);
    };
    let kept = if path.exists() { None } else { in_store(path, progress)? };
    let source = match kept {
        Some(bundle) => Source::Bundle(Box::new(bundle)),
        None => source(path, Choice::Only, progress)?,
    };
    match source {
        Source::Tree(tree) => Ok(Image::from(tree)),
        Source::FileSystem(file_system) => {
            Ok(Image { file_system: Some(file_system), ..Image::from(Tree::default()) })
        }
        Source::Bundle(bundle) => {
            progress.say("unpacking the image");
            let tree = bundle.tree().map_err(|failure| about(path, &failure))?;
            Ok(Image { execution: bundle.execution, ..Image::from(tree) })
        }
    }
}

/// The image of that name in the store, where Debian's are made when they are first asked for. What is no name is in no store.
fn in_store(path: &Path, progress: &Progress) -> Outcome<Option<Bundle>> {
    let Some(name) = path.to_str().and_then(|text| text.parse::<ImageName>().ok()) else { return Ok(None) };
    let found = match Store::existing()? {
        Some(store) => store.find(&name).map_err(|failure| about(path, &failure))?,
        None => None,
    };
    if found.is_some() || debian_suite(&name).is_none() {
        return Ok(found);
    }
    let store = Store::writable()?;
    make_debian(&store, &name, &[], progress)?;
    store.find(&name).map_err(|failure| about(path, &failure))
}

/// What is at a place.
///
/// # Errors
/// When it is not there, is no image, or is damaged.
pub(crate) fn source(path: &Path, choice: Choice<'_>, progress: &Progress) -> Outcome<Source> {
    let metadata = std::fs::metadata(path).context(|| format!("image {}", path.display()))?;
    let found = if let Some(layout) = Layout::in_directory(path) {
        bundle(&layout, choice)
    } else if metadata.is_dir() {
        progress.say("reading the image");
        directory::read(path).map(Source::Tree)
    } else if metadata.is_file() {
        File::open(path).context(String::new).and_then(|file| archive(file, choice, progress))
    } else {
        // Opening a pipe would wait for its writer; an archive is read at any position, which a pipe or a device does not do.
        Err(Failure::ours("neither a directory nor a regular file"))
    };
    found.map_err(|failure| about(path, &failure))
}

fn bundle(layout: &Layout, choice: Choice<'_>) -> Outcome<Source> {
    Bundle::find(layout, choice).map(|bundle| Source::Bundle(Box::new(bundle)))
}

/// Errors of the operations on the image itself say nothing but what the operating system says.
fn about(path: &Path, failure: &Failure) -> Failure {
    let text = failure.to_string();
    Failure::ours(format!("image {}: {}", path.display(), text.trim_start_matches(": ")))
}

/// The tree in an archive that is no image in layers, compressed or not.
pub(super) fn tree(file: File, progress: &Progress) -> Outcome<Tree> {
    match archive(file, Choice::Only, progress)? {
        Source::Tree(tree) => Ok(tree),
        Source::Bundle(bundle) => bundle.tree(),
        Source::FileSystem(found) => {
            Err(Failure::ours(format!("a file system ({}), not an archive", found.name())))
        }
    }
}

/// What a file is: a file system, or an archive, which may be compressed.
fn archive(file: File, choice: Choice<'_>, progress: &Progress) -> Outcome<Source> {
    let mut whole = Section::whole(file).context(String::new)?;
    let mut start = whole.first_bytes(FIRST_BYTES).context(String::new)?;
    let is_compressed = start.starts_with(b"\x1f\x8b");
    if is_compressed {
        progress.say("unpacking the image");
        whole = decompress(&whole)?;
        start = whole.first_bytes(FIRST_BYTES).context(String::new)?;
    }
    if cpio_reader::recognises(&start) {
        return cpio_reader::read(&whole).map(Source::Tree);
    }
    if tarball::recognises(&start) {
        return match Layout::in_archive(&whole)? {
            Some(layout) => bundle(&layout, choice),
            None => tarball::read(&whole).map(Source::Tree),
        };
    }
    match FileSystem::recognise(&start) {
        Some(found) if is_compressed => {
            return Err(Failure::ours(format!(
                "a file system ({}) compressed with gzip: unpack it first",
                found.name()
            )));
        }
        Some(found) => return Ok(Source::FileSystem(found)),
        None => {}
    }
    match OTHER_COMPRESSION.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, name)) => Err(Failure::ours(format!("compressed with {name}: unpack it first"))),
        None => Err(Failure::ours(NO_IMAGE)),
    }
}

/// Unpacks into a file without a name, so that members can be read at any position and nothing is left behind.
fn decompress(packed: &Section) -> Outcome<Section> {
    let mut plain = tempfile::tempfile().context(|| "a temporary file".into())?;
    let mut unpacker = MultiGzDecoder::new(io::BufReader::new(packed.reader()));
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = unpacker.read(&mut buffer).context(|| "the archive is damaged".into())?;
        if count == 0 {
            return Section::whole(plain).context(|| "a temporary file".into());
        }
        io::Write::write_all(&mut plain, &buffer[..count]).context(|| "a temporary file".into())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn failure(content: &[u8]) -> String {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(content).expect("room");
        let text = open(Some(file.path()), &Progress::silent()).expect_err("no image").to_string();
        text.replace(&file.path().display().to_string(), "X")
    }

    #[test]
    fn what_is_no_image_is_refused_in_one_line() {
        assert_eq!(failure(b"hello"), format!("image X: {NO_IMAGE}"));
        assert_eq!(failure(b""), format!("image X: {NO_IMAGE}"));
        assert_eq!(failure(b"\xfd7zXZ\0rest"), "image X: compressed with xz: unpack it first");
        assert!(failure(b"\x1f\x8bnonsense").starts_with("image X: the archive is damaged"));
        let device = open(Some(Path::new("/dev/zero")), &Progress::silent()).expect_err("no image");
        assert_eq!(device.to_string(), "image /dev/zero: neither a directory nor a regular file");
        let missing = open(Some(Path::new("/nonexistent")), &Progress::silent()).expect_err("is not there");
        assert_eq!(missing.to_string(), "image /nonexistent: No such file or directory");
    }

    #[test]
    fn file_system_is_told_from_an_empty_archive() {
        let mut bytes = vec![0; 10_240];
        let open = |bytes: &[u8]| {
            let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
            file.write_all(bytes).expect("room");
            open(Some(file.path()), &Progress::silent()).expect("an image").file_system
        };
        assert_eq!(open(&bytes), None);
        bytes[1080..1082].copy_from_slice(b"\x53\xef");
        assert_eq!(open(&bytes), Some(FileSystem::Ext));
        bytes[..4].copy_from_slice(b"hsqs");
        assert_eq!(open(&bytes), Some(FileSystem::Squashfs));
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(&bytes).expect("memory");
        let packed = packer.finish().expect("memory");
        assert_eq!(
            failure(&packed),
            "image X: a file system (squashfs) compressed with gzip: unpack it first"
        );
        // What is left of a file system whose superblock has no magic number any more.
        bytes[..4].copy_from_slice(&[0; 4]);
        bytes[1081] = 0;
        assert_eq!(failure(&bytes), format!("image X: {NO_IMAGE}"));
    }

    #[test]
    fn compressed_archive_is_unpacked() {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_size(4);
        header.set_mode(0o644);
        builder.append_data(&mut header, "etc/motd", &b"text"[..]).expect("memory");
        let plain = builder.into_inner().expect("memory");
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        let mut packer = flate2::write::GzEncoder::new(&mut file, flate2::Compression::fast());
        packer.write_all(&plain).expect("room");
        packer.finish().expect("room");
        let tree = open(Some(file.path()), &Progress::silent()).expect("well formed");
        assert!(tree.tree.lookup(b"etc/motd").is_some());
    }
}
