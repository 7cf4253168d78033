//! Files that show a long text part by part: what is kept of it for an open file does not grow with the text.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::buffer::{Sink, Source};

use super::file::seek;
use crate::file::{FileFeatures, FileOperations, OpenFile, SeekFrom};
use crate::text::Text;
use crate::{Error, Result, allocation};

/// A part ends with the first piece that brings it to so many bytes.
pub const PART_BYTES: usize = 16_384;

/// A text of pieces that have places in an order, as the regions of an address space have addresses.
pub trait Parts: Send + Sync + 'static {
    /// Writes pieces from a place on, 0 being the first, until they are [`PART_BYTES`] long or there are no more. Returns where the next part begins, if there
    /// is one.
    fn write_part(&self, from: u64, out: &mut Text) -> Result<Option<u64>>;
}

/// What an open file holds of its text.
#[derive(Default)]
struct Shown {
    bytes: Vec<u8>,
    /// Where `bytes` begin in the text.
    start: u64,
    /// Where the part behind them begins; `None` behind the last.
    next: Option<u64>,
}

impl Shown {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// An open file of parts. Who reads on sees pieces as they are when their part is reached; reading at the beginning begins a new text.
pub struct PartedFile<P> {
    parts: P,
    shown: sched::Mutex<Shown>,
}

impl<P: Parts> PartedFile<P> {
    /// An open file of `parts`.
    pub fn new(parts: P) -> Result<Arc<Self>> {
        allocation::arc(Self { parts, shown: sched::Mutex::new(Shown::default()) })
    }

    fn part(&self, start: u64, from: u64) -> Result<Shown> {
        let mut out = Text::new();
        let next = self.parts.write_part(from, &mut out)?;
        Ok(Shown { bytes: out.finish()?, start, next })
    }

    /// Makes `shown` the part with the byte at a position; false: the text ends before.
    fn find(&self, shown: &mut Shown, position: u64) -> Result<bool> {
        while position >= shown.end() {
            let Some(next) = shown.next else { return Ok(false) };
            *shown = self.part(shown.end(), next)?;
        }
        Ok(true)
    }
}

impl<P: Parts> FileOperations for PartedFile<P> {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE | FileFeatures::POLLABLE
    }

    fn read(&self, _file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let mut shown = self.shown.lock();
        // Empty at the beginning is a file that was not read yet, or has nothing to show.
        if *position < shown.start || *position == 0 || shown.end() == 0 {
            *shown = self.part(0, 0)?;
        }
        let mut done = 0;
        while !sink.is_full() {
            let written = match self.find(&mut shown, *position) {
                Ok(true) => {
                    sink.write(&shown.bytes[(*position - shown.start) as usize..]).map_err(Error::from)
                }
                Ok(false) => break,
                Err(error) => Err(error),
            };
            match written {
                Ok(count) => {
                    done += count;
                    *position += count as u64;
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    fn write(&self, _file: &OpenFile, _position: &mut u64, _source: &mut Source<'_>) -> Result<usize> {
        Err(Error::Invalid)
    }

    fn seek(&self, _file: &OpenFile, current: u64, target: SeekFrom) -> Result<u64> {
        seek(current, target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpenFlags;
    use core::fmt::Write;
    use core::sync::atomic::{AtomicU64, Ordering};

    const LINE: usize = 8;
    const LINES: u64 = 10_000;

    /// Lines of eight bytes, each with its number.
    struct Lines {
        made: AtomicU64,
    }

    impl Parts for Lines {
        fn write_part(&self, from: u64, out: &mut Text) -> Result<Option<u64>> {
            for line in from..LINES {
                self.made.fetch_add(1, Ordering::Relaxed);
                let _ = writeln!(out, "{line:07}");
                if out.as_bytes().len() >= PART_BYTES {
                    return Ok(Some(line + 1));
                }
            }
            Ok(None)
        }
    }

    struct Opened {
        file: Arc<PartedFile<Lines>>,
        open: Arc<OpenFile>,
    }

    impl Opened {
        fn new() -> Opened {
            let file = PartedFile::new(Lines { made: AtomicU64::new(0) }).unwrap();
            let inode = crate::anonymous::shared_inode().unwrap();
            let open = OpenFile::anonymous(inode, file.clone(), OpenFlags::empty()).unwrap();
            Opened { file, open }
        }

        fn read(&self, at: u64, count: usize) -> Vec<u8> {
            let (mut bytes, mut position) = (alloc::vec![0; count], at);
            let read = self.file.read(&self.open, &mut position, &mut Sink::kernel(&mut bytes)).unwrap();
            assert_eq!(position, at + read as u64);
            bytes.truncate(read);
            bytes
        }

        fn kept(&self) -> usize {
            self.file.shown.lock().bytes.len()
        }
    }

    fn whole() -> Vec<u8> {
        let mut text = Text::new();
        (0..LINES).for_each(|line| writeln!(text, "{line:07}").unwrap());
        text.finish().unwrap()
    }

    #[test]
    fn a_text_is_the_same_in_pieces_of_any_size() {
        let expected = whole();
        for size in [1, 7, 4096, PART_BYTES, PART_BYTES + 1, expected.len() * 2] {
            let opened = Opened::new();
            let mut text = Vec::new();
            loop {
                let piece = opened.read(text.len() as u64, size);
                if piece.is_empty() {
                    break;
                }
                assert!(piece.len() == size || text.len() + piece.len() == expected.len());
                text.extend(piece);
            }
            assert!(text == expected, "pieces of {size}");
        }
    }

    #[test]
    fn what_is_kept_and_made_does_not_grow_with_the_text() {
        let opened = Opened::new();
        assert_eq!(opened.read(0, LINE), b"0000000\n");
        assert_eq!(opened.kept(), PART_BYTES);
        assert_eq!(opened.file.parts.made.load(Ordering::Relaxed), (PART_BYTES / LINE) as u64);
        opened.read(0, usize::MAX >> 40);
        assert!(opened.kept() <= PART_BYTES);
    }

    #[test]
    fn any_position_can_be_read_at() {
        let (opened, expected) = (Opened::new(), whole());
        for line in [9_999, 3, 5_000, 4_999, 0, 9_000] {
            let at = line * LINE + 2;
            assert_eq!(opened.read(at as u64, 13), expected[at..expected.len().min(at + 13)], "line {line}");
        }
        assert!(opened.read(expected.len() as u64, 1).is_empty());
        assert!(opened.read(u64::MAX - 1, 1).is_empty());
        assert_eq!(opened.read(0, LINE), b"0000000\n");
    }
}
