//! Taking requests back: by the program (IORING_OP_ASYNC_CANCEL and others), at the end of a thread, and with the ring.

use alloc::sync::Arc;

use machine::time::now_ns;
use sched::WaitError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::execute::finish_and_hand_over;
use super::operations::{self, cancels};
use super::request::{Request, Stage};
use super::ring::Ring;
use crate::abi::Timespec;
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// What became of a request that is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It has ended.
    Back,
    /// Somebody is in the midst of it; it ends soon if it can be interrupted.
    Running,
    /// Its turn has not come: it ends with the head of its chain.
    Held,
}

/// Ends a request before its time.
pub(super) fn cancel(request: &Arc<Request>) -> Taken {
    request.cancel_soon();
    let stages = [Stage::Armed, Stage::Ready, Stage::Queued];
    if let Some(from) = stages.into_iter().find(|stage| request.take(*stage)) {
        if from != Stage::Armed {
            request.submitter.forget(request);
        }
        finish_and_hand_over(request, Err(Errno::ECANCELED));
        return Taken::Back;
    }
    if request.is_at(Stage::Held) {
        if request.ring.forget_deferred(request) && request.take(Stage::Held) {
            finish_and_hand_over(request, Err(Errno::ECANCELED));
            return Taken::Back;
        }
        return Taken::Held;
    }
    if let Some(worker) = &request.changing.lock().worker {
        worker.interrupt();
    }
    Taken::Running
}

/// Ends all requests of a ring that are wanted, as far as nobody is in the midst of them.
pub(super) fn take_back(ring: &Arc<Ring>, wanted: impl Fn(&Request) -> bool) {
    loop {
        let mut from = 0;
        let mut ended = false;
        while let Some((request, next)) = ring.find(from, &wanted) {
            from = next;
            ended |= cancel(&request) == Taken::Back;
        }
        // The ends of some may have begun others.
        if !ended {
            return;
        }
    }
}

/// Which requests a program means.
pub(super) struct Criteria {
    pub(super) user_data: Option<u64>,
    pub(super) file: Option<Arc<vfs::OpenFile>>,
    pub(super) operation: Option<u8>,
    pub(super) all: bool,
}

impl Criteria {
    fn means(&self, request: &Request, but: Option<&Request>) -> bool {
        // One that has ended may be there for a while: who ended it has told of its end, and not yet taken it away.
        let is_under_way = !request.is_at(Stage::Held) && !request.is_at(Stage::Done);
        if but.is_some_and(|but| core::ptr::eq(but, request)) || !is_under_way {
            return false;
        }
        let changing = request.changing.lock();
        self.user_data.is_none_or(|user_data| changing.user_data == user_data)
            && self.operation.is_none_or(|operation| request.entry.operation == operation)
            && self
                .file
                .as_ref()
                .is_none_or(|file| changing.file.as_ref().is_some_and(|own| Arc::ptr_eq(own, file)))
    }

    /// Whether something of it is under way.
    fn mean_any(&self, ring: &Ring) -> bool {
        ring.find(0, |request| self.means(request, None)).is_some()
    }

    /// Takes back what is meant: how many with `all`, else 0.
    ///
    /// # Errors
    /// ENOENT; EALREADY when somebody is in the midst of it, and it may yet complete.
    pub(super) fn apply(&self, ring: &Arc<Ring>, but: Option<&Request>) -> Result<usize, Errno> {
        let mut from = 0;
        let mut count = 0;
        while let Some((request, next)) = ring.find(from, |request| self.means(request, but)) {
            from = next;
            let taken = cancel(&request);
            match taken {
                Taken::Back if !self.all => return Ok(0),
                Taken::Running if !self.all && operations::repeats(&request.entry) => return Ok(0),
                Taken::Running if !self.all => return Err(Errno::EALREADY),
                Taken::Held => {}
                _ => count += 1,
            }
        }
        if self.all { Ok(count) } else { Err(Errno::ENOENT) }
    }
}

/// `struct io_uring_sync_cancel_reg`
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct TakeBack {
    user_data: u64,
    descriptor: i32,
    flags: u32,
    time: Timespec,
    reserved: [u64; 4],
}

/// How long who waits for the end of a request sleeps without a look: one that tells nobody of its end wakes nobody.
const LOOK_NS: u64 = 10_000_000;

/// Takes requests back, and waits until what somebody is in the midst of has ended (IORING_REGISTER_SYNC_CANCEL).
pub(super) fn take_back_now(task: &Task, ring: &Arc<Ring>, argument: u64, count: u32) -> SysResult {
    const KNOWN: u32 = cancels::ALL | cancels::FILE | cancels::ANY | cancels::FIXED_FILE;
    if argument == 0 || count != 1 {
        return Err(Errno::EINVAL);
    }
    let wanted: TakeBack = UserPointer::new(argument).read()?;
    if wanted.flags & !KNOWN != 0 || wanted.reserved != [0; 4] {
        return Err(Errno::EINVAL);
    }
    let criteria = operations::criteria(task, ring, wanted.flags, wanted.user_data, wanted.descriptor)?;
    let mut result = criteria.apply(ring, None);
    if result != Err(Errno::EALREADY) {
        return result;
    }
    let deadline_ns = match wanted.time {
        Timespec { seconds: -1, nanoseconds: -1 } => None,
        time => Some(now_ns().saturating_add(time.to_ns().unwrap_or(0))),
    };
    while result == Err(Errno::EALREADY) {
        let now_ns = now_ns();
        if deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns) {
            return Err(Errno::ETIME);
        }
        let next_ns = deadline_ns.unwrap_or(u64::MAX).min(now_ns + LOOK_NS);
        let has_ended = || !criteria.mean_any(ring);
        if let Err(WaitError::Interrupted) =
            ring.arrived.wait_interruptible_deadline(has_ended, Some(next_ns))
        {
            return Err(Errno::EINTR);
        }
        result = criteria.apply(ring, None);
    }
    match result {
        Ok(_) | Err(Errno::ENOENT) => Ok(0),
        Err(errno) => Err(errno),
    }
}
