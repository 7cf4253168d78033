//! Files that travel in messages (`SCM_RIGHTS`).
//!
//! # In flight
//! Sockets among the files are noted with [`garbage`] while they travel: a socket in flight may hold the message
//! that holds the socket. Every file in flight is counted.
//!
//! # Ends
//! [`Rights::into_files`] when the message is received; [`Rights::discard`] when nobody will. Dropping a socket drops the
//! messages in its inbox, hence sockets, hence their messages, and so on: rights with sockets are put on a list instead, and
//! whoever finds nobody at work on the list takes them off one by one. So the depth of calls is bounded.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sync::SpinLock;
use vfs::{OpenFile, Result, allocation};

use super::endpoint::Endpoint;
use super::garbage::{self, Flight};
use super::socket::UnixSocket;

/// Most files that one message may bring (`SCM_MAX_FD`).
pub const FILES_PER_MESSAGE_MAX: usize = 253;

/// Files of a message.
pub struct Rights {
    files: Vec<Arc<OpenFile>>,
    /// The sockets among them.
    flights: Vec<Flight>,
    /// The sender's account of files in flight; it settles when dropped.
    charge: Option<Box<dyn Any + Send>>,
    /// The next one on the list of what is to be dropped.
    next: Option<Box<Self>>,
}

static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);
static DISCARDED: SpinLock<Option<Box<Rights>>> = SpinLock::new(None);
static DISCARDING: AtomicBool = AtomicBool::new(false);

/// Files that are in messages now.
pub fn in_flight() -> usize {
    IN_FLIGHT.load(Ordering::Relaxed)
}

impl Rights {
    /// Files to be sent over a local socket. `charge` is dropped when they have arrived or are gone.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(files: Vec<Arc<OpenFile>>, charge: Option<Box<dyn Any + Send>>) -> Result<Box<Self>> {
        debug_assert!(files.len() <= FILES_PER_MESSAGE_MAX);
        let rights = allocation::boxed(Self { files, flights: Vec::new(), charge, next: None })?;
        IN_FLIGHT.fetch_add(rights.files.len(), Ordering::Relaxed);
        Ok(rights)
    }

    /// They are about to be put into the inbox of `holder`. Once.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn take_off(&mut self, holder: &Endpoint) -> Result<()> {
        debug_assert!(self.flights.is_empty());
        let sockets = self.files.iter().filter(|file| file.object::<UnixSocket>().is_some()).count();
        if sockets == 0 {
            return Ok(());
        }
        allocation::reserve(&mut self.flights, sockets)?;
        for file in &self.files {
            if let Some(socket) = file.object::<UnixSocket>() {
                self.flights.push(garbage::take_off(holder, socket.id(), file)?);
            }
        }
        Ok(())
    }

    fn land(&mut self) {
        for flight in core::mem::take(&mut self.flights) {
            garbage::land(flight);
        }
        IN_FLIGHT.fetch_sub(self.files.len(), Ordering::Relaxed);
        self.charge = None;
    }

    /// The files have arrived.
    pub(super) fn into_files(mut self) -> Vec<Arc<OpenFile>> {
        self.land();
        core::mem::take(&mut self.files)
    }

    /// References of their own for who only looks at the message.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn copy_files(&self) -> Result<Vec<Arc<OpenFile>>> {
        let mut files = Vec::new();
        allocation::reserve(&mut files, self.files.len())?;
        let mut copy = || files.extend(self.files.iter().cloned());
        if self.flights.is_empty() {
            copy()
        } else {
            garbage::between_counts(copy)
        }
        Ok(files)
    }

    /// Nobody will receive them.
    pub fn discard(mut self: Box<Self>) {
        let sockets = self.files.iter().any(|file| file.object::<UnixSocket>().is_some());
        // Until they are dropped they count for who sent them: that may be later, and somebody else's work.
        let charge = self.charge.take();
        self.land();
        self.charge = charge;
        if !sockets {
            self.files.clear();
            return;
        }
        {
            let mut list = DISCARDED.lock();
            self.next = list.take();
            *list = Some(self);
        }
        drop_discarded();
    }
}

/// Drops what is on the list, unless somebody is at it.
fn drop_discarded() {
    // The list is looked at again after the mark is gone: who came meanwhile saw the mark and left.
    while DISCARDED.lock().is_some() {
        if DISCARDING.swap(true, Ordering::AcqRel) {
            return;
        }
        while let Some(mut rights) = pop_discarded() {
            rights.files.clear();
        }
        DISCARDING.store(false, Ordering::Release);
        garbage::collect_if_due();
    }
}

/// Whether sockets are being dropped from the list.
pub(super) fn is_discarding() -> bool {
    DISCARDING.load(Ordering::Relaxed)
}

fn pop_discarded() -> Option<Box<Rights>> {
    let mut list = DISCARDED.lock();
    let mut first = list.take()?;
    *list = first.next.take();
    Some(first)
}
