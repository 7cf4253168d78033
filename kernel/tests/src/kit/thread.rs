//! A single thread of a test, and waiting for its end.

use alloc::boxed::Box;
use alloc::sync::Arc;

use ::machine::cpu::CpuSet;
use ::machine::time;
use ::sched::{Builder, Completion, ThreadRef, timer};

use crate::{Failure, HANG_NS, Outcome, check, fail};

/// A thread on these CPUs only.
pub(crate) fn on(affinity: CpuSet) -> Builder {
    Builder { affinity, ..Builder::new("test") }
}

/// Starts a thread; the completion tells of its end.
pub(crate) fn spawn(
    builder: Builder,
    body: impl FnOnce() + Send + 'static,
) -> Result<(ThreadRef, Arc<Completion>), Failure> {
    let done = Arc::new(Completion::new());
    let signal = done.clone();
    let body = Box::new(move || {
        body();
        signal.complete();
    });
    match ::sched::spawn(builder, body) {
        Ok(thread) => Ok((thread, done)),
        Err(memory::OutOfMemory) => fail!("no memory for a thread"),
    }
}

/// Waits for a thread's end; fails when it hangs.
pub(crate) fn join(done: &Completion) -> Outcome {
    check!(done.wait_deadline(time::now_ns() + HANG_NS), "a thread did not end in time");
    Ok(())
}

/// Sleeps for that many nanoseconds.
pub(crate) fn sleep_ns(nanoseconds: u64) {
    timer::sleep_until_uninterruptible(time::now_ns() + nanoseconds);
}
