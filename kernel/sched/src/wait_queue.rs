//! Wait queues: threads that wait for the same event.
//!
//! A waiter's node lies on its own stack, so waiting allocates nothing. Waiters queue in the order they came; *exclusive*
//! ones are woken one at a time and leave the queue when they are. Each check of the condition comes after the node is in the
//! queue and the sleep is announced, so a wake-up between the check and the sleep is not lost.
//!
//! Life of a node: FREE → LINKED by its thread → FREE by its thread at the end, or → LEAVING → FREE by a waker that wakes it
//! exclusively. A waker's last access to a node is the store of FREE; the thread that sees it may leave without taking the
//! lock. A thread that sees LEAVING waits for what becomes of it: it must not go to sleep again unlinked.
//! A waker may choose a thread whose last check of the condition came before the event: one that leaves because it was
//! interrupted or timed out, or because it found an earlier event. Such a thread passes the wake-up on.
//!
//! Pollers (poll, epoll) don't sleep here: they register a [`Waker`] that is called at each wake-up. Their list is made when the
//! first one registers.
//!
//! Lock order: a wait queue's lock, then a run queue's. Wakers run under the poller list's lock.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr;
use core::sync::atomic::{AtomicU8, Ordering};

use sync::{IrqSpinLock, Once};

use crate::cpu::WakeBatch;
use crate::placement::{self, WakeMode};
use crate::thread::{Thread, current};
use crate::timer;
use crate::wait::{self, Interrupted, WaitError};

/// What a registered poller wants to be called at each wake-up, in any context, under a lock with interrupts off: it
/// takes [`IrqSpinLock`]s only and touches no registration.
pub trait Waker: Send + Sync {
    /// Something has happened.
    fn wake(&self);
}

struct Node {
    previous: *mut Node,
    next: *mut Node,
    thread: *const Thread,
    exclusive: bool,
    /// FREE, LINKED or LEAVING. Written under the queue's lock.
    place: AtomicU8,
}

/// In no list.
const FREE: u8 = 0;
/// In its queue's list.
const LINKED: u8 = 1;
/// A waker is about to wake its thread exclusively and to take it out; or to leave it LINKED, if the thread does not sleep.
const LEAVING: u8 = 2;

/// A doubly linked list of nodes on the stacks of waiting threads.
struct List {
    first: *mut Node,
    last: *mut Node,
}

// SAFETY: the list's nodes are accessed under the queue's lock only, and stay alive while they are linked.
unsafe impl Send for List {}

impl List {
    const fn new() -> Self {
        Self { first: ptr::null_mut(), last: ptr::null_mut() }
    }

    /// # Safety
    /// The node is in no list, and stays where it is until it is unlinked.
    unsafe fn push(&mut self, node: *mut Node) {
        // SAFETY: the caller vouches for `node`; `last` is a linked node, hence alive.
        unsafe {
            (*node).previous = self.last;
            (*node).next = ptr::null_mut();
            match self.last.is_null() {
                true => self.first = node,
                false => (*self.last).next = node,
            }
        }
        self.last = node;
    }

    /// # Safety
    /// The node is in this list.
    unsafe fn unlink(&mut self, node: *mut Node) {
        // SAFETY: the node and its neighbours are linked, hence alive.
        unsafe {
            let (previous, next) = ((*node).previous, (*node).next);
            match previous.is_null() {
                true => self.first = next,
                false => (*previous).next = next,
            }
            match next.is_null() {
                true => self.last = previous,
                false => (*next).previous = previous,
            }
        }
    }
}

/// A queue of threads that wait for an event.
pub struct WaitQueue {
    list: IrqSpinLock<List>,
    pollers: Once<Arc<Pollers>>,
}

#[derive(Default)]
struct Pollers {
    wakers: IrqSpinLock<Vec<Arc<Entry>>>,
}

impl Pollers {
    fn wake(&self) {
        for entry in self.wakers.lock().iter() {
            entry.0.wake();
        }
    }
}

struct Entry(Arc<dyn Waker>);

/// A poller's registration; dropping it ends it. It may outlive the wait queue.
#[must_use]
pub struct Registration {
    pollers: Arc<Pollers>,
    entry: Arc<Entry>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut wakers = self.pollers.wakers.lock();
        let position = wakers.iter().position(|entry| Arc::ptr_eq(entry, &self.entry));
        let removed = position.map(|position| wakers.swap_remove(position));
        drop(wakers);
        drop(removed);
    }
}

impl core::fmt::Debug for Registration {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Registration")
    }
}

/// The part of a wait that links and unlinks the node. Not moved once it has linked.
struct Waiter<'a> {
    queue: &'a WaitQueue,
    node: Node,
}

impl Waiter<'_> {
    fn is_linked(&self) -> bool {
        loop {
            // Acquire: pairs with the Release in `wake_node`: the waker is done with the node.
            match self.node.place.load(Ordering::Acquire) {
                FREE => return false,
                LINKED => return true,
                _ => machine::cpu::relax(),
            }
        }
    }

    /// Links the node if it is not linked. The waiter must not be moved any more.
    fn link(&mut self) {
        if self.is_linked() {
            return;
        }
        let mut list = self.queue.list.lock();
        self.node.place.store(LINKED, Ordering::Relaxed);
        // SAFETY: the node is in no list; `Drop` unlinks it before the frame ends.
        unsafe { list.push(&raw mut self.node) };
    }

    /// Takes the node out of the list; false if a waker has done so.
    fn leave(&mut self) -> bool {
        if !self.is_linked() {
            return false;
        }
        let mut list = self.queue.list.lock();
        if self.node.place.load(Ordering::Relaxed) != LINKED {
            return false;
        }
        self.node.place.store(FREE, Ordering::Relaxed);
        // SAFETY: under the lock LINKED said that the node is in this list.
        unsafe { list.unlink(&raw mut self.node) };
        true
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl WaitQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { list: IrqSpinLock::new(List::new()), pollers: Once::new() }
    }

    fn wait(
        &self,
        mut condition: impl FnMut() -> bool,
        interruptible: bool,
        exclusive: bool,
        expired: &dyn Fn() -> bool,
    ) -> Result<(), WaitError> {
        let thread = current();
        let node = Node {
            previous: ptr::null_mut(),
            next: ptr::null_mut(),
            thread: &raw const *thread,
            exclusive,
            place: AtomicU8::new(FREE),
        };
        let mut waiter = Waiter { queue: self, node };
        let mut waited = false;
        let mut checked_linked = false;
        let outcome = wait::block(
            || {
                checked_linked = false;
                // A waiter that a waker has taken out mostly finds its condition true and need not link again.
                if waited && !waiter.is_linked() && condition() {
                    return true;
                }
                waited = true;
                waiter.link();
                checked_linked = true;
                condition()
            },
            interruptible,
            expired,
        );
        let chosen = !waiter.leave();
        if exclusive && checked_linked && chosen {
            self.wake_one();
        }
        outcome
    }

    /// Sleeps until the condition holds. The condition must not sleep.
    pub fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        if !condition() {
            let _holds = self.wait(condition, false, false, &|| false);
        }
    }

    /// Sleeps while the condition holds. The condition must not sleep.
    pub fn wait_while(&self, mut condition: impl FnMut() -> bool) {
        self.wait_until(|| !condition());
    }

    /// Like [`WaitQueue::wait_until`]; of several exclusive waiters [`WaitQueue::wake_one`] wakes one.
    pub fn wait_until_exclusive(&self, mut condition: impl FnMut() -> bool) {
        if !condition() {
            let _holds = self.wait(condition, false, true, &|| false);
        }
    }

    /// Sleeps until the condition holds or the deadline (ns since boot) has passed; returns whether it holds.
    pub fn wait_until_deadline(&self, mut condition: impl FnMut() -> bool, deadline_ns: u64) -> bool {
        condition()
            || timer::with_deadline(Some(deadline_ns), |expired| self.wait(condition, false, false, expired))
                .is_ok()
    }

    /// Sleeps until the condition holds.
    ///
    /// # Errors
    /// [`Interrupted`] when the thread's attention flag is set before that.
    pub fn wait_interruptible(&self, mut condition: impl FnMut() -> bool) -> Result<(), Interrupted> {
        if condition() {
            return Ok(());
        }
        self.wait(condition, true, false, &|| false).map_err(|_| Interrupted)
    }

    /// Like [`WaitQueue::wait_interruptible`]; of several exclusive waiters [`WaitQueue::wake_one`] wakes one.
    ///
    /// # Errors
    /// [`Interrupted`] when the thread's attention flag is set before that.
    pub fn wait_interruptible_exclusive(
        &self,
        mut condition: impl FnMut() -> bool,
    ) -> Result<(), Interrupted> {
        if condition() {
            return Ok(());
        }
        self.wait(condition, true, true, &|| false).map_err(|_| Interrupted)
    }

    /// Sleeps until the condition holds, at most until the deadline (ns since boot), if there is one.
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait_interruptible_deadline(
        &self,
        mut condition: impl FnMut() -> bool,
        deadline_ns: Option<u64>,
    ) -> Result<(), WaitError> {
        if condition() {
            return Ok(());
        }
        timer::with_deadline(deadline_ns, |expired| self.wait(condition, true, false, expired))
    }

    /// Wakes all waiters that are not exclusive and the first exclusive one.
    pub fn wake_one(&self) {
        self.wake_n(1);
    }

    /// Like [`WaitQueue::wake_one`] by a thread that is about to sleep itself.
    pub fn wake_one_synchronous(&self) {
        self.wake_up_to(1, WakeMode { synchronous: true, ..WakeMode::default() });
    }

    /// Wakes all waiters.
    pub fn wake_all(&self) {
        self.wake_n(usize::MAX);
    }

    /// Wakes all waiters that are not exclusive and the first `count` exclusive ones.
    pub fn wake_n(&self, count: usize) {
        self.wake_up_to(count, WakeMode::default());
    }

    fn wake_up_to(&self, mut count: usize, mode: WakeMode) {
        let _batch = WakeBatch::begin();
        let known = self.pollers.get();
        if let Some(pollers) = known {
            pollers.wake();
        }
        let mut list = self.list.lock();
        // Once more behind a lock, and so behind what the waker has made true: the first poller that is not seen here registers later, and
        // checks its condition after that. Taken along, because the queue may be gone when its threads have been woken.
        let late = if known.is_none() { self.pollers.get().cloned() } else { None };
        let mut node = list.first;
        while !node.is_null() && count > 0 {
            // SAFETY: a linked node is alive, under the lock.
            let next = unsafe { (*node).next };
            // SAFETY: as above.
            if unsafe { Self::wake_node(&mut list, node, mode) } {
                count -= 1;
            }
            node = next;
        }
        drop(list);
        if let Some(pollers) = late {
            pollers.wake();
        }
    }

    /// Wakes the thread of a linked node; returns whether that used up an exclusive wake-up.
    ///
    /// # Safety
    /// The node is linked in the list.
    unsafe fn wake_node(list: &mut List, node: *mut Node, mode: WakeMode) -> bool {
        // SAFETY: the node is linked, hence alive, and so is its thread, which cannot leave the frame that holds the
        // node before it is unlinked: that takes the lock, or FREE being seen, which is stored last.
        unsafe {
            if !(*node).exclusive {
                placement::wake(&*(*node).thread, mode);
                return false;
            }
            // Before the wake-up, so that the thread does not take itself for linked.
            (*node).place.store(LEAVING, Ordering::Relaxed);
            let woken = placement::wake(&*(*node).thread, mode);
            if woken {
                list.unlink(node);
            }
            // Release: pairs with the Acquire in `is_linked`.
            (*node).place.store(if woken { FREE } else { LINKED }, Ordering::Release);
            woken
        }
    }

    /// Registers a poller, to be called at each wake-up until the registration is dropped.
    pub fn register(&self, waker: Arc<dyn Waker>) -> Registration {
        let pollers = self.pollers.call_once(Arc::default).clone();
        let entry = Arc::new(Entry(waker));
        let mut spare = Vec::new();
        loop {
            let mut wakers = pollers.wakers.lock();
            if wakers.len() < wakers.capacity() {
                wakers.push(entry.clone());
                break;
            }
            if spare.capacity() > wakers.len() {
                spare.append(&mut wakers);
                core::mem::swap(&mut *wakers, &mut spare);
                continue;
            }
            // Memory is allocated without the lock.
            let wanted = (wakers.len() + 1).next_power_of_two().max(4);
            drop(wakers);
            spare = Vec::with_capacity(wanted);
        }
        Registration { pollers, entry }
    }

    /// Whether anybody waits or polls; a hint.
    pub fn is_empty(&self) -> bool {
        self.list.lock().first.is_null()
            && self.pollers.get().is_none_or(|pollers| pollers.wakers.lock().is_empty())
    }
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for WaitQueue {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("WaitQueue")
    }
}
