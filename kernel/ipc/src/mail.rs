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
//! Handlers run with interrupts off, send no requests, and take no locks but that of their own run queue.

use machine::cpu::{self, CpuId};
use machine::interrupt::{self, InterruptGuard};
use machine::time_window;
use sync::message_box::{self, Kind};

use crate::defects;
use crate::handler;
use crate::id::ThreadId;
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
    fn from_word(word: u64) -> Response {
        [Response::Done, Response::Pending, Response::NotDone, Response::NotExistent]
            .into_iter()
            .find(|response| *response as u64 == word)
            .unwrap_or(Response::Moved)
    }
}

impl Request {
    fn encode(self) -> message_box::Request {
        let (kind, words) = match self {
            Request::Send { sender, receiver, may_wait } => {
                (Kind::IpcSend, [u64::from(sender), receiver.to_bits(), u64::from(may_wait)])
            }
            Request::Wakeup { thread, event } => {
                let (number, partner) = match event {
                    Event::Delivered => (0, 0),
                    Event::ReceiverGone => (1, 0),
                    Event::Canceled => (2, 0),
                    Event::PartnerGone(partner) => (3, partner.to_bits()),
                };
                (Kind::IpcWakeup, [thread.to_bits(), number, partner])
            }
            Request::Cancel { sender, receiver } => {
                (Kind::IpcCancel, [u64::from(sender), u64::from(receiver), 0])
            }
            Request::Adopt { block } => (Kind::IpcAdopt, [u64::from(block), 0, 0]),
        };
        let mut all = [0; message_box::WORDS];
        all[..words.len()].copy_from_slice(&words);
        message_box::Request { kind, words: all }
    }

    fn decode(kind: Kind, words: [u64; message_box::WORDS]) -> Request {
        let thread = ThreadId::from_bits(words[0]);
        match kind {
            Kind::IpcSend => Request::Send {
                sender: words[0] as u32,
                receiver: ThreadId::from_bits(words[1]),
                may_wait: words[2] != 0,
            },
            Kind::IpcCancel => Request::Cancel { sender: words[0] as u32, receiver: words[1] as u32 },
            Kind::IpcAdopt => Request::Adopt { block: words[0] as u32 },
            _ => Request::Wakeup {
                thread,
                event: match words[1] {
                    0 => Event::Delivered,
                    1 => Event::ReceiverGone,
                    2 => Event::Canceled,
                    _ => Event::PartnerGone(ThreadId::from_bits(words[2])),
                },
            },
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

/// Sends a request to another CPU and waits for its response, serving what others ask meanwhile. No other thread runs here until then;
/// interrupts come in only while the CPU halts, and none but the boxes' touches a block.
#[inline(never)]
pub(crate) fn request(target: CpuId, request: Request, off: &InterruptGuard) -> Response {
    debug_assert_ne!(target, cpu::current(), "what is here is done here");
    count(request.counter(), off);
    let message = request.encode();
    time_window!(defects::BEFORE_REQUEST);
    let answer = message_box::request_halting(target, message);
    Response::from_word(answer[0])
}

/// Connects the message boxes with what this crate does. Once, at start-up.
pub(crate) fn set_handlers() {
    message_box::set_handler(Kind::IpcSend, |sender, words| serve(Kind::IpcSend, sender, words));
    message_box::set_handler(Kind::IpcWakeup, |sender, words| serve(Kind::IpcWakeup, sender, words));
    message_box::set_handler(Kind::IpcCancel, |sender, words| serve(Kind::IpcCancel, sender, words));
    message_box::set_handler(Kind::IpcAdopt, |sender, words| serve(Kind::IpcAdopt, sender, words));
}

/// Handles what another CPU has asked for. Interrupts are off; the guard says so to the rest.
fn serve(kind: Kind, asking: CpuId, mut words: [u64; message_box::WORDS]) -> message_box::Response {
    let off = interrupt::disable();
    words[0] = handler::handle(Request::decode(kind, words), asking, &off) as u64;
    words
}

/// Handles the requests that are in this CPU's boxes already.
pub(crate) fn serve_waiting(_off: &InterruptGuard) {
    message_box::serve();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_box() {
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
            let message = request.encode();
            assert_eq!(Request::decode(message.kind, message.words), request);
        }
    }
}
