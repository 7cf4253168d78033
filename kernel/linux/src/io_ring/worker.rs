//! Workers: threads of the submitter's process that never enter user mode.
//!
//! A worker is an ordinary thread to all others: it stops with its process and ends with it. It holds all signals back. After a while
//! without work it ends, unless requests of its submitter are under way: one that is told of needs somebody to go on with it.

use alloc::boxed::Box;
use alloc::sync::Arc;

use machine::time::now_ns;
use sched::{WaitError, current};

use super::execute;
use super::request::Request;
use super::submitter::{Class, Item, Submitter};
use crate::errno::Errno;
use crate::signal::deliver;
use crate::task::Task;

/// How long a worker waits for work.
const IDLE_NS: u64 = 5_000_000_000;

/// Starts one for the submitter, as a thread of the caller's process.
pub(super) fn start(task: &Task, submitter: &Arc<Submitter>) -> Result<(), Errno> {
    let own = submitter.clone();
    let prepared = crate::fork::prepare_worker(task, move |task| live(task, &own))?;
    submitter.enlist(prepared.thread())?;
    let thread = prepared.thread().clone();
    prepared.start().inspect_err(|_| submitter.discharge(&thread))
}

fn live(mut task: Box<Task>, submitter: &Arc<Submitter>) {
    let mut may_end = false;
    loop {
        if (current().must_look() || task.needs_work) && attend(&mut task).is_err() {
            break;
        }
        match submitter.next_item(may_end) {
            Item::Ready(request) => {
                execute::go_on(&mut task, request, execute::By::Worker);
                submitter.work_done(Class::Unbounded);
            }
            Item::Work(request, class) => work(&mut task, submitter, request, class),
            Item::Nothing => {
                may_end = submitter.wait_for_work(now_ns() + IDLE_NS) == Err(WaitError::TimedOut);
                continue;
            }
            Item::End => break,
        }
        may_end = false;
    }
    submitter.stop_serving();
    crate::exit::end_thread(task);
}

fn work(task: &mut Task, submitter: &Arc<Submitter>, request: Arc<Request>, class: Class) {
    // Who is to go on with what is told of meanwhile.
    submitter.start_worker_if_wanted(task);
    request.changing.lock().worker = Some(task.thread.clone());
    execute::wait_for(task, request);
    submitter.work_done(class);
}

/// Stops with the process, or ends.
pub(super) fn attend(task: &mut Task) -> Result<(), deliver::MustExit> {
    task.needs_work = false;
    deliver::before_user_mode(task, None)
}
