//! Polling, and taking requests back.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use vfs::poll::PollWatcher;
use vfs::{OpenFile, PollEvents, PollTable};

use super::super::abi::{Completion, Entry, completion, operation};
use super::super::cancel::{self, Criteria, Taken};
use super::super::execute;
use super::super::request::{Request, Stage};
use super::{Step, file_of};
use crate::errno::{Errno, SysResult};
use crate::task::Task;

/// Completions until it is taken back.
pub(super) const MULTIPLE: u32 = 1;
const UPDATE_EVENTS: u32 = 2;
const UPDATE_USER_DATA: u32 = 4;
/// Flags of a change.
pub(super) const UPDATE_KNOWN: u32 = MULTIPLE | UPDATE_EVENTS | UPDATE_USER_DATA;

/// Which requests are to be taken back (`IORING_ASYNC_CANCEL_*`).
mod cancels {
    pub(super) const ALL: u32 = 1;
    pub(super) const FILE: u32 = 2;
    pub(super) const ANY: u32 = 4;
    pub(super) const FIXED_FILE: u32 = 8;
    pub(super) const USER_DATA: u32 = 16;
    pub(super) const OPERATION: u32 = 32;
    pub(super) const KNOWN: u32 = ALL | FILE | ANY | FIXED_FILE | USER_DATA | OPERATION;
}

/// What an entry polls for.
pub(in super::super) fn events_of(entry: &Entry) -> PollEvents {
    PollEvents::from_bits_truncate(entry.operation_flags) | PollEvents::ALWAYS
}

/// Polls a file: ends when it is ready, or with multiple completions says so each time that it becomes so.
///
/// A notification that comes while somebody has the request is noted in it (`missed`); it is armed again before the file is looked at, so what comes
/// after the look is told of as usual.
pub(super) fn add(request: &Arc<Request>, file: &Arc<OpenFile>) -> Step {
    let watcher: Arc<dyn PollWatcher> = match request.watch() {
        Ok(watch) => watch,
        Err(errno) => return Step::Done(Err(errno), 0),
    };
    let multiple = request.entry.length & MULTIPLE != 0;
    let mut told = PollEvents::empty();
    request.missed.store(true, Ordering::Relaxed);
    loop {
        let events = request.changing.lock().events;
        request.put(Stage::Armed);
        let mut table = PollTable::new(&watcher, 0, events, false);
        let ready = file.poll(Some(&mut table)) & events;
        let news = if request.missed.swap(false, Ordering::AcqRel) { ready } else { ready - told };
        let failed = table.failed();
        if !(failed || request.is_cancelled() || !news.is_empty()) || !request.take(Stage::Armed) {
            request.left.store(true, Ordering::Relaxed);
            return Step::Kept;
        }
        if request.is_cancelled() || failed {
            let errno = if failed { Errno::ENOMEM } else { Errno::ECANCELED };
            return Step::Done(Err(errno), 0);
        }
        if !multiple {
            return Step::Done(Ok(ready.bits() as usize), 0);
        }
        let one = Completion {
            user_data: request.user_data(),
            result: ready.bits() as i32,
            flags: completion::MORE,
        };
        if !request.ring.post_if_room(&one) {
            return Step::Done(Ok(ready.bits() as usize), 0);
        }
        told = ready;
    }
}

/// How many turns a poll that another thread is just looking at is waited for. Looking sleeps nowhere: one is enough unless that thread's processor is taken away.
const TURNS_MAX: usize = 1000;

/// The request that is meant, when nobody is in the midst of it: a program that has seen a completion of a poll with several finds it armed again.
///
/// # Errors
/// ENOENT; EALREADY when that lasts.
fn at_rest(request: &Request, meant: impl Fn(&Request) -> bool) -> Result<Arc<Request>, Errno> {
    for _ in 0..TURNS_MAX {
        let (found, _) = request.ring.find(0, &meant).ok_or(Errno::ENOENT)?;
        if !found.is_at(Stage::Running) {
            return Ok(found);
        }
        sched::yield_now();
    }
    Err(Errno::EALREADY)
}

/// Ends a poll, or changes it.
pub(super) fn remove(task: &mut Task, request: &Arc<Request>) -> SysResult {
    let entry = &request.entry;
    let meant = |other: &Request| {
        other.entry.operation == operation::POLL_ADD
            && !other.is_at(Stage::Held)
            && other.user_data() == entry.address
    };
    let found = at_rest(request, meant)?;
    if entry.length & (UPDATE_EVENTS | UPDATE_USER_DATA) == 0 {
        return match cancel::cancel(&found) {
            Taken::Back => Ok(0),
            Taken::Running | Taken::Held => Err(Errno::EALREADY),
        };
    }
    if !found.take(Stage::Armed) {
        if !found.take(Stage::Ready) {
            return Err(Errno::EALREADY);
        }
        found.submitter.forget(&found);
    }
    let file = {
        let mut changing = found.changing.lock();
        if entry.length & UPDATE_EVENTS != 0 {
            changing.events = events_of(entry);
        }
        if entry.length & UPDATE_USER_DATA != 0 {
            changing.user_data = entry.offset;
        }
        changing.file.clone()
    };
    let step = file.map_or(Step::Done(Err(Errno::ECANCELED), 0), |file| add(&found, &file));
    if let Step::Done(result, flags) = step
        && let Some(next) = execute::finish(&found, result, flags)
    {
        next.hand_over();
    }
    found.submitter.clone().start_worker_if_wanted(task);
    Ok(0)
}

/// Checks the flags of an entry that takes others back.
pub(super) fn check_cancel(entry: &Entry) -> Result<(), Errno> {
    let flags = entry.operation_flags;
    let by_file = cancels::FILE | cancels::FIXED_FILE;
    if flags & !cancels::KNOWN != 0 || (flags & cancels::ANY != 0 && flags & by_file != 0) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Takes requests back.
pub(super) fn cancel(task: &Task, request: &Arc<Request>) -> SysResult {
    let entry = &request.entry;
    let criteria = criteria(task, request, entry.operation_flags, entry.address, entry.descriptor)?;
    criteria.apply(&request.ring, Some(request))
}

fn criteria(
    task: &Task,
    request: &Request,
    flags: u32,
    user_data: u64,
    descriptor: i32,
) -> Result<Criteria, Errno> {
    let others = cancels::FILE | cancels::ANY | cancels::OPERATION;
    let by_user_data = flags & cancels::USER_DATA != 0 || flags & others == 0;
    let file = match flags & cancels::FILE {
        0 => None,
        _ => Some(file_of(task, request, descriptor, flags & cancels::FIXED_FILE != 0)?),
    };
    Ok(Criteria {
        user_data: by_user_data.then_some(user_data),
        file,
        operation: (flags & cancels::OPERATION != 0).then_some(request.entry.length as u8),
        all: flags & (cancels::ALL | cancels::ANY) != 0,
    })
}
