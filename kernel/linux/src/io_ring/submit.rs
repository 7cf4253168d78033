//! From entries to chains of requests.
//!
//! Entries are taken with the submission side locked, a chain at a time; chains are begun without that lock, so that two threads can submit to one ring,
//! and an operation can be about the ring itself. The head that the program sees moves when the entry has been copied.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::abi::{Entry, entry, setup};
use super::execute::{self, By};
use super::memory::word;
use super::operations;
use super::request::Request;
use super::ring::{Ring, Submission};
use super::submitter::Submitter;
use crate::errno::Errno;
use crate::task::Task;

/// A chain of requests, none of which has begun.
struct Chain {
    head: Arc<Request>,
    last: Arc<Request>,
    members: usize,
    drains: bool,
    /// An entry of it makes no sense.
    failed: bool,
}

/// What was taken.
struct Taken {
    chain: Option<Chain>,
    entries: usize,
    /// Why nothing more can be taken.
    stopped: Option<Errno>,
    /// The program named an entry that there is none of: as on Linux the call takes no more.
    dropped: bool,
}

/// Submits up to so many entries; how many were taken. An error is that of the first.
pub(super) fn submit(
    task: &mut Task,
    ring: &Arc<Ring>,
    submitter: &Arc<Submitter>,
    count: usize,
) -> Result<usize, Errno> {
    submitter.note_ring(ring)?;
    let count = count.min(ring.submitted() as usize);
    let mut done = 0;
    while done < count {
        let taken = {
            let mut submission = ring.submission.lock();
            take_chain(task, ring, submitter, &mut submission, count - done)
        };
        done += taken.entries;
        let failed = taken.chain.as_ref().is_some_and(|chain| chain.failed);
        if let Some(chain) = taken.chain {
            begin(task, ring, chain);
        }
        if let Some(errno) = taken.stopped {
            return if done > 0 { Ok(done) } else { Err(errno) };
        }
        if taken.dropped || taken.entries == 0 || (failed && ring.flags & setup::SUBMIT_ALL == 0) {
            break;
        }
    }
    Ok(done)
}

fn begin(task: &mut Task, ring: &Arc<Ring>, chain: Chain) {
    if chain.failed {
        // It never began, so nobody waits for its members.
        chain.head.set_chain_draining(false);
        execute::cancel_chain(Some(chain.head));
        return;
    }
    match ring.may_begin(&chain.head, chain.members, chain.drains) {
        Ok(true) => execute::begin(task, chain.head, By::Call),
        Ok(false) => {
            let submitter = chain.head.submitter.clone();
            submitter.start_worker_if_wanted(task);
        }
        // It can't be kept until its turn.
        Err(_) => {
            chain.head.set_chain_draining(false);
            execute::cancel_chain(Some(chain.head));
        }
    }
}

/// Takes entries until a chain ends, or there are no more.
fn take_chain(
    task: &Task,
    ring: &Arc<Ring>,
    submitter: &Arc<Submitter>,
    submission: &mut Submission,
    most: usize,
) -> Taken {
    let mut taken = Taken { chain: None, entries: 0, stopped: None, dropped: false };
    while taken.entries < most {
        if ring.memory.waiting_entries(submission.head) == 0 {
            break;
        }
        let Some(entry) = ring.memory.entry(ring.memory.submitted(submission.head)) else {
            ring.memory.word(word::SUBMISSION_DROPPED).fetch_add(1, Ordering::AcqRel);
            step(ring, submission);
            taken.dropped = true;
            break;
        };
        let ends = match add(task, ring, submitter, &mut taken.chain, entry) {
            Ok(ends) => ends,
            Err(errno) => {
                taken.stopped = Some(errno);
                break;
            }
        };
        step(ring, submission);
        taken.entries += 1;
        if ends {
            break;
        }
    }
    if let Some(chain) = &taken.chain
        && chain.drains
    {
        chain.head.set_chain_draining(true);
    }
    taken
}

/// The program may use the entry's place again.
fn step(ring: &Ring, submission: &mut Submission) {
    submission.head = submission.head.wrapping_add(1);
    // Release: the entry was copied before.
    ring.memory.word(word::SUBMISSION_HEAD).store(submission.head, Ordering::Release);
}

/// Makes a request of an entry and adds it to the chain. Whether that ends the chain.
fn add(
    task: &Task,
    ring: &Arc<Ring>,
    submitter: &Arc<Submitter>,
    chain: &mut Option<Chain>,
    entry: Entry,
) -> Result<bool, Errno> {
    // A limit of time is for what comes before it, and not for another limit.
    let follows_link = chain.as_ref().is_some_and(|chain| {
        chain.last.is_linked() && chain.last.entry.operation != super::abi::operation::LINK_TIMEOUT
    });
    let credentials = match entry.personality {
        0 => Ok(task.credentials.clone()),
        number => ring.resources.personality(number).ok_or(Errno::EINVAL),
    };
    let prepared =
        if entry.operation < super::abi::operation::COUNT && !ring.allows(entry.operation, entry.flags) {
            Err(Errno::EACCES)
        } else {
            operations::prepare(&entry, follows_link)
        };
    let prepared = credentials.as_ref().map_err(|errno| *errno).and(prepared);
    let credentials = credentials.unwrap_or_else(|_| task.credentials.clone());
    let request = Request::new(ring, submitter, entry, credentials, prepared)?;
    let failed = request.refused.is_some();
    let drains = request.has(entry::DRAIN);
    // What makes no sense ends its chain, as on Linux only where it says so itself.
    let ends = !request.is_linked();
    match chain {
        None => {
            *chain = Some(Chain { head: request.clone(), last: request, members: 1, drains, failed });
        }
        Some(chain) => {
            chain.last.changing.lock().next = Some(request.clone());
            chain.last = request;
            chain.members += 1;
            chain.drains |= drains;
            chain.failed |= failed;
        }
    }
    Ok(ends)
}
