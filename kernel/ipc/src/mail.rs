//! The requests that CPUs send each other (specs/fiasco-mp.md, §12.3.1), on top of the message boxes.
//!
//! | request | from → to | what it does there |
//! |---|---|---|
//! | send | sender's CPU → receiver's | offers a message: delivered, queued (if it may wait), or neither |
//! | wakeup | receiver's CPU → sender's | tells a waiting thread what became of its wait |
//! | cancellation | sender's CPU → receiver's | takes a sender out of the queue, if it is still there |
//!
//! A fourth one, *adoption*, is not part of any operation: it follows a thread that has migrated since its last one, and never occurs among
//! partitioned threads.
//!
//! The parameters and the response of a request lie in a record of the *requesting* CPU, which is its part of the message box: a CPU has one
//! request outstanding. Handlers run with interrupts off, send no requests, and take no locks but that of their own run queue.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use machine::cpu::{self, CpuId, CpuSet};
use machine::interrupt::InterruptGuard;
use sync::{PerCpu, per_cpu};

use crate::handler;
use crate::id::ThreadId;
use crate::probe::{self, Point};
use crate::statistics::{Counter, count};

/// What one CPU asks another for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Take the message of the thread that has this block, for the receiver; queue it if it may wait.
    Send {
        /// Block of the sender.
        sender: u32,
        /// The receiver.
        receiver: ThreadId,
        /// Whether it may wait.
        may_wait: bool,
    },
    /// Tell a thread what became of its wait.
    Wakeup {
        /// The thread.
        thread: ThreadId,
        /// What.
        event: Event,
    },
    /// Take a sender out of a receiver's queue.
    Cancel {
        /// Block of the sender.
        sender: u32,
        /// Block of the receiver.
        receiver: u32,
    },
    /// Hand a block over to the asking CPU.
    Adopt {
        /// The block.
        block: u32,
    },
}

/// What became of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The message was taken.
    Delivered,
    /// The receiver has ended.
    ReceiverGone,
    /// The thread from which it expects a message has ended.
    PartnerGone(ThreadId),
    /// Somebody wants the operation to end.
    Canceled,
}

/// What a request brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Response {
    /// The message was taken; the cancellation succeeded; the event was of use.
    Done = 1,
    /// The sender is queued.
    Pending = 2,
    /// The receiver was not ready; the sender was not queued any more; the event came too late.
    NotDone = 3,
    /// There is no such thread.
    NotExistent = 4,
    /// The block belongs to another CPU by now.
    Moved = 5,
}

impl Response {
    fn from_bits(bits: u32) -> Response {
        [Response::Done, Response::Pending, Response::NotDone, Response::NotExistent]
            .into_iter()
            .find(|response| *response as u32 == bits)
            .unwrap_or(Response::Moved)
    }
}

/// One CPU's request. Written by that CPU before it asks; the response by the CPU that is asked.
struct Record {
    kind: AtomicU32,
    response: AtomicU32,
    first: AtomicU64,
    second: AtomicU64,
}

static RECORDS: PerCpu<Record> = per_cpu!(Record {
    kind: AtomicU32::new(0),
    response: AtomicU32::new(0),
    first: AtomicU64::new(0),
    second: AtomicU64::new(0),
});

impl Request {
    fn encode(self) -> (u32, u64, u64) {
        match self {
            Request::Send { sender, receiver, may_wait } => {
                (u32::from(may_wait), u64::from(sender), receiver.to_bits())
            }
            Request::Cancel { sender, receiver } => (2, u64::from(sender), u64::from(receiver)),
            Request::Adopt { block } => (3, u64::from(block), 0),
            Request::Wakeup { thread, event } => match event {
                Event::Delivered => (4, thread.to_bits(), 0),
                Event::ReceiverGone => (5, thread.to_bits(), 0),
                Event::Canceled => (6, thread.to_bits(), 0),
                Event::PartnerGone(partner) => (7, thread.to_bits(), partner.to_bits()),
            },
        }
    }

    fn decode(kind: u32, first: u64, second: u64) -> Request {
        let wakeup = |event| Request::Wakeup { thread: ThreadId::from_bits(first), event };
        match kind {
            0 | 1 => Request::Send {
                sender: first as u32,
                receiver: ThreadId::from_bits(second),
                may_wait: kind == 1,
            },
            2 => Request::Cancel { sender: first as u32, receiver: second as u32 },
            3 => Request::Adopt { block: first as u32 },
            4 => wakeup(Event::Delivered),
            5 => wakeup(Event::ReceiverGone),
            6 => wakeup(Event::Canceled),
            _ => wakeup(Event::PartnerGone(ThreadId::from_bits(second))),
        }
    }

    fn counter(self) -> Counter {
        match self {
            Request::Send { .. } => Counter::SendRequests,
            Request::Wakeup { .. } => Counter::WakeupRequests,
            Request::Cancel { .. } => Counter::CancelRequests,
            Request::Adopt { .. } => Counter::Adoptions,
        }
    }
}

/// Sends a request to another CPU and waits for its response, serving what others ask meanwhile. Interrupts stay off, and no other
/// thread runs here until then.
#[inline(never)]
pub(crate) fn request(target: CpuId, request: Request, off: &InterruptGuard) -> Response {
    debug_assert_ne!(target, cpu::current(), "what is here is done here");
    let record = RECORDS.this();
    let (kind, first, second) = request.encode();
    record.kind.store(kind, Ordering::Relaxed);
    record.first.store(first, Ordering::Relaxed);
    record.second.store(second, Ordering::Relaxed);
    record.response.store(Response::Moved as u32, Ordering::Relaxed);
    count(request.counter(), off);
    probe::pass(Point::RequestReady, kind);
    // The box publishes the record with the request, and the response with its answer.
    sync::remote::call(CpuSet::only(target), serve, cpu::current().index());
    probe::pass(Point::ResponseHere, kind);
    Response::from_bits(record.response.load(Ordering::Relaxed))
}

/// Handles what another CPU has asked for.
fn serve(asking: usize) {
    let off = machine::interrupt::disable();
    let asking = CpuId::from_index(asking);
    let record = RECORDS.of(asking);
    let request = Request::decode(
        record.kind.load(Ordering::Relaxed),
        record.first.load(Ordering::Relaxed),
        record.second.load(Ordering::Relaxed),
    );
    let response = handler::handle(request, asking, &off);
    record.response.store(response as u32, Ordering::Relaxed);
}

/// Handles the requests that are in this CPU's boxes already.
pub(crate) fn serve_waiting(_off: &InterruptGuard) {
    sync::remote::serve();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_record() {
        let thread = ThreadId::new(17, 3);
        let wakeup = |event| Request::Wakeup { thread, event };
        for request in [
            Request::Send { sender: 9, receiver: thread, may_wait: true },
            Request::Send { sender: 9, receiver: thread, may_wait: false },
            Request::Cancel { sender: 1, receiver: 2 },
            Request::Adopt { block: 40_000 },
            wakeup(Event::Delivered),
            wakeup(Event::ReceiverGone),
            wakeup(Event::Canceled),
            wakeup(Event::PartnerGone(ThreadId::new(1, 1))),
        ] {
            let (kind, first, second) = request.encode();
            assert_eq!(Request::decode(kind, first, second), request);
        }
    }
}
