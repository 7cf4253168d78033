//! An `inotify` instance: its watches and its queue of events.
//!
//! # Limits
//! So many events wait as [`inotify_settings::EVENTS_MAX`] said when the instance was made; what comes then is lost and reported as an overflow, once until that
//! is read. An event equal to the last one in the queue is not queued again. How many instances and watches a user has is counted (`watch_account`).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

use machine::address::UserAddr;
use memory::buffer::Sink;
use sched::WaitQueue;
use sync::SpinLock;

use super::event::{Event, EventMask, HEADER_BYTES};
use super::watch::Watch;
use crate::attributes::FileKind;
use crate::file::{FileFeatures, FileOperations, OpenFile};
use crate::flags::{Access, OpenFlags};
use crate::inode::Inode;
use crate::mount::Path;
use crate::poll::{PollEvents, PollList, PollTable};
use crate::walk::PathContext;
use crate::watch_account::{Charge, WatchAccount, inotify_settings};
use crate::watched::Share;
use crate::{Error, Result, allocation, anonymous, wait};

/// `FIONREAD`
const BYTES_TO_READ: u32 = 0x541b;

/// Events that wait.
struct Events {
    list: VecDeque<Event>,
    /// The event that says that others were lost is among them.
    has_overflow: bool,
}

/// Events that wait, and who waits for them.
pub(super) struct Queue {
    events: SpinLock<Events>,
    /// So many may wait.
    most: usize,
    number: AtomicUsize,
    waiters: WaitQueue,
    pollers: PollList,
}

impl Queue {
    pub(super) fn push(&self, event: Event) {
        {
            let mut events = self.events.lock();
            let is_lost = events.list.len() >= self.most;
            if events.list.back() == Some(&event)
                || is_lost && events.has_overflow
                || events.list.try_reserve(1).is_err()
            {
                return;
            }
            let overflow = Event { watch: -1, mask: EventMask::OVERFLOW, cookie: 0, name: None };
            events.list.push_back(if is_lost { overflow } else { event });
            events.has_overflow |= is_lost;
            self.number.store(events.list.len(), Ordering::Release);
        }
        self.waiters.wake_one();
        self.pollers.notify(PollEvents::INPUT);
    }

    fn is_empty(&self) -> bool {
        self.number.load(Ordering::Acquire) == 0
    }
}

/// An instance.
pub struct Inotify {
    queue: Arc<Queue>,
    watches: sched::Mutex<BTreeMap<i32, Arc<Watch>>>,
    next: AtomicI32,
    /// Of who made it.
    account: Arc<WatchAccount>,
    _charge: Charge,
}

/// `inotify_init1`.
///
/// # Errors
/// `EMFILE` at the user's limit, `ENOMEM`.
pub fn create_inotify(flags: OpenFlags, account: &Arc<WatchAccount>) -> Result<Arc<OpenFile>> {
    let charge = Charge::instance(account)?;
    let queue = allocation::arc(Queue {
        events: SpinLock::new(Events { list: VecDeque::new(), has_overflow: false }),
        most: inotify_settings::EVENTS_MAX.load(Ordering::Relaxed) as usize,
        number: AtomicUsize::new(0),
        waiters: WaitQueue::new(),
        pollers: PollList::new(),
    })?;
    let instance = allocation::arc(Inotify {
        queue,
        watches: sched::Mutex::new(BTreeMap::new()),
        next: AtomicI32::new(1),
        account: account.clone(),
        _charge: charge,
    })?;
    OpenFile::anonymous(anonymous::shared_inode()?, instance, flags & OpenFlags::NON_BLOCK)
}

impl Inotify {
    /// The instance behind an open file. Fails with `EINVAL`.
    pub fn of(file: &OpenFile) -> Result<&Self> {
        file.object::<Self>().ok_or(Error::Invalid)
    }

    /// `inotify_add_watch` for a place that was walked to.
    pub fn add(&self, context: &PathContext<'_>, place: &Path, mask: EventMask) -> Result<i32> {
        if !mask.intersects(EventMask::EVENTS) || mask.contains(EventMask::MASK_ADD | EventMask::MASK_CREATE)
        {
            return Err(Error::Invalid);
        }
        let inode = place.inode()?;
        if mask.contains(EventMask::ONLY_DIRECTORY) && inode.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        context.check_place(place, Access::READ)?;
        let kept = EventMask::EVENTS | EventMask::ONE_SHOT | EventMask::EXCLUDE_UNLINKED;
        let wanted = mask & kept;
        let mut watches = self.watches.lock();
        // A watch without a mask has ended; it is only there until that is read.
        let is_same = |watch: &&Arc<Watch>| Arc::ptr_eq(&watch.inode, inode) && !watch.mask().is_empty();
        if let Some(existing) = watches.values().find(is_same) {
            if mask.contains(EventMask::MASK_CREATE) {
                return Err(Error::Exists);
            }
            let adds = mask.contains(EventMask::MASK_ADD);
            // It may just have ended, which its reader is told: then there is a new one.
            if existing.change(|mask| if adds { mask | wanted } else { wanted }) {
                return Ok(existing.descriptor);
            }
        }
        let charge = Charge::watch(&self.account).or_else(|_| {
            watches.retain(|_, watch| !watch.mask().is_empty());
            Charge::watch(&self.account)
        })?;
        let watch = self.make_watch(inode, wanted, charge)?;
        let descriptor = watch.descriptor;
        watches.insert(descriptor, watch);
        Ok(descriptor)
    }

    fn make_watch(&self, inode: &Arc<Inode>, mask: EventMask, charge: Charge) -> Result<Arc<Watch>> {
        let watch = allocation::arc(Watch {
            queue: self.queue.clone(),
            descriptor: self.next.fetch_add(1, Ordering::Relaxed),
            inode: inode.clone(),
            mask: AtomicU32::new(mask.bits()),
            _charge: charge,
            _share: Share::new(),
        })?;
        inode.watches()?.add(&watch)?;
        Ok(watch)
    }

    /// `inotify_rm_watch`.
    pub fn remove(&self, descriptor: i32) -> Result<()> {
        let removed = self.watches.lock().remove(&descriptor).ok_or(Error::Invalid)?;
        if removed.mask.swap(0, Ordering::AcqRel) == 0 {
            return Err(Error::Invalid);
        }
        self.queue.push(Event { watch: descriptor, mask: EventMask::IGNORED, cookie: 0, name: None });
        Ok(())
    }

    fn drop_finished(&self) {
        self.watches.lock().retain(|_, watch| !watch.mask().is_empty());
    }
}

impl FileOperations for Inotify {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE | FileFeatures::SEEK_IGNORED
    }

    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let mut done = 0;
        loop {
            let event = {
                let mut events = self.queue.events.lock();
                let fits = |event: &Event| HEADER_BYTES + event.name_bytes() <= sink.remaining();
                let event = match events.list.front() {
                    Some(event) if fits(event) => events.list.pop_front(),
                    Some(_) if done == 0 => return Err(Error::Invalid),
                    _ => None,
                };
                if event.as_ref().is_some_and(|event| event.mask.contains(EventMask::OVERFLOW)) {
                    events.has_overflow = false;
                }
                self.queue.number.store(events.list.len(), Ordering::Release);
                event
            };
            match event {
                Some(event) => {
                    done += sink.write(&event.header())?;
                    if let Some(name) = &event.name {
                        done += sink.write(name.as_bytes())?;
                        done += sink.write_zeros(event.name_bytes() - name.as_bytes().len())?;
                    }
                    if event.mask.contains(EventMask::IGNORED) {
                        self.drop_finished();
                    }
                }
                None if done > 0 => return Ok(done),
                None if file.non_block() => return Err(Error::WouldBlock),
                None => wait::interruptible(&self.queue.waiters, || !self.queue.is_empty())?,
            }
        }
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.queue.pollers);
        }
        if self.queue.is_empty() { PollEvents::empty() } else { PollEvents::INPUT }
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        if command != BYTES_TO_READ {
            return Err(Error::NotTerminal);
        }
        let events = self.queue.events.lock();
        let bytes: usize = events.list.iter().map(|event| HEADER_BYTES + event.name_bytes()).sum();
        drop(events);
        machine::user_memory::store_u32(argument, bytes as u32)?;
        Ok(0)
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("anon_inode:inotify")
    }
}
