//! What runs after a grace period.
//!
//! Each CPU has three lists (specs/scalability.md §L49): NEXT (queued, no grace period assigned), WAIT
//! (waits for grace period `wait_for`), DONE (its grace period is over). Callbacks move NEXT → WAIT → DONE
//! in [`invoke`], which also runs them, at most a given number at a time. A callback is linked through
//! a header inside its own allocation ([`RcuBox`]), so handing something over never allocates.

use alloc::boxed::Box;
use core::alloc::Layout;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::grace_period;
use crate::{IrqSpinLock, PerCpu, per_cpu};

/// Link and action of something that waits for a grace period.
struct Header {
    next: *mut Header,
    /// Consumes the allocation that the header lies in.
    run: unsafe fn(*mut Header),
}

#[repr(C)]
pub(super) struct Node<T> {
    header: Header,
    pub(super) value: T,
}

/// A boxed value that can be handed to RCU for a deferred drop without allocating.
pub struct RcuBox<T: Send + 'static> {
    node: NonNull<Node<T>>,
}

// SAFETY: an RcuBox owns its value like a Box.
unsafe impl<T: Send> Send for RcuBox<T> {}
// SAFETY: sharing the box shares the value.
unsafe impl<T: Send + Sync> Sync for RcuBox<T> {}

impl<T: Send + 'static> RcuBox<T> {
    /// Boxes the value.
    pub fn new(value: T) -> Self {
        let node = Box::new(Node { header: Header { next: ptr::null_mut(), run: drop_node::<T> }, value });
        Self { node: NonNull::from(Box::leak(node)) }
    }

    /// Boxes the value unless there is no memory for it; then the value is dropped.
    pub fn try_new(value: T) -> Option<Self> {
        // SAFETY: a node has a header, so the layout has a size.
        let memory = unsafe { alloc::alloc::alloc(Layout::new::<Node<T>>()) };
        let node = NonNull::new(memory.cast::<Node<T>>())?;
        // SAFETY: fresh memory of a node's layout from the global allocator, as `drop_node` and `drop` give it back.
        unsafe { node.write(Node { header: Header { next: ptr::null_mut(), run: drop_node::<T> }, value }) };
        Some(Self { node })
    }

    /// Drops the value after a grace period.
    pub fn defer_drop(self) {
        enqueue(self.into_raw().cast());
    }

    pub(super) fn into_raw(self) -> *mut Node<T> {
        let node = self.node.as_ptr();
        core::mem::forget(self);
        node
    }

    /// # Safety
    /// `node` came from `into_raw` and nobody else will make a box of it.
    pub(super) unsafe fn from_raw(node: *mut Node<T>) -> Self {
        // SAFETY: `into_raw` never returns null.
        Self { node: unsafe { NonNull::new_unchecked(node) } }
    }
}

impl<T: Send> Deref for RcuBox<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the box owns a live node.
        unsafe { &self.node.as_ref().value }
    }
}

impl<T: Send + 'static> Drop for RcuBox<T> {
    fn drop(&mut self) {
        // SAFETY: the node was leaked from a Box in `new` and is dropped once.
        drop(unsafe { Box::from_raw(self.node.as_ptr()) });
    }
}

/// # Safety
/// `header` is that of a leaked `Node<T>`, which nobody else can reach any more.
unsafe fn drop_node<T>(header: *mut Header) {
    // SAFETY: the header is the first field of a `repr(C)` Node<T> that was leaked from a Box.
    drop(unsafe { Box::from_raw(header.cast::<Node<T>>()) });
}

/// Runs the closure after a grace period, in softirq context: it must not sleep.
pub fn call(closure: Box<dyn FnOnce() + Send>) {
    struct Call(Option<Box<dyn FnOnce() + Send>>);
    impl Drop for Call {
        fn drop(&mut self) {
            if let Some(closure) = self.0.take() {
                closure();
            }
        }
    }
    RcuBox::new(Call(Some(closure))).defer_drop();
}

/// A first-in-first-out list of headers.
struct List {
    first: *mut Header,
    last: *mut Header,
}

// SAFETY: the headers belong to the list; what they own is Send (RcuBox's bound).
unsafe impl Send for List {}

impl List {
    const fn new() -> Self {
        Self { first: ptr::null_mut(), last: ptr::null_mut() }
    }

    fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    fn push(&mut self, header: *mut Header) {
        if self.first.is_null() {
            self.first = header;
        } else {
            // SAFETY: `last` is a live header of this list, which owns it.
            unsafe { (*self.last).next = header };
        }
        self.last = header;
    }

    fn pop(&mut self) -> Option<*mut Header> {
        let first = NonNull::new(self.first)?;
        // SAFETY: `first` is a live header of this list, which owns it.
        self.first = unsafe { first.as_ref().next };
        Some(first.as_ptr())
    }

    fn append(&mut self, other: &mut List) {
        if other.is_empty() {
            return;
        }
        self.push(other.first);
        self.last = other.last;
        *other = List::new();
    }
}

struct Lists {
    next: List,
    wait: List,
    wait_for: u64,
    done: List,
    /// Callbacks ever put in.
    queued: u64,
}

struct Local {
    lists: IrqSpinLock<Lists>,
    /// Callbacks in all three lists, and the one that is running. Raised under the lock.
    count: AtomicU64,
}

static LOCAL: PerCpu<Local> = per_cpu!(Local {
    lists: IrqSpinLock::new(Lists {
        next: List::new(),
        wait: List::new(),
        wait_for: 0,
        done: List::new(),
        queued: 0
    }),
    count: AtomicU64::new(0),
});

/// A `fn()`, null while nobody has registered one.
static REQUEST_HOOK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Registers what is called when a CPU gets its first callback: it has to arrange for [`invoke`] to
/// be called on that CPU until nothing is [`pending`].
pub fn set_request_hook(hook: fn()) {
    REQUEST_HOOK.store(hook as *mut (), Ordering::Release);
}

fn enqueue(header: *mut Header) {
    let _preemption = machine::preempt::disable();
    let local = LOCAL.this();
    let is_first = {
        let mut lists = local.lists.lock();
        lists.next.push(header);
        lists.queued += 1;
        local.count.fetch_add(1, Ordering::Relaxed) == 0
    };
    if is_first {
        let hook = REQUEST_HOOK.load(Ordering::Acquire);
        if !hook.is_null() {
            // SAFETY: a non-null pointer was stored from a `fn()` in `set_request_hook`.
            unsafe { core::mem::transmute::<*mut (), fn()>(hook)() };
        }
    }
}

/// How many callbacks wait on this CPU. The caller cannot migrate.
pub fn pending() -> u64 {
    LOCAL.this().count.load(Ordering::Relaxed)
}

/// Moves this CPU's callbacks forward and runs at most `limit` of those whose grace period is over.
/// Returns whether more of them are ready. The caller cannot migrate.
pub fn invoke(limit: u32) -> bool {
    let local = LOCAL.this();
    if local.count.load(Ordering::Relaxed) == 0 {
        return false;
    }
    advance(local);
    for _ in 0..limit {
        let Some(header) = local.lists.lock().done.pop() else { return false };
        // SAFETY: the list owned the header; its grace period is over; `run` consumes it.
        unsafe { ((*header).run)(header) };
        // Release: pairs with the Acquire in `progress`.
        local.count.fetch_sub(1, Ordering::Release);
    }
    !local.lists.lock().done.is_empty()
}

/// Callbacks that have run on a CPU, and those that were ever queued there.
fn progress(local: &Local) -> (u64, u64) {
    let lists = local.lists.lock();
    // Acquire: what the callbacks did is visible.
    (lists.queued - local.count.load(Ordering::Acquire), lists.queued)
}

/// Waits until everything that was handed to RCU before this call, on any CPU, has been dropped or has run. May sleep.
pub fn barrier() {
    for cpu in grace_period::all_cpus().iter() {
        wait_for_queued(LOCAL.of(cpu));
    }
}

/// Waits until what is queued on a CPU now has run.
fn wait_for_queued(local: &Local) {
    let (ran, target) = progress(local);
    if ran < target {
        // Callbacks of a CPU run in the order in which they were queued.
        grace_period::wait(&|| progress(local).0 >= target);
    }
}

fn advance(local: &Local) {
    let mut lists = local.lists.lock();
    let lists = &mut *lists;
    if !lists.wait.is_empty() && grace_period::completed() >= lists.wait_for {
        lists.done.append(&mut lists.wait);
    }
    if lists.wait.is_empty() && !lists.next.is_empty() {
        lists.wait.append(&mut lists.next);
        lists.wait_for = grace_period::request();
        if grace_period::completed() >= lists.wait_for {
            lists.done.append(&mut lists.wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    fn run_all() {
        let _preemption = machine::preempt::disable();
        for _ in 0..10_000_000 {
            grace_period::quiescent();
            grace_period::force();
            invoke(10);
            if pending() == 0 {
                return;
            }
            machine::cpu::relax();
        }
        panic!("callbacks never became ready");
    }

    #[test]
    fn callback_runs_once_after_a_grace_period() {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = runs.clone();
        call(Box::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        assert_eq!(runs.load(Ordering::Relaxed), 0, "not before the grace period");
        run_all();
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn barrier_waits_for_what_was_queued_before() {
        // Of this CPU only: other tests leave callbacks on theirs.
        let local = {
            let _preemption = machine::preempt::disable();
            LOCAL.this()
        };
        let runs = Arc::new(AtomicU32::new(0));
        for _ in 0..5 {
            let counted = runs.clone();
            call(Box::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
            }));
        }
        let done = Arc::new(AtomicU32::new(0));
        let waiter = {
            let (runs, done) = (runs.clone(), done.clone());
            std::thread::spawn(move || {
                wait_for_queued(local);
                done.store(runs.load(Ordering::Relaxed), Ordering::Relaxed);
            })
        };
        while !waiter.is_finished() {
            let _preemption = machine::preempt::disable();
            grace_period::quiescent();
            invoke(1);
        }
        waiter.join().unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn order_of_callbacks_is_kept() {
        let order = Arc::new(crate::SpinLock::new(Vec::new()));
        for number in 0..25 {
            let order = order.clone();
            call(Box::new(move || order.lock().push(number)));
        }
        run_all();
        assert_eq!(*order.lock(), (0..25).collect::<Vec<_>>());
    }
}
