//! One submission on its way to its completion.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use ::memory::buffer::UserRange;
use ::memory::fallible;
use sched::timer::Timer;
use sync::{IrqSpinLock, SpinLock};
use vfs::poll::{Notified, PollWatcher};
use vfs::{OpenFile, PollEvents};

use super::abi::{Entry, entry};
use super::ring::Ring;
use super::submitter::Submitter;
use crate::abi::MessageHeader;
use crate::credentials::identity::Credentials;
use crate::errno::Errno;
use crate::process::thread::Thread;

/// Who may act on a request; see the theory of this folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// In a chain whose turn has not come.
    Held,
    /// Somebody has it.
    Running,
    /// A file or a timer will tell.
    Armed,
    /// It was told of; on its submitter's list.
    Ready,
    /// It waits for a worker.
    Queued,
    /// It has ended.
    Done,
}

/// What was read of the program's memory when it was submitted.
pub(super) enum Prepared {
    /// Nothing.
    None,
    /// A list of ranges.
    Ranges(Vec<UserRange>),
    /// A message and its ranges.
    Message(MessageHeader, Vec<UserRange>),
    /// A time, and how it is meant: flags of timeouts.
    Time(u64, u32),
    /// An address to connect to.
    Address(crate::socket::submitted::Address),
}

/// What changes while it is under way.
pub(super) struct Changing {
    pub(super) file: Option<Arc<OpenFile>>,
    /// The rest of its chain.
    pub(super) next: Option<Arc<Request>>,
    pub(super) watch: Option<Arc<Watch>>,
    pub(super) timer: Option<Arc<Timer>>,
    /// The worker that executes it.
    pub(super) worker: Option<Arc<Thread>>,
    /// What a limit of time is for.
    pub(super) limits: Option<Arc<Request>>,
    /// What is polled for; changes by IORING_POLL_UPDATE_EVENTS.
    pub(super) events: PollEvents,
    pub(super) user_data: u64,
    /// The count of completions at which a timeout ends.
    pub(super) target: Option<u32>,
}

/// See the theory of this file.
pub(super) struct Request {
    pub(super) ring: Arc<Ring>,
    pub(super) submitter: Arc<Submitter>,
    pub(super) entry: Entry,
    pub(super) credentials: Arc<Credentials>,
    pub(super) prepared: Prepared,
    /// What is wrong with the entry: all that it does is to say so.
    pub(super) refused: Option<Errno>,
    place: u32,
    stage: AtomicU8,
    cancelled: AtomicBool,
    draining: AtomicBool,
    /// It left the call that submitted it.
    pub(super) left: AtomicBool,
    /// It was told of while somebody had it.
    pub(super) missed: AtomicBool,
    /// What it polls for was changed while somebody had it.
    pub(super) changed: AtomicBool,
    pub(super) changing: SpinLock<Changing>,
}

impl Request {
    /// A request in a place of the ring and counted for its submitter.
    pub(super) fn new(
        ring: &Arc<Ring>,
        submitter: &Arc<Submitter>,
        entry: Entry,
        credentials: Arc<Credentials>,
        prepared: Result<Prepared, Errno>,
    ) -> Result<Arc<Self>, Errno> {
        let (prepared, refused) = match prepared {
            Ok(prepared) => (prepared, None),
            Err(errno) => (Prepared::None, Some(errno)),
        };
        let memory = fallible::try_empty_arc().map_err(|_| Errno::ENOMEM)?;
        submitter.admit()?;
        let place = ring.claim_place().inspect_err(|_| submitter.dismiss())?;
        let changing = Changing {
            file: None,
            next: None,
            watch: None,
            timer: None,
            worker: None,
            limits: None,
            events: super::operations::polled_events(&entry),
            user_data: entry.user_data,
            target: None,
        };
        let request = memory.fill(Self {
            ring: ring.clone(),
            submitter: submitter.clone(),
            entry,
            credentials,
            prepared,
            refused,
            place,
            stage: AtomicU8::new(Stage::Held as u8),
            cancelled: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            left: AtomicBool::new(false),
            missed: AtomicBool::new(false),
            changed: AtomicBool::new(false),
            changing: SpinLock::named("request of a ring", changing),
        });
        ring.fill_place(place, &request);
        Ok(request)
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.entry.flags & flag != 0
    }

    /// Whether its end begins the next of its chain.
    pub(super) fn is_linked(&self) -> bool {
        self.has(entry::LINK | entry::HARD_LINK)
    }

    pub(super) fn user_data(&self) -> u64 {
        self.changing.lock().user_data
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Says of this one and those that follow it whether others wait for their ends.
    pub(super) fn set_chain_draining(self: &Arc<Self>, draining: bool) {
        let mut member = Some(self.clone());
        while let Some(request) = member {
            request.draining.store(draining, Ordering::Relaxed);
            member = request.changing.lock().next.clone();
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    pub(super) fn cancel_soon(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Owns it, if it is where it is thought to be.
    pub(super) fn take(&self, from: Stage) -> bool {
        // AcqRel: what its former owner did to it is seen, and what the next one finds was done before.
        self.stage
            .compare_exchange(from as u8, Stage::Running as u8, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    pub(super) fn is_at(&self, stage: Stage) -> bool {
        self.stage.load(Ordering::Acquire) == stage as u8
    }

    /// Its owner says where it is from now on, and owns it no longer.
    pub(super) fn put(&self, stage: Stage) {
        debug_assert!(self.is_at(Stage::Running) || stage == Stage::Held, "only its owner moves a request");
        self.stage.store(stage as u8, Ordering::Release);
    }

    /// Its owner lets others have their turn before it goes on.
    pub(super) fn yield_turn(self: &Arc<Self>) {
        self.left.store(true, Ordering::Relaxed);
        self.put(Stage::Armed);
        self.fire();
    }

    /// Puts an armed request on its submitter's list. If somebody has it, that is noted.
    fn fire(self: &Arc<Self>) {
        // Release: who takes the note back sees what it was for.
        self.missed.store(true, Ordering::Release);
        let fires = self
            .stage
            .compare_exchange(Stage::Armed as u8, Stage::Ready as u8, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if fires {
            self.submitter.add_ready(self.clone());
        }
    }

    /// A held request's turn has come, in whatever context: its submitter will begin it.
    pub(super) fn hand_over(self: &Arc<Self>) {
        let held = self.stage.compare_exchange(
            Stage::Held as u8,
            Stage::Ready as u8,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if held.is_ok() {
            self.left.store(true, Ordering::Relaxed);
            self.submitter.add_ready(self.clone());
        }
    }

    /// It has ended: nothing tells it of anything any more. What it held is returned, to be dropped without locks.
    #[must_use]
    pub(super) fn let_go(&self) -> Held {
        let mut changing = self.changing.lock();
        let held = Held {
            _file: changing.file.take(),
            timer: changing.timer.take(),
            watch: changing.watch.take(),
            _limits: changing.limits.take(),
        };
        changing.worker = None;
        drop(changing);
        if let Some(watch) = &held.watch {
            watch.end();
        }
        if let Some(timer) = &held.timer {
            timer.cancel();
        }
        held
    }

    /// Its place, and what counts it, are free.
    pub(super) fn retire(&self) {
        let place = self.ring.release_place(self.place);
        drop(place);
        self.submitter.dismiss();
    }

    /// The watch, made on its first use.
    pub(super) fn watch(self: &Arc<Self>) -> Result<Arc<Watch>, Errno> {
        if let Some(watch) = &self.changing.lock().watch {
            return Ok(watch.clone());
        }
        let watch = fallible::try_arc(Watch {
            target: IrqSpinLock::named("target of a watch", Some(self.clone())),
            over: AtomicBool::new(false),
        })
        .map_err(|_| Errno::ENOMEM)?;
        self.changing.lock().watch = Some(watch.clone());
        Ok(watch)
    }

    /// Makes its timer. It is armed with the request.
    pub(super) fn make_timer(self: &Arc<Self>) -> Result<Arc<Timer>, Errno> {
        let watch = self.watch()?;
        let callback = fallible::try_box(move || watch.fire()).map_err(|_| Errno::ENOMEM)?;
        let timer = Timer::new(callback).map_err(|_| Errno::ENOMEM)?;
        self.changing.lock().timer = Some(timer.clone());
        Ok(timer)
    }

    /// Waits for its timer from now on; the caller owns it no longer.
    pub(super) fn arm_timer(&self, timer: &Arc<Timer>, deadline_ns: u64) {
        self.put(Stage::Armed);
        timer.arm(deadline_ns);
        // Who ended it meanwhile has cancelled a timer that was not armed yet.
        if self.is_at(Stage::Done) {
            timer.cancel();
        }
    }
}

/// What a request held that has ended.
pub(super) struct Held {
    _file: Option<Arc<OpenFile>>,
    timer: Option<Arc<Timer>>,
    watch: Option<Arc<Watch>>,
    _limits: Option<Arc<Request>>,
}

/// Tells an armed request that its file is ready, or its time over. Lists of files and timers may keep it when the request has ended; it
/// leads nowhere then.
pub(super) struct Watch {
    target: IrqSpinLock<Option<Arc<Request>>>,
    over: AtomicBool,
}

impl Watch {
    fn fire(&self) {
        // A reference is taken only where it goes to the list, so that none is dropped here.
        if let Some(request) = &*self.target.lock() {
            request.fire();
        }
    }

    fn end(&self) {
        self.over.store(true, Ordering::Release);
        let target = self.target.lock().take();
        drop(target);
    }
}

impl PollWatcher for Watch {
    fn notify(&self, _key: u64, _events: PollEvents) -> Notified {
        self.fire();
        Notified::Remove
    }

    fn is_stale(&self, _key: u64) -> bool {
        self.over.load(Ordering::Acquire)
    }
}
