//! Files of computed trees.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::buffer::{Sink, Source};

use crate::file::{FileFeatures, FileOperations, OpenFile, SeekFrom};
use crate::flags::OpenFlags;
use crate::inode::Inode;
use crate::text::Text;
use crate::{Error, Result, allocation};

/// Most bytes that one write to a knob takes.
const STORE_MAX: usize = 65_536;

/// What a file shows, and takes.
pub trait File: Send + Sync {
    /// Writes what it shows. When memory runs out the text remembers; no need to look at each write's result.
    fn show(&self, out: &mut Text) -> Result<()>;

    /// Takes what was written; returns how many bytes were understood. Each `write` is a call of its own.
    fn store(&self, bytes: &[u8]) -> Result<usize> {
        let _ = bytes;
        Err(Error::Invalid)
    }

    /// An object of its own for an open file, instead of text (`/proc/PID/mem`, files that can be polled).
    fn open(&self, inode: &Arc<Inode>, flags: OpenFlags) -> Result<Option<Arc<dyn FileOperations>>> {
        let _ = (inode, flags);
        Ok(None)
    }

    /// The owner now, when it changes.
    fn owner(&self) -> Option<(u32, u32)> {
        None
    }

    /// The size that `stat` shows.
    fn size(&self) -> u64 {
        0
    }
}

struct TextFile<S>(S);

impl<S: Fn(&mut Text) -> Result<()> + Send + Sync> File for TextFile<S> {
    fn show(&self, out: &mut Text) -> Result<()> {
        (self.0)(out)
    }
}

struct Knob<S, T> {
    show: S,
    store: T,
}

impl<S, T> File for Knob<S, T>
where
    S: Fn(&mut Text) -> Result<()> + Send + Sync,
    T: Fn(&[u8]) -> Result<()> + Send + Sync,
{
    fn show(&self, out: &mut Text) -> Result<()> {
        (self.show)(out)
    }

    fn store(&self, bytes: &[u8]) -> Result<usize> {
        (self.store)(bytes)?;
        Ok(bytes.len())
    }
}

/// A file that shows what the closure writes.
pub fn text_file(show: impl Fn(&mut Text) -> Result<()> + Send + Sync + 'static) -> Result<Arc<dyn File>> {
    Ok(allocation::arc(TextFile(show))?)
}

/// A file that shows what one closure writes and gives what is written to it to the other.
pub fn knob(
    show: impl Fn(&mut Text) -> Result<()> + Send + Sync + 'static,
    store: impl Fn(&[u8]) -> Result<()> + Send + Sync + 'static,
) -> Result<Arc<dyn File>> {
    Ok(allocation::arc(Knob { show, store })?)
}

/// An open file: what was shown last.
pub struct GeneratedFile {
    file: Arc<dyn File>,
    text: sched::Mutex<Option<Vec<u8>>>,
}

impl GeneratedFile {
    /// An open file of `file`.
    pub fn new(file: Arc<dyn File>) -> Result<Arc<Self>> {
        allocation::arc(Self { file, text: sched::Mutex::new(None) })
    }
}

impl FileOperations for GeneratedFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE | FileFeatures::POLLABLE
    }

    fn read(&self, _file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let mut text = self.text.lock();
        if *position == 0 || text.is_none() {
            let mut out = Text::new();
            self.file.show(&mut out)?;
            *text = Some(out.finish()?);
        }
        let bytes = text.as_deref().unwrap_or(&[]);
        let start = usize::try_from(*position).unwrap_or(usize::MAX).min(bytes.len());
        let number = sink.write(&bytes[start..])?;
        *position += number as u64;
        Ok(number)
    }

    fn write(&self, _file: &OpenFile, position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let mut bytes = allocation::filled(0u8, source.remaining().min(STORE_MAX))?;
        let number = source.read(&mut bytes)?;
        let stored = self.file.store(&bytes[..number])?;
        *position += stored as u64;
        Ok(stored)
    }

    fn seek(&self, _file: &OpenFile, current: u64, target: SeekFrom) -> Result<u64> {
        seek(current, target)
    }
}

/// A seek in a text whose end is not known before everything was shown.
pub(super) fn seek(current: u64, target: SeekFrom) -> Result<u64> {
    let (base, offset) = match target {
        SeekFrom::Start(offset) => (0, offset),
        SeekFrom::Current(offset) => (i64::try_from(current).map_err(|_| Error::Overflow)?, offset),
        _ => return Err(Error::Invalid),
    };
    u64::try_from(base.checked_add(offset).ok_or(Error::Overflow)?).map_err(|_| Error::Invalid)
}
