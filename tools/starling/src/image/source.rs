//! Tells what form an image comes in and reads it. The form is recognised by content, not by name.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;

use super::tree::Tree;
use super::{cpio_reader, default_image, directory, tarball};
use crate::failure::{Context, Failure, Outcome};
use crate::progress::Progress;

/// Compression formats that are recognised but not read.
const OTHER_COMPRESSION: [(&[u8], &str); 4] =
    [(b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh", "bzip2"), (b"\x04\x22\x4d\x18", "lz4")];

/// The tree of the image that the user named, or of the default image.
///
/// # Errors
/// When the image is not there, is no image, or is damaged.
pub(crate) fn open(image: Option<&Path>, progress: &Progress) -> Outcome<Tree> {
    let Some(path) = image else {
        return default_image::tree(progress);
    };
    let doing = || format!("image {}", path.display());
    let metadata = std::fs::metadata(path).context(doing)?;
    let tree = if metadata.is_dir() {
        progress.say("reading the image");
        directory::read(path)
    } else if metadata.is_file() {
        File::open(path).context(doing).and_then(|file| archive(file, progress))
    } else {
        // Opening a pipe would wait for its writer; an archive is read at any position, which a pipe or a device does not do.
        Err(Failure::ours("neither a directory nor a regular file"))
    };
    tree.map_err(|failure| {
        let text = failure.to_string();
        // Errors of the operations on the image itself say nothing but what the operating system says.
        Failure::ours(format!("{}: {}", doing(), text.trim_start_matches(": ")))
    })
}

/// The tree in an archive, compressed or not.
pub(super) fn archive(file: File, progress: &Progress) -> Outcome<Tree> {
    let mut start = first_bytes(&file)?;
    let mut file = Arc::new(file);
    if start.starts_with(b"\x1f\x8b") {
        progress.say("unpacking the image");
        file = Arc::new(decompress(&file)?);
        start = first_bytes(&file)?;
    }
    if cpio_reader::recognises(&start) {
        return cpio_reader::read(&file);
    }
    if tarball::recognises(&start) {
        return tarball::read(&file);
    }
    match OTHER_COMPRESSION.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, name)) => Err(Failure::ours(format!("compressed with {name}: unpack it first"))),
        None => Err(Failure::ours("neither a directory nor a tar or cpio archive")),
    }
}

fn first_bytes(file: &File) -> Outcome<Vec<u8>> {
    let mut start = vec![0; 512];
    let mut filled = 0;
    while filled < start.len() {
        match file.read_at(&mut start[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context(String::new),
        }
    }
    start.truncate(filled);
    Ok(start)
}

/// Unpacks into a file without a name, so that members can be read at any position and nothing is left behind.
fn decompress(file: &File) -> Outcome<File> {
    let mut plain = tempfile::tempfile().context(|| "a temporary file".into())?;
    let mut unpacker = MultiGzDecoder::new(io::BufReader::new(file));
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = unpacker.read(&mut buffer).context(|| "the archive is damaged".into())?;
        if count == 0 {
            return Ok(plain);
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
        assert_eq!(failure(b"hello"), "image X: neither a directory nor a tar or cpio archive");
        assert_eq!(failure(b""), "image X: neither a directory nor a tar or cpio archive");
        assert_eq!(failure(b"\xfd7zXZ\0rest"), "image X: compressed with xz: unpack it first");
        assert!(failure(b"\x1f\x8bnonsense").starts_with("image X: the archive is damaged"));
        let device = open(Some(Path::new("/dev/zero")), &Progress::silent()).expect_err("no image");
        assert_eq!(device.to_string(), "image /dev/zero: neither a directory nor a regular file");
        let missing = open(Some(Path::new("/nonexistent")), &Progress::silent()).expect_err("is not there");
        assert_eq!(missing.to_string(), "image /nonexistent: No such file or directory");
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
        assert!(tree.lookup(b"etc/motd").is_some());
    }
}
