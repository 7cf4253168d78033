//! Work queues: what runs soon in a thread, where it may sleep.
//!
//! Who queues allocates nothing: the place in the queue is made when the work is prepared, where it can be refused.
//!
//! One first-in-first-out queue feeds a pool of `kworker` threads. Before the last idle worker turns to an item it starts another one, up to
//! `WORKERS_MAX`: an item that sleeps holds up neither those that wait already nor those that come later. Workers are kept.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use memory::OutOfMemory;
use sync::IrqSpinLock;

use crate::WaitQueue;
use crate::thread::{Builder, Thread, ThreadRef};

/// Items that sleep at the same time, beyond which others wait: more than drivers of one machine do.
const WORKERS_MAX: usize = 16;

/// What a queued item does, once.
trait Run: Send {
    fn run(&mut self);
}

/// An action and what it is done with, once that is known.
struct Action<T> {
    act: fn(T),
    with: Option<T>,
}

impl<T: Send> Run for Action<T> {
    fn run(&mut self) {
        if let Some(with) = self.with.take() {
            (self.act)(with);
        }
    }
}

struct Item<R: ?Sized> {
    /// The next one in the list that it is in.
    next: Option<Box<Item<dyn Run>>>,
    run: R,
}

/// Something that a worker will do, with its place in the queue.
pub struct Work<T>(Box<Item<Action<T>>>);

impl<T: Send + 'static> Work<T> {
    /// Prepares work that will be done with something that is not known yet.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn prepare(act: fn(T)) -> Result<Work<T>, OutOfMemory> {
        memory::fallible::try_box(Item { next: None, run: Action { act, with: None } }).map(Work)
    }

    /// Has a worker do it soon. From any context; allocates nothing.
    pub fn queue(mut self, with: T) {
        self.0.run.with = Some(with);
        QUEUE.lock().push(self.0);
        AVAILABLE.wake_one();
    }
}

/// First in, first out: two lists, of which the one that is taken from is filled from the other, in the order in which they came.
struct Queue {
    /// The last one that came is the first.
    coming: Option<Box<Item<dyn Run>>>,
    going: Option<Box<Item<dyn Run>>>,
    idle_workers: usize,
}

impl Queue {
    fn push(&mut self, mut item: Box<Item<dyn Run>>) {
        item.next = self.coming.take();
        self.coming = Some(item);
    }

    fn pop(&mut self) -> Option<Box<Item<dyn Run>>> {
        if self.going.is_none() {
            while let Some(mut item) = self.coming.take() {
                self.coming = item.next.take();
                item.next = self.going.take();
                self.going = Some(item);
            }
        }
        let mut first = self.going.take()?;
        self.going = first.next.take();
        Some(first)
    }

    fn is_empty(&self) -> bool {
        self.coming.is_none() && self.going.is_none()
    }
}

static QUEUE: IrqSpinLock<Queue> = IrqSpinLock::new(Queue { coming: None, going: None, idle_workers: 0 });
static WORKERS: AtomicUsize = AtomicUsize::new(0);
static AVAILABLE: WaitQueue = WaitQueue::new();
/// Threads that were abandoned and not yet reported, linked by `Thread::next_abandoned`.
static ABANDONED: AtomicPtr<Thread> = AtomicPtr::new(core::ptr::null_mut());

/// Reports the thread's death from a worker. Allocates nothing and takes no lock but those of a wake-up.
pub(crate) fn queue_abandoned(thread: ThreadRef) {
    let thread = alloc::sync::Arc::into_raw(thread).cast_mut();
    let mut head = ABANDONED.load(Ordering::Relaxed);
    loop {
        // SAFETY: the reference taken above keeps the thread alive until the worker takes it over.
        unsafe { &*thread }.set_next_abandoned(head);
        // Release: the link is written before the worker can find the thread.
        match ABANDONED.compare_exchange_weak(head, thread, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => head = now,
        }
    }
    AVAILABLE.wake_one();
}

/// Starts the first worker. Once, at start-up; the caller has a thread.
pub(crate) fn start() {
    if WORKERS.load(Ordering::Relaxed) == 0 {
        add_worker();
    }
}

fn add_worker() {
    let claimed = WORKERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
        (count < WORKERS_MAX).then_some(count + 1)
    });
    if claimed.is_ok() && crate::spawn(Builder::new("kworker"), Box::new(worker)).is_err() {
        // The workers there are will get to the items in time.
        WORKERS.fetch_sub(1, Ordering::Relaxed);
    }
}

fn has_work() -> bool {
    !ABANDONED.load(Ordering::Relaxed).is_null() || !QUEUE.lock().is_empty()
}

fn worker() {
    loop {
        QUEUE.lock().idle_workers += 1;
        // Kernel threads get no attention: this waits for work without counting as load.
        let _attention = AVAILABLE.wait_interruptible_exclusive(has_work);
        let (item, is_last) = {
            let mut queue = QUEUE.lock();
            queue.idle_workers -= 1;
            (queue.pop(), queue.idle_workers == 0)
        };
        if is_last && item.is_some() {
            add_worker();
        }
        report_abandoned();
        if let Some(mut item) = item {
            item.run.run();
        }
    }
}

fn report_abandoned() {
    // Acquire: pairs with the Release in `queue_abandoned`.
    let mut thread = ABANDONED.swap(core::ptr::null_mut(), Ordering::Acquire);
    while !thread.is_null() {
        // SAFETY: the list holds a reference for each of its threads, which this takes over.
        let reference = unsafe { alloc::sync::Arc::from_raw(thread.cast_const()) };
        thread = reference.next_abandoned();
        reference.finish_abandoned();
        crate::dispatch::report_death(reference);
    }
}
