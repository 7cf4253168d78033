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
    /// A part of an archive, uncompressed.
    Part(Section),
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
            Self::Part(part) => part.length,
            Self::HostFile { length, .. } => *length,
        }
    }

    /// Copies the bytes to `out`. A host file that has become shorter since its directory was read is an error:
    /// the archive's header is already written.
    pub(crate) fn copy_to(&self, out: &mut impl io::Write) -> io::Result<()> {
        match self {
            Self::Bytes(bytes) => out.write_all(bytes),
            Self::Part(part) => copy_exactly(&mut part.reader(), part.length, out),
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

/// A part of a file: an archive, a member of one, or an archive inside another.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    file: Arc<File>,
    offset: u64,
    /// Its length in bytes.
    pub(crate) length: u64,
}

impl Section {
    /// A whole file.
    pub(crate) fn whole(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), offset: 0, length })
    }

    /// A part of this part, which need not have all of it: reading ends where the file does.
    pub(crate) fn part(&self, offset: u64, length: u64) -> Self {
        Self { file: Arc::clone(&self.file), offset: self.offset.saturating_add(offset), length }
    }

    /// Reads it from its beginning. Each reader has a position of its own.
    pub(crate) fn reader(&self) -> SectionReader<'_> {
        SectionReader { section: self, position: 0 }
    }

    /// Fills a buffer from a place in it. Fails when it ends before.
    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], place: u64) -> io::Result<()> {
        let mut reader = SectionReader { section: self, position: place };
        reader.read_exact(buffer)
    }

    /// Its first bytes, fewer if it is shorter.
    pub(crate) fn first_bytes(&self, count: usize) -> io::Result<Vec<u8>> {
        let mut start = Vec::new();
        self.reader().take(count as u64).read_to_end(&mut start)?;
        Ok(start)
    }
}

/// A position in a [`Section`].
#[derive(Debug)]
pub(crate) struct SectionReader<'a> {
    section: &'a Section,
    position: u64,
}

impl Read for SectionReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.section.length.saturating_sub(self.position);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let place = self.section.offset.saturating_add(self.position);
        let count = self.section.file.read_at(&mut buffer[..wanted], place)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for SectionReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
            SeekFrom::End(distance) => self.section.length.checked_add_signed(distance),
        };
        self.position = place.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_an_archive_is_read_where_it_lies() {
        let file = tempfile::tempfile().expect("a temporary file");
        file.write_all_at(b"0123456789", 0).expect("room");
        let whole = Section::whole(file).expect("a file");
        assert_eq!(whole.part(2, 6).part(1, 100).first_bytes(3).expect("readable"), b"345");
        let part = Content::Part(whole.part(3, 4));
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
