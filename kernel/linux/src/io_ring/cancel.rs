//! Taking requests back: by the program (IORING_OP_ASYNC_CANCEL and others), at the end of a thread, and with the ring.

use alloc::sync::Arc;

use super::execute::finish_and_hand_over;
use super::operations;
use super::request::{Request, Stage};
use super::ring::Ring;
use crate::errno::Errno;

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
        if but.is_some_and(|but| core::ptr::eq(but, request)) || request.is_at(Stage::Held) {
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
