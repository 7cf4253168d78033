//! Bytes out of band of streams (`MSG_OOB`).
//!
//! Such a byte is a message of its own in the inbox, which is *urgent* until it is received. Where it stands is the mark: a read ends there, and one that
//! begins there passes it over, and the byte with it, unless such bytes are read like others (`SO_OOBINLINE`). Received out of band it leaves an empty
//! message at its place. There is one: another one makes it a byte like others.

use alloc::collections::VecDeque;
use alloc::sync::Weak;
use core::sync::atomic::Ordering;

use machine::set_once::SetOnce;
use memory::buffer::Sink;
use vfs::poll::PollEvents;
use vfs::{Error, FileOwner, Result};

use super::end::End;
use super::message::Message;
use super::options::Flags;
use super::receive::Received;
use super::socket::{Kind, UnixSocket};

static SIGNAL: SetOnce<fn(&FileOwner)> = SetOnce::new();

/// Registers what sends `SIGURG` to the owner of a file. Once, at start-up.
pub fn set_urgent_signal(signal: fn(&FileOwner)) {
    SIGNAL.set(signal);
}

impl End {
    /// Whether bytes out of band are read like others.
    pub(super) fn is_inline(&self) -> bool {
        self.options.flag(Flags::OUT_OF_BAND_INLINE)
    }

    /// An urgent byte is about to be put in.
    pub(super) fn mark(&self, inbox: &mut VecDeque<Message>) {
        if self.is_urgent.swap(true, Ordering::Relaxed)
            && let Some(before) = inbox.iter_mut().rev().find(|message| message.is_urgent)
        {
            before.is_urgent = false;
        }
    }

    /// A read begins at the mark. The byte becomes one like others, or is passed over: then the message is to be disposed of.
    pub(super) fn pass_mark(&self, inbox: &mut VecDeque<Message>) -> Option<Message> {
        let first = inbox.front_mut()?;
        if first.is_urgent {
            self.is_urgent.store(false, Ordering::Relaxed);
            first.is_urgent = false;
            if self.is_inline() {
                return None;
            }
        }
        let passed = inbox.pop_front();
        self.publish(inbox);
        passed
    }

    /// A byte out of band has come.
    pub(super) fn tell_urgent(&self) {
        self.pollers.notify(PollEvents::PRIORITY);
        if let Some(file) = self.file.get().and_then(Weak::upgrade)
            && let Some(signal) = SIGNAL.get()
        {
            let owner = file.owner();
            if owner.owner != 0 {
                signal(&owner);
            }
        }
    }
}

impl UnixSocket {
    /// Receives the byte out of band.
    pub(super) fn receive_urgent(&self, sink: &mut Sink<'_>, peek: bool) -> Result<Received> {
        let own = self.own();
        let mut byte = [0];
        {
            let mut inbox = own.inbox.lock();
            let found = inbox.iter_mut().rev().find(|message| message.is_urgent);
            let message = found.filter(|_| !own.is_inline()).ok_or(Error::Invalid)?;
            message.payload.store(0, &mut Sink::kernel(&mut byte))?;
            if !peek {
                message.is_urgent = false;
                message.taken = message.payload.len();
                own.is_urgent.store(false, Ordering::Relaxed);
            }
        }
        if !sink.is_full() {
            sink.write(&byte)?;
        }
        Ok(Received { result: byte.len(), urgent: true, ..Received::default() })
    }

    /// Whether the next byte of a stream is the one out of band, or the one that was there (`SIOCATMARK`).
    pub(super) fn is_at_mark(&self) -> bool {
        let own = self.own();
        let inbox = own.inbox.lock();
        let is_waiting = own.is_urgent.load(Ordering::Relaxed);
        self.kind() == Kind::Stream
            && inbox.front().is_some_and(|first| first.is_urgent || (first.is_mark() && !is_waiting))
    }
}
