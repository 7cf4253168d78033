//! Files that travel in messages (`SCM_RIGHTS`).
//!
//! # In flight
//! Sockets among the files are noted with [`garbage`] while they travel: a socket in flight may hold the message
//! that holds the socket. Every file in flight is counted.
//!
//! # Ends
//! [`Rights::into_files`] when the message is received; [`Rights::discard`] when nobody will. Dropping a socket drops the
//! messages in its inbox, hence sockets, hence their messages, and so on: rights with sockets are put on a list of the thread's instead, and the call
//! that finds the thread not at work on its list takes them off one by one. So the depth of calls is bounded, and each thread does its own work. So many
//! threads have lists at a time ([`DROPPERS_MAX`]); one that comes besides leaves its rights to another.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicUsize, Ordering};

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

/// Threads that drop sockets at the same time: more than processors, for what is dropped besides may sleep.
const DROPPERS_MAX: usize = 64;

/// A thread that drops sockets, or a place for one.
struct Dropper {
    thread: Option<u64>,
    list: Option<Box<Rights>>,
}

static DROPPERS: SpinLock<[Dropper; DROPPERS_MAX]> =
    SpinLock::named("sockets to be dropped", [const { Dropper { thread: None, list: None } }; DROPPERS_MAX]);
/// Places that are taken; changed under the lock.
static DROPPING: AtomicUsize = AtomicUsize::new(0);

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
        if let Some(place) = enlist(self) {
            while let Some(mut rights) = next_of(place) {
                rights.files.clear();
            }
            garbage::collect_if_due();
        }
    }
}

/// Puts rights on the list of the running thread; its place, if it is to drop them now.
fn enlist(mut rights: Box<Rights>) -> Option<usize> {
    let thread = sched::current().id();
    let mut droppers = DROPPERS.lock();
    let place_of = |thread| droppers.iter().position(|dropper| dropper.thread == thread);
    let (place, begins) = match (place_of(Some(thread)), place_of(None)) {
        (Some(own), _) => (own, false),
        (None, Some(free)) => (free, true),
        (None, None) => (thread as usize % DROPPERS_MAX, false),
    };
    let dropper = &mut droppers[place];
    rights.next = dropper.list.take();
    dropper.list = Some(rights);
    if begins {
        dropper.thread = Some(thread);
        DROPPING.fetch_add(1, Ordering::Relaxed);
    }
    begins.then_some(place)
}

/// The next on a list. Without one the place is free again, in the same moment: what comes later is not left to it.
fn next_of(place: usize) -> Option<Box<Rights>> {
    let dropper = &mut DROPPERS.lock()[place];
    let Some(mut first) = dropper.list.take() else {
        dropper.thread = None;
        DROPPING.fetch_sub(1, Ordering::Relaxed);
        return None;
    };
    dropper.list = first.next.take();
    Some(first)
}

/// Whether the running thread is dropping sockets from its list.
pub(super) fn is_discarding() -> bool {
    // Relaxed: what this thread has done it sees.
    if DROPPING.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let thread = Some(sched::current().id());
    DROPPERS.lock().iter().any(|dropper| dropper.thread == thread)
}
