//! The bytes of a regular file in an image, left where they are until the initramfs is written.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

/// Where the bytes of a file are.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// In memory.
    Bytes(Vec<u8>),
    /// A part of an archive.
    Part {
        /// The archive, uncompressed.
        archive: Arc<File>,
        /// Where the part starts.
        offset: u64,
        /// How long it is.
        length: u64,
    },
    /// A file on the host, opened when it is needed.
    HostFile {
        /// Where it is.
        path: PathBuf,
        /// How long it was when the directory was read.
        length: u64,
    },
}

impl Content {
    /// The number of bytes.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Part { length, .. } | Self::HostFile { length, .. } => *length,
        }
    }

    /// Copies the bytes to `out`. A host file that has become shorter since its directory was read is an error:
    /// the archive's header is already written.
    pub(crate) fn copy_to(&self, out: &mut impl io::Write) -> io::Result<()> {
        match self {
            Self::Bytes(bytes) => out.write_all(bytes),
            Self::Part { archive, offset, length } => {
                let mut reader = PositionedReader { file: archive, offset: *offset };
                copy_exactly(&mut reader, *length, out)
            }
            Self::HostFile { path, length } => {
                let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
                let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
                let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
                file.seek(SeekFrom::Start(0))?;
                copy_exactly(&mut file, *length, out)
            }
        }
    }

    /// The bytes in memory, if there are at most `limit`.
    pub(crate) fn read(&self, limit: u64) -> io::Result<Vec<u8>> {
        if self.length() > limit {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        let mut bytes = Vec::new();
        self.copy_to(&mut bytes)?;
        Ok(bytes)
    }
}

fn copy_exactly(reader: &mut impl Read, length: u64, out: &mut impl io::Write) -> io::Result<()> {
    let copied = io::copy(&mut reader.take(length), out)?;
    if copied == length { Ok(()) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof)) }
}

/// Reads a shared file from a position of its own.
struct PositionedReader<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for PositionedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_an_archive_is_read_where_it_lies() {
        let file = tempfile::tempfile().expect("a temporary file");
        file.write_all_at(b"0123456789", 0).expect("room");
        let part = Content::Part { archive: Arc::new(file), offset: 3, length: 4 };
        assert_eq!(part.read(100).expect("readable"), b"3456");
        assert!(part.read(3).is_err());
    }

    #[test]
    fn shrunken_file_is_an_error() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let content = Content::HostFile { path: file.path().into(), length: 5 };
        assert_eq!(content.read(100).expect_err("too short").kind(), io::ErrorKind::UnexpectedEof);
    }
}
