//! Requests under way between the file system and its server.
//!
//! # States of a connection
//! *Starting*: the first request, which agrees on the protocol, is the only one that is sent; all others wait. *Open*. *Refused*: the server speaks another protocol; all
//! fail with `ECONNREFUSED`. *Over*: the server's last device is closed, the file system is unmounted, or somebody ended it by hand; what was under way fails with
//! `ECONNABORTED`, what comes with `ENOTCONN`.
//!
//! # States of a request
//! *Pending* (in the list of those to be sent) → *sent* (the server has read it) → *over*. Requests that nobody waits for (*background*) wait for their turn before they are
//! pending: so many at a time, `max_background`.
//!
//! # Giving up
//! Who waits and gets a signal says so to the server (`INTERRUPT`), and goes on waiting: the server decides. Who is killed goes at once: a request that was not read yet is
//! taken back, one that was is *abandoned*: what it says is not kept, and how many there are is limited. If an abandoned one is answered after all, what the server believes that we have (a file found, an open file) is given back.
//!
//! # Locking
//! `state`, for moments. Nothing is waited for with it, and answers are given without it.

mod notify;
mod queue;
mod request;
mod serve;
#[cfg(test)]
mod tests;
mod wait;

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use sched::WaitQueue;
use sync::{Once, SpinLock};
use vfs::poll::{PollEvents, PollList};
use vfs::{Error, Result, UserSpace, allocation};

use crate::mounted::Instance;
use crate::options::Options;
use crate::wire::init::{Agreement, Flags};

pub(crate) use notify::Notification;
pub(crate) use request::{Call, Ending, Request, Room};
pub(crate) use serve::Message;
pub(crate) use wait::killable;

/// Requests in the background at a time, unless the server wants more.
const BACKGROUND: u16 = 12;
/// From how many of them on it counts as congested.
const CONGESTION: u16 = 9;
/// How long who unmounts waits for pages that are being written.
const LAST_WRITES_NS: u64 = 2_000_000_000;
/// Writes of pages under way at most, of all files together: sixteen megabytes of copies.
const WRITES_MAX: u32 = 128;
/// Files to be forgotten that are remembered at most; what is beyond is not told to the server.
const FORGETS_MAX: usize = 1 << 16;

/// Answers to requests of killed programs that the server owes at most; one that owes more is asked nothing.
const OWED_MAX: usize = 4096;
/// What the server wanted to know of files' pages and has not read, at most: two megabytes.
const TOLD_MAX: usize = 16;
/// Requests that wait for their turn at most.
const BACKGROUND_MAX: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Open,
    Refused,
    Over { by_hand: bool },
}

struct State {
    phase: Phase,
    /// The number of the latest request.
    latest: u64,
    pending: Vec<Arc<Request>>,
    /// Those that the server has, by their numbers.
    sent: Vec<Arc<Request>>,
    /// Those of them whose asker has got a signal that the server was not told of.
    interrupts: Vec<Arc<Request>>,
    /// Those that wait for their turn.
    background: Vec<Arc<Request>>,
    /// Background requests that are pending or sent.
    active: u16,
    max_background: u16,
    congestion: u16,
    forgets: Vec<(u64, u64)>,
    /// Abandoned requests that are not over.
    owed: usize,
    /// Pending messages that tell the server what is in pages.
    told: usize,
    /// Messages about forgotten files that may come before requests.
    forget_turns: i32,
}

/// See the theory of this file.
pub struct Connection {
    pub(crate) options: Options,
    /// The name space of users of who mounted.
    pub(crate) space: UserSpace,
    state: SpinLock<State>,
    /// Where the server waits for requests.
    readers: WaitQueue,
    watchers: PollList,
    /// Where requests wait for the agreement.
    starters: WaitQueue,
    agreement: Once<Agreement>,
    /// Open devices that lead here.
    devices: AtomicU32,
    /// Requests that somebody waits for, or that are under way.
    waiting: AtomicU32,
    /// A bit for each kind of request that the server does not know.
    unknown: AtomicU64,
    /// The process that read from the device last.
    server: AtomicI32,
    /// Writes of pages under way, and where their end is waited for.
    writes: AtomicU32,
    writes_end: WaitQueue,
    /// Counts changes of attributes, so that an answer from before one is not believed.
    clock: AtomicU64,
    instance: Once<Weak<Instance>>,
}

impl Connection {
    /// One that is starting.
    pub(crate) fn new(options: Options, space: UserSpace) -> Result<Arc<Self>> {
        let state = State {
            phase: Phase::Starting,
            latest: 0,
            pending: Vec::new(),
            sent: Vec::new(),
            interrupts: Vec::new(),
            background: Vec::new(),
            active: 0,
            max_background: BACKGROUND,
            congestion: CONGESTION,
            forgets: Vec::new(),
            owed: 0,
            told: 0,
            forget_turns: 0,
        };
        allocation::arc(Self {
            options,
            space,
            state: SpinLock::named("requests to a file server of the machine", state),
            readers: WaitQueue::new(),
            watchers: PollList::new(),
            starters: WaitQueue::new(),
            agreement: Once::new(),
            devices: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            unknown: AtomicU64::new(0),
            server: AtomicI32::new(0),
            writes: AtomicU32::new(0),
            writes_end: WaitQueue::new(),
            clock: AtomicU64::new(1),
            instance: Once::new(),
        })
    }

    /// The mounted tree.
    pub(crate) fn set_instance(&self, instance: &Arc<Instance>) {
        self.instance.call_once(|| Arc::downgrade(instance));
    }

    pub(crate) fn instance(&self) -> Option<Arc<Instance>> {
        self.instance.get().and_then(Weak::upgrade)
    }

    /// What was agreed on; nothing before.
    pub(crate) fn flags(&self) -> Flags {
        self.agreement.get().map_or(Flags::empty(), |agreed| agreed.flags)
    }

    /// Bytes of a write at most, and of a read.
    pub(crate) fn transfer_bytes(&self) -> (usize, usize) {
        const MOST: usize = memory::file_cache::RUN_PAGES * machine::address::PAGE_SIZE;
        let (write, pages) =
            self.agreement.get().map_or((4096, 1), |agreed| (agreed.write_bytes as usize, agreed.pages));
        let pages = usize::from(pages) * machine::address::PAGE_SIZE;
        (write.min(pages).min(MOST), pages.min(MOST).min(self.options.read_bytes as usize))
    }

    /// Whether the server knows requests of a kind, as far as it has said.
    pub(crate) fn knows(&self, opcode: u32) -> bool {
        self.unknown.load(Relaxed) & 1 << (opcode & 63) == 0
    }

    /// It does not.
    pub(crate) fn note_unknown(&self, opcode: u32) {
        self.unknown.fetch_or(1 << (opcode & 63), Relaxed);
    }

    /// A moment, to compare with later ones.
    pub(crate) fn moment(&self) -> u64 {
        self.clock.load(SeqCst)
    }

    /// A new moment.
    pub(crate) fn next_moment(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst) + 1
    }

    /// Whether the calling program may have the server asked: by all of its ids it is who mounted, or the mount lets others.
    pub(crate) fn admits_caller(&self) -> bool {
        let Some(ids) = vfs::caller::ids() else { return true };
        if self.options.allow_other {
            return vfs::credentials::caller_is(|caller| caller.space.is_within(&self.space));
        }
        ids.users == [self.options.user; 3] && ids.groups == [self.options.group; 3]
    }

    /// The calling program is refused, unless it may have the server asked.
    pub(crate) fn admit(&self) -> Result<()> {
        if self.admits_caller() { Ok(()) } else { Err(Error::AccessDenied) }
    }

    /// Whether the calling program is the server itself.
    pub(crate) fn is_server_calling(&self) -> bool {
        let process = vfs::caller::number(false);
        process != 0 && process == self.server.load(Relaxed)
    }

    /// A write of pages begins, unless there are as many as may be.
    pub(crate) fn write_begins(&self) -> bool {
        let one_more = |writes| (writes < WRITES_MAX).then_some(writes + 1);
        self.writes.fetch_update(SeqCst, SeqCst, one_more).is_ok()
    }

    /// It is over.
    pub(crate) fn write_ends(&self) {
        self.writes.fetch_sub(1, SeqCst);
        self.writes_end.wake_all();
    }

    /// Waits until a write of pages may begin.
    ///
    /// # Errors
    /// `EINTR` if the thread is to end.
    pub(crate) fn await_write_room(&self) -> Result<()> {
        killable(&self.writes_end, || self.writes.load(SeqCst) < WRITES_MAX, || ())
    }

    /// Begins to write pages with `begin`, again and again while some are left, and waits until none is being written any more; but not for long: a server that
    /// is about to end may have itself unmounted, and wait for that.
    pub(crate) fn write_last(&self, begin: impl Fn(), is_left: impl Fn() -> bool) {
        let deadline_ns = machine::time::now_ns() + LAST_WRITES_NS;
        loop {
            begin();
            let is_done = || self.writes.load(SeqCst) == 0;
            // Whoever does not wait to the end has been told of nothing that lasts.
            if self.is_server_calling()
                || self.writes_end.wait_interruptible_deadline(is_done, Some(deadline_ns)).is_err()
                || !is_left()
                || machine::time::now_ns() >= deadline_ns
                || self.is_over()
            {
                return;
            }
        }
    }

    /// A device leads here.
    pub(crate) fn add_device(&self) {
        self.devices.fetch_add(1, SeqCst);
    }

    /// Whether nobody can be asked any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Over { .. })
    }

    /// Requests that are under way.
    pub(crate) fn waiting_count(&self) -> u32 {
        self.waiting.load(Relaxed)
    }

    /// How many requests are in the background at a time, and from how many on it counts as congested.
    pub(crate) fn background_limits(&self) -> (u16, u16) {
        let state = self.state.lock();
        (state.max_background, state.congestion)
    }

    /// Changes one or both of these.
    pub(crate) fn set_background_limits(&self, most: Option<u16>, congestion: Option<u16>) {
        let mut state = self.state.lock();
        state.max_background = most.unwrap_or(state.max_background);
        state.congestion = congestion.unwrap_or(state.congestion);
        drop(state);
        self.start_background();
    }

    fn tell_readers(&self) {
        self.readers.wake_one();
        self.watchers.notify(PollEvents::INPUT);
    }

    /// The end. `by_hand`: somebody wanted it, and a server that asked for that hears so.
    pub(crate) fn end(&self, by_hand: bool) {
        let mut left = {
            let mut state = self.state.lock();
            if matches!(state.phase, Phase::Over { .. }) {
                return;
            }
            state.phase = Phase::Over { by_hand };
            state.active = 0;
            state.told = 0;
            let lists = [
                core::mem::take(&mut state.pending),
                core::mem::take(&mut state.sent),
                core::mem::take(&mut state.background),
            ];
            (lists, core::mem::take(&mut state.interrupts), core::mem::take(&mut state.forgets))
        };
        for request in left.0.iter_mut().flat_map(|list| list.drain(..)) {
            self.finish(&request, Err(Error::ConnectionAborted));
        }
        drop(left);
        self.readers.wake_all();
        self.starters.wake_all();
        self.watchers.notify(PollEvents::ERROR | PollEvents::INPUT);
    }
}
