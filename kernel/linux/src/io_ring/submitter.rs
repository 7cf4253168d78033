//! What a thread that submits to rings has: see the theory of this folder.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use ::memory::fallible;
use sched::WaitQueue;
use sync::{IrqSpinLock, SpinLock};
use vfs::OpenFile;

use super::request::{Request, Stage};
use super::ring::Ring;
use super::{cancel, worker};
use crate::errno::Errno;
use crate::process::thread::Thread;
use crate::task::Task;

/// Rings that can be known by number instead of by descriptor (IORING_REGISTER_RING_FDS).
pub(super) const REGISTERED_MAX: usize = 16;
/// Workers for transfers of files, for each processor, and for what may wait for ever, unless the program says otherwise.
const BOUNDED_PER_CPU: u32 = 4;
const UNBOUNDED: u32 = 64;
/// Workers of either kind at most, whatever the program says.
pub(super) const WORKERS_MAX: u32 = 256;
/// Requests that there is room for at the first one.
const FIRST_ROOM: usize = 16;

/// How long a request may keep a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// As long as a disk takes.
    Bounded = 0,
    /// As long as somebody else wants.
    Unbounded = 1,
}

#[derive(Default)]
struct Queues {
    /// Requests that were told of.
    ready: VecDeque<Arc<Request>>,
    /// Requests that need a worker. There is room for all of both.
    work: VecDeque<(Arc<Request>, Class)>,
    live: usize,
    /// The ring in whose call the thread itself waits, and serves `ready`.
    waiting: Option<Arc<Ring>>,
    /// Those that have not left the process yet, and perhaps some that have.
    workers: Vec<Arc<Thread>>,
    /// Those that have not ended.
    serving: u32,
    idle: u32,
    running: [u32; 2],
    limits: [u32; 2],
    is_closing: bool,
}

impl Queues {
    fn next_work(&mut self) -> Option<(Arc<Request>, Class)> {
        let fits = |(_, class): &(_, Class)| self.running[*class as usize] < self.limits[*class as usize];
        let index = self.work.iter().position(fits)?;
        let (request, class) = self.work.remove(index)?;
        self.running[class as usize] += 1;
        Some((request, class))
    }

    fn has_work(&self) -> bool {
        !self.ready.is_empty()
            || self.work.iter().any(|(_, class)| self.running[*class as usize] < self.limits[*class as usize])
    }

    /// Whether one more worker would have something to do, now or when a file is ready.
    fn wants_worker(&self) -> bool {
        let most = self.limits[0] + self.limits[1] + 1;
        let busy = self.running[0] + self.running[1];
        let others_may_become_ready = self.live > self.work.len() + busy as usize;
        !self.is_closing
            && self.idle == 0
            && self.serving < most
            && (others_may_become_ready || self.has_work())
    }
}

/// What a worker is to do.
pub(super) enum Item {
    /// Go on with what was told of; it counts as unbounded.
    Ready(Arc<Request>),
    /// Execute this, however long it waits.
    Work(Arc<Request>, Class),
    /// There is nothing.
    Nothing,
    /// End.
    End,
}

/// See the theory of this folder.
pub(crate) struct Submitter {
    queues: IrqSpinLock<Queues>,
    /// Workers wait here.
    event: WaitQueue,
    /// Rings that were submitted to.
    rings: SpinLock<Vec<Weak<Ring>>>,
    registered: SpinLock<[Option<Arc<OpenFile>>; REGISTERED_MAX]>,
}

impl Submitter {
    /// That of the thread, made on its first use.
    pub(super) fn of(task: &mut Task) -> Result<Arc<Self>, Errno> {
        if let Some(submitter) = &task.submitter {
            return Ok(submitter.clone());
        }
        let limits = [BOUNDED_PER_CPU * machine::cpu::count() as u32, UNBOUNDED];
        let queues = Queues { limits, ..Queues::default() };
        let submitter = fallible::try_arc(Self {
            queues: IrqSpinLock::named("requests of a submitter", queues),
            event: WaitQueue::new(),
            rings: SpinLock::named("rings of a submitter", Vec::new()),
            registered: SpinLock::named("registered rings", [const { None }; REGISTERED_MAX]),
        })
        .map_err(|_| Errno::ENOMEM)?;
        task.submitter = Some(submitter.clone());
        Ok(submitter)
    }

    /// Notes that it submits to a ring.
    pub(super) fn note_ring(&self, ring: &Arc<Ring>) -> Result<(), Errno> {
        let is_this = |known: &Weak<Ring>| core::ptr::eq(known.as_ptr(), Arc::as_ptr(ring));
        if self.rings.lock().iter().any(is_this) {
            return Ok(());
        }
        let mut rings = vfs::allocation::lock_with_room(|| self.rings.lock(), 1, |rings| rings)?;
        // Those that are gone leave their places.
        let gone = rings.iter().position(|known| known.strong_count() == 0);
        let former = gone.map(|index| rings.swap_remove(index));
        rings.push(Arc::downgrade(ring));
        drop(rings);
        drop(former);
        Ok(())
    }

    /// Counts one more request, for which there is room in both queues then.
    pub(super) fn admit(&self) -> Result<(), Errno> {
        let mut ready = VecDeque::new();
        let mut work = VecDeque::new();
        loop {
            let mut queues = self.queues.lock();
            if queues.is_closing {
                return Err(Errno::ECANCELED);
            }
            let needed = queues.live + 1;
            if queues.ready.capacity() < needed && ready.capacity() >= needed {
                ready.extend(queues.ready.drain(..));
                core::mem::swap(&mut queues.ready, &mut ready);
            }
            if queues.work.capacity() < needed && work.capacity() >= needed {
                work.extend(queues.work.drain(..));
                core::mem::swap(&mut queues.work, &mut work);
            }
            if queues.ready.capacity() >= needed && queues.work.capacity() >= needed {
                queues.live = needed;
                return Ok(());
            }
            drop(queues);
            let wanted = (2 * needed).max(FIRST_ROOM);
            fallible::fail_point().map_err(|_| Errno::ENOMEM)?;
            ready.try_reserve(wanted).map_err(|_| Errno::ENOMEM)?;
            work.try_reserve(wanted).map_err(|_| Errno::ENOMEM)?;
        }
    }

    /// A request that was admitted has ended.
    pub(super) fn dismiss(&self) {
        let mut queues = self.queues.lock();
        queues.live -= 1;
        let is_awaited = queues.is_closing && queues.live == 0;
        drop(queues);
        if is_awaited {
            self.event.wake_all();
        }
    }

    /// A request was told of. Called from anywhere.
    pub(super) fn add_ready(&self, request: Arc<Request>) {
        let mut queues = self.queues.lock();
        debug_assert!(queues.ready.len() < queues.ready.capacity(), "there is room for every request");
        queues.ready.push_back(request);
        match &queues.waiting {
            Some(ring) => ring.arrived.wake_all(),
            None => self.event.wake_one(),
        }
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.queues.lock().ready.is_empty()
    }

    /// The first request that was told of, now owned by the caller.
    pub(super) fn take_ready(&self) -> Option<Arc<Request>> {
        loop {
            let request = self.queues.lock().ready.pop_front()?;
            if request.take(Stage::Ready) {
                return Some(request);
            }
        }
    }

    /// Takes a request off the lists, for who owns it.
    pub(super) fn forget(&self, request: &Arc<Request>) {
        let mut queues = self.queues.lock();
        let ready = queues.ready.iter().position(|other| Arc::ptr_eq(other, request));
        let ready = ready.and_then(|index| queues.ready.remove(index));
        let work = queues.work.iter().position(|(other, _)| Arc::ptr_eq(other, request));
        let work = work.and_then(|index| queues.work.remove(index));
        drop(queues);
        drop((ready, work));
    }

    /// The thread itself waits in a call on the ring from now on, or does no longer.
    pub(super) fn set_waiting(&self, ring: Option<&Arc<Ring>>) {
        let mut queues = self.queues.lock();
        let former = core::mem::replace(&mut queues.waiting, ring.cloned());
        let rest = ring.is_none() && !queues.ready.is_empty();
        drop(queues);
        drop(former);
        if rest {
            self.event.wake_one();
        }
    }

    /// A request that its caller owns needs a worker.
    pub(super) fn enqueue(self: &Arc<Self>, task: &Task, request: &Arc<Request>, class: Class) {
        {
            let mut queues = self.queues.lock();
            request.put(Stage::Queued);
            queues.work.push_back((request.clone(), class));
        }
        self.event.wake_one();
        self.start_worker_if_wanted(task);
        let mut queues = self.queues.lock();
        if queues.serving == 0 && request.take(Stage::Queued) {
            // There is nobody who could do it.
            queues.work.retain(|(other, _)| !Arc::ptr_eq(other, request));
            drop(queues);
            super::execute::finish_and_hand_over(request, Err(Errno::EAGAIN));
        }
    }

    /// Sees to it that somebody serves what will be told of. The caller is the submitter's thread, or one of its workers.
    pub(super) fn start_worker_if_wanted(self: &Arc<Self>, task: &Task) {
        if self.queues.lock().wants_worker() {
            // Who can't have one more makes do with those that there are.
            let _ = worker::start(task, self);
        }
    }

    /// Whether there is a worker.
    pub(super) fn has_worker(&self) -> bool {
        self.queues.lock().serving > 0
    }

    /// Lists a worker that is about to begin. It stays listed until it is no thread of the process any more, so that who ends can wait for that.
    pub(super) fn enlist(&self, thread: &Arc<Thread>) -> Result<(), Errno> {
        let mut larger = Vec::new();
        loop {
            let mut queues = self.queues.lock();
            if queues.is_closing {
                return Err(Errno::ECANCELED);
            }
            if queues.workers.len() == queues.workers.capacity() && larger.capacity() > queues.workers.len() {
                larger.append(&mut queues.workers);
                core::mem::swap(&mut queues.workers, &mut larger);
            }
            if queues.workers.len() < queues.workers.capacity() {
                queues.workers.push(thread.clone());
                queues.serving += 1;
                return Ok(());
            }
            let wanted = (2 * queues.workers.len()).max(4);
            drop(queues);
            self.forget_ended(thread);
            fallible::try_reserve(&mut larger, wanted).map_err(|_| Errno::ENOMEM)?;
        }
    }

    /// Forgets workers that have left the process.
    fn forget_ended(&self, one: &Thread) {
        let is_there = |worker: &Arc<Thread>| {
            one.process().threads.lock().iter().any(|thread| Arc::ptr_eq(thread, worker))
        };
        let mut index = 0;
        loop {
            let Some(worker) = self.queues.lock().workers.get(index).cloned() else { return };
            if worker.exiting.load(core::sync::atomic::Ordering::Acquire) && !is_there(&worker) {
                self.strike(&worker);
            } else {
                index += 1;
            }
        }
    }

    /// Takes a worker off the list that is gone, or never began.
    fn strike(&self, thread: &Arc<Thread>) {
        let mut queues = self.queues.lock();
        let index = queues.workers.iter().position(|other| Arc::ptr_eq(other, thread));
        let former = index.map(|index| queues.workers.swap_remove(index));
        drop(queues);
        drop(former);
    }

    /// A worker that was listed could not begin.
    pub(super) fn discharge(&self, thread: &Arc<Thread>) {
        self.strike(thread);
        self.stop_serving();
    }

    /// A worker is about to end.
    pub(super) fn stop_serving(&self) {
        self.queues.lock().serving -= 1;
    }

    /// What a worker does next; `may_end`: it has waited long enough.
    pub(super) fn next_item(&self, may_end: bool) -> Item {
        loop {
            let mut queues = self.queues.lock();
            if queues.is_closing {
                return Item::End;
            }
            if let Some(request) = queues.ready.pop_front() {
                // It may turn out to wait as long as others want.
                queues.running[Class::Unbounded as usize] += 1;
                drop(queues);
                if request.take(Stage::Ready) {
                    return Item::Ready(request);
                }
                self.queues.lock().running[Class::Unbounded as usize] -= 1;
                continue;
            }
            let Some((request, class)) = queues.next_work() else {
                return if may_end && queues.live == 0 { Item::End } else { Item::Nothing };
            };
            if request.take(Stage::Queued) {
                return Item::Work(request, class);
            }
            queues.running[class as usize] -= 1;
            drop(queues);
        }
    }

    /// What a worker did keeps it no longer.
    pub(super) fn work_done(&self, class: Class) {
        let mut queues = self.queues.lock();
        queues.running[class as usize] -= 1;
        let more = queues.has_work();
        drop(queues);
        if more {
            self.event.wake_one();
        }
    }

    /// A worker waits for something to do.
    pub(super) fn wait_for_work(&self, deadline_ns: u64) -> Result<(), sched::WaitError> {
        self.queues.lock().idle += 1;
        let result = self.event.wait_interruptible_deadline(
            || {
                let queues = self.queues.lock();
                queues.is_closing || queues.has_work()
            },
            Some(deadline_ns),
        );
        self.queues.lock().idle -= 1;
        result
    }

    /// Sets how many workers there may be; 0 leaves a number as it is. What they were.
    pub(super) fn set_limits(&self, new: [u32; 2]) -> [u32; 2] {
        let mut queues = self.queues.lock();
        let former = queues.limits;
        for (limit, new) in queues.limits.iter_mut().zip(new) {
            if new > 0 {
                *limit = new.min(WORKERS_MAX);
            }
        }
        former
    }

    /// The ring that was registered under a number.
    pub(super) fn registered(&self, number: usize) -> Option<Arc<OpenFile>> {
        self.registered.lock().get(number).cloned().flatten()
    }

    /// Registers a ring, under a number or the first that is free.
    pub(super) fn register(&self, number: Option<usize>, file: Arc<OpenFile>) -> Result<usize, Errno> {
        let mut registered = self.registered.lock();
        let number = match number {
            Some(number) => number,
            None => registered.iter().position(Option::is_none).ok_or(Errno::EBUSY)?,
        };
        let place = registered.get_mut(number).ok_or(Errno::EINVAL)?;
        if place.is_some() {
            return Err(Errno::EBUSY);
        }
        *place = Some(file);
        Ok(number)
    }

    pub(super) fn unregister(&self, number: usize) -> Option<Arc<OpenFile>> {
        self.registered.lock().get_mut(number).and_then(Option::take)
    }

    /// The thread ends, or executes a program: its requests are taken back and its workers end. When this returns, neither is there any more.
    #[inline(never)]
    pub(crate) fn shut_down(self: Arc<Self>, task: &Task) {
        let registered = core::mem::take(&mut *self.registered.lock());
        drop(registered);
        self.queues.lock().is_closing = true;
        self.event.wake_all();
        let rings = core::mem::take(&mut *self.rings.lock());
        let mine = |request: &Request| Arc::ptr_eq(&request.submitter, &self);
        let process = task.process();
        loop {
            for ring in rings.iter().filter_map(Weak::upgrade) {
                cancel::take_back(&ring, mine);
            }
            let Some(worker) = self.queues.lock().workers.first().cloned() else { break };
            worker.kill();
            // One that is parked in a stop notices only then.
            process.signal_event.wake_all();
            let is_there = || process.threads.lock().iter().any(|thread| Arc::ptr_eq(thread, &worker));
            process.thread_event.wait_until(|| !is_there());
            self.strike(&worker);
        }
        loop {
            for ring in rings.iter().filter_map(Weak::upgrade) {
                cancel::take_back(&ring, mine);
            }
            while let Some(request) = self.take_ready() {
                super::execute::finish_and_hand_over(&request, Err(Errno::ECANCELED));
            }
            if self.queues.lock().live == 0 {
                break;
            }
            // A thread of another submitter is in the midst of one: it ends it, or hands it over.
            self.event.wait_until(|| {
                let queues = self.queues.lock();
                queues.live == 0 || !queues.ready.is_empty()
            });
        }
        let rest = {
            let mut queues = self.queues.lock();
            (core::mem::take(&mut queues.ready), core::mem::take(&mut queues.work))
        };
        drop(rest);
    }
}
