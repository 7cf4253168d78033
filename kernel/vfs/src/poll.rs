//! Learning that a file became ready: `poll`, `select`, `epoll` and everything else that watches.
//!
//! # Parts
//! - [`PollList`]: belongs to a file object (a pipe, a terminal); holds who watches it. The object calls
//!   [`PollList::notify`] when something became ready.
//! - [`PollTable`]: given to [`FileOperations::poll`](crate::file::FileOperations::poll) by who wants to be told;
//!   the object enters it in its list(s) and then returns what is ready now.
//! - [`PollWaiter`]: a thread that waits in `poll` or `select`. It lives as long as the thread, so that polling
//!   allocates nothing once the lists have room.
//!
//! # No deregistration
//! A poll that is over leaves its entries in the lists. Each carries the waiter's *generation*, which every poll counts
//! up: a stale entry is dropped when the list is next notified, and replaced when the same waiter registers again. So a
//! list has at most one entry for each thread that ever waited for it, and polling n files takes n lock acquisitions
//! instead of 2n. Entries of `epoll` are taken out when the interest ends, or go when they say that they are stale.
//!
//! # Lost wake-ups
//! Objects change their state before they notify, and pollers register before they look at the state; the list's lock
//! orders the two. So either the poller sees the new state or the notifier sees the poller. [`PollList::notify`] with
//! nobody there is one load; the fence in it and in `register` pairs them.
//!
//! # Locking
//! A list's lock is held while its watchers are told; watchers take only their own locks (a wait queue's, an epoll's
//! ready list) in there. Interrupts are off: notification may come from an interrupt handler. Of very many watchers some are told at a time (`AT_ONCE`), with the
//! lock free in between.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use bitflags::bitflags;
use sched::WaitQueue;
use sync::IrqSpinLock;
use sync::classes::IN_TREE;

use crate::file::OpenFile;
use crate::{Result, allocation, wait};

bitflags! {
    /// What can be ready; the values of `poll(2)` and `epoll(7)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct PollEvents: u32 {
        /// There is something to read.
        const READABLE = 0x1;
        /// Something exceptional.
        const PRIORITY = 0x2;
        /// Writing will not block.
        const WRITABLE = 0x4;
        /// An error; always reported.
        const ERROR = 0x8;
        /// The other end is gone; always reported.
        const HANG_UP = 0x10;
        /// The descriptor is not open; always reported.
        const INVALID = 0x20;
        /// As `READABLE`.
        const READ_NORMAL = 0x40;
        /// Out-of-band data.
        const READ_BAND = 0x80;
        /// As `WRITABLE`.
        const WRITE_NORMAL = 0x100;
        /// Priority data may be written.
        const WRITE_BAND = 0x200;
        /// Used by nothing.
        const MESSAGE = 0x400;
        /// The peer closed its writing half.
        const READ_HANG_UP = 0x2000;
    }
}

impl PollEvents {
    /// Ready for reading.
    pub const INPUT: Self = Self::READABLE.union(Self::READ_NORMAL);
    /// Ready for writing.
    pub const OUTPUT: Self = Self::WRITABLE.union(Self::WRITE_NORMAL);
    /// Reported whether asked for or not.
    pub const ALWAYS: Self = Self::ERROR.union(Self::HANG_UP);
}

/// Whether a watcher wants to stay in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notified {
    /// Keep the entry.
    Keep,
    /// Drop it.
    Remove,
    /// Keep it; it was woken exclusively, so others that are exclusive need not be.
    Taken,
}

/// Somebody who is told when a file becomes ready.
pub trait PollWatcher: Send + Sync {
    /// `events` became ready (or may have). Called with the list's lock held and interrupts off.
    fn notify(&self, key: u64, events: PollEvents) -> Notified;

    /// Whether the registration `key` means nothing any longer.
    fn is_stale(&self, key: u64) -> bool;
}

struct Entry {
    watcher: Arc<dyn PollWatcher>,
    key: u64,
    interest: PollEvents,
    exclusive: bool,
}

/// What a watcher takes in a list.
pub(crate) const ENTRY_BYTES: usize = size_of::<Entry>();

/// The watchers of a file object.
pub struct PollList {
    entries: IrqSpinLock<Vec<Entry>>,
    /// The number of entries; changed under the lock, read without it to skip notifying nobody.
    number: AtomicU32,
}

impl Default for PollList {
    fn default() -> Self {
        Self::new()
    }
}

impl PollList {
    /// A list without watchers.
    pub const fn new() -> Self {
        Self { entries: IrqSpinLock::new(Vec::new()), number: AtomicU32::new(0) }
    }

    /// Tells those who are interested that `events` became ready. With nobody watching: one fence and one load.
    #[inline]
    pub fn notify(&self, events: PollEvents) {
        // SeqCst: the object's state change comes before the load; pairs with the fence in `register`.
        fence(Ordering::SeqCst);
        if self.number.load(Ordering::Relaxed) != 0 {
            self.notify_watchers(events);
        }
    }

    #[inline(never)]
    fn notify_watchers(&self, events: PollEvents) {
        let mut telling = Telling { events, taken: false };
        // The first ones first: of those that are exclusive one of them is to be woken.
        let number = self.tell(&mut telling, 0);
        let mut end = if number > AT_ONCE { number } else { 0 };
        // From the end then: who leaves between two parts moves others forward, hence none from where nobody was told to where all were.
        while end > 0 {
            end = end.saturating_sub(AT_ONCE);
            self.tell(&mut telling, end);
        }
    }

    /// Tells those from a place on, [`AT_ONCE`] of them. Returns the number of all.
    fn tell(&self, telling: &mut Telling, from: usize) -> usize {
        let mut removed: [Option<Arc<dyn PollWatcher>>; 4] = [const { None }; 4];
        loop {
            let mut gone = 0;
            let (more, number) = {
                // Watchers that are watched themselves tell theirs; epoll sees to it that there is no circle.
                let mut entries = self.entries.lock_nested(IN_TREE);
                let more = telling.tell(&mut entries, from, &mut removed, &mut gone);
                self.number.store(entries.len() as u32, Ordering::Relaxed);
                (more, entries.len())
            };
            // References are dropped outside of the lock: the last one frees memory.
            removed[..gone].fill(None);
            if !more {
                return number;
            }
        }
    }

    fn register(
        &self,
        watcher: &Arc<dyn PollWatcher>,
        key: u64,
        interest: PollEvents,
        exclusive: bool,
    ) -> Result<()> {
        let mut stale = None;
        {
            let mut entries = self.entries.lock();
            let is_place =
                |entry: &Entry| Arc::ptr_eq(&entry.watcher, watcher) || entry.watcher.is_stale(entry.key);
            if entries.len() == entries.capacity() && !entries.iter().any(is_place) {
                drop(entries);
                entries = allocation::lock_with_room(|| self.entries.lock(), 1, |entries| entries)?;
            }
            let own = entries.iter_mut().find(|entry| Arc::ptr_eq(&entry.watcher, watcher));
            if let Some(entry) = own {
                // One watcher may watch the same list for two descriptors: interests add up within a generation.
                entry.interest = if entry.key == key { entry.interest | interest } else { interest };
                entry.key = key;
            } else if let Some(index) = entries.iter().position(|entry| entry.watcher.is_stale(entry.key)) {
                let new = Entry { watcher: watcher.clone(), key, interest, exclusive };
                stale = Some(core::mem::replace(&mut entries[index], new));
            } else {
                // There is room: it was made above, or a place found there that is gone now.
                entries.push(Entry { watcher: watcher.clone(), key, interest, exclusive });
            }
            self.number.store(entries.len() as u32, Ordering::Relaxed);
        }
        drop(stale);
        // SeqCst: the entry is visible before the caller looks at the object's state; pairs with `notify`.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Takes a watcher out.
    pub fn remove(&self, watcher: &Arc<dyn PollWatcher>) {
        let removed = {
            let mut entries = self.entries.lock();
            let index = entries.iter().rposition(|entry| Arc::ptr_eq(&entry.watcher, watcher));
            let removed = index.map(|index| entries.swap_remove(index));
            self.number.store(entries.len() as u32, Ordering::Relaxed);
            removed
        };
        drop(removed);
    }

    /// Forgets all watchers: what they watched is no more.
    pub fn clear(&self) {
        let entries = {
            let mut entries = self.entries.lock();
            self.number.store(0, Ordering::Relaxed);
            core::mem::take(&mut *entries)
        };
        drop(entries);
    }

    /// The number of entries, stale ones included.
    pub fn len(&self) -> usize {
        self.number.load(Ordering::Relaxed) as usize
    }

    /// Whether nobody watches.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Watchers of one list that are told without interrupts in between: some ten microseconds.
const AT_ONCE: usize = 256;

/// A notification on its way through a list.
struct Telling {
    events: PollEvents,
    /// An exclusive watcher was woken.
    taken: bool,
}

impl Telling {
    /// Tells watchers from a place on; moves those that go to `removed`. True: `removed` was full, another round is needed
    /// (telling somebody twice is harmless).
    fn tell(
        &mut self,
        entries: &mut Vec<Entry>,
        from: usize,
        removed: &mut [Option<Arc<dyn PollWatcher>>; 4],
        gone: &mut usize,
    ) -> bool {
        let mut index = from;
        while index < entries.len().min(from + AT_ONCE) {
            let entry = &entries[index];
            let concerned = entry.interest.intersects(self.events) && !(self.taken && entry.exclusive);
            let outcome = if concerned {
                entry.watcher.notify(entry.key, self.events)
            } else if entry.watcher.is_stale(entry.key) {
                Notified::Remove
            } else {
                Notified::Keep
            };
            match outcome {
                Notified::Keep => index += 1,
                Notified::Taken => {
                    self.taken |= entry.exclusive;
                    index += 1;
                }
                Notified::Remove => {
                    if *gone == removed.len() {
                        return true;
                    }
                    removed[*gone] = Some(entries.remove(index).watcher);
                    *gone += 1;
                }
            }
        }
        false
    }
}

/// Who polls, and for what; file objects enter it in their lists.
pub struct PollTable<'a> {
    watcher: &'a Arc<dyn PollWatcher>,
    key: u64,
    interest: PollEvents,
    exclusive: bool,
    /// It is taken out of the lists.
    leaves: bool,
    failed: bool,
}

impl<'a> PollTable<'a> {
    /// A table that registers `watcher` for `interest`.
    pub fn new(watcher: &'a Arc<dyn PollWatcher>, key: u64, interest: PollEvents, exclusive: bool) -> Self {
        let interest = interest | PollEvents::ALWAYS;
        Self { watcher, key, interest, exclusive, leaves: false, failed: false }
    }

    /// A table that takes `watcher` out of the lists.
    pub(crate) fn leaving(watcher: &'a Arc<dyn PollWatcher>) -> Self {
        Self { leaves: true, ..Self::new(watcher, 0, PollEvents::empty(), false) }
    }

    /// Registers with a list, before the caller looks at what is ready; or leaves it.
    #[inline]
    pub fn register(&mut self, list: &PollList) {
        if self.leaves {
            return list.remove(self.watcher);
        }
        self.failed |= list.register(self.watcher, self.key, self.interest, self.exclusive).is_err();
    }

    /// Whether a registration failed for lack of memory.
    pub fn failed(&self) -> bool {
        self.failed
    }
}

/// A thread's state for waiting in `poll`; made once for a thread and reused.
pub struct PollWaiter {
    generation: AtomicU64,
    fired: AtomicBool,
    queue: WaitQueue,
}

impl PollWaiter {
    /// A waiter. Keep it with the thread.
    pub fn create() -> Result<Arc<Self>> {
        allocation::arc(Self {
            generation: AtomicU64::new(0),
            fired: AtomicBool::new(false),
            queue: WaitQueue::new(),
        })
    }
}

impl PollWatcher for PollWaiter {
    fn notify(&self, key: u64, _events: PollEvents) -> Notified {
        if self.is_stale(key) {
            return Notified::Remove;
        }
        // Release: pairs with the Acquire in `poll`'s condition.
        if !self.fired.swap(true, Ordering::AcqRel) {
            self.queue.wake_all();
        }
        Notified::Keep
    }

    fn is_stale(&self, key: u64) -> bool {
        self.generation.load(Ordering::Acquire) != key
    }
}

/// One of the files that are polled.
pub struct PollRequest {
    /// The file; `None` for a descriptor to be ignored.
    pub file: Option<Arc<OpenFile>>,
    /// What is asked for.
    pub events: PollEvents,
    /// What was found ready; set by [`poll`].
    pub ready: PollEvents,
}

/// Waits until one of the files is ready, the deadline (nanoseconds of the monotonic clock; `Some(0)`: do not wait) has
/// passed, or a signal arrives (`EINTR`). Returns the number of requests with something ready.
///
/// Cost with n files: n calls of `poll`, n list locks unless one is ready at once; no allocation.
pub fn poll(
    waiter: &Arc<PollWaiter>,
    requests: &mut [PollRequest],
    deadline_ns: Option<u64>,
) -> Result<usize> {
    let state = &**waiter;
    // AcqRel: entries of the last poll are stale from here on.
    let generation = state.generation.fetch_add(1, Ordering::AcqRel) + 1;
    let watcher: Arc<dyn PollWatcher> = waiter.clone();
    let mut registering = deadline_ns != Some(0);
    loop {
        // AcqRel: a swap, so that the scan sees what was done before a notification that this takes back. A store could come
        // after it while the loads of the scan came before.
        state.fired.swap(false, Ordering::AcqRel);
        let ready = scan(&watcher, generation, requests, registering)?;
        if ready > 0 || deadline_ns == Some(0) {
            state.generation.fetch_add(1, Ordering::AcqRel);
            return Ok(ready);
        }
        registering = false;
        let waited = wait::until(&state.queue, deadline_ns, || state.fired.load(Ordering::Acquire));
        match waited {
            Ok(()) => {}
            Err(crate::Error::TimedOut) => {
                state.generation.fetch_add(1, Ordering::AcqRel);
                return scan(&watcher, generation, requests, false);
            }
            Err(error) => {
                state.generation.fetch_add(1, Ordering::AcqRel);
                return Err(error);
            }
        }
    }
}

/// Asks every file what is ready; registers with them until the first one is.
fn scan(
    watcher: &Arc<dyn PollWatcher>,
    generation: u64,
    requests: &mut [PollRequest],
    mut registering: bool,
) -> Result<usize> {
    let mut count = 0;
    for request in requests {
        let Some(file) = &request.file else {
            if request.ready.contains(PollEvents::INVALID) {
                count += 1;
            }
            continue;
        };
        let mut table = PollTable::new(watcher, generation, request.events, false);
        let ready = file.poll(if registering { Some(&mut table) } else { None });
        if table.failed() {
            return Err(crate::Error::OutOfMemory);
        }
        request.ready = ready & (request.events | PollEvents::ALWAYS);
        if !request.ready.is_empty() {
            count += 1;
            registering = false;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Recorder {
        told: AtomicU32,
        stale: AtomicBool,
        answer: Notified,
    }

    impl Recorder {
        fn new(answer: Notified) -> Arc<Self> {
            Arc::new(Self { told: AtomicU32::new(0), stale: AtomicBool::new(false), answer })
        }
    }

    impl PollWatcher for Recorder {
        fn notify(&self, _key: u64, _events: PollEvents) -> Notified {
            self.told.fetch_add(1, Ordering::Relaxed);
            self.answer
        }

        fn is_stale(&self, _key: u64) -> bool {
            self.stale.load(Ordering::Relaxed)
        }
    }

    fn register(list: &PollList, recorder: &Arc<Recorder>, interest: PollEvents, exclusive: bool) {
        let watcher: Arc<dyn PollWatcher> = recorder.clone();
        PollTable::new(&watcher, 1, interest, exclusive).register(list);
    }

    #[test]
    fn only_the_interested_are_told() {
        let list = PollList::new();
        let (reader, writer) = (Recorder::new(Notified::Keep), Recorder::new(Notified::Keep));
        register(&list, &reader, PollEvents::INPUT, false);
        register(&list, &writer, PollEvents::OUTPUT, false);
        list.notify(PollEvents::INPUT);
        assert_eq!((reader.told.load(Ordering::Relaxed), writer.told.load(Ordering::Relaxed)), (1, 0));
        list.notify(PollEvents::HANG_UP);
        assert_eq!((reader.told.load(Ordering::Relaxed), writer.told.load(Ordering::Relaxed)), (2, 1));
    }

    #[test]
    fn one_exclusive_watcher_takes_the_event() {
        let list = PollList::new();
        let recorders: Vec<_> = (0..3).map(|_| Recorder::new(Notified::Taken)).collect();
        for recorder in &recorders {
            register(&list, recorder, PollEvents::INPUT, true);
        }
        list.notify(PollEvents::INPUT);
        assert_eq!(recorders.iter().map(|recorder| recorder.told.load(Ordering::Relaxed)).sum::<u32>(), 1);
    }

    #[test]
    fn very_many_are_all_told_and_one_exclusive_one() {
        let list = PollList::new();
        let number = 3 * AT_ONCE + 7;
        let recorders: Vec<_> = (0..number).map(|_| Recorder::new(Notified::Keep)).collect();
        let exclusive: Vec<_> = (0..number).map(|_| Recorder::new(Notified::Taken)).collect();
        for (one, other) in recorders.iter().zip(&exclusive) {
            register(&list, one, PollEvents::INPUT, false);
            register(&list, other, PollEvents::INPUT, true);
        }
        list.notify(PollEvents::INPUT);
        let told = |recorder: &Arc<Recorder>| recorder.told.load(Ordering::Relaxed);
        assert!(recorders.iter().all(|recorder| told(recorder) >= 1));
        assert_eq!(exclusive.iter().map(told).sum::<u32>(), 1);
        assert_eq!(told(&exclusive[0]), 1);
    }

    /// Takes another watcher out of the list, from outside of its lock, when it is told of an event.
    struct Leaver {
        list: Arc<PollList>,
        leaves: Arc<dyn PollWatcher>,
        lock_is_free: std::sync::mpsc::SyncSender<(Arc<PollList>, Arc<dyn PollWatcher>)>,
    }

    impl PollWatcher for Leaver {
        fn notify(&self, _key: u64, _events: PollEvents) -> Notified {
            let _ = self.lock_is_free.try_send((self.list.clone(), self.leaves.clone()));
            Notified::Keep
        }

        fn is_stale(&self, _key: u64) -> bool {
            false
        }
    }

    #[test]
    fn those_who_leave_meanwhile_hide_nobody() {
        for _ in 0..50 {
            let list = Arc::new(PollList::new());
            let (send, receive) = std::sync::mpsc::sync_channel::<(Arc<PollList>, Arc<dyn PollWatcher>)>(64);
            let remover = std::thread::spawn(move || {
                while let Ok((list, watcher)) = receive.recv() {
                    list.remove(&watcher);
                }
            });
            let recorders: Vec<_> = (0..2000).map(|_| Recorder::new(Notified::Keep)).collect();
            for (index, recorder) in recorders.iter().enumerate() {
                register(&list, recorder, PollEvents::INPUT, false);
                if index % 50 == 7 {
                    let gone = Recorder::new(Notified::Keep);
                    register(&list, &gone, PollEvents::INPUT, false);
                    let leaver: Arc<dyn PollWatcher> =
                        Arc::new(Leaver { list: list.clone(), leaves: gone, lock_is_free: send.clone() });
                    PollTable::new(&leaver, 1, PollEvents::INPUT, false).register(&list);
                }
            }
            drop(send);
            list.notify(PollEvents::INPUT);
            assert!(recorders.iter().all(|recorder| recorder.told.load(Ordering::Relaxed) >= 1));
            list.clear();
            remover.join().unwrap();
        }
    }

    #[test]
    fn stale_entries_are_reused() {
        let list = PollList::new();
        let first = Recorder::new(Notified::Keep);
        register(&list, &first, PollEvents::INPUT, false);
        first.stale.store(true, Ordering::Relaxed);
        let second = Recorder::new(Notified::Keep);
        register(&list, &second, PollEvents::INPUT, false);
        assert_eq!(list.len(), 1);
        assert_eq!(Arc::strong_count(&first), 1);
    }

    #[test]
    fn many_leaving_watchers_all_leave() {
        let list = PollList::new();
        for _ in 0..11 {
            register(&list, &Recorder::new(Notified::Remove), PollEvents::INPUT, false);
        }
        list.notify(PollEvents::INPUT);
        assert!(list.is_empty());
    }
}
