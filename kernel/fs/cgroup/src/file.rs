//! Files of groups. What a file shows is made when it is read from its beginning; each write is a command of its own. A file that stays open when its
//! group is removed says ENODEV.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use memory::buffer::{Sink, Source};
use vfs::file::{FileFeatures, FileOperations, OpenFile, SeekFrom};
use vfs::inode::{Inode, InodeOperations};
use vfs::text::Text;
use vfs::{Error, OpenFlags, PollEvents, PollTable, Result, allocation};

use crate::attach::Opener;
use crate::group::Group;
use crate::interface::Entry;

/// Most bytes of one write.
const WRITE_MAX: usize = machine::address::PAGE_SIZE;

/// A file of a group, which it does not keep.
pub(crate) struct GroupFile {
    group: Weak<Group>,
    entry: &'static Entry,
}

impl GroupFile {
    pub(crate) fn new(group: &Arc<Group>, entry: &'static Entry) -> Self {
        Self { group: Arc::downgrade(group), entry }
    }
}

impl InodeOperations for GroupFile {
    fn truncate(&self, _inode: &Inode, _size: u64) -> Result<()> {
        // `echo 1 > file` opens with O_TRUNC: there is nothing to cut off.
        Ok(())
    }

    fn open(&self, _inode: &Arc<Inode>, _flags: OpenFlags) -> Result<Option<Arc<dyn FileOperations>>> {
        let group = self.group.upgrade().filter(|group| !group.is_removed()).ok_or(Error::NoDevice)?;
        let entry = self.entry;
        let told = entry.notice.map_or(0, |notice| notice(&group).changes());
        let open = OpenGroupFile {
            group,
            entry,
            opener: Opener::calling(),
            text: sched::Mutex::named("text of a file of a control group", None),
            told: AtomicU64::new(told),
        };
        let open: Arc<dyn FileOperations> = allocation::arc(open)?;
        Ok(Some(open))
    }
}

/// An open file of a group.
struct OpenGroupFile {
    group: Arc<Group>,
    entry: &'static Entry,
    opener: Opener,
    /// What was shown last.
    text: sched::Mutex<Option<Vec<u8>>>,
    /// The changes that a read has shown. Relaxed: of two reads at a time one counts.
    told: AtomicU64,
}

/// Without blanks and line breaks around it.
fn trimmed(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    bytes[..end].trim_ascii()
}

impl FileOperations for OpenGroupFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE | FileFeatures::POLLABLE
    }

    fn read(&self, _file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let show = self.entry.show.ok_or(Error::Invalid)?;
        let mut text = self.text.lock();
        if *position == 0 || text.is_none() {
            if self.group.is_removed() {
                return Err(Error::NoDevice);
            }
            if let Some(notice) = self.entry.notice {
                self.told.store(notice(&self.group).changes(), Ordering::Relaxed);
            }
            let mut out = Text::new();
            show(&self.group, &mut out)?;
            *text = Some(out.finish()?);
        }
        let bytes = text.as_deref().unwrap_or(&[]);
        let start = usize::try_from(*position).unwrap_or(usize::MAX).min(bytes.len());
        let number = sink.write(&bytes[start..])?;
        *position += number as u64;
        Ok(number)
    }

    fn write(&self, _file: &OpenFile, position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let store = self.entry.store.ok_or(Error::Invalid)?;
        if source.remaining() > WRITE_MAX {
            return Err(Error::TooBig);
        }
        let mut bytes = allocation::filled(0u8, source.remaining())?;
        let number = source.read(&mut bytes)?;
        if self.group.is_removed() {
            return Err(Error::NoDevice);
        }
        self.opener.check_border(&self.group, self.entry)?;
        store(&self.group, &self.opener, trimmed(&bytes[..number]))?;
        *position += number as u64;
        Ok(number)
    }

    fn seek(&self, _file: &OpenFile, current: u64, target: SeekFrom) -> Result<u64> {
        let (base, offset) = match target {
            SeekFrom::Start(offset) => (0, offset),
            SeekFrom::Current(offset) => (i64::try_from(current).map_err(|_| Error::Overflow)?, offset),
            _ => return Err(Error::Invalid),
        };
        u64::try_from(base.checked_add(offset).ok_or(Error::Overflow)?).map_err(|_| Error::Invalid)
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        let ready = PollEvents::INPUT | PollEvents::OUTPUT;
        let Some(notice) = self.entry.notice.map(|notice| notice(&self.group)) else { return ready };
        if let Some(table) = table {
            notice.register(table);
        }
        if notice.changes() == self.told.load(Ordering::Relaxed) {
            ready
        } else {
            ready | PollEvents::PRIORITY | PollEvents::ERROR
        }
    }
}
