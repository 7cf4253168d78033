//! The server's side: it takes requests and answers them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use vfs::poll::{PollEvents, PollTable};
use vfs::{Error, Result, allocation};

use super::request::Request;
use super::{Connection, Phase, State};
use crate::wire::init::{Flags, MINOR_BATCH_FORGET};
use crate::wire::{REQUEST_HEADER_BYTES, opcode};

/// Forgotten files in one message at most.
const FORGETS_AT_A_TIME: usize = 256;
/// Messages about forgotten files before requests, and requests before those again.
const FORGET_TURNS: i32 = 16;
const REQUEST_TURNS: i32 = 8;

/// What the server reads.
pub(crate) enum Message {
    /// A request, which counts as sent.
    Request(Arc<Request>),
    /// Who made the request of this number has got a signal.
    Interrupt(u64),
    /// Files that need not be known any more, with how often each was found. In one message only if there are several.
    Forget(Vec<(u64, u64)>),
}

impl Message {
    /// How long it is.
    pub(crate) fn bytes(&self) -> usize {
        const FORGOTTEN_BYTES: usize = 16;
        REQUEST_HEADER_BYTES
            + match self {
                Self::Request(request) => request.body_bytes,
                Self::Interrupt(_) => 8,
                Self::Forget(files) if files.len() == 1 => 8,
                Self::Forget(files) => 8 + FORGOTTEN_BYTES * files.len(),
            }
    }
}

/// What is next.
enum Next {
    Interrupt(u64),
    Forgets,
    Request(Arc<Request>),
    TooLarge(Arc<Request>),
    Told(Arc<Request>),
}

impl State {
    fn has_message(&self) -> bool {
        !self.pending.is_empty() || !self.interrupts.is_empty() || !self.forgets.is_empty()
    }

    /// The next message; what is sent is entered where there is room for one.
    fn next(&mut self, room: usize, device: u64) -> Option<Next> {
        if !self.interrupts.is_empty() {
            return Some(Next::Interrupt(self.interrupts.remove(0).unique()));
        }
        if !self.forgets.is_empty() {
            self.forget_turns -= 1;
            if self.pending.is_empty() || self.forget_turns >= 0 {
                return Some(Next::Forgets);
            }
            if self.forget_turns <= -REQUEST_TURNS {
                self.forget_turns = FORGET_TURNS;
            }
        }
        if self.pending.is_empty() {
            return None;
        }
        let request = self.pending.remove(0);
        request.device.store(device, Relaxed);
        if request.opcode == opcode::NOTIFY_REPLY {
            self.told -= 1;
        }
        if REQUEST_HEADER_BYTES + request.body_bytes > room {
            return Some(Next::TooLarge(request));
        }
        if request.opcode == opcode::NOTIFY_REPLY {
            return Some(Next::Told(request));
        }
        debug_assert!(self.sent.last().is_none_or(|last| last.unique() < request.unique()), "in order");
        self.sent.push(request.clone());
        Some(Next::Request(request))
    }

    /// The server is to hear that who made a request has got a signal, unless it is to hear so already. There is room for one.
    pub(super) fn interrupt(&mut self, request: &Arc<Request>) {
        if !self.interrupts.iter().any(|interrupted| Arc::ptr_eq(interrupted, request)) {
            self.interrupts.push(request.clone());
        }
    }

    /// Takes a request out that the server has got by this device.
    fn take_sent(&mut self, unique: u64, device: u64) -> Option<Arc<Request>> {
        let index = self.sent.binary_search_by_key(&unique, |request| request.unique()).ok()?;
        if self.sent[index].device.load(Relaxed) != device {
            return None;
        }
        let request = self.sent.remove(index);
        self.interrupts.retain(|interrupted| !Arc::ptr_eq(interrupted, &request));
        Some(request)
    }
}

impl Connection {
    /// What is wrong with reading now.
    fn end_for_reader(&self) -> Result<()> {
        match self.state.lock().phase {
            Phase::Over { by_hand: true } if self.flags().contains(Flags::ABORT_ERROR) => {
                Err(Error::ConnectionAborted)
            }
            Phase::Over { .. } => Err(Error::NoDevice),
            _ => Ok(()),
        }
    }

    /// The next message, which fits into so many bytes.
    ///
    /// # Errors
    /// `EAGAIN`, `EINTR`; `ENODEV` or `ECONNABORTED` at the end; no memory.
    pub(crate) fn next_message(&self, room: usize, non_block: bool, device: u64) -> Result<Message> {
        self.server.store(vfs::caller::number(false), Relaxed);
        loop {
            self.end_for_reader()?;
            let mut state = allocation::lock_with_room(|| self.state.lock(), 1, |state| &mut state.sent)?;
            let next = state.next(room, device);
            drop(state);
            match next {
                Some(Next::Interrupt(unique)) => return Ok(Message::Interrupt(unique)),
                Some(Next::Forgets) => {
                    let files = self.take_forgets()?;
                    // Another reader may have been faster.
                    if !files.is_empty() {
                        return Ok(Message::Forget(files));
                    }
                }
                Some(Next::Request(request)) => {
                    self.interrupt_sent(&request);
                    return Ok(Message::Request(request));
                }
                Some(Next::Told(request)) => {
                    self.waiting.fetch_sub(1, Relaxed);
                    return Ok(Message::Request(request));
                }
                Some(Next::TooLarge(request)) => {
                    let is_attribute = request.opcode == opcode::SET_EXTENDED;
                    self.finish(&request, Err(if is_attribute { Error::TooBig } else { Error::Io }));
                }
                None if non_block => return Err(Error::WouldBlock),
                None => {
                    let is_ready = || {
                        let state = self.state.lock();
                        state.has_message() || matches!(state.phase, Phase::Over { .. })
                    };
                    self.readers.wait_interruptible_exclusive(is_ready).map_err(|_| Error::Interrupted)?;
                }
            }
        }
    }

    /// Who asked got a signal before the server had the request.
    fn interrupt_sent(&self, request: &Arc<Request>) {
        if !request.interrupted.load(Relaxed) {
            return;
        }
        if let Ok(mut state) =
            allocation::lock_with_room(|| self.state.lock(), 1, |state| &mut state.interrupts)
            && !request.is_over()
        {
            state.interrupt(request);
        }
    }

    fn take_forgets(&self) -> Result<Vec<(u64, u64)>> {
        let is_batch = self.agreement.get().is_some_and(|agreed| agreed.minor >= MINOR_BATCH_FORGET);
        let most = if is_batch { FORGETS_AT_A_TIME } else { 1 };
        let mut taken = Vec::new();
        allocation::reserve(&mut taken, most)?;
        let mut state = self.state.lock();
        let count = state.forgets.len().min(most);
        taken.extend(state.forgets.drain(..count));
        Ok(taken)
    }

    /// The server could not be given a request that it read.
    pub(crate) fn take_back(&self, request: &Arc<Request>, device: u64) {
        let taken = self.state.lock().take_sent(request.unique(), device);
        if let Some(request) = taken {
            self.finish(&request, Err(Error::Io));
        }
    }

    /// A request is answered by a device; the caller finishes it.
    ///
    /// # Errors
    /// `ENOENT` if there is none of that number.
    pub(crate) fn take_sent(&self, unique: u64, device: u64) -> Result<Arc<Request>> {
        self.state.lock().take_sent(unique, device).ok_or(Error::NotFound)
    }

    /// Whether the server has a request by this device.
    pub(crate) fn has_sent(&self, unique: u64, device: u64) -> bool {
        let state = self.state.lock();
        let found = state.sent.binary_search_by_key(&unique, |request| request.unique());
        found.is_ok_and(|index| state.sent[index].device.load(Relaxed) == device)
    }

    /// The server says of the interruption of a request that it wants to hear of it again.
    ///
    /// # Errors
    /// `ENOENT` if the server has no such request, `EINVAL` if that was not interrupted.
    pub(crate) fn interrupt_again(&self, unique: u64, device: u64) -> Result<()> {
        let mut state = allocation::lock_with_room(|| self.state.lock(), 1, |state| &mut state.interrupts)?;
        let found = state.sent.binary_search_by_key(&unique, |request| request.unique());
        let request = found.ok().map(|index| state.sent[index].clone());
        let request = request.filter(|request| request.device.load(Relaxed) == device);
        let request = request.ok_or(Error::NotFound)?;
        if !request.interrupted.load(Relaxed) {
            return Err(Error::Invalid);
        }
        state.interrupt(&request);
        drop(state);
        self.tell_readers();
        Ok(())
    }

    /// A request is over.
    pub(crate) fn finish(&self, request: &Arc<Request>, answer: Result<Vec<u8>>) {
        if request.in_background {
            let mut state = self.state.lock();
            state.active = state.active.saturating_sub(1);
            drop(state);
        }
        self.waiting.fetch_sub(1, Relaxed);
        let ending = request.ending.lock().take();
        match ending {
            Some(ending) => ending(answer),
            None if request.abandoned.load(Relaxed) => self.end_abandoned(request, &answer),
            None => self.settle(request, answer),
        }
        if request.in_background {
            self.start_background();
        }
    }

    /// Gives an answer to who waits, or gives back what it says if he was killed just now.
    fn settle(&self, request: &Arc<Request>, answer: Result<Vec<u8>>) {
        // The lock: who abandons it does so before or sees the answer.
        let state = self.state.lock();
        if request.abandoned.load(Relaxed) {
            drop(state);
            return self.end_abandoned(request, &answer);
        }
        request.settle(answer);
        drop(state);
        request.waiting.wake_all();
    }

    /// The server does not owe the answer to a request any more that nobody waits for.
    fn end_abandoned(&self, request: &Request, answer: &Result<Vec<u8>>) {
        self.state.lock().owed -= 1;
        if let Ok(bytes) = answer {
            self.disown(request, bytes);
        }
    }

    /// What is ready at a device.
    pub(crate) fn poll(&self, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.watchers);
        }
        let state = self.state.lock();
        match state.phase {
            Phase::Over { .. } => PollEvents::ERROR,
            _ if state.has_message() => PollEvents::INPUT | PollEvents::OUTPUT,
            _ => PollEvents::OUTPUT,
        }
    }

    /// A device is closed: what was read through it is not answered. The last one ends the connection.
    pub(crate) fn device_closed(&self, device: u64) {
        let mut gone = Vec::new();
        {
            let mut state = self.state.lock();
            let mut index = 0;
            while index < state.sent.len() {
                if state.sent[index].device.load(Relaxed) == device
                    && memory::fallible::try_reserve(&mut gone, 1).is_ok()
                {
                    let request = state.sent.remove(index);
                    state.interrupts.retain(|interrupted| !Arc::ptr_eq(interrupted, &request));
                    gone.push(request);
                } else {
                    index += 1;
                }
            }
        }
        for request in gone {
            self.finish(&request, Err(Error::ConnectionAborted));
        }
        if self.devices.fetch_sub(1, core::sync::atomic::Ordering::SeqCst) == 1 {
            self.end(false);
        }
    }
}
