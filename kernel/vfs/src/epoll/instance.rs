//! An `epoll` instance.
//!
//! # State
//! Interests are in a table with numbered places; the ready list holds numbers, so that nothing refers in a circle. A
//! number is in the list at most once (`queued`), never that of a removed interest, and there is always room for every
//! interest: notification, which may come from an interrupt, never allocates. The table and the list grow together, to twice their size; what that takes is allocated
//! while no lock is held (`Room`).
//!
//! # Triggering
//! A watched file that may have become ready queues its interest. `wait` takes interests off the list, asks each file
//! what is ready *then*, and reports that. Level-triggered interests go back to the end of the list (they leave it when
//! they are found not ready); edge-triggered ones leave it; one-shot ones are disarmed, unless they were changed while they were
//! being reported.
//!
//! An interest that a collector has taken off the list and not looked at to the end still counts as one that may be ready (`examined`):
//! others that ask meanwhile wait for the collector instead of finding nothing, which would be wrong where it goes back.
//!
//! # Locking
//! `scan` (sleeping): one collector at a time. `interests` (spinning): the table; files are never dropped under it,
//! since a file's end removes its interests. `ready` (interrupts off). Order: scan, interests, ready.
//!
//! # Cost
//! `wait` with n ready interests: n file polls, 2n short spin locks; without any: one, and a sleep. No allocation.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;
use memory::fallible::EmptyArc;
use sched::WaitQueue;
use sync::{IrqSpinLock, SpinLock};

use super::account::Account;
use super::item::{EpollEvent, EpollEvents, EpollItem};
use super::nesting::{Links, Nesting};
use crate::file::{FileFeatures, FileOperations, OpenFile};
use crate::flags::OpenFlags;
use crate::poll::{self, PollEvents, PollList, PollTable};
use crate::{Error, Result, allocation, anonymous, wait};

/// Interests that there is room for at the first one.
const FIRST_ROOM: usize = 4;

/// Memory that an interest takes: its own with the counts of references, and places in tables that are up to half empty, here and at the file.
pub(super) const INTEREST_BYTES: usize = size_of::<EpollItem>()
    + 2 * size_of::<usize>()
    + 2 * (size_of::<Option<Arc<EpollItem>>>() + 2 * size_of::<u32>())
    + 4 * (size_of::<((u32, u64), u32)>() + 1)
    + 2 * (poll::ENTRY_BYTES + size_of::<Weak<EpollItem>>());

/// The places of interests by descriptor and file number.
type Index = HashMap<(u32, u64), u32, core::hash::BuildHasherDefault<KeyHasher>>;

/// The interests. There is room for `limit` of them in every part, and in the ready list.
#[derive(Default)]
struct Interests {
    limit: usize,
    places: Vec<Option<Arc<EpollItem>>>,
    by_key: Index,
    free: Vec<u32>,
}

/// Memory for a table of `interests.limit` interests and their ready list, and later what these had before.
struct Room {
    interests: Interests,
    ready: VecDeque<u32>,
}

impl Room {
    /// Room for `limit` interests.
    fn allocate(limit: usize) -> Result<Self> {
        let mut room =
            Self { interests: Interests { limit, ..Interests::default() }, ready: VecDeque::new() };
        allocation::reserve(&mut room.interests.places, limit)?;
        allocation::reserve(&mut room.interests.free, limit)?;
        allocation::fail_point()?;
        // A hash table that is at most half full finds room by tidying up, and needs no memory for it.
        room.interests.by_key.try_reserve(2 * limit).map_err(|_| Error::OutOfMemory)?;
        allocation::fail_point()?;
        room.ready.try_reserve(limit).map_err(|_| Error::OutOfMemory)?;
        Ok(room)
    }
}

impl Interests {
    fn is_full(&self) -> bool {
        self.free.is_empty() && self.places.len() == self.limit
    }

    /// Moves everything to where there is more room.
    fn move_to(&mut self, room: &mut Self) {
        debug_assert!(room.limit > self.limit && room.places.is_empty());
        room.places.append(&mut self.places);
        room.free.append(&mut self.free);
        room.by_key.extend(self.by_key.drain());
        core::mem::swap(self, room);
    }
}

/// Hashes descriptor and file number: both are small and dense, a multiplication spreads them.
#[derive(Default)]
struct KeyHasher(u64);

impl core::hash::Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// The ready list.
#[derive(Default)]
struct Ready {
    list: VecDeque<u32>,
    /// A collector has taken an interest off the list and looks whether it is ready.
    examined: bool,
}

/// What an instance and its interests share.
pub(super) struct Shared {
    interests: SpinLock<Interests>,
    ready: IrqSpinLock<Ready>,
    /// How many may be ready; written under the lock of `ready`.
    ready_number: AtomicUsize,
    /// How many scans there were.
    scan: sched::Mutex<u64>,
    waiters: WaitQueue,
    sleeping: AtomicUsize,
    watchers: PollList,
    pub(super) links: SpinLock<Links>,
    /// Of who has made the instance.
    pub(super) account: Arc<Account>,
}

impl Shared {
    /// Changes the ready list and publishes how many may be ready.
    fn with_ready<R>(&self, change: impl FnOnce(&mut Ready) -> R) -> R {
        let mut ready = self.ready.lock();
        let result = change(&mut ready);
        self.ready_number.store(ready.list.len() + usize::from(ready.examined), Ordering::SeqCst);
        result
    }

    /// Puts an interest into the ready list. True: somebody was woken for it.
    pub(super) fn enqueue(&self, item: &EpollItem) -> bool {
        // SeqCst: pairs with the store in `take_first`: who finds it queued relies on the look at the file that follows.
        if item.queued.load(Ordering::SeqCst) || !self.with_ready(|ready| ready.add(item)) {
            return false;
        }
        self.watchers.notify(PollEvents::INPUT);
        // SeqCst: pairs with the store of `sleeping` before the sleeper looks at `ready_number`.
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            self.waiters.wake_one();
            return true;
        }
        false
    }

    /// Takes the first interest off the list to look whether it is ready; `examined` says what came of it. One collector at a time.
    fn take_first(&self) -> Option<Arc<EpollItem>> {
        // Nobody removes it, and puts another one in its place, between the list and the table.
        let interests = self.interests.lock();
        self.with_ready(|ready| {
            debug_assert!(!ready.examined, "one interest is examined at a time");
            let index = ready.list.pop_front()?;
            let item = interests.places.get(index as usize).cloned().flatten();
            debug_assert!(item.is_some(), "an interest leaves the ready list before the table");
            let item = item?;
            // Cleared before the file is asked: a change after that queues the interest again.
            item.queued.store(false, Ordering::SeqCst);
            ready.examined = true;
            Some(item)
        })
    }

    /// The look at an interest that was taken off the list is over: it goes back to the end of the list if it is `still` ready, unless it was
    /// queued or removed meanwhile. Wakes nobody.
    fn examined(&self, item: &EpollItem, still: bool) {
        self.with_ready(|ready| {
            ready.examined = false;
            if still {
                ready.add(item);
            }
        });
    }

    fn has_ready(&self) -> bool {
        self.ready_number.load(Ordering::SeqCst) > 0
    }

    /// Takes an interest out.
    pub(super) fn remove(&self, item: &Arc<EpollItem>) {
        let removed = {
            let mut interests = self.interests.lock();
            let was_dead = self.with_ready(|ready| {
                if item.queued.load(Ordering::Relaxed) {
                    ready.list.retain(|&index| index != item.index);
                }
                item.dead.swap(true, Ordering::AcqRel)
            });
            if was_dead {
                return;
            }
            interests.by_key.remove(&item.key);
            interests.free.push(item.index);
            interests.places[item.index as usize].take()
        };
        drop(removed);
    }

    /// Makes room for twice as many interests as there are places, unless somebody else does so meanwhile.
    fn grow(&self, limit: usize) -> Result<()> {
        let mut room = Room::allocate((2 * limit).max(FIRST_ROOM))?;
        let mut interests = self.interests.lock();
        if interests.limit >= room.interests.limit {
            drop(interests);
            return Ok(());
        }
        interests.move_to(&mut room.interests);
        {
            let mut ready = self.ready.lock();
            room.ready.extend(ready.list.iter().copied());
            core::mem::swap(&mut ready.list, &mut room.ready);
        }
        drop(interests);
        // What was there before is freed here, without locks.
        drop(room);
        Ok(())
    }

    /// Takes a place, and makes the interest that is to be there.
    fn insert(
        &self,
        memory: EmptyArc<EpollItem>,
        make: impl FnOnce(u32) -> EpollItem,
        key: (u32, u64),
    ) -> Result<Arc<EpollItem>> {
        loop {
            let limit = {
                let mut interests = self.interests.lock();
                if interests.by_key.contains_key(&key) {
                    return Err(Error::Exists);
                }
                if !interests.is_full() {
                    let index = interests.free.pop().unwrap_or_else(|| {
                        interests.places.push(None);
                        interests.places.len() as u32 - 1
                    });
                    let item = memory.fill(make(index));
                    interests.places[index as usize] = Some(item.clone());
                    interests.by_key.insert(key, index);
                    return Ok(item);
                }
                interests.limit
            };
            self.grow(limit)?;
        }
    }

    fn find(&self, key: (u32, u64)) -> Option<Arc<EpollItem>> {
        let interests = self.interests.lock();
        let index = *interests.by_key.get(&key)?;
        interests.places[index as usize].clone()
    }

    /// Takes every queued interest once and reports the ready ones through `each`, at most `limit`. An error of `each`
    /// (a fault) puts the interest back and ends the round; it is returned if nothing was reported.
    fn collect(&self, limit: usize, each: &mut dyn FnMut(EpollEvent) -> Result<()>) -> Result<usize> {
        let mut scans = self.scan.lock_nested(sync::classes::IN_TREE);
        *scans += 1;
        let mut count = 0;
        for _ in 0..self.ready_number.load(Ordering::SeqCst) {
            if count == limit {
                break;
            }
            let Some(item) = self.take_first() else { break };
            // One that was looked at and went back, or was queued again: the list is shorter than it was, and this is the end of what was
            // in it.
            if item.scan.swap(*scans, Ordering::Relaxed) == *scans {
                self.examined(&item, true);
                break;
            }
            let (event, generation) = item.setting();
            let ready = item.ready(&event);
            if ready.is_empty() {
                self.examined(&item, false);
                continue;
            }
            let report = EpollEvent { events: EpollEvents::from_bits_retain(ready.bits()), data: event.data };
            if let Err(error) = each(report) {
                self.examined(&item, true);
                return if count > 0 { Ok(count) } else { Err(error) };
            }
            count += 1;
            if event.events.contains(EpollEvents::ONE_SHOT) {
                item.disarm(generation);
            }
            let modes = EpollEvents::ONE_SHOT | EpollEvents::EDGE_TRIGGERED;
            self.examined(&item, !event.events.intersects(modes));
        }
        Ok(count)
    }

    /// Whether something is ready indeed.
    fn any_ready(&self) -> bool {
        let _one = self.scan.lock_nested(sync::classes::IN_TREE);
        for _ in 0..self.ready_number.load(Ordering::SeqCst) {
            let Some(item) = self.take_first() else { return false };
            let ready = !item.ready(&item.setting().0).is_empty();
            self.examined(&item, ready);
            if ready {
                return true;
            }
        }
        false
    }
}

impl Ready {
    /// Adds an interest at the end, unless it is in the list, or was removed.
    fn add(&mut self, item: &EpollItem) -> bool {
        // Both are written with the list locked.
        if item.dead.load(Ordering::Relaxed) || item.queued.load(Ordering::Relaxed) {
            return false;
        }
        item.queued.store(true, Ordering::Release);
        debug_assert!(self.list.len() < self.list.capacity(), "every interest has room in the ready list");
        self.list.push_back(item.index);
        true
    }
}

/// An `epoll` instance.
pub struct Epoll {
    shared: Arc<Shared>,
}

/// `epoll_create1`. Its interests count for `account`.
pub fn create_epoll(account: &Arc<Account>) -> Result<Arc<OpenFile>> {
    let shared = allocation::arc(Shared {
        interests: SpinLock::new(Interests::default()),
        ready: IrqSpinLock::new(Ready::default()),
        ready_number: AtomicUsize::new(0),
        scan: sched::Mutex::named("scan of epoll", 0),
        waiters: WaitQueue::new(),
        sleeping: AtomicUsize::new(0),
        watchers: PollList::new(),
        links: SpinLock::new(Links::default()),
        account: account.clone(),
    })?;
    let epoll = allocation::arc(Epoll { shared })?;
    OpenFile::anonymous(anonymous::shared_inode()?, epoll, OpenFlags::READ_WRITE)
}

impl Epoll {
    /// The instance behind an open file. Fails with `EINVAL`.
    pub fn of(file: &OpenFile) -> Result<&Self> {
        file.object::<Self>().ok_or(Error::Invalid)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// `EPOLL_CTL_ADD`
    pub fn add(&self, descriptor: u32, file: &Arc<OpenFile>, event: EpollEvent) -> Result<()> {
        self.check_target(file)?;
        let exclusive = event.events.contains(EpollEvents::EXCLUSIVE);
        let nested = file.object::<Self>();
        if exclusive {
            let allowed = PollEvents::READABLE | PollEvents::WRITABLE | PollEvents::ALWAYS;
            let modes = EpollEvents::EXCLUSIVE | EpollEvents::EDGE_TRIGGERED | EpollEvents::WAKE_UP;
            let rest = event.events.bits() & !(allowed.bits() | modes.bits());
            if rest != 0 || nested.is_some() {
                return Err(Error::Invalid);
            }
        }
        let nesting = nested.map(|inner| Nesting::begin(&self.shared, &inner.shared)).transpose()?;
        let key = (descriptor, file.id());
        let event = EpollEvent { events: event.events.with_always(), ..event };
        let is_known = |error| if self.shared.find(key).is_some() { Error::Exists } else { error };
        let charge = self.shared.account.claim().map_err(is_known)?;
        let memory = memory::fallible::try_empty_arc()?;
        let make = |index| EpollItem {
            shared: self.shared.clone(),
            file: Arc::downgrade(file),
            key,
            index,
            event: SpinLock::new(event),
            queued: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            scan: AtomicU64::new(0),
            generation: AtomicU64::new(0),
        };
        let item = self.shared.insert(memory, make, key)?;
        charge.pass_on();
        let linked = file.add_interest(Arc::downgrade(&item)).and_then(|()| item.arm(file));
        linked.inspect_err(|_| self.shared.remove(&item))?;
        if let Some(nesting) = nesting {
            nesting.link(&item);
        }
        Ok(())
    }

    /// `EPOLL_CTL_MOD`
    pub fn modify(&self, descriptor: u32, file: &Arc<OpenFile>, event: EpollEvent) -> Result<()> {
        self.check_target(file)?;
        let item = self.shared.find((descriptor, file.id())).ok_or(Error::NotFound)?;
        let was_exclusive = item.event.lock().events.contains(EpollEvents::EXCLUSIVE);
        if was_exclusive || event.events.contains(EpollEvents::EXCLUSIVE) {
            return Err(Error::Invalid);
        }
        item.change(EpollEvent { events: event.events.with_always(), ..event });
        item.arm(file)
    }

    /// `EPOLL_CTL_DEL`
    pub fn remove(&self, descriptor: u32, file: &Arc<OpenFile>) -> Result<()> {
        self.check_target(file)?;
        let item = self.shared.find((descriptor, file.id())).ok_or(Error::NotFound)?;
        self.shared.remove(&item);
        item.leave(file);
        Ok(())
    }

    /// `EPERM` for files that can't be watched, `EINVAL` for the instance itself.
    fn check_target(&self, file: &OpenFile) -> Result<()> {
        if !file.features().contains(FileFeatures::POLLABLE) {
            return Err(Error::NotPermitted);
        }
        match file.object::<Self>() {
            Some(inner) if Arc::ptr_eq(&inner.shared, &self.shared) => Err(Error::Invalid),
            _ => Ok(()),
        }
    }

    /// `epoll_wait`: reports up to `limit` ready interests through `each`; waits until the deadline (`Some(0)`: not at
    /// all). Returns how many were reported: 0 when the time is over.
    pub fn wait(
        &self,
        limit: usize,
        deadline_ns: Option<u64>,
        each: &mut dyn FnMut(EpollEvent) -> Result<()>,
    ) -> Result<usize> {
        let shared = &*self.shared;
        loop {
            if shared.has_ready() {
                let count = shared.collect(limit, each)?;
                if count > 0 {
                    if shared.has_ready() && shared.sleeping.load(Ordering::SeqCst) > 0 {
                        shared.waiters.wake_one();
                    }
                    return Ok(count);
                }
            }
            if deadline_ns == Some(0) {
                return Ok(0);
            }
            shared.sleeping.fetch_add(1, Ordering::SeqCst);
            let waited = wait::until(&shared.waiters, deadline_ns, || shared.has_ready());
            shared.sleeping.fetch_sub(1, Ordering::SeqCst);
            match waited {
                Ok(()) => {}
                Err(Error::TimedOut) => return shared.collect(limit, each),
                Err(error) => return Err(error),
            }
        }
    }

    /// Calls `each` with descriptor and event of every interest (for `fdinfo`).
    pub fn for_each(&self, mut each: impl FnMut(u32, EpollEvent)) {
        let mut index = 0;
        loop {
            let item = match self.shared.interests.lock().places.get(index) {
                Some(place) => place.clone(),
                None => return,
            };
            if let Some(item) = item {
                let event = *item.event.lock();
                each(item.key.0, event);
            }
            index += 1;
        }
    }
}

impl FileOperations for Epoll {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE | FileFeatures::SEEK_IGNORED
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.shared.watchers);
        }
        if self.shared.has_ready() && self.shared.any_ready() {
            PollEvents::INPUT
        } else {
            PollEvents::empty()
        }
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("anon_inode:[eventpoll]")
    }

    fn information(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        let mut result = Ok(());
        self.for_each(|descriptor, event| {
            result = result.and(writeln!(
                out,
                "tfd: {descriptor:8} events: {:8x} data: {:16x}",
                event.events.bits(),
                event.data
            ));
        });
        result
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        // What lists of watched files still have of it keeps nothing else: no chain of ended instances grows, which would end one in the other.
        self.shared.watchers.clear();
        // Not looked through for each interest that ends.
        self.shared.with_ready(|ready| ready.list.clear());
        // The last ones first, as they are found fastest at files that have many.
        let mut index = self.shared.interests.lock().places.len();
        while index > 0 {
            index -= 1;
            let item = self.shared.interests.lock().places[index].clone();
            if let Some(item) = item {
                self.shared.remove(&item);
                if let Some(file) = item.file.upgrade() {
                    item.leave(&file);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_exchanges_interests_without_memory() {
        const LIMIT: u32 = 100;
        let mut table = Room::allocate(LIMIT as usize).expect("there is memory").interests;
        let key = |number: u32| (number, u64::from(number) << 12);
        table.by_key.extend((0..LIMIT).map(|number| (key(number), number)));
        let memory = table.by_key.allocation_size();
        for number in LIMIT..100 * LIMIT {
            table.by_key.remove(&key(number - LIMIT)).expect("it is there");
            table.by_key.insert(key(number), number);
        }
        assert_eq!((table.by_key.len(), table.by_key.allocation_size()), (LIMIT as usize, memory));
    }

    #[test]
    fn a_larger_table_has_everything_and_room_for_as_much() {
        let mut table = Interests::default();
        for limit in [FIRST_ROOM, 2 * FIRST_ROOM] {
            assert!(table.is_full());
            let mut room = Room::allocate(limit).expect("there is memory").interests;
            table.move_to(&mut room);
            while table.places.len() < limit {
                table.by_key.insert((table.places.len() as u32, 1), table.places.len() as u32);
                table.places.push(None);
            }
        }
        let expected: Vec<_> = (0..2 * FIRST_ROOM as u32).map(Some).collect();
        let found: Vec<_> =
            (0..2 * FIRST_ROOM as u32).map(|number| table.by_key.get(&(number, 1)).copied()).collect();
        assert_eq!(found, expected);
    }
}
