//! `timens_offsets`: where the clocks of a process's children begin (time_namespaces(7)).

use alloc::sync::Arc;

use memory::buffer::{Sink, Source};
use vfs::file::{FileFeatures, FileOperations, SeekFrom};
use vfs::generated::{File, GeneratedFile};
use vfs::text::Text;
use vfs::{Capabilities, Error, OpenFile, OpenFlags, Result};

use super::process::Subject;
use crate::credentials::identity::Credentials;
use crate::errno::Errno;
use crate::name_space::{NameSpaces, Space, TimeSpace, Wanted};
use crate::terminal::calling_thread;

/// A page: two lines take less.
const TEXT_BYTES: usize = machine::address::PAGE_SIZE;

struct Opened {
    text: Arc<GeneratedFile>,
    subject: Subject,
    opener: Arc<Credentials>,
}

struct Shown(Subject);

fn space_of(subject: &Subject) -> Result<Space<TimeSpace>> {
    Ok(NameSpaces::of(&*subject.thread()?).times_of_children)
}

impl File for Shown {
    fn show(&self, out: &mut Text) -> Result<()> {
        space_of(&self.0)?.show(out);
        Ok(())
    }
}

pub(super) fn open(subject: &Subject, _flags: OpenFlags) -> Result<Arc<dyn FileOperations>> {
    let opener = calling_thread().ok_or(Error::Invalid)?.credentials();
    let shown = vfs::allocation::arc(Shown(subject.clone()))?;
    let opened = Opened { text: GeneratedFile::new(shown)?, subject: subject.clone(), opener };
    let opened: Arc<dyn FileOperations> = vfs::allocation::arc(opened)?;
    Ok(opened)
}

impl FileOperations for Opened {
    fn features(&self) -> FileFeatures {
        self.text.features()
    }

    fn read(&self, file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        self.text.read(file, position, sink)
    }

    fn seek(&self, file: &OpenFile, current: u64, target: SeekFrom) -> Result<u64> {
        self.text.seek(file, current, target)
    }

    /// A text of its own each time: the position stays.
    fn write(&self, _file: &OpenFile, position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let length = source.remaining();
        if *position != 0 || length >= TEXT_BYTES {
            return Err(Error::Invalid);
        }
        let mut text = vfs::allocation::filled(0u8, length)?;
        source.read(&mut text)?;
        let wanted = Wanted::parse(&text).map_err(|_| Error::Invalid)?;
        let space = space_of(&self.subject)?;
        if !self.opener.has_in(space.owner(), Capabilities::SYS_TIME) {
            return Err(Error::NotPermitted);
        }
        space.write(&wanted).map_err(|errno| match errno {
            Errno::EACCES => Error::AccessDenied,
            _ => Error::Range,
        })?;
        Ok(wanted.length)
    }
}
