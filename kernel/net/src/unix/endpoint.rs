//! One side of a pair, as others refer to it.
//!
//! What a name leads to, what a datagram socket is connected to, who sent a message, what waits to be accepted: all are
//! endpoints. An endpoint keeps the pair, not a socket: it may outlive its socket, and then says that it is closed.

use alloc::sync::Arc;

use super::end::{End, state};
use super::name;
use super::pair::Pair;
use super::socket::Kind;
use vfs::Error;

/// A side of a pair.
#[derive(Clone)]
pub struct Endpoint {
    pub(super) pair: Arc<Pair>,
    pub(super) side: usize,
}

impl Endpoint {
    pub(super) fn end(&self) -> &End {
        &self.pair.ends[self.side]
    }

    /// The end at the other side.
    pub(super) fn peer(&self) -> &End {
        &self.pair.ends[1 - self.side]
    }

    pub(super) fn opposite(&self) -> Self {
        Self { pair: self.pair.clone(), side: 1 - self.side }
    }

    /// A number that no other socket has or had.
    pub(super) fn id(&self) -> u64 {
        self.pair.first_id + self.side as u64
    }

    /// How it transfers.
    pub fn kind(&self) -> Kind {
        self.pair.kind
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        self.side == other.side && Arc::ptr_eq(&self.pair, &other.pair)
    }

    /// What a datagram socket sends to when nobody says where. Until it is connected anew: the other side of its pair.
    pub(super) fn remote(&self) -> Option<Self> {
        if self.end().has(state::REDIRECTED) {
            self.end().link.lock().remote.clone()
        } else {
            Some(self.opposite())
        }
    }

    /// Whether a datagram socket is connected to this one.
    pub(super) fn is_connected_to(&self, other: &Self) -> bool {
        self.remote().is_some_and(|remote| remote.is(other))
    }

    /// Whether a datagram socket takes messages of another one: one that is connected takes those of its peer only.
    pub(super) fn takes_from(&self, sender: &Self) -> bool {
        self.remote().is_none_or(|remote| remote.is(sender))
    }

    /// Whether a datagram socket has as many messages as others may leave there.
    pub(super) fn is_full_for(&self, sender: &Self) -> bool {
        self.end().is_over_backlog() && !self.is(sender) && !self.is_connected_to(sender)
    }

    /// The socket is gone, or, of a connection that waits to be accepted, will never be.
    pub(super) fn close(&self, unaccepted: bool) {
        let own = self.end();
        if !unaccepted {
            name::unbind(self);
        }
        own.enter(state::CLOSED | state::SHUT);
        // Nothing comes in any more: who puts something in looks at the state with the inbox or the queue locked.
        let left = own.take_all();
        if self.kind().is_connection() && own.has(state::CONNECTED) {
            if unaccepted || !left.is_empty() {
                self.peer().fail(Error::ConnectionReset);
            }
            self.peer().enter(state::SHUT);
        }
        if own.has(state::REDIRECTED) {
            let remote = own.link.lock().remote.take();
            drop(remote);
        }
        for message in left {
            self.dispose(message);
        }
        if let Some(listener) = own.listener.get() {
            for waiting in listener.take_all() {
                waiting.close(true);
            }
        }
    }

    /// A message of this inbox is done with.
    pub(super) fn dispose(&self, mut message: super::message::Message) {
        let charge = message.charge;
        let sender = message.sender.take();
        drop(message);
        match sender {
            Some(sender) => sender.end().uncharge(charge),
            None => self.peer().uncharge(charge),
        }
    }

    /// Drops what is in the inbox and in the inboxes of connections that wait here: nobody will read it. Whether there was something in the
    /// inbox.
    pub(super) fn purge(&self) -> bool {
        let all = self.end().take_all();
        let some = !all.is_empty();
        for message in all {
            self.dispose(message);
        }
        self.end().writers_may_look();
        if let Some(listener) = self.end().listener.get() {
            // Clones, so that nothing is dropped under the lock; without memory for them the next collection does it.
            for waiting in listener.copy_all().unwrap_or_default() {
                waiting.purge();
            }
        }
        some
    }
}
