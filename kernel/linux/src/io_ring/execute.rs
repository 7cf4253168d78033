//! From a request to its outcome: see the theory of this folder.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use sched::current;
use vfs::poll::PollWatcher;
use vfs::{FileFeatures, PollEvents, PollTable};

use super::abi::{Completion, entry, operation};
use super::operations::{self, Step};
use super::request::{Prepared, Request, Stage};
use super::submitter::Class;
use super::{cancel, operations::timeout};
use crate::credentials::identity::Credentials;
use crate::errno::{Errno, SysResult};
use crate::signal::deliver;
use crate::task::Task;

/// How often a file may say that it is ready and an operation on it that it would wait, before the latter waits in a worker.
const FALSE_ALARMS_MAX: u32 = 2;

/// Who executes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A thread in a call, with its attention flag set: nothing waits.
    Call,
    /// A worker.
    Worker,
}

/// Runs something with the attention flag set, so that a wait that would begin ends at once.
pub(super) fn without_waiting<R>(task: &mut Task, run: impl FnOnce(&mut Task) -> R) -> R {
    let thread = current();
    thread.set_attention(true);
    let result = run(task);
    // What else the flag may have been set for meanwhile is looked for now, and on the way to user mode.
    thread.set_attention(false);
    task.needs_work = true;
    if deliver::is_pending(task) || task.process().control_group.freezes() {
        thread.set_attention(true);
    }
    result
}

/// Begins a request whose turn it is, and what follows it in its chain as far as that need not wait.
pub(super) fn begin(task: &mut Task, request: Arc<Request>, by: By) {
    let mut next = Some(request);
    while let Some(request) = next.take() {
        if !request.take(Stage::Held) {
            return;
        }
        let sent_away = request.has(entry::ASYNCHRONOUS) && by == By::Call;
        next = match request.refused {
            Some(errno) => finish(&request, Err(errno), 0),
            None if sent_away => {
                send_away(task, &request, Class::Bounded);
                None
            }
            None => attempt(task, &request, by, false),
        };
    }
}

/// Goes on with a request that was told of, or handed over, and that the caller owns.
pub(super) fn go_on(task: &mut Task, request: Arc<Request>, by: By) {
    let next = match request.refused {
        Some(errno) => finish(&request, Err(errno), 0),
        None => attempt(task, &request, by, true),
    };
    if let Some(next) = next {
        begin(task, next, by);
    }
}

/// Serves a worker's request, however long that takes. The caller owns it.
pub(super) fn wait_for(task: &mut Task, request: Arc<Request>) {
    let is_first = !request.left.swap(true, Ordering::Relaxed);
    // What was sent away unasked may turn out not to wait, or to have a file that tells.
    let next = if is_first { attempt(task, &request, By::Worker, false) } else { wait(task, &request) };
    if let Some(next) = next {
        begin(task, next, By::Worker);
    }
}

/// Has a worker execute it. The caller owns it no longer.
fn send_away(task: &mut Task, request: &Arc<Request>, class: Class) {
    limit_time(request);
    let submitter = request.submitter.clone();
    submitter.enqueue(task, request, class);
}

/// In a worker: executes it to its end.
fn wait(task: &mut Task, request: &Arc<Request>) -> Option<Arc<Request>> {
    loop {
        if request.is_cancelled() {
            return finish(request, Err(Errno::ECANCELED), 0);
        }
        match with_credentials(task, request, |task| operations::perform(task, request, true, false)) {
            Step::Done(Err(errno), _) if is_wait(request, errno) => {
                // By a signal for the process, or because it is to end.
                if request.is_cancelled() || super::worker::attend(task).is_err() {
                    return finish(request, Err(Errno::ECANCELED), 0);
                }
            }
            Step::Done(result, flags) => return finish(request, result, flags),
            // Nothing is left to be tried.
            Step::Worker(_) => return finish(request, Err(Errno::EAGAIN), 0),
            Step::Kept => return None,
        }
    }
}

/// A wait was not begun, or ended. A descriptor that was closed is closed, whatever its file system says of that.
fn is_wait(request: &Request, errno: Errno) -> bool {
    (errno == Errno::EINTR || errno.is_restart()) && request.entry.operation != operation::CLOSE
}

/// What would not wait because its file says so (`O_NONBLOCK`) waits for the file all the same, as on Linux: that is what rings are for.
fn waits_unasked(request: &Request, errno: Errno) -> bool {
    errno == Errno::EAGAIN
        && operations::readiness(&request.entry).is_some()
        && is_pollable(request)
        && !operations::refuses_to_wait(&request.entry)
}

/// Tries a request that the caller owns; returns what is to begin next.
fn attempt(task: &mut Task, request: &Arc<Request>, by: By, told: bool) -> Option<Arc<Request>> {
    let mut told = told;
    if request.entry.operation == operation::POLL_ADD {
        // It arms itself, and can be gone then.
        limit_time(request);
    }
    for _ in 0..=FALSE_ALARMS_MAX {
        if request.is_cancelled() {
            return finish(request, Err(Errno::ECANCELED), 0);
        }
        let perform = |task: &mut Task| {
            with_credentials(task, request, |task| operations::perform(task, request, false, told))
        };
        let step = if by == By::Call { perform(task) } else { without_waiting(task, perform) };
        let class = match step {
            Step::Done(Err(errno), _) if is_wait(request, errno) || waits_unasked(request, errno) => {
                Class::Unbounded
            }
            Step::Done(result, flags) => return finish(request, result, flags),
            Step::Kept => {
                let submitter = request.submitter.clone();
                submitter.start_worker_if_wanted(task);
                return None;
            }
            Step::Worker(class) => class,
        };
        request.left.store(true, Ordering::Relaxed);
        told = true;
        match operations::readiness(&request.entry).filter(|_| class == Class::Unbounded) {
            Some(events) if is_pollable(request) => match arm(task, request, events) {
                Armed::Yes => return None,
                Armed::Ready => {}
                Armed::Failed(errno) => return finish(request, Err(errno), 0),
            },
            _ if by == By::Worker => return wait_in_worker(task, request),
            _ => {
                send_away(task, request, class);
                return None;
            }
        }
    }
    let is_polled = request.changing.lock().file.as_ref().is_some_and(|file| file.non_block());
    if is_polled {
        return finish(request, Err(Errno::EAGAIN), 0);
    }
    if by == By::Worker {
        return wait_in_worker(task, request);
    }
    send_away(task, request, Class::Unbounded);
    None
}

/// A worker has found that it must wait.
fn wait_in_worker(task: &mut Task, request: &Arc<Request>) -> Option<Arc<Request>> {
    limit_time(request);
    // Who is to go on with what is told of meanwhile.
    request.submitter.start_worker_if_wanted(task);
    request.changing.lock().worker = Some(task.thread.clone());
    wait(task, request)
}

fn is_pollable(request: &Request) -> bool {
    let changing = request.changing.lock();
    changing.file.as_ref().is_some_and(|file| file.features().contains(FileFeatures::POLLABLE))
}

enum Armed {
    /// It will be told of; the caller owns it no longer.
    Yes,
    /// The file is ready.
    Ready,
    /// It can't be.
    Failed(Errno),
}

/// Has its file tell when it is ready.
fn arm(task: &mut Task, request: &Arc<Request>, events: PollEvents) -> Armed {
    let watch = match request.watch() {
        Ok(watch) => watch,
        Err(errno) => return Armed::Failed(errno),
    };
    let Some(file) = request.changing.lock().file.clone() else { return Armed::Failed(Errno::EBADF) };
    limit_time(request);
    request.put(Stage::Armed);
    let watcher: Arc<dyn PollWatcher> = watch;
    let mut table = PollTable::new(&watcher, 0, events, false);
    let ready = file.poll(Some(&mut table)) & (events | PollEvents::ALWAYS);
    let failed = table.failed();
    request.submitter.start_worker_if_wanted(task);
    // Cancelled before it was armed: nobody else ends it.
    let ends = failed || !ready.is_empty() || request.is_cancelled() || !request.submitter.has_worker();
    if !ends || !request.take(Stage::Armed) {
        return Armed::Yes;
    }
    if failed {
        return Armed::Failed(Errno::ENOMEM);
    }
    if ready.is_empty() && !request.is_cancelled() { Armed::Failed(Errno::EAGAIN) } else { Armed::Ready }
}

/// It begins to wait: the limit of time that follows it in its chain counts from now on.
fn limit_time(request: &Arc<Request>) {
    let limit = request.changing.lock().next.clone();
    let Some(limit) = limit.filter(|next| next.entry.operation == operation::LINK_TIMEOUT) else { return };
    let Prepared::Time(ns, flags) = limit.prepared else { return };
    if !limit.take(Stage::Held) {
        return;
    }
    limit.changing.lock().limits = Some(request.clone());
    match limit.make_timer() {
        Ok(timer) => limit.arm_timer(&timer, timeout::deadline(ns, flags)),
        // Without memory for it the time is not limited, and the limit ends with the request.
        Err(_) => limit.put(Stage::Held),
    }
}

/// Executes with the credentials of the request.
fn with_credentials<R>(task: &mut Task, request: &Request, run: impl FnOnce(&mut Task) -> R) -> R {
    if Arc::ptr_eq(&task.credentials, &request.credentials) {
        return run(task);
    }
    let own = exchange_credentials(task, request.credentials.clone());
    let result = run(task);
    drop(exchange_credentials(task, own));
    result
}

fn exchange_credentials(task: &mut Task, new: Arc<Credentials>) -> Arc<Credentials> {
    let shown = core::mem::replace(&mut task.thread.shared.lock().credentials, new.clone());
    drop(shown);
    core::mem::replace(&mut task.credentials, new)
}

/// Whether an outcome ends the chain.
fn is_failure(request: &Request, value: i32) -> bool {
    match request.entry.operation {
        _ if value < 0 => !timeout::is_success(&request.entry, value),
        operation::READ | operation::WRITE | operation::READ_FIXED | operation::WRITE_FIXED => {
            value as u32 != request.entry.length
        }
        operation::READ_VECTORS | operation::WRITE_VECTORS => match &request.prepared {
            Prepared::Ranges(ranges) => {
                ranges.iter().map(|range| range.length).sum::<usize>() != value as usize
            }
            _ => false,
        },
        _ => false,
    }
}

/// A request that the caller owns has ended; what follows is handed over.
pub(super) fn finish_and_hand_over(request: &Arc<Request>, result: SysResult) {
    if let Some(next) = finish(request, result, 0) {
        next.hand_over();
    }
}

/// A request that the caller owns has ended. What is to begin next, if anything.
pub(super) fn finish(request: &Arc<Request>, result: SysResult, flags: u32) -> Option<Arc<Request>> {
    let value = match result {
        Ok(value) => value as i32,
        Err(errno) if errno.is_restart() => -i32::from(Errno::EINTR.number()),
        Err(errno) => -i32::from(errno.number()),
    };
    let failed = is_failure(request, value);
    let next = take_next(request);
    end(request, value, flags, failed);
    // The rest of a chain that is taken back as a whole ends with the first of it that does.
    let is_cancelled = next.as_ref().is_some_and(|next| next.is_cancelled());
    if failed && (is_cancelled || !request.has(entry::HARD_LINK)) {
        cancel_chain(next);
        return None;
    }
    next
}

/// The next of its chain. A limit of time that was for the request ends with it.
fn take_next(request: &Arc<Request>) -> Option<Arc<Request>> {
    let next = request.changing.lock().next.take()?;
    if next.entry.operation != operation::LINK_TIMEOUT {
        return Some(next);
    }
    let after = next.changing.lock().next.take();
    // Somebody who is in the midst of giving it another time ends it then.
    next.cancel_soon();
    let stages = [Stage::Held, Stage::Armed, Stage::Ready];
    if let Some(from) = stages.into_iter().find(|stage| next.take(*stage)) {
        if from == Stage::Ready {
            next.submitter.forget(&next);
        }
        end(&next, -i32::from(Errno::ECANCELED.number()), 0, true);
    }
    after
}

/// Ends the members of a chain that will never begin.
pub(super) fn cancel_chain(mut next: Option<Arc<Request>>) {
    while let Some(request) = next {
        next = request.changing.lock().next.take();
        if request.take(Stage::Held) {
            let errno = request.refused.unwrap_or(Errno::ECANCELED);
            end(&request, -i32::from(errno.number()), 0, true);
        }
    }
}

/// Says how it ended, and lets go of all it had.
fn end(request: &Arc<Request>, value: i32, flags: u32, failed: bool) {
    let ring = &request.ring;
    let completion = Completion { user_data: request.user_data(), result: value, flags };
    request.put(Stage::Done);
    // Before the program is told: what it closes then is closed.
    let held = request.let_go();
    drop(held);
    if failed || !request.has(entry::SKIP_COMPLETION) {
        ring.post(&completion, !request.left.load(Ordering::Relaxed));
    }
    request.retire();
    timeout::count_completion(request);
    ring.begin_deferred(request);
}

/// The limit of time of another request is over.
pub(super) fn time_is_over(request: &Arc<Request>) -> Errno {
    let limited = request.changing.lock().limits.take();
    if let Some(limited) = limited {
        cancel::cancel(&limited);
    }
    Errno::ETIME
}
