//! Listening sockets: connections that wait to be accepted.
//!
//! A socket that connects brings the pair: it has one from the beginning, of which it is the first side. The second side goes into
//! the listener's queue, where it can be sent to already, and becomes a socket when it is accepted. When the listener is closed, it is closed as if
//! it had been a socket, and the first side learns that its connection was reset.
//!
//! # Locking
//! The link of the socket that connects, then the listener's queue. The queue's length is mirrored in the end's number of what is queued, so
//! that waiting and polling are the same as for messages.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use vfs::flags::OpenFlags;
use vfs::{Error, OpenFile, Result, allocation};

use super::end::state;
use super::endpoint::Endpoint;
use super::identity::Principal;
use super::options::{Direction, settings};
use super::pair::open;
use super::socket::UnixSocket;

/// What waits to be accepted.
pub(super) struct Listener {
    queue: sched::Mutex<VecDeque<Endpoint>>,
}

impl Listener {
    /// Takes everything out.
    pub(super) fn take_all(&self) -> VecDeque<Endpoint> {
        core::mem::take(&mut *self.queue.lock())
    }

    /// References to everything.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn copy_all(&self) -> Result<Vec<Endpoint>> {
        let queue = self.queue.lock();
        let mut all = Vec::new();
        allocation::reserve(&mut all, queue.len())?;
        all.extend(queue.iter().cloned());
        Ok(all)
    }
}

impl UnixSocket {
    /// Lets others connect; `backlog` and one more may wait. Again: changes how many. `owner` is what they see of the listener.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for datagrams; `EINVAL` without a name or with a connection; `ENOMEM`.
    pub fn listen(&self, backlog: u32, owner: Principal) -> Result<()> {
        if !self.kind().is_connection() {
            return Err(Error::NotSupported);
        }
        let own = self.own();
        let mut fresh = None;
        if own.listener.get().is_none() {
            let queue = sched::Mutex::named("connections to be accepted", VecDeque::new());
            fresh = Some(allocation::boxed(Listener { queue })?);
        }
        let mut link = own.link.lock();
        if !self.is_bound() || self.is_connected() {
            return Err(Error::Invalid);
        }
        link.peer = Some(owner);
        own.backlog.store(backlog.min(settings::somaxconn()), Ordering::Release);
        if let Some(listener) = fresh.take() {
            own.listener.call_once(|| listener);
        }
        own.enter(state::LISTENING);
        Ok(())
    }

    /// Whether it listens (`SO_ACCEPTCONN`).
    pub fn is_listening(&self) -> bool {
        self.own().has(state::LISTENING)
    }

    /// How many connections wait to be accepted.
    pub fn waiting(&self) -> usize {
        self.own().listener.get().map_or(0, |listener| listener.queue.lock().len())
    }

    /// Takes the first of the connections that wait, as an open file. Of the flags `O_NONBLOCK` counts for the new one.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `EINVAL` when it does not listen or was shut down, `EAGAIN`, `EINTR`, `ENFILE`, `ENOMEM`.
    pub fn accept(&self, non_block: bool, flags: OpenFlags, user: u32, group: u32) -> Result<Arc<OpenFile>> {
        if !self.kind().is_connection() {
            return Err(Error::NotSupported);
        }
        let listener = self.own().listener.get().ok_or(Error::Invalid)?;
        let outcome = self.wait_for_connection(listener, non_block);
        // A wake-up that this call has had may be for what it left.
        self.own().pass_on();
        let accepted = outcome?;
        open(accepted.clone(), flags, user, group).inspect_err(|_| self.put_back(listener, accepted))
    }

    /// There is no memory for an open file: the connection waits on, as the first one.
    fn put_back(&self, listener: &Listener, connection: Endpoint) {
        connection.end().queued_at.store(self.id(), Ordering::Release);
        let mut queue = listener.queue.lock();
        if queue.len() < queue.capacity() {
            queue.push_front(connection);
            self.own().publish_length(queue.len());
            drop(queue);
            self.own().tell_readers();
        } else {
            // Another one has its place already.
            drop(queue);
            connection.close(true);
        }
    }

    fn wait_for_connection(&self, listener: &Listener, non_block: bool) -> Result<Endpoint> {
        let own = self.own();
        let deadline_ns = self.options().deadline_ns(Direction::Receive);
        loop {
            {
                let mut queue = listener.queue.lock();
                if let Some(first) = queue.pop_front() {
                    own.publish_length(queue.len());
                    drop(queue);
                    first.end().queued_at.store(0, Ordering::Release);
                    own.writers_may_look();
                    return Ok(first);
                }
            }
            if non_block {
                return Err(Error::WouldBlock);
            }
            if own.has(state::RECEIVE_SHUT) {
                return Err(Error::Invalid);
            }
            own.wait_readable(deadline_ns)?;
        }
    }

    /// Connects to a listening socket. `find` looks for it, again after a wait; `owner` is what the listener sees.
    ///
    /// # Errors
    /// Those of `find`; `EISCONN`; `EINVAL` of a listening socket; `ECONNREFUSED`; `EAGAIN` when no more connections may wait; `EINTR`,
    /// `ENOMEM`.
    pub fn connect(
        &self,
        mut find: impl FnMut() -> Result<Endpoint>,
        non_block: bool,
        owner: &Principal,
    ) -> Result<()> {
        let deadline_ns = self.options().deadline_ns(Direction::Send);
        loop {
            let target = find()?;
            self.check_unconnected()?;
            let end = target.end();
            if end.has(state::LISTENING) && !end.has(state::RECEIVE_SHUT) && end.is_over_backlog() {
                if non_block {
                    return Err(Error::WouldBlock);
                }
                end.wait_for_backlog(deadline_ns)?;
            } else if self.join(&target, owner)? {
                return Ok(());
            }
        }
    }

    fn check_unconnected(&self) -> Result<()> {
        if self.is_connected() {
            return Err(Error::IsConnected);
        }
        if self.is_listening() { Err(Error::Invalid) } else { Ok(()) }
    }

    /// Puts the second side of this socket's pair into the queue of a listener; false when it is full.
    fn join(&self, target: &Endpoint, owner: &Principal) -> Result<bool> {
        let end = target.end();
        let listener = end.listener.get().ok_or(Error::ConnectionRefused)?;
        let seen = end.link.lock().peer.clone();
        let mut link = self.own().link.lock();
        self.check_unconnected()?;
        let waiting = self.at.opposite();
        let mut queue = listener.queue.lock();
        // Under the lock: who closes the listener takes out what is there afterwards.
        if end.has(state::CLOSED | state::RECEIVE_SHUT) {
            return Err(Error::ConnectionRefused);
        }
        if end.is_over_backlog() {
            return Ok(false);
        }
        if queue.len() == queue.capacity()
            && (allocation::fail_point().is_err() || queue.try_reserve(1).is_err())
        {
            return Err(Error::OutOfMemory);
        }
        link.peer = seen;
        waiting.end().link.lock_nested(1).peer = Some(owner.clone());
        if let Some(name) = end.name.get() {
            waiting.end().name.call_once(|| name.clone());
        }
        waiting.end().options.set_passes_identity(end.options.passes_identity());
        waiting.end().queued_at.store(target.id(), Ordering::Release);
        waiting.end().enter(state::CONNECTED);
        self.own().enter(state::CONNECTED);
        queue.push_back(waiting);
        end.publish_length(queue.len());
        drop(queue);
        drop(link);
        end.tell_readers();
        Ok(true)
    }
}
