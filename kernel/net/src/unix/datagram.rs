//! Datagrams between sockets that are not each other's other side: to a name, or to what the socket was connected to.
//!
//! Such a message counts in its sender's buffer, to which it refers, and among those that others may leave with a receiver
//! (`/proc/sys/net/unix/max_dgram_qlen`), unless that is connected to the sender. A socket that is connected takes messages of its peer only; whether it
//! does is looked up with its inbox locked.
//!
//! # Locking
//! A receiver's inbox, then its link.

use vfs::{Error, Result, allocation};

use super::end::state;
use super::endpoint::Endpoint;
use super::message::Message;
use super::socket::UnixSocket;

impl Endpoint {
    /// Puts a message of another socket, or its own one, in; it comes back when this one does not take it.
    fn put_from(&self, sender: &Self, mut message: Message) -> Result<(), (Error, Message)> {
        let end = self.end();
        let mut inbox = end.inbox.lock();
        // One look: a socket that closes becomes closed and shut at once, and must not seem to be shut only.
        let current = end.state();
        let refusal = if !self.takes_from(sender) {
            Some(Error::NotPermitted)
        } else if current & state::CLOSED != 0 {
            Some(Error::ConnectionRefused)
        } else if current & state::RECEIVE_SHUT != 0 {
            Some(Error::BrokenPipe)
        } else if self.is_full_for(sender) {
            Some(Error::WouldBlock)
        } else if inbox.len() == inbox.capacity()
            && (allocation::fail_point().is_err() || inbox.try_reserve(1).is_err())
        {
            Some(Error::OutOfMemory)
        } else {
            None
        };
        if let Some(error) = refusal {
            return Err((error, message));
        }
        message.stamp_ns = end.options.stamp_ns();
        inbox.push_back(message);
        end.publish(&inbox);
        drop(inbox);
        end.tell_readers();
        Ok(())
    }
}

impl UnixSocket {
    /// Sends a message, which is charged already, and waits until there is room for it unless it shall not.
    pub(super) fn send_to(
        &self,
        target: &Endpoint,
        mut message: Message,
        non_block: bool,
        deadline_ns: Option<u64>,
    ) -> Result<(), (Error, Message)> {
        loop {
            let error = match target.put_from(&self.at, message) {
                Ok(()) => return Ok(()),
                Err((error, back)) => {
                    message = back;
                    error
                }
            };
            if error != Error::WouldBlock || non_block {
                return Err((error, message));
            }
            if let Err(error) = target.end().wait_for_backlog(deadline_ns) {
                return Err((error, message));
            }
        }
    }

    /// Connects a datagram socket to another one, or to none.
    ///
    /// # Errors
    /// `EPERM` when that one is connected to somebody else.
    pub fn redirect(&self, target: Option<Endpoint>) -> Result<()> {
        if target.as_ref().is_some_and(|target| !target.takes_from(&self.at)) {
            return Err(Error::NotPermitted);
        }
        let before = {
            let mut link = self.own().link.lock();
            let taken = core::mem::replace(&mut link.remote, target.clone());
            let is_first = !self.own().has(state::REDIRECTED);
            self.own().enter(state::REDIRECTED);
            if is_first { Some(self.at.opposite()) } else { taken }
        };
        let Some(before) = before else { return Ok(()) };
        let is_same = target.is_some_and(|target| target.is(&before));
        // What comes from the one before is void, which is told if it counts on this one.
        if !is_same && self.at.purge() && !before.end().has(state::CLOSED) && before.is_connected_to(&self.at)
        {
            before.end().fail(Error::ConnectionReset);
            before.end().enter(0);
        }
        Ok(())
    }
}
