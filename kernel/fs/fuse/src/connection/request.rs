//! A request, from when it is made until its answer is taken.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sched::WaitQueue;
use sync::SpinLock;
use vfs::{Error, Result, allocation};

use crate::wire::Body;

/// How long a reply may be, without its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) least: usize,
    pub(crate) most: usize,
}

impl Room {
    /// The reply says nothing but that it was done.
    pub(crate) const NONE: Self = Self::exactly(0);

    pub(crate) const fn exactly(bytes: usize) -> Self {
        Self { least: bytes, most: bytes }
    }

    pub(crate) const fn up_to(bytes: usize) -> Self {
        Self { least: 0, most: bytes }
    }

    pub(crate) const fn fits(self, bytes: usize) -> bool {
        self.least <= bytes && bytes <= self.most
    }
}

/// What is asked.
pub(crate) struct Call {
    pub(crate) opcode: u32,
    pub(crate) node: u64,
    pub(crate) body: Body,
    pub(crate) room: Room,
}

impl Call {
    pub(crate) const fn new(opcode: u32, node: u64, body: Body, room: Room) -> Self {
        Self { opcode, node, body, room }
    }
}

/// In whose name it is asked, as the server calls him.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) process: u32,
}

/// What is done with the answer to a request that nobody waits for.
pub(crate) type Ending = Box<dyn FnOnce(Result<Vec<u8>>) + Send>;

/// See the theory of [`connection`](crate::connection).
pub(crate) struct Request {
    pub(crate) opcode: u32,
    pub(crate) node: u64,
    pub(crate) caller: Caller,
    /// What it says; taken when the server reads it.
    body: SpinLock<Vec<u8>>,
    /// How long that is.
    pub(crate) body_bytes: usize,
    pub(crate) room: Room,
    /// Given when it enters the list of those to be sent; written under the connection's lock.
    pub(super) unique: AtomicU64,
    /// The device that it was read through; 0 before. Written under the connection's lock.
    pub(super) device: AtomicU64,
    /// Who asked has got a signal. Written under the connection's lock.
    pub(super) interrupted: AtomicBool,
    /// Nobody waits for the answer any more. Written under the connection's lock.
    pub(super) abandoned: AtomicBool,
    over: AtomicBool,
    answer: SpinLock<Option<Result<Vec<u8>>>>,
    pub(super) ending: SpinLock<Option<Ending>>,
    pub(super) in_background: bool,
    pub(super) waiting: WaitQueue,
}

impl Request {
    pub(super) fn new(
        call: Call,
        caller: Caller,
        ending: Option<Ending>,
        background: bool,
    ) -> Result<Arc<Self>> {
        let body = call.body.finish()?;
        allocation::arc(Self {
            opcode: call.opcode,
            node: call.node,
            caller,
            body_bytes: body.len(),
            body: SpinLock::named("what a request says", body),
            room: call.room,
            unique: AtomicU64::new(0),
            device: AtomicU64::new(0),
            interrupted: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            over: AtomicBool::new(false),
            answer: SpinLock::named("answer to a request", None),
            ending: SpinLock::named("end of a request", ending),
            in_background: background,
            waiting: WaitQueue::new(),
        })
    }

    pub(crate) fn unique(&self) -> u64 {
        // Relaxed: what the connection's lock orders.
        self.unique.load(Ordering::Relaxed)
    }

    /// Takes what it says: a server that does not answer is not to keep that in memory.
    pub(crate) fn take_body(&self) -> Vec<u8> {
        core::mem::take(&mut *self.body.lock())
    }

    pub(super) fn is_over(&self) -> bool {
        // Acquire: pairs with the Release in `settle`.
        self.over.load(Ordering::Acquire)
    }

    /// This is the answer; who waits is woken by the caller.
    pub(super) fn settle(&self, answer: Result<Vec<u8>>) {
        *self.answer.lock() = Some(answer);
        // Release: who sees it sees the answer.
        self.over.store(true, Ordering::Release);
    }

    /// Takes the answer.
    pub(super) fn take(&self) -> Result<Vec<u8>> {
        let answer = self.answer.lock().take();
        answer.unwrap_or(Err(Error::Io))
    }
}
