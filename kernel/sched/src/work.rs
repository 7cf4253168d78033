//! Work queues: closures that run soon in a thread, where they may sleep.
//!
//! One first-in-first-out queue feeds a pool of `kworker` threads. Before the last idle worker turns to an item it starts another one, up to
//! `WORKERS_MAX`: an item that sleeps holds up neither those that wait already nor those that come later. Workers are kept.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use sync::IrqSpinLock;

use crate::WaitQueue;
use crate::thread::{Builder, Thread, ThreadRef};

/// Items that sleep at the same time, beyond which others wait: more than drivers of one machine do.
const WORKERS_MAX: usize = 16;

type Item = Box<dyn FnOnce() + Send>;

struct Queue {
    items: VecDeque<Item>,
    idle_workers: usize,
}

static QUEUE: IrqSpinLock<Queue> = IrqSpinLock::new(Queue { items: VecDeque::new(), idle_workers: 0 });
static WORKERS: AtomicUsize = AtomicUsize::new(0);
static AVAILABLE: WaitQueue = WaitQueue::new();
/// Threads that were abandoned and not yet reported, linked by `Thread::next_abandoned`.
static ABANDONED: AtomicPtr<Thread> = AtomicPtr::new(core::ptr::null_mut());

/// Runs the closure soon in a worker thread. From any context that may allocate.
pub fn queue(item: Item) {
    QUEUE.lock().items.push_back(item);
    AVAILABLE.wake_one();
}

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
    !ABANDONED.load(Ordering::Relaxed).is_null() || !QUEUE.lock().items.is_empty()
}

fn worker() {
    loop {
        QUEUE.lock().idle_workers += 1;
        // Kernel threads get no attention: this waits for work without counting as load.
        let _attention = AVAILABLE.wait_interruptible_exclusive(has_work);
        let (item, is_last) = {
            let mut queue = QUEUE.lock();
            queue.idle_workers -= 1;
            (queue.items.pop_front(), queue.idle_workers == 0)
        };
        if is_last && item.is_some() {
            add_worker();
        }
        report_abandoned();
        if let Some(item) = item {
            item();
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
