//! A thread as other threads see it. What only the thread itself touches is in its [`crate::task::Task`].
//!
//! Life: made by fork with its kernel thread not yet running; listed in its process and in the table; started; on exit it leaves both.
//! Memory: this struct stays well under 1 KiB, because a process may have tens of thousands (the limit is asserted below).
//!
//! Locking: `pending` nests inside the process's `signals` lock. `blocked` is written by the thread itself only (relaxed: the
//! return path looks again under the lock). The pointers in `shared` are copies of those in the thread's task, for /proc and for
//! permission checks; the task replaces both.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use sched::ThreadRef;
use sync::{Once, SpinLock};
use vfs::DescriptorTable;

use super::process::Process;
use super::table::Pid;
use super::transfers::Transfers;
use crate::credentials::account::ProcessCharge;
use crate::credentials::identity::Credentials;
use crate::exec::persona::Persona;
use crate::file::context::{FileSystemContext, FileSystemUse};
use crate::io_ring::Closing;
use crate::name_space::NameSpaces;
use crate::ptrace::tracee::Tracee;
use crate::seccomp::{Mode, Restriction};
use crate::signal::pending::Pending;
use crate::signal::set::SignalSet;
use crate::sysv::semaphore::undo::UndoList;

/// Longest thread name, with its final NUL.
pub const NAME_BYTES: usize = 16;

/// What others may want to know of a thread's own pointers.
pub(crate) struct Shared {
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) files: Option<Arc<DescriptorTable>>,
    pub(crate) file_system: Option<FileSystemUse>,
    pub(crate) name: [u8; NAME_BYTES],
    pub(crate) charge: Option<ProcessCharge>,
    /// Made on its first use, by the thread itself.
    pub(crate) undo: Option<Arc<UndoList>>,
    /// The name spaces that it is in, unless they are the first ones.
    pub(crate) name_spaces: Option<Arc<NameSpaces>>,
    /// What restricts its calls.
    pub(crate) restriction: Restriction,
    /// Submission rings that it is to close.
    pub(crate) closing: Closing,
}

/// A thread of a process. In cache lines of its own: threads of other processes are its neighbours in the heap.
#[repr(align(64))]
pub struct Thread {
    tid: AtomicU32,
    process: Arc<Process>,
    kernel: Once<ThreadRef>,
    pub(crate) pending: SpinLock<Pending>,
    blocked: AtomicU64,
    /// Signals it waits for in sigtimedwait: taken although they would be ignored. Written by the thread.
    pub(crate) awaited: AtomicU64,
    /// Set when the thread shall end without running user code again: its process exits or another thread executes a program.
    pub(crate) killed: AtomicBool,
    pub(crate) exiting: AtomicBool,
    pub(crate) stopped: AtomicBool,
    /// The round of stops in which it was counted as parked last; see `signal::shared`.
    pub(crate) parked_in: AtomicU32,
    /// Children start as ordinary threads (SCHED_RESET_ON_FORK).
    pub(crate) resets_on_fork: AtomicBool,
    /// Its number for messages, 0 if it has none; written by the thread.
    pub(crate) ipc_id: AtomicU64,
    /// How a fault of it is with the pager that it asked.
    pub(crate) asked: crate::pager::Asked,
    /// Page faults so far; written by the thread.
    faults: AtomicU64,
    /// What it has read and written; written by the thread.
    pub(crate) transfers: Transfers,
    /// Its number among those that wait for locks with priority inheritance, or own one that others wait for; see [`crate::futex::inheritance`].
    /// Written with that graph locked.
    pub(crate) inheritance: AtomicU32,
    /// Copy of the head of its robust list, for get_robust_list.
    pub(crate) robust_list: AtomicU64,
    /// Who watches its calls, and it: see the constants.
    watch: AtomicU8,
    /// It stands for its tracer. Written by the thread.
    pub(crate) stands: AtomicBool,
    /// execve gives it no privileges any more.
    no_new_privileges: AtomicBool,
    /// Its execution domain; written by the thread.
    persona: AtomicU32,
    /// Added to timers' expiry (PR_SET_TIMERSLACK); reported only.
    timer_slack_ns: AtomicU64,
    pub(crate) shared: SpinLock<Shared>,
    /// As what it is traced: see [`ptrace`](crate::ptrace).
    pub(crate) trace: SpinLock<Option<Arc<Tracee>>>,
}

/// In `watch`: there is a restriction of its calls. Written with `shared` locked.
const FILTERED: u8 = 1;
/// Its tracer is told of its calls, or takes it through the program step by step.
const TRACED_CALLS: u8 = 1 << 1;
/// It has a tracer.
const TRACED: u8 = 1 << 2;

const _: () = assert!(size_of::<Thread>() <= 384, "a thread's bookkeeping must stay small");

impl Thread {
    /// A thread that is not yet listed anywhere and has no kernel thread.
    pub(crate) fn new(tid: Pid, process: Arc<Process>, blocked: SignalSet, shared: Shared) -> Thread {
        Thread {
            tid: AtomicU32::new(tid),
            process,
            kernel: Once::new(),
            pending: SpinLock::new(Pending::new()),
            blocked: AtomicU64::new(blocked.bits()),
            awaited: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            exiting: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            parked_in: AtomicU32::new(0),
            resets_on_fork: AtomicBool::new(false),
            ipc_id: AtomicU64::new(0),
            asked: crate::pager::Asked::default(),
            faults: AtomicU64::new(0),
            transfers: Transfers::default(),
            inheritance: AtomicU32::new(0),
            robust_list: AtomicU64::new(0),
            watch: AtomicU8::new(if shared.restriction.mode() == Mode::None { 0 } else { FILTERED }),
            stands: AtomicBool::new(false),
            no_new_privileges: AtomicBool::new(false),
            persona: AtomicU32::new(0),
            timer_slack_ns: AtomicU64::new(crate::prctl::DEFAULT_SLACK_NS),
            shared: SpinLock::new(shared),
            trace: SpinLock::new(None),
        }
    }

    /// Counts a page fault; the thread itself calls.
    pub(crate) fn count_fault(&self) {
        // Relaxed: nobody else writes, and readers need no order.
        self.faults.store(self.faults.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Page faults so far.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Its number.
    pub fn tid(&self) -> Pid {
        // Relaxed: changes only in execve, when no other thread is left in the process.
        self.tid.load(Ordering::Relaxed)
    }

    /// Its number in its own name space of process numbers: what it writes into memory itself.
    pub(crate) fn own_number(&self) -> Pid {
        super::pid_space::seen(self.process.space(), self.tid())
    }

    pub(crate) fn set_tid(&self, tid: Pid) {
        self.tid.store(tid, Ordering::Relaxed);
    }

    /// Its process.
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// Connects it with the kernel thread that runs it.
    pub(crate) fn set_kernel_thread(self: &Arc<Self>, kernel: ThreadRef) {
        let this = Arc::downgrade(self);
        kernel.set_personality(this);
        self.kernel.call_once(|| kernel);
    }

    /// The kernel thread that runs it, once it has one.
    pub fn kernel_thread(&self) -> Option<&ThreadRef> {
        self.kernel.get()
    }

    /// Signals it holds back.
    pub fn blocked(&self) -> SignalSet {
        SignalSet::from_bits(self.blocked.load(Ordering::Relaxed))
    }

    /// Whether it wants to see the signal even where it has no effect: blocked now, or awaited.
    pub(crate) fn holds_back(&self, signal: crate::signal::set::Signal) -> bool {
        self.blocked().contains(signal) || self.awaits(signal)
    }

    /// Whether it waits for the signal.
    pub(crate) fn awaits(&self, signal: crate::signal::set::Signal) -> bool {
        SignalSet::from_bits(self.awaited.load(Ordering::Relaxed)).contains(signal)
    }

    /// Whether it would take the signal: not blocked, and the thread is not about to end.
    pub(crate) fn can_take(&self, signal: crate::signal::set::Signal) -> bool {
        !self.blocked().contains(signal) && !self.exiting.load(Ordering::Relaxed)
    }

    pub(crate) fn set_blocked(&self, set: SignalSet) {
        self.blocked.store(set.blockable().bits(), Ordering::Relaxed);
    }

    /// Its credentials.
    pub fn credentials(&self) -> Arc<Credentials> {
        self.shared.lock().credentials.clone()
    }

    /// Its descriptors, until it exits.
    pub fn files(&self) -> Option<Arc<DescriptorTable>> {
        self.shared.lock().files.clone()
    }

    /// Its root, current directory and umask, until it exits.
    pub fn file_system(&self) -> Option<Arc<FileSystemContext>> {
        self.shared.lock().file_system.as_ref().map(|own| own.context().clone())
    }

    /// Whether somebody has a say in its calls: filters, or a tracer.
    #[inline(always)]
    pub(crate) fn has_watched_calls(&self) -> bool {
        // Relaxed, as below: what it is about is under locks.
        self.watch.load(Ordering::Relaxed) & (FILTERED | TRACED_CALLS) != 0
    }

    /// Whether not all its calls may be made: see [`seccomp`](crate::seccomp).
    pub(crate) fn is_filtered(&self) -> bool {
        self.watch.load(Ordering::Relaxed) & FILTERED != 0
    }

    pub(crate) fn set_filtered(&self, is_filtered: bool) {
        self.set_watch(FILTERED, is_filtered);
    }

    /// Whether it is traced: see [`ptrace`](crate::ptrace).
    pub(crate) fn is_traced(&self) -> bool {
        self.watch.load(Ordering::Relaxed) & TRACED != 0
    }

    /// With `trace` locked.
    pub(crate) fn set_traced(&self, is_traced: bool) {
        self.set_watch(if is_traced { TRACED } else { TRACED | TRACED_CALLS }, is_traced);
    }

    /// Whether a tracer is told of its calls.
    pub(crate) fn has_traced_calls(&self) -> bool {
        self.watch.load(Ordering::Relaxed) & TRACED_CALLS != 0
    }

    /// While it stands.
    pub(crate) fn set_traced_calls(&self, has_traced_calls: bool) {
        self.set_watch(TRACED_CALLS, has_traced_calls);
    }

    fn set_watch(&self, bits: u8, are_set: bool) {
        if are_set {
            self.watch.fetch_or(bits, Ordering::Relaxed);
        } else {
            self.watch.fetch_and(!bits, Ordering::Relaxed);
        }
    }

    /// Whether execve gives it no privileges any more (`PR_SET_NO_NEW_PRIVS`).
    pub(crate) fn has_no_new_privileges(&self) -> bool {
        self.no_new_privileges.load(Ordering::Relaxed)
    }

    /// Its execution domain.
    pub(crate) fn persona(&self) -> Persona {
        Persona::from_bits_retain(self.persona.load(Ordering::Relaxed))
    }

    /// Sets that; the thread itself calls, or who makes it.
    pub(crate) fn set_persona(&self, persona: Persona) {
        self.persona.store(persona.bits(), Ordering::Relaxed);
    }

    /// How late its timers may be.
    pub(crate) fn timer_slack_ns(&self) -> u64 {
        self.timer_slack_ns.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub(crate) fn set_timer_slack_ns(&self, slack: u64) {
        self.timer_slack_ns.store(slack, Ordering::Relaxed);
    }

    /// From now on execve gives it none.
    pub(crate) fn gain_no_privileges(&self) {
        self.no_new_privileges.store(true, Ordering::Relaxed);
    }

    /// Its name, padded with NUL.
    pub fn name(&self) -> [u8; NAME_BYTES] {
        self.shared.lock().name
    }

    /// Sets its name; what does not fit is cut off.
    pub fn set_name(&self, name: &[u8]) {
        let mut padded = [0; NAME_BYTES];
        let length = name.len().min(NAME_BYTES - 1);
        padded[..length].copy_from_slice(&name[..length]);
        self.shared.lock().name = padded;
    }

    /// Makes it look at its signals: it leaves user mode or an interruptible sleep.
    pub fn interrupt(&self) {
        if let Some(kernel) = self.kernel.get() {
            kernel.set_attention(true);
        }
    }

    /// Makes it end as soon as it can.
    pub(crate) fn kill(&self) {
        // Release: pairs with the Acquire in is_killed.
        self.killed.store(true, Ordering::Release);
        if let Some(kernel) = self.kernel.get() {
            kernel.kill();
        }
    }

    /// Whether it shall end.
    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }
}
