//! A ring: what its descriptor leads to.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ::memory::fallible;
use sched::{Mutex, WaitQueue};
use sync::SpinLock;
use vfs::{FileFeatures, FileMappingKind, FileOperations, OpenFile, PollEvents, PollList, PollTable};

use super::abi::setup;
use super::completions::Completions;
use super::memory::{RingMemory, word};
use super::request::Request;
use super::resources::Resources;
use crate::credentials::account::LockedMemory;
use crate::errno::Errno;

/// Requests of a ring that may be under way, completions that found no room included: beyond it submitting is EBUSY.
const LIVE_MAX: usize = 1 << 16;
/// Places that are made at a time.
const FIRST_PLACES: usize = 16;

/// What the submission side keeps; held while entries are taken.
pub(super) struct Submission {
    /// The kernel's own copy of the head.
    pub(super) head: u32,
}

/// The requests under way, by place.
#[derive(Default)]
struct Places {
    requests: Vec<Option<Arc<Request>>>,
    free: Vec<u32>,
}

/// Heads of chains that wait for others to end (IOSQE_IO_DRAIN), in their order.
#[derive(Default)]
pub(super) struct Deferred {
    heads: Vec<(Arc<Request>, usize)>,
    /// Requests in those chains.
    members: usize,
    /// Requests under way that those behind them wait for.
    draining: usize,
}

/// What a program may do with a ring (IORING_REGISTER_RESTRICTIONS).
#[derive(Clone, Copy, Default)]
pub(super) struct Restrictions {
    pub(super) registrations: u64,
    pub(super) operations: u64,
    pub(super) allowed_flags: u8,
    pub(super) required_flags: u8,
    pub(super) restricts_registrations: bool,
    pub(super) restricts_operations: bool,
}

/// See the theory of this folder.
pub(super) struct Ring {
    pub(super) memory: RingMemory,
    pub(super) flags: u32,
    pub(super) submission: Mutex<Submission>,
    pub(super) completions: Completions,
    places: SpinLock<Places>,
    live: AtomicUsize,
    deferred: SpinLock<Deferred>,
    /// A drain was asked for once: only then requests that end look at `deferred`.
    drains: AtomicBool,
    /// Requests that wait for a number of completions.
    pub(super) counting: AtomicUsize,
    pub(super) resources: Resources,
    pub(super) arrived: WaitQueue,
    pub(super) watchers: PollList,
    pub(super) is_enabled: AtomicBool,
    pub(super) restrictions: SpinLock<Option<Restrictions>>,
    pub(super) is_restricted: AtomicBool,
    /// The thread that alone may submit, as the address of what it has for that; 0: not known yet.
    pub(super) issuer: AtomicU64,
    /// The next one to be closed; see `closing`.
    pub(super) next_to_close: SpinLock<Option<Arc<Self>>>,
    _charge: Option<LockedMemory>,
}

impl Ring {
    pub(super) fn new(
        memory: RingMemory,
        flags: u32,
        charge: Option<LockedMemory>,
    ) -> Result<Arc<Self>, Errno> {
        let ring = Self {
            memory,
            flags,
            submission: Mutex::named("submission to a ring", Submission { head: 0 }),
            completions: Completions::new(),
            places: SpinLock::named("requests of a ring", Places::default()),
            live: AtomicUsize::new(0),
            deferred: SpinLock::named("deferred requests of a ring", Deferred::default()),
            drains: AtomicBool::new(false),
            counting: AtomicUsize::new(0),
            resources: Resources::new(),
            arrived: WaitQueue::new(),
            watchers: PollList::new(),
            is_enabled: AtomicBool::new(flags & setup::DISABLED == 0),
            restrictions: SpinLock::named("restrictions of a ring", None),
            is_restricted: AtomicBool::new(false),
            issuer: AtomicU64::new(0),
            next_to_close: SpinLock::named("next ring to close", None),
            _charge: charge,
        };
        fallible::try_arc(ring).map_err(|_| Errno::ENOMEM)
    }

    /// Entries that the program has put in and that were not taken.
    pub(super) fn submitted(&self) -> u32 {
        self.memory.waiting_entries(self.submission.lock().head)
    }

    /// Requests under way.
    pub(super) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Whether as much is under way as may be.
    pub(super) fn is_full(&self) -> bool {
        self.live() + self.overflowed() >= LIVE_MAX
    }

    /// A place for one more request, and room for its completion.
    ///
    /// # Errors
    /// EBUSY, ENOMEM.
    pub(super) fn claim_place(&self) -> Result<u32, Errno> {
        if self.is_full() {
            return Err(Errno::EBUSY);
        }
        let place = loop {
            let mut places = self.places.lock();
            if let Some(free) = places.free.pop() {
                break free;
            }
            if places.requests.len() < places.requests.capacity()
                && places.free.capacity() > places.requests.len()
            {
                places.requests.push(None);
                break places.requests.len() as u32 - 1;
            }
            let wanted = (2 * places.requests.len()).max(FIRST_PLACES);
            drop(places);
            self.grow(wanted)?;
        };
        let live = self.live.fetch_add(1, Ordering::Relaxed) + 1;
        self.completions.make_room(live).inspect_err(|_| drop(self.release_place(place)))?;
        Ok(place)
    }

    fn grow(&self, wanted: usize) -> Result<(), Errno> {
        let no_memory = |_| Errno::ENOMEM;
        let mut requests = fallible::try_vec(wanted).map_err(no_memory)?;
        let mut free = fallible::try_vec(wanted).map_err(no_memory)?;
        let mut places = self.places.lock();
        if places.requests.capacity() < wanted || places.free.capacity() < wanted {
            requests.append(&mut places.requests);
            free.append(&mut places.free);
            core::mem::swap(&mut places.requests, &mut requests);
            core::mem::swap(&mut places.free, &mut free);
        }
        drop(places);
        Ok(())
    }

    /// The place has its request from now on.
    pub(super) fn fill_place(&self, place: u32, request: &Arc<Request>) {
        self.places.lock().requests[place as usize] = Some(request.clone());
    }

    /// The place is free again.
    pub(super) fn release_place(&self, place: u32) -> Option<Arc<Request>> {
        let mut places = self.places.lock();
        let former = places.requests[place as usize].take();
        places.free.push(place);
        drop(places);
        self.live.fetch_sub(1, Ordering::Relaxed);
        former
    }

    /// The first request under way from a place on that is wanted, and the place after it.
    pub(super) fn find(
        &self,
        from: usize,
        wanted: impl Fn(&Request) -> bool,
    ) -> Option<(Arc<Request>, usize)> {
        let places = self.places.lock();
        let rest = places.requests.get(from..)?;
        let found =
            rest.iter().position(|request| request.as_ref().is_some_and(|request| wanted(request)))?;
        Some((rest[found].clone()?, from + found + 1))
    }

    /// A chain was made: whether it may begin now. If not, it is kept until it may.
    pub(super) fn may_begin(&self, head: &Arc<Request>, members: usize, drains: bool) -> Result<bool, Errno> {
        if !drains && !self.drains.load(Ordering::Relaxed) {
            return Ok(true);
        }
        self.drains.store(true, Ordering::Relaxed);
        let mut deferred =
            vfs::allocation::lock_with_room(|| self.deferred.lock(), 1, |deferred| &mut deferred.heads)?;
        let others = self.live().saturating_sub(deferred.members + members);
        let begins = deferred.heads.is_empty() && if drains { others == 0 } else { deferred.draining == 0 };
        if begins {
            deferred.draining += if drains { members } else { 0 };
        } else {
            deferred.heads.push((head.clone(), members));
            deferred.members += members;
        }
        drop(deferred);
        if !begins {
            // What it was to wait for may have been chains of other submitters that were deferred behind it.
            self.begin_next();
        }
        Ok(begins)
    }

    /// A request has ended: chains that waited for it may begin. They are given to their submitters.
    pub(super) fn begin_deferred(&self, ended: &Request) {
        if !self.drains.load(Ordering::Relaxed) {
            return;
        }
        let mut deferred = self.deferred.lock();
        if ended.is_draining() {
            deferred.draining = deferred.draining.saturating_sub(1);
        }
        drop(deferred);
        self.begin_next();
    }

    /// Chains whose turn it is are given to their submitters.
    fn begin_next(&self) {
        loop {
            let mut deferred = self.deferred.lock();
            let Some((head, members)) = deferred.heads.first() else { return };
            let (drains, members) = (head.is_draining(), *members);
            let others = self.live().saturating_sub(deferred.members);
            if if drains { others > 0 } else { deferred.draining > 0 } {
                return;
            }
            deferred.members -= members;
            deferred.draining += if drains { members } else { 0 };
            let (head, _) = deferred.heads.remove(0);
            drop(deferred);
            head.hand_over();
        }
    }

    /// A chain that was deferred is taken back.
    pub(super) fn forget_deferred(&self, head: &Arc<Request>) -> bool {
        let mut deferred = self.deferred.lock();
        let Some(index) = deferred.heads.iter().position(|(other, _)| Arc::ptr_eq(other, head)) else {
            return false;
        };
        let (former, members) = deferred.heads.remove(index);
        deferred.members -= members;
        drop(deferred);
        // It never began, so nobody waits for its members.
        former.set_chain_draining(false);
        true
    }

    /// Whether an operation is allowed.
    pub(super) fn allows(&self, operation: u8, flags: u8) -> bool {
        if !self.is_restricted.load(Ordering::Acquire) {
            return true;
        }
        let Some(restrictions) = *self.restrictions.lock() else { return true };
        if !restrictions.restricts_operations {
            return true;
        }
        restrictions.operations & 1 << operation != 0
            && flags & restrictions.required_flags == restrictions.required_flags
            && flags & !(restrictions.allowed_flags | restrictions.required_flags) == 0
    }
}

/// The file of a ring.
pub(super) struct RingFile(pub(super) Arc<Ring>);

/// Whether an open file is a ring.
pub(crate) fn is_ring(file: &OpenFile) -> bool {
    file.object::<RingFile>().is_some()
}

impl FileOperations for RingFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        let ring = &self.0;
        if let Some(table) = table {
            table.register(&ring.watchers);
        }
        let mut ready = PollEvents::empty();
        let tail = ring.memory.word(word::SUBMISSION_TAIL).load(Ordering::Acquire);
        let head = ring.memory.word(word::SUBMISSION_HEAD).load(Ordering::Relaxed);
        if tail.wrapping_sub(head) != ring.memory.submission_entries {
            ready |= PollEvents::OUTPUT;
        }
        if Completions::available(&ring.memory) != 0 || ring.completions.is_overflowed() {
            ready |= PollEvents::INPUT;
        }
        ready
    }

    fn mapping(&self, _file: &OpenFile) -> vfs::Result<FileMappingKind> {
        Err(vfs::Error::Invalid)
    }

    fn mapping_at(&self, _file: &OpenFile, offset: u64, length: u64) -> vfs::Result<(FileMappingKind, u64)> {
        let cache = self.0.memory.mapping(offset, length).ok_or(vfs::Error::Invalid)?;
        Ok((FileMappingKind::Pages(cache), 0))
    }

    fn release(&self, _file: &OpenFile) {
        super::closing::close(&self.0);
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("anon_inode:[io_uring]")
    }

    fn information(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        let ring = &self.0;
        let value = |at| ring.memory.word(at).load(Ordering::Relaxed);
        writeln!(out, "SqMask:\t{:#x}", ring.memory.submission_entries - 1)?;
        writeln!(out, "SqHead:\t{}", value(word::SUBMISSION_HEAD))?;
        writeln!(out, "SqTail:\t{}", value(word::SUBMISSION_TAIL))?;
        writeln!(out, "CqMask:\t{:#x}", ring.memory.completion_entries - 1)?;
        writeln!(out, "CqHead:\t{}", value(word::COMPLETION_HEAD))?;
        writeln!(out, "CqTail:\t{}", value(word::COMPLETION_TAIL))
    }
}
