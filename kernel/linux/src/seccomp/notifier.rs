//! Calls about which another process decides: seccomp_unotify(2).
//!
//! A filter may have a *listener*, a descriptor that its supervisor has. A call that the filter says this of is a [`Request`], and its thread sleeps until that is
//! answered.
//!
//! # States of a request
//! *new* → *sent* when a supervisor receives it → *answered* by it, or when the listener is closed (then with ENOSYS) → *left*. Its thread leaves it also when a signal
//! comes: from *new* always; from *sent* unless the listener was made for threads that only their death takes away then. What can't be handed to the supervisor, for his memory is
//! bad, is *new* again. *Ending* is *sent* with a descriptor on its way that shall be the answer: *answered* with its number, or *sent* if it can't be installed.
//!
//! Descriptors that the supervisor adds are installed by the thread itself, in its own table, so that no table is written from outside: it is woken for each of them, and the
//! supervisor sleeps until it has. Who leaves tells those whose descriptors he has not taken.
//!
//! # Locking
//! `list` comes before a request's `inner`. Nothing sleeps with either held, and no descriptor is dropped.
//! When the last thread that the filter counts for is gone, so is the filter, and the supervisor is told; that takes no lock, for filters go anywhere.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use memory::fallible;
use sched::WaitQueue;
use sync::SpinLock;
use vfs::wait::killable;
use vfs::{OpenFile, PollEvents, PollList};

use super::program::DATA_WORDS;
use crate::errno::{Errno, SysResult};
use crate::task::Task;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is made.
    Make,
    /// It is not; the register that has its result gets this.
    Result(u64),
}

impl Answer {
    const NOBODY: Self = Self::Result(Errno::ENOSYS.to_register());
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Sent,
    Ending,
    Answered(Answer),
    Left,
}

struct Inner {
    state: State,
    additions: Vec<Arc<Addition>>,
}

/// A call that waits for its answer.
pub(super) struct Request {
    pub(super) id: u64,
    /// The kernel's number of the thread.
    pub(super) tid: u32,
    pub(super) data: [u32; DATA_WORDS],
    inner: SpinLock<Inner>,
    /// The thread.
    sleeper: WaitQueue,
}

/// A descriptor that its thread is to have.
pub(super) struct Addition {
    file: Arc<OpenFile>,
    /// Its number, if the supervisor has chosen one.
    number: Option<u32>,
    closes_on_exec: bool,
    /// Its number is the answer.
    is_answer: bool,
    outcome: SpinLock<Option<Result<u32, Errno>>>,
    supervisor: WaitQueue,
}

struct List {
    next_id: u64,
    has_listener: bool,
    /// Oldest first.
    requests: Vec<Arc<Request>>,
}

/// What a filter and its listener share.
pub(crate) struct Notifier {
    list: SpinLock<List>,
    /// Whether there are threads that the filter counts for.
    has_filter: AtomicBool,
    /// Once a supervisor has received a request, only death takes its thread away.
    is_killable: bool,
    supervisors: WaitQueue,
    pub(super) watchers: PollList,
}

/// What a filter has of its notifier.
pub(super) struct Asked(pub(super) Arc<Notifier>);

impl Asked {
    /// For a filter that is made. One that was made before and could not be installed, since another thread was faster, is gone by now.
    pub(super) fn new(notifier: Arc<Notifier>) -> Self {
        // Release: as in `drop`.
        notifier.has_filter.store(true, Ordering::Release);
        Self(notifier)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let notifier = &self.0;
        // Release: pairs with the Acquire in `has_filter`.
        notifier.has_filter.store(false, Ordering::Release);
        notifier.supervisors.wake_all();
        notifier.watchers.notify(PollEvents::HANG_UP);
    }
}

/// What a thread finds when it looks at its request.
enum Found {
    Addition(Arc<Addition>),
    Answer(Answer),
    Nothing,
    /// A signal has come, and it has left.
    Signal,
    /// One has come, but it stays.
    Stays,
}

impl Notifier {
    pub(super) fn new(is_killable: bool) -> Result<Arc<Self>, Errno> {
        let mut id = [0; 8];
        crate::random::fill(&mut id);
        let list = List { next_id: u64::from_ne_bytes(id), has_listener: true, requests: Vec::new() };
        let notifier = Self {
            list: SpinLock::named("calls that wait for an answer", list),
            has_filter: AtomicBool::new(false),
            is_killable,
            supervisors: WaitQueue::new(),
            watchers: PollList::new(),
        };
        fallible::try_arc(notifier).map_err(|_| Errno::ENOMEM)
    }

    /// Has a supervisor decide about the call that the running thread is making. `None`: it is to be made.
    ///
    /// # Errors
    /// ENOSYS without a supervisor, ERESTARTSYS, ENOMEM.
    #[inline(never)]
    pub(super) fn ask(&self, task: &mut Task, data: &[u32; DATA_WORDS]) -> Result<Option<SysResult>, Errno> {
        let request = self.submit(task.thread.tid(), data)?;
        let answer = self.wait(task, &request);
        self.list.lock().requests.retain(|other| !Arc::ptr_eq(other, &request));
        let untaken = core::mem::take(&mut request.inner.lock().additions);
        untaken.iter().for_each(|addition| addition.settle(Err(Errno::ESRCH)));
        Ok(match answer? {
            Answer::Make => None,
            Answer::Result(register) => Some(Ok(register as usize)),
        })
    }

    fn submit(&self, tid: u32, data: &[u32; DATA_WORDS]) -> Result<Arc<Request>, Errno> {
        let inner = Inner { state: State::New, additions: Vec::new() };
        let mut request =
            Request { id: 0, tid, data: *data, inner: SpinLock::new(inner), sleeper: WaitQueue::new() };
        let request = {
            let mut list = self.list.lock();
            if !list.has_listener {
                return Err(Errno::ENOSYS);
            }
            request.id = list.next_id;
            list.next_id = list.next_id.wrapping_add(1);
            let request = fallible::try_arc(request).map_err(|_| Errno::ENOMEM)?;
            fallible::try_push(&mut list.requests, request.clone()).map_err(|_| Errno::ENOMEM)?;
            request
        };
        self.supervisors.wake_all();
        self.watchers.notify(PollEvents::READABLE);
        Ok(request)
    }

    fn wait(&self, task: &mut Task, request: &Request) -> Result<Answer, Errno> {
        loop {
            let waited = request.sleeper.wait_interruptible(|| request.has_word());
            let is_killed = task.thread.is_killed();
            match request.look(waited.is_err(), self.is_killable && !is_killed) {
                Found::Addition(addition) => {
                    let outcome = addition.perform(task);
                    let answer = request.after(&addition, outcome);
                    // Last: who hears of it finds the request as it is now.
                    addition.settle(outcome);
                    if let Some(answer) = answer {
                        return Ok(answer);
                    }
                }
                Found::Answer(answer) => return Ok(answer),
                Found::Signal => return Err(Errno::ERESTARTSYS),
                Found::Stays => crate::task::clear_attention_unless_killed(task),
                Found::Nothing => {}
            }
        }
    }

    /// Whether a thread may still ask.
    pub(super) fn has_filter(&self) -> bool {
        // Acquire: pairs with the Release in `Asked`.
        self.has_filter.load(Ordering::Acquire)
    }

    /// The oldest request that no supervisor has received, which one receives now. Sleeps until there is one.
    pub(super) fn receive(&self) -> vfs::Result<Arc<Request>> {
        loop {
            let taken = self
                .list
                .lock()
                .requests
                .iter()
                .find(|request| request.move_on(State::New, State::Sent))
                .cloned();
            if let Some(request) = taken {
                self.watchers.notify(PollEvents::WRITABLE);
                return Ok(request);
            }
            if !self.has_filter() {
                return Err(vfs::Error::NotFound);
            }
            let has_word = || !self.has_filter() || self.is_any(State::New);
            self.supervisors.wait_interruptible(has_word).map_err(|_| vfs::Error::Interrupted)?;
        }
    }

    /// It could not be handed to the supervisor: another one may receive it.
    pub(super) fn take_back(&self, request: &Request) {
        request.move_on(State::Sent, State::New);
        self.supervisors.wake_all();
        self.watchers.notify(PollEvents::READABLE);
    }

    fn is_any(&self, state: State) -> bool {
        self.list.lock().requests.iter().any(|request| request.inner.lock().state == state)
    }

    /// What a supervisor may do.
    pub(super) fn events(&self) -> PollEvents {
        let mut ready = PollEvents::empty();
        ready.set(PollEvents::READABLE, self.is_any(State::New));
        ready.set(PollEvents::WRITABLE, self.is_any(State::Sent));
        ready.set(PollEvents::HANG_UP, !self.has_filter());
        ready
    }

    /// The request with a number.
    pub(super) fn request(&self, id: u64) -> Option<Arc<Request>> {
        self.list.lock().requests.iter().find(|request| request.id == id).cloned()
    }

    /// Nobody listens any more.
    pub(super) fn close(&self) {
        let requests = {
            let mut list = self.list.lock();
            list.has_listener = false;
            core::mem::take(&mut list.requests)
        };
        for request in requests {
            {
                let mut inner = request.inner.lock();
                if !matches!(inner.state, State::Answered(_) | State::Left) {
                    inner.state = State::Answered(Answer::NOBODY);
                }
            }
            request.sleeper.wake_all();
        }
    }
}

impl Request {
    /// Goes from one state to another, if it is in the first.
    fn move_on(&self, from: State, to: State) -> bool {
        let mut inner = self.inner.lock();
        let is_there = inner.state == from;
        if is_there {
            inner.state = to;
        }
        is_there
    }

    /// Whether its thread has something to do.
    fn has_word(&self) -> bool {
        let inner = self.inner.lock();
        matches!(inner.state, State::Answered(_)) || !inner.additions.is_empty()
    }

    /// What its thread is to do now.
    fn look(&self, is_signalled: bool, stays_when_sent: bool) -> Found {
        let mut inner = self.inner.lock();
        if !inner.additions.is_empty() {
            return Found::Addition(inner.additions.remove(0));
        }
        match inner.state {
            State::Answered(answer) => {
                inner.state = State::Left;
                Found::Answer(answer)
            }
            State::Sent | State::Ending if is_signalled && stays_when_sent => Found::Stays,
            _ if is_signalled => {
                inner.state = State::Left;
                Found::Signal
            }
            _ => Found::Nothing,
        }
    }

    /// Its thread has installed a descriptor, or not: the answer, if that is it.
    fn after(&self, addition: &Addition, outcome: Result<u32, Errno>) -> Option<Answer> {
        if !addition.is_answer {
            return None;
        }
        let mut inner = self.inner.lock();
        if inner.state != State::Ending {
            return None;
        }
        inner.state = if outcome.is_ok() { State::Left } else { State::Sent };
        outcome.ok().map(|number| Answer::Result(number.into()))
    }

    /// Whether a supervisor has received it, and it has no answer.
    pub(super) fn is_sent(&self) -> bool {
        self.inner.lock().state == State::Sent
    }

    /// Whether its thread still waits for what is done about it.
    fn sent(inner: &Inner) -> Result<(), Errno> {
        match inner.state {
            State::Sent => Ok(()),
            State::Left => Err(Errno::ENOENT),
            State::New | State::Ending | State::Answered(_) => Err(Errno::EINPROGRESS),
        }
    }

    /// Answers it.
    ///
    /// # Errors
    /// EINPROGRESS, ENOENT.
    pub(super) fn answer(&self, answer: Answer) -> Result<(), Errno> {
        {
            let mut inner = self.inner.lock();
            Self::sent(&inner)?;
            inner.state = State::Answered(answer);
        }
        self.sleeper.wake_all();
        Ok(())
    }

    /// Has its thread install a descriptor, and sleeps until it has; returns the number.
    ///
    /// # Errors
    /// EINPROGRESS, ENOENT, EBUSY, ENOMEM; ESRCH if the thread leaves; ERESTARTSYS; what the thread finds.
    pub(super) fn add(&self, addition: &Arc<Addition>) -> Result<u32, Errno> {
        {
            let mut inner = self.inner.lock();
            Self::sent(&inner)?;
            if addition.is_answer && !inner.additions.is_empty() {
                return Err(Errno::EBUSY);
            }
            fallible::try_push(&mut inner.additions, addition.clone()).map_err(|_| Errno::ENOMEM)?;
            if addition.is_answer {
                inner.state = State::Ending;
            }
        }
        self.sleeper.wake_all();
        if addition.supervisor.wait_interruptible(|| addition.outcome().is_some()).is_err() {
            let mut inner = self.inner.lock();
            if let Some(at) = inner.additions.iter().position(|other| Arc::ptr_eq(other, addition)) {
                inner.additions.remove(at);
                if inner.state == State::Ending {
                    inner.state = State::Sent;
                }
                return Err(Errno::ERESTARTSYS);
            }
        }
        addition.await_taker()
    }
}

impl Addition {
    pub(super) fn new(
        file: Arc<OpenFile>,
        number: Option<u32>,
        closes_on_exec: bool,
        is_answer: bool,
    ) -> Result<Arc<Self>, Errno> {
        let (outcome, supervisor) = (SpinLock::new(None), WaitQueue::new());
        let addition = Self { file, number, closes_on_exec, is_answer, outcome, supervisor };
        fallible::try_arc(addition).map_err(|_| Errno::ENOMEM)
    }

    fn outcome(&self) -> Option<Result<u32, Errno>> {
        *self.outcome.lock()
    }

    /// Its thread has taken it, and is at it: the outcome. That may be long in coming, for what had the number before is closed first; only the supervisor's own death ends
    /// the wait.
    fn await_taker(&self) -> Result<u32, Errno> {
        let waited = killable(&self.supervisor, || self.outcome().is_some());
        self.outcome().unwrap_or(Err(if waited.is_err() { Errno::ERESTARTSYS } else { Errno::ESRCH }))
    }

    fn perform(&self, task: &mut Task) -> Result<u32, Errno> {
        let file = self.file.clone();
        let number = match self.number {
            None => task.install_file(file, self.closes_on_exec)?,
            Some(number) => crate::file::open::dup_to(task, file, number, self.closes_on_exec)?,
        };
        Ok(number as u32)
    }

    fn settle(&self, outcome: Result<u32, Errno>) {
        *self.outcome.lock() = Some(outcome);
        self.supervisor.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_is_made_once_more_has_threads_again() {
        let notifier = Notifier::new(false).expect("memory");
        drop(Asked::new(notifier.clone()));
        assert!(!notifier.has_filter() && notifier.events().contains(PollEvents::HANG_UP));
        let asked = Asked::new(notifier.clone());
        assert!(notifier.has_filter() && notifier.events().is_empty());
        drop(asked);
        assert!(!notifier.has_filter());
    }

    #[test]
    fn a_supervisor_that_is_killed_does_not_wait_for_a_descriptor_that_is_being_closed() {
        let supervisor = std::thread::spawn(|| {
            let me = sched::current();
            let file = vfs::eventfd::create(0, false, vfs::OpenFlags::empty()).expect("memory");
            let addition = Addition::new(file, Some(5), false, false).expect("memory");
            // The thread that takes it is told of a signal, which does not keep it from hearing what has become of the addition.
            me.set_attention(true);
            addition.settle(Ok(5));
            assert_eq!(addition.await_taker(), Ok(5));
            assert!(me.attention());
            *addition.outcome.lock() = None;
            me.kill();
            assert_eq!(addition.await_taker(), Err(Errno::ERESTARTSYS));
        });
        supervisor.join().expect("the supervisor ends");
    }
}
