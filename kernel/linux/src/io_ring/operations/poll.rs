//! Polling, and taking requests back.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use vfs::poll::PollWatcher;
use vfs::{OpenFile, PollEvents, PollTable};

use super::super::abi::{Completion, Entry, completion, operation};
use super::super::cancel::{self, Criteria, Taken};
use super::super::execute;
use super::super::request::{Request, Stage};
use super::super::ring::Ring;
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
pub(in super::super) mod cancels {
    pub(crate) const ALL: u32 = 1;
    pub(crate) const FILE: u32 = 2;
    pub(crate) const ANY: u32 = 4;
    pub(crate) const FIXED_FILE: u32 = 8;
    pub(super) const USER_DATA: u32 = 16;
    pub(super) const OPERATION: u32 = 32;
    pub(super) const KNOWN: u32 = ALL | FILE | ANY | FIXED_FILE | USER_DATA | OPERATION;
}

/// Completions of one request before others have their turn.
pub(super) const POSTS_AT_ONCE: u32 = 16;

/// What an entry polls for.
pub(in super::super) fn events_of(entry: &Entry) -> PollEvents {
    PollEvents::from_bits_truncate(entry.operation_flags) | PollEvents::ALWAYS
}

/// Polls a file: ends when it is ready, or with multiple completions says so each time that it becomes so.
///
/// A notification that comes while somebody has the request is noted in it (`missed`); it is armed again before the file is looked at, so what comes
/// after the look is told of as usual. One that is changed meanwhile (`changed`) is armed once more.
pub(super) fn add(request: &Arc<Request>, file: &Arc<OpenFile>) -> Step {
    let watcher: Arc<dyn PollWatcher> = match request.watch() {
        Ok(watch) => watch,
        Err(errno) => return Step::Done(Err(errno), 0),
    };
    let multiple = request.entry.length & MULTIPLE != 0;
    let mut told = PollEvents::empty();
    let mut posts = 0;
    request.missed.store(true, Ordering::Relaxed);
    loop {
        let events = request.changing.lock().events;
        request.put(Stage::Armed);
        let mut table = PollTable::new(&watcher, 0, events, false);
        let ready = file.poll(Some(&mut table)) & events;
        let news = if request.missed.swap(false, Ordering::AcqRel) { ready } else { ready - told };
        let failed = table.failed();
        let changed = request.changed.swap(false, Ordering::SeqCst);
        let stays = !failed && !changed && !request.is_cancelled() && news.is_empty();
        if stays || !request.take(Stage::Armed) {
            request.left.store(true, Ordering::Relaxed);
            return Step::Kept;
        }
        if request.is_cancelled() || failed {
            let errno = if failed { Errno::ENOMEM } else { Errno::ECANCELED };
            return Step::Done(Err(errno), 0);
        }
        if changed {
            told = PollEvents::empty();
            request.missed.store(true, Ordering::Relaxed);
            continue;
        }
        if !multiple {
            return Step::Done(Ok(ready.bits() as usize), 0);
        }
        if posts == POSTS_AT_ONCE {
            // What makes its own file ready again by each completion does not keep its server for ever.
            request.yield_turn();
            return Step::Kept;
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
        posts += 1;
    }
}

/// Owns a poll that has been changed, to arm it anew; false if somebody else does that.
///
/// # Errors
/// ENOENT when it has ended meanwhile.
fn take_changed(request: &Arc<Request>) -> Result<bool, Errno> {
    // Before the look at where it is: who arms it does so first, and then looks at this.
    request.changed.store(true, Ordering::SeqCst);
    loop {
        if request.take(Stage::Armed) {
            return Ok(true);
        }
        if request.take(Stage::Ready) {
            request.submitter.forget(request);
            return Ok(true);
        }
        if request.is_at(Stage::Running) || request.is_at(Stage::Queued) {
            return Ok(false);
        }
        if request.is_at(Stage::Done) {
            return Err(Errno::ENOENT);
        }
    }
}

/// Ends a poll, or changes it. One that somebody is in the midst of is not waited for: he arms it, and then looks whether it is still as it was.
pub(super) fn remove(task: &mut Task, request: &Arc<Request>) -> SysResult {
    let entry = &request.entry;
    let meant = |other: &Request| {
        other.entry.operation == operation::POLL_ADD
            && !other.is_at(Stage::Held)
            && !other.is_at(Stage::Done)
            && other.user_data() == entry.address
    };
    let (found, _) = request.ring.find(0, meant).ok_or(Errno::ENOENT)?;
    if entry.length & (UPDATE_EVENTS | UPDATE_USER_DATA) == 0 {
        return match cancel::cancel(&found) {
            Taken::Back => Ok(0),
            // Who has it may have told of events already, but sees this before he leaves it armed.
            Taken::Running if super::repeats(&found.entry) => Ok(0),
            Taken::Running | Taken::Held => Err(Errno::EALREADY),
        };
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
    if !take_changed(&found)? {
        return Ok(0);
    }
    let step = file.map_or(Step::Done(Err(Errno::ECANCELED), 0), |file| add(&found, &file));
    if let Step::Done(result, flags) = step
        && let Some(next) = execute::finish(&found, result, flags)
    {
        next.hand_over();
    }
    // Another thread's workers would have the files, or even the memory, of this one.
    if task.submitter.as_ref().is_some_and(|own| Arc::ptr_eq(own, &found.submitter)) {
        found.submitter.start_worker_if_wanted(task);
    }
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
    let mut criteria = criteria(task, &request.ring, entry.operation_flags, entry.address, entry.descriptor)?;
    if entry.operation_flags & cancels::OPERATION != 0 {
        criteria.operation = Some(entry.length as u8);
    }
    criteria.apply(&request.ring, Some(request))
}

/// Which requests are meant, operations apart.
///
/// # Errors
/// EBADF.
pub(in super::super) fn criteria(
    task: &Task,
    ring: &Ring,
    flags: u32,
    user_data: u64,
    descriptor: i32,
) -> Result<Criteria, Errno> {
    let others = cancels::FILE | cancels::ANY | cancels::OPERATION;
    let by_user_data = flags & cancels::USER_DATA != 0 || flags & others == 0;
    let file = match flags & cancels::FILE {
        0 => None,
        _ => Some(file_of(task, ring, descriptor, flags & cancels::FIXED_FILE != 0)?),
    };
    Ok(Criteria {
        user_data: by_user_data.then_some(user_data),
        file,
        operation: None,
        all: flags & (cancels::ALL | cancels::ANY) != 0,
    })
}
