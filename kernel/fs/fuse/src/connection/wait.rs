//! Waiting for answers.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use sched::WaitQueue;
use vfs::{Error, Result, allocation};

use super::request::{Call, Request};
use super::{Connection, Phase};

/// Waits until `condition` holds. Calls `signalled` once if a signal comes that does not kill; that stays pending, and is seen on the way back to user mode.
///
/// # Errors
/// `EINTR` if the thread is to end.
pub(crate) fn killable(
    queue: &WaitQueue,
    mut condition: impl FnMut() -> bool,
    mut signalled: impl FnMut(),
) -> Result<()> {
    let thread = sched::current();
    let mut put_off = false;
    let outcome = loop {
        if queue.wait_interruptible(&mut condition).is_ok() {
            break Ok(());
        }
        if !put_off {
            signalled();
        }
        put_off = true;
        thread.set_attention(false);
        // Looked at behind that: who ends the thread says so first and sets the flag then.
        if thread.is_killed() {
            break Err(Error::Interrupted);
        }
    };
    if put_off {
        thread.set_attention(true);
    }
    outcome
}

impl Connection {
    /// Waits until the protocol is agreed on.
    fn await_start(&self) -> Result<()> {
        let is_starting = || self.state.lock().phase == Phase::Starting;
        if is_starting() {
            killable(&self.starters, || !is_starting(), || ())?;
        }
        Ok(())
    }

    /// Asks the server and waits for its answer.
    ///
    /// # Errors
    /// What the server says; `EINTR` if the caller is to end, `ENOTCONN` and `ECONNABORTED` if the server has ended.
    pub(crate) fn call(&self, call: Call) -> Result<Vec<u8>> {
        self.await_start()?;
        let request = self.submit(call)?;
        let waited = killable(&request.waiting, || request.is_over(), || self.interrupt(&request));
        if waited.is_err() && !self.abandon(&request) {
            return Err(Error::Interrupted);
        }
        request.take()
    }

    /// As [`call`](Self::call); a server that does not know such requests is not asked again.
    ///
    /// # Errors
    /// `ENOSYS` then.
    pub(crate) fn call_if_known(&self, call: Call) -> Result<Vec<u8>> {
        let opcode = call.opcode;
        if !self.knows(opcode) {
            return Err(Error::NotImplemented);
        }
        let answer = self.call(call);
        if answer == Err(Error::NotImplemented) {
            self.note_unknown(opcode);
        }
        answer
    }

    /// The server is to hear that who asked has got a signal.
    pub(super) fn interrupt(&self, request: &Arc<Request>) {
        // Without memory it does not hear.
        let Ok(mut state) =
            allocation::lock_with_room(|| self.state.lock(), 1, |state| &mut state.interrupts)
        else {
            return;
        };
        request.interrupted.store(true, Relaxed);
        let is_sent = request.device.load(Relaxed) != 0;
        if is_sent && !request.is_over() && !matches!(state.phase, Phase::Over { .. }) {
            state.interrupt(request);
            drop(state);
            self.tell_readers();
        }
    }

    /// Nobody waits for it any more. True: it is over, and its answer is there.
    pub(super) fn abandon(&self, request: &Arc<Request>) -> bool {
        let mut state = self.state.lock();
        if request.is_over() {
            return true;
        }
        request.abandoned.store(true, Relaxed);
        let taken_back = state
            .pending
            .iter()
            .position(|pending| Arc::ptr_eq(pending, request))
            .map(|index| state.pending.remove(index));
        if taken_back.is_none() {
            state.owed += 1;
        }
        drop(state);
        if taken_back.is_some() {
            self.waiting.fetch_sub(1, Relaxed);
        }
        false
    }
}
