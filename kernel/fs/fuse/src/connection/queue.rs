//! Requests on their way to the server.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;

use vfs::{Error, Result, allocation};

use super::request::{Call, Caller, Ending, Request, Room};
use super::{BACKGROUND_MAX, Connection, FORGETS_MAX, OWED_MAX, Phase, State, TOLD_MAX};
use crate::wire::init::{self, Agreement};
use crate::wire::{Body, Decoder, ROOT, opcode, reply};

/// Numbers of requests are so far apart: the odd ones are those of their interruptions.
const STEP: u64 = 2;

impl State {
    /// The request is to be sent; there is room.
    fn enter(&mut self, request: Arc<Request>) {
        self.latest += STEP;
        request.unique.store(self.latest, Relaxed);
        self.pending.push(request);
    }

    pub(super) fn refusal(&self) -> Result<()> {
        match self.phase {
            Phase::Open => Ok(()),
            Phase::Refused => Err(Error::ConnectionRefused),
            Phase::Starting | Phase::Over { .. } => Err(Error::NotConnected),
        }
    }
}

impl Connection {
    /// In whose name the calling program asks.
    fn caller(&self) -> Result<Caller> {
        let found = Cell::new(None);
        vfs::credentials::caller_is(|caller| {
            found.set(Some((caller.user, caller.group)));
            true
        });
        let Some((user, group)) = found.get() else { return Ok(Caller::default()) };
        if !self.space.knows(user, group) {
            return Err(Error::Overflow);
        }
        Ok(Caller {
            user: self.space.shown_user(user),
            group: self.space.shown_group(group),
            process: vfs::caller::number(true).cast_unsigned(),
        })
    }

    /// Has a request sent for the calling program.
    pub(super) fn submit(&self, call: Call) -> Result<Arc<Request>> {
        let request = Request::new(call, self.caller()?, None, false)?;
        let mut state = allocation::lock_with_room(|| self.state.lock(), 1, |state| &mut state.pending)?;
        state.refusal()?;
        if state.owed >= OWED_MAX {
            return Err(Error::OutOfMemory);
        }
        state.enter(request.clone());
        self.waiting.fetch_add(1, Relaxed);
        drop(state);
        self.tell_readers();
        Ok(request)
    }

    /// Has a request sent that nobody waits for. Does not sleep.
    ///
    /// # Errors
    /// `ENOTCONN`, no memory: then `ending` is dropped.
    pub(crate) fn send(&self, call: Call, ending: Option<Ending>) -> Result<()> {
        let caller = self.caller().unwrap_or_default();
        let request = Request::new(call, caller, ending, true)?;
        let mut state = allocation::lock_with_room(|| self.state.lock(), 1, |state| &mut state.background)?;
        state.refusal()?;
        if state.background.len() >= BACKGROUND_MAX {
            return Err(Error::OutOfMemory);
        }
        state.background.push(request);
        self.waiting.fetch_add(1, Relaxed);
        drop(state);
        self.start_background();
        Ok(())
    }

    /// Background requests whose turn it is are sent.
    pub(super) fn start_background(&self) {
        // Without memory they wait for the next time.
        while let Ok(mut state) =
            allocation::lock_with_room(|| self.state.lock(), 1, |state| &mut state.pending)
        {
            if state.background.is_empty() || state.active >= state.max_background.max(1) {
                break;
            }
            let next = state.background.remove(0);
            state.active += 1;
            state.enter(next);
            drop(state);
            // For each, since each wakes one reader.
            self.tell_readers();
        }
    }

    /// Has the first request sent, with whose answer the connection opens.
    pub(crate) fn begin(self: &Arc<Self>) -> Result<()> {
        const REPLY_BYTES: usize = 64;
        let own = Arc::downgrade(self);
        let ending: Ending = allocation::boxed(move |answer: Result<Vec<u8>>| {
            if let Some(connection) = own.upgrade() {
                connection.started(answer);
            }
        })?;
        let call = Call::new(opcode::INIT, 0, init::request(), Room::up_to(REPLY_BYTES));
        let request = Request::new(call, Caller::default(), Some(ending), true)?;
        let mut state = allocation::lock_with_room(|| self.state.lock(), 1, |state| &mut state.pending)?;
        if state.phase != Phase::Starting {
            return Err(Error::NotConnected);
        }
        state.active += 1;
        state.enter(request);
        drop(state);
        self.waiting.fetch_add(1, Relaxed);
        self.tell_readers();
        Ok(())
    }

    fn started(&self, answer: Result<Vec<u8>>) {
        let agreed = answer.ok().and_then(|bytes| init::reply(&bytes).ok().flatten());
        let Agreement { background, congestion, .. } = match agreed {
            Some(agreed) => *self.agreement.call_once(|| agreed),
            None => {
                let mut state = self.state.lock();
                if state.phase == Phase::Starting {
                    state.phase = Phase::Refused;
                }
                drop(state);
                self.starters.wake_all();
                return;
            }
        };
        let mut state = self.state.lock();
        if state.phase == Phase::Starting {
            state.phase = Phase::Open;
        }
        state.max_background = background.unwrap_or(state.max_background);
        state.congestion = congestion.unwrap_or(state.congestion);
        drop(state);
        self.starters.wake_all();
    }

    /// The server need not know a file any more that was found so often. Does not sleep.
    pub(crate) fn forget(&self, node: u64, times: u64) {
        if times == 0 || node == ROOT {
            return;
        }
        // Without memory the server keeps it.
        if let Ok(mut state) = allocation::lock_with_room(|| self.state.lock(), 1, |state| &mut state.forgets)
        {
            if matches!(state.phase, Phase::Over { .. }) || state.forgets.len() >= FORGETS_MAX {
                return;
            }
            state.forgets.push((node, times));
            drop(state);
            self.tell_readers();
        }
    }

    /// The answer to a request that was abandoned: what the server believes that we have is given back.
    pub(super) fn disown(&self, request: &Request, bytes: &[u8]) {
        let mut values = Decoder::new(bytes);
        match request.opcode {
            opcode::LOOKUP
            | opcode::MAKE_NODE
            | opcode::MAKE_DIRECTORY
            | opcode::SYMBOLIC_LINK
            | opcode::LINK
            | opcode::CREATE => {
                let Ok(entry) = reply::entry(&mut values) else { return };
                if entry.node != 0 {
                    self.forget(entry.node, 1);
                }
                if request.opcode == opcode::CREATE
                    && values.bytes(reply::ATTRIBUTES_BYTES).is_ok()
                    && let Ok(opened) = reply::opened(&mut values)
                {
                    self.release(opcode::RELEASE, entry.node, opened.handle, 0);
                }
            }
            opcode::OPEN | opcode::OPEN_DIRECTORY => {
                if let Ok(opened) = reply::opened(&mut values) {
                    let is_file = request.opcode == opcode::OPEN;
                    let kind = if is_file { opcode::RELEASE } else { opcode::RELEASE_DIRECTORY };
                    self.release(kind, request.node, opened.handle, 0);
                }
            }
            _ => {}
        }
    }

    /// The server need not keep an open file any more. Does not sleep.
    pub(crate) fn release(&self, kind: u32, node: u64, handle: u64, flags: u32) {
        let body = Body::new().u64s(&[handle]).u32s(&[flags, 0]).u64s(&[0]);
        // A server that has ended keeps nothing; without memory this one keeps the file.
        let _ = self.send(Call::new(kind, node, body, Room::NONE), None);
    }
}

impl Connection {
    /// Has the server read what it wanted to know, as a message that it does not answer.
    ///
    /// # Errors
    /// `ENOTCONN`, no memory, or too much that the server wanted to know and does not read.
    pub(crate) fn tell(&self, node: u64, body: Body, unique: u64) -> Result<()> {
        let call = Call::new(opcode::NOTIFY_REPLY, node, body, Room::NONE);
        let request = Request::new(call, Caller::default(), None, false)?;
        request.unique.store(unique, Relaxed);
        let mut state = allocation::lock_with_room(|| self.state.lock(), 1, |state| &mut state.pending)?;
        state.refusal()?;
        if state.told >= TOLD_MAX {
            return Err(Error::OutOfMemory);
        }
        state.told += 1;
        state.pending.push(request);
        self.waiting.fetch_add(1, Relaxed);
        drop(state);
        self.tell_readers();
        Ok(())
    }
}
