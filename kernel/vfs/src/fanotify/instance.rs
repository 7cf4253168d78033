//! What a descriptor of `fanotify` stands for: reading events, answering questions, and the marks.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

use machine::address::UserAddr;
use memory::buffer::{Sink, Source};

use super::event::{About, Event};
use super::group::Group;
use super::layout::{self, ForReader, METADATA_BYTES};
use super::mark::{Mark, MarkList, MarkRequest, Marked};
use super::mask::{FanMask, GroupFlags, MarkFlags, MarkedKind};
use crate::attributes::FileKind;
use crate::file::{DescriptorFlags, FileFeatures, FileOperations, OpenFile, ReservedDescriptor};
use crate::flags::{Access, OpenFlags};
use crate::mount::Path;
use crate::poll::{PollEvents, PollTable};
use crate::walk::PathContext;
use crate::watch_account::{Charge, WatchAccount};
use crate::{Error, Result, allocation, anonymous, caller, handle, wait};

/// `FIONREAD`
const BYTES_TO_READ: u32 = 0x541b;
/// An answer: the descriptor, and what it is.
const ANSWER_BYTES: usize = 8;
const ALLOW: u32 = 1;
const DENY: u32 = 2;
/// A descriptor that there is none of.
const NO_DESCRIPTOR: i32 = -1;
/// There is no pidfd, since the process has ended.
const NO_PIDFD: i32 = -1;
/// There is none for another reason.
const PIDFD_FAILED: i32 = -2;

/// Descriptors in the system: without any, there are no marks.
static INSTANCES: AtomicUsize = AtomicUsize::new(0);

/// Whether there may be marks.
pub(super) fn any_marks() -> bool {
    // Relaxed: a mark that was just made may miss what happens at the same time.
    INSTANCES.load(Ordering::Relaxed) != 0
}

/// What the descriptor stands for.
pub struct Fanotify {
    group: Arc<Group>,
    marks: sched::Mutex<Vec<Arc<Mark>>>,
    _charge: Charge,
    _counted: Counted,
}

/// One of [`INSTANCES`], from before it can have marks until it is gone, also if it is never opened for want of memory.
struct Counted;

impl Counted {
    fn new() -> Self {
        INSTANCES.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let before = INSTANCES.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "more descriptors have gone than came");
    }
}

/// `fanotify_init`, its flags checked. `file_flags` are those of descriptors in events.
///
/// # Errors
/// `EMFILE` beyond the limit of groups, `ENOMEM`.
pub fn create_fanotify(
    flags: GroupFlags,
    file_flags: OpenFlags,
    account: &Arc<WatchAccount>,
) -> Result<Arc<OpenFile>> {
    let charge = Charge::group(account)?;
    let group = Group::new(flags, file_flags, account.clone())?;
    let instance = allocation::arc(Fanotify {
        group,
        marks: sched::Mutex::named("marks of a group", Vec::new()),
        _charge: charge,
        _counted: Counted::new(),
    })?;
    let status =
        if flags.contains(GroupFlags::NON_BLOCK) { OpenFlags::NON_BLOCK } else { OpenFlags::empty() };
    OpenFile::anonymous(anonymous::shared_inode()?, instance, status | OpenFlags::READ_WRITE)
}

/// The marks on what a request is about.
fn list_of(place: &Path, kind: MarkedKind) -> Result<&MarkList> {
    Ok(match kind {
        MarkedKind::Inode => place.inode()?.watches()?.marks(),
        MarkedKind::Mount => place.mount.marks(),
        MarkedKind::FileSystem => place.mount.superblock().marks(),
    })
}

impl Fanotify {
    /// The instance behind an open file. Fails with `EINVAL`.
    pub fn of(file: &OpenFile) -> Result<&Self> {
        file.object::<Self>().ok_or(Error::Invalid)
    }

    /// What it is.
    pub fn flags(&self) -> GroupFlags {
        self.group.flags
    }

    /// `FAN_MARK_FLUSH`: takes all marks of a kind back.
    pub fn flush(&self, kind: MarkedKind) {
        self.marks.lock().retain(|mark| {
            let stays = mark.marked.kind() != kind;
            if !stays {
                mark.end();
            }
            stays
        });
    }

    /// `fanotify_mark` for a place that was walked to; the request was checked as far as that is possible without it.
    ///
    /// # Errors
    /// `EACCES`, `ENOTDIR`, `EISDIR`, `EINVAL`, `ENODEV`, `EOPNOTSUPP`, `EEXIST`, `ENOENT`, `ENOSPC`, `ENOMEM`.
    pub fn mark(&self, context: &PathContext<'_>, place: &Path, request: &MarkRequest) -> Result<()> {
        let inode = place.inode()?;
        context.check_place(place, Access::READ)?;
        let is_directory = inode.kind == FileKind::Directory;
        let flags = self.group.flags;
        let names_need_directory = flags.contains(GroupFlags::REPORT_TARGET)
            || request.mask.contains(FanMask::RENAME)
            || request.flags.contains(MarkFlags::IGNORE);
        if request.kind == MarkedKind::Inode
            && !is_directory
            && names_need_directory
            && request.mask.intersects(FanMask::OF_NAMES | FanMask::MODIFIERS)
        {
            return Err(Error::NotDirectory);
        }
        if flags.intersects(GroupFlags::HANDLES) && request.flags.contains(MarkFlags::ADD) {
            handle::encode(inode)?;
        }
        let needs_survival = request.flags.contains(MarkFlags::IGNORE | MarkFlags::ADD)
            && !request.flags.contains(MarkFlags::IGNORED_SURVIVES);
        if needs_survival && request.kind != MarkedKind::Inode {
            return Err(Error::Invalid);
        }
        if needs_survival && is_directory {
            return Err(Error::IsDirectory);
        }
        let mut mask = request.mask;
        if request.flags.contains(MarkFlags::IGNORED_MASK) {
            mask -= FanMask::MODIFIERS;
        }
        if request.kind != MarkedKind::Inode || !is_directory {
            mask -= FanMask::ON_CHILD;
        }
        if request.flags.contains(MarkFlags::REMOVE) {
            self.remove(place, request, mask)
        } else {
            self.add(place, request, mask)
        }
    }

    fn add(&self, place: &Path, request: &MarkRequest, mask: FanMask) -> Result<()> {
        let list = list_of(place, request.kind)?;
        let mut marks = self.marks.lock();
        let flags = request.flags;
        if let Some(known) = list.of_group(&self.group) {
            let ignores = flags.intersects(MarkFlags::IGNORED_MASK | MarkFlags::IGNORE);
            let was_evictable = known.flags().contains(MarkFlags::EVICTABLE);
            let differs = ignores
                && !known.ignored().is_empty()
                && known.flags().contains(MarkFlags::IGNORE) != flags.contains(MarkFlags::IGNORE);
            if differs || !was_evictable && flags.contains(MarkFlags::EVICTABLE) {
                return Err(Error::Exists);
            }
            known.add(mask, flags);
            return Ok(());
        }
        // Marks whose object is gone leave the list when another one comes.
        marks.retain(|mark| !(mark.mask() | mark.ignored()).is_empty());
        allocation::reserve(&mut marks, 1)?;
        let charge =
            Charge::mark(&self.group.account, self.group.flags.contains(GroupFlags::UNLIMITED_MARKS))?;
        let inode = place.inode()?;
        let marked = match request.kind {
            MarkedKind::Inode => Marked::Inode {
                device: inode.device(),
                number: inode.number,
                _inode: (!flags.contains(MarkFlags::EVICTABLE)).then(|| inode.clone()),
            },
            MarkedKind::Mount => Marked::Mount(place.mount.id()),
            MarkedKind::FileSystem => Marked::FileSystem(place.mount.superblock().device()),
        };
        let mark = Mark::new(&self.group, marked, flags, charge)?;
        mark.add(mask, flags);
        list.add(&mark)?;
        marks.push(mark);
        Ok(())
    }

    fn remove(&self, place: &Path, request: &MarkRequest, mask: FanMask) -> Result<()> {
        let list = list_of(place, request.kind)?;
        let mut marks = self.marks.lock();
        let known = list.of_group(&self.group).ok_or(Error::NotFound)?;
        if known.remove(mask, request.flags) {
            known.end();
            marks.retain(|mark| !Arc::ptr_eq(mark, &known));
        }
        Ok(())
    }

    /// Opens what an event is about, for its reader.
    fn open(&self, place: &Path) -> Result<(ReservedDescriptor, Arc<OpenFile>)> {
        let reserved = caller::reserve()?;
        let flags = self.group.file_flags;
        if place.inode()?.kind == FileKind::Directory && flags.writable() {
            return Err(Error::IsDirectory);
        }
        let file = crate::tree::open_unwatched(place.clone(), flags.difference(OpenFlags::CLOSE_ON_EXEC))?;
        Ok((reserved, file))
    }

    /// Hands an event out. What was opened for it is closed again when it can't be written.
    fn hand_out(&self, event: &Event, sink: &mut Sink<'_>) -> Result<usize> {
        let opened = match &event.about {
            About::Place(place) => Some(self.open(place)?),
            _ => None,
        };
        let pidfd = event.process.as_ref().map(|process| {
            let reserved = caller::reserve()?;
            Ok((reserved, caller::open_process(process)?))
        });
        let number = |reserved: &ReservedDescriptor| reserved.descriptor() as i32;
        let own = ForReader {
            descriptor: opened.as_ref().map_or(NO_DESCRIPTOR, |(reserved, _)| number(reserved)),
            pid: self.shown_number(event.pid),
            pidfd: Some(match &pidfd {
                Some(Ok((reserved, _))) => number(reserved),
                None | Some(Err(Error::NoProcess)) => NO_PIDFD,
                Some(Err(_)) => PIDFD_FAILED,
            }),
        };
        if let Some(question) = &event.question {
            self.group.hand_out(own.descriptor, question)?;
        }
        let written = layout::write(event, self.group.flags, &own, sink).inspect_err(|_| {
            if event.question.is_some() {
                drop(self.group.take_back(own.descriptor));
            }
        })?;
        if let Some((reserved, file)) = opened {
            let close_on_exec = self.group.file_flags.contains(OpenFlags::CLOSE_ON_EXEC);
            let flags = if close_on_exec { DescriptorFlags::CLOSE_ON_EXEC } else { DescriptorFlags::empty() };
            reserved.install(file, flags);
        }
        if let Some(Ok((reserved, file))) = pidfd {
            reserved.install(file, DescriptorFlags::CLOSE_ON_EXEC);
        }
        Ok(written)
    }

    /// A process as the reader calls it; for who has no privileges only his own.
    fn shown_number(&self, pid: i32) -> i32 {
        let is_hidden = self.group.flags.contains(GroupFlags::UNPRIVILEGED) && pid != caller::number(false);
        if is_hidden { 0 } else { caller::shown(pid) }
    }
}

impl FileOperations for Fanotify {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE | FileFeatures::SEEK_IGNORED
    }

    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let mut done = 0;
        loop {
            let room = sink.remaining();
            let fits = |event: &Event| layout::event_bytes(event, self.group.flags) <= room;
            let event = match self.group.pop(fits) {
                Ok(Some(event)) => event,
                Err(_) | Ok(None) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
                Ok(None) if file.non_block() => return Err(Error::WouldBlock),
                Ok(None) => {
                    wait::interruptible(&self.group.readers, || !self.group.is_empty())?;
                    continue;
                }
            };
            let written = self.hand_out(&event, sink);
            if written.is_err()
                && let Some(question) = &event.question
            {
                question.deny();
                self.group.wake_askers();
            }
            self.group.put_back(event);
            match written {
                Ok(written) => done += written,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
    }

    fn write(&self, _file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let mut bytes = [0; ANSWER_BYTES];
        if source.remaining() < ANSWER_BYTES {
            return Err(Error::Invalid);
        }
        if source.read(&mut bytes)? != ANSWER_BYTES {
            return Err(Error::BadAddress);
        }
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
        let (descriptor, answer) = (word(0) as i32, word(4));
        if descriptor < 0 || !matches!(answer, ALLOW | DENY) {
            return Err(Error::Invalid);
        }
        let question = self.group.take_back(descriptor).ok_or(Error::NotFound)?;
        if answer == ALLOW {
            question.allow();
        } else {
            question.deny();
        }
        self.group.wake_askers();
        Ok(ANSWER_BYTES)
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.group.pollers);
        }
        if self.group.is_empty() { PollEvents::empty() } else { PollEvents::INPUT }
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        if command != BYTES_TO_READ {
            return Err(Error::NotTerminal);
        }
        let bytes = self.group.waiting() * METADATA_BYTES;
        machine::user_memory::store_u32(argument, bytes as u32)?;
        Ok(0)
    }

    fn release(&self, _file: &OpenFile) {
        self.group.close();
        let marks = core::mem::take(&mut *self.marks.lock());
        marks.iter().for_each(|mark| mark.end());
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("anon_inode:[fanotify]")
    }

    fn information(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        let flags = self.group.flags.difference(GroupFlags::UNPRIVILEGED).bits();
        writeln!(out, "fanotify flags:{flags:x} event-flags:{:x}", self.group.file_flags.bits())?;
        for mark in self.marks.lock().iter() {
            if (mark.mask() | mark.ignored()).is_empty() {
                continue;
            }
            match &mark.marked {
                Marked::Inode { device, number, .. } => {
                    write!(out, "fanotify ino:{number:x} sdev:{:x}", device.in_kernel())?;
                }
                Marked::Mount(id) => write!(out, "fanotify mnt_id:{id:x}")?,
                Marked::FileSystem(device) => write!(out, "fanotify sdev:{:x}", device.in_kernel())?,
            }
            let (mask, ignored) = (mark.mask().bits(), mark.ignored().bits());
            writeln!(out, " mflags:{:x} mask:{mask:x} ignored_mask:{ignored:x} ", mark.flags().bits())?;
        }
        Ok(())
    }
}
