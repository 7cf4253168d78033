//! High-resolution timers.
//!
//! Each CPU has a tree of timers ordered by expiry; arming and cancelling cost O(log n) and allocate nothing, because the
//! link is in the timer. A timer waits on the CPU that armed it. Two kinds:
//! - *wake-ups* live on the stack of a sleeping thread; the deadline interrupt itself wakes the thread, so that a 100 µs sleep takes
//!   100 µs;
//! - [`Timer`]s have a callback, which runs in softirq context, shortly after.
//!
//! Places of a node: IDLE → (arm) WAITING in the tree → (expiry) DUE, callbacks only → (softirq) IDLE; cancelling takes it from
//! WAITING or DUE to IDLE. All under the lock of the CPU that the node names. For wake-ups the store of IDLE is the last
//! that the interrupt does to the node, so the sleeper that sees it may leave.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use intrusive_collections::{KeyAdapter, RBTree, RBTreeAtomicLink, UnsafeRef, intrusive_adapter};
use machine::cpu::{self, CpuId};
use machine::{interrupt, preempt, time};
use memory::OutOfMemory;
use sync::{IrqSpinLock, PerCpu, per_cpu};

use crate::next_time::{NEVER_NS, NextTime};
use crate::softirq::{self, Softirq};
use crate::thread::Thread;
use crate::wait::{Interrupted, WaitError};
use crate::{deadline, placement};

const IDLE: u8 = 0;
const WAITING: u8 = 1;
const DUE: u8 = 2;

/// What happens at the expiry.
enum Action {
    /// Wake the thread, in the interrupt.
    Wake(*const Thread),
    /// Run the callback of the [`Timer`] that the node is the first field of.
    Call,
    /// Raise a softirq.
    Raise(Softirq),
}

pub(crate) struct Node {
    link: RBTreeAtomicLink,
    expiry_ns: AtomicU64,
    place: AtomicU8,
    /// The CPU whose tree it is in, or was last.
    cpu: AtomicU32,
    action: Action,
}

// SAFETY: the raw pointer in `action` is to a thread, which is Sync, and which is alive while its node is armed.
unsafe impl Sync for Node {}
// SAFETY: see above.
unsafe impl Send for Node {}

intrusive_adapter!(ByExpiry = UnsafeRef<Node>: Node { link => RBTreeAtomicLink });

impl<'a> KeyAdapter<'a> for ByExpiry {
    type Key = u64;
    fn get_key(&self, node: &'a Node) -> u64 {
        node.expiry_ns.load(Ordering::Relaxed)
    }
}

struct Trees {
    waiting: RBTree<ByExpiry>,
    due: RBTree<ByExpiry>,
}

// SAFETY: nodes are Sync, and stay alive while they are linked: wake-ups are taken out before their frame ends, timers
// hold a reference to themselves.
unsafe impl Send for Trees {}

struct Base {
    trees: IrqSpinLock<Trees>,
    /// Expiry of the first waiting node. Written under the lock.
    first: NextTime,
}

static BASES: PerCpu<Base> = per_cpu!(Base {
    trees: IrqSpinLock::new(Trees { waiting: RBTree::new(ByExpiry::NEW), due: RBTree::new(ByExpiry::NEW) }),
    first: NextTime::never(),
});

impl Base {
    fn publish(&self, trees: &Trees) {
        let first =
            trees.waiting.front().get().map_or(NEVER_NS, |node| node.expiry_ns.load(Ordering::Relaxed));
        self.first.set(first);
    }
}

/// Expiry of this CPU's first timer. The caller cannot migrate.
#[inline(always)]
pub(crate) fn first_expiry() -> u64 {
    BASES.this().first.get()
}

impl Node {
    const fn new(action: Action) -> Self {
        Self {
            link: RBTreeAtomicLink::new(),
            expiry_ns: AtomicU64::new(0),
            place: AtomicU8::new(IDLE),
            cpu: AtomicU32::new(0),
            action,
        }
    }

    /// A node that raises a softirq when it expires; for statics.
    pub(crate) const fn raising(softirq: Softirq) -> Self {
        Self::new(Action::Raise(softirq))
    }

    /// Puts an idle node into this CPU's tree.
    ///
    /// # Safety
    /// The node stays where it is until it is IDLE again.
    pub(crate) unsafe fn arm(&self, expiry_ns: u64) {
        let _interrupts = interrupt::disable();
        let this = cpu::current();
        let base = BASES.of(this);
        let mut trees = base.trees.lock();
        debug_assert_eq!(self.place.load(Ordering::Relaxed), IDLE, "a node is armed once at a time");
        self.cpu.store(this.index() as u32, Ordering::Relaxed);
        self.expiry_ns.store(expiry_ns, Ordering::Relaxed);
        self.place.store(WAITING, Ordering::Relaxed);
        // SAFETY: the caller keeps the node in place until it has been taken out.
        trees.waiting.insert(unsafe { UnsafeRef::from_raw(self) });
        base.publish(&trees);
        drop(trees);
        deadline::arm();
    }

    pub(crate) fn is_idle(&self) -> bool {
        // Acquire: pairs with the Release in `expire`.
        self.place.load(Ordering::Acquire) == IDLE
    }

    /// Takes the node out of its tree; false if it was in none.
    pub(crate) fn disarm(&self) -> bool {
        if self.is_idle() {
            return false;
        }
        let base = BASES.of(CpuId::from_index(self.cpu.load(Ordering::Relaxed) as usize));
        let mut trees = base.trees.lock();
        let tree = match self.place.load(Ordering::Relaxed) {
            WAITING => &mut trees.waiting,
            DUE => &mut trees.due,
            _ => return false,
        };
        // SAFETY: the place says which tree of this base the node is linked into; the lock is held.
        unsafe { tree.cursor_mut_from_ptr(self) }.remove();
        self.place.store(IDLE, Ordering::Release);
        base.publish(&trees);
        true
    }
}

/// Handles the timers of this CPU that have expired; in the deadline interrupt.
pub(crate) fn expire(now_ns: u64) {
    let base = BASES.this();
    if base.first.get() > now_ns {
        return;
    }
    let mut trees = base.trees.lock();
    loop {
        let mut first = trees.waiting.front_mut();
        if first.get().is_none_or(|node| node.expiry_ns.load(Ordering::Relaxed) > now_ns) {
            break;
        }
        let Some(node) = first.remove() else { break };
        match node.action {
            Action::Wake(thread) => {
                // SAFETY: the thread is alive: it leaves the frame that holds the node only after IDLE.
                placement::wake(unsafe { &*thread }, placement::WakeMode::default());
                // Release: the last access; pairs with the Acquire in `is_idle`.
                node.place.store(IDLE, Ordering::Release);
            }
            Action::Call => {
                node.place.store(DUE, Ordering::Relaxed);
                trees.due.insert(node);
                softirq::raise(Softirq::Timer);
            }
            Action::Raise(softirq) => {
                node.place.store(IDLE, Ordering::Release);
                softirq::raise(softirq);
            }
        }
    }
    base.publish(&trees);
}

/// Time after which the other callbacks that are due have to wait for the next softirq: those that arm their timers again at once
/// would otherwise keep the CPU for ever.
const RUN_NS: u64 = 1_000_000;

/// Runs the callbacks that are due on this CPU; the handler of [`Softirq::Timer`].
pub(crate) fn run_due() {
    let base = BASES.this();
    let end_ns = time::now_ns() + RUN_NS;
    loop {
        let node = {
            let mut trees = base.trees.lock();
            let Some(node) = trees.due.front_mut().remove() else { return };
            node.place.store(IDLE, Ordering::Relaxed);
            UnsafeRef::into_raw(node)
        };
        let timer = node.cast::<Timer>();
        // SAFETY: a node with a `Call` action is the first field of a `repr(C)` Timer; the reference is the one that
        // `Timer::arm` made for the time that the timer is armed.
        let timer = unsafe { Arc::from_raw(timer) };
        (timer.callback)();
        drop(timer);
        if time::now_ns() >= end_ns {
            softirq::raise(Softirq::Timer);
            return;
        }
    }
}

/// A timer with a callback, which runs in softirq context: it must not sleep and may take spin locks and wake threads.
#[repr(C)]
pub struct Timer {
    node: Node,
    /// Serialises arming and cancelling.
    control: IrqSpinLock<()>,
    callback: Box<dyn Fn() + Send + Sync>,
}

impl Timer {
    /// A timer that is not armed.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(callback: Box<dyn Fn() + Send + Sync>) -> Result<Arc<Timer>, OutOfMemory> {
        crate::stack::try_arc(Timer {
            node: Node::new(Action::Call),
            control: IrqSpinLock::named("timer", ()),
            callback,
        })
    }

    /// Arms it, or moves it if it is armed already: the callback runs once, at or shortly after `expiry_ns` (on the clock of
    /// [`time::now_ns`]).
    pub fn arm(self: &Arc<Self>, expiry_ns: u64) {
        let _control = self.control.lock();
        if !self.node.disarm() {
            // The reference that the tree holds.
            let _ = Arc::into_raw(self.clone());
        }
        // SAFETY: the reference above keeps the timer where it is until `run_due` or `cancel` drops it.
        unsafe { self.node.arm(expiry_ns) };
    }

    /// Disarms it; returns whether it was armed. The callback may be running on another CPU still.
    pub fn cancel(self: &Arc<Self>) -> bool {
        let control = self.control.lock();
        let was_armed = self.node.disarm();
        drop(control);
        if was_armed {
            // SAFETY: the reference that `arm` made for the tree, which no longer has the node.
            drop(unsafe { Arc::from_raw(Arc::as_ptr(self)) });
        }
        was_armed
    }

    /// When it will expire, if it is armed.
    pub fn expiry_ns(&self) -> Option<u64> {
        (!self.node.is_idle()).then(|| self.node.expiry_ns.load(Ordering::Relaxed))
    }
}

impl core::fmt::Debug for Timer {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Timer").field("expiry_ns", &self.expiry_ns()).finish_non_exhaustive()
    }
}

/// Calls `wait` with a check for the deadline, which wakes the current thread when it passes. Without a deadline the check
/// is always false.
pub(crate) fn with_deadline<R>(deadline_ns: Option<u64>, wait: impl FnOnce(&dyn Fn() -> bool) -> R) -> R {
    let Some(deadline_ns) = deadline_ns else { return wait(&|| false) };
    /// Takes the node out of the tree before its frame ends, however that comes.
    struct Armed(Node);
    impl Drop for Armed {
        fn drop(&mut self) {
            self.0.disarm();
        }
    }
    let armed = Armed(Node::new(Action::Wake(&raw const *crate::thread::current())));
    // SAFETY: `armed` stays in this frame, and its drop takes the node out.
    unsafe { armed.0.arm(deadline_ns) };
    wait(&|| armed.0.is_idle() || time::now_ns() >= deadline_ns)
}

/// Sleeps until the time has come, on the clock of [`time::now_ns`].
///
/// # Errors
/// [`Interrupted`] when the thread's attention flag is set before that.
pub fn sleep_until(deadline_ns: u64) -> Result<(), Interrupted> {
    match crate::wait::block_interruptible(|| false, Some(deadline_ns)) {
        Err(WaitError::Interrupted) => Err(Interrupted),
        Ok(()) | Err(WaitError::TimedOut) => Ok(()),
    }
}

/// Sleeps until the time has come, whatever happens.
pub fn sleep_until_uninterruptible(deadline_ns: u64) {
    let _timed_out = crate::wait::block_uninterruptible(|| false, Some(deadline_ns));
    debug_assert!(preempt::count() == 0, "sleeping is for threads");
}
